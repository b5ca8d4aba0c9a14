"""A grid of runs over seeds, in local processes of one thread; finished runs are skipped, interrupted ones resumed."""

from __future__ import annotations

import ast
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from agents import runs
from agents.config import Config
from agents.setup import Setup
from experiments.presets import PRESETS, expand
from tool_gym.errors import ConfigError

_PR_SET_PDEATHSIG = 1
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class SweepConfig:
    """Run a grid."""

    preset: Annotated[str, tyro.conf.Positional] = "regime"
    """Name of the grid; see experiments/presets.py."""
    out: Path = Path("sweeps")
    """The runs go to a folder below this, named after the preset."""
    processes: int = 0
    """Runs at a time, one thread each. 0: as many as there are cores."""
    seeds: tuple[int, ...] = ()
    """Seeds in place of the preset's."""
    set: dict[str, str] = field(default_factory=dict)
    """Fields of the configuration to change in every run: `--set run.steps 20 algo.prompts 4`."""
    grid: dict[str, str] = field(default_factory=dict)
    """Fields with comma-separated values that replace or extend the grid: `--grid noise.rate .1,.3`."""
    dry_run: bool = False
    """Print the runs and stop."""


def sweep(config: SweepConfig, console: Console) -> int:
    """Run what is not finished; returns the exit status: 1 if a run failed, each named with its log."""
    planned = plan(config)
    folder = config.out / config.preset
    todo = [(name, run) for name, run in planned if not finished(folder / name, run)]
    done = len(planned) - len(todo)
    console.print(f"{config.preset}: {len(planned)} runs, {done} finished, in {folder}", highlight=False)
    if config.dry_run:
        for name, _ in todo:
            console.print(name, markup=False, highlight=False)
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    failed = _run_all(todo, folder, config.processes or os.cpu_count() or 1, console)
    for name, log in failed:
        console.print(f"failed: {name}, see {log}", style="red", markup=False, highlight=False)
    return 1 if failed else 0


def plan(config: SweepConfig) -> list[tuple[str, Config]]:
    """All runs of a sweep, checked. Raises ConfigError for an unknown preset, field or value."""
    if config.preset not in PRESETS:
        raise ConfigError("preset", config.preset, ", ".join(PRESETS))
    if config.processes < 0:
        raise ConfigError("processes", config.processes, "0 or more")
    preset = PRESETS[config.preset]
    grid: dict[str, Sequence[Any]] = dict(preset.grid)
    grid |= {name: _values(text) for name, text in config.grid.items()}
    settings = {name: _value(text) for name, text in config.set.items()}
    for name in ("run.seed", "run.name", "run.runs_dir"):
        if name in settings:
            raise ConfigError("set", name, "other fields: the sweep sets this one itself (--seeds, --out)")
    base = Config().replace(**settings, **{"run.runs_dir": str(config.out / config.preset)})
    planned = expand(grid, config.seeds or preset.seeds, base)
    checked = set()
    for _, run in planned:
        # What Setup checks depends on these alone; a run must not find it out in the middle of the night.
        asked = repr((run.env, run.policy, run.sft.mixture, run.run.device))
        if asked not in checked:
            checked.add(asked)
            Setup.open(run).close()
    return planned


def finished(folder: Path, config: Config) -> bool:
    """Whether the run is there and whole. Raises ConfigError where the folder holds a run of another configuration."""
    if not runs.has_config(folder):
        return False
    # The sweep's folder may be named in another way, or have moved.
    if runs.read_config(folder).replace(**{"run.runs_dir": config.run.runs_dir}) != config:
        raise ConfigError("out", str(folder), "a folder for these runs: one of another configuration is there")
    return runs.finished(folder)


def _values(text: str) -> list[Any]:
    """Comma-separated values: ``.1,.3``, ``(3, 4),(4, 5)``, ``roc,stratified``."""
    try:
        return list(ast.literal_eval(f"[{text}]"))
    except (ValueError, SyntaxError):
        return [_value(part) for part in text.split(",")]


def _value(text: str) -> Any:
    """A Python literal, or the text itself: ``.1``, ``True``, ``(3, 4)``, ``roc``."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _command(folder: Path, config: Config) -> list[str]:
    """The command of a run: from its start, or to go on with it."""
    train = [sys.executable, str(_ROOT / "train.py")]
    if runs.has_config(folder):
        return [*train, "--resume", str(folder)]
    if folder.exists():
        # Interrupted before it had written a word; rmdir refuses a folder that holds anything.
        folder.rmdir()
    return [*train, *config.arguments()]


def _die_with_the_sweep() -> None:
    """In a run's process, before its program starts: a sweep that is killed leaves no run behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _run_all(
    todo: Sequence[tuple[str, Config]], folder: Path, processes: int, console: Console
) -> list[tuple[str, Path]]:
    """Run all, ``processes`` at a time; returns name and log of those that failed."""
    waiting, running = list(todo), dict[str, tuple[subprocess.Popen[bytes], Path]]()
    failed: list[tuple[str, Path]] = []
    started, done = time.monotonic(), 0
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                name, config = waiting.pop(0)
                log = folder / f"{name}.log"
                with log.open("ab") as file:
                    command = _command(folder / name, config)
                    process = subprocess.Popen(
                        command,
                        stdout=file,
                        stderr=file,
                        stdin=subprocess.DEVNULL,
                        preexec_fn=_die_with_the_sweep,
                    )
                running[name] = process, log
            time.sleep(0.2)
            for name, (process, log) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                done += 1
                if process.returncode:
                    failed.append((name, log))
                left = (time.monotonic() - started) / done * (len(todo) - done)
                status = "done" if not process.returncode else f"FAILED ({process.returncode})"
                text = f"[{done}/{len(todo)}] {status}  {name}  about {left / 60:.0f} min left"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
    finally:
        for process, _ in running.values():
            process.terminate()
        for process, _ in running.values():
            process.wait()
        signal.signal(signal.SIGTERM, before)
    return failed
