"""Faults on purpose: ``python -m experiments chaos tools | runs`` (runs: chaos_runs.py).

``tools`` runs programs while a saboteur attacks what runs them. They are everyday ones, erroneous ones, and a
share of hostile ones. Meanwhile workers are killed and stopped, now and then the process that starts them, and the
stream of replies is cut in the middle of a frame. Every call must still be answered as an undisturbed pool answers it,
or ``infrastructure``; and nothing may be left behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from experiments.bench.programs import ENDLESS, TYPICAL, one_liners
from experiments.chaos_runs import chaos_runs
from tool_gym.errors import ConfigError
from tool_gym.interpreter import InterpreterPool, Limits
from tool_gym.interpreter.wire import FrameReader
from tool_gym.tools.base import ToolResult

# Hostile programs cost milliseconds rather than a tenth of a second, and a stopped worker is missed after two.
LIMITS = Limits(steps=20_000, wall_seconds=0.5)
_DISTINCT = 600
_BATCH = 500
_PAUSE_SECONDS = 0.02
_STOP_SECONDS = 0.1
_SETTLE_SECONDS = 5.0
_MIB = 1 << 20

ERRONEOUS = (
    "1 / 0",
    "print(undefined)",
    "x = 3 +",
    "print((1)",
    "[1, 2, 3][7]",
    "{'a': 1}['b']",
    "int('seven')",
    "'a' + 1",
    "def f(n):\n    return n.missing\nf(3)",
    "raise ValueError('no')",
    "for i in range(5):\n    print(i)\n    assert i < 3, i",
)
"""Programs that fail as a policy's programs fail."""

HOSTILE = (
    *ENDLESS,
    "while True: print('flood')",
    "print('x' * 10**7)",
    "def f(): return f()\nf()",
    "try:\n    while True: pass\nexcept BaseException:\n    print('went on')",
    "[0] * 10**9",
    "x = 9\nfor i in range(40): x = x * x",
    "2 ** 10**9",
    "'%0999999999d' % 1",
    "().__class__.__base__.__subclasses__()",
    "getattr(1, '__cl' + 'ass__')",
    "import os\nos.system('true')",
    "open('/etc/passwd')",
    "(lambda f: f.__globals__)(print)",
    "class A:\n    def __eq__(self, other):\n        while True: pass\nA() == 1",
    "def g():\n    try:\n        yield 1\n    finally:\n        while True: pass\nfor x in g(): break",
    "x = []\nfor i in range(1000): x = [x, x]\nprint(x == [x])",
    "[" * 150 + "]" * 150,
    "lambda: " * 300 + "0",
    "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "sum(itertools.count())",
    "sorted(itertools.cycle([1]))",
)
"""Loops, floods, recursion, escapes, memory: each of them ends by a rule of the interpreter, none by a kill."""


@dataclass(frozen=True)
class ChaosConfig:
    """Attack what runs the programs, and count what comes of it. Exit status 1 if anything is wrong."""

    what: Annotated[Literal["tools", "runs"], tyro.conf.Positional] = "tools"
    """What to attack. tools: the interpreter's pool; runs: training, killed and resumed."""
    kills: int = 30
    """runs: how often to kill."""
    calls: int = 100_000
    """tools: programs to run."""
    hostile: float = 0.05
    """tools: share of hostile programs."""
    seed: int = 0
    """Of the programs and of the saboteur's choices; when they strike is up to the clock."""
    workers: int = 2
    """tools: processes of the pool."""


@dataclass
class Census:
    """What there is of this process and those below it, at one moment.

    Attributes:
        descriptors: open in this process.
        processes: below this one.
        zombies: of those, ended and not waited for.
        host_mib, zygote_mib, worker_mib: resident memory of this process, of the zygote, of the largest worker.
    """

    descriptors: int
    processes: int
    zombies: int
    host_mib: float
    zygote_mib: float
    worker_mib: float


@dataclass
class Report:
    """What came of the calls.

    Attributes:
        answers: number of answers by status.
        wrong: programs with the answer and the right one, where they differ.
        strikes: what the saboteur did, by kind.
        problems: what is wrong, a line each; empty if all is well.
        censuses: by when they were taken.
    """

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[str, ToolResult, ToolResult]] = field(default_factory=list)
    strikes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    censuses: dict[str, Census] = field(default_factory=dict)


# ------------------------------------------------------------------ processes, as the system shows them


@dataclass(frozen=True)
class Process:
    """A process: its id, its parent's, its state letter, and its resident memory."""

    pid: int
    parent: int
    state: str
    resident: int


