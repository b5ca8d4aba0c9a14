"""A grid of runs over seeds: what a store has is skipped, what was interrupted is resumed, what failed is named."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from rich.console import Console

from agents import runs
from agents.config import Config
from agents.selection import SELECTORS
from agents.setup import Setup
from agents.stack import alike
from experiments import store
from experiments.executors import ROOT, Job, Outcome, by_stack, cold_start_key, run_local, run_ray
from experiments.presets import PRESETS, expand
from tool_gym.errors import ConfigError
from tool_gym.protocol import printable

TABLE = "results.parquet"
# Seconds of one core at the default's sizes, as docs/PERFORMANCE.md has them, for estimates: of a rollout that is
# sampled, one that is trained on, a demonstration that is trained on; and of a cold start, whatever its length.
_SAMPLED, _TRAINED, _SHOWN, _REFERENCE = 0.8e-3, 0.7e-3, 1.1e-3, 8.0
_CONDITIONS = 4  # of an evaluation
_MOST_PROCESSES, _MOST_STACKED = 1024, 4096


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
    """`i/n`: n machines share a sweep, this being the i-th; then merge the stores by copying. Runs that share a cold
    start stay together, so that what is compared is made on one machine."""
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
    made_by = {name: _made_by(config, name, run, console) for name, run in planned}
    todo = [Job(name, run) for name, run in planned if made_by[name] is None]
    if config.stack > 1:
        # What a run comes to depends on whom it is stacked with: all of a stack, or none.
        missing = {job.config.run.stack for job in todo} - {None}
        names = {job.name for job in todo}
        todo = [Job(name, run) for name, run in planned if name in names or run.run.stack in missing]
    processes = config.processes or os.cpu_count() or 1
    left = _left(planned, todo, config.kept) / processes
    there = f"{len(planned)} runs, {len(planned) - len(todo)} finished, in {config.kept}"
    told = f"{config.preset}: {there}; about {_time(left)} left on {processes} cores"
    console.print(told, markup=False, highlight=False)
    if warning := _of_other_code(planned, todo, made_by):
        console.print(warning, style="yellow", markup=False, highlight=False, soft_wrap=True)
    if config.dry_run:
        for name, _ in todo:
            console.print(name, markup=False, highlight=False)
        return 0
    if todo:
        told = f"each run's log: {config.folder}/NAME.log; stopped, the same command goes on"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    failed = _run(todo, config, processes, console)
    table = config.kept / TABLE
    for job, log in failed:
        console.print(f"failed: {job.name}, see {log}", style="red", markup=False, highlight=False, soft_wrap=True)
    done = []
    for _, run in planned:
        with contextlib.suppress(runs.DamagedError):  # named above, and so is the run that was to replace it
            if (stored := _stored(config.kept, run)) is not None:
                done.append(stored)
    if done:
        store.write_table(done, table)
        console.print(f"table of {len(done)} runs: {table}", markup=False, highlight=False, soft_wrap=True)
    return 1 if failed else 0


def plan(config: SweepConfig) -> list[tuple[str, Config]]:
    """All runs of a sweep's shard, checked. Raises ConfigError for an unknown preset, field or value."""
    _check(config)
    first, every = _shard(config.shard)
    settings = {name: _value(text) for name, text in config.set.items()}
    for name in ("run.seed", "run.name", "run.runs_dir", "run.stack"):
        if name in settings:
            raise ConfigError("set", name, "other fields: the sweep sets this one itself (--seeds, --out)")
    preset = PRESETS[config.preset]
    base = Config().replace(**{**preset.settings, **settings, "run.runs_dir": str(config.folder)})
    base = base.replace(**{"run.keep_checkpoints": 1})
    grid = {name: _values(text) for name, text in config.grid.items()}
    planned = [(name, _on_device(run, config)) for name, run in expand(preset, base, grid=grid, seeds=config.seeds)]
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
    # What shares a cold start stays together, so that pairs are of one machine; a stack, which is whole, by its first.
    together: dict[str, list[Job]] = {}
    for unit in units:
        together.setdefault(cold_start_key(unit[0].config), []).extend(unit)
    if every > len(together):
        raise ConfigError("shard", config.shard, f"at most {len(together)} machines, one for each cold start")
    shares: list[list[Job]] = [[] for _ in range(every)]
    costs = [0.0] * every
    for group in together.values():
        least = costs.index(min(costs))
        shares[least] += group
        costs[least] += _cold_start(group[0].config) + sum(_training(job.config) + _tests(job.config) for job in group)
    mine = {job.name for job in shares[first]}
    return [(job.name, job.config) for unit in units for job in unit if job.name in mine]


