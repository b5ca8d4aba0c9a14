"""Where the runs of a sweep are executed: processes of this machine, or tasks of a Ray cluster.

Each run is one ``train.py`` of one thread, each stack of runs one ``agents.stack``. An executor tells of each run as
its process ends, with the run packed for a store, or with the log of what went wrong; a process that fails stops no
other.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agents import runs
from agents.checkpoint import atomic_write
from agents.config import Config
from experiments import store
from tool_gym.errors import ConfigError, ToolGymError

if TYPE_CHECKING:
    from typing import Never

_PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).resolve().parent.parent
_LOOK = 0.1  # seconds between looks at the processes
_REACHED_SECONDS = 10.0
_RETRIES = 5  # of a task whose node or process dies: nodes may be taken away, but a run that kills its own is named
# What makes a run impossible to start, and no other: something else stands where its folder is to be.
_OF_ONE_FOLDER = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EACCES)
_LOG_KEPT = 20_000  # characters of a failed task's log that come back from a cluster


class Job(NamedTuple):
    """A run to be made: its name, and its configuration with the folder that it is to be in."""

    name: str
    config: Config

    @property
    def folder(self) -> Path:
        return Path(self.config.run.runs_dir) / self.name


class Outcome(NamedTuple):
    """How a run ended: packed for a store, or None and where its log is; the reason where the log does not tell it."""

    job: Job
    packed: bytes | None
    log: Path
    reason: str = ""


OnOutcome = Callable[[Outcome], None]


def stack_command(jobs: Sequence[Job]) -> list[str]:
    """The command of a stack, from its start or to go on with it: the configurations are in a file beside the runs."""
    place = Path(jobs[0].config.run.runs_dir).resolve()
    file = place / f"stack_{jobs[0].config.run.stack}.json"
    configs = [job.config.replace(**{"run.runs_dir": str(place)}).to_dict() for job in jobs]
    atomic_write(file, json.dumps(configs))
    return [sys.executable, "-m", "agents.stack", str(file)]


def command(config: Config) -> list[str]:
    """The command of a run: from its start, or to go on with it."""
    folder = Path(config.run.runs_dir) / str(config.run.name)
    train = [sys.executable, str(ROOT / "train.py")]
    if runs.has_config(folder):
        return [*train, "--resume", str(folder)]
    if folder.exists():
        # Interrupted before it had written a word; rmdir refuses a folder that holds anything.
        folder.rmdir()
    return [*train, *config.arguments()]


def _die_with_the_sweep() -> None:
    """In a run's process, before its program starts: a sweep that is killed leaves no run behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _start(words: Sequence[str], log: Path, place: Path | None = None) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            words,
            cwd=place,
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            preexec_fn=_die_with_the_sweep,
            # Ctrl-C in a terminal reaches the sweep alone, which ends its runs after their step.
            start_new_session=True,
        )


def _stop(number: int, _: object) -> Never:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block like Ctrl-C does, so that what it started is ended too."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_local(jobs: Sequence[Job], on_outcome: OnOutcome, *, processes: int) -> None:
    """Run all, each stack of them in a process, ``processes`` at a time, on this machine."""
    waiting = by_stack(jobs)
    running: list[tuple[list[Job], subprocess.Popen[bytes], Path]] = []
    made: set[str] = set()  # cold starts that some run has got past
    with _terminable():
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    unit = waiting.pop(_next(waiting, [job for unit, _, _ in running for job in unit], made))
                    try:
                        running.append((unit, *_start_unit(unit)))
                    except OSError as error:
                        if error.errno not in _OF_ONE_FOLDER:
                            raise
                        for job in unit:
                            on_outcome(Outcome(job, None, _log_of(unit), f"error: {error}"))
                time.sleep(_LOOK)
                for ended in [one for one in running if one[1].poll() is not None]:
                    running.remove(ended)
                    unit, process, log = ended
                    for job in unit:
                        made.add(cold_start_key(job.config))
                        # Of a stack some may have finished where another failed.
                        over = process.returncode == 0 or (len(unit) > 1 and runs.finished(job.folder))
                        on_outcome(Outcome(job, _packed(job, log) if over else None, log))
        finally:
            for _, process, _ in running:
                process.terminate()
            for _, process, _ in running:
                process.wait()