def _processes() -> dict[int, Process]:
    """Every process that can be read, by id."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # Not through pathlib, which keeps every part of a path for good.
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
                pages = int(fields[21])
                found[int(entry)] = Process(int(entry), int(fields[1]), fields[0], pages * os.sysconf("SC_PAGE_SIZE"))
    return found


def _below(root: int, processes: dict[int, Process]) -> list[Process]:
    """Children of a process, their children after them, and so on."""
    children = [process for process in processes.values() if process.parent == root]
    return children + [process for child in children for process in _below(child.pid, processes)]


class Watch:
    """Sees the processes below this one that were not there when the watch began."""

    def __init__(self) -> None:
        self._me = os.getpid()
        self._bystanders = {process.pid for process in _below(self._me, _processes())}

    def look(self) -> tuple[Process, list[Process], list[Process]]:
        """This process, its new children (which start workers), and those below them (the workers)."""
        processes = _processes()
        known = {pid: process for pid, process in processes.items() if pid not in self._bystanders}
        below = _below(self._me, known)
        children = [process for process in below if process.parent == self._me]
        return processes[self._me], children, [process for process in below if process.parent != self._me]

    def census(self) -> Census:
        """Count what there is now."""
        host, zygotes, workers = self.look()
        return Census(
            descriptors=len(os.listdir("/proc/self/fd")),
            processes=len(zygotes) + len(workers),
            zombies=sum(process.state == "Z" for process in zygotes + workers),
            host_mib=host.resident / _MIB,
            zygote_mib=max((process.resident for process in zygotes), default=0) / _MIB,
            worker_mib=max((process.resident for process in workers), default=0) / _MIB,
        )


# ------------------------------------------------------------------ the saboteur


class Saboteur(threading.Thread):
    """Kills and stops processes of the pool, from outside: it knows no more of them than the system tells.

    ``strikes`` counts what it did. Use it as a context manager; a worker that it stopped for good stays stopped.
    """

    def __init__(self, watch: Watch, seed: int) -> None:
        super().__init__(name="saboteur", daemon=True)
        self._watch = watch
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self.strikes: Counter[str] = Counter()

    def __enter__(self) -> Saboteur:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(self._rng.uniform(0, 2 * _PAUSE_SECONDS)):
            _, zygotes, workers = self._watch.look()
            alive = [process.pid for process in workers if process.state != "Z"]
            if alive and zygotes:
                with contextlib.suppress(ProcessLookupError):
                    self._strike(self._rng.choice(alive), zygotes[0].pid)

    def _strike(self, worker: int, zygote: int) -> None:
        lot = self._rng.random()
        if lot < 0.90:
            os.kill(worker, signal.SIGKILL)
            self.strikes["worker killed"] += 1
        elif lot < 0.95:
            os.kill(worker, signal.SIGSTOP)
            self.strikes["worker stopped for a moment"] += 1
            self._over.wait(self._rng.uniform(0, _STOP_SECONDS))
            os.kill(worker, signal.SIGCONT)
        elif lot < 0.96:
            os.kill(worker, signal.SIGSTOP)
            self.strikes["worker stopped for good"] += 1
        else:
            os.kill(zygote, signal.SIGKILL)
            self.strikes["process that starts workers killed"] += 1


@contextlib.contextmanager
def cut_frames(rng: random.Random, share: float, strikes: Counter[str]) -> Iterator[None]:
    """For a share of what is received, only a part arrives, and then the connection is gone.

    It replaces a method of the pool's frame reader in this process, for the time of the ``with`` block.
    """
    whole: Callable[[FrameReader, bytes], list[bytes]] = FrameReader.feed

    def feed(reader: FrameReader, data: bytes) -> Iterator[bytes]:
        if not data or rng.random() >= share:
            yield from whole(reader, data)
            return
        strikes["stream cut in a frame"] += 1
        yield from whole(reader, data[: rng.randrange(len(data))])
        raise ConnectionResetError("cut")

    FrameReader.feed = feed  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        FrameReader.feed = whole  # type: ignore[assignment, method-assign]


# ------------------------------------------------------------------ the soak


def programs(config: ChaosConfig) -> tuple[list[str], list[float]]:
    """The distinct programs and the weight of each in the mixture."""
    everyday = one_liners(config.seed, _DISTINCT) + [source for group in TYPICAL.values() for source in group]
    parts = (
        (everyday, 0.8 * (1 - config.hostile)),
        (ERRONEOUS, 0.2 * (1 - config.hostile)),
        (HOSTILE, config.hostile),
    )
    sources = [source for part, _ in parts for source in part]
    return sources, [weight / len(part) for part, weight in parts for _ in part]


def soak(config: ChaosConfig) -> Report:
    """Run the calls under attack. Raises ConfigError for a bad setting, or a system without /proc."""
    _check(config)
    rng, report, watch = random.Random(config.seed), Report(), Watch()
    sources, weights = programs(config)
    with InterpreterPool(config.workers, LIMITS) as pool:
        right = dict(zip(sources, pool.run_batch(sources, echo=True), strict=True))
        _check_reference(right, pool, report)
    with InterpreterPool(config.workers, LIMITS) as pool, _quiet():
        done = 0
        # The first batches fill caches and start all kinds of workers; growth is judged from the tenth on.
        marks = {0: "start", config.calls // 10: "10 %", config.calls: "end"}
        for mark, name in sorted(marks.items()):
            with Saboteur(watch, config.seed + mark) as saboteur, cut_frames(rng, 0.002, saboteur.strikes):
                while done < mark:
                    batch = rng.choices(sources, weights, k=min(_BATCH, mark - done))
                    _compare(batch, pool, right, report)
                    done += len(batch)
            report.strikes += saboteur.strikes
            report.censuses[name] = _settled(pool, sources, watch)
        report.problems += _judge(report, config)
    _, zygotes, workers = watch.look()
    if zygotes or workers:
        report.problems.append(f"left when the pool was closed: {zygotes + workers}")
    return report


def _check_kills(config: ChaosConfig) -> None:
    if config.kills < 1:
        raise ConfigError("kills", config.kills, "an integer of at least 1")


def _check(config: ChaosConfig) -> None:
    if sys.platform != "linux":
        raise ConfigError("platform", sys.platform, "linux: the saboteur reads /proc")
    if config.calls < 100:
        raise ConfigError("calls", config.calls, "an integer of at least 100")
    if not 0.0 <= config.hostile <= 1.0:
        raise ConfigError("hostile", config.hostile, "a share from 0 to 1")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the pool's warnings of lost workers: here they are meant to be lost."""
    log = logging.getLogger("tool_gym.interpreter")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _check_reference(right: dict[str, ToolResult], pool: InterpreterPool, report: Report) -> None:
    stats = pool.stats
    if stats.kills or stats.crashes or stats.infrastructure_failures:
        report.problems.append(f"the undisturbed pool needed its backstops: {stats}")
    for source, result in right.items():
        if result.status == "infrastructure" or (source in HOSTILE and result.ok and "went on" in result.output):
            report.problems.append(f"undisturbed, {source!r} was answered {result}")


