"""What is measured, on a small batch that can be counted by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.metrics import (
    METRICS,
    Selection,
    correlation,
    evaluation_metrics,
    noise_metrics,
    rollout_metrics,
    selection_metrics,
    within_group_auroc,
)
from agents.rollout import TrajectoryBatch, concatenate, summarise
from tool_gym.episodes import CallRecord, EpisodeRecord
from tool_gym.noise import KINDS
from tool_gym.tasks import Problem
from tool_gym.tools import ToolCall, ToolResult

OK, BAD, LOST = ToolResult("ok"), ToolResult("error", "SyntaxError", "line 1"), ToolResult("infrastructure", "lost")
TIMEOUT = ToolResult("error", "timeout", "no reply")
WRONG = ToolResult("ok", output="9")


def call(quality: float, kind: str = "ok", standing: bool = False, retry_of: int = -1) -> CallRecord:
    """A call that worked, failed by the policy's doing, met a fault or a silent one, or was lost with the machinery."""
    true, seen, fault, origin = {
        "ok": (OK, OK, "", ""),
        "bad": (BAD, BAD, "", "policy"),
        "fault": (OK, TIMEOUT, "timeout", "injected"),
        "silent": (OK, WRONG, "wrong_value", ""),
        "lost": (LOST, LOST, "", "infrastructure"),
    }[kind]
    scheduled = "" if standing else fault
    return CallRecord(
        ToolCall("python", "1"),
        true,
        seen,
        quality,
        true.ok,
        fault,
        bool(scheduled),
        origin,  # type: ignore[arg-type]
        1,
        scheduled,
        standing,
        standing,
        retry_of,
    )


def episode(calls: list[CallRecord], success: bool, answers: int = 1, valid: bool = True) -> EpisodeRecord:
    return EpisodeRecord(
        Problem("p", "1"), 0, calls=calls, turns=len(calls) + 1, answers=answers, success=success, valid=valid
    )


def make(records: list[EpisodeRecord], groups: list[int]) -> TrajectoryBatch:
    n, width = len(records), 6
    sampled = np.zeros((n, width), dtype=np.bool_)
    for row in range(n):
        sampled[row, 1 : 2 + row % 4] = True
    return TrajectoryBatch(
        tokens_NT=np.ones((n, width), dtype=np.int64),
        sampled_NT=sampled,
        logprobs_NT=np.zeros((n, width), dtype=np.float32),
        lengths_N=np.full(n, width),
        clipped_N=np.zeros(n, dtype=np.bool_),
        group_N=np.array(groups),
        **summarise(records),
        records=records,
    )


RECORDS = [
    episode([call(1.0)], True),  # clean
    episode([call(0.0, "bad"), call(1.0)], True),  # slip, then right
    episode([call(0.0)], True),  # confused and lucky
    episode([call(0.5)], False),
    episode([call(1.0, "fault"), call(1.0)], True),  # recovered
    episode([call(1.0, "fault")], True),  # the good call was never delivered: lucky
    episode([], False, answers=0),
    episode([call(1.0), call(1.0, "lost")], False, valid=False),
]
BATCH = make(RECORDS, [0, 0, 0, 0, 1, 1, 1, 1])


def test_rollouts_are_judged_by_what_was_delivered() -> None:
    assert BATCH.quality_N.tolist() == [1, 1, 0, 0.5, 1, 0, 0, 1]
    assert BATCH.lucky_N.tolist() == [False, False, True, False, False, True, False, False]
    assert BATCH.recovered_N.tolist() == [False, False, False, False, True, True, False, False]
    assert BATCH.first_faulted_N.tolist() == [False, False, False, False, True, True, False, False]
    first = BATCH.first_quality_N
    assert first[:6].tolist() == [1, 0, 0, 0.5, 1, 1]
    assert np.isnan(first[6])


def test_errors_are_what_the_policy_saw_and_infrastructure_is_none() -> None:
    assert BATCH.calls_N.tolist() == [1, 2, 1, 1, 2, 1, 0, 1]
    assert BATCH.errors_N.tolist() == [0, 1, 0, 0, 1, 1, 0, 0]
    assert BATCH.policy_errors_N.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert BATCH.injected_N.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]


