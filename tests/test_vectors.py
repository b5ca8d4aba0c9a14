"""Vectors in compiled functions: each operation is that of its eight lanes, and only its own places are touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import vectors
from agents.vectors import LANES, load, load_one, spread, store

Floats = npt.NDArray[np.float32]
NUMBERS = st.lists(st.floats(-1e3, 1e3, width=32), min_size=3 * LANES, max_size=3 * LANES)
PAIRS = np.arange(LANES) // 2 * 2


def compiled(operation: Any, operands: int) -> Callable[[Floats], Floats]:
    """The operation on the first vectors of an array, one behind the other."""

    @numba.njit
    def of_one(x: Floats, out: Floats) -> None:
        store(out, 0, operation(load(x, 0)))

    @numba.njit
    def of_two(x: Floats, out: Floats) -> None:
        store(out, 0, operation(load(x, 0), load(x, LANES)))

    @numba.njit
    def of_three(x: Floats, out: Floats) -> None:
        store(out, 0, operation(load(x, 0), load(x, LANES), load(x, 2 * LANES)))

    function = (of_one, of_two, of_three)[operands - 1]

    def call(x: Floats) -> Floats:
        out = np.empty(LANES, np.float32)
        function(x, out)
        return out

    return call


OPERATIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, lambda a, b: a + b),
    "subtract": (2, lambda a, b: a - b),
    "multiply": (2, lambda a, b: a * b),
    "larger": (2, np.maximum),
    "swapped": (1, lambda a: a[np.arange(LANES) ^ 1]),
    "firsts": (1, lambda a: a[PAIRS]),
    "seconds": (1, lambda a: a[PAIRS + 1] * np.where(np.arange(LANES) % 2, 1, -1)),
    "whole": (1, np.trunc),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_that_of_each_lane(name: str) -> None:
    operands, expected = OPERATIONS[name]
    operation = compiled(getattr(vectors, name), operands)

    @settings(max_examples=50)
    @given(NUMBERS)
    def check(numbers: list[float]) -> None:
        x = np.array(numbers, dtype=np.float32)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(operation(x), expected(*x.reshape(3, LANES)[:operands]).astype(np.float32))

    check()


def test_a_product_and_sum_is_rounded_once_or_twice() -> None:
    fma = compiled(vectors.fma, 3)
    x = np.random.default_rng(0).normal(size=3 * LANES).astype(np.float32)
    a, b, c = x.astype(np.float64).reshape(3, LANES)
    np.testing.assert_allclose(fma(x), a * b + c, rtol=0, atol=2e-7 * np.abs(x).max() ** 2)


def test_powers_of_two_are_exact() -> None:
    two_to = compiled(vectors.two_to, 1)
    for first in range(-126, 128 - LANES + 1):
        powers = np.arange(first, first + LANES)
        np.testing.assert_array_equal(two_to(powers.astype(np.float32)), np.ldexp(np.float32(1), powers))


def test_lanes_become_one_number() -> None:
    @numba.njit
    def both(x: Floats) -> tuple[float, float]:
        return vectors.total(load(x, 0)), vectors.largest(load(x, 0))

    for x in np.random.default_rng(0).integers(-100, 100, size=(50, LANES)).astype(np.float32):
        assert both(x) == (x.sum(), x.max())


def test_lanes_are_chosen_by_comparison_and_what_is_no_number_is_not_below() -> None:
    @numba.njit
    def choose(x: Floats, out: Floats) -> None:
        chosen = vectors.where_below(load(x, 0), vectors.lane_numbers(), spread(np.float32(1)), spread(np.float32(2)))
        store(out, 0, chosen)
        store(out, LANES, vectors.add(load(x, 0), spread(np.float32(1))))
        store(out, 2 * LANES, vectors.larger(load(x, 0), vectors.lane_numbers()))

    out = np.empty(3 * LANES, np.float32)
    choose(np.array([-1, 1, 1, 3, np.nan, 4, 7, -np.inf], np.float32), out)
    assert out[:LANES].tolist() == [1, 2, 1, 2, 2, 1, 2, 1]
    assert np.isnan(out[LANES + 4])
    assert out[2 * LANES :].tolist() == [0, 1, 2, 3, 4, 5, 7, 7]


@pytest.mark.parametrize("array", [np.zeros(16), np.zeros((2, 8), np.float32), np.zeros(16, np.float32)[::2]])
def test_only_flat_arrays_of_float32_are_taken(array: npt.NDArray[Any]) -> None:
    @numba.njit
    def read(x: Floats) -> float:
        return vectors.total(load(x, 0))

    @numba.njit
    def write(x: Floats) -> None:
        store(x, 0, spread(np.float32(1)))

    for function in (read, write):
        with pytest.raises(numba.errors.TypingError):
            function(array)


@pytest.mark.parametrize("place", [0, 1, 5, LANES])
def test_only_eight_values_from_a_place_on_are_read_and_written(place: int) -> None:
    @numba.njit
    def copy(x: Floats, at: int, out: Floats) -> None:
        store(out, at, load(x, at))

    @numba.njit
    def broadcast(x: Floats, at: int, out: Floats) -> None:
        store(out, at, load_one(x, at))

    x = np.arange(3 * LANES, dtype=np.float32)
    for function, expected in ((copy, x[place : place + LANES]), (broadcast, np.full(LANES, x[place]))):
        out = np.full(3 * LANES, -1, np.float32)
        function(x, place, out)
        assert out[place : place + LANES].tolist() == expected.tolist()
        assert (np.delete(out, np.arange(place, place + LANES)) == -1).all()
