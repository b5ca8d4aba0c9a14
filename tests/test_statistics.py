"""experiments.statistics against scipy, closed forms, enumeration, and data whose truth is known."""

from __future__ import annotations

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.statistics import (
    COVERAGE,
    auc,
    excludes_zero,
    holm,
    iqm,
    mean_interval,
    paired_difference,
    probability_of_improvement,
    rescale_accuracy,
    sign_flip_test,
    unpaired_difference,
    verdict,
)
from tool_gym.errors import ConfigError

# The same examples on every run; no deadline, for the machine may be busy.
deterministic = settings(derandomize=True, deadline=None)
numbers = st.floats(-10, 10, allow_nan=False)


# One run


def test_auc_of_a_straight_line_is_its_middle_whatever_the_spacing() -> None:
    updates = [0, 10, 15, 100]
    assert auc(updates, [0.2 + 0.003 * u for u in updates]) == pytest.approx(0.2 + 0.003 * 50)


def test_auc_of_a_parabola_approaches_its_mean() -> None:
    updates = np.linspace(2, 5, 2001)
    assert auc(updates, updates**2) == pytest.approx((5**3 - 2**3) / 3 / 3, rel=1e-6)


@pytest.mark.parametrize(
    ("updates", "values", "message"),
    [
        ([1], [1], "at least 2"),
        ([0, 1], [1, 2, 3], "2 updates, 3 values"),
        ([0, 0], [1, 2], "must increase"),
        ([0, 1], [1, np.nan], "not finite"),
    ],
)
def test_auc_refuses_what_is_not_a_curve(updates: list[float], values: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        auc(updates, values)


@pytest.mark.parametrize("answers", [2, 4, 10])
def test_rescaled_accuracy_is_nought_at_chance_and_one_at_perfection(answers: int) -> None:
    assert rescale_accuracy(1 / answers, 1 / answers) == pytest.approx(0)
    assert rescale_accuracy(1.0, 1 / answers) == pytest.approx(1)
    assert rescale_accuracy(0.0, 1 / answers) < 0


def test_rescaling_where_a_guess_is_always_right_is_refused() -> None:
    with pytest.raises(ConfigError, match="chance"):
        rescale_accuracy(0.5, 1)


# One arm


def test_iqm_ignores_the_outer_quarters() -> None:
    assert iqm([-1e9, 1, 2, 3, 4, 5, 6, 1e9]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert iqm([1.0, 2.0, 9.0]) == pytest.approx(4)


def test_mean_interval_is_the_bca_interval_of_scipy() -> None:
    values = np.random.default_rng(1).gamma(1.0, size=15)
    interval = mean_interval(values, seed=7, resamples=999)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=999, method="BCa", random_state=np.random.default_rng(7)
    ).confidence_interval
    assert interval.mean == pytest.approx(values.mean())
    assert (interval.low, interval.high, interval.n) == (expected.low, expected.high, 15)


def test_mean_interval_leans_to_the_side_of_the_long_tail() -> None:
    interval = mean_interval(np.random.default_rng(3).exponential(size=30))
    assert interval.high - interval.mean > interval.mean - interval.low > 0


def test_mean_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    intervals = [mean_interval(rng.normal(3, 2, size=20), seed=i, resamples=499) for i in range(300)]
    coverage = np.mean([i.low <= 3 <= i.high for i in intervals])
    assert 0.89 <= coverage <= 0.98


@pytest.mark.parametrize("n", COVERAGE)
def test_intervals_of_few_values_cover_as_seldom_as_is_said(n: int) -> None:
    rng = np.random.default_rng(12)
    intervals = [mean_interval(rng.normal(size=n), seed=i, resamples=299) for i in range(800)]
    # Standard error of a rate of .9 over 800 trials: .011.
    assert np.mean([i.low <= 0 <= i.high for i in intervals]) == pytest.approx(COVERAGE[n], abs=0.025)


def test_intervals_of_values_without_spread_are_points_and_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean = mean_interval([0.1 + 0.2, 0.3, 0.3])
        paired = paired_difference([0.5, 0.6, 0.7], [0.4, 0.5, 0.6])
        unpaired = unpaired_difference([2, 2], [1, 1, 1])
    assert mean.low == mean.high == mean.mean == pytest.approx(0.3)
    assert paired.low == paired.high == pytest.approx(0.1)
    assert paired.p_value == 0.25
    assert (unpaired.low, unpaired.high) == (1.0, 1.0)


def test_one_value_has_a_mean_and_no_interval() -> None:
    mean, paired = mean_interval([0.4]), paired_difference([0.4], [0.1])
    unpaired = unpaired_difference([0.4], [0.1, 0.2])
    assert (mean.mean, mean.n, paired.n, unpaired.n) == (0.4, 1, 1, 1)
    assert paired.mean == pytest.approx(0.3)
    assert paired.p_value == 1.0
    assert np.isnan([mean.low, mean.high, paired.low, paired.high, unpaired.low, unpaired.high]).all()


# Two arms


def test_paired_difference_is_blind_to_what_the_seeds_share() -> None:
    rng = np.random.default_rng(5)
    shared, noise = rng.normal(0, 10, size=20), rng.normal(0, 0.1, size=20)
    result = paired_difference(shared + 0.3 + noise, shared)
    assert result.low == pytest.approx(paired_difference(0.3 + noise, np.zeros(20)).low)
    assert 0.2 < result.low < 0.3 + noise.mean() < result.high < 0.4
    unpaired = unpaired_difference(shared + 0.3 + noise, shared)
    assert unpaired.high - unpaired.low > 20 * (result.high - result.low)


def test_paired_interval_and_test_have_their_level_under_no_difference() -> None:
    rng = np.random.default_rng(8)
    results = [paired_difference(rng.normal(size=12), rng.normal(size=12), seed=i, resamples=199) for i in range(300)]
    # Standard error of a rate of .05 over 300 trials: .013. The interval is known to be a little short.
    assert np.mean([r.p_value <= 0.05 for r in results]) <= 0.08
    assert np.mean([r.low <= 0 <= r.high for r in results]) >= 0.87


def test_paired_intervals_of_skewed_differences_cover_little_less_than_they_say() -> None:
    rng = np.random.default_rng(21)
    truth = np.exp(0.5) - 1.0  # mean of a log-normal less that of an exponential
    results = [
        paired_difference(rng.lognormal(size=20), rng.exponential(size=20), seed=i, resamples=499) for i in range(300)
    ]
    assert 0.86 <= np.mean([r.low <= truth <= r.high for r in results]) <= 0.98


def test_unpaired_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(22)
    results = [
        unpaired_difference(rng.normal(0.3, 1, size=20), rng.normal(0, 2, size=20), seed=i, resamples=499)
        for i in range(300)
    ]
    assert 0.9 <= np.mean([r.low <= 0.3 <= r.high for r in results]) <= 0.98


@pytest.mark.parametrize(
    ("truth", "sign", "expected", "least"),
    [
        # Of no difference a claim of one is called supported seldom, and mostly found not so.
        (0.0, 1, "not supported", 0.6),
        (0.0, 0, "supported", 0.6),
        (0.06, 1, "supported", 0.99),
        (0.06, -1, "not supported", 0.99),
        (0.06, 0, "not supported", 0.6),
    ],
)
def test_verdicts_of_eight_pairs_are_right_as_often_as_their_intervals(
    truth: float, sign: int, expected: str, least: float
) -> None:
    rng = np.random.default_rng(23)
    deviation, pairs = 0.02, 8
    found = [
        verdict(
            paired_difference(rng.normal(truth, deviation, size=pairs), np.zeros(pairs), seed=i, resamples=299), sign
        )
        for i in range(200)
    ]
    assert np.mean([one == expected for one in found]) >= least
    opposite = {"supported": "not supported", "not supported": "supported"}[expected]
    # 2.5 % were it exact; intervals of eight pairs are too narrow.
    assert np.mean([one == opposite for one in found]) <= 0.1


def test_a_true_difference_is_found() -> None:
    rng = np.random.default_rng(9)
    found = [
        paired_difference(rng.normal(1, 1, size=20), np.zeros(20), seed=i, resamples=199).p_value < 0.05
        for i in range(50)
    ]
    assert np.mean(found) > 0.9


def test_unpaired_difference_agrees_with_the_normal_theory() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(1, 1, size=400), rng.normal(0, 2, size=300)
    result = unpaired_difference(a, b)
    half = 1.96 * np.sqrt(a.var(ddof=1) / 400 + b.var(ddof=1) / 300)
    assert result.mean == pytest.approx(a.mean() - b.mean())
    assert result.n == 300
    assert result.low == pytest.approx(result.mean - half, abs=0.02)
    assert result.high == pytest.approx(result.mean + half, abs=0.02)


def test_intervals_depend_on_the_seed_and_on_nothing_else() -> None:
    a, b = np.random.default_rng(6).normal(size=(2, 12))
    assert paired_difference(a, b, seed=3) == paired_difference(a, b, seed=3)
    assert paired_difference(a, b, seed=3).low != paired_difference(a, b, seed=4).low


@deterministic
@given(st.lists(numbers, min_size=1, max_size=8))
def test_sign_flip_test_counts_every_assignment_of_signs(differences: list[float]) -> None:
    d = np.array(differences)
    sums = np.array([np.dot(signs, d) for signs in itertools.product([1, -1], repeat=len(d))])
    tolerance = 1e-9 * np.abs(d).sum()
    least, most = (np.mean(np.abs(sums) >= abs(d.sum()) + sign * tolerance) for sign in (1, -1))
    assert least <= sign_flip_test(d) <= most


def test_sign_flip_test_is_that_of_scipy() -> None:
    d = np.random.default_rng(4).normal(0.4, 1, size=11)
    result = stats.permutation_test(
        (d, -d), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_test(d) == pytest.approx(result.pvalue)


def test_sign_flip_test_by_sampling_continues_the_exact_one() -> None:
    d = np.random.default_rng(12).normal(0.35, 1, size=20)
    # One more pair without a difference changes no sum, and makes the test sample.
    sampled = sign_flip_test([*d, 0.0], resamples=50_000)
    assert sampled == pytest.approx(sign_flip_test(d), abs=0.005)
    assert sign_flip_test(np.ones(40), resamples=99) == pytest.approx(0.01)


def test_probability_of_improvement_is_mann_whitney_over_pairs() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 6, size=13), rng.integers(0, 5, size=9)
    assert probability_of_improvement(a, b) == pytest.approx(stats.mannwhitneyu(a, b).statistic / (13 * 9))
    assert probability_of_improvement([1, 2], [0, 0]) == 1.0
    assert probability_of_improvement([1], [1]) == 0.5


# Many tests, and a decision


def test_holm_steps_down_and_never_lets_a_larger_p_overtake() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]).tolist() == [1.0, 1.0]
    assert holm([0.02]).tolist() == [0.02]


