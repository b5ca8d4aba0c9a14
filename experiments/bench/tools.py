"""The tool part of the benchmark: what a call of the interpreter costs, beside RestrictedPython in the calling process.

The yardstick is RestrictedPython set up as its documentation does it: ``compile_restricted`` and ``exec`` with the
stock built-ins and guards. It has no step budget, no size checks and no second process. It is given no cache, and
does not show the value of a lone expression, which the pool does.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import random
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any

from RestrictedPython.compile import compile_restricted
from RestrictedPython.Eval import default_guarded_getitem, default_guarded_getiter
from RestrictedPython.Guards import (
    full_write_guard,
    guarded_iter_unpack_sequence,
    guarded_unpack_sequence,
    safe_builtins,
    safer_getattr,
)
from RestrictedPython.PrintCollector import PrintCollector
from RestrictedPython.Utilities import utility_builtins

from experiments.bench.figures import BenchConfig, Ratio, Row, geometric_mean, interleaved, paired
from experiments.bench.programs import ENDLESS, ONE_LINERS, TYPICAL, demonstrations, native_answer, one_liners
from tool_gym.errors import InfrastructureError
from tool_gym.interpreter import InterpreterPool, Limits
from tool_gym.interpreter.executor import Executor
from tool_gym.interpreter.meter import METER
from tool_gym.interpreter.policy import compile_program
from tool_gym.interpreter.scope import globals_of
from tool_gym.tools.base import ToolResult

REPEATS = 10
ENDLESS_SHARE = 0.02
_FRESH_PROCESSES = 40
_LIMITS = Limits()
_STOCK = "compile_restricted + exec, here"
_STOCK_EXEC = "RestrictedPython's exec"

LOOPS = {
    "a bare for loop": ("for i in range(100000):\n    pass", 100_000),
    "a bare while loop": ("i = 0\nwhile i < 100000:\n    i = i + 1", 100_000),
}
"""Loops that do next to nothing, and how often they turn."""


def rows(config: BenchConfig) -> Iterator[Row]:
    """The figures of the tools, in the order of the table. Raises InfrastructureError where an answer is wrong."""
    with warnings.catch_warnings():
        # RestrictedPython warns of each program that prints and does not read what it printed.
        warnings.simplefilter("ignore")
        with InterpreterPool(config.workers) as pool:
            pool.run_batch(one_liners(config.seed + 1, 50 * config.workers), echo=True)
            yield from _throughput(config, pool)
            yield _repeated(config, pool)
            yield from _endless(config, pool)
            yield from _burst(config, pool)
        yield from _fresh_process(config)
        with _frozen_heap():
            yield from _step_budget(config)


# ------------------------------------------------------------------ RestrictedPython alone


_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
}


def _inplacevar(symbol: str, value: Any, other: Any) -> Any:
    return _INPLACE[symbol](value, other)


def _apply(function: Callable[..., Any], *arguments: Any, **names: Any) -> Any:
    return function(*arguments, **names)


STOCK: dict[str, Any] = {
    "__builtins__": {
        **safe_builtins,
        **utility_builtins,
        # Everyday names that the stock dictionaries leave to their user, or cap: a range at 10,000 items.
        **{function.__name__: function for function in (range, list, dict, sum, min, max, sorted, enumerate, zip, map)},
    },
    "__name__": "__main__",
    "_apply_": _apply,
    "_getattr_": safer_getattr,
    "_getitem_": default_guarded_getitem,
    "_getiter_": default_guarded_getiter,
    "_inplacevar_": _inplacevar,
    "_iter_unpack_sequence_": guarded_iter_unpack_sequence,
    "_print_": PrintCollector,
    "_unpack_sequence_": guarded_unpack_sequence,
    "_write_": full_write_guard,
}
"""Globals of RestrictedPython's documented set-up, copied for each call."""


def run_stock(source: str) -> str:
    """A program under RestrictedPython alone; what it printed."""
    names = dict(STOCK)
    exec(compile_restricted(source, "<program>", "exec"), names)
    collector = names.get("_print")
    return collector() if collector is not None else ""


# ------------------------------------------------------------------ calls through the pool


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _check(sources: Sequence[str], results: Sequence[ToolResult]) -> None:
    """A figure of wrong answers would be worth nothing."""
    for source, result in zip(sources, results, strict=True):
        if not result.ok or result.output != native_answer(source):
            raise InfrastructureError(f"bench: the pool answered {result} to {source!r}")


