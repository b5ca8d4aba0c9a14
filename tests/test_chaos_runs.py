"""Runs that are killed at file operations and resumed end as the one that nobody touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from experiments import chaos_runs
from experiments.chaos_runs import compare, kill_runs

SHORT = {"run.steps": 4, "run.eval_every": 2, "run.eval_problems": 8, "run.test_problems": 8}


def test_killed_runs_end_as_the_undisturbed_one_and_a_difference_would_be_seen(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    for name in ("whole", *(f"killed_{number}" for number in range(1, 5))):
        tiny_cold_starts(tmp_path / name)
    report = kill_runs(2, 0, tmp_path, SHORT)
    assert report.differences == []
    assert report.by_time == report.by_file == 1
    assert report.finished >= 1
    assert sum(report.phases.values()) == 2
    damaged = Path(shutil.copytree(tmp_path / "whole" / "run", tmp_path / "damaged"))
    (damaged / "trajectories.jsonl").write_text("")
    assert compare(tmp_path / "whole" / "run", damaged) == ["trajectories.jsonl"]
    assert set(chaos_runs.SMALL) >= set(SHORT)
