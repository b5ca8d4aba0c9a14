"""The bounded evaluator: the values of straight-line integer code, and never anything else."""

from __future__ import annotations

import ast
import time
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_gym.tasks.evaluator import MAX_SOURCE_CHARS, Names, Trace, names_after, progress, trace
from tool_gym.tools import ToolResult

repeatable = settings(derandomize=True, deadline=None)

EXPRESSIONS = st.recursive(
    st.integers(0, 20).map(str),
    lambda inner: st.one_of(
        st.builds(lambda left, op, right: f"({left}{op}{right})", inner, st.sampled_from("+-*"), inner),
        st.builds(lambda left, op, right: f"{left} {op} {right}", inner, st.sampled_from(["+", "-", "*"]), inner),
        inner.map(lambda operand: f"-{operand}"),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("source", "values", "shown"),
    [
        ("(((3+4)*2)-1)%10", (7, 14, 13), 13),
        ("((3+4)*2)-1", (7, 14, 13), 13),
        ("(3+4*2-1)%10", (8, 11, 10), 10),
        ("print(((3+4)*2-1)%10)", (7, 14, 13), 13),
        ("x = 3+4\nx = x*2\nx - 1", (7, 14, 13), 13),
        ("x = 3\nx += 4\nx *= 2\nx -= 1\nprint(x)", (7, 14, 13), 13),
        ("x = y = 3+4\ny*2", (7, 14), 14),
        ("r = (3+10)%10\nr", (13,), 13),
        ("r = (3+10)%10\ns = r\nprint(s%10)", (13,), 13),
        ("x = 3+10\nx %= 10\nx", (13,), 13),
        ("x = 13%10\nx += 1\nx", (4,), 4),
        ("x = 13%10\nx = 5\nx", (), 5),
        ("print('so', 3+4, end='')", (7,), 7),
        ("print(1+1, 2+2)", (2, 4), 4),
        ("1+1; 2+2", (2, 4), 4),
        ("print(1+1)\nx = 5+5", (2, 10), 2),
        ("x = 5+5", (10,), None),
        ("5+5\nx = 1", (10,), None),
        ("print()", (), None),
        ("", (), None),
        ("pass\n# a comment\n7", (), 7),
        ("17//5, 3", (), None),
        ("17//5", (3,), 3),
        ("17%5", (2,), 2),
        ("2**5", (32,), 32),
        ("-(2+3)", (5,), -5),
        ("+7", (), 7),
        ("0x1F+1", (32,), 32),
    ],
)
def test_values_are_those_of_operation_nodes_in_order_and_the_last_one_shown(source, values, shown):
    assert trace(source, 10) == Trace(values, shown)


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("3+4\nfor i in range(3): pass", (7,)),
        ("print(3+4)\nimport os", (7,)),
        ("(3+4)*z", (7,)),
        ("(3+4)/2", (7,)),
        ("(3+4)/0", (7,)),
        ("(3+4)//0", (7,)),
        ("(3+4)%0", (7,)),
        ("2**-1", ()),
        ("2**(1+99999)", (100_000,)),
        ("(9**9)**9**9", (387420489, 387420489)),
        ("3+True", ()),
        ("3+4.0", ()),
        ("3+4 if 1 else 2", ()),
        ("len('abc')", ()),
        ("print(*[1])", ()),
        ("print(3+4, sep=x)", ()),
        ("print = 3\nprint(4)", ()),
        ("x, y = 1, 2", ()),
        ("x[0] = 1+1", (2,)),
        ("x += 1", ()),
        ("x: int = 3", ()),
        ("(x := 3)", ()),
        ("~3", ()),
        ("not 3", ()),
        ("lambda: 3", ()),
        ("print(print(3))", ()),
        ("1 << 3", ()),
        (f"{2**300}", ()),
        (f"{2**200}*{2**200}", ()),
    ],
)
def test_evaluation_stops_where_it_cannot_follow_and_then_nothing_counts_as_shown(source, values):
    assert trace(source, 10) == Trace(values, None)


@pytest.mark.parametrize("source", ["(3+4", "3+", "3 4", " 3", "print 3", "\x00", "x = = 3", '"\\N{nothing}"'])
def test_malformed_source_has_no_trace(source):
    assert trace(source, 10) is None


@repeatable
@given(EXPRESSIONS)
def test_values_and_result_agree_with_python(source):
    traced = trace(source, 10)
    assert traced is not None
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.BinOp)]
    expected = sorted(eval(compile(ast.Expression(node), "", "eval")) for node in nodes)
    assert sorted(traced.values) == expected
    assert traced.shown == eval(source)


@repeatable
@given(st.text(max_size=60) | st.text("0123456789+-*/%()=x \nprint", max_size=60))
def test_no_text_raises_or_warns(source):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = trace(source, 10)
    assert traced is None or isinstance(traced, Trace)


