"""A noise model by its name and numbers, as environments and runs are told which they want."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from tool_gym.noise.burst import BurstNoise
from tool_gym.noise.correlated import CorrelatedNoise, ReferenceMode
from tool_gym.noise.faults import FaultMix
from tool_gym.noise.models import IIDNoise, NoiseModel, NoNoise
from tool_gym.noise.per_tool import PerToolNoise

NOISES = ("none", "iid", "correlated", "burst")


def named_noise(
    name: str,
    rate: float,
    tool_rates: Mapping[str, float] | None,
    *,
    correlation: float,
    reference: Callable[[], npt.NDArray[np.float64]],
    reference_mode: ReferenceMode,
    mean_burst: float,
    faults: FaultMix,
) -> NoiseModel:
    """The noise model of a name in ``NOISES``, with a model of its own for each tool that has a rate of its own.

    Args:
        name, rate, tool_rates: which noise, how often, and how often on some tools, by name.
        correlation, reference, reference_mode: see CorrelatedNoise; the reference is asked for only where it is used.
        mean_burst: see BurstNoise.
        faults: what faults look like.

    Raises ConfigError for a number out of its range, and what ``reference`` raises.
    """

    def of_rate(rate: float) -> NoiseModel:
        if name == "iid":
            return IIDNoise(rate, faults=faults)
        if name == "burst":
            return BurstNoise(rate, mean_burst, faults=faults)
        return CorrelatedNoise(rate, correlation, reference(), reference_mode=reference_mode, faults=faults)

    if name == "none":
        return NoNoise()
    general = of_rate(rate)
    return PerToolNoise({tool: of_rate(own) for tool, own in tool_rates.items()}, general) if tool_rates else general