def _against_stock(name: str, batches: Sequence[Sequence[str]], pool: InterpreterPool, bound: float | None) -> Row:
    """Microseconds per call of batches in the pool, a batch a round, and how they compare with the yardstick."""

    def in_pool(index: int) -> float:
        results: list[ToolResult] = []
        spent = _seconds(lambda: results.extend(pool.run_batch(batches[index], echo=True)))
        _check(batches[index], results)
        return 1e6 * spent / len(batches[index])

    def stock(index: int) -> float:
        return 1e6 * _seconds(lambda: [run_stock(source) for source in batches[index]]) / len(batches[index])

    measured = interleaved(len(batches), {"pool": in_pool, "stock": stock})
    ratio = paired(measured["pool"], measured["stock"])
    return Row(name, statistics.median(measured["pool"]), "µs a call", ratio, _STOCK, bound)


def _batches(items: Sequence[str], rounds: int) -> list[Sequence[str]]:
    size = len(items) // rounds
    return [items[i * size : (i + 1) * size] for i in range(rounds)]


def _throughput(config: BenchConfig, pool: InterpreterPool) -> Iterator[Row]:
    sources = one_liners(config.seed, config.calls)
    name = f"{config.calls} distinct one-line programs, {config.workers} workers"
    yield _against_stock(name, _batches(sources, config.rounds), pool, bound=1.0)
    for kind in ONE_LINERS:
        part = one_liners(config.seed + 2, config.calls // 4, kind)
        yield _against_stock(f"  {kind} alone", _batches(part, max(1, config.rounds // 2)), pool, bound=None)


def _repeated(config: BenchConfig, pool: InterpreterPool) -> Row:
    """Each round brings its own programs, so that the caches know none of them before."""
    rng = random.Random(config.seed)
    batches = []
    for part in _batches(one_liners(config.seed + 3, config.calls // REPEATS), config.rounds):
        batch = list(part) * REPEATS
        rng.shuffle(batch)
        batches.append(batch)
    return _against_stock(f"  programs that come {REPEATS} times, shuffled", batches, pool, bound=0.35)


def _endless(config: BenchConfig, pool: InterpreterPool) -> Iterator[Row]:
    """The others' throughput with and without endless loops among them, until the last of the others is answered."""
    rng = random.Random(config.seed)
    sources = _batches(one_liners(config.seed + 4, config.calls), config.rounds)
    loops: list[float] = []

    def without(index: int) -> float:
        return len(sources[index]) / _seconds(lambda: pool.run_batch(sources[index], echo=True))

    def among_loops(index: int) -> float:
        good = list(sources[index])
        mixed: list[tuple[str, bool]] = [(source, True) for source in good]
        count = max(1, round(len(good) * ENDLESS_SHARE / (1 - ENDLESS_SHARE)))
        for _ in range(count):
            mixed.insert(rng.randrange(len(mixed) + 1), (rng.choice(ENDLESS), False))
        start = time.perf_counter()
        pending = pool.submit([source for source, _ in mixed], echo=True)
        left, results = len(good), [ToolResult("infrastructure")] * len(mixed)
        answered = 0.0
        while pending.remaining:
            for position, result in pending.take(block=True):
                results[position] = result
                left -= mixed[position][1]
            if not left and not answered:
                answered = time.perf_counter() - start
        loops.append((time.perf_counter() - start) / count)
        _check(good, [result for result, (_, is_good) in zip(results, mixed, strict=True) if is_good])
        _check_endless([result for result, (_, is_good) in zip(results, mixed, strict=True) if not is_good])
        return len(good) / answered

    # The programs are new to the workers on neither side: both come twice, by turns first.
    measured = interleaved(len(sources), {"without": without, "with": among_loops})
    ratio = paired(measured["with"], measured["without"])
    name = f"  with {ENDLESS_SHARE:.0%} endless loops among them, the others"
    figure = statistics.median(measured["with"])
    yield Row(name, figure, "calls/s", ratio, "the same without loops", 2 / 3, at_least=True)
    yield Row("  wall time per endless loop", 1e3 * statistics.median(loops), "ms")


def _check_endless(results: Sequence[ToolResult]) -> None:
    wrong = [result for result in results if (result.status, result.kind) != ("limit", "steps")]
    if wrong:
        raise InfrastructureError(f"bench: the pool answered {wrong[0]} to an endless loop")


def _burst(config: BenchConfig, pool: InterpreterPool) -> Iterator[Row]:
    """Calls submitted at once: from submit until each result is in the caller's hands."""
    sources = one_liners(config.seed + 5, config.burst)
    results = [ToolResult("infrastructure")] * len(sources)
    latencies: list[float] = []
    start = time.perf_counter()
    pending = pool.submit(sources, echo=True)
    while pending.remaining:
        taken = pending.take(block=True)
        now = time.perf_counter() - start
        latencies += [now] * len(taken)
        for position, result in taken:
            results[position] = result
    _check(sources, results)
    latencies.sort()
    name = f"{len(sources)} calls submitted at once, all answered"
    yield Row(name, len(latencies) / latencies[-1], "calls/s")
    yield Row("  latency, mean", 1e3 * statistics.fmean(latencies), "ms")
    yield Row("  latency, 99th percentile", 1e3 * latencies[int(0.99 * (len(latencies) - 1))], "ms")


def _fresh_process(config: BenchConfig) -> Iterator[Row]:
    """What a peer pays that starts a fresh interpreter for each call."""
    sources = one_liners(config.seed, _FRESH_PROCESSES)

    def fresh(index: int) -> float:
        command = [sys.executable, "-c", sources[index]]
        return 1e3 * _seconds(lambda: subprocess.run(command, check=True, capture_output=True))

    yield Row("a fresh python -c per call", statistics.median(map(fresh, range(len(sources)))), "ms a call")


# ------------------------------------------------------------------ the step budget


def _exec_seconds(code: CodeType, names: dict[str, Any]) -> float:
    start = time.perf_counter()
    exec(code, names)
    return time.perf_counter() - start


def guarded_seconds(source: str) -> float:
    """Seconds that our interpreter takes for a program's run alone, compiled afresh as in its first call."""
    code = compile_program(source, _LIMITS.source_chars, echo=False, fresh=True).code
    names = globals_of()
    METER.begin(_LIMITS)
    try:
        return _exec_seconds(code, names)
    finally:
        METER.close()
        METER.release()


def stock_seconds(source: str) -> float:
    """As :func:`guarded_seconds`, under RestrictedPython alone."""
    return _exec_seconds(compile_restricted(source, "<program>", "exec"), dict(STOCK))


def _compare_runs(source: str, rounds: int) -> tuple[float, Ratio]:
    """Median seconds of a program's run in our interpreter, and the ratio to RestrictedPython's."""
    measured = interleaved(
        rounds, {"guarded": lambda _: guarded_seconds(source), "stock": lambda _: stock_seconds(source)}
    )
    return statistics.median(measured["guarded"]), paired(measured["guarded"], measured["stock"])


def _compare_calls(source: str, rounds: int) -> tuple[float, Ratio]:
    """As :func:`_compare_runs` for compiling and running, each time afresh, in the calling process on both sides."""
    measured = interleaved(
        rounds,
        {
            "guarded": lambda _: _seconds(lambda: Executor(_LIMITS).run(source)),
            "stock": lambda _: _seconds(lambda: run_stock(source)),
        },
    )
    return statistics.median(measured["guarded"]), paired(measured["guarded"], measured["stock"])


@contextlib.contextmanager
def _frozen_heap() -> Iterator[None]:
    """As in a worker: the collection after a program with functions looks at what the program made, and no more."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _step_budget(config: BenchConfig) -> Iterator[Row]:
    METER.configure(_LIMITS)
    for name, (source, turns) in LOOPS.items():
        seconds, ratio = _compare_runs(source, config.rounds)
        yield Row(f"{name}, run alone", 1e9 * seconds / turns, "ns a turn", ratio, _STOCK_EXEC, 5.0)
    calls = tuple(dict.fromkeys(demonstrations(config.seed, 8)))
    yield _over_programs("calls of Arithmetic's demonstrations, run alone", calls, config, _compare_runs, 1.5)
    yield _over_programs("  compiled and run", calls, config, _compare_calls, 1.5)
    typical = [source for group in TYPICAL.values() for source in group]
    yield _over_programs("programs of 5 to 20 lines, run alone", typical, config, _compare_runs, 1.5)
    for group, sources in TYPICAL.items():
        yield _over_programs(f"    {group}", sources, config, _compare_runs, None)
    yield _over_programs("  compiled and run", typical, config, _compare_calls, 1.5)


Comparison = Callable[[str, int], tuple[float, Ratio]]


def _over_programs(
    name: str, sources: Sequence[str], config: BenchConfig, compare: Comparison, bound: float | None
) -> Row:
    """Mean microseconds; the ratio is the geometric mean over programs of each one's median, with their quartiles."""
    seconds, ratios = [], []
    for source in sources:
        spent, ratio = compare(source, 3 * config.rounds)
        seconds.append(spent)
        ratios.append(ratio.median)
    whole = paired(ratios, [1.0] * len(ratios))
    to = _STOCK_EXEC if compare is _compare_runs else _STOCK
    mean = 1e6 * statistics.fmean(seconds)
    return Row(name, mean, "µs a program", Ratio(geometric_mean(ratios), whole.low, whole.high), to, bound)