@deterministic
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 0.2))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values: list[float], alpha: float) -> None:
    rejected: set[int] = set()
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[i] * (len(p_values) - rank) > alpha:
            break
        rejected.add(i)
    assert set(np.flatnonzero(holm(p_values) <= alpha)) == rejected


def test_holm_keeps_the_family_wise_level() -> None:
    rng = np.random.default_rng(14)
    false_alarms = [np.any(holm(rng.random(8)) < 0.05) for _ in range(2000)]
    assert np.mean(false_alarms) < 0.065


@pytest.mark.parametrize("p_values", [[], [1.2], [-0.1, 0.5], [np.nan]])
def test_holm_refuses_what_is_not_a_probability(p_values: list[float]) -> None:
    with pytest.raises(ValueError, match="holm: p_values"):
        holm(p_values)


@pytest.mark.parametrize(
    ("low", "high", "sign", "expected"),
    [
        (0.01, 0.05, 1, "supported"),
        (0.001, 0.002, 1, "supported"),
        (-0.05, -0.01, -1, "supported"),
        (0.01, 0.05, -1, "not supported"),
        (-0.05, -0.01, 1, "not supported"),
        (-0.02, 0.02, 1, "not supported"),
        (-0.01, 0.015, -1, "not supported"),
        (0.0, 0.0, 1, "not supported"),
        (0.0, 0.05, 1, "undecided"),
        (-0.01, 0.05, 1, "undecided"),
        (-0.03, 0.01, 1, "undecided"),
        (-0.02, 0.02, 0, "supported"),
        (0.001, 0.019, 0, "supported"),
        (0.021, 0.05, 0, "not supported"),
        (-0.05, -0.03, 0, "not supported"),
        (0.01, 0.05, 0, "undecided"),
        (-0.05, 0.0, 0, "undecided"),
    ],
)
def test_verdict_follows_the_decision_rule(low: float, high: float, sign: int, expected: str) -> None:
    assert verdict(SimpleNamespace(low=low, high=high, n=20), sign) == expected