def test_invalid_rollouts_count_in_no_figure() -> None:
    figures = rollout_metrics(BATCH)
    assert figures["reward"] == pytest.approx(5 / 7)
    assert figures["infrastructure/invalid"] == 1
    assert figures["tools/call_frequency"] == pytest.approx(8 / 7)
    assert figures["tools/failure_frequency"] == pytest.approx(3 / 8)
    assert figures["tools/policy_failure_frequency"] == pytest.approx(1 / 8)
    assert figures["tools/first_call_policy_failure"] == pytest.approx(1 / 6)
    assert figures["tools/after_error_policy_failure"] == 0
    assert figures["frac_reward_zero_std"] == 0


def test_noise_is_counted_over_eligible_calls() -> None:
    figures = noise_metrics(BATCH)
    assert figures["noise/landed"] == pytest.approx(2 / 7)
    assert figures["noise/scheduled"] == pytest.approx(2 / 8)
    assert figures["noise/quality_correlation"] > 0


# Right through a lie that stayed, by another call; a fault that was retried in vain; an own error made again.
FAULTED = make(
    [
        episode([call(1.0, "silent"), call(1.0, "silent", standing=True, retry_of=0), call(0.5)], True),
        episode([call(0.5, "fault"), call(0.5, "fault", retry_of=0), call(0.5, retry_of=1)], False),
        episode([call(0.0, "bad"), call(0.0, "bad", retry_of=0)], True),
        episode([call(1.0, "fault"), call(1.0, "lost", retry_of=0)], False, valid=False),
    ],
    [0, 0, 1, 1],
)


def test_a_silent_fault_is_no_error_but_delivers_nothing_true() -> None:
    assert FAULTED.errors_N.tolist() == [0, 2, 2, 1]
    assert FAULTED.injected_N.tolist() == [0, 2, 0, 1]
    assert FAULTED.quality_N.tolist() == [0.5, 0.5, 0.0, 0.0]
    assert FAULTED.lucky_N.tolist() == [True, False, True, False]
    assert FAULTED.recovered_N.tolist() == [True, False, False, False]
    assert FAULTED.first_faulted_N.tolist() == [True, True, False, True]
    figures = rollout_metrics(FAULTED)
    assert figures["tools/failure_frequency"] == pytest.approx(4 / 8)
    assert figures["tools/injected_failure_frequency"] == pytest.approx(2 / 8)


def test_what_became_of_faults_and_errors_is_told_by_kind_and_origin() -> None:
    figures = noise_metrics(FAULTED)
    expected = {
        "scheduled": 3 / 8,
        "landed": 4 / 6,
        "standing": 1 / 6,
        "retried": 3 / 4,
        "recovered": 1 / 2,
        "scheduled_timeout": 2 / 8,
        "landed_timeout": 2 / 6,
        "retried_timeout": 1,
        "recovered_timeout": 0,
        "scheduled_wrong_value": 1 / 8,
        "landed_wrong_value": 2 / 6,
        "retried_wrong_value": 1 / 2,
        "recovered_wrong_value": 1,
        "scheduled_connection": 0,
        "landed_connection": 0,
    }
    assert {name: figures[f"noise/{name}"] for name in expected} == pytest.approx(expected)
    assert math.isnan(figures["noise/retried_connection"])
    assert math.isnan(figures["noise/recovered_connection"])
    own = rollout_metrics(FAULTED)
    assert own["tools/policy_failure_retried"] == pytest.approx(1 / 2)
    assert own["tools/policy_failure_recovered"] == 1


def test_faults_of_each_kind_add_up_to_all() -> None:
    for batch in (BATCH, FAULTED):
        figures = noise_metrics(batch)
        for name in ("scheduled", "landed"):
            assert sum(figures[f"noise/{name}_{kind}"] for kind in KINDS) == pytest.approx(figures[f"noise/{name}"])


