"""A grid of runs over seeds: what a store has is skipped, what was interrupted is resumed, what failed is named."""

from __future__ import annotations

import ast
import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console

from agents import runs
from agents.config import Config
from agents.setup import Setup
from agents.stack import alike
from experiments import store
from experiments.executors import Job, Outcome, by_stack, run_local, run_ray
from experiments.presets import PRESETS, expand
from tool_gym.errors import ConfigError

TABLE = "results.parquet"
SECONDS_PER_UPDATE = 0.6
"""Of one core at the default, evaluations included, where no finished run tells: docs/PERFORMANCE.md."""


@dataclass(frozen=True)
class SweepConfig:
    """Run a grid."""

    preset: Annotated[str, tyro.conf.Positional] = "quick"
    """Name of the grid; `--list` shows all."""
    list: bool = False
    """Show the presets, what each is for, its number of runs and its time, and stop."""
    out: Path = Path("sweeps")
    """The runs go to a folder below this, named after the preset."""
    store: Path | None = None
    """Where finished runs are kept, a small file each; they are not run again. None: `store` in the preset's folder."""
    executor: str = "local"
    """`local`: processes of one thread on this machine; `ray`: tasks on a Ray cluster."""
    address: str = "auto"
    """Of the Ray cluster."""
    processes: int = 0
    """Processes at a time on this machine. 0: as many as there are cores."""
    stack: int = 1
    """Runs trained together in one process, their arithmetic in batched products: for a GPU; a CPU gains nothing."""
    shard: str = "1/1"
    """`i/n`: every n-th run or stack from the i-th on: n machines share a sweep; then merge the stores by copying."""
    seeds: tuple[int, ...] = ()
    """Seeds in place of the preset's."""
    set: dict[str, str] = field(default_factory=dict)
    """Fields of the configuration to change in every run: `--set run.steps 20 algo.prompts 4`."""
    grid: dict[str, str] = field(default_factory=dict)
    """Fields with comma-separated values that replace or extend the grid: `--grid noise.rate .1,.3`."""
    dry_run: bool = False
    """Print the runs that are missing and the time they should take, and stop."""

    @property
    def folder(self) -> Path:
        return self.out / self.preset

    @property
    def kept(self) -> Path:
        return self.folder / "store" if self.store is None else self.store


def sweep(config: SweepConfig, console: Console) -> int:
    """Run what is missing, then write the table; returns the exit status: 1 if a run failed. Each is named."""
    if config.list:
        _list(config, console)
        return 0
    planned = plan(config)
    todo = [Job(name, run) for name, run in planned if not _kept(config, name, run)]
    if config.stack > 1:
        # What a run comes to depends on whom it is stacked with: all of a stack, or none.
        missing = {job.config.run.stack for job in todo} - {None}
        names = {job.name for job in todo}
        todo = [Job(name, run) for name, run in planned if name in names or run.run.stack in missing]
    processes = config.processes or os.cpu_count() or 1
    left = sum(map(seconds, todo, [config.kept] * len(todo))) / processes
    there = f"{len(planned)} runs, {len(planned) - len(todo)} finished, in {config.kept}"
    told = f"{config.preset}: {there}; about {_time(left)} left on {processes} cores"
    console.print(told, markup=False, highlight=False)
    if config.dry_run:
        for name, _ in todo:
            console.print(name, markup=False, highlight=False)
        return 0
    failed = _run(todo, config, processes, console)
    found = [store.path_of(config.kept, run) for _, run in planned]
    table = config.kept / TABLE
    if done := [store.unpack(path.read_bytes(), str(path)) for path in found if path.exists()]:
        store.write_table(done, table)
        console.print(f"table of {len(done)} runs: {table}", markup=False, highlight=False, soft_wrap=True)
    for job, log in failed:
        console.print(f"failed: {job.name}, see {log}", style="red", markup=False, highlight=False, soft_wrap=True)
    return 1 if failed else 0


def plan(config: SweepConfig) -> list[tuple[str, Config]]:
    """All runs of a sweep's shard, checked. Raises ConfigError for an unknown preset, field or value."""
    if config.preset not in PRESETS:
        raise ConfigError("preset", config.preset, ", ".join(PRESETS))
    if config.processes < 0:
        raise ConfigError("processes", config.processes, "0 or more")
    if config.executor not in ("local", "ray"):
        raise ConfigError("executor", config.executor, "local, ray")
    if config.stack < 1 or (config.stack > 1 and config.executor != "local"):
        raise ConfigError("stack", config.stack, "1 or more; with --executor ray, 1")
    first, every = _shard(config.shard)
    settings = {name: _value(text) for name, text in config.set.items()}
    for name in ("run.seed", "run.name", "run.runs_dir", "run.stack"):
        if name in settings:
            raise ConfigError("set", name, "other fields: the sweep sets this one itself (--seeds, --out)")
    preset = PRESETS[config.preset]
    base = Config().replace(**{**preset.settings, **settings, "run.runs_dir": str(config.folder)})
    base = base.replace(**{"run.keep_checkpoints": 1})
    grid = {name: _values(text) for name, text in config.grid.items()}
    planned = expand(preset, base, grid=grid, seeds=config.seeds)
    opened: dict[str, Setup] = {}
    for _, run in planned:
        # What Setup checks depends on these alone; a run must not find it out in the middle of the night.
        if (asked := _asked(run)) not in opened:
            opened[asked] = Setup.open(run)
            opened[asked].close()
    # What a run leaves to its task is part of what it is known by.
    whole = [(name, replace(run, sft=opened[_asked(run)].config.sft)) for name, run in planned]
    # Stacks are whole, so that they are the same however many machines share the sweep.
    units = by_stack([Job(name, run) for name, run in _stacked(whole, config.stack)])
    return [(job.name, job.config) for unit in units[first::every] for job in unit]