def _check(config: SweepConfig) -> None:
    if config.preset not in PRESETS:
        raise ConfigError("preset", config.preset, ", ".join(PRESETS))
    if not 0 <= config.processes <= _MOST_PROCESSES:
        raise ConfigError("processes", config.processes, f"0 to {_MOST_PROCESSES}")
    if config.executor not in ("local", "ray"):
        raise ConfigError("executor", config.executor, "local, ray")
    if not 1 <= config.stack <= _MOST_STACKED or (config.stack > 1 and config.executor != "local"):
        raise ConfigError("stack", config.stack, f"1 to {_MOST_STACKED}; with --executor ray, 1")
    for name, place in (("out", config.out), ("store", config.kept)):
        if place.exists() and not place.is_dir():
            raise ConfigError(name, str(place), "a folder, or the name of one to be made")


def _on_device(run: Config, config: SweepConfig) -> Config:
    """A run with its device named where that is CUDA: its figures are not those of a CPU, and identities are text.

    On a machine without it ``auto`` stays, by which older stores know their runs; on a cluster each node decides.
    """
    found = run.run.device == "auto" and config.executor == "local" and torch.cuda.is_available()
    return run.replace(**{"run.device": "cuda"}) if found else run


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


def _stored(kept: Path, run: Config) -> store.Run | None:
    """The run as a store has it, None where it does not. Raises as ``store.unpack`` does."""
    path = store.path_of(kept, run)
    return store.unpack(path.read_bytes(), str(path)) if path.exists() else None


def _made_by(config: SweepConfig, name: str, run: Config, console: Console) -> str | None:
    """The revision of the code that made the run which the store has, "" where it is not known; None without the run.

    One that finished without having been kept is put into the store now (not in a dry run).

    What is damaged, as a power loss leaves it, is named and counts as missing: the run is made again. Raises
    ConfigError where the run's folder holds one of another configuration, or the store's file is of another version.
    """
    folder = config.folder / name
    try:
        if (stored := _stored(config.kept, run)) is not None:
            return stored.revision
    except runs.DamagedError as error:
        console.print(f"damaged, so it counts as missing: {error}", markup=False, highlight=False, soft_wrap=True)
    if not runs.has_config(folder):
        return None
    try:
        there = runs.read_config(folder)
    except runs.DamagedError as error:
        told = f"damaged, so it is run again: {error}"
        if not config.dry_run:
            told += f"; what is left of it is in {_set_aside(folder)}"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
        return None
    # The sweep's folder may be named in another way, or have moved.
    if store.identity(there) != store.identity(run):
        raise ConfigError("out", str(folder), "a folder for these runs: one of another configuration is there")
    if not runs.finished(folder):
        return None
    try:
        finished = store.read_folder(folder)
    except ConfigError:
        # Damaged: gone on with, it ends again as it did, or fails by name and stops no other.
        return None
    if not config.dry_run:
        store.put(config.kept, store.pack(finished), run)
    return finished.revision


def _of_other_code(
    planned: Sequence[tuple[str, Config]], todo: Sequence[Job], made_by: Mapping[str, str | None]
) -> str:
    """A warning where runs to be made share a cold start with finished ones that other code made; else "".

    Such code may round otherwise, and the same seed and recipe then end in another policy before the first update:
    the arms of a pair would begin apart (docs/LOG.md, 2026-12-01).
    """
    here = runs.told_revision(runs.git_state(ROOT))
    known = {by for by in made_by.values() if by is not None and by != here}
    others = {by for by in known if not runs.same_code(ROOT, by, ("agents", "tool_gym"))}
    theirs: dict[str, set[str]] = {}
    for name, run in planned:
        if (by := made_by[name]) in others:
            theirs.setdefault(cold_start_key(run), set()).add(by or "unknown")
    beside = [theirs[key] for job in todo if (key := cold_start_key(job.config)) in theirs]
    if not beside:
        return ""
    return (
        f"warning: {len(beside)} of the runs to be made would stand beside runs of their seed that other code made "
        f"(revision {', '.join(sorted(set().union(*beside)))}): their cold starts may be other policies. Finish them "
        "with that revision, in a checkout of its own with --store, or choose another --out; a report says where the "
        "arms of a seed begin apart"
    )


