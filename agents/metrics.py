"""What is measured, as pure functions of a batch of rollouts and of what selection did to it.

Names are TRL's where it has one. A figure that is undefined (no positive, no call) is NaN here and null in
metrics.jsonl. Rates of errors are pooled: errors / calls over all calls of the rollouts meant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agents.generation import Bools, Ints
from agents.rollout import TrajectoryBatch
from tool_gym.noise import KINDS

Numbers = npt.NDArray[np.float64]

NAN = float("nan")


@dataclass(frozen=True)
class Selection:
    """What selection did to a batch of N candidates.

    Attributes:
        chosen_K: rows over whose rewards advantages are computed, by group.
        rewards_K: their rewards, shaped where the rule shapes them.
        in_loss_K: which of them are trained on: all, unless those that ended without an answer are left out.
        trainable_N: rows of the groups that are trained on.
        penalty_N: what the rule sorts by.
        full_penalty_N: p = p_err + p_format, the same for every rule.
        groups: sampled groups; groups_trained: those trained on; groups_invalid: those with too few valid rollouts.
    """

    chosen_K: Ints
    rewards_K: Numbers
    in_loss_K: Bools
    trainable_N: Bools
    penalty_N: Numbers
    full_penalty_N: Numbers
    groups: int
    groups_trained: int
    groups_invalid: int

    @property
    def trained(self) -> Ints:
        """The rows that are trained on."""
        return self.chosen_K[self.in_loss_K]


def mean(values: npt.NDArray[np.generic]) -> float:
    return float(values.mean()) if len(values) else NAN


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else NAN


def rollout_metrics(batch: TrajectoryBatch) -> dict[str, float]:
    """Of all valid candidates of a step."""
    v = batch.valid_N
    calls = float(batch.calls_N[v].sum())
    groups = [batch.rewards_N[v & (batch.group_N == g)] for g in np.unique(batch.group_N)]
    deviations = np.array([g.std(ddof=1) for g in groups if len(g) > 1])
    return {
        "reward": mean(batch.rewards_N[v]),
        "reward_std": mean(deviations),
        "frac_reward_zero_std": mean(deviations == 0),
        "completions/mean_length": mean(batch.sampled_tokens_N[v]),
        "completions/clipped_ratio": mean(batch.clipped_N[v]),
        "completions/truncated_ratio": mean(batch.truncated_N[v]),
        "tools/call_frequency": mean(batch.calls_N[v]),
        "tools/failure_frequency": ratio(batch.errors_N[v].sum(), calls),
        "tools/policy_failure_frequency": ratio(batch.policy_errors_N[v].sum(), calls),
        "tools/injected_failure_frequency": ratio(batch.injected_N[v].sum(), calls),
        **_failure_by_place(batch),
        "tools/policy_failure_retried": mean(batch.calls.retried_C[_of_valid(batch) & batch.calls.policy_error_C]),
        "tools/policy_failure_recovered": mean(batch.rewards_N[v & (batch.policy_errors_N > 0)]),
        "infrastructure/invalid": float((~v).sum()),
    }


def _failure_by_place(batch: TrajectoryBatch) -> dict[str, float]:
    """The policy's own errors in first calls, and in calls that follow one that failed as the policy saw it."""
    calls = batch.calls
    valid = _of_valid(batch)
    failed = calls.policy_error_C | calls.injected_error_C
    first = calls.number_C == 0
    after_error = ~first & np.concatenate((np.zeros(1, dtype=np.bool_), failed))[: len(failed)]
    return {
        "tools/first_call_policy_failure": mean(calls.policy_error_C[first & valid]),
        "tools/after_error_policy_failure": mean(calls.policy_error_C[after_error & valid]),
    }


def _of_valid(batch: TrajectoryBatch) -> Bools:
    """Which calls of the table are those of valid rollouts."""
    return np.asarray(batch.valid_N[batch.calls.rollout_C])


def eligible_calls(batch: TrajectoryBatch) -> Bools:
    """Which calls of the table a fault could have struck, those of invalid rollouts left out."""
    return batch.calls.eligible_C & _of_valid(batch)