def by_stack(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs of each stack, and each other job, in the order of their first."""
    units: dict[str, list[Job]] = {}
    for job in jobs:
        units.setdefault(job.config.run.stack or f"alone {job.name}", []).append(job)
    return list(units.values())


def _log_of(unit: Sequence[Job]) -> Path:
    first = unit[0]
    name = first.name if first.config.run.stack is None else f"stack_{first.config.run.stack}"
    return first.folder.parent / f"{name}.log"


def _start_unit(unit: Sequence[Job]) -> tuple[subprocess.Popen[bytes], Path]:
    first, log = unit[0], _log_of(unit)
    log.parent.mkdir(parents=True, exist_ok=True)
    if first.config.run.stack is None:
        return _start(command(first.config), log), log
    return _start(stack_command(unit), log, ROOT), log


def _packed(job: Job, log: Path) -> bytes | None:
    """A finished run's file; None, and why in the log, where its folder cannot be read back."""
    try:
        return store.pack(store.read_folder(job.folder))
    except ToolGymError as error:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"error: {error}\n")
        return None


def cold_start_key(config: Config) -> str:
    """Runs for which this agrees may share a cold start: the second would wait for the first to make it."""
    parts = config.to_dict()
    return repr((parts["env"], parts["policy"], parts["sft"], config.run.seed))


def _next(waiting: Sequence[Sequence[Job]], running: Sequence[Job], made: set[str]) -> int:
    """The first unit that need not wait for a cold start which another is making; else the first."""
    busy = {cold_start_key(job.config) for job in running} - made
    free = (n for n, unit in enumerate(waiting) if not busy & {cold_start_key(job.config) for job in unit})
    return next(free, 0)


# ------------------------------------------------------------------ Ray


def run_ray(jobs: Sequence[Job], on_outcome: OnOutcome, *, address: str) -> None:
    """Run all as Ray Core tasks of one processor each, on an existing cluster.

    A task whose node or process dies is run again, up to five times, on another node if need be. Nodes need this
    checkout's requirements; the checkout itself is sent along. Raises ConfigError where Ray is not installed or there
    is no cluster at ``address``.
    """
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError("executor", "ray", "local, or pip install 'tool-gym[sweep]'") from None
    _check_reachable(address)
    ignored = [".git", ".venv", "runs", "sweeps", "docs", "tests", "**/__pycache__", ".mypy_cache", ".ruff_cache"]
    environment = {"working_dir": str(ROOT), "excludes": ignored}
    try:
        ray.init(address=address, runtime_env=environment, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError("address", address, f"the address of a running Ray cluster ({reason})") from error
    try:
        remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_train_somewhere)
        # Nodes have no history: what the code is goes along.
        code = runs.told_revision(runs.git_state(ROOT)), _sources()
        pending = {remote.remote(job.config.to_dict(), *code): job for job in jobs}
        while pending:
            (ready,), _ = ray.wait(list(pending), num_returns=1)
            job = pending.pop(ready)
            log = job.folder.parent / f"{job.name}.log"
            try:
                packed, text = ray.get(ready)
            except ray.exceptions.RayError as error:
                packed, text = None, f"error: {error}\n"
            if packed is None:
                job.folder.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(text, encoding="utf-8")
            on_outcome(Outcome(job, packed, log))
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises ConfigError at once where nobody listens at ``host:port``: Ray would go on trying for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), _REACHED_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise ConfigError("address", address, f"the address of a running Ray cluster ({error})") from error


def _sources() -> str:
    """A digest of the modules that are sent along."""
    digest = hashlib.sha256()
    for place in (ROOT / "train.py", *(ROOT / name for name in ("agents", "experiments", "tool_gym"))):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def node_folder(sources: str) -> Path:
    """Where the tasks of a cluster train on a node: a folder for each user's runs by one state of the code."""
    return Path(tempfile.gettempdir()) / f"tool_gym-{os.getuid()}" / sources


def _train_somewhere(values: dict[str, Any], revision: str, sources: str) -> tuple[bytes | None, str]:
    """In a task: train in a folder of the node's own; the packed run, or None and the end of the log.

    The folder is named after the run and the code, so that a task which is run again on the same node goes on with it,
    and is removed when the run is packed. The cold starts stay.
    """
    config = Config.from_dict(values)
    place = node_folder(sources)
    name = store.identity(config)
    job = Job(name, config.replace(**{"run.runs_dir": str(place), "run.name": name}))
    place.mkdir(parents=True, exist_ok=True)
    log = place / f"{name}.log"
    process = _start(command(job.config), log)
    status = process.wait()
    packed = None
    if status == 0:
        run = store.read_folder(job.folder)
        packed = store.pack(store.Run(config, run.columns, run.summary, revision))
    told = log.read_text(encoding="utf-8", errors="replace")[-_LOG_KEPT:]
    if packed is not None:
        # Renamed first: what a kill leaves half removed is not to be taken for a run.
        gone = job.folder.rename(place / f".gone_{name}_{os.getpid()}")
        shutil.rmtree(gone, ignore_errors=True)
        log.unlink(missing_ok=True)
    return packed, told
