"""The fuzzer by hand: ``python -m tests.fuzz --minutes 10 [--seed 1] [--what differential hostile bytes text]``.

Prints each kind of finding once, with the smallest program that shows it, and ends with status 1 if there are any.
``tests/test_fuzz.py`` runs a little of the same.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import functools
import importlib
import io
import json
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.programs import MODULES, hostile_programs, programs, raw_texts
from tool_gym.interpreter import InterpreterPool, Limits
from tool_gym.tools.base import ToolResult

CHEAP = Limits(steps=100_000, integer_bits=2**16)
"""Limits under which Python runs what the interpreter accepts in well under a second."""
TIGHT = Limits(steps=300_000, wall_seconds=2.0)
"""A step is 0.1 microseconds: a program that is killed under these was charged for a sixtieth of what it cost."""
LONGEST_TEXT = 100_000
PROBE = """
print(len([1]), math.pi, random.random(), int('7'), ValueError('x').args, string.ascii_lowercase, str.upper('x'))
print(string.Template('$a').substitute(a=1), hasattr(object(), 'leak'), collections.Counter('aab'), hash(None))
print(functools.reduce(operator.add, [1, 2]), json.dumps([1]), fractions.Fraction(1, 2), sorted({3, 1}))
"""
"""A program that reads what others try to change."""


class Hang(BaseException):
    """Python itself does not end."""


class _Enough(BaseException):
    """The time for a round is over: ends Hypothesis, which would go on looking for a smaller program."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def python_says(code: str) -> tuple[str, str]:
    """What Python prints for a program, without addresses, and the type of the exception that it ends with."""
    output = io.StringIO()
    # Finalisers may print when the program is gone: into its output too.
    names = {**vars(builtins), "print": functools.partial(print, file=output)}
    scope = {"__builtins__": names, "__name__": "__main__"}
    scope |= {name: importlib.import_module(name) for name in MODULES}
    kind = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _at_most(10.0):
                exec(code, scope)
        except BaseException as error:
            kind = type(error).__name__
        text = output.getvalue()
        scope.clear()
    return re.sub(r" at 0x[0-9a-f]+", "", text), kind


# ------------------------------------------------------------------ properties: "" or what is wrong


def sound(result: ToolResult) -> str:
    """What must hold of every answer."""
    if result.status == "infrastructure" or result.kind in ("time", "crash"):
        return f"a backstop acted: {result.status} {result.kind}"
    if len(result.output) + len(result.message) > LONGEST_TEXT:
        return "the answer is too long"
    if "\n" in result.message:
        return "the message has several lines"
    if re.search(r" at 0x[0-9a-f]", result.output + result.message):
        return "the answer holds an address"
    (result.output + result.message).encode("utf-8")
    return ""


def as_python(pool: InterpreterPool, code: str) -> str:
    """The program prints and ends as in Python, unless it is too costly."""
    result = pool.run(code)
    if problem := sound(result):
        return problem
    if result.status == "limit" or result.truncated:
        return ""
    if result.status == "refused":
        # Attributes that no table lists are refused: a place filled with a value of another kind finds them.
        return "" if "the attribute" in result.message else f"refused: {result.message}"
    output, kind = python_says(code)
    ours, theirs = [*result.output.split("\n"), result.kind], [*output.split("\n"), kind]
    for mine, right in zip(ours, theirs, strict=False):
        if mine != right:
            return f"prints {mine[:200]!r} and not {right[:200]!r} ({result.message})"
    return "" if len(ours) == len(theirs) else f"prints {len(ours) - 1} lines and not {len(theirs) - 1}"


def contained(pool: InterpreterPool, code: str, probe: ToolResult) -> str:
    """The program is answered within its budget by no backstop, and the next call sees what it always sees."""
    problem = sound(pool.run(code))
    if not problem and pool.run(PROBE) != probe:
        problem = "the next call is not what it was"
    return problem


def same_in_both(pool: InterpreterPool, other: InterpreterPool, code: str, before: str) -> str:
    """The record is the same in another worker, after another program."""
    disturbed, first, second = other.run(before), pool.run(code), other.run(code)
    problem = sound(disturbed) or sound(first)
    return problem or ("" if first == second else f"{first} is not {second}")


# ------------------------------------------------------------------ the command

_PATIENCE = 20.0  # seconds to look for a smaller program


class _Fuzzer:
    """Rounds of examples, each with its seed, until the time is over."""

    def __init__(self, end: float) -> None:
        self.end = end
        self.found: Counter[str] = Counter()
        self.programs = 0

    def round(self, strategy: st.SearchStrategy[str], check: Callable[[str], str], number: int, name: str) -> None:
        """A few hundred examples, ended by the first finding."""
        smallest: dict[str, str] = {}
        deadline = self.end

        @seed(number)
        @settings(
            max_examples=300,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(strategy)
        def examples(code: str) -> None:
            nonlocal deadline
            if time.monotonic() > deadline:
                raise _Enough
            self.programs += 1
            problem = check(code)
            if problem:
                if not smallest:
                    deadline = time.monotonic() + _PATIENCE
                smallest.update(code=code, problem=problem)
                raise AssertionError(problem)

        try:
            examples()
        except _Enough:
            pass
        except Exception:
            if not smallest:
                raise
        if smallest:
            signature = name + " " + re.sub(r"'[^']*'|\d+", "_", smallest["problem"])[:80]
            self.found[signature] += 1
            if self.found[signature] == 1:
                print(f"=== {name}, seed {number}: {smallest['problem']}\n{smallest['code']}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    kinds = ("differential", "hostile", "bytes", "text")
    parser.add_argument("--what", nargs="+", choices=kinds, default=list(kinds))
    options = parser.parse_args(arguments)
    sys.unraisablehook = lambda _: None
    fuzzer, number = _Fuzzer(time.monotonic() + 60.0 * options.minutes), options.seed
    with (
        InterpreterPool(workers=1, limits=CHEAP) as cheap,
        InterpreterPool(workers=1, limits=TIGHT) as tight,
        InterpreterPool(workers=1, limits=TIGHT) as other,
    ):
        probe = tight.run(PROBE)
        assert probe.ok, probe
        pairs = st.tuples(programs() | hostile_programs(), hostile_programs()).map(json.dumps)
        rounds: dict[str, tuple[st.SearchStrategy[str], Callable[[str], str]]] = {
            "differential": (programs(), lambda code: as_python(cheap, code)),
            "hostile": (hostile_programs(), lambda code: contained(tight, code, probe)),
            "bytes": (pairs, lambda pair: same_in_both(tight, other, *json.loads(pair))),
            "text": (raw_texts, lambda code: contained(tight, code, probe)),
        }
        while time.monotonic() < fuzzer.end:
            for name in options.what:
                fuzzer.round(*rounds[name], number, name)
            number += 1
        pools = [cheap.stats, tight.stats, other.stats]
    kills, crashes = sum(stats.kills for stats in pools), sum(stats.crashes for stats in pools)
    print(f"{fuzzer.programs} programs, seeds {options.seed} to {number - 1}, {kills} kills, {crashes} crashes")
    for signature, count in fuzzer.found.most_common():
        print(f"{count:5} {signature}")
    return 1 if fuzzer.found else 0


if __name__ == "__main__":
    sys.exit(main())