def test_selection_is_described_within_groups() -> None:
    chosen = np.array([0, 3])
    trainable = np.array([True] * 4 + [False] * 4)
    penalties = np.array([0, 0.5, 0, 0, 0.5, 1, 1.5, 0])
    both = np.ones(2, dtype=np.bool_)
    selection = Selection(chosen, BATCH.rewards_N[chosen], both, trainable, penalties, penalties, 2, 1, 1)
    figures = selection_metrics(BATCH, selection)
    assert figures["roc/error_ratio_positives"] == pytest.approx(3 / 7)
    assert figures["roc/error_ratio_selected"] == 0
    assert figures["roc/lucky_positives"] == pytest.approx(2 / 5)
    assert figures["roc/lucky_selected"] == 0
    assert figures["roc/recovered_positives"] == pytest.approx(2 / 5)
    assert figures["roc/kept_positive"] == pytest.approx(1 / 3)
    assert figures["roc/kept_negative"] == 1
    assert figures["roc/selection_differential"] == pytest.approx(1 - 2 / 3)
    assert figures["roc/penalty_luck_auroc"] == pytest.approx(0.25)
    assert figures["train/groups_trained"] == 1
    assert figures["train/groups_invalid"] == 1
    assert figures["train/tokens_positive"] == pytest.approx(1 / 5)
    # What is left out of the loss is not trained on.
    figures = selection_metrics(BATCH, dataclasses.replace(selection, in_loss_K=np.array([True, False])))
    assert figures["train/tokens"] == figures["train/tokens_positive"] == 1
    assert figures["roc/kept_negative"] == 0


def test_evaluation_of_the_batch() -> None:
    figures = evaluation_metrics(BATCH)
    assert figures["accuracy"] == pytest.approx(5 / 7)
    assert figures["good_first_call"] == pytest.approx(3 / 7)
    assert figures["recovery"] == 1
    assert figures["faulted_first_calls"] == 2


def test_the_columns_of_the_noise_are_the_same_for_every_batch() -> None:
    empty = make([episode([], False)], [0])
    columns = [name for name in METRICS if name.startswith("noise/")]
    for batch in (BATCH, FAULTED, empty):
        assert sorted(noise_metrics(batch)) == sorted(columns)
    assert len(columns) == 7 + 4 * len(KINDS)


def test_every_figure_has_a_column() -> None:
    figures = rollout_metrics(BATCH) | noise_metrics(BATCH)
    figures |= selection_metrics(
        BATCH,
        Selection(
            np.array([0]), np.ones(1), np.ones(1, bool), BATCH.valid_N, BATCH.quality_N, BATCH.quality_N, 2, 1, 0
        ),
    )
    figures |= {f"eval/{name}": value for name, value in evaluation_metrics(BATCH).items()}
    assert figures.keys() <= set(METRICS)
    assert len(set(METRICS)) == len(METRICS)


def test_undefined_figures_are_nan_and_raise_no_warning() -> None:
    empty = make([episode([], False)], [0])
    nothing = Selection(
        np.zeros(0, int), np.zeros(0), np.zeros(0, bool), np.zeros(1, bool), np.zeros(1), np.zeros(1), 1, 0, 0
    )
    figures = rollout_metrics(empty) | noise_metrics(empty) | selection_metrics(empty, nothing)
    assert math.isnan(figures["tools/failure_frequency"])
    assert math.isnan(figures["noise/landed"])
    assert math.isnan(figures["roc/error_ratio_positives"])
    assert figures["reward"] == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 2), st.booleans()), max_size=25))
def test_auroc_counts_pairs_within_groups(rows: list[tuple[int, float, bool]]) -> None:
    group, score, label = (np.array([row[i] for row in rows], dtype=kind) for i, kind in enumerate((int, float, bool)))
    wins = [
        1.0 if score[a] > score[b] else 0.5 if score[a] == score[b] else 0.0
        for a in range(len(rows))
        for b in range(len(rows))
        if group[a] == group[b] and label[a] and not label[b]
    ]
    value = within_group_auroc(score, label, group)
    assert math.isnan(value) if not wins else value == pytest.approx(np.mean(wins))


def test_correlation_is_pearsons_and_undefined_for_a_constant() -> None:
    a, b = np.array([1.0, 2, 3, 5]), np.array([2.0, 1, 4, 4])
    assert correlation(a, b) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert math.isnan(correlation(a, np.ones(4)))
    assert math.isnan(correlation(a[:1], b[:1]))


def test_batches_join_in_order() -> None:
    half = make(RECORDS[4:], [1, 1, 1, 1])
    joined = concatenate([make(RECORDS[:4], [0, 0, 0, 0]), half])
    assert joined.errors_N.tolist() == BATCH.errors_N.tolist()
    assert joined.calls.rollout_C.tolist() == BATCH.calls.rollout_C.tolist()
    assert joined.group_N.tolist() == BATCH.group_N.tolist()
