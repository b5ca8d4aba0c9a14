"""experiments.theory: its parts against enumeration and agents.selection, its table against an earlier program's."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.selection import select
from experiments import theory
from experiments.theory import (
    AFTER,
    BEFORE,
    FAULT_RATE,
    GROUP_SIZE,
    RULES,
    Curves,
    Mode,
    TheoryConfig,
    advantages,
    choose,
    common_weights,
    difference,
    exact_values,
    fault_rates,
    gradients,
    play,
    simulate,
    softmax,
    turn_outcomes,
)
from tool_gym.errors import ConfigError

# The same examples on every run; no deadline, for the machine may be busy.
deterministic = settings(derandomize=True, deadline=None, max_examples=50)

# Δ accuracy AUC and Δ AUC of good code first, roc − stratified, of an implementation written before this one, whose
# standard errors are about .001 in accuracy and .001 to .005 in good code first.
REFERENCE: dict[tuple[int, int, bool], list[tuple[float, float]]] = {
    (2, 2, True): [(0.027, 0.090), (0.040, 0.137), (0.038, 0.145), (0.048, 0.124), (0.060, 0.128)],
    (2, 4, True): [(0.006, 0.090), (0.019, 0.145), (0.024, 0.162), (0.035, 0.131), (0.056, 0.137)],
    (4, 2, True): [(0.040, 0.100), (0.030, 0.096), (0.019, 0.091), (0.046, 0.089), (0.056, 0.080)],
    (4, 4, True): [(-0.012, 0.103), (-0.005, 0.105), (0.001, 0.114), (0.023, 0.094), (0.056, 0.092)],
    (10, 2, True): [(0.003, 0.047), (-0.007, 0.046), (-0.016, 0.045), (0.015, 0.042), (0.033, 0.039)],
    (10, 4, True): [(-0.042, 0.061), (-0.030, 0.066), (-0.023, 0.078), (0.000, 0.057), (0.038, 0.056)],
    (10, 4, False): [(-0.035, 0.020), (-0.026, 0.021), (-0.015, 0.026), (-0.003, 0.019), (0.018, 0.020)],
}
# Every row without correlation and with faults that follow the initial confusion; every column where the sign turns.
CELLS = [
    (row, column)
    for row in REFERENCE
    for column in range(len(theory.SETTINGS))
    if theory.SETTINGS[column] in ((0.0, "frozen"), (1.0, "frozen")) or row == (10, 4, True)
]
INDEPENDENT, FOLLOWING = (0.0, "frozen"), (1.0, "frozen")


@cache
def arm(rule: str, answers: int, max_calls: int, noise: tuple[float, Mode], seeds: int, slips: bool = True) -> Curves:
    return simulate(rule, answers, max_calls, *noise, seeds=seeds, slips=slips)


def gain(rule: str, baseline: str, answers: int, max_calls: int, noise: tuple[float, Mode], seeds: int = 64) -> Any:
    return difference(arm(rule, answers, max_calls, noise, seeds), arm(baseline, answers, max_calls, noise, seeds))


# What the model predicts


def test_with_little_luck_and_calls_to_spare_the_sign_of_the_gain_turns_with_the_noise() -> None:
    loses, gains = gain("roc", "stratified", 10, 4, INDEPENDENT), gain("roc", "stratified", 10, 4, FOLLOWING)
    assert loses.accuracy.mean < -10 * loses.accuracy.error
    assert gains.accuracy.mean > 10 * gains.accuracy.error


def test_with_much_luck_roc_gains_everywhere_and_most_where_faults_follow_confusion() -> None:
    independent, following = gain("roc", "stratified", 2, 4, INDEPENDENT), gain("roc", "stratified", 2, 4, FOLLOWING)
    assert independent.accuracy.mean > 0
    assert following.accuracy.mean > independent.accuracy.mean + 0.03


def test_candidates_alone_do_nearly_nothing() -> None:
    for answers in (2, 10):
        for max_calls in (2, 4):
            for noise in (INDEPENDENT, FOLLOWING):
                cell = gain("grpo_2g", "grpo", answers, max_calls, noise, seeds=24)
                assert abs(cell.accuracy.mean) < 0.02, (answers, max_calls, noise)


def test_roc_unlearns_to_recover_from_faults() -> None:
    for answers in (2, 10):
        for noise in (INDEPENDENT, FOLLOWING):
            recovery = gain("roc", "stratified", answers, 4, noise).recovery
            assert recovery.mean < -10 * recovery.error < 0, (answers, noise)


def test_weights_are_common_to_both_sides_and_nought_where_one_has_no_case() -> None:
    weights = common_weights(np.array([30.0, 20.0, 0.0, 0.0]), np.array([30.0, 60.0, 5.0, 0.0]))
    assert weights == pytest.approx([15.0, 15.0, 0.0, 0.0])


def test_roc_learns_good_first_calls_faster_than_stratified_and_anti_roc_slower() -> None:
    assert gain("roc", "stratified", 4, 4, INDEPENDENT, seeds=24).good_first.mean > 0.05
    assert gain("anti_roc", "stratified", 4, 4, INDEPENDENT, seeds=24).good_first.mean < -0.02


def test_forgiving_faults_that_are_not_the_policys_doing_loses_less_and_gains_less() -> None:
    assert gain("roc_policy", "stratified", 10, 4, INDEPENDENT).accuracy.mean == pytest.approx(-0.013, abs=0.006)
    assert gain("roc_policy", "stratified", 10, 4, FOLLOWING).accuracy.mean == pytest.approx(0.029, abs=0.006)
    assert gain("roc_policy", "stratified", 2, 4, INDEPENDENT).accuracy.mean == pytest.approx(-0.039, abs=0.008)


def test_normalising_by_turns_makes_the_gain_larger() -> None:
    roc, stratified = (
        simulate(rule, 2, 4, *FOLLOWING, seeds=24, normalisation="turn") for rule in ("roc", "stratified")
    )
    assert difference(roc, stratified).accuracy.mean == pytest.approx(0.138, abs=0.008)


@pytest.mark.parametrize(("row", "column"), CELLS)
def test_table_is_that_of_the_earlier_implementation(row: tuple[int, int, bool], column: int) -> None:
    answers, max_calls, slips = row
    noise, (accuracy, good_first) = theory.SETTINGS[column], REFERENCE[row][column]
    cell = difference(*(arm(rule, answers, max_calls, noise, 24, slips) for rule in ("roc", "stratified")))
    assert cell.accuracy.mean == pytest.approx(accuracy, abs=0.004 + 3 * cell.accuracy.error)
    assert cell.good_first.mean == pytest.approx(good_first, abs=0.004 + 3 * cell.good_first.error)


# The parts


@deterministic
@given(share=st.floats(0.01, 0.999), correlation=st.floats(0, 1))
def test_fault_rate_over_well_formed_first_calls_is_kept_at_every_correlation(share: float, correlation: float) -> None:
    (good,), (confused,) = fault_rates(np.array([share]), correlation)
    assert share * confused + (1 - share) * good == pytest.approx(FAULT_RATE)
    assert 0 <= good <= FAULT_RATE + 1e-12
    assert FAULT_RATE - 1e-12 <= confused <= 0.98 + 1e-12


def test_all_faults_fall_on_confused_code_at_full_correlation_as_far_as_there_is_enough() -> None:
    good, confused = fault_rates(np.array([0.9, 0.1]), 1.0)
    assert confused.tolist() == pytest.approx([0.3 / 0.9, 0.98])
    assert good.tolist() == pytest.approx([0.0, (0.3 - 0.098) / 0.9])


def outcomes_of(policy: tuple[float, ...], good_faults: float, confused_faults: float) -> npt.NDArray[np.float64]:
    return turn_outcomes(np.array([policy]), np.array([good_faults]), np.array([confused_faults]))


def test_exact_accuracy_in_cases_with_a_closed_form() -> None:
    guess = outcomes_of((0, 0, 0, 1), 0.3, 0.3)
    good = outcomes_of((1, 0, 0, 0), 0.3, 0.3)
    confused = outcomes_of((0, 1, 0, 0), 0.3, 0.3)
    slip = outcomes_of((0, 0, 1, 0), 0.3, 0.3)
    for calls in (1, 2, 4):
        assert exact_values(guess, guess, 10, calls)[0] == pytest.approx(0.1)
        assert exact_values(slip, slip, 10, calls)[0] == pytest.approx(0.1)
        assert exact_values(confused, confused, 10, calls)[0] == pytest.approx(0.1)
        assert exact_values(good, good, 10, calls)[0] == pytest.approx(1 - 0.3**calls * 0.9)
    accuracy, after_error = exact_values(slip, good, 10, 2)
    assert accuracy == after_error == pytest.approx(0.7 + 0.3 * 0.1)


def sampled_episodes(rollouts: int = 16, max_calls: int = 3, seeds: int = 6) -> Any:
    uniform = np.random.default_rng(2).random((seeds, 8, rollouts, max_calls + 2))
    before, after = (np.tile(p, (seeds, 1)) for p in (BEFORE, AFTER))
    faults = np.full(seeds, 0.2), np.full(seeds, 0.4)
    first, later = turn_outcomes(before, *faults), turn_outcomes(after, *faults)
    return play(first, later, 4, max_calls, uniform), uniform[..., -1], exact_values(first, later, 4, max_calls)


def test_episodes_are_right_as_often_as_the_exact_values_say() -> None:
    episodes, _, (accuracy, after_error) = sampled_episodes(rollouts=2000)
    assert episodes.right_SPN.mean(axis=(1, 2)) == pytest.approx(accuracy, abs=4 * np.sqrt(0.25 / 16_000))
    erred = episodes.errors_SPN > 0
    right = (episodes.right_SPN & erred).sum(axis=(1, 2)) / erred.sum(axis=(1, 2))
    assert right == pytest.approx(after_error, abs=4 * np.sqrt(0.25 / erred.sum(axis=(1, 2)).min()))
    assert np.all(after_error < accuracy)


def test_episodes_count_calls_errors_and_turns_consistently() -> None:
    e, _, _ = sampled_episodes(rollouts=200)
    assert np.all((e.own_errors_SPN <= e.errors_SPN) & (e.errors_SPN <= e.calls_SPN) & (e.calls_SPN <= 3))
    # The last turn is a call that was delivered or a guess; every turn before it is an error.
    delivered = e.calls_SPN - e.errors_SPN
    assert set(np.unique(delivered)) == {0, 1}
    assert np.array_equal(e.turns_SPN, e.errors_SPN + 1)
    assert np.all(e.right_SPN | ~e.good_SPN)
    assert set(np.unique(e.errors_SPN)) == {0, 1, 2, 3}


class GivenDraws:
    """A generator whose next draws are given: what agents.selection draws for a group."""

    def __init__(self, uniform: npt.NDArray[np.float64]) -> None:
        self.uniform = uniform

    def random(self, size: int) -> npt.NDArray[np.float64]:
        assert size == len(self.uniform)
        return self.uniform

    def standard_exponential(self, size: int) -> npt.NDArray[np.float64]:
        return -np.log1p(-self.random(size))


@pytest.mark.parametrize("rule", RULES)
def test_vectorised_selection_is_that_of_agents(rule: str) -> None:
    episodes, uniform, _ = sampled_episodes(GROUP_SIZE if rule in ("grpo", "grpo_2p") else 2 * GROUP_SIZE)
    chosen = choose(rule, episodes, uniform)
    counted = episodes.own_errors_SPN if rule == "roc_policy" else episodes.errors_SPN
    penalty = np.where(episodes.calls_SPN > 0, counted / np.maximum(episodes.calls_SPN, 1), 0.5)
    kinds_of_group = set()
    for group in np.ndindex(chosen.shape[:2]):
        expected = select(
            rule,
            episodes.right_SPN[group],
            penalty[group],
            GROUP_SIZE,
            GivenDraws(uniform[group]),  # type: ignore[arg-type]
            lengths=episodes.turns_SPN[group],
            qualities=episodes.good_SPN[group],
        )
        assert np.flatnonzero(chosen[group]).tolist() == expected.tolist()
        kinds_of_group.add(int(episodes.right_SPN[group].sum()))
    assert len(kinds_of_group) > 3


def test_advantages_are_standardised_within_the_chosen_and_groups_of_one_reward_are_not_trained_on() -> None:
    right = np.array([[[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]]], dtype=bool)
    chosen = np.array([[[1, 0, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]], dtype=bool)
    advantage, trained = advantages(right, chosen)
    assert trained.tolist() == [[[True, False, True, True, True], [False] * 5, [False] * 5]]
    assert advantage[0, 0] == pytest.approx(np.array([3, 0, -1, -1, -1]) / np.sqrt(3), rel=1e-4)
    assert not advantage[0, 1:].any()


def test_gradients_are_the_slopes_of_the_weighted_log_probability() -> None:
    episodes, _, _ = sampled_episodes()
    generator = np.random.default_rng(0)
    advantage = generator.normal(size=episodes.right_SPN.shape)
    logits = generator.normal(size=(2, 6, 4))

    def objective(logits_2SA: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        total = np.zeros(6)
        for turn, (behaviour, going) in enumerate(episodes.behaviours):
            log_policy = np.log(softmax(logits_2SA[min(turn, 1)]))
            for s in range(6):
                total[s] += (advantage[s] * going[s] * log_policy[s][behaviour[s]]).sum()
        return total

    for state, gradient in enumerate(gradients(episodes, advantage, softmax(logits[0]), softmax(logits[1]))):
        for action in range(4):
            step = np.zeros_like(logits)
            step[state, :, action] = 1e-5
            slope = (objective(logits + step) - objective(logits - step)) / 2e-5
            assert gradient[:, action] == pytest.approx(slope, abs=1e-4)


# Simulation and command


def test_curves_start_at_the_initial_policy_and_are_probabilities() -> None:
    for slips, good in ((True, 0.06), (False, 0.08)):
        curves = simulate("roc", 10, 4, 0.5, "running", seeds=3, steps=20, slips=slips)
        assert curves.accuracy_ST.shape == curves.good_first_ST.shape == (3, 21)
        assert curves.good_first_ST[:, 0] == pytest.approx(good)
        assert np.ptp(curves.accuracy_ST[:, 0]) == 0
        assert np.all((curves.accuracy_ST > 0) & (curves.accuracy_ST < 1))
        assert np.all(curves.accuracy_ST[:, -1] > curves.accuracy_ST[:, 0])


def test_a_policys_curve_depends_on_the_seed_and_not_on_how_many_there_are() -> None:
    few, many = (simulate("roc", 4, 2, 1.0, "frozen", seeds=n, steps=10) for n in (2, 5))
    other = simulate("roc", 4, 2, 1.0, "frozen", seeds=2, steps=10, seed=1)
    assert np.array_equal(few.accuracy_ST, many.accuracy_ST[:2])
    assert not np.array_equal(few.accuracy_ST, other.accuracy_ST)
    assert len(np.unique(many.accuracy_ST[:, -1])) == 5


def test_modes_are_one_without_correlation_and_differ_with_it() -> None:
    def final(correlation: float, mode: Mode) -> list[float]:
        return simulate("roc", 4, 2, correlation, mode, seeds=2, steps=10).accuracy_ST[:, -1].tolist()

    assert final(0.0, "frozen") == final(0.0, "running")
    assert final(1.0, "frozen") != final(1.0, "running")


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_learns(rule: str) -> None:
    curves = simulate(rule, 10, 2, 0.0, "frozen", seeds=4, steps=60)
    assert curves.accuracy_ST[:, -1].mean() > curves.accuracy_ST[:, 0].mean() + 0.03


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rule": "void_turn"}, "rule"),
        ({"answers": 1}, "answers"),
        ({"max_calls": 0}, "max_calls"),
        ({"correlation": -0.1}, "correlation"),
        ({"mode": "drifting"}, "mode"),
        ({"normalisation": "token"}, "normalisation"),
        ({"seeds": 0}, "seeds"),
        ({"steps": 0}, "steps"),
    ],
)
def test_settings_outside_the_model_are_refused_by_name(change: dict[str, Any], field: str) -> None:
    setting: dict[str, Any] = {"rule": "roc", "answers": 2, "max_calls": 2, "correlation": 0.0, "mode": "frozen"}
    with pytest.raises(ConfigError, match=f"^{field}: "):
        simulate(**(setting | change))


def test_a_difference_without_a_standard_error_is_refused() -> None:
    curves = simulate("roc", 2, 2, 0.0, "frozen", seeds=1, steps=2)
    with pytest.raises(ConfigError, match="seeds"):
        difference(curves, curves)


def test_command_prints_and_writes_a_markdown_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "figures" / "theory.md"
    theory.main(TheoryConfig(rows=((2, 2), (10, 2)), slipless_rows=((10, 2),), seeds=2, steps=3, out=out))
    text = capsys.readouterr().out
    assert out.read_text(encoding="utf-8") == text
    title, _, *lines = text.rstrip("\n").split("\n")
    assert "roc − stratified" in title
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["2, 2", "10, 2", "10, 2, no slips"]
    assert {line.count("|") for line in lines} == {7}
