"""Sweeps, tables and evaluation of finished runs."""

from __future__ import annotations

import io
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from agents.config import Config
from agents.runs import locked
from agents.trainer import train
from experiments.compare import CompareConfig, Run, compare, read_runs, varying
from experiments.evaluate import EvaluateConfig, evaluate
from experiments.presets import PRESETS, expand
from experiments.sweep import SweepConfig, plan, sweep
from tests.test_train_cli import ROOT, command, refused
from tests.tiny import Silent, rows, tiny_config
from tool_gym.errors import ConfigError

SMALL = {
    "env.answers": "2",
    "policy.layers": "1",
    "policy.width": "32",
    "policy.heads": "2",
    "policy.context": "224",
    "sft.steps": "60",
    "sft.batch": "16",
    "sft.demonstrations": "512",
    "sft.warmup": "10",
    "sft.learning_rate": "1e-2",
    "algo.prompts": "4",
    "algo.group_size": "4",
    "run.steps": "2",
    "run.eval_every": "1",
    "run.eval_problems": "8",
    "run.test_problems": "8",
}


def say() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=400), out


@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_are_grids_of_valid_runs_with_distinct_names(name: str) -> None:
    preset = PRESETS[name]
    runs = expand(preset.grid, preset.seeds, Config())
    assert len(runs) == len(preset.seeds) * np.prod([len(values) for values in preset.grid.values()])
    assert len({run_name for run_name, _ in runs}) == len(runs)
    for_tuning = name in ("tune", "cold-start")
    assert all((seed >= 1000) == for_tuning for seed in preset.seeds)
    assert for_tuning or all(seed < 100 for seed in preset.seeds)


