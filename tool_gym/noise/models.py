"""What a noise model is, and the two that do not look at the reasoning: none and i.i.d.

A model schedules faults; it does not know results. Only calls whose true result is ``ok`` are
eligible: a scheduled fault on another call does not land, the call keeps its own error. So ``rate`` is
the probability that a call that would have worked is made to fail.

Most models are a :meth:`NoiseModel.draw` (of which calls) and a :class:`~tool_gym.noise.FaultMix` (of which kind).
Those that ask for more than a call's quality, key and number override what episodes call: :meth:`NoiseModel.schedule`
(BurstNoise, for the outage) or :meth:`NoiseModel.strike` and :meth:`NoiseModel.observe_calls` (PerToolNoise, for the
tool).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise.draws import DRAWS_PER_CALL, FAULT, Bools, Floats, Ints, checked_number
from tool_gym.noise.faults import TIMEOUTS, Fault, FaultMix, checked_mix


@dataclass(frozen=True, slots=True)
class Calls:
    """N calls as a noise model sees them.

    Attributes:
        qualities: (N,) reasoning quality of each call, in [0, 1].
        keys: (N,) noise key of each call's episode.
        numbers: (N,) index of each call within its episode, from 0.
        outage_keys: (N,) key of the outages that each call's episode may meet; episodes with the same key meet the
            same ones (see :class:`tool_gym.noise.BurstNoise`).
        tools: names of the N tools called.
    """

    qualities: Floats
    keys: rng.UInt64s
    numbers: Ints
    outage_keys: rng.UInt64s
    tools: Sequence[str]

    def __len__(self) -> int:
        return len(self.tools)


class NoiseModel(ABC):
    """Schedules faults.

    Attributes:
        name: the kind, as configurations and reports spell it.
        rate: the marginal probability of a fault for an eligible call.
        faults: what scheduled faults look like; timeouts if a model does not say.
    """

    name: ClassVar[str]
    rate: float
    faults: FaultMix = TIMEOUTS

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

    def schedule(self, calls: Calls) -> Bools:
        """:meth:`draw`, for callers that know the whole of each call."""
        return self.draw(calls.qualities, calls.keys, calls.numbers)

    def strike(self, calls: Calls) -> list[Fault | None]:
        """The fault scheduled for each of N calls, None where none is."""
        struck = np.flatnonzero(self.schedule(calls))
        faults: list[Fault | None] = [None] * len(calls)
        if len(struck):
            drawn = self.faults.draw(calls.keys[struck], calls.numbers[struck])
            for row, fault in zip(struck.tolist(), drawn, strict=True):
                faults[row] = fault
        return faults

    def observe(self, qualities: npt.ArrayLike) -> None:  # noqa: B027 - most models learn nothing
        """Told the qualities of the eligible calls of a finished step, in canonical order."""

    def observe_calls(self, qualities: npt.ArrayLike, tools: Sequence[str]) -> None:
        """:meth:`observe`, for callers that know the tools called."""
        self.observe(qualities)

    def check_tools(self, names: Sequence[str]) -> None:  # noqa: B027 - most models name no tool
        """Raises ConfigError where the model names a tool that is not among ``names``."""

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
        rate: in [0, 1], both ends allowed (never, always).
        faults: what faults look like.

    Raises ConfigError, naming the field, for anything else.
    """

    name = "iid"

    def __init__(self, rate: float, *, faults: FaultMix = TIMEOUTS) -> None:
        self.rate = checked_number("noise_rate", rate, 0.0, 1.0)
        self.faults = checked_mix(faults)

    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        # Equal positions make CorrelatedNoise with correlation 0 schedule the very same faults.
        return rng.uniform(keys, DRAWS_PER_CALL * np.asarray(calls) + FAULT) < self.rate

    def fault_probability(self, quality: float) -> float:
        return self.rate

    def __repr__(self) -> str:
        return f"IIDNoise({self.rate}{shown_faults(self)})"


def shown_faults(noise: NoiseModel) -> str:
    """The last argument of a model's repr, "" for what every model does if not told otherwise."""
    return "" if noise.faults == TIMEOUTS else f", faults={noise.faults}"
