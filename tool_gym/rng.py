"""Keyed random draws: every draw is a function of what it is for, never of how many came before.

A key is folded from (seed, stream, further integers) with the SplitMix64 finaliser; the draws under a
key are the outputs of SplitMix64 (Steele, Lea and Flood 2014) at given positions. So the same draw comes
out whatever the number of workers, the batch layout or the order of calls, and two runs that share a
seed meet the same problems and the same noise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# A stream keeps draws for different purposes apart. The numbers are part of what a seed means: only append.
STREAMS = {
    name: number
    for number, name in enumerate(
        (
            "task",
            "noise",
            "sampling",
            "selection",
            "initialisation",
            "cold_start",
            "reference",
            "evaluation",
        ),
        start=1,
    )
}

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)

UInt64s = npt.NDArray[np.uint64]


def _mix(x: UInt64s) -> UInt64s:
    """The SplitMix64 finaliser: a bijection on 64-bit words in which each input bit flips half of the output."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


def _word(value: int | npt.NDArray[np.integer]) -> UInt64s:
    if isinstance(value, int):
        value &= 0xFFFFFFFFFFFFFFFF
        return np.asarray(value, dtype=np.uint64)
    return np.asarray(value).astype(np.uint64)


def fold(seed: int | npt.NDArray[np.integer], *words: int | npt.NDArray[np.integer]) -> UInt64s:
    """Fold integers, or arrays of integers that broadcast, into 64-bit keys.

    Order matters, and so does the number of words: ``fold(1, 2)`` and ``fold(1, 2, 0)`` differ.
    """
    with np.errstate(over="ignore"):
        key = _mix(_word(seed) + _GOLDEN)
        for word in words:
            key = _mix((key ^ _word(word)) + _GOLDEN)
            key = _mix(key + _GOLDEN)
    return np.asarray(key, dtype=np.uint64)


def key(seed: int, stream: str, *words: int | npt.NDArray[np.integer]) -> UInt64s:
    """The key of a stream: ``key(seed, "noise", step, problem, rollouts_N)`` gives N keys.

    Raises KeyError for a stream that is not in :data:`STREAMS`.
    """
    return fold(seed, STREAMS[stream], *words)


def uniform(keys: int | UInt64s, positions: int | npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
    """Uniform draws in the open interval (0, 1): outputs ``positions`` of SplitMix64 started at ``keys``.

    The two broadcast: with keys of shape (N, 1) and positions of shape (T,) the result has shape (N, T).
    """
    with np.errstate(over="ignore"):
        words = _mix(_word(keys) + (_word(positions) + np.uint64(1)) * _GOLDEN)
    # 52 bits and half a step: never 0, never 1, so that quantile functions stay finite.
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def generator(key: int | UInt64s) -> np.random.Generator:
    """A numpy Generator on the counter-based Philox, for draws whose number is not known beforehand."""
    return np.random.Generator(np.random.Philox(key=int(key)))