def test_a_sweep_runs_what_is_missing_and_compare_reads_it(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    tiny_cold_starts(tmp_path / "regime")
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    config = SweepConfig(out=tmp_path, seeds=(0, 1), set=SMALL, grid=grid, processes=2)
    console, out = say()
    assert sweep(config, console) == 0
    assert "4 runs, 0 finished" in out.getvalue()
    folder = tmp_path / "regime"
    runs = read_runs(folder)
    assert len(runs) == 4
    assert varying(runs) == ["algo.selector"]
    first = {path: path.read_bytes() for path in folder.glob("*/metrics.jsonl")}

    # Finished runs are skipped; one that was interrupted is resumed to the same end, one that never began is begun.
    (cut,) = folder.glob("*roc,*seed=1")
    (never,) = folder.glob("*roc,*seed=0")
    whole = {path: rows(path) for path in (cut, never)}
    (cut / "summary.json").unlink()
    shutil.rmtree(cut / "checkpoints" / "step_000002")
    shutil.rmtree(never)
    never.mkdir()
    console, out = say()
    assert sweep(config, console) == 0
    assert "4 runs, 2 finished" in out.getvalue()
    assert whole == {path: rows(path) for path in (cut, never)}
    assert all(path.read_bytes() == first[path] for path in first if path.parent not in (cut, never))

    console, out = say()
    compare(CompareConfig(folder), console)
    text = out.getvalue()
    assert "| figure |" in text
    assert "roc − stratified" in text
    assert "AUC good first call" in text
    assert "nan" not in text

    console, out = say()
    with pytest.raises(ConfigError, match="another configuration"):
        sweep(SweepConfig(out=tmp_path, seeds=(0,), set={**SMALL, "run.steps": "3"}, grid=grid), console)


def test_a_run_that_fails_is_named_with_its_log_and_stops_no_other(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_cold_starts(tmp_path / "regime")
    import experiments.sweep as module

    original = module._command

    def sabotage(folder: Path, config: Config) -> list[str]:
        words = original(folder, config)
        return [words[0], "-c", "raise SystemExit('broken')"] if "selector=roc" in folder.name else words

    monkeypatch.setattr(module, "_command", sabotage)
    grid = {"algo.selector": "roc,stratified", "noise.correlation": "0.0", "env.answers": "2"}
    console, out = say()
    assert sweep(SweepConfig(out=tmp_path, seeds=(0,), set=SMALL, grid=grid, processes=1), console) == 1
    assert "failed: answers=2,correlation=0.0,selector=roc,seed=0" in out.getvalue()
    (log,) = tmp_path.glob("regime/*selector=roc*.log")
    assert "broken" in log.read_text()
    assert len(read_runs(tmp_path / "regime")) == 1


def test_bad_sweeps_are_refused_before_anything_runs(tmp_path: Path) -> None:
    for words, parts in (
        (("sweep", "regimes"), ("preset", "regimes", "regime, tune, cold-start")),
        (("sweep", "--set", "algo.selector", "rocc"), ("algo.selector", "rocc")),
        (("sweep", "--grid", "noise.rate", "0.1,1.3"), ("noise.rate", "1.3")),
        (("sweep", "--set", "noise.ratio", "1"), ("noise.ratio",)),
        (("sweep", "--set", "env.id", "nope"), ("env", "nope", "tool_gym/Arithmetic-v0")),
        (("sweep", "--set", "run.seed", "3"), ("run.seed", "--seeds")),
        (("sweep", "--grid", "run.name", "a,b"), ("run.name", "--out")),
        (("sweep", "--seeds", "0", "0"), ("seeds", "each once")),
        (("sweep", "--grid", "noise.rate", ".1,.1"), ("noise.rate", "each once")),
        (("compare", "nothing"), ("folder", "nothing")),
        (("evaluate", "nothing"), ("run", "nothing")),
    ):
        refused(command("-m", "experiments", *words, cwd=tmp_path), *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_changes_only_what_it_says() -> None:
    runs = plan(SweepConfig(seeds=(3,), grid={"noise.rate": ".1,.5"}))
    assert len(runs) == 2 * 12
    name, config = runs[0]
    assert name == "answers=10,correlation=0.9,selector=grpo,rate=0.1,seed=3"
    assert (config.env.answers, config.noise.correlation, config.algo.selector) == (10, 0.9, "grpo")
    assert (config.noise.rate, config.run.seed) == (0.1, 3)
    grid = {"env.difficulties": "(3, 4),(4, 5)", "env.id": "tool_gym/Arithmetic-v0"}
    runs = plan(SweepConfig(seeds=(3,), grid=grid))
    assert {config.env.difficulties for _, config in runs} == {(3, 4), (4, 5)}
    assert all("/" not in name for name, _ in runs)


def test_evaluate_repeats_the_summary_and_takes_other_noise(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    folder = train(tiny_config(tiny_cold_starts(tmp_path)), Silent())
    summary = json.loads((folder / "summary.json").read_text())["test"]["last"]
    console, out = say()
    figures = evaluate(EvaluateConfig(folder), console)
    assert {k: None if v != v else v for k, v in figures.items()} == summary
    assert "eval/accuracy" in out.getvalue()
    other = evaluate(EvaluateConfig(folder, noise="none"), console)
    assert other["eval/accuracy"] == figures["eval/accuracy_clean"]
    assert np.isnan(other["eval/recovery"])
    with pytest.raises(ConfigError, match=r"noise\.rate"):
        evaluate(EvaluateConfig(folder, noise_rate=2.0), console)
    with pytest.raises(ConfigError, match="checkpoint"):
        evaluate(EvaluateConfig(folder, checkpoint="step_999999"), console)


def test_areas_and_late_means_of_a_run() -> None:
    table = [{"step": s, "eval/accuracy": v, "roc/x": x} for s, v, x in ((0, 0.0, None), (5, 1.0, 2.0), (10, 1.0, 4.0))]
    run = Run(Config().replace(**{"run.steps": 10}), table, {})
    assert run.area("eval/accuracy") == pytest.approx(0.75)
    assert np.isnan(run.area("roc/x"))
    assert run.late("roc/x") == pytest.approx(4.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_that_is_killed_leaves_no_run_behind(
    number: signal.Signals, tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    folder = tiny_cold_starts(tmp_path / "regime")
    settings = [word for pair in (SMALL | {"run.steps": "40"}).items() for word in pair]
    words = ["sweep", "--out", str(tmp_path), "--seeds", "0", "--processes", "1", "--set", *settings]
    grid = ["--grid", "algo.selector", "roc", "noise.correlation", "0.0", "env.answers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments", *words, *grid], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not list(folder.glob("*/checkpoints/step_000000")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.wait(timeout=30)
    (run,) = (path.parent for path in folder.glob("*/config.json"))
    for _ in range(200):
        try:
            with locked(run):
                break
        except ConfigError:
            time.sleep(0.05)
    with locked(run):
        assert not (run / "summary.json").exists()
