"""Faults that follow the reasoning: a Gaussian copula between a call's fault and its quality."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise.draws import DRAWS_PER_CALL, FAULT, TIE, Bools, Floats, Ints, checked_number
from tool_gym.noise.faults import TIMEOUTS, FaultMix, checked_mix
from tool_gym.noise.models import NoiseModel, shown_faults
from tool_gym.noise.normal import bivariate_cdf, cdf, quantile, scalar_cdf, scalar_quantile

ReferenceMode = Literal["frozen", "running"]

# Ranks stay off 0 and 1, where the normal quantile is infinite.
_LOWEST_RANK, _HIGHEST_RANK = 1e-12, 1.0 - 1e-12
# Qualities equal to nine decimals are ties, so that 0.1 + 0.2 and 0.3 have the same rank.
_TIE_DECIMALS = 9


class CorrelatedNoise(NoiseModel):
    """Faults that correlate with reasoning quality at an exactly constant marginal rate.

    Let F be the distribution of quality over eligible calls (the reference), U the rank of a call's
    quality under F, randomised within ties and so uniform, and Z a standard normal. A fault is scheduled iff

        Φ(ρ Φ⁻¹(U) + √(1 − ρ²) Z) < rate.

    The left side is uniform for every ρ: under F the fault rate is ``rate`` whatever the correlation,
    which moves only *where* faults fall. ρ = 0 is i.i.d., and schedules the same faults as IIDNoise under
    the same keys; ρ = 1 fails the worst-reasoned calls, ρ = −1 the best-reasoned.

    Args:
        rate: in [0, 1], both ends allowed (never, always).
        correlation: ρ in [−1, 1].
        reference: 1-D, non-empty, qualities in [0, 1]; the sample that defines F. It is copied.
        reference_mode: ``frozen``: F stays, so faults become rarer as reasoning improves. ``running``: F is
            that of the last ``window`` eligible calls observed, starting from the reference (its last
            ``window`` values if it is longer), so the rate stays matched.
        window: positive; used in running mode only.
        faults: what faults look like.

    Raises ConfigError, naming the field, for anything else.
    """

    name = "correlated"

    def __init__(
        self,
        rate: float,
        correlation: float,
        reference: npt.ArrayLike,
        *,
        reference_mode: ReferenceMode = "frozen",
        window: int = 4096,
        faults: FaultMix = TIMEOUTS,
    ) -> None:
        self.rate = checked_number("noise_rate", rate, 0.0, 1.0)
        self.correlation = checked_number("correlation", correlation, -1.0, 1.0)
        if reference_mode not in ("frozen", "running"):
            raise ConfigError("reference_mode", reference_mode, "frozen, running")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ConfigError("window", window, "a positive integer")
        self.faults = checked_mix(faults)
        self.reference_mode: ReferenceMode = reference_mode
        self.window = window
        self._threshold = scalar_quantile(self.rate)
        self._set_reference(_checked_qualities("reference", reference))

    @property
    def reference(self) -> Floats:
        """(M,) copy of the sample that defines F now, oldest first, rounded to nine decimals."""
        return self._reference.copy()

    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        lower, upper = self._ranks(qualities)
        positions = DRAWS_PER_CALL * np.asarray(calls)
        u = lower + rng.uniform(keys, positions + TIE) * (upper - lower)
        # With Z the normal quantile of the uniform v, the fault's inequality is v < P(fault | U).
        return rng.uniform(keys, positions + FAULT) < self._probability_at_rank(u)

    def fault_probability(self, quality: float) -> float:
        """Exact probability of a scheduled fault for a call of this quality, in [0, 1].

        With z = Φ⁻¹(rate) and [lo, hi] = [F(q−), F(q)], the mean over U uniform in [lo, hi]:
        [Φ₂(Φ⁻¹(hi), z; ρ) − Φ₂(Φ⁻¹(lo), z; ρ)] / (hi − lo); the point value at U = F(q) where F has no mass
        at q. Weighted with F it sums to ``rate`` exactly, since the differences telescope.

        Raises ConfigError unless the quality is in [0, 1].
        """
        lower, upper = (float(rank) for rank in self._ranks(checked_number("quality", quality, 0.0, 1.0)))
        if lower == upper:
            return float(self._probability_at_rank(np.asarray(lower)))
        mean = (self._mass_below(upper) - self._mass_below(lower)) / (upper - lower)
        return min(1.0, max(0.0, mean))

    def observe(self, qualities: npt.ArrayLike) -> None:
        if self.reference_mode == "frozen" or np.size(qualities) == 0:
            return
        self._set_reference(np.concatenate([self._reference, _checked_qualities("qualities", qualities)]))

    def state(self) -> dict[str, npt.NDArray[np.float64]]:
        return {"reference": self.reference}

    def load_state(self, state: Mapping[str, npt.ArrayLike]) -> None:
        if set(state) != {"reference"}:
            raise ConfigError("noise state", sorted(state), "exactly the key 'reference'")
        self._set_reference(_checked_qualities("reference", state["reference"]))

    def _set_reference(self, reference: Floats) -> None:
        if self.reference_mode == "running":
            reference = reference[-self.window :]
        self._reference = np.round(reference, _TIE_DECIMALS)
        self._sorted = np.sort(self._reference)

    def _ranks(self, qualities: npt.ArrayLike) -> tuple[Floats, Floats]:
        """F(q−) and F(q), each of the shape of ``qualities``."""
        rounded = np.round(np.asarray(qualities, dtype=np.float64), _TIE_DECIMALS)
        lower = np.asarray(np.searchsorted(self._sorted, rounded, side="left") / self._sorted.size)
        upper = np.asarray(np.searchsorted(self._sorted, rounded, side="right") / self._sorted.size)
        return lower, upper

    def _probability_at_rank(self, u: Floats) -> Floats:
        """P(fault | U = u), of the shape of ``u``: Φ((z − ρ Φ⁻¹(u)) / √(1 − ρ²)) and its limits."""
        u = np.clip(u, _LOWEST_RANK, _HIGHEST_RANK)
        if self.correlation == 0.0:
            return np.full(u.shape, self.rate)
        if self.correlation == 1.0:
            return (u < self.rate).astype(np.float64)
        if self.correlation == -1.0:
            return (1.0 - u < self.rate).astype(np.float64)
        scale = math.sqrt((1.0 - self.correlation) * (1.0 + self.correlation))
        return cdf((self._threshold - self.correlation * quantile(u)) / scale)

    def _mass_below(self, rank: float) -> float:
        """P(fault and U ≤ rank)."""
        if self.correlation == 0.0:
            return self.rate * rank
        if self.correlation == 1.0:
            return min(rank, self.rate)
        if self.correlation == -1.0:
            return max(rank, 1.0 - self.rate) - (1.0 - self.rate)
        if rank == 1.0:
            return scalar_cdf(self._threshold)
        return bivariate_cdf(scalar_quantile(rank), self._threshold, self.correlation)

    def __repr__(self) -> str:
        return (
            f"CorrelatedNoise({self.rate}, {self.correlation}, <{self._reference.size} qualities>, "
            f"reference_mode={self.reference_mode!r}, window={self.window}{shown_faults(self)})"
        )


def _checked_qualities(field: str, values: npt.ArrayLike) -> Floats:
    """A float copy of ``values``. Raises ConfigError unless they are a non-empty 1-D array within [0, 1]."""
    allowed = "a non-empty 1-D array of finite values in [0, 1]"
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(field, reprlib.repr(values), allowed) from None
    # Written so that NaN fails too.
    if array.ndim != 1 or array.size == 0 or not bool(np.all((array >= 0.0) & (array <= 1.0))):
        raise ConfigError(field, reprlib.repr(values), allowed)
    return array
