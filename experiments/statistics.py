"""Statistics of a few seeds per arm: intervals, paired tests, and the rule that turns an interval into a verdict.

Every function takes one number per seed (the area under a run's curve, its last accuracy, ...), in the same order of
seeds for both arms of a pair. Pure numpy and scipy; random parts are a function of ``seed``. Nothing is dropped or
filled in: values that are not finite are refused, and choosing the seeds of a comparison is the caller's business.

Sources: Efron 1987 for the BCa interval; Fisher 1935 for the sign-flip test; Holm 1979; Agarwal et al. 2021
(arXiv 2108.13264) for the interquartile mean and the probability of improvement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy import integrate, stats

from tool_gym.errors import ConfigError

Floats = npt.NDArray[np.float64]
Values = Sequence[float] | npt.NDArray[np.floating]
Verdict = Literal["supported", "not supported", "undecided", "too few pairs"]

CONFIDENCE = 0.95
RESAMPLES = 9_999
EXACT_PAIRS = 20
"""Up to this many pairs the sign-flip test goes through every assignment of signs (2^19 sums, 4 MB)."""
LEAST_PAIRS = 6
"""Pairs below which no verdict is passed: an exact test of five cannot reach .05, the least p-value being 2/32."""
MARGIN = 0.02
"""Half-width of the zone of no practical difference between probabilities."""
COVERAGE = {3: 0.71, 6: 0.86, 10: 0.90, 20: 0.93}
"""How often a 95 % BCa interval of the mean of so many normal values covers the truth (tests/test_statistics.py)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, or a difference of means, with its interval at 95 %; ``low`` and ``high`` are NaN where n is 1."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of a − b over pairs, its interval at 95 % and the p-value of the two-sided sign-flip test."""

    mean: float
    low: float
    high: float
    n: int
    p_value: float


class HasInterval(Protocol):
    """What a verdict is passed on: bounds of an interval, and from how many pairs it comes."""

    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def n(self) -> int: ...


# One run


def auc(updates: Values, values: Values) -> float:
    """Area under a curve by the trapezoid rule, divided by its range: the mean height between first and last update.

    Args:
        updates: where the curve was measured, strictly increasing, shape (T,), T >= 2.
        values: the curve, shape (T,).

    Raises:
        ValueError: for fewer than two points, different lengths, updates that do not increase, values not finite.
    """
    x, y = _finite("auc: updates", updates, least=2), _finite("auc: values", values, least=2)
    if len(x) != len(y):
        raise ValueError(f"auc: {len(x)} updates, {len(y)} values")
    if not np.all(np.diff(x) > 0):
        raise ValueError("auc: updates must increase")
    return float(integrate.trapezoid(y, x) / (x[-1] - x[0]))


def rescale_accuracy(accuracy: float, chance: float) -> float:
    """Accuracy on a scale where guessing, right with probability ``chance``, is 0 and being always right is 1.

    Below chance it is negative. Raises ConfigError for a chance outside [0, 1).
    """
    if not 0 <= chance < 1:
        raise ConfigError("chance", chance, "from 0 to less than 1")
    return (accuracy - chance) / (1 - chance)


# One arm


def iqm(values: Values) -> float:
    """Interquartile mean: the mean without the lowest and the highest quarter (arXiv 2108.13264), shape (n,) -> float.

    A quarter is rounded down to whole values, so with fewer than four it is the mean. Raises ValueError for no value.
    """
    return float(stats.trim_mean(_finite("iqm: values", values), 0.25))


