"""Noise models: where faults fall may follow the reasoning; how many fall may not."""

from __future__ import annotations

import copy
import doctest
import math
import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtr, ndtri, owens_t

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise import BurstNoise, CorrelatedNoise, FaultMix, IIDNoise, NoiseModel, NoNoise, PerToolNoise
from tool_gym.noise.normal import bivariate_cdf, cdf, quantile, scalar_cdf, scalar_quantile

repeatable = settings(derandomize=True, deadline=None)

RATES = st.floats(0.0, 1.0)
CORRELATIONS = st.one_of(
    st.floats(-1.0, 1.0), st.sampled_from([-1.0, 0.0, 1.0]), st.floats(1e-16, 1e-3).map(lambda gap: 1.0 - gap)
)
# Few distinct values, as a task's qualities have, or continuous ones.
REFERENCES = st.one_of(
    st.lists(st.integers(0, 4).map(lambda i: i / 4), min_size=1, max_size=60),
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60),
)
REFERENCE = np.repeat([0.0, 0.25, 0.5, 0.75, 1.0], [500, 200, 100, 50, 150])


def draws(noise: NoiseModel, qualities: np.ndarray, seed: int = 0, call: int = 0) -> np.ndarray:
    n = len(qualities)
    return noise.draw(qualities, rng.key(seed, "noise", np.arange(n)), np.full(n, call))


# -- schedules


def test_no_noise_schedules_nothing():
    assert not draws(NoNoise(), np.zeros(100)).any()
    assert NoNoise().fault_probability(0.0) == NoNoise().rate == 0.0


@pytest.mark.parametrize("noise", [IIDNoise(0.3), CorrelatedNoise(0.3, 0.9, REFERENCE), BurstNoise(0.3, 3)])
def test_draw_returns_one_bool_per_call_and_none_for_no_call(noise):
    assert draws(noise, np.zeros(0)).shape == (0,)
    result = draws(noise, np.zeros(7))
    assert result.shape == (7,)
    assert result.dtype == np.bool_


def test_iid_faults_have_their_rate_at_every_quality():
    faults = draws(IIDNoise(0.3), np.zeros(100_000))
    assert faults.mean() == pytest.approx(0.3, abs=0.005)
    assert IIDNoise(0.3).fault_probability(0.0) == IIDNoise(0.3).fault_probability(1.0) == 0.3


@repeatable
@given(st.floats(0.0, 1.0), st.integers(0, 2**32), REFERENCES)
def test_without_correlation_the_faults_are_those_of_iid_noise(rate, seed, reference):
    qualities = np.linspace(0, 1, 50)
    iid, correlated = IIDNoise(rate), CorrelatedNoise(rate, 0.0, reference)
    assert draws(iid, qualities, seed, call=2).tolist() == draws(correlated, qualities, seed, call=2).tolist()


@pytest.mark.parametrize(
    "make",
    [IIDNoise, lambda r: BurstNoise(r, 2), *(lambda r, c=c: CorrelatedNoise(r, c, REFERENCE) for c in (-1, 0, 0.9, 1))],
)
def test_rate_zero_never_fails_and_rate_one_always(make):
    qualities = np.linspace(0, 1, 1000)
    assert not draws(make(0), qualities).any()
    assert draws(make(1), qualities).all()
    assert [make(0).fault_probability(q) for q in (0.0, 0.3, 1.0)] == [0.0] * 3
    assert [make(1).fault_probability(q) for q in (0.0, 0.3, 1.0)] == [1.0] * 3


@repeatable
@given(REFERENCES, CORRELATIONS, RATES, RATES)
def test_faults_at_a_lower_rate_are_among_those_at_a_higher_one(reference, correlation, one, other):
    low, high = sorted([one, other])
    qualities = np.tile(np.linspace(0, 1, 11), 10)
    fewer = draws(CorrelatedNoise(low, correlation, reference), qualities)
    more = draws(CorrelatedNoise(high, correlation, reference), qualities)
    assert np.all(fewer <= more)