def noise_metrics(batch: TrajectoryBatch) -> dict[str, float]:
    """What became of the faults, in all and by kind, and how those that landed go with the calls' quality.

    ``scheduled``: of calls; ``landed``, and of these ``standing``: of eligible calls; ``retried``: of faults that
    landed; ``recovered``: right rollouts among those in which a fault landed.
    """
    calls = batch.calls
    e = eligible_calls(batch)
    quality, landed = calls.quality_C[e], calls.landed_C[e].astype(np.float64)
    group = batch.group_N[calls.rollout_C[e]]
    figures = {
        **_became_of_faults(batch, calls.scheduled_C, calls.landed_C),
        "noise/standing": mean(calls.standing_C[e]),
        "noise/quality_correlation": correlation(landed, quality),
        "noise/quality_correlation_within": correlation(_centred(landed, group), _centred(quality, group)),
    }
    for number, kind in enumerate(KINDS):
        of_kind = _became_of_faults(batch, calls.scheduled_kind_C == number, calls.fault_kind_C == number)
        figures |= {f"{name}_{kind}": figure for name, figure in of_kind.items()}
    return figures


def _became_of_faults(batch: TrajectoryBatch, scheduled_C: Bools, landed_C: Bools) -> dict[str, float]:
    """Faults scheduled, landed and retried, as shares of calls; and right rollouts, of those in which one landed."""
    calls, valid = batch.calls, _of_valid(batch)
    landed = landed_C & valid
    return {
        "noise/scheduled": mean(scheduled_C[valid]),
        "noise/landed": mean(landed_C[eligible_calls(batch)]),
        "noise/retried": mean(calls.retried_C[landed]),
        "noise/recovered": mean(batch.rewards_N[np.unique(calls.rollout_C[landed])]),
    }


def selection_metrics(batch: TrajectoryBatch, selection: Selection) -> dict[str, float]:
    """What selection favours. ``positives``: all valid right rollouts of the step; ``selected``: those trained on."""
    positive = (batch.rewards_N > 0.5) & batch.valid_N
    chosen = np.zeros(len(batch), dtype=np.bool_)
    chosen[selection.trained] = True
    candidates = positive & selection.trainable_N
    negatives = (batch.rewards_N <= 0.5) & batch.valid_N & selection.trainable_N
    selected = positive & chosen
    tokens = batch.sampled_tokens_N
    values: dict[str, float] = {"roc/penalty_mean": mean(selection.full_penalty_N[batch.valid_N])}
    for name, rows in (("positives", positive), ("selected", selected)):
        calls = float(batch.calls_N[rows].sum())
        values |= {
            f"roc/error_ratio_{name}": ratio(batch.errors_N[rows].sum(), calls),
            f"roc/policy_error_ratio_{name}": ratio(batch.policy_errors_N[rows].sum(), calls),
            f"roc/lucky_{name}": mean(batch.lucky_N[rows]),
            f"roc/recovered_{name}": mean(batch.recovered_N[rows]),
            f"roc/length_{name}": mean(tokens[rows]),
            f"roc/no_call_{name}": mean(batch.calls_N[rows] == 0),
        }
    group = batch.group_N[candidates]
    quality, penalty = batch.quality_N[candidates], selection.full_penalty_N[candidates]
    differential = _selection_differential(quality, group, selected[candidates])
    spread = float(np.sqrt(mean(_centred(quality, group) ** 2)))
    return values | {
        "roc/selection_differential": differential,
        "roc/selection_differential_std": ratio(differential, spread),
        "roc/penalty_quality_correlation": correlation(_centred(penalty, group), _centred(quality, group)),
        "roc/penalty_luck_auroc": within_group_auroc(penalty, batch.lucky_N[candidates], group),
        "roc/kept_positive": ratio(selected.sum(), candidates.sum()),
        "roc/kept_negative": ratio((chosen & negatives).sum(), negatives.sum()),
        "train/groups_trained": float(selection.groups_trained),
        "train/groups_dropped": float(selection.groups - selection.groups_trained - selection.groups_invalid),
        "train/groups_invalid": float(selection.groups_invalid),
        "train/tokens": float(tokens[chosen].sum()),
        "train/tokens_positive": ratio(tokens[selected].sum(), tokens[chosen].sum()),
    }


