"""Bursts: an exact marginal rate, outages of their mean length, and one chain for all episodes of a key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise import BurstNoise, Calls, IIDNoise

RATES = st.floats(0.001, 0.999)
BURSTS = st.floats(1.0, 1e6)


def chain(noise: BurstNoise, episodes: int, calls: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    """(episodes, calls) states, each episode under a key of its own."""
    keys = np.repeat(rng.key(seed, "noise", np.arange(episodes)), calls)
    numbers = np.tile(np.arange(calls), episodes)
    return noise.draw(np.zeros(len(keys)), keys, numbers).reshape(episodes, calls)


@given(RATES, BURSTS)
def test_the_chain_is_stationary_at_the_rate(rate: float, mean_burst: float) -> None:
    assume(mean_burst >= rate / (1 - rate) * (1 + 1e-9))
    noise = BurstNoise(rate, mean_burst)
    assert 0.0 <= noise.enter <= 1.0
    assert 0.0 <= noise.stay < 1.0
    # Closed form: the share that is down next is the share that is down now.
    assert rate * noise.stay + (1 - rate) * noise.enter == pytest.approx(rate, rel=1e-12)
    assert 1 / (1 - noise.stay) == pytest.approx(mean_burst, rel=1e-6)
    assert noise.fault_probability(0.0) == noise.fault_probability(1.0) == noise.rate == rate


@pytest.mark.parametrize(("rate", "mean_burst"), [(0.3, 1.0), (0.3, 3.0), (0.1, 20.0), (0.8, 4.0), (0.8, 9.0)])
def test_each_call_of_an_episode_fails_at_the_rate(rate: float, mean_burst: float) -> None:
    down = chain(BurstNoise(rate, mean_burst), 40_000, 5)
    # Four standard deviations of the worst of the five.
    assert np.abs(down.mean(axis=0) - rate).max() < 4 * np.sqrt(rate * (1 - rate) / 40_000)


@pytest.mark.parametrize(("rate", "mean_burst"), [(0.3, 1.0), (0.3, 3.0), (0.1, 20.0), (0.8, 4.0)])
def test_faults_call_forth_faults_as_the_chain_says(rate: float, mean_burst: float) -> None:
    noise = BurstNoise(rate, mean_burst)
    down = chain(noise, 40_000, 5)
    for later in (1, 2, 4):
        after = down[down[:, 0], later].mean()
        expected = rate + (1 - rate) * (noise.stay - noise.enter) ** later
        assert after == pytest.approx(expected, abs=4 / np.sqrt(down[:, 0].sum()) * 0.5 + 1e-9)


def test_an_outage_lasts_as_long_as_it_should() -> None:
    down = chain(BurstNoise(0.3, 5.0), 500, 400).astype(np.int8)
    begins = (np.diff(down, axis=1) == 1).sum()
    assert down[:, 1:].sum() / begins == pytest.approx(5.0, rel=0.05)


@given(RATES, st.integers(0, 2**32))
def test_a_burst_of_the_length_that_chance_gives_is_iid_noise(rate: float, seed: int) -> None:
    bursts, iid = BurstNoise(rate, 1 / (1 - rate)), IIDNoise(rate)
    keys = np.repeat(rng.key(seed, "noise", np.arange(50)), 4)
    numbers = np.tile(np.arange(4), 50)
    assert bursts.draw(np.zeros(200), keys, numbers).tolist() == iid.draw(np.zeros(200), keys, numbers).tolist()


def calls_of(keys: npt.NDArray[np.uint64], outages: npt.NDArray[np.uint64], numbers: npt.NDArray[np.int64]) -> Calls:
    return Calls(np.zeros(len(keys)), keys, numbers, outages, ["python"] * len(keys))


def test_episodes_with_one_outage_key_are_in_the_same_outages() -> None:
    noise = BurstNoise(0.5, 3.0)
    keys = rng.key(0, "noise", np.arange(60))
    for step in range(20):
        outage = np.full(60, rng.key(1, "noise", step))
        struck = noise.schedule(calls_of(keys, outage, np.arange(60) % 6))
        for number in range(6):
            assert len(set(struck[number::6].tolist())) == 1
    apart = noise.schedule(calls_of(keys, keys, np.zeros(60, dtype=np.int64)))
    assert 10 < apart.sum() < 50


@given(st.permutations(range(24)), st.integers(1, 23))
def test_the_layout_of_a_batch_changes_no_outage(order: list[int], cut: int) -> None:
    noise = BurstNoise(0.4, 2.5)
    keys = rng.key(3, "noise", np.arange(24) % 6)
    numbers = np.arange(24) % 4
    whole = noise.draw(np.zeros(24), keys, numbers)
    parts = [noise.draw(np.zeros(len(part)), keys[part], numbers[part]) for part in (order[:cut], order[cut:])]
    assert np.concatenate(parts).tolist() == whole[order].tolist()


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(2.0, 50.0))
def test_faults_at_a_lower_rate_are_among_those_at_a_higher_one(one: float, other: float, mean_burst: float) -> None:
    low, high = sorted([one, other])
    # Below this an outage makes the next one less likely, and the chains cross.
    assume(high == 1.0 or mean_burst >= 1 / (1 - high))
    fewer, more = (chain(BurstNoise(rate, mean_burst), 40, 5) for rate in (low, high))
    assert np.all(fewer <= more)


@pytest.mark.parametrize(
    ("rate", "mean_burst", "said"),
    [
        (0.3, 0.9, r"\[1, 1e\+09\]"),
        (0.3, float("nan"), r"\[1, 1e\+09\]"),
        (0.3, float("inf"), r"\[1, 1e\+09\]"),
        (0.3, "3", r"\[1, 1e\+09\]"),
        (0.3, True, r"\[1, 1e\+09\]"),
        (0.8, 3.9, r"4 or more at a rate of 0\.8"),
        (0.7, 2.0, r"2\.334 or more at a rate of 0\.7"),
    ],
)
def test_outages_too_short_for_the_rate_are_refused_with_the_shortest_named(
    rate: float, mean_burst: float, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        BurstNoise(rate, mean_burst)
    assert caught.value.field == "mean_burst"


def test_a_tool_that_is_always_down_needs_no_length() -> None:
    assert chain(BurstNoise(1.0, 1.0), 10, 10).all()
    assert not chain(BurstNoise(0.0, 50.0), 10, 10).any()


def test_a_batch_without_calls_is_allowed() -> None:
    assert BurstNoise(0.3, 3.0).draw(np.zeros(0), np.zeros(0, np.uint64), np.zeros(0, np.int64)).shape == (0,)
