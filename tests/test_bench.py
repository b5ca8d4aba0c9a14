"""The benchmark: fair comparisons, honest verdicts, programs with right answers."""

from __future__ import annotations

import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.bench import BenchConfig, bench, table, tools
from experiments.bench.figures import Ratio, Row, geometric_mean, interleaved, paired
from experiments.bench.programs import (
    ENDLESS,
    ONE_LINERS,
    TYPICAL,
    demonstrations,
    native_answer,
    one_liners,
)
from tool_gym.errors import ConfigError, InfrastructureError
from tool_gym.interpreter import InterpreterPool
from tool_gym.tools.base import ToolResult

SMALL = BenchConfig(parts=("tools",), calls=400, burst=300, workers=1, rounds=2)
positive = st.floats(1e-3, 1e3)


def wide() -> Console:
    return Console(file=io.StringIO(), width=300)


# ------------------------------------------------------------------ figures


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=20))
def test_a_ratio_is_the_median_of_pairs_within_its_quartiles(pairs: list[tuple[float, float]]) -> None:
    ratio = paired([a for a, _ in pairs], [b for _, b in pairs])
    ratios = [a / b for a, b in pairs]
    assert min(ratios) <= ratio.low <= ratio.median <= ratio.high <= max(ratios)


def test_a_drift_of_the_machine_leaves_a_ratio_as_it_is() -> None:
    def side(cost: float) -> list[float]:
        return [cost * (1 + index) for index in range(9)]

    assert paired(side(2.0), side(4.0)) == Ratio(0.5, 0.5, 0.5)


def test_sides_take_turns_in_being_first() -> None:
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    measured = interleaved(3, {"a": lambda _: side("a"), "b": lambda _: side("b")})
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert measured == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


@given(st.lists(positive, min_size=1, max_size=10))
def test_the_geometric_mean_of_ratios_and_of_their_inverses_are_inverses(values: list[float]) -> None:
    assert math.isclose(geometric_mean(values) * geometric_mean([1 / value for value in values]), 1.0)


@pytest.mark.parametrize(
    ("ratio", "bound", "at_least", "holds"),
    [(0.9, 1.0, False, True), (1.1, 1.0, False, False), (0.7, 0.6, True, True), (0.5, 0.6, True, False)],
)
def test_a_bound_that_is_missed_is_marked(ratio: float, bound: float, at_least: bool, holds: bool) -> None:
    row = Row("x", 1.0, "s", Ratio(ratio, ratio, ratio), "y", bound, at_least)
    assert row.holds is holds
    console = wide()
    console.print(table("part", [row]))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("MISSED" in shown) is not holds


# ------------------------------------------------------------------ programs


@pytest.mark.parametrize("kind", [None, *ONE_LINERS])
def test_one_liners_are_distinct_and_the_same_for_a_seed(kind: str | None) -> None:
    programs = one_liners(3, 300, kind)
    assert len(set(programs)) == 300
    assert programs == one_liners(3, 300, kind)
    assert programs != one_liners(4, 300, kind)
    assert not any("\n" in program for program in programs)


def test_every_program_answers_in_the_pool_as_in_python() -> None:
    programs = [*one_liners(0, 200), *demonstrations(0, 4), *(p for group in TYPICAL.values() for p in group)]
    with InterpreterPool(workers=1) as pool:
        results = pool.run_batch(programs, echo=True)
        assert [r.output for r in results] == [native_answer(program) for program in programs]
        assert {(r.status, r.kind) for r in pool.run_batch(ENDLESS)} == {("limit", "steps")}


@pytest.mark.parametrize("group", list(TYPICAL))
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_the_yardstick_runs_the_same_programs_to_the_same_answer(group: str) -> None:
    for program in TYPICAL[group]:
        assert 5 <= program.count("\n") <= 20
        if "def " not in program:  # what a function prints goes to a collector of its own
            assert tools.run_stock(program) == native_answer(program)
        assert tools.stock_seconds(program) > 0


# ------------------------------------------------------------------ the parts


def test_a_run_ends_in_one_line_of_json_with_every_figure() -> None:
    console = wide()
    result = bench(SMALL, console)
    lines = console.file.getvalue().strip().splitlines()  # type: ignore[attr-defined]
    assert json.loads(lines[-1]) == json.loads(json.dumps(result))
    rows = {row["name"].strip(): row for row in result["bench"]["tools"]}
    bounds = [(row["bound"], row.get("at_least", False)) for row in result["bench"]["tools"] if "bound" in row]
    assert bounds[:3] == [(1.0, False), (0.35, False), (2 / 3, True)]
    assert bounds[3:] == [(5.0, False)] * 2 + [(1.5, False)] * 4
    for name, row in rows.items():
        assert row["figure"] > 0, name
        if "ratio" in row:
            assert 0 < row["ratio"]["low"] <= row["ratio"]["high"], name
    assert sorted(result["missed"]) == sorted(
        f"tools: {row['name']}" for row in result["bench"]["tools"] if row.get("holds") is False
    )
    assert rows["latency, mean"]["figure"] <= rows["latency, 99th percentile"]["figure"]
    assert result["machine"]["cores"] >= 1


def test_wrong_answers_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(pool: InterpreterPool, codes: list[str], **_: object) -> list[ToolResult]:
        return [ToolResult("infrastructure")] * len(codes)

    monkeypatch.setattr(InterpreterPool, "run_batch", lost)
    with pytest.raises(InfrastructureError, match="bench"):
        next(tools.rows(SMALL))


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"parts": ("nothing",)}, "parts"), ({"parts": ()}, "parts"), ({"calls": 0}, "calls"), ({"rounds": 0}, "rounds")],
)
def test_a_bad_setting_is_refused_before_anything_is_measured(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        bench(BenchConfig(**changes), wide())  # type: ignore[arg-type]
