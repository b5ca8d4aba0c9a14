"""What is known of a program's numbers: never exceeded, and of no consequence but speed."""

from __future__ import annotations

import ast
import contextlib
import itertools
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.bench.programs import ENDLESS, TYPICAL, demonstrations, one_liners
from tool_gym.interpreter import InterpreterPool, InterpreterSession, Limits
from tool_gym.interpreter.bounds import bindings_of, known_names
from tool_gym.interpreter.meter import METER
from tool_gym.tools.base import ToolResult


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1, limits=Limits(steps=100_000)) as pool:
        yield pool


def known(source: str) -> dict[str, int]:
    """Bits of the known names of a module."""
    METER.configure(Limits())
    return known_names(bindings_of(ast.parse(source).body), {}, frozenset())


# ------------------------------------------------------------------ what is known


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = 5", "x"),
        ("x = 5\ny = x * 3 + 2", "x y"),
        ("x, y = 1, 2.5", "x y"),
        ("a = 1\nb = 2\na, b = b, a", "a b"),
        ("total = 0\nfor i in range(n):\n    total += i", "total i"),
        ("total = 0\nfor i in range(9):\n    total += i * i\nmean = total / 9", "total i mean"),
        ("i = 0\nwhile i < 10:\n    i = 1 + i", "i"),
        ("x = 1\nwhile x:\n    x = (x * 31 + 7) % 1000", "x"),
        ("a, b = 48, 18\nwhile b:\n    a, b = b, a % b", "a b"),
        ("n = 100\nwhile n:\n    n //= 2", "n"),
        ("best = 0\nfor x in (3, 1, 2):\n    best = max(best, x)", "best x"),
        ("for i in range(3):\n    j = i if i else -i", "i j"),
        ("n = len(text)", "n"),
        ("x = 1\nif x:\n    x = 'a'", ""),
        ("x = y", ""),
        ("x = int('9' * 1000)", ""),
        ("x = 1\nwhile x:\n    x = x * 2", ""),
        ("x = 1\nwhile x:\n    x += x", ""),
        ("a, b = 1, 1\nwhile a:\n    a, b = b, a + b", ""),
        ("x = y = 1\nwhile x:\n    x += y\n    y += x", ""),
        ("x = 1\nwhile x:\n    y = x\n    x = x + y", ""),
        ("x = 1 << 5", ""),
        ("x = 10 ** 400", ""),
        ("x = 2 ** 100", "x"),
        ("x = 5\nfor x in names:\n    pass", ""),
        ("x = 5\ndef x():\n    pass", ""),
        ("x = 5\nimport math as x", ""),
        ("x = 5\ntry:\n    pass\nexcept E as x:\n    pass", ""),
        ("x, *y = 1, 2", ""),
        ("x = 5\n[x, y] = values", ""),
        ("for i in range(start, 10):\n    pass", ""),
    ],
)
def test_known_are_the_names_that_stay_small_numbers(source: str, names: str) -> None:
    assert set(known(source)) == set(names.split())


def test_names_bound_from_elsewhere_are_not_known() -> None:
    def names(outer: dict[str, int], *unsure: str) -> dict[str, int]:
        return known_names(bindings_of(ast.parse("x = 1\ny = x").body), outer, frozenset(unsure))

    assert names({}, "x") == {}
    assert names({"z": 3}, "x") == {"z": 3}
    assert names({"x": 900, "z": 3}, "z") == {"x": 1, "y": 1}


def test_a_long_tangle_of_counters_is_given_up_and_not_unravelled() -> None:
    names = [f"x{i}" for i in range(100)]
    chain = "".join(f"{b} += {a}\n    " for a, b in itertools.pairwise(names))
    source = "".join(f"{name} = 0\n" for name in names) + f"while True:\n    x0 += 1\n    {chain}pass"
    assert set(known(source)) <= set(names)


# ------------------------------------------------------------------ no value exceeds its bits

NAMES = st.sampled_from("abcd")
ATOMS = NAMES | st.integers(-9, 300).map(str) | st.sampled_from(["1.5", "True", "len('abc')", "abs(-7)"])


def _expressions(depth: int) -> st.SearchStrategy[str]:
    if not depth:
        return ATOMS
    inner = _expressions(depth - 1)
    operation = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "/", "&", "|", "^", ">>"]), inner)
    return st.one_of(
        inner,
        operation.map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda x: f"(-{x})"),
        inner.map(lambda x: f"({x} ** 2)"),
        st.tuples(inner, inner).map(lambda p: f"max({p[0]}, {p[1]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
    )


EXPRESSIONS = _expressions(2)
SIMPLE = st.one_of(
    st.tuples(NAMES, EXPRESSIONS).map(lambda p: f"{p[0]} = {p[1]}"),
    st.tuples(NAMES, st.sampled_from(["+=", "-=", "*=", "//=", "%="]), EXPRESSIONS).map(" ".join),
    st.tuples(NAMES, NAMES, EXPRESSIONS, EXPRESSIONS).map(lambda p: f"{p[0]}, {p[1]} = {p[2]}, {p[3]}"),
)