def _compare(batch: list[str], pool: InterpreterPool, right: dict[str, ToolResult], report: Report) -> None:
    """Run a batch; every call must have one answer, the right one or ``infrastructure``."""
    pending = pool.submit(batch, echo=True)
    seen: set[int] = set()
    while pending.remaining:
        for index, result in pending.take(block=True):
            expected = right[batch[index]]
            report.answers[result.status] += 1
            if index in seen or (result.status != "infrastructure" and result != expected):
                report.wrong.append((batch[index], result, expected))
            seen.add(index)
    if len(seen) != len(batch):
        report.problems.append(f"{len(batch) - len(seen)} calls of a batch were not answered")


def _settled(pool: InterpreterPool, sources: list[str], watch: Watch) -> Census:
    """A census of a pool that nobody disturbs: everything that was killed has been replaced and waited for."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        pool.run_batch(sources, echo=True)
        counted = watch.census()
        if not counted.zombies or time.monotonic() > deadline:
            return counted


def _judge(report: Report, config: ChaosConfig) -> list[str]:
    """What is wrong with the figures."""
    before, after = report.censuses["10 %"], report.censuses["end"]
    problems = [f"{source!r}: got {got}, right is {right}" for source, got, right in report.wrong[:5]]
    if len(report.wrong) > 5:
        problems.append(f"and {len(report.wrong) - 5} more wrong answers")
    if sum(report.answers.values()) != config.calls:
        problems.append(f"{sum(report.answers.values())} answers to {config.calls} calls")
    if after.zombies:
        problems.append(f"{after.zombies} zombies")
    most = 1 + 2 * config.workers
    if after.processes > most:
        problems.append(f"{after.processes} processes, where {most} are the most that the pool should have")
    # A channel for each worker that there may be, whether or not it was there before.
    if after.descriptors > before.descriptors + most:
        problems.append(f"descriptors grew from {before.descriptors} to {after.descriptors}")
    for name in ("host_mib", "zygote_mib", "worker_mib"):
        least, most_mib = getattr(before, name), getattr(after, name)
        if most_mib > least + 4 + 0.02 * least:
            problems.append(f"{name} grew from {least:.1f} to {most_mib:.1f}")
    return problems


# ------------------------------------------------------------------ the command


def chaos(config: ChaosConfig, console: Console) -> int:
    """Attack, and print what came of it; the exit status: 1 if anything is wrong."""
    if config.what == "runs":
        _check_kills(config)
        return chaos_runs(config.kills, config.seed, console)
    start = time.monotonic()
    report = soak(config)
    seconds = time.monotonic() - start
    console.print(f"{config.calls} calls, {config.hostile:.0%} hostile, {config.workers} workers, {seconds:.0f} s")
    answers = Table("answers", "number")
    for status, count in sorted(report.answers.items()):
        answers.add_row(status, str(count))
    answers.add_row("wrong", str(len(report.wrong)))
    strikes = Table("what the saboteur did", "number")
    for kind, count in sorted(report.strikes.items()):
        strikes.add_row(kind, str(count))
    figures = Table("what there is", *report.censuses)
    for name in Census.__dataclass_fields__:
        values = [getattr(counted, name) for counted in report.censuses.values()]
        shown = [f"{value:.1f}" if isinstance(value, float) else str(value) for value in values]
        figures.add_row(name.replace("_mib", ", MiB resident"), *shown)
    for table in (answers, strikes, figures):
        console.print(table)
    for problem in report.problems:
        console.print(f"wrong: {problem}", style="red", markup=False, highlight=False, soft_wrap=True)
    if not report.problems:
        console.print("every call was answered, rightly or as lost after a retry; nothing grew and nothing is left")
    return 1 if report.problems else 0