def evaluation_metrics(batch: TrajectoryBatch) -> dict[str, float]:
    """Of one pass over evaluation problems: the names under ``eval/`` that a pass with noise defines."""
    v = batch.valid_N
    faulted = v & batch.first_faulted_N
    return {
        "good_first_call": mean(batch.first_quality_N[v] == 1.0),
        "accuracy": mean(batch.rewards_N[v]),
        "recovery": mean(batch.rewards_N[faulted]),
        "faulted_first_calls": float(faulted.sum()),
        "error_ratio": ratio(batch.errors_N[v].sum(), batch.calls_N[v].sum()),
        "policy_error_ratio": ratio(batch.policy_errors_N[v].sum(), batch.calls_N[v].sum()),
        "mean_length": mean(batch.sampled_tokens_N[v]),
    }


def correlation(a: Numbers, b: Numbers) -> float:
    """Pearson's correlation; NaN for fewer than two pairs or a constant."""
    if len(a) < 2:
        return NAN
    a, b = a - a.mean(), b - b.mean()
    return ratio(float(a @ b), float(np.sqrt((a @ a) * (b @ b))))


def within_group_auroc(scores: Numbers, labels: Bools, group: Ints) -> float:
    """Probability that a row with the label scores higher than one of its group without; ties count a half."""
    wins, pairs = 0.0, 0
    for number in np.unique(group):
        own, label = scores[group == number], labels[group == number]
        difference = own[label][:, None] - own[~label][None, :]
        wins += float((difference > 0).sum() + 0.5 * (difference == 0).sum())
        pairs += difference.size
    return ratio(wins, pairs)


def _centred(values: Numbers, group: Ints) -> Numbers:
    """Values minus the mean of their group."""
    if not len(values):
        return values
    _, number, size = np.unique(group, return_inverse=True, return_counts=True)
    return np.asarray(values - (np.bincount(number, weights=values) / size)[number])


def _selection_differential(quality: Numbers, group: Ints, selected: Bools) -> float:
    """Mean over groups of: mean quality of its selected positives − mean of all its positives."""
    members = [group == number for number in np.unique(group)]
    differences = [quality[m & selected].mean() - quality[m].mean() for m in members if (m & selected).any()]
    return mean(np.array(differences))


METRICS: tuple[str, ...] = (
    # one definition of the columns of metrics.jsonl: every key is in every row, null where undefined
    "step",
    "reward",
    "reward_std",
    "frac_reward_zero_std",
    "completions/mean_length",
    "completions/clipped_ratio",
    "completions/truncated_ratio",
    "tools/call_frequency",
    "tools/failure_frequency",
    "tools/policy_failure_frequency",
    "tools/injected_failure_frequency",
    "tools/first_call_policy_failure",
    "tools/after_error_policy_failure",
    "tools/policy_failure_retried",
    "tools/policy_failure_recovered",
    "infrastructure/invalid",
    "infrastructure/failures",
    "infrastructure/kills",
    "infrastructure/crashes",
    "noise/scheduled",
    "noise/landed",
    "noise/standing",
    "noise/retried",
    "noise/recovered",
    "noise/quality_correlation",
    "noise/quality_correlation_within",
    *(f"noise/{figure}_{kind}" for kind in KINDS for figure in ("scheduled", "landed", "retried", "recovered")),
    "roc/penalty_mean",
    *(
        f"roc/{figure}_{rows}"
        for figure in ("error_ratio", "policy_error_ratio", "lucky", "recovered", "length", "no_call")
        for rows in ("positives", "selected")
    ),
    "roc/selection_differential",
    "roc/selection_differential_std",
    "roc/penalty_quality_correlation",
    "roc/penalty_luck_auroc",
    "roc/kept_positive",
    "roc/kept_negative",
    "train/groups_trained",
    "train/groups_dropped",
    "train/groups_invalid",
    "train/tokens",
    "train/tokens_positive",
    "train/update_norm",
    "loss",
    "entropy",
    "clip_ratio/region_mean",
    "grad_norm",
    "num_tokens",
    "eval/good_first_call",
    "eval/accuracy",
    "eval/recovery",
    "eval/faulted_first_calls",
    "eval/error_ratio",
    "eval/policy_error_ratio",
    "eval/mean_length",
    "eval/accuracy_clean",
    "eval/accuracy_one_call",
    "eval/accuracy_harder",
    "step_time",
    "time/rollout",
    "time/update",
    "time/evaluation",
)

TIMING = ("step_time", "time/rollout", "time/update", "time/evaluation")
"""Those that depend on the clock."""