def _set_aside(folder: Path) -> Path:
    """Move a run's folder to where nothing takes it for a run of the sweep; where it is then."""
    place = folder.parent / "damaged"
    place.mkdir(exist_ok=True)
    names = itertools.chain([folder.name], (f"{folder.name}.{number}" for number in itertools.count(2)))
    aside = next(place / name for name in names if not (place / name).exists())
    folder.rename(aside)
    return aside


def _run(todo: Sequence[Job], config: SweepConfig, processes: int, console: Console) -> list[tuple[Job, Path]]:
    """Run the jobs, keep what finishes, and say how far it is; what failed, with its log."""
    failed: list[tuple[Job, Path]] = []
    started, done = time.monotonic(), 0

    def on_outcome(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        reason, kept = outcome.reason, outcome.packed is not None
        if outcome.packed is not None:
            try:
                store.put(config.kept, outcome.packed, outcome.job.config)
            except OSError as error:  # where the disk is full, the others are to be named, too
                reason, kept = f"it finished, but could not be kept: {error}", False
        if not kept:
            failed.append((outcome.job, outcome.log))
        left = (time.monotonic() - started) / done * (len(todo) - done)
        text = f"[{done}/{len(todo)}] {'done' if kept else 'FAILED'}  {outcome.job.name}  about {_time(left)} left"
        if not kept:
            text += f"\n    {printable(reason) or _last_line(outcome.log)}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if todo and config.executor == "ray":
        run_ray(todo, on_outcome, address=config.address)
    elif todo:
        run_local(todo, on_outcome, processes=processes)
    return failed


def _last_line(log: Path) -> str:
    """What a failed run said last."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1]) if lines else "it said nothing"


# ---------------------------------------------------------------- how long it should take


def _left(planned: Sequence[tuple[str, Config]], todo: Sequence[Job], kept: Path) -> float:
    """Seconds of one core that the runs to be made should take, with the cold starts that no finished run has made."""
    missing = {job.name for job in todo}
    made = {cold_start_key(run) for name, run in planned if name not in missing}
    new = {key: job.config for job in todo if (key := cold_start_key(job.config)) not in made}
    return _slowness(kept) * (
        sum(_training(job.config) + _tests(job.config) for job in todo) + sum(map(_cold_start, new.values()))
    )


def _training(config: Config) -> float:
    """Of the updates and evaluations of a run, in seconds of the machine of docs/PERFORMANCE.md."""
    algo, run = config.algo, config.run
    rule = SELECTORS[algo.selector]
    prompts = rule.prompts(algo.prompts)
    sampled = rule.rollouts(algo.group_size)
    trained = sampled if algo.selector == "grpo_2g" else algo.group_size
    update = prompts * (sampled * _SAMPLED + trained * _TRAINED)
    evaluations = 1 + -(-run.steps // run.eval_every)
    return run.steps * update + evaluations * run.eval_problems * _CONDITIONS * _SAMPLED


def _tests(config: Config) -> float:
    """Of the last and the best policy's evaluation on the test problems, likewise."""
    return 2 * config.run.test_problems * _CONDITIONS * _SAMPLED


def _cold_start(config: Config) -> float:
    """Of a cold start, likewise."""
    return _REFERENCE + config.sft.step_count * config.sft.batch_size * _SHOWN


_slow: dict[Path, float] = {}


def _slowness(kept: Path) -> float:
    """How many times longer than that up to eight runs of a store took: machines and sizes differ. 1.0 without any."""
    if kept not in _slow:
        found = []
        for path in sorted(kept.glob("*.json.gz"))[:8]:
            with contextlib.suppress(ConfigError):  # damaged or of another version, as is said where it is needed
                run = store.unpack(path.read_bytes(), str(path))
                if run.config.run.steps:
                    found.append(float(np.nansum(run.columns["step_time"])) / _training(run.config))
        _slow[kept] = float(np.median(found)) if found else 1.0
    return _slow[kept]


def _list(config: SweepConfig, console: Console) -> None:
    _check(config)
    processes = config.processes or os.cpu_count() or 1
    for name, preset in PRESETS.items():
        planned = expand(preset, Config().replace(**preset.settings))
        total = _left(planned, [Job(n, run) for n, run in planned], config.kept) / processes
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