def test_few_pairs_get_no_verdict_however_far_from_nought() -> None:
    differences = np.array([0.20, 0.21, 0.22, 0.23, 0.24, 0.25])
    assert verdict(paired_difference(differences, np.zeros(6)), 1) == "supported"
    assert excludes_zero(paired_difference(differences, np.zeros(6)))
    assert verdict(paired_difference(differences[:5], np.zeros(5)), 1) == "too few pairs"
    assert not excludes_zero(paired_difference(differences[:5], np.zeros(5)))
    assert verdict(mean_interval([0.05]), 1) == "too few pairs"
    # What the limit is for: with five pairs no test at .05 can reject.
    assert sign_flip_test(differences[:5]) > 0.05 > sign_flip_test(differences)


def test_a_figure_without_a_zone_of_no_difference_is_only_judged_by_its_sign() -> None:
    close = SimpleNamespace(low=-0.001, high=0.001, n=20)
    assert verdict(close, 1) == "not supported"
    assert verdict(close, 1, margin=None) == "undecided"


@pytest.mark.parametrize(
    ("sign", "margin", "field"), [(0, None, "claim_sign"), (2, 0.02, "claim_sign"), (1, -1, "margin")]
)
def test_verdict_refuses_a_claim_that_cannot_be_judged(sign: int, margin: float | None, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        verdict(SimpleNamespace(low=0.0, high=1.0, n=20), sign, margin)


# Bad input


def test_values_that_are_missing_or_not_finite_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"mean_interval: values: has shape \(0,\)"):
        mean_interval([])
    with pytest.raises(ValueError, match="paired_difference: b: has values that are not finite"):
        paired_difference([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(ValueError, match="paired_difference: 3 values against 2"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="iqm"):
        iqm(np.ones((2, 2)))  # type: ignore[arg-type]
