"""Keyed draws: a draw depends on its key and position alone, and its value is part of what a seed means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_gym import rng

repeatable = settings(derandomize=True, deadline=None)

WORDS = st.integers(min_value=-(2**70), max_value=2**70)


def splitmix64(seed: int, n: int) -> list[int]:
    """The reference algorithm in plain integers."""
    mask = 2**64 - 1
    outputs = []
    for _ in range(n):
        seed = (seed + 0x9E3779B97F4A7C15) & mask
        z = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        outputs.append(z ^ (z >> 31))
    return outputs


def test_the_reference_generator_gives_the_published_outputs():
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@repeatable
@given(st.integers(0, 2**64 - 1))
def test_uniform_draws_are_the_outputs_of_splitmix64(key):
    expected = [((word >> 12) + 0.5) / 2**52 for word in splitmix64(key, 5)]
    assert rng.uniform(key, np.arange(5)).tolist() == expected


def test_uniform_draws_are_open_at_both_ends():
    # The outputs whose upper 52 bits are all 0 or all 1 still give interior points.
    lowest, highest = 0.5 * 2.0**-52, (2**52 - 0.5) * 2.0**-52
    assert 0.0 < lowest < highest < 1.0
    draws = rng.uniform(rng.fold(3), np.arange(100_000))
    assert draws.min() >= lowest
    assert draws.max() <= highest


def test_uniform_broadcasts_keys_over_positions():
    keys = rng.fold(1, np.arange(3))
    table = rng.uniform(keys[:, None], np.arange(5))
    assert table.shape == (3, 5)
    assert table[2, 4] == rng.uniform(int(keys[2]), 4)


def test_uniform_draws_are_uniform_along_positions_and_along_keys():
    along_positions = rng.uniform(rng.fold(7), np.arange(100_000))
    along_keys = rng.uniform(rng.fold(7, np.arange(100_000)), 0)
    for draws in (along_positions, along_keys):
        counts = np.histogram(draws, bins=20, range=(0, 1))[0]
        assert np.sum((counts - 5000) ** 2 / 5000) < 43.8  # the 0.999 quantile of chi-squared with 19 degrees


def test_draws_of_neighbouring_keys_and_positions_are_uncorrelated():
    table = rng.uniform(rng.fold(11, np.arange(300))[:, None], np.arange(301))
    assert abs(np.corrcoef(table[:, :-1].ravel(), table[:, 1:].ravel())[0, 1]) < 0.015
    assert abs(np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]) < 0.015


@repeatable
@given(st.lists(WORDS, min_size=1, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_folds_of_different_words_differ(one, other):
    def wrapped(words):
        return [word % 2**64 for word in words]

    assert (int(rng.fold(*one)) == int(rng.fold(*other))) == (wrapped(one) == wrapped(other))


def test_fold_depends_on_order_and_number_of_words():
    assert len({int(rng.fold(*words)) for words in [(1, 2), (2, 1), (1, 2, 0), (1,), (1, 0), (0, 1)]}) == 6


@repeatable
@given(st.integers(0, 2**63 - 1), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8))
def test_fold_of_an_array_is_the_fold_of_each_element(seed, words):
    assert rng.fold(seed, np.array(words)).tolist() == [int(rng.fold(seed, word)) for word in words]


def test_fold_broadcasts_arrays_against_each_other():
    keys = rng.fold(5, np.arange(3)[:, None], np.arange(4))
    assert keys.shape == (3, 4)
    assert keys.dtype == np.uint64
    assert len(np.unique(keys)) == 12
    assert int(keys[2, 3]) == int(rng.fold(5, 2, 3))


def test_a_million_keys_do_not_collide():
    assert len(np.unique(rng.key(0, "noise", np.arange(1000)[:, None], np.arange(1000)))) == 1_000_000


def test_streams_of_one_seed_are_apart():
    assert len({int(rng.key(0, stream, 1, 2)) for stream in rng.STREAMS}) == len(rng.STREAMS)


def test_an_unknown_stream_is_refused():
    with pytest.raises(KeyError):
        rng.key(0, "weather")


def test_what_a_seed_means_does_not_change():
    assert list(rng.STREAMS.items())[:8] == [
        ("task", 1),
        ("noise", 2),
        ("sampling", 3),
        ("selection", 4),
        ("initialisation", 5),
        ("cold_start", 6),
        ("reference", 7),
        ("evaluation", 8),
    ]
    assert int(rng.key(0, "task")) == 4964578127960768432
    assert int(rng.key(7, "noise", 3, 1, 4)) == 12849404068468651483
    assert float(rng.uniform(rng.key(7, "noise", 3, 1, 4), 2)) == 0.08966795196949973


def test_generators_of_one_key_agree_and_of_two_keys_differ():
    key = rng.key(0, "task", 5)
    draws = [rng.generator(k).integers(2**60) for k in (key, int(key), rng.key(0, "task", 6))]
    assert draws[0] == draws[1] != draws[2]


def test_no_draw_warns_of_overflow(recwarn):
    rng.uniform(2**64 - 1, np.array([0, 2**62]))
    rng.fold(-1, np.array([-1, 2**62]))
    assert not recwarn.list