@pytest.mark.parametrize(
    "source",
    [
        "-" * 1900 + "1",
        "(" * 190 + "1" + ")" * 190,
        "(" * 1900,
        "[" * 1900,
        "1+" * 990 + "1",
        "1%10" + "%10" * 600,
        "a=" * 900 + "1",
        "not " * 480 + "1",
        "x." * 900 + "y",
        "1 if 1 else " * 150 + "1",
        "lambda:" * 250 + "1",
        "9**9**9**9",
        "x=9\n" + "x*=x\n" * 300,
        "print(" * 90 + "1" + ")" * 90,
        "1or 2",
        r"'\d'",
        'f"{' * 100,
    ],
)
def test_hostile_source_costs_little(source):
    trace.cache_clear()
    start = time.process_time()
    trace(source, 10)
    assert time.process_time() - start < 0.5


def test_source_beyond_the_cap_is_not_parsed():
    assert trace("1" + " " * (MAX_SOURCE_CHARS - 1), 10) == Trace((), 1)
    assert trace("1" + " " * MAX_SOURCE_CHARS, 10) is None


def test_text_that_makes_the_parser_warn_warns_nobody():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trace("1or 2", 10) == Trace((), None)
        assert trace("3+4;'\\d'", 10) == Trace((7,), None)


def test_the_modulus_is_that_of_the_task():
    assert trace("(5+9)%4", 4) == Trace((14,), 14)
    assert trace("(5+9)%4", 10) == Trace((14, 2), 2)


# -- sessions


def shared(*programs: str) -> list[Trace]:
    """Traces of programs that find the names of those before them, each of which worked."""
    names: Names = ()
    traces = []
    for program in programs:
        traced = trace(program, 10, names)
        assert traced is not None
        names = names_after(names, traced, ToolResult("ok"))
        traces.append(traced)
    return traces


def test_a_program_finds_the_names_of_those_before_it():
    assert shared("a = 3", "b = a+4", "b *= 2; b % 10")[-1] == Trace((14,), 14)
    assert shared("r = 13 % 10", "r")[-1] == Trace((), 13)
    assert trace("a + 1", 10) == Trace((), None)


@pytest.mark.parametrize(
    ("source", "reduced"),
    [("7 % 10", True), ("17 % 10", True), ("17", False), ("r = 17 % 10; r", True), ("17 % 5", False), ("x = 3", False),
     ("print(17 % 10)", True), ("print(17 % 10, 4)", False)],
)  # fmt: skip
def test_a_trace_tells_whether_what_is_shown_is_a_remainder(source, reduced):
    traced = trace(source, 10)
    assert traced is not None
    assert traced.reduced is reduced


@pytest.mark.parametrize(
    ("source", "result", "names"),
    [
        ("b = a+1", ToolResult("ok"), {"a": 3, "b": 4}),
        ("b = a+1; z; a = 9", ToolResult("error", "NameError"), {"b": 4}),
        ("b = a+1; 1//0", ToolResult("error", "ZeroDivisionError"), {"a": 3, "b": 4}),
        ("b = a+1; 1//0", ToolResult("error", "NameError"), {}),  # not what was expected: nothing is certain
        ("b = a+1; max(a, 1)", ToolResult("ok"), {}),
        ("b = a+1; z; import math as a", ToolResult("error", "NameError"), {}),
        ("b = a+1; z; del a", ToolResult("error", "NameError"), {}),
        ("b = a+(", ToolResult("error", "SyntaxError"), {"a": 3}),
        ("b = a+1", ToolResult("refused", "name"), {"a": 3}),
        ("b = a+1", ToolResult("limit", "source"), {"a": 3}),
        ("b = a+1", ToolResult("limit", "output"), {"a": 3, "b": 4}),
        ("b = a+1", ToolResult("limit", "steps"), {}),
        ("b = a+1" + " " * MAX_SOURCE_CHARS, ToolResult("ok"), {}),
    ],
)
def test_only_names_that_are_certain_are_carried_on(source, result, names):
    before = (("a", 3, 3),)
    after = names_after(before, trace(source, 10, before), result)
    assert {name: value for name, value, _ in after} == names


@repeatable
@given(st.lists(st.text("ab=12+-*;z\n()", min_size=1, max_size=14), min_size=1, max_size=5))
def test_names_that_are_carried_on_are_those_that_python_has(programs):
    real: dict[str, object] = {}
    names: Names = ()
    for program in programs:
        traced = trace(program, 10, names)
        result = ToolResult("ok")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(program, real)
        except Exception as error:
            result = ToolResult("error", type(error).__name__)
        names = names_after(names, traced, result)
        assert {name: value for name, value, _ in names} == {name: real.get(name) for name, _, _ in names}


@pytest.mark.parametrize(
    ("values", "found", "reached"),
    [((7, 14, 13), 0, 3), ((7, 9, 14), 0, 2), ((14, 13), 0, 0), ((14, 13), 1, 3), ((7, 14), 3, 2), ((), 2, 0)],
)
def test_progress_is_the_prefix_found_in_order(values, found, reached):
    assert progress(values, (7, 14, 13), found) == reached
