"""Faults that come in bursts: outages of the tool, the same for all episodes that run together."""

from __future__ import annotations

import math

import numpy as np

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise.draws import DRAWS_PER_CALL, FAULT, Bools, Floats, Ints, checked_number
from tool_gym.noise.faults import TIMEOUTS, FaultMix, checked_mix
from tool_gym.noise.models import Calls, NoiseModel, shown_faults

# At a rate of 0.8 the shortest mean burst is 4, which floating point makes 4.000000000000001.
_ROUNDING = 1e-12


class BurstNoise(NoiseModel):
    """A tool that is up or down: a chain of two states, down at a share ``rate`` of the time, ``mean_burst`` at a time.

    Gilbert's model (Bell System Technical Journal 39, 1960; with Elliott's error rates 0 and 1): every call fails
    while the tool is down, none while it is up. With each call an outage goes on with probability

        stay = 1 − 1/mean_burst,    and begins with    enter = rate / ((1 − rate) · mean_burst).

    The first state is drawn from the stationary distribution. So each call of an episode fails with probability
    ``rate`` exactly, whatever its reasoning; an outage that begins lasts ``mean_burst`` calls in the mean; and the n-th
    call after a fault fails with probability rate + (1 − rate)·(stay − enter)ⁿ. With ``mean_burst`` = 1/(1 − rate) they
    are the very faults of IIDNoise.

    The chain is a function of a key; it holds no state. Its time is the number of the call in its episode, never the
    clock. **Episodes with the same outage key (EpisodeSpec.outage_key) are in the same outages**: a trainer gives those
    of a step one key, and all their n-th calls find the tool up or all find it down. An episode that is given none
    has outages of its own.

    Args:
        rate: in [0, 1], both ends allowed (never, always).
        mean_burst: mean length of an outage in calls; at least 1, and at least rate/(1 − rate), for shorter ones
            would have to begin again before they end.
        faults: what faults look like.

    Raises ConfigError, naming the field, for anything else.
    """

    name = "burst"

    def __init__(self, rate: float, mean_burst: float, *, faults: FaultMix = TIMEOUTS) -> None:
        self.rate = checked_number("noise_rate", rate, 0.0, 1.0)
        self.mean_burst = checked_number("mean_burst", mean_burst, 1.0, 1e9)
        self.faults = checked_mix(faults)
        if self.rate == 1.0:
            self.stay = self.enter = 1.0
            return
        self.stay = 1.0 - 1.0 / self.mean_burst
        shortest = self.rate / (1.0 - self.rate)
        if self.mean_burst < shortest * (1.0 - _ROUNDING):
            named = math.ceil(shortest * 1000 * (1.0 - _ROUNDING)) / 1000
            raise ConfigError("mean_burst", mean_burst, f"{named:g} or more at a rate of {self.rate:g}")
        self.enter = min(1.0, shortest / self.mean_burst)

    def schedule(self, calls: Calls) -> Bools:
        return self.draw(calls.qualities, calls.outage_keys, calls.numbers)

    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        """Whether the tool is down at each of N calls, by the keys of their outages: see NoiseModel.draw."""
        numbers = np.asarray(calls)
        down = rng.uniform(keys, np.full(numbers.shape, FAULT)) < self.rate
        struck: Bools = down & (numbers == 0)
        for number in range(1, int(numbers.max(initial=0)) + 1):
            chance = np.where(down, self.stay, self.enter)
            down = rng.uniform(keys, DRAWS_PER_CALL * number + FAULT) < chance
            struck = struck | (down & (numbers == number))
        return struck

    def fault_probability(self, quality: float) -> float:
        return self.rate

    def __repr__(self) -> str:
        return f"BurstNoise({self.rate}, {self.mean_burst}{shown_faults(self)})"
