"""agents.selection: sizes and quotas, what each rule prefers, and agreement with the released rule of rStar2-Agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from agents.selection import (
    PENALTY,
    SELECTORS,
    error_ratio,
    format_penalty,
    quotas,
    repeated_ngrams,
    rollout_penalties,
    select,
    shape_rewards,
)
from tool_gym.errors import ConfigError

# The same examples on every run; no deadline, for the machine may be busy.
deterministic = settings(derandomize=True, deadline=None)

WITH_QUOTAS = sorted(set(SELECTORS) - {"grpo", "grpo_2g", "grpo_2p", "random", "max_variance", "void_turn"})
DETERMINISTIC = [
    *("grpo", "grpo_2g", "grpo_2p", "roc", "roc_error", "roc_format", "roc_policy", "roc_ngram", "shortest"),
    "anti_roc",
]
Group = dict[str, Any]


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """A group of 1 to 40 rollouts of any class balance, few distinct penalties (so ties), and any minima."""
    n, share = draw(st.integers(1, 40)), draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]))
    # Columns from a drawn seed: drawing every value through hypothesis would take most of the run.
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return {
        "rewards": (rng.random(n) < share).astype(float),
        "penalties": rng.choice([0.0, 0.25, 0.5, 1.0, 1.5], n),
        "keep": draw(st.integers(1, n)),
        "lengths": rng.integers(1, 9, n),
        "qualities": rng.choice([0.0, 0.5, 1.0], n),
        "void": rng.random(n) < 0.3,
        "min_positive": draw(st.integers(0, 5)),
        "min_negative": draw(st.integers(0, 5)),
    }


def chosen(rule: str, group: Group, seed: int = 0) -> npt.NDArray[np.intp]:
    return select(rule, rng=np.random.default_rng(seed), **group)


def released_rule(rewards: list[float], penalties: list[float], keep: int, minimum: int) -> set[int] | None:
    """resample_of_correct of rStar2-Agent for one prompt, re-told in plain Python; None where its assertion fails."""
    n = len(rewards)
    if n == keep:
        return set(range(n))
    wrong = [i for i in range(n) if rewards[i] <= 0]
    right = sorted((i for i in range(n) if rewards[i] > 0), key=lambda i: penalties[i])
    n_wrong, n_right = round(len(wrong) * keep / n), round(len(right) * keep / n)
    least_wrong, least_right = min(minimum, len(wrong)), min(minimum, len(right))
    if n_wrong <= least_wrong:
        n_wrong = least_wrong
        n_right = keep - n_wrong
    if n_right <= least_right:
        n_right = least_right
        n_wrong = keep - n_right
    taken = right[:n_right] + wrong[:n_wrong]
    return set(taken) if len(taken) == keep else None


# What holds for every rule


@pytest.mark.parametrize("rule", sorted(SELECTORS))
@deterministic
@given(group=groups())
def test_selection_has_the_promised_size_and_no_index_twice(rule: str, group: Group) -> None:
    n, keep = len(group["rewards"]), group["keep"]
    picked = chosen(rule, group)
    expected = {"grpo_2g": n, "void_turn": min(keep, int((~group["void"]).sum()))}.get(rule, keep)
    assert len(picked) == expected
    assert np.issubdtype(picked.dtype, np.integer)
    assert np.all(np.diff(picked) > 0)
    assert np.all((picked >= 0) & (picked < n))


@pytest.mark.parametrize("rule", WITH_QUOTAS)
@deterministic
@given(group=groups())
def test_rules_that_share_quotas_keep_the_same_negatives(rule: str, group: Group) -> None:
    def negatives(name: str) -> list[int]:
        return [i for i in chosen(name, group) if group["rewards"][i] == 0]

    assert negatives(rule) == negatives("roc")


@pytest.mark.parametrize("rule", sorted(SELECTORS))
@deterministic
@given(group=groups(), seed=st.integers(0, 5))
def test_selection_is_a_function_of_its_arguments_and_the_generator(rule: str, group: Group, seed: int) -> None:
    before = {name: np.copy(value) for name, value in group.items()}
    assert chosen(rule, group, seed).tolist() == chosen(rule, group, seed).tolist()
    assert all(np.array_equal(before[name], group[name]) for name in group)


@pytest.mark.parametrize("rule", DETERMINISTIC)
def test_rules_without_a_draw_leave_the_generator_alone(rule: str) -> None:
    rng = np.random.default_rng(3)
    state = rng.bit_generator.state
    select(rule, [1, 0, 1, 0], [0, 1, 1, 0], 2, rng, lengths=[1, 2, 3, 4])
    assert rng.bit_generator.state == state


@deterministic
@given(group=groups(), order=st.randoms(use_true_random=False))
def test_roc_keeps_the_same_penalties_however_the_rollouts_are_ordered(group: Group, order: Any) -> None:
    permutation = list(range(len(group["rewards"])))
    order.shuffle(permutation)
    shuffled = dict(group, rewards=group["rewards"][permutation], penalties=group["penalties"][permutation])
    for name in ("lengths", "qualities", "void"):
        shuffled[name] = group[name][permutation]

    def kept_penalties(g: Group) -> list[float]:
        return sorted(g["penalties"][i] for i in chosen("roc", g) if g["rewards"][i] == 1)

    assert kept_penalties(group) == kept_penalties(shuffled)


# Quotas


@deterministic
@given(
    positives=st.integers(0, 40),
    negatives=st.integers(0, 40),
    keep=st.integers(1, 80),
    minima=st.tuples(st.integers(0, 5), st.integers(0, 5)),
)
def test_quotas_are_feasible_add_up_and_respect_the_minima(
    positives: int, negatives: int, keep: int, minima: tuple[int, int]
) -> None:
    keep = max(1, min(keep, positives + negatives))
    if positives + negatives == 0:
        return
    right, wrong = quotas(positives, negatives, keep, min_positive=minima[0], min_negative=minima[1])
    assert right + wrong == keep
    assert min(minima[0], keep // 2, positives) <= right <= positives
    assert min(minima[1], keep // 2, negatives) <= wrong <= negatives


@pytest.mark.parametrize(
    ("positives", "kept"), [(0, 0), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 3), (7, 4), (16, 8), (31, 15), (32, 16)]
)
def test_quotas_of_sixteen_from_thirty_two_are_those_of_the_released_code(positives: int, kept: int) -> None:
    assert quotas(positives, 32 - positives, 16) == (kept, 16 - kept)


def test_quotas_are_repaired_where_the_released_code_fails_its_assertion() -> None:
    assert released_rule([1.0] * 3 + [0.0] * 3, [0.0] * 6, keep=3, minimum=1) is None
    assert quotas(3, 3, 3, min_positive=1, min_negative=1) == (1, 2)


# The rules, one by one


@deterministic
@given(group=groups(), minimum=st.integers(0, 3))
def test_roc_equals_the_released_rule_wherever_that_gives_a_result(group: Group, minimum: int) -> None:
    keep = group["keep"]
    minimum = min(minimum, keep // 2)
    expected = released_rule(group["rewards"].tolist(), group["penalties"].tolist(), keep, minimum)
    if expected is not None:
        group = dict(group, min_positive=minimum, min_negative=minimum)
        assert set(chosen("roc", group).tolist()) == expected


@pytest.mark.parametrize(
    ("rule", "badness"),
    [
        ("roc", lambda g: g["penalties"]),
        ("anti_roc", lambda g: -g["penalties"]),
        ("shortest", lambda g: g["lengths"]),
        ("oracle", lambda g: -g["qualities"]),
    ],
)
@deterministic
@given(group=groups())
def test_sorting_rules_keep_the_best_positives_and_ties_go_to_the_earlier_rollout(
    rule: str, badness: Callable[[Group], npt.NDArray[Any]], group: Group
) -> None:
    picked = set(chosen(rule, group).tolist())
    positives = np.flatnonzero(group["rewards"] == 1).tolist()
    ranked = sorted(positives, key=lambda i: (badness(group)[i], i))
    kept = len(picked & set(positives))
    assert picked & set(positives) == set(ranked[:kept])


@deterministic
@given(group=groups())
def test_grpo_keeps_the_first_rollouts_and_grpo_2g_all_of_them(group: Group) -> None:
    assert chosen("grpo", group).tolist() == list(range(group["keep"]))
    assert chosen("grpo_2p", group).tolist() == list(range(group["keep"]))
    assert chosen("grpo_2g", group).tolist() == list(range(len(group["rewards"])))


@deterministic
@given(group=groups())
def test_max_variance_keeps_as_even_a_split_as_the_classes_allow(group: Group) -> None:
    keep, positives = group["keep"], int(group["rewards"].sum())
    negatives = len(group["rewards"]) - positives
    kept = int(group["rewards"][chosen("max_variance", group)].sum())
    possible = range(max(0, keep - negatives), min(keep, positives) + 1)
    assert kept * (keep - kept) == max(k * (keep - k) for k in possible)


@deterministic
@given(group=groups())
def test_void_turn_never_keeps_a_void_rollout_and_keeps_all_others_where_few(group: Group) -> None:
    rest = np.flatnonzero(~group["void"])
    picked = chosen("void_turn", group)
    assert set(picked) <= set(rest)
    if len(rest) <= group["keep"]:
        assert picked.tolist() == rest.tolist()


def test_void_turn_is_stratified_where_no_rollout_is_void() -> None:
    args = ([1, 1, 1, 1, 0, 0, 0, 0], [0.0] * 8, 4)
    for seed in range(20):
        plain = select("stratified", *args, np.random.default_rng(seed))
        assert select("void_turn", *args, np.random.default_rng(seed)).tolist() == plain.tolist()
        none = select("void_turn", *args, np.random.default_rng(seed), void=[False] * 8)
        assert none.tolist() == plain.tolist()


def test_penalty_trains_on_the_rollouts_of_stratified() -> None:
    args = ([1, 1, 1, 1, 1, 0, 0, 0], np.linspace(0, 1, 8), 4)
    for seed in range(20):
        plain = select("stratified", *args, np.random.default_rng(seed))
        assert select("penalty", *args, np.random.default_rng(seed)).tolist() == plain.tolist()


def inclusion(rule: str, rewards: list[int], penalties: list[float], keep: int, trials: int) -> npt.NDArray[np.int_]:
    """How often each rollout was kept in ``trials`` selections from one generator."""
    rng, counts = np.random.default_rng(20), np.zeros(len(rewards), dtype=int)
    for _ in range(trials):
        counts[select(rule, rewards, penalties, keep, rng)] += 1
    return counts


@pytest.mark.parametrize(("rule", "members"), [("stratified", 6), ("random", 10), ("max_variance", 6)])
def test_uniform_rules_keep_every_rollout_of_a_class_equally_often(rule: str, members: int) -> None:
    # Dirty positives, so that a rule that looked at penalties would show.
    counts = inclusion(rule, [1] * 6 + [0] * 4, [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 0, 0, 0, 0], 5, trials=3000)[:members]
    # Draws without replacement vary less than the multinomial, so the chi-squared test is conservative.
    assert stats.chisquare(counts).pvalue > 0.01


def test_roc_paper_keeps_a_single_positive_in_proportion_to_its_weight() -> None:
    penalties = [0.0, 0.5, 1.0]
    # 3 positives of 9, 2 kept with minima of 1: one positive is kept.
    rng, counts = np.random.default_rng(4), np.zeros(3)
    for _ in range(4000):
        picked = select("roc_paper", [1] * 3 + [0] * 6, penalties + [0.0] * 6, 2, rng, min_positive=1, min_negative=1)
        counts[picked[picked < 3]] += 1
    weights = 1 / (np.array(penalties) + 0.05)
    assert stats.chisquare(counts, 4000 * weights / weights.sum()).pvalue > 0.01


def test_roc_paper_draws_without_replacement_in_successive_proportions() -> None:
    penalties = np.array([0.0, 0.05, 0.15])
    weights = 1 / (penalties + 0.05)
    share = weights / weights.sum()
    left_out = np.array(
        [
            sum(share[j] * share[k] / (1 - share[j]) for j in range(3) for k in range(3) if {i, j, k} == {0, 1, 2})
            for i in range(3)
        ]
    )
    # 3 positives and 3 negatives, 4 kept: two positives, so exactly one is left out.
    counts = inclusion("roc_paper", [1] * 3 + [0] * 3, [*penalties, 0, 0, 0], 4, trials=4000)[:3]
    assert stats.chisquare(4000 - counts, 4000 * left_out).pvalue > 0.01


# One worked example: eight rollouts, four kept (docs/SELECTION.md prints the same group)

REWARDS = [1, 1, 0, 1, 0, 1, 0, 0]
COUNTS: dict[str, list[int]] = {
    "calls": [0, 1, 1, 2, 2, 2, 1, 0],
    "errors": [0, 0, 0, 2, 2, 0, 1, 0],
    "policy_errors": [0, 0, 0, 0, 2, 0, 1, 0],
    "answers": [1, 1, 1, 1, 0, 3, 1, 1],
    "turns": [1, 2, 3, 4, 3, 3, 2, 1],
}
NGRAMS = [0, 0.7, 0, 0.2, 0, 0, 0, 0]
EXTRAS: Group = {
    "lengths": [40, 90, 60, 120, 70, 80, 50, 30],
    "qualities": [0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 0.0, 0.0],
    "void": [False, False, True, True, False, False, False, False],
}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("grpo", [0, 1, 2, 3]),
        ("grpo_2g", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("grpo_2p", [0, 1, 2, 3]),
        ("random", [1, 2, 3, 6]),
        ("stratified", [1, 2, 3, 4]),
        ("roc", [0, 1, 2, 4]),
        ("roc_paper", [1, 2, 3, 4]),
        ("roc_error", [1, 2, 4, 5]),
        ("roc_format", [0, 1, 2, 4]),
        ("roc_policy", [1, 2, 3, 4]),
        ("roc_ngram", [0, 2, 4, 5]),
        ("max_variance", [1, 2, 3, 6]),
        ("shortest", [0, 2, 4, 5]),
        ("void_turn", [1, 4, 5, 6]),
        ("penalty", [1, 2, 3, 4]),
        ("anti_roc", [2, 3, 4, 5]),
        ("oracle", [1, 2, 3, 4]),
    ],
)
def test_worked_example(rule: str, expected: list[int]) -> None:
    penalties = rollout_penalties(rule, **COUNTS, ngrams=NGRAMS)
    assert select(rule, REWARDS, penalties, 4, np.random.default_rng(0), **EXTRAS).tolist() == expected


def test_the_worked_examples_cover_every_rule() -> None:
    marks = test_worked_example.pytestmark  # type: ignore[attr-defined]
    assert {rule for rule, _ in marks[0].args[1]} == set(SELECTORS)


# Penalties and rewards


@pytest.mark.parametrize("n", [1, 2, 4])
@deterministic
@given(seed=st.integers(0, 2**32))
def test_repeated_ngrams_are_those_that_the_policy_wrote_before_in_the_same_rollout(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, sampled = rng.integers(0, 3, (5, 12)), rng.random((5, 12)) < rng.random((5, 1))
    expected = []
    for row, own in zip(tokens, sampled, strict=True):
        written = row[own].tolist()
        grams = [tuple(written[start : start + n]) for start in range(len(written) - n + 1)]
        expected.append(1 - len(set(grams)) / len(grams) if grams else 0.0)
    assert repeated_ngrams(tokens, sampled, n).tolist() == pytest.approx(expected)


def test_a_call_made_again_is_repeated_and_prompts_and_replies_are_not() -> None:
    call = [7, 1, 2, 3, 4, 8]
    tokens = np.array([[9, 9, 9, 9, 9, 9, *call, 5, 5, 5, 5, 5, 5, *call]])
    sampled = np.array([[False] * 6 + [True] * 6 + [False] * 6 + [True] * 6])
    # Of nine runs of four tokens the last three are those of the first call.
    assert repeated_ngrams(tokens, sampled).tolist() == pytest.approx([3 / 9])
    assert repeated_ngrams(tokens, np.zeros_like(sampled)).tolist() == [0]
    with pytest.raises(ConfigError, match="n: got 0"):
        repeated_ngrams(tokens, sampled, 0)


def test_a_rule_that_weighs_ngrams_down_needs_them() -> None:
    with pytest.raises(ValueError, match="roc_ngram: needs ngrams"):
        rollout_penalties("roc_ngram", **COUNTS)
    plain, weighed = rollout_penalties("roc", **COUNTS), rollout_penalties("roc_ngram", **COUNTS, ngrams=NGRAMS)
    assert weighed.tolist() == pytest.approx((plain + NGRAMS).tolist())


def test_error_ratio_is_errors_over_calls_and_a_half_without_a_call() -> None:
    assert error_ratio(4, 1) == 0.25
    assert error_ratio(0, 0) == 0.5
    assert isinstance(error_ratio(2, 1), float)
    assert error_ratio(np.array([0, 1, 2, 4]), np.array([0, 0, 2, 3])).tolist() == [0.5, 0.0, 1.0, 0.75]


@pytest.mark.parametrize(("calls", "errors"), [(1, 2), (1, -1), (0, 1)])
def test_error_ratio_refuses_impossible_counts(calls: int, errors: int) -> None:
    with pytest.raises(ValueError, match="errors <= calls"):
        error_ratio(calls, errors)


@pytest.mark.parametrize(
    ("answers", "turns", "paper", "released"),
    [
        (0, 0, 1.0, 1.0),
        (0, 3, 1.0, 1.0),
        (1, 1, 0.0, 1.0),
        (1, 3, 0.0, 0.0),
        (2, 1, 1.0, 1.0),
        (2, 3, 1 / 3, 1 / 2),
        (2, 2, 1 / 2, 1.0),
        (9, 3, 1.0, 1.0),
    ],
)
def test_format_penalty_of_the_paper_and_of_the_released_code(
    answers: int, turns: int, paper: float, released: float
) -> None:
    assert format_penalty(answers, turns) == pytest.approx(paper)
    assert format_penalty(answers, turns, released=True) == pytest.approx(released)
    both = format_penalty(np.array([answers, 0]), np.array([turns, 1]))
    assert both.tolist() == pytest.approx([paper, 1.0])


@pytest.mark.parametrize(("answers", "turns"), [(-1, 2), (1, 0), (0, -1)])
def test_format_penalty_refuses_impossible_counts(answers: int, turns: int) -> None:
    with pytest.raises(ValueError, match="turns"):
        format_penalty(answers, turns)


def test_rollout_penalties_are_the_sum_that_each_rule_sorts_by() -> None:
    counts: dict[str, Any] = {
        "calls": [0, 2, 4],
        "errors": [0, 1, 3],
        "policy_errors": [0, 0, 1],
        "answers": [1, 1, 2],
        "turns": [1, 3, 5],
    }
    expected = {
        "roc": [0.5, 0.5, 0.75 + 0.2],
        "roc_error": [0.5, 0.5, 0.75],
        "roc_format": [0.0, 0.0, 0.2],
        "roc_policy": [0.5, 0.0, 0.25 + 0.2],
        "stratified": [0.5, 0.5, 0.75 + 0.2],
    }
    for rule, values in expected.items():
        assert rollout_penalties(rule, **counts).tolist() == pytest.approx(values), rule
    released = rollout_penalties("roc", **counts, released_format=True)
    # Without a call p is 1.5 in the released code, where the paper has 0.5.
    assert released.tolist() == pytest.approx([1.5, 0.5, 0.75 + 0.25])


def test_penalty_names_what_each_rule_sorts_by() -> None:
    assert set(PENALTY) == set(SELECTORS)
    assert PENALTY["roc"] == PENALTY["roc_policy"] == "p"
    assert (PENALTY["roc_error"], PENALTY["roc_format"]) == ("p_err", "p_format")
    assert PENALTY["roc_ngram"] == "p+p_ngram"
    assert [rule for rule, selector in SELECTORS.items() if selector.errors == "policy"] == ["roc_policy"]


def test_rules_say_how_many_rollouts_and_prompts_to_sample() -> None:
    plan = {rule: (s.rollouts(8), s.prompts(5), s.keep(8)) for rule, s in SELECTORS.items()}
    assert plan.pop("grpo") == (8, 5, 8)
    assert plan.pop("grpo_2p") == (8, 10, 8)
    assert set(plan.values()) == {(16, 5, 8)}


def test_shape_rewards_changes_only_the_penalty_rule() -> None:
    rewards, penalties = np.array([1.0, 0.0, 1.0]), np.array([0.5, 1.0, 0.0])
    for rule in SELECTORS:
        shaped = shape_rewards(rule, rewards, penalties, 0.2)
        expected = [0.9, -0.2, 1.0] if rule == "penalty" else [1.0, 0.0, 1.0]
        assert shaped.tolist() == pytest.approx(expected)
        assert shaped is not rewards
    assert rewards.tolist() == [1.0, 0.0, 1.0]


# Bad input


def test_an_unknown_rule_is_refused_with_the_names_there_are() -> None:
    rng = np.random.default_rng(0)
    for call in (
        lambda: select("best", [1, 0], [0, 0], 1, rng),
        lambda: shape_rewards("best", [1, 0], [0, 0], 0.1),
        lambda: rollout_penalties("best", calls=[1], errors=[0], policy_errors=[0], answers=[1], turns=[2]),
    ):
        with pytest.raises(ConfigError, match=r"selector.*best.*grpo.*oracle") as caught:
            call()
        assert caught.value.field == "selector"


@pytest.mark.parametrize("rule", sorted(SELECTORS))
def test_fewer_rollouts_than_keep_are_refused(rule: str) -> None:
    extras: dict[str, Any] = {"lengths": [1, 2], "qualities": [0, 1], "void": [False, False]}
    with pytest.raises(ValueError, match="cannot keep 3 of 2"):
        select(rule, [1, 0], [0, 0], 3, np.random.default_rng(0), **extras)


@pytest.mark.parametrize(("rule", "extra"), [("shortest", "lengths"), ("oracle", "qualities")])
def test_rules_that_need_an_extra_ask_for_it(rule: str, extra: str) -> None:
    with pytest.raises(ValueError, match=f"{rule}: needs {extra}"):
        select(rule, [1, 0, 1], [0, 0, 0], 2, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"penalties": [0.0]}, r"penalties: has shape \(1,\), must have \(3,\)"),
        ({"penalties": [0.0, np.nan, 0.0]}, "penalties: has values that are not finite"),
        ({"rewards": [[1, 0, 1]]}, r"rewards: has shape \(1, 3\)"),
        ({"lengths": [1, 2]}, "lengths: has shape"),
        ({"void": [True]}, "void: has shape"),
        ({"keep": 0}, "keep: got 0"),
        ({"min_positive": -1}, "min_positive: got -1"),
    ],
)
def test_malformed_arguments_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"rewards": [1, 0, 1], "penalties": [0.0, 0.0, 0.0], "keep": 2} | change
    with pytest.raises((ValueError, ConfigError), match=message):
        select("roc", rng=np.random.default_rng(0), **arguments)


def test_roc_paper_refuses_a_negative_penalty() -> None:
    with pytest.raises(ValueError, match="roc_paper: needs penalties >= 0"):
        select("roc_paper", [1, 0, 1], [0.0, 0.0, -1.0], 2, np.random.default_rng(0))
