"""What the parts of the benchmark share: a row of the table, the settings, and how two things are compared fairly."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BenchConfig:
    """Measure speed on this machine: a table for each part, then one line of JSON.

    Whatever is compared runs in this one process, by turns, so that a busy machine slows both sides.
    """

    parts: tuple[str, ...] = ("tools", "engine", "runs")
    """What to measure, in this order."""
    peer: str | None = None
    """`trl`: after the parts, whole steps beside those of TRL's GRPOTrainer; needs the extra `bench`."""
    seed: int = 0
    """Of the programs."""
    calls: int = 20_000
    """Calls of each throughput figure of the tools."""
    burst: int = 45_000
    """Calls submitted at once."""
    workers: int = 2
    """Processes of the interpreter pool."""
    rounds: int = 10
    """Turns that each of two things compared gets; a ratio is the median over them."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median and quartiles of the ratios of paired measurements."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        figure: the measured value.
        unit: of ``figure``.
        ratio: the figure in relation to what ``against`` names.
        against: what the ratio is to.
        bound: what the ratio may be at most, or has to be ``at_least``; None where nothing is asked.
        at_least: whether the bound is a floor.
    """

    name: str
    figure: float
    unit: str
    ratio: Ratio | None = None
    against: str = ""
    bound: float | None = None
    at_least: bool = False

    @property
    def holds(self) -> bool | None:
        """Whether the median ratio keeps the bound; None where there is none."""
        if self.ratio is None or self.bound is None:
            return None
        return self.ratio.median >= self.bound if self.at_least else self.ratio.median <= self.bound


Part = Callable[[BenchConfig], Iterator[Row]]
"""A part of the benchmark yields its rows as it measures them."""


def paired(numerators: Sequence[float], denominators: Sequence[float]) -> Ratio:
    """Median and quartiles of a_i / b_i, over at least one pair measured side by side."""
    ratios = sorted(a / b for a, b in zip(numerators, denominators, strict=True))
    if len(ratios) == 1:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(statistics.median(ratios), low, high)


def interleaved(rounds: int, sides: Mapping[str, Callable[[int], float]]) -> dict[str, list[float]]:
    """Measure each side once a round, in turned order from round to round: whatever drifts, drifts for all.

    ``sides`` maps a name to a function of the round's index that returns a measurement.
    """
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds):
        names = list(sides) if index % 2 == 0 else list(sides)[::-1]
        for name in names:
            measured[name].append(sides[name](index))
    return measured


def geometric_mean(values: Sequence[float]) -> float:
    """Of at least one positive value: the mean for ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))