@pytest.mark.parametrize("noise", [IIDNoise(0.3), CorrelatedNoise(0.3, 0.9, REFERENCE), BurstNoise(0.3, 3)])
def test_a_call_meets_the_same_fault_whatever_else_is_in_the_batch(noise):
    generator = np.random.default_rng(0)
    qualities, calls = generator.choice(REFERENCE, 200), generator.integers(0, 5, 200)
    keys = rng.key(0, "noise", np.arange(200))
    whole = noise.draw(qualities, keys, calls)
    order = generator.permutation(200)
    assert noise.draw(qualities[order], keys[order], calls[order]).tolist() == whole[order].tolist()
    single = [bool(noise.draw(qualities[i : i + 1], keys[i : i + 1], calls[i : i + 1])[0]) for i in range(200)]
    assert single == whole.tolist()


def test_calls_of_one_episode_have_draws_of_their_own():
    noise = CorrelatedNoise(0.5, 0.5, REFERENCE)
    table = np.array([draws(noise, np.full(5000, 0.0), call=call) for call in range(4)])
    correlations = np.corrcoef(table)
    assert np.abs(correlations - np.eye(4)).max() < 0.06


# -- the copula


@pytest.mark.parametrize("correlation", [-1.0, -0.9, -0.3, 0.0, 0.5, 0.9, 0.999999, 1.0])
def test_faults_under_the_reference_have_the_rate_whatever_the_correlation(correlation):
    noise = CorrelatedNoise(0.3, correlation, REFERENCE)
    faults = draws(noise, np.tile(REFERENCE, 100))
    assert faults.mean() == pytest.approx(0.3, abs=0.005)