def mean_interval(values: Values, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean of one arm over seeds with its 95 % BCa bootstrap interval (Efron 1987).

    Values that are all equal give an interval of no width; a single value one of NaN. With few values a bootstrap
    interval covers less than it says (``COVERAGE``).

    Args:
        values: one a seed, shape (n,), n >= 1.
        seed: of the bootstrap's draws.
        resamples: number of bootstrap resamples.

    Raises:
        ValueError: for no value or one that is not finite.
    """
    x = _finite("mean_interval: values", values)
    low, high = _bca((x,), seed, resamples)
    return Interval(float(x.mean()), low, high, len(x))


# Two arms


def paired_difference(a: Values, b: Values, *, seed: int = 0, resamples: int = RESAMPLES) -> PairedDifference:
    """Mean of a − b over seeds with its 95 % BCa bootstrap interval and the sign-flip test of no difference.

    Args:
        a: one value a seed, shape (n,), n >= 1.
        b: the other arm's, in the same order of seeds.
        seed: of the bootstrap's draws and of the test's, where that is not exact.
        resamples: number of bootstrap resamples, and of sign flips where the test is not exact.

    Raises:
        ValueError: for arms of different length, no pair, or a value that is not finite.
    """
    x, y = _finite("paired_difference: a", a), _finite("paired_difference: b", b)
    if len(x) != len(y):
        raise ValueError(f"paired_difference: {len(x)} values against {len(y)}")
    differences = x - y
    low, high = _bca((differences,), seed, resamples)
    p_value = sign_flip_test(differences, seed=seed, resamples=resamples)
    return PairedDifference(float(differences.mean()), low, high, len(differences), p_value)


def unpaired_difference(a: Values, b: Values, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Difference of the two means with its 95 % BCa bootstrap interval, each arm resampled by itself.

    Pairs by seed part ways as the policies do; where pairing has decayed this interval is as narrow as the paired one.
    ``n`` of the result is the smaller arm's. Arguments and errors as in :func:`paired_difference`, but the arms may
    differ in length.
    """
    x, y = _finite("unpaired_difference: a", a), _finite("unpaired_difference: b", b)
    low, high = _bca((x, y), seed, resamples)
    return Interval(float(x.mean() - y.mean()), low, high, min(len(x), len(y)))


def sign_flip_test(differences: Values, *, seed: int = 0, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value of the hypothesis that the differences are symmetric about 0.

    The share of assignments of signs whose sum is at least as far from 0 as the observed one: all assignments for up
    to 20 pairs, above that ``resamples`` random ones and the observed one.

    Args:
        differences: one a pair, shape (n,), n >= 1.
        seed: of the random assignments.
        resamples: their number.
    """
    d = _finite("sign_flip_test: differences", differences)
    # Sums of the same numbers in another order differ in the last bits: they must count as equal.
    bound = abs(d.sum()) - 1e-12 * float(np.abs(d).sum())
    if len(d) <= EXACT_PAIRS:
        # A sum and its mirror image are equally far from 0, so the first sign can stay.
        sums = d[:1]
        for difference in d[1:]:
            sums = np.concatenate([sums + difference, sums - difference])
        return float(np.mean(np.abs(sums) >= bound))
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(resamples, len(d)))
    return float((1 + np.sum(np.abs(signs @ d) >= bound)) / (1 + resamples))


def probability_of_improvement(a: Values, b: Values) -> float:
    """Probability that a run of arm a beats a run of arm b, over all pairs of runs, ties a half (arXiv 2108.13264).

    Shapes (n,) and (m,) -> float. It is the Mann-Whitney U divided by n·m. Raises ValueError for an empty arm.
    """
    x, y = _finite("probability_of_improvement: a", a), _finite("probability_of_improvement: b", b)
    difference = x[:, None] - y[None, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


# Many tests, and a decision


def holm(p_values: Values) -> Floats:
    """P-values adjusted for their number, so that rejecting below α keeps the family-wise error below α (Holm 1979).

    Args:
        p_values: of one table, shape (m,), each in [0, 1].

    Returns:
        Adjusted p-values in the same order, shape (m,).

    Raises:
        ValueError: for no p-value or one outside [0, 1].
    """
    p = _finite("holm: p_values", p_values)
    if np.any((p < 0) | (p > 1)):
        raise ValueError("holm: p_values must be within [0, 1]")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def verdict(interval: HasInterval, claim_sign: int, margin: float | None = MARGIN) -> Verdict:
    """The decision rule.

    Of a claim that there is a difference, *supported*: the interval excludes 0 on the claimed side; *not supported*:
    it excludes 0 on the other side, or lies within ± ``margin``. Of a claim that there is none to speak of,
    *supported*: the interval lies within ± ``margin``; *not supported*: it lies outside. *Undecided* otherwise, and
    *too few pairs* below ``LEAST_PAIRS``, where such an interval would often exclude a truth of 0. A claim of a
    difference is supported by an interval that excludes 0 however small the effect.

    Args:
        interval: bounds in the units of the estimand, and the number of pairs.
        claim_sign: 1 for the claim that it is positive, −1 for negative, 0 for none to speak of.
        margin: half-width of the zone of no practical difference; None: no such zone was fixed for this figure.

    Raises:
        ConfigError: for another sign, a negative margin, or a claim of no difference without a margin.
    """
    if claim_sign not in (1, 0, -1) or (claim_sign == 0 and margin is None):
        raise ConfigError("claim_sign", claim_sign, "1 or -1, or 0 with a margin")
    if margin is not None and margin < 0:
        raise ConfigError("margin", margin, "a number >= 0")
    if interval.n < LEAST_PAIRS:
        return "too few pairs"
    low, high = sorted((interval.low * (claim_sign or 1), interval.high * (claim_sign or 1)))
    within = margin is not None and -margin <= low and high <= margin
    if claim_sign == 0 and margin is not None:
        outside = low > margin or high < -margin
        return "supported" if within else "not supported" if outside else "undecided"
    if low > 0:
        return "supported"
    return "not supported" if high < 0 or within else "undecided"


def excludes_zero(interval: HasInterval) -> bool:
    """Whether an interval of enough pairs for a verdict excludes 0."""
    return interval.n >= LEAST_PAIRS and (interval.low > 0 or interval.high < 0)


# Parts


def _finite(name: str, values: Values, least: int = 1) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise ValueError(f"{name}: has shape {array.shape}, must be one-dimensional with at least {least}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: has values that are not finite")
    return array


def _contrast(*samples: Floats, axis: int = -1) -> Floats:
    """The mean of one sample, or the first's less the second's."""
    first, *others = (np.asarray(sample.mean(axis=axis)) for sample in samples)
    return first - others[0] if others else first


def _bca(samples: tuple[Floats, ...], seed: int, resamples: int) -> tuple[float, float]:
    """Bounds of the BCa interval of a mean, or of a difference of two means."""
    if min(len(x) for x in samples) < 2:
        return float("nan"), float("nan")
    if all(np.ptp(x) <= 1e-12 * np.abs(x).max() for x in samples):
        # Without spread every resample is the same and the bias correction undefined; the interval is a point.
        point = float(_contrast(*samples))
        return point, point
    result = stats.bootstrap(
        samples,
        _contrast,
        n_resamples=resamples,
        confidence_level=CONFIDENCE,
        method="BCa",
        vectorized=True,
        random_state=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)
