"""What a store of runs is asked, on runs whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from agents.config import Config
from experiments.estimands import (
    ACCURACY,
    ACCURACY_RESCALED,
    ACCURACY_TOKENS,
    CONTRASTS,
    ESTIMANDS,
    GOOD_FIRST,
    GOOD_OF_RUNNING,
    LENGTH,
    MODEL,
    NOBODY,
    OWN_FAILURES,
    PAPER,
    PRIMARY,
    RECOVERY,
    RESPONSE,
    SINCE,
    TABLE,
    Claim,
    Contrast,
    all_estimates,
    arm,
    by_arm,
    claims_of,
    estimate,
    label,
    last_before_switch,
    predicted,
    settings_of,
    uncommon,
)
from experiments.presets import PRESETS, expand
from experiments.store import Run
from experiments.theory import MIXTURE_WITHOUT_SLIPS
from tests.synthetic_runs import arm as config_of
from tests.synthetic_runs import synthetic_run
from tool_gym.errors import ConfigError

SEEDS = range(12)
GAIN = Contrast(4, "better?", "roc", "stratified", replace(ACCURACY, modelled=None), paper=1)


def pairs(ours: float, theirs: float, noise: float = 0.05, **changes: object) -> list[object]:
    """Runs of both rules over the seeds; the noise of a seed is common to its pair, but for a little."""
    found = []
    for seed in SEEDS:
        wobble = 0.001 * np.random.default_rng(1000 + seed).normal()
        found.append(synthetic_run(config_of("roc", seed, **changes), ours + wobble, noise=noise))
        found.append(synthetic_run(config_of("stratified", seed, **changes), theirs, noise=noise))
    return found


def with_tests(config: Config, last: float, best: float | None = None) -> Run:
    """A run with these accuracies on test problems."""
    run = synthetic_run(config)
    test = {"last": last, "best": last if best is None else best}
    figures = {name: {**run.summary["test"][name], "eval/accuracy": value} for name, value in test.items()}
    return replace(run, summary={**run.summary, "test": figures})


def test_a_difference_is_the_mean_over_paired_seeds_whatever_seeds_have_in_common() -> None:
    (found,) = estimate(GAIN, pairs(0.55, 0.5))  # type: ignore[arg-type]
    assert found.paired.mean == pytest.approx(0.05, abs=0.001)
    assert found.paired.n == 12
    assert found.paired.high - found.paired.low < 0.003 < found.unpaired.high - found.unpaired.low
    assert found.verdicts == ((Claim(PAPER, 1), "supported"),)
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
    assert (found.paired.n, found.seeds) == (12, 13)
    assert estimate(GAIN, [synthetic_run(config_of("roc", 1))]) == []


def test_settings_name_what_differs_and_holm_counts_them() -> None:
    runs = [*pairs(0.55, 0.5, env__answers=10), *pairs(0.5, 0.5, env__answers=2)]
    settings = settings_of(runs)  # type: ignore[arg-type]
    assert [label(setting) for setting in settings] == ["answers 2", "answers 10"]
    found = estimate(GAIN, runs)  # type: ignore[arg-type]
    small, large = sorted(found, key=lambda one: one.paired.p_value)
    assert small.adjusted == pytest.approx(2 * small.paired.p_value)
    assert large.adjusted == pytest.approx(max(large.paired.p_value, small.adjusted))


def test_a_difference_across_settings_is_that_of_differences() -> None:
    grows = Contrast(2, "more?", "roc", "stratified", ACCURACY, across=("noise.correlation", 0.0))
    runs = [*pairs(0.60, 0.5, noise__correlation=0.9), *pairs(0.48, 0.5, noise__correlation=0.0)]
    (found,) = estimate(grows, runs)  # type: ignore[arg-type]
    assert found.paired.mean == pytest.approx(0.12, abs=0.002)
    assert label(found.setting) == "ρ 0.9 less 0"
    assert [interval.mean for interval in found.means] == pytest.approx([0.10, -0.02], abs=0.002)
    assert found.contrast.sides == ("Δ there", "Δ at ρ 0")
    assert (Claim(TABLE, 1), "supported") in found.verdicts
    assert estimate(grows, pairs(0.6, 0.5, noise__correlation=0.9)) == []  # type: ignore[arg-type]
    # A seed counts where all four runs are there.
    fewer = [run for run in runs if run.config.run.seed != 3 or run.config.noise.correlation == 0.9]  # type: ignore[attr-defined]
    (found,) = estimate(grows, fewer)  # type: ignore[arg-type]
    assert found.paired.n == found.seeds == 11


def test_settings_across_which_a_gain_is_compared_agree_in_all_else() -> None:
    refill = next(c for c in CONTRASTS if c.number == 10 and c.figure == ACCURACY)
    runs = []
    for correlation, gain in ((0.0, 0.1), (0.9, 0.2)):
        runs += pairs(0.5 + gain, 0.5, noise__correlation=correlation)
        runs += pairs(0.5 + 2 * gain, 0.5, noise__correlation=correlation, algo__refill=True)
    found = {label(e.setting): e.paired.mean for e in estimate(refill, runs)}  # type: ignore[arg-type]
    assert set(found) == {"ρ 0, refill on less off", "ρ 0.9, refill on less off"}
    assert sorted(found.values()) == pytest.approx([0.1, 0.2], abs=0.002)
    slips = next(c for c in CONTRASTS if c.number == 8 and c.figure == ACCURACY)
    mixture = {"clean": 0.1, "confused": 0.7, "guess": 0.2}
    runs = [*pairs(0.6, 0.5), *pairs(0.55, 0.5, sft__mixture=mixture)]
    (one,) = estimate(slips, runs)  # type: ignore[arg-type]
    assert one.paired.mean == pytest.approx(-0.05, abs=0.002)
    assert label(one.setting) == "cold start clean 0.1 confused 0.7 guess 0.2 less default"
    # A cold start with slips is no answer to that question, and none that the smallest model has.
    slips_more = mixture | {"confused": 0.6, "slip_then_fix": 0.1}
    assert estimate(slips, [*pairs(0.6, 0.5), *pairs(0.55, 0.5, sft__mixture=slips_more)]) == []  # type: ignore[arg-type]
    assert predicted(config_of("roc", 0, sft__mixture=slips_more)) is None
    assert predicted(config_of("roc", 0, sft__mixture=MIXTURE_WITHOUT_SLIPS)) is not None


def test_the_two_figures_of_one_arm_are_compared_where_an_arm_stands_twice() -> None:
    falling = np.concatenate(([math.nan], np.repeat([0.5, 0.4, 0.3, 0.1], 5)))
    runs = [synthetic_run(config_of("roc", seed), roc__error_ratio_positives=falling) for seed in SEEDS]
    contrast = next(c for c in CONTRASTS if c.ours == c.theirs == "roc")
    (found,) = estimate(contrast, runs)
    assert found.paired.mean == pytest.approx(-0.2)
    assert found.verdicts == ((Claim(PAPER, -1), "supported"),)
    assert contrast.sides == ("last quarter", "third quarter")


def test_one_arm_is_compared_across_settings_by_its_own_figure() -> None:
    alone = next(c for c in CONTRASTS if (c.number, c.ours, c.theirs) == (13, "grpo", "grpo") and c.across is not None)
    runs = []
    for seed in SEEDS:
        for turns, accuracy in ((None, 0.9), (1, 0.1), (3, 0.8)):
            runs.append(with_tests(config_of("grpo", seed, env__max_turns=turns), accuracy + 0.001 * seed))
    # With three turns there are tools.
    (found,) = estimate(alone, runs)
    assert label(found.setting) == "turns 1 less default"
    assert found.paired.mean == pytest.approx(-0.8)
    assert [interval.mean for interval in found.means] == pytest.approx([0.1055, 0.9055])
    assert found.contrast.sides == ("there", "at turns default")
    assert found.contrast.difference == "grpo: change of accuracy at the end"
    assert found.verdicts == ((Claim(PAPER, -1), "supported"),)


def test_training_on_is_compared_with_the_end_of_shorter_runs() -> None:
    collapse = next(
        c for c in CONTRASTS if (c.number, c.ours, c.theirs, c.across) == (13, "roc", "roc", ("run.steps", 100))
    )
    # A run is compared with the one that ended earlier, not with the best of its own many validations, which would
    # nearly always be above its last.
    wobble = {seed: 0.004 * np.random.default_rng(seed).normal() for seed in SEEDS}
    for end, said in ((0.6, "supported"), (0.9, "not supported")):
        at_end = {20: 0.3, 100: 0.9, 400: end}
        runs = [
            with_tests(config_of("roc", seed, run__steps=steps), accuracy + wobble[seed] * (steps == 400), 1.0)
            for seed in SEEDS
            for steps, accuracy in at_end.items()
        ]
        (found,) = estimate(collapse, runs)
        assert label(found.setting) == "updates 400 less 100"
        assert found.paired.mean == pytest.approx(end - 0.9, abs=0.01)
        assert found.verdicts == ((Claim(PAPER, -1), said),)


def test_questions_across_one_field_are_answered_where_others_vary_too() -> None:
    preset = PRESETS["paper"]
    runs = [synthetic_run(run) for _, run in expand(preset, Config().replace(**preset.settings))]
    found = {
        (label(answer.setting), contrast.ours, contrast.theirs)
        for contrast, answers in all_estimates(runs)
        for answer in answers
    }
    of_both = {
        (where, rule, rule) for where in ("turns 1 less default", "updates 400 less 100") for rule in ("grpo", "roc")
    }
    of_roc = {(f"{what} on less off", "roc", "roc") for what in ("overlong filter", "released format penalty")}
    assert of_both | of_roc | {("the default", "roc_ngram", "roc"), ("updates 400", "roc", "grpo")} <= found
    # Without a call there is nothing to filter by: the paper's claims are not about that.
    assert not any(where == "turns 1" for where, *_ in found)


def test_other_faults_and_other_updates_are_compared_with_the_usual_ones_on_the_same_seeds() -> None:
    runs = []
    for name in ("faults", "optimisation", "correlated-vs-iid"):
        preset = PRESETS[name]
        runs += [
            synthetic_run(run)
            for _, run in expand(preset, Config().replace(**preset.settings), seeds=(0, 1))
            if run.env.answers == 10 and run.algo.selector in ("roc", "stratified")
        ]
    found = {
        (contrast.number, label(answer.setting))
        for contrast, answers in all_estimates(runs)
        for answer in answers
        if contrast.across is not None and contrast.figure == ACCURACY
    }
    assert {
        (2, "noise burst less correlated, ρ 0"),
        (2, "ρ -0.9 less 0"),
        (2, "ρ 0, faults that stay 1 less 0"),
        (2, "ρ 0.9, faults wrong_value 1 less default"),
        (12, "ρ 0.9, scale none less group"),
    } <= found


def test_settings_are_told_by_what_is_not_as_usual_and_no_two_alike() -> None:
    runs = []
    for preset in PRESETS.values():
        runs += [synthetic_run(run) for _, run in expand(preset, Config().replace(**preset.settings), seeds=(0,))]
    labels = [label(setting) for setting in settings_of(runs)]
    assert len(set(labels)) == len(labels)


def test_without_a_turn_for_a_call_the_smallest_model_says_nothing() -> None:
    assert predicted(config_of("roc", 0, env__max_turns=2)) is not None
    assert predicted(config_of("roc", 0, env__max_turns=1)) is None


def test_switch_arms_are_arms_of_their_own() -> None:
    run = synthetic_run(config_of("roc", 0, algo__switch_to="stratified"))
    assert arm(run) == "roc→stratified"
    assert set(by_arm([run])) == {"roc→stratified"}


@pytest.mark.parametrize(("steps", "every", "seen"), [(100, 10, 20), (20, 5, 5), (100, 25, 25), (40, 20, 0)])
def test_a_lead_is_read_where_both_arms_have_had_one_rule_so_far(steps: int, every: int, seen: int) -> None:
    config = config_of("roc", 0, algo__switch_to="stratified", run__steps=steps, run__eval_every=every)
    assert last_before_switch(config) == seen
    assert config.algo.at(max(seen, 1), steps).selector == "roc"
    assert seen + every > steps // 4


def test_what_becomes_of_a_lead_after_the_switch() -> None:
    contrast = next(c for c in CONTRASTS if c.figure == SINCE)
    steps = np.arange(21)

    def curve(at_quarter: float, last: float) -> object:
        values = np.interp(steps, [0, 5, 20], [0.1, at_quarter, last])
        return np.where(steps % 5 == 0, values, math.nan)

    runs = []
    for seed in SEEDS:
        runs.append(
            synthetic_run(
                config_of("roc", seed, algo__switch_to="stratified", run__eval_every=5),
                eval__good_first_call=curve(0.5, 0.9),
            )
        )
        plain = config_of("stratified", seed, run__eval_every=5)
        runs.append(synthetic_run(plain, eval__good_first_call=curve(0.3, 0.8)))
    (found,) = estimate(contrast, runs)
    assert found.paired.mean == pytest.approx(-0.1)  # of a lead of .2


def test_two_runs_of_one_arm_and_seed_are_refused() -> None:
    alone = synthetic_run(config_of("roc", 0))
    stacked = synthetic_run(config_of("roc", 0, run__stack="0123456789ab"))
    with pytest.raises(ConfigError, match="roc, seed 0"):
        by_arm([alone, stacked])


def test_what_all_runs_have_and_the_default_has_not_is_named() -> None:
    runs = pairs(0.5, 0.5, env__answers=4, noise__correlation=0.0)
    assert label(uncommon(runs)) == "answers 4, ρ 0"  # type: ignore[arg-type]


def test_a_gain_in_good_first_calls_is_told_apart_into_fewer_failures_and_more_right_ones_among_the_rest() -> None:
    failures = np.concatenate(([math.nan], np.full(10, 0.2), np.full(10, 0.6)))
    # Around the validations after 0, 10 and 20 updates .2, .4 (half of the rows are of either kind) and .6 fail.
    good = np.full(21, math.nan)
    good[[0, 10, 20]] = [0.4, 0.3, 0.1]
    run = synthetic_run(config_of("roc", 0), eval__good_first_call=good, tools__first_call_policy_failure=failures)
    assert OWN_FAILURES.of_pair(run, run)[0] == pytest.approx(0.4)
    middle = 0.3 / (1 - (6 * 0.2 + 5 * 0.6) / 11)
    assert GOOD_OF_RUNNING.of_pair(run, run)[0] == pytest.approx((0.4 / 0.8 + 2 * middle + 0.1 / 0.4) / 4)
    always = synthetic_run(config_of("roc", 0), tools__first_call_policy_failure=np.ones(21))
    never = synthetic_run(config_of("roc", 0), tools__first_call_policy_failure=np.full(21, math.nan))
    assert all(math.isnan(GOOD_OF_RUNNING.of_pair(other, other)[0]) for other in (always, never))


def test_arms_and_seeds_are_in_order_wherever_runs_were_read() -> None:
    read = [synthetic_run(config_of(rule, seed)) for rule, seed in (("roc", 1), ("grpo", 0), ("roc", 0), ("grpo", 1))]
    assert [(name, list(seeds)) for name, seeds in by_arm(read).items()] == [("grpo", [0, 1]), ("roc", [0, 1])]


def test_questions_that_were_added_are_marked() -> None:
    marked = {contrast.number for contrast in CONTRASTS if contrast.added}
    assert marked == {1, 2, 3, 4, 6, 7, 9, 11, 12, 13, 14}
    assert not any(contrast.added for contrast in CONTRASTS if contrast.number in (5, 8, 10))
    assert not any(c.added for c in CONTRASTS if (c.number, c.ours, c.theirs) == (1, "roc", "stratified") and c.paper)


def test_areas_over_tokens_end_at_the_smaller_total() -> None:
    rising = np.where(np.arange(21) % 10 == 0, np.arange(21) / 20, math.nan)
    long = synthetic_run(config_of("roc", 0), eval__accuracy=rising)
    short = synthetic_run(config_of("roc", 1), eval__accuracy=rising, num_tokens=500.0 * np.arange(21))
    ours, theirs = ACCURACY_TOKENS.of_pair(long, short)
    assert ours == pytest.approx(0.25)  # up to 10,000 tokens: half of its way
    assert theirs == pytest.approx(0.5)


def test_recovery_weighs_validations_alike_on_both_sides_and_needs_no_validation_in_particular() -> None:
    def run_of(rule: str, counts: list[int], shares: list[float]) -> Run:
        share, faulted = np.full(21, math.nan), np.full(21, math.nan)
        share[[5, 10, 20]], faulted[[5, 10, 20]] = shares, counts
        return synthetic_run(config_of(rule, 0), eval__recovery=share, eval__faulted_first_calls=faulted)

    ours, theirs = run_of("roc", [30, 20, 0], [0.2, 0.8, math.nan]), run_of("stratified", [30, 60, 9], [0.2, 0.8, 0.9])
    weights = [30 * 30 / 60, 20 * 60 / 80]
    expected = float(np.average([0.2, 0.8], weights=weights))
    # As good in each validation, so as good: though theirs has more faulted calls where both are better.
    assert RECOVERY.of_pair(ours, theirs) == pytest.approx((expected, expected))
    none = run_of("roc", [0, 0, 0], [math.nan] * 3)
    assert np.isnan(RECOVERY.of_pair(none, theirs)).all()


def test_recovery_is_measured_where_the_arms_are_no_longer_the_same_policy() -> None:
    share, faulted = np.full(21, math.nan), np.full(21, math.nan)
    share[[10, 20]], faulted[[10, 20]] = 0.6, 40
    run = synthetic_run(config_of("roc", 0), eval__recovery=share, eval__faulted_first_calls=faulted)
    share, faulted = share.copy(), faulted.copy()
    share[0], faulted[0] = 0.1, 400
    started = synthetic_run(config_of("roc", 0), eval__recovery=share, eval__faulted_first_calls=faulted)
    assert RECOVERY.of_pair(started, started) == RECOVERY.of_pair(run, run) == pytest.approx((0.6, 0.6))


def test_accuracy_rescaled_is_nought_where_all_is_guessed() -> None:
    guesses = [synthetic_run(config_of("roc", 0, env__answers=answers), 1 / answers) for answers in (2, 10)]
    assert ACCURACY_RESCALED.of_pair(*guesses) == pytest.approx((0, 0))
    # By default as many answers as the task has; of a task that is not there nothing is known.
    default, gone = (
        synthetic_run(config_of("roc", 0), 0.1),
        synthetic_run(config_of("roc", 0, env__id="lab.x:X-v0"), 0.1),
    )
    assert ACCURACY_RESCALED.of_pair(default, default)[0] == pytest.approx(0)
    assert math.isnan(ACCURACY_RESCALED.of_pair(gone, gone)[0])


def test_the_response_to_selection_is_the_extra_fall_over_the_extra_differential() -> None:
    def run_of(rule: str, differential: float, fall: float) -> object:
        errors = np.concatenate(([math.nan], np.full(5, 0.8), np.full(15, 0.8 - fall)))
        selected = np.concatenate(([math.nan], np.full(20, differential)))
        columns = {"roc__selection_differential": selected, "tools__policy_failure_frequency": errors}
        return synthetic_run(config_of(rule, 0), **columns)

    ours, theirs = run_of("roc", 0.10, 0.5), run_of("stratified", 0.01, 0.2)
    assert RESPONSE.of_pair(ours, theirs) == pytest.approx((0.3 / (20 * 0.09), 0.0))  # type: ignore[arg-type]
    assert math.isnan(RESPONSE.of_pair(theirs, ours)[0])  # type: ignore[arg-type]


def test_the_smallest_model_speaks_where_it_reaches_and_is_silent_elsewhere() -> None:
    for loss, sign in (("episode", -1), ("turn", 1)):
        at_zero = predicted(config_of("roc", 0, noise__correlation=0.0), loss=loss)  # type: ignore[arg-type]
        assert at_zero is not None
        assert at_zero.accuracy.mean * sign > 0.02
        assert at_zero.good_first.mean > 0.02
        assert at_zero.recovery.mean < -0.02
    # Without being told it takes the loss that the runs have.
    assert predicted(config_of("roc", 0, noise__correlation=0.0)) == at_zero
    assert predicted(config_of("roc", 0, algo__normalisation="sequence")) is None
    for field, value in (("noise__rate", 0.5), ("algo__refill", True), ("algo__learning_rate", 1e-4)):
        assert predicted(config_of("roc", 0, **{field: value})) is None
    assert predicted(config_of("roc", 0, env__id="tool_gym/Retrieval-v0")) is None
    assert predicted(config_of("roc", 0, noise__correlation=-0.5)) is None
    assert predicted(config_of("roc", 0), "roc", "penalty") is None


def test_claims_are_those_of_the_model_with_the_runs_loss_and_of_its_first_table() -> None:
    accuracy, good_first = (
        next(c for c in CONTRASTS if c.number == 1 and c.figure == f) for f in (ACCURACY, GOOD_FIRST)
    )
    independent, following = (config_of("roc", 0, noise__correlation=c) for c in (0.0, 1.0))
    assert claims_of(accuracy, [independent]) == (Claim(PAPER, 1), Claim(MODEL, 1), Claim(TABLE, -1))
    assert claims_of(accuracy, [following]) == (Claim(PAPER, 1), Claim(MODEL, 1), Claim(TABLE, 1))
    # Normalised as the table was, they are one.
    same = config_of("roc", 0, noise__correlation=0.0, algo__normalisation="constant")
    assert claims_of(accuracy, [same]) == (Claim(PAPER, 1), Claim(MODEL, -1))
    # A difference within the margin is none to speak of: candidates, and good first calls with and without ρ.
    candidates = next(c for c in CONTRASTS if c.number == 4 and c.theirs == "grpo" and c.figure == ACCURACY)
    assert claims_of(candidates, [independent]) == (Claim(MODEL, 0),)
    grows = next(c for c in CONTRASTS if c.number == 2 and c.figure == GOOD_FIRST)
    assert Claim(TABLE, 0) in claims_of(grows, [following, independent])
    assert claims_of(good_first, [config_of("roc", 0, env__id="tool_gym/Retrieval-v0")]) == (Claim(PAPER, 1),)


def test_the_model_claims_nothing_across_fields_that_it_does_not_have() -> None:
    for number, field, value in ((10, "algo__refill", True), (12, "algo__learning_rate", 1e-4)):
        contrast = next(c for c in CONTRASTS if c.number == number and c.figure == ACCURACY)
        # Then nobody does, and what is tried is that there is nothing to speak of.
        there = config_of("roc", 0, **{field: value})
        assert claims_of(contrast, [there, config_of("roc", 0)]) == (Claim(NOBODY, 0),)
    loss = next(c for c in CONTRASTS if c.number == 12 and c.across == ("algo.normalisation", "token"))
    per_episode, per_turn = (config_of("roc", 0, algo__normalisation=n) for n in ("constant", "token"))
    assert claims_of(loss, [per_episode, per_turn])
    assert claims_of(loss, [config_of("roc", 0, algo__normalisation="sequence"), per_turn]) == (Claim(NOBODY, 0),)


def test_every_estimand_has_a_question_with_a_verdict() -> None:
    config = config_of("roc", 0)
    judged = {
        contrast.number for contrast in CONTRASTS if claims_of(contrast, [config] * (2 if contrast.across else 1))
    }
    assert judged == set(ESTIMANDS)


def test_the_paper_claims_that_errors_come_to_rest_under_plain_grpo() -> None:
    contrast = next(c for c in CONTRASTS if c.ours == c.theirs == "grpo")
    assert claims_of(contrast, [config_of("grpo", 0)]) == (Claim(PAPER, 0),)


def test_figures_that_are_no_probabilities_have_no_zone_of_no_difference() -> None:
    assert LENGTH.margin is None
    assert RESPONSE.margin is None
    assert all(figure.margin == 0.02 for figure in PRIMARY)


def test_every_question_that_the_runs_can_answer_is_answered_in_order() -> None:
    runs = []
    for rule in ("roc", "stratified", "grpo", "grpo_2g", "shortest"):
        runs += [synthetic_run(config_of(rule, seed), 0.5, noise=0.1) for seed in range(4)]
    tables = all_estimates(runs)
    numbers = [contrast.number for contrast, _ in tables]
    assert numbers == sorted(numbers)
    # Not 2, 8, 10 and 12, which need two settings, nor 9; of 7, which needs arms that switch, there is the response,
    # undefined where both arms select alike.
    assert set(numbers) == {1, 3, 4, 5, 6, 11, 14}
    asked = {(contrast.ours, contrast.theirs) for contrast, _ in tables}
    assert ("roc", "shortest") in asked
    assert ("roc", "oracle") not in asked
    assert {contrast.number for contrast in CONTRASTS} == set(ESTIMANDS)


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
    about = {name for name, who in said if who == MODEL}
    assert about == {f"tool_gym/Arithmetic-v0, ρ {where}" for where in ("0", "0.9", "0.9 less 0")}
    assert {name for name, who in said if who == PAPER} == set(found)