@repeatable
@given(REFERENCES, CORRELATIONS, RATES)
def test_fault_probability_averages_to_the_rate_under_the_reference(reference, correlation, rate):
    noise = CorrelatedNoise(rate, correlation, reference)
    # As the noise sees them: qualities equal to nine decimals are one.
    probabilities = [noise.fault_probability(quality) for quality in noise.reference]
    assert all(0.0 <= p <= 1.0 for p in probabilities)
    assert np.mean(probabilities) == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize("correlation", [-1.0, -0.7, 0.0, 0.6, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("quality", [0.0, 0.5, 0.6, 1.0])
def test_fault_probability_is_the_frequency_of_scheduled_faults(correlation, quality):
    noise = CorrelatedNoise(0.3, correlation, REFERENCE)
    frequency = draws(noise, np.full(60_000, quality)).mean()
    assert frequency == pytest.approx(noise.fault_probability(quality), abs=0.007)


@pytest.mark.parametrize("correlation", [-0.9, 0.3, 0.9, 0.99])
@pytest.mark.parametrize("quality", [0.0, 0.25, 0.75, 1.0])
def test_fault_probability_is_the_mean_of_the_copula_over_the_quality_s_ranks(correlation, quality):
    lower, upper = (np.searchsorted(REFERENCE, quality, side) / REFERENCE.size for side in ("left", "right"))
    ranks = lower + (np.arange(200_000) + 0.5) / 200_000 * (upper - lower)
    pointwise = stats.norm.cdf((ndtri(0.3) - correlation * ndtri(ranks)) / math.sqrt(1 - correlation**2))
    noise = CorrelatedNoise(0.3, correlation, REFERENCE)
    assert noise.fault_probability(quality) == pytest.approx(pointwise.mean(), abs=1e-6)


def test_fault_probability_of_a_quality_without_mass_is_the_point_value_at_its_rank():
    noise = CorrelatedNoise(0.3, 0.9, REFERENCE)
    expected = ndtr((ndtri(0.3) - 0.9 * ndtri(0.7)) / math.sqrt(1 - 0.81))
    assert noise.fault_probability(0.3) == pytest.approx(expected, abs=1e-12)
    assert CorrelatedNoise(0.3, 1.0, REFERENCE).fault_probability(0.3) == 0.0
    assert CorrelatedNoise(0.3, -1.0, REFERENCE).fault_probability(0.3) == 0.0
    assert CorrelatedNoise(0.8, 1.0, REFERENCE).fault_probability(0.3) == 1.0


def test_a_positive_correlation_fails_bad_reasoning_and_a_negative_one_good_reasoning():
    grid = [0.0, 0.25, 0.5, 0.75, 1.0]
    falling = [CorrelatedNoise(0.3, 0.8, REFERENCE).fault_probability(q) for q in grid]
    rising = [CorrelatedNoise(0.3, -0.8, REFERENCE).fault_probability(q) for q in grid]
    assert falling == sorted(falling, reverse=True)
    assert rising == sorted(rising)
    assert falling[0] - falling[-1] > 0.4
    assert rising[-1] - rising[0] > 0.4


def test_full_correlation_fails_exactly_the_worst_reasoned_calls():
    noise = CorrelatedNoise(0.5, 1.0, REFERENCE)  # half of the reference has quality 0
    assert draws(noise, np.zeros(1000)).all()
    assert not draws(noise, np.full(1000, 0.25)).any()
    opposite = CorrelatedNoise(0.15, -1.0, REFERENCE)
    assert draws(opposite, np.ones(1000)).all()
    assert not draws(opposite, np.full(1000, 0.75)).any()


def test_full_correlation_splits_a_tie_at_random_in_proportion():
    noise = CorrelatedNoise(0.25, 1.0, REFERENCE)
    assert noise.fault_probability(0.0) == pytest.approx(0.5, abs=1e-15)
    assert draws(noise, np.zeros(20_000)).mean() == pytest.approx(0.5, abs=0.01)


def test_a_reference_of_one_value_makes_every_correlation_iid_there():
    for correlation in (-1.0, 0.5, 1.0):
        assert CorrelatedNoise(0.3, correlation, [0.5]).fault_probability(0.5) == pytest.approx(0.3, abs=1e-15)


def test_qualities_that_differ_by_rounding_only_are_ties():
    noise = CorrelatedNoise(0.3, 0.9, [0.0, 0.3, 1.0])
    assert 0.1 + 0.2 != 0.3
    assert noise.fault_probability(0.1 + 0.2) == noise.fault_probability(0.3)


def test_qualities_outside_of_the_reference_stay_finite():
    noise = CorrelatedNoise(0.3, 0.9, [0.4, 0.6])
    assert noise.fault_probability(0.0) == pytest.approx(1.0, abs=1e-9)
    assert noise.fault_probability(1.0) == pytest.approx(0.0, abs=1e-9)
    assert draws(noise, np.zeros(100)).all()


# -- learning the reference


def improved(n: int = 20_000) -> np.ndarray:
    return np.random.default_rng(1).choice([0.75, 1.0], n)


def test_with_a_frozen_reference_faults_become_rarer_as_reasoning_improves():
    noise = CorrelatedNoise(0.3, 0.9, REFERENCE)
    noise.observe(improved())
    assert noise.reference.tolist() == REFERENCE.tolist()
    assert draws(noise, improved()).mean() < 0.05


def test_with_a_running_reference_the_rate_stays_matched():
    noise = CorrelatedNoise(0.3, 0.9, REFERENCE, reference_mode="running", window=4096)
    noise.observe(improved())
    assert draws(noise, improved()).mean() == pytest.approx(0.3, abs=0.015)


def test_a_running_reference_keeps_the_last_window_of_eligible_calls():
    noise = CorrelatedNoise(0.3, 0.9, [0.1, 0.2, 0.3, 0.4], reference_mode="running", window=3)
    assert noise.reference.tolist() == [0.2, 0.3, 0.4]
    noise.observe([0.9])
    noise.observe([])
    assert noise.reference.tolist() == [0.3, 0.4, 0.9]
    noise.observe([0.5, 0.6, 0.7, 0.8])
    assert noise.reference.tolist() == [0.6, 0.7, 0.8]


def test_a_frozen_reference_may_be_longer_than_the_window():
    assert CorrelatedNoise(0.3, 0.9, REFERENCE, window=3).reference.size == REFERENCE.size


@pytest.mark.parametrize("mode", ["frozen", "running"])
def test_state_restores_where_a_model_was(mode):
    noise = CorrelatedNoise(0.3, 0.9, REFERENCE, reference_mode=mode, window=500)
    noise.observe(np.random.default_rng(0).random(300))
    restored = CorrelatedNoise(0.3, 0.9, [1.0], reference_mode=mode, window=500)
    restored.load_state(noise.state())
    assert restored.reference.tolist() == noise.reference.tolist()
    qualities = np.linspace(0, 1, 1000)
    assert draws(restored, qualities).tolist() == draws(noise, qualities).tolist()


def test_models_that_learn_nothing_have_no_state_and_refuse_another_s():
    for noise in (NoNoise(), IIDNoise(0.3), BurstNoise(0.3, 3), PerToolNoise({"python": IIDNoise(0.3)})):
        assert noise.state() == {}
        noise.observe([0.5])
        noise.load_state({})
        with pytest.raises(ConfigError, match="noise state"):
            noise.load_state({"reference": REFERENCE})


def test_a_state_of_another_shape_is_refused_and_changes_nothing():
    noise = CorrelatedNoise(0.3, 0.9, REFERENCE)
    for state in ({}, {"window": REFERENCE}, {"reference": np.array([])}, {"reference": np.array([2.0])}):
        with pytest.raises(ConfigError):
            noise.load_state(state)
    assert noise.reference.tolist() == REFERENCE.tolist()


def test_changing_the_caller_s_arrays_changes_no_model():
    reference = REFERENCE.copy()
    noise = CorrelatedNoise(0.3, 0.9, reference)
    reference[:] = 1.0
    noise.reference[:] = 1.0
    noise.state()["reference"][:] = 1.0
    assert noise.reference.tolist() == REFERENCE.tolist()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda noise: pickle.loads(pickle.dumps(noise))])