def _asked(run: Config) -> str:
    """Runs for which this agrees are set up alike."""
    return repr((run.env, run.policy, run.sft, run.run.device))


def _stacked(planned: Sequence[tuple[str, Config]], size: int) -> list[tuple[str, Config]]:
    """The runs, each marked with the stack that it belongs to: ``size`` that can be stacked, in order."""
    if size == 1:
        return list(planned)
    open_stacks: dict[str, list[tuple[str, Config]]] = {}
    marks: dict[str, str] = {}
    for name, run in planned:
        kind = repr(alike(run))
        members = open_stacks.setdefault(kind, [])
        members.append((name, run))
        if len(members) == size:
            marks |= _marks(open_stacks.pop(kind))
    for members in open_stacks.values():
        marks |= _marks(members)
    return [(name, run.replace(**{"run.stack": marks.get(name)})) for name, run in planned]


def _marks(members: Sequence[tuple[str, Config]]) -> dict[str, str]:
    """By name, a hash of the runs of a stack; of a single run, none."""
    text = "".join(store.identity(run) for _, run in members)
    mark = hashlib.sha256(text.encode()).hexdigest()[:12]
    return {name: mark for name, _ in members} if len(members) > 1 else {}


def _shard(text: str) -> tuple[int, int]:
    """First run and stride of ``i/n``."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ConfigError("shard", text, "i/n with i from 1 to n")
    return int(number) - 1, int(count)


def _kept(config: SweepConfig, name: str, run: Config) -> bool:
    """Whether the store has the run; one that finished without having been kept is put there now.

    Raises ConfigError where the run's folder holds one of another configuration.
    """
    folder = config.folder / name
    if store.path_of(config.kept, run).exists():
        return True
    if not runs.has_config(folder):
        return False
    # The sweep's folder may be named in another way, or have moved.
    if store.identity(runs.read_config(folder)) != store.identity(run):
        raise ConfigError("out", str(folder), "a folder for these runs: one of another configuration is there")
    if not runs.finished(folder):
        return False
    try:
        finished = store.read_folder(folder)
    except ConfigError:
        # Damaged: gone on with, it ends again as it did, or fails by name and stops no other.
        return False
    store.put(config.kept, store.pack(finished), run)
    return True


def _run(todo: Sequence[Job], config: SweepConfig, processes: int, console: Console) -> list[tuple[Job, Path]]:
    """Run the jobs, keep what finishes, and say how far it is; what failed, with its log."""
    failed: list[tuple[Job, Path]] = []
    started, done = time.monotonic(), 0

    def on_outcome(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        if outcome.packed is None:
            failed.append((outcome.job, outcome.log))
        else:
            store.put(config.kept, outcome.packed, outcome.job.config)
        left = (time.monotonic() - started) / done * (len(todo) - done)
        status = "done" if outcome.packed is not None else "FAILED"
        text = f"[{done}/{len(todo)}] {status}  {outcome.job.name}  about {_time(left)} left"
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if todo and config.executor == "ray":
        run_ray(todo, on_outcome, address=config.address)
    elif todo:
        run_local(todo, on_outcome, processes=processes)
    return failed


def seconds(job: Job, kept: Path) -> float:
    """What a run should take of one core: as finished runs took, scaled by updates and rollouts, else a guess."""
    rate = _measured(kept)
    size = job.config.run.steps * job.config.algo.prompts * job.config.algo.group_size
    default = Config()
    whole = default.algo.prompts * default.algo.group_size
    return rate * size / whole


_rates: dict[Path, float] = {}


def _measured(kept: Path) -> float:
    """Seconds per default-sized update of up to eight runs of a store."""
    if kept not in _rates:
        found = []
        for path in sorted(kept.glob("*.json.gz"))[:8]:
            run = store.unpack(path.read_bytes(), str(path))
            rollouts = run.config.algo.prompts * run.config.algo.group_size
            whole = Config().algo.prompts * Config().algo.group_size
            found.append(float(np.nanmean(run.columns["step_time"])) * whole / rollouts)
        _rates[kept] = float(np.median(found)) if found else SECONDS_PER_UPDATE
    return _rates[kept]


def _list(config: SweepConfig, console: Console) -> None:
    processes = config.processes or os.cpu_count() or 1
    for name, preset in PRESETS.items():
        planned = expand(preset, Config().replace(**preset.settings))
        total = sum(seconds(Job(n, run), config.kept) for n, run in planned) / processes
        line = f"{name}: {preset.purpose} ({len(planned)} runs, about {_time(total)} on {processes} cores)"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{seconds / 60:.0f} min"


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
