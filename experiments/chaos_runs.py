"""Runs killed and resumed: ``python -m experiments chaos runs`` compares them with one that nobody touched.

A small run is killed with SIGKILL at random times, and at random file operations (an open for writing, a rename, a new
folder, a removal), and gone on with each time. What it ends with must be, byte for byte, what the undisturbed run ended
with: metrics (but for what depends on the clock), trajectories, summary and weights.

Run as a program, this module is the victim: ``python -m experiments.chaos_runs N ARGUMENTS`` is ``train.py ARGUMENTS``
that kills itself at the N-th file operation in its folder of runs.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agents import runs
from agents.config import Config
from agents.metrics import TIMING

_ROOT = Path(__file__).resolve().parent.parent

SMALL: dict[str, Any] = {
    "env.answers": 2,
    "policy.layers": 1,
    "policy.width": 32,
    "policy.heads": 2,
    "policy.context": 224,
    "sft.steps": 60,
    "sft.batch": 16,
    "sft.demonstrations": 512,
    "sft.warmup": 10,
    "sft.learning_rate": 1e-2,
    "algo.prompts": 4,
    "algo.group_size": 4,
    "run.steps": 12,
    "run.eval_every": 3,
    "run.eval_problems": 16,
    "run.test_problems": 32,
    "run.checkpoint_every": 2,
    "run.keep_checkpoints": 2,
}
"""Seconds long, with every link of the chain."""

_EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")
_MOST_STARTS = 200  # of one run: one that never ends is an error, not a hang


@dataclass
class Kills:
    """What was done, and what came of it.

    Attributes:
        by_time, by_file: kills at random times, and at file operations.
        phases: where the run stood when it was killed.
        differences: files that differ from the undisturbed run's, by run.
        finished: runs that were killed at least once and came to their end.
    """

    by_time: int = 0
    by_file: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    finished: int = 0


def kill_runs(kills: int, seed: int, folder: Path, changes: dict[str, Any] | None = None) -> Kills:
    """Kill runs ``kills`` times in all, each resumed until it ends, and compare every one with an undisturbed run.

    Args:
        kills: how often, half of them at random times and half at file operations.
        seed: of the choices; what a random time hits is up to the clock.
        folder: where the runs are made.
        changes: fields of the configuration over :data:`SMALL`.
    """
    config = Config().replace(**{**SMALL, **(changes or {})})
    started = time.monotonic()
    whole = _run_to_end(config.replace(**{"run.runs_dir": str(folder / "whole"), "run.name": "run"}))
    seconds = time.monotonic() - started
    draw, report, number = random.Random(seed), Kills(), 0
    while report.by_time + report.by_file < kills:
        number += 1
        place = folder / f"killed_{number}"
        victim = config.replace(**{"run.runs_dir": str(place), "run.name": "run"})
        for _ in range(_MOST_STARTS):
            left = kills - report.by_time - report.by_file
            if not left:
                _run_to_end(victim)
            elif (left % 2 and _killed_at_event(victim, draw, report)) or (
                not left % 2 and _killed_after(victim, draw.uniform(0.0, seconds), report)
            ):
                report.phases[_phase(place / "run")] += 1
                continue
            break
        else:
            report.differences.append(f"run {number} did not end within {_MOST_STARTS} starts")
            continue
        report.finished += 1
        report.differences += [f"run {number}: {name}" for name in compare(whole, place / "run")]
    return report


def compare(whole: Path, other: Path) -> list[str]:
    """The files of a run that differ from an undisturbed one's, what depends on the clock aside."""
    last = sorted(path.name for path in (whole / "checkpoints").iterdir())
    names = ["trajectories.jsonl", "summary.json", "reference.safetensors"]
    names += [f"checkpoints/{step}/{part}.safetensors" for step in last for part in ("policy", "optimizer", "noise")]
    different = [name for name in names if _bytes(whole / name) != _bytes(other / name)]
    if _metrics(whole) != _metrics(other):
        different.append("metrics.jsonl")
    return different


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in TIMING} for row in runs.read_metrics(folder)]


def _phase(folder: Path) -> str:
    """Where a killed run stood, as far as its folder tells."""
    if not (folder / "metrics.jsonl").exists():
        return "cold start"
    rows = (folder / "metrics.jsonl").read_text(encoding="utf-8").count("\n")
    return "after the last update" if rows > SMALL["run.steps"] else f"about update {rows}"


def _command(config: Config, event: int) -> list[str]:
    folder = Path(config.run.runs_dir) / str(config.run.name)
    if runs.has_config(folder):
        words = ["--resume", str(folder)]
    else:
        if folder.exists():
            folder.rmdir()
        words = config.arguments()
    return [sys.executable, "-m", "experiments.chaos_runs", str(event), *words]


def _start(config: Config, event: int = 0) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(_command(config, event), cwd=_ROOT, stdout=quiet, stderr=quiet, stdin=quiet)


def _run_to_end(config: Config) -> Path:
    status = _start(config).wait()
    folder = Path(config.run.runs_dir) / str(config.run.name)
    if status or not runs.finished(folder):
        raise RuntimeError(f"the run in {folder} ended with status {status}")
    return folder


def _killed_after(config: Config, seconds: float, report: Kills) -> bool:
    """Start a run and kill it after a time; whether it was killed before its end."""
    process = _start(config)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        report.by_time += 1
        return True
    return False


def _killed_at_event(config: Config, draw: random.Random, report: Kills) -> bool:
    """Start a run that kills itself at a file operation; whether it did before its end."""
    status = _start(config, draw.randint(1, 60)).wait()
    if status == -signal.SIGKILL:
        report.by_file += 1
        return True
    return False


def chaos_runs(kills: int, seed: int, console: Console) -> int:
    """Kill runs and print what came of it; the exit status: 1 if any differs from the undisturbed one."""
    folder = Path(tempfile.mkdtemp(prefix="tool_gym-chaos-"))
    try:
        report = kill_runs(kills, seed, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("killed", "times")
    table.add_row("at a random time", str(report.by_time))
    table.add_row("at a file operation", str(report.by_file))
    for phase, count in sorted(report.phases.items()):
        table.add_row(f"  {phase}", str(count))
    console.print(table)
    for difference in report.differences:
        console.print(f"wrong: {difference}", style="red", markup=False, highlight=False, soft_wrap=True)
    if not report.differences:
        console.print(f"{report.finished} runs ended as the one that nobody touched, byte for byte")
    return 1 if report.differences else 0


# ------------------------------------------------------------------ the victim


def _die_at(event: int, place: str) -> None:
    """Kill this process at its ``event``-th file operation below a folder."""
    seen = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if name not in _EVENTS or not arguments or not str(arguments[0]).startswith(place):
            return
        if name == "open" and not _writes(arguments):
            return
        seen += 1
        if seen == event:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


def _victim(words: list[str]) -> int:
    import train

    event, arguments = int(words[0]), words[1:]
    if event:
        place = arguments[arguments.index("--resume") + 1] if "--resume" in arguments else _runs_dir(arguments)
        _die_at(event, str(place))
    return train.run(arguments)


def _runs_dir(arguments: list[str]) -> str:
    return arguments[arguments.index("--run.runs-dir") + 1]


if __name__ == "__main__":
    sys.exit(_victim(sys.argv[1:]))