@pytest.mark.parametrize(
    "noise",
    [
        NoNoise(),
        IIDNoise(0.3, faults=FaultMix({"malformed": 0.5, "wrong_value": 0.5}, 0.2)),
        CorrelatedNoise(0.3, 0.9, REFERENCE),
        BurstNoise(0.3, 3),
        PerToolNoise({"python": BurstNoise(0.3, 3)}, IIDNoise(0.3)),
    ],
)
def test_models_survive_pickle_and_deepcopy(noise, duplicate):
    qualities = np.linspace(0, 1, 200)
    assert draws(duplicate(noise), qualities).tolist() == draws(noise, qualities).tolist()
    assert duplicate(noise).faults == noise.faults
    assert repr(duplicate(noise)) == repr(noise)


# -- bad input


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan, math.inf, "0.3", None, True])
def test_a_rate_outside_of_its_range_is_refused(rate):
    for make in (IIDNoise, lambda rate: CorrelatedNoise(rate, 0.9, REFERENCE), lambda rate: BurstNoise(rate, 3)):
        with pytest.raises(ConfigError) as caught:
            make(rate)
        assert caught.value.field == "noise_rate"


@pytest.mark.parametrize("correlation", [-1.01, 1.01, math.nan, "0.9"])
def test_a_correlation_outside_of_its_range_is_refused(correlation):
    with pytest.raises(ConfigError) as caught:
        CorrelatedNoise(0.3, correlation, REFERENCE)
    assert caught.value.field == "correlation"


@pytest.mark.parametrize("reference", [[], [[0.1, 0.2]], 0.5, [0.1, math.nan], [-0.1], [1.1], [math.inf], ["a"], None])
def test_a_reference_that_is_no_sample_of_qualities_is_refused(reference):
    with pytest.raises(ConfigError) as caught:
        CorrelatedNoise(0.3, 0.9, reference)
    assert caught.value.field == "reference"


def test_bad_observations_are_refused_in_running_mode():
    noise = CorrelatedNoise(0.3, 0.9, REFERENCE, reference_mode="running")
    with pytest.raises(ConfigError):
        noise.observe([0.5, math.nan])
    assert noise.reference.tolist() == REFERENCE.tolist()


@pytest.mark.parametrize("options", [{"reference_mode": "moving"}, {"window": 0}, {"window": 2.5}, {"window": True}])
def test_a_bad_mode_or_window_is_refused(options):
    with pytest.raises(ConfigError) as caught:
        CorrelatedNoise(0.3, 0.9, REFERENCE, **options)
    assert caught.value.field in options


