"""What a store of runs is asked, on runs whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.estimands import (
    ACCURACY,
    ACCURACY_TOKENS,
    CONTRASTS,
    GOOD_FIRST,
    Claim,
    Contrast,
    all_estimates,
    arm,
    by_arm,
    estimate,
    interaction,
    label,
    paper,
    predicted,
    response,
    settings_of,
)
from tests.synthetic_runs import arm as config_of
from tests.synthetic_runs import synthetic_run

SEEDS = range(12)
GAIN = Contrast(1, "better?", "roc", "stratified", ACCURACY, paper(1))


def pairs(ours: float, theirs: float, noise: float = 0.05, **changes: object) -> list[object]:
    """Runs of both rules over the seeds; the noise of a seed is common to its pair, but for a little."""
    found = []
    for seed in SEEDS:
        wobble = 0.001 * np.random.default_rng(1000 + seed).normal()
        found.append(synthetic_run(config_of("roc", seed, **changes), ours + wobble, noise=noise))
        found.append(synthetic_run(config_of("stratified", seed, **changes), theirs, noise=noise))
    return found


def test_a_difference_is_the_mean_over_paired_seeds_whatever_seeds_have_in_common() -> None:
    (found,) = estimate(GAIN, pairs(0.55, 0.5))  # type: ignore[arg-type]
    assert found.paired.mean == pytest.approx(0.05, abs=0.001)
    assert found.paired.n == 12
    assert found.paired.high - found.paired.low < 0.003 < found.unpaired.high - found.unpaired.low
    assert found.verdicts == ((Claim("the paper", 1), "supported"),)
    assert 0.5 < found.improvement < 1
    assert found.adjusted == pytest.approx(found.paired.p_value)


@pytest.mark.parametrize(("ours", "verdict"), [(0.55, "supported"), (0.45, "not supported"), (0.5, "not supported")])
def test_verdicts_follow_the_decision_rule(ours: float, verdict: str) -> None:
    (found,) = estimate(GAIN, pairs(ours, 0.5))  # type: ignore[arg-type]
    assert found.verdicts[0][1] == verdict


def test_only_seeds_that_have_both_arms_and_both_figures_make_a_pair() -> None:
    runs = [*pairs(0.55, 0.5)]
    runs.append(synthetic_run(config_of("roc", 50), 9.0))
    gap = np.full(21, math.nan)
    runs.append(synthetic_run(config_of("roc", 51), 9.0, eval__accuracy=gap))
    runs.append(synthetic_run(config_of("stratified", 51), 0.5))
    (found,) = estimate(GAIN, runs)  # type: ignore[arg-type]
    assert found.paired.n == 12
    assert estimate(GAIN, [synthetic_run(config_of("roc", 1))]) == []


def test_settings_name_what_differs_and_holm_counts_them() -> None:
    runs = [*pairs(0.55, 0.5, env__answers=10), *pairs(0.5, 0.5, env__answers=2)]
    settings = settings_of(runs)  # type: ignore[arg-type]
    assert [label(setting) for setting in settings] == ["answers 2", "answers 10"]
    found = estimate(GAIN, runs)  # type: ignore[arg-type]
    small, large = sorted(found, key=lambda one: one.paired.p_value)
    assert small.adjusted == pytest.approx(2 * small.paired.p_value)
    assert large.adjusted >= large.paired.p_value


def test_the_interaction_is_the_difference_of_differences() -> None:
    runs = [*pairs(0.60, 0.5, noise__correlation=0.9), *pairs(0.48, 0.5, noise__correlation=0.0)]
    (found,) = interaction(ACCURACY, runs)  # type: ignore[arg-type]
    assert found.paired.mean == pytest.approx(0.12, abs=0.002)
    assert found.verdicts == ((Claim("the smallest model", 1), "supported"),)
    assert interaction(ACCURACY, pairs(0.6, 0.5, noise__correlation=0.9)) == []  # type: ignore[arg-type]


def test_switch_arms_are_arms_of_their_own() -> None:
    run = synthetic_run(config_of("roc", 0, algo__switch_to="stratified"))
    assert arm(run) == "roc→stratified"
    assert set(by_arm([run])) == {"roc→stratified"}


def test_areas_over_tokens_end_at_the_smaller_total() -> None:
    rising = np.where(np.arange(21) % 10 == 0, np.arange(21) / 20, math.nan)
    long = synthetic_run(config_of("roc", 0), eval__accuracy=rising)
    short = synthetic_run(config_of("roc", 1), eval__accuracy=rising, num_tokens=500.0 * np.arange(21))
    ours, theirs = ACCURACY_TOKENS.of_pair(long, short)
    assert ours == pytest.approx(0.25)  # up to 10,000 tokens: half of its way
    assert theirs == pytest.approx(0.5)


def test_the_response_is_the_slope_of_the_fall_on_the_cumulative_differential() -> None:
    differential = np.concatenate(([math.nan], np.full(20, 0.1)))
    fall = np.concatenate(([math.nan], 0.8 - 0.3 * np.cumsum(np.full(20, 0.1)) + 0.03))
    run = synthetic_run(
        config_of("roc", 0), roc__selection_differential=differential, tools__policy_failure_frequency=fall
    )
    steps = 0.1 * np.arange(1, 21)
    assert response(run) == pytest.approx((steps * (0.3 * (steps - 0.1))).sum() / (steps**2).sum())
    assert math.isnan(response(synthetic_run(config_of("roc", 0), roc__selection_differential=np.zeros(21))))


def test_the_smallest_model_speaks_where_it_reaches_and_is_silent_elsewhere() -> None:
    at_zero = predicted(config_of("roc", 0, noise__correlation=0.0))
    at_one = predicted(config_of("roc", 0, noise__correlation=1.0))
    assert at_zero is not None
    assert at_one is not None
    assert at_zero[0] < 0 < at_one[0]
    assert min(at_zero[1], at_one[1]) > 0
    assert predicted(config_of("roc", 0, noise__rate=0.5)) is None
    assert predicted(config_of("roc", 0, noise__correlation=-0.5)) is None


def test_every_question_that_the_runs_can_answer_is_answered_in_order() -> None:
    runs = []
    for rule in ("roc", "stratified", "grpo", "grpo_2g", "shortest"):
        runs += [synthetic_run(config_of(rule, seed), 0.5, noise=0.1) for seed in range(4)]
    tables = all_estimates(runs)
    numbers = [contrast.number for contrast, _ in tables]
    assert numbers == sorted(numbers)
    assert set(numbers) == {1, 3, 4, 5, 6, 7, 11}
    asked = {(contrast.ours, contrast.theirs) for contrast, _ in tables}
    assert ("roc", "shortest") in asked
    assert ("roc", "oracle") not in asked
    assert {contrast.number for contrast in CONTRASTS} == {1, 3, 4, 5, 6, 7, 9, 11}
    assert GOOD_FIRST.name != ACCURACY.name


def test_environments_are_settings_apart_and_the_smallest_model_speaks_of_its_own_only() -> None:
    runs = []
    for env, gain, steps in (("tool_gym/Arithmetic-v0", 0.1, 450), ("tool_gym/Retrieval-v0", -0.1, 900)):
        for correlation in (0.0, 0.9):
            changes = {"env__id": env, "noise__correlation": correlation, "sft__steps": steps}
            runs += pairs(0.5 + gain, 0.5, **changes)
    found = {label(e.setting): e for e in estimate(GAIN, runs)}  # type: ignore[arg-type]
    assert set(found) == {
        f"tool_gym/{env}-v0, ρ {correlation}" for env in ("Arithmetic", "Retrieval") for correlation in ("0", "0.9")
    }
    for name, one in found.items():
        assert one.paired.mean == pytest.approx(0.1 if "Arithmetic" in name else -0.1, abs=0.001)
        assert one.paired.n == 12
    said = {
        (label(one.setting), claim.who)
        for contrast, estimates in all_estimates(runs)  # type: ignore[arg-type]
        for one in estimates
        for claim, _ in one.verdicts
        if contrast.number in (1, 2, 6)
    }
    about = {name for name, who in said if who == "the smallest model"}
    assert about == {"tool_gym/Arithmetic-v0", "tool_gym/Arithmetic-v0, ρ 0", "tool_gym/Arithmetic-v0, ρ 0.9"}
    assert {name for name, who in said if who == "the paper"} == set(found)
