"""What a noise model is, and the two that do not look at the reasoning: none and i.i.d.

A model schedules faults; it does not know calls or results. Only calls whose true result is ``ok`` are
eligible: a scheduled fault on another call does not land, the call keeps its own error. So ``rate`` is
the probability that a call that would have worked is made to fail.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tool_gym import rng
from tool_gym.errors import ConfigError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]

# Each call owns four consecutive draws of its episode's key: the tie within the rank, the fault, and two spare.
DRAWS_PER_CALL = 4
TIE, FAULT = 0, 1


def checked_number(field: str, value: Any, lowest: float, highest: float) -> float:
    """``value`` as a float. Raises ConfigError unless it is a number in [lowest, highest]."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan
    if not lowest <= number <= highest:
        raise ConfigError(field, value, f"a number in [{lowest:g}, {highest:g}]")
    return number


class NoiseModel(ABC):
    """Schedules faults.

    Attributes:
        name: the kind, as configurations and reports spell it.
        rate: the marginal probability of a fault for an eligible call.
    """

    name: ClassVar[str]
    rate: float

    @abstractmethod
    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        """Whether a fault is scheduled for each of N calls.

        Args:
            qualities: (N,) reasoning quality of each call, in [0, 1].
            keys: (N,) noise key of each call's episode.
            calls: (N,) index of each call within its episode, from 0.

        The result for a call depends on its own quality, key and index only (and on what ``observe`` was
        told before), never on its neighbours in the batch.
        """

    @abstractmethod
    def fault_probability(self, quality: float) -> float:
        """Exact probability of a scheduled fault for a call of this quality."""

    def observe(self, qualities: npt.ArrayLike) -> None:  # noqa: B027 - most models learn nothing
        """Told the qualities of the eligible calls of a finished step, in canonical order."""

    def state(self) -> dict[str, npt.NDArray[np.float64]]:
        """What a checkpoint must keep, {} for a model that learns nothing."""
        return {}

    def load_state(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Restore what ``state`` returned. Raises ConfigError where it is not this model's."""
        if state:
            raise ConfigError("noise state", sorted(state), f"nothing: noise {self.name!r} has no state")


class NoNoise(NoiseModel):
    """Tools that never fail by themselves."""

    name = "none"
    rate = 0.0

    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        return np.zeros(np.shape(keys), dtype=np.bool_)

    def fault_probability(self, quality: float) -> float:
        return 0.0

    def __repr__(self) -> str:
        return "NoNoise()"


class IIDNoise(NoiseModel):
    """Each call fails with the same probability, whatever its reasoning.

    Args:
        rate: in [0, 1], both ends allowed (never, always). Raises ConfigError otherwise.
    """

    name = "iid"

    def __init__(self, rate: float) -> None:
        self.rate = checked_number("noise_rate", rate, 0.0, 1.0)

    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        # Equal positions make CorrelatedNoise with correlation 0 schedule the very same faults.
        return rng.uniform(keys, DRAWS_PER_CALL * np.asarray(calls) + FAULT) < self.rate

    def fault_probability(self, quality: float) -> float:
        return self.rate

    def __repr__(self) -> str:
        return f"IIDNoise({self.rate})"