def _indented(lines: list[str]) -> str:
    return "\n".join("    " + line for text in lines for line in text.split("\n"))


LOOPS = st.one_of(
    st.tuples(NAMES, st.integers(0, 12), st.lists(SIMPLE, min_size=1, max_size=4)).map(
        lambda p: f"for {p[0]} in range({p[1]}):\n{_indented(p[2])}"
    ),
    st.tuples(NAMES, EXPRESSIONS, EXPRESSIONS, st.lists(SIMPLE, min_size=1, max_size=3)).map(
        lambda p: f"for {p[0]} in range({p[1]}, {p[2]}):\n{_indented(p[3])}"
    ),
    st.lists(SIMPLE, min_size=1, max_size=4).map(lambda lines: f"for _i in range(25):\n{_indented(lines)}"),
)
PROGRAMS = st.lists(SIMPLE | LOOPS, min_size=1, max_size=6).map("\n".join)


class Watched(MutableMapping[str, Any]):
    """Names of a module that remembers the most bits that an integer of each name had."""

    def __init__(self, turns: int) -> None:
        self._values: dict[str, Any] = {}
        self._left = turns
        self.most: dict[str, int] = {}
        self.strange: set[str] = set()

    def __setitem__(self, name: str, value: Any) -> None:
        self._left -= 1
        if not self._left:
            raise TimeoutError
        self._values[name] = value
        if type(value) in (int, bool):
            self.most[name] = max(self.most.get(name, 0), value.bit_length())
        elif type(value) not in (float, complex):
            self.strange.add(name)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@given(PROGRAMS)
@example("a = 0\nfor _i in range(300):\n    a += 300")
@example("a = b = 0\nfor _i in range(100):\n    a += 7\n    b = b - a\n    c = b * b")
@settings(max_examples=120)
def test_no_value_exceeds_what_is_known_of_its_name(program: str) -> None:
    bits, names = known(program), Watched(turns=400)
    # Where it ends in an error, what it did until then counts.
    with contextlib.suppress(ArithmeticError, NameError, TypeError, ValueError, TimeoutError):
        exec(compile(program, "program", "exec"), {}, names)
    assert names.strange.isdisjoint(bits)
    for name, most in names.most.items():
        assert name not in bits or most <= bits[name], (name, most, bits)


# ------------------------------------------------------------------ no consequence but speed


def same(pool: InterpreterPool, programs: list[str]) -> list[ToolResult]:
    """Answers to programs of which all is known; they must be those given where nothing is."""
    studied = pool.run_batch(programs, echo=True)
    assert studied == pool.run_batch(programs, {"unrelated_name": 0}, echo=True)
    return studied


@given(st.lists(PROGRAMS.map(lambda p: p.replace("_i", "turn") + "\nprint(a, b, c, d)"), min_size=1, max_size=20))
@settings(max_examples=20)
def test_random_programs_answer_the_same_where_nothing_is_known(pool: InterpreterPool, programs: list[str]) -> None:
    for result in same(pool, programs):
        assert result.kind not in ("time", "crash")


def test_everyday_programs_answer_the_same_where_nothing_is_known(pool: InterpreterPool) -> None:
    typical = [program for group in TYPICAL.values() for program in group]
    same(pool, [*one_liners(5, 150), *demonstrations(5, 3), *typical, *ENDLESS])