@pytest.mark.parametrize("quality", [-1.0, 1.5, math.nan])
def test_fault_probability_of_what_is_no_quality_is_refused(quality):
    with pytest.raises(ConfigError):
        CorrelatedNoise(0.3, 0.9, REFERENCE).fault_probability(quality)


def test_the_figures_of_the_page_on_noise_are_true():
    results = doctest.testfile("../docs/NOISE.md", verbose=False, encoding="utf-8")
    assert results.failed == 0
    assert results.attempted > 15


# -- the normal distribution


def owen_bivariate_cdf(h: float, k: float, correlation: float) -> float:
    """Φ₂ through Owen's T function (Owen 1956), for h and k that are not 0."""
    if correlation < 0:
        return ndtr(h) - owen_bivariate_cdf(h, -k, -correlation)
    scale = math.sqrt((1 - correlation) * (1 + correlation))
    # k − ρh, written so that it stays exact near ρ = 1.
    slope_h = ((k - h) + (1 - correlation) * h) / (h * scale)
    slope_k = ((h - k) + (1 - correlation) * k) / (k * scale)
    tails = owens_t(h, slope_h) + owens_t(k, slope_k)
    return 0.5 * (ndtr(h) + ndtr(k)) - tails - (0.5 if h * k < 0 else 0.0)


@settings(repeatable, max_examples=500)
@given(st.floats(-7, 7), st.floats(-7, 7), CORRELATIONS, st.booleans())
def test_bivariate_cdf_agrees_with_owen_s_formula(h, k, correlation, close):
    k = h + 1e-4 * k if close else k
    assume(min(abs(h), abs(k)) > 1e-100 and abs(correlation) < 1)
    assert bivariate_cdf(h, k, correlation) == pytest.approx(owen_bivariate_cdf(h, k, correlation), abs=1e-14)


@pytest.mark.parametrize("correlation", [-0.95, -0.3, 0.0, 0.6, 0.95])
def test_bivariate_cdf_agrees_with_scipy(correlation):
    for h, k in [(0.0, 0.0), (1.0, -0.5), (-2.0, 0.3), (2.5, 2.5)]:
        expected = stats.multivariate_normal.cdf([h, k], cov=[[1, correlation], [correlation, 1]])
        assert bivariate_cdf(h, k, correlation) == pytest.approx(expected, abs=1e-7)


@repeatable
@given(st.floats(-5, 5), st.floats(-5, 5))
def test_bivariate_cdf_at_full_correlation_is_the_overlap_of_two_half_lines(h, k):
    assert bivariate_cdf(h, k, 1.0) == scalar_cdf(min(h, k))
    assert bivariate_cdf(h, k, -1.0) == pytest.approx(max(0.0, scalar_cdf(h) + scalar_cdf(k) - 1), abs=1e-15)


@pytest.mark.parametrize("correlation", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_bivariate_cdf_at_infinity_is_a_margin_or_nothing(correlation):
    assert bivariate_cdf(math.inf, 0.3, correlation) == bivariate_cdf(0.3, math.inf, correlation) == scalar_cdf(0.3)
    assert bivariate_cdf(-math.inf, 0.3, correlation) == bivariate_cdf(math.inf, -math.inf, correlation) == 0.0
    assert bivariate_cdf(math.inf, math.inf, correlation) == 1.0


def test_cdf_and_quantile_agree_with_scipy_and_keep_shapes():
    x = np.linspace(-8, 8, 400).reshape(20, 20)
    np.testing.assert_allclose(cdf(x), ndtr(x), rtol=1e-13)
    p = np.concatenate([np.logspace(-15, -1, 200), 1 - np.logspace(-12, -0.5, 200)]).reshape(4, 100)
    np.testing.assert_allclose(quantile(p), ndtri(p), rtol=1e-13, atol=1e-15)
    assert cdf(x).shape == x.shape
    assert quantile(p).shape == p.shape
    assert cdf([-math.inf, math.inf]).tolist() == [0.0, 1.0]


def test_scalar_quantile_reaches_its_ends():
    assert (scalar_quantile(0.0), scalar_quantile(0.5), scalar_quantile(1.0)) == (-math.inf, 0.0, math.inf)