# ruff: noqa: E501
# Each tries to have numbers, or names of built-in functions, be taken for what they are not.
SLY = {
    "squares": "x = 3\nwhile True:\n    x = x * x",
    "doubles": "x = 1\nwhile True:\n    x += x",
    "doubles by a copy": "x = 1\nwhile True:\n    y = x\n    x = x + y",
    "fibonacci": "a, b = 1, 1\nwhile True:\n    a, b = b, a + b",
    "two that feed each other": "x = y = 1\nwhile True:\n    x += y\n    y += x",
    "three that feed each other": "x = y = z = 1\nwhile True:\n    x += y\n    y += z\n    z += x",
    "fed through a remainder": "x, y = 1, 1\nwhile True:\n    y = (x * x) % (x * x * x + 7)\n    x += y",
    "fed through a choice": "g, x = 1, 1\nwhile True:\n    s = 5 if x < 9 else g\n    t = 7 if x < 9 else x\n    x += s\n    g += t",
    "grows in a function": "x = 3\ndef f():\n    global x\n    x = x * x\nwhile True:\n    f()",
    "grows in a closure": "def f():\n    x = 3\n    def g():\n        nonlocal x\n        x = x * x\n    while True:\n        g()\nf()",
    "grows by recursion": "def f(x):\n    return f(x * x)\nf(3)",
    "bound by a comprehension": "x = 3\nfor y in [[10 ** 4000]]:\n    print(len([x * x * x for x in y for z in y]))",
    "hidden in a comprehension": "x = 3\nprint([{x: 1} for x in [(1,) * 10, 'a' * 100]])",
    "hidden by a parameter": "x = 3\nf = lambda x: x * 10 ** 9\nf('a' * 1000)",
    "hidden by a parameter of a function": "x = 3\ndef f(x):\n    return x * 10 ** 9\nf([0])",
    "hidden in a class": "x = 3\nclass A:\n    x = 'a' * 1000\n    y = x * 10 ** 9",
    "hidden by an exception": "e = 3\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print(e * 2)",
    "an assignment expression": "x = 3\nif (x := 'a' * 1000):\n    x * 10 ** 9",
    "its own range": "def range(n):\n    return ['a' * 1000]\nfor i in range(3):\n    i * 10 ** 9",
    "its own range, later": "for k in (1, 2):\n    for i in range(3):\n        print(i * 3)\n    range = lambda n: ['ab']",
    "its own len": "def f():\n    return len([]) * 10 ** 9\nlen = lambda x: 'a' * 1000\nf()",
    "its own int": "int = lambda x: 'a' * 1000\nint(3) * 10 ** 9",
    "its own max": "max = lambda a, b: 'a' * 1000\nx = max(1, 2)\nx * 10 ** 9",
    "keys that collide": "M = 2 ** 61 - 1\nd = {}\nfor i in range(10 ** 5):\n    d[i * M] = i\n    d[i * M] = i",
    "a list that grows while it is looped over": "x = [1]\n[x.append(y) for y in x]",
    "an endless range in a comprehension": "[x for x in range(10 ** 30)]",
    "an endless iterator in a comprehension": "{x: x for x in itertools.count()}",
    "powers": "x = 900\nwhile True:\n    y = x ** 2 ** 2\n    x = y % 2 ** 1000",
}


@pytest.mark.parametrize("name", list(SLY))
def test_sly_programs_are_answered_as_where_nothing_is_known_and_by_no_backstop(
    name: str, pool: InterpreterPool
) -> None:
    (result,) = same(pool, [SLY[name]])
    assert result.status in ("limit", "error", "refused", "ok")
    assert result.kind not in ("time", "crash")
    stats = pool.stats
    assert (stats.kills, stats.crashes, stats.infrastructure_failures) == (0, 0, 0)


def test_functions_of_a_session_do_not_trust_names_that_a_later_program_binds(pool: InterpreterPool) -> None:
    session = InterpreterSession()
    pool.run("x = 1\ndef f():\n    return x * 10 ** 9", session=session)
    assert pool.run("x = 'a' * 1000\nf()", session=session).kind == "memory"
    session = InterpreterSession()
    pool.run("def f():\n    return [i * 10 ** 9 for i in range(2)]", session=session)
    assert pool.run("range = lambda n: ['a' * 1000]\nf()", session=session).kind == "memory"


def test_inputs_are_not_trusted(pool: InterpreterPool) -> None:
    assert pool.run("y = x * 10 ** 9\nx = 1", {"x": "a" * 1000}).kind == "memory"


# ------------------------------------------------------------------ programs that are run as functions


@pytest.mark.parametrize(
    "program",
    [
        "for i in range(3): pass\nreturn i",
        "for i in range(3): pass\nyield i",
        "for i in range(3): pass\nx = yield",
        "for i in range(3): pass\nnonlocal i",
        "for i in range(3): pass\nx = 1\nglobal x",
        "for i in range(3): pass\ndel missing",
        "for i in range(2):\n    del i\nprint(i)",
        "for i in range(2): pass\nf = lambda a: a\nf()",
        "for i in range(2): pass\ndef f(a): return a\nf()",
        "for i in range(2): pass\nclass A:\n    def f(self): return self\nA.f()",
        "for i in range(2): pass\nprint(lambda: 1, [].append)",
        "for i in range(2):\n    class A: pass\nprint(A, A().__class__ if False else type(A()).__name__)",
        "def f(): return i\nfor i in range(4): pass\nprint(f())",
        "for i in range(4): pass\nprint([i * j for j in range(3)], sum(i for _ in range(2)))",
        "try:\n    for i in range(2): 1 / 0\nexcept ZeroDivisionError as e:\n    print(e)\nprint(e)",
        "x: int\nfor i in range(2): pass\nprint(x)",
        "while True:\n    import math\n    break\nprint(math.pi)",
        "for i in range(2): pass\nprint(undefined)",
    ],
)
def test_a_program_with_a_loop_answers_as_without_being_studied(program: str, pool: InterpreterPool) -> None:
    same(pool, [program])
