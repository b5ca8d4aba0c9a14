"""The smallest model in which selection of rollouts can matter: a softmax over four behaviours, trained by GRPO.

A policy has two states, before an error and after one, and in each a softmax over

    good      code that follows the problem: a call whose result, once delivered, is the right answer
    confused  code that misreads it: a call whose result, once delivered, is right with probability 1/answers
    slip      code that does not run: an error, the policy's own
    guess     an answer without a call, right with probability 1/answers

A well-formed call (good or confused) is faulted with some probability; a fault and a slip put the policy into the
state after an error, where it has another turn; after ``max_calls`` calls without a result it must guess. That is all:
what a selection rule teaches here it teaches because of which of these episodes it shows, and a thousand runs take
seconds.

What is learnt: REINFORCE on the selected rollouts of 8 groups of 16, with the group's advantage (r − mean)/std over
its selected rollouts, groups of equal rewards dropped; plain steps of size 0.24 along the mean, over the trained
episodes (or over their turns, ``normalisation="turn"``), of advantage times the gradient of the log-probability of the
episode's behaviours. The forced guess is no choice and has no gradient, but counts as a turn.

Where faults fall: ``correlation`` moves the fault rate of confused code linearly from the rate (0.3) to
min(0.98, rate/share), where share is that of confused among well-formed first calls; good code has the fault rate that
keeps the rate over well-formed first calls. ``frozen``: share is that of the initial policy, so that faults become
rarer as reasoning improves; ``running``: that of the current policy, so that the rate stays.

What is measured: accuracy, the probability that the first turn is good code, and that of a right answer after a
faulted first call, all exact functions of the policy (no sampling), before the first step and after each.

Details that are a choice: the standard deviation divides by n (dividing by n − 1 makes the steps of all rules that
train on eight of a group 6 % smaller, those of `grpo_2g` 3 %); the penalty is errors/calls, 0.5 without a call, and a
forced guess adds to neither; where slips are excluded, the state after an error starts from its other behaviours in
their proportions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from agents.checkpoint import atomic_write
from agents.selection import PAPER_EPSILON, error_ratio, quotas
from experiments.statistics import auc
from tool_gym import rng
from tool_gym.errors import ConfigError

# Dimension letters: S seeds, P prompts (one group each), N rollouts of a group, A behaviours, T steps + 1.
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Mode = Literal["frozen", "running"]
Normalisation = Literal["episode", "turn"]

GOOD, CONFUSED, SLIP, GUESS = range(4)
BEFORE = (0.06, 0.54, 0.25, 0.15)
AFTER = (0.06, 0.44, 0.25, 0.25)
BEFORE_WITHOUT_SLIPS = (0.08, 0.72, 0.0, 0.20)
AFTER_WITHOUT_SLIPS = (0.08, 0.44 / 0.75, 0.0, 0.25 / 0.75)
MIXTURE_WITHOUT_SLIPS = {"clean": 0.08, "confused": 0.72, "guess": 0.20}
"""The demonstrations that make such a policy, which slips never."""
FAULT_RATE = 0.3
MOST_FAULTS = 0.98
PROMPTS = 8
GROUP_SIZE = 8
STEP_SIZE = 0.24

# What became of a turn, in the order in which one uniform draw is cut up: three ends, then three errors.
GOOD_RESULT, CONFUSED_RESULT, GUESSED, GOOD_FAULTED, CONFUSED_FAULTED, SLIPPED = range(6)
BEHAVIOUR = np.array([GOOD, CONFUSED, GUESS, GOOD, CONFUSED, SLIP])


@dataclass(frozen=True, slots=True)
class Curves:
    """Exact figures of every policy of a simulation.

    Attributes:
        accuracy_ST: probability of a right answer, as recovery under the faults that ``simulate`` is told.
        good_first_ST: probability that the first turn is good code.
        recovery_ST: probability of a right answer where the first call met a fault.
        faulted_first_ST: probability that the first call meets one.
    """

    accuracy_ST: Floats
    good_first_ST: Floats
    recovery_ST: Floats
    faulted_first_ST: Floats

    def areas(self) -> tuple[Floats, Floats]:
        """Area under each seed's accuracy and good-first curve by updates, divided by their number: (S,), (S,)."""
        updates = np.arange(self.accuracy_ST.shape[1], dtype=np.float64)
        accuracy, good_first = (
            np.array([auc(updates, curve) for curve in curves]) for curves in (self.accuracy_ST, self.good_first_ST)
        )
        return accuracy, good_first


@dataclass(frozen=True, slots=True)
class Episodes:
    """What a step's rollouts did.

    Attributes:
        right_SPN: whether the answer was right.
        calls_SPN, errors_SPN, own_errors_SPN: calls, those that failed, those that failed by the policy's doing.
        turns_SPN: turns, a forced guess included.
        good_SPN: whether a good call was delivered.
        behaviours: for each turn the behaviour and whether the episode still went on.
    """

    right_SPN: Bools
    calls_SPN: Ints
    errors_SPN: Ints
    own_errors_SPN: Ints
    turns_SPN: Ints
    good_SPN: Bools
    behaviours: tuple[tuple[Ints, Bools], ...]


# The model


def softmax(logits_SA: Floats) -> Floats:
    """Probabilities of each row of logits; a logit of minus infinity stays impossible."""
    weights = np.exp(logits_SA - logits_SA.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def confused_share(before_SA: Floats) -> Floats:
    """Share of confused among the well-formed first calls, (S,)."""
    return np.asarray(before_SA[:, CONFUSED] / (before_SA[:, GOOD] + before_SA[:, CONFUSED]))


def fault_rates(share_S: Floats, correlation: float) -> tuple[Floats, Floats]:
    """Fault rates of good and of confused code, each (S,), that keep the rate over well-formed first calls."""
    confused_S = FAULT_RATE + correlation * (np.minimum(MOST_FAULTS, FAULT_RATE / share_S) - FAULT_RATE)
    # Without any good code its rate is undefined and without effect.
    good_S = (FAULT_RATE - share_S * confused_S) / np.maximum(1 - share_S, np.finfo(np.float64).tiny)
    # Rounding can leave a rate of nought a little below it.
    return np.clip(good_S, 0.0, 1.0), confused_S


def turn_outcomes(policy_SA: Floats, good_faults_S: Floats, confused_faults_S: Floats) -> Floats:
    """Probability of each of the six outcomes of a turn, (S, 6)."""
    good, confused = policy_SA[:, GOOD], policy_SA[:, CONFUSED]
    return np.stack(
        [
            good * (1 - good_faults_S),
            confused * (1 - confused_faults_S),
            policy_SA[:, GUESS],
            good * good_faults_S,
            confused * confused_faults_S,
            policy_SA[:, SLIP],
        ],
        axis=-1,
    )


def exact_values(first_SO: Floats, later_SO: Floats, answers: int, max_calls: int) -> tuple[Floats, Floats]:
    """Probability of a right answer, (S,), and of one after an error in the first turn, (S,).

    From the outcomes of a first and a later turn, backwards from the guess. What kind of error it was makes no
    difference to what comes after.
    """
    value_S = after_error_S = np.full(len(first_SO), 1 / answers)
    for outcomes_SO in [later_SO] * (max_calls - 1) + [first_SO]:
        lucky_S = (outcomes_SO[:, CONFUSED_RESULT] + outcomes_SO[:, GUESSED]) / answers
        after_error_S = value_S
        value_S = outcomes_SO[:, GOOD_RESULT] + lucky_S + outcomes_SO[:, GOOD_FAULTED:].sum(axis=-1) * value_S
    return value_S, after_error_S


def play(first_SO: Floats, later_SO: Floats, answers: int, max_calls: int, uniform_SPNK: Floats) -> Episodes:
    """Episodes from uniform draws: one for each of ``max_calls`` turns, then one for luck."""
    shape = uniform_SPNK.shape[:-1]
    calls, errors, own_errors, turns = (np.zeros(shape, dtype=np.int64) for _ in range(4))
    good, lucky_end, going = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool), np.ones(shape, dtype=bool)
    behaviours = []
    for turn in range(max_calls):
        cuts_SO = (later_SO if turn else first_SO).cumsum(axis=-1)[:, :-1]
        uniform_SPN = np.ascontiguousarray(uniform_SPNK[..., turn])
        # Cut by cut: with a sum over a last axis of five all of this takes twice as long.
        outcome = np.zeros(shape, dtype=np.intp)
        for cut_S in cuts_SO.T:
            outcome += uniform_SPN >= cut_S[:, None, None]
        behaviours.append((BEHAVIOUR[outcome], going))
        failed = going & (outcome >= GOOD_FAULTED)
        turns += going
        calls += going & (outcome != GUESSED)
        errors += failed
        own_errors += going & (outcome == SLIPPED)
        good |= going & (outcome == GOOD_RESULT)
        lucky_end |= going & ((outcome == CONFUSED_RESULT) | (outcome == GUESSED))
        going = failed
    turns += going
    lucky = (lucky_end | going) & (uniform_SPNK[..., max_calls] < 1 / answers)
    return Episodes(good | lucky, calls, errors, own_errors, turns, good, tuple(behaviours))


# Selection

Key = Callable[[Episodes, Floats], Floats]


def _penalty(episodes: Episodes) -> Floats:
    return np.asarray(error_ratio(episodes.calls_SPN, episodes.errors_SPN))


def _uniform(_: Episodes, uniform_SPN: Floats) -> Floats:
    return uniform_SPN


POSITIVES_BY: dict[str, Key] = {
    "stratified": _uniform,
    "roc": lambda episodes, _: _penalty(episodes),
    "roc_paper": lambda episodes, uniform_SPN: -np.log1p(-uniform_SPN) * (_penalty(episodes) + PAPER_EPSILON),
    "roc_policy": lambda episodes, _: np.asarray(error_ratio(episodes.calls_SPN, episodes.own_errors_SPN)),
    "shortest": lambda episodes, _: episodes.turns_SPN.astype(np.float64),
    "anti_roc": lambda episodes, _: -_penalty(episodes),
    "oracle": lambda episodes, _: -episodes.good_SPN.astype(np.float64),
}
"""Rules with the class quotas of `roc`: which positives they prefer, smallest key first (agents.selection)."""

RULES = ("grpo", "grpo_2g", "grpo_2p", "random", *POSITIVES_BY)
"""Rules of agents.selection that the model knows. The others need what it lacks (formats, void turns), or equal one."""


def ranks(key_SPN: Floats) -> Ints:
    """Rank of each rollout in its group by ascending key, ties in rollout order."""
    return np.argsort(np.argsort(key_SPN, axis=-1, kind="stable"), axis=-1, kind="stable")


@cache
def _kept_positives(size: int) -> tuple[int, ...]:
    """The quota of positives by their number, 0 to ``size``."""
    return tuple(quotas(n, size - n, GROUP_SIZE)[0] for n in range(size + 1))


def choose(rule: str, episodes: Episodes, uniform_SPN: Floats) -> Bools:
    """Which rollouts are trained on, (S, P, N): agents.selection.select for many groups at once."""
    right_SPN = episodes.right_SPN
    size = right_SPN.shape[-1]
    if rule in ("grpo", "grpo_2g", "grpo_2p"):
        return np.ones_like(right_SPN)
    if rule == "random":
        return np.asarray(ranks(uniform_SPN) < GROUP_SIZE)
    kept_SP1 = np.array(_kept_positives(size))[right_SPN.sum(axis=-1, keepdims=True)]
    rank_SPN = ranks(np.where(right_SPN, POSITIVES_BY[rule](episodes, uniform_SPN), np.inf))
    # Negatives in rollout order: the first of them are as good a sample as any.
    negative_rank_SPN = np.cumsum(~right_SPN, axis=-1) - 1
    kept_SPN = np.where(right_SPN, rank_SPN < kept_SP1, negative_rank_SPN < GROUP_SIZE - kept_SP1)
    return np.asarray(kept_SPN, dtype=bool)


# Learning


def advantages(right_SPN: Bools, chosen_SPN: Bools) -> tuple[Floats, Bools]:
    """Advantages within the chosen rollouts of each group, 0 for the others; and which rollouts are trained on.

    A group whose chosen rewards are all equal has no gradient and is not counted among the trained.
    """
    count = chosen_SPN.sum(axis=-1, keepdims=True)
    mean = (right_SPN & chosen_SPN).sum(axis=-1, keepdims=True) / count
    deviation = np.sqrt(mean * (1 - mean))
    trained_SPN = chosen_SPN & (deviation > 0)
    return np.where(trained_SPN, (right_SPN - mean) / (deviation + 1e-6), 0.0), trained_SPN


def gradients(episodes: Episodes, advantage_SPN: Floats, before_SA: Floats, after_SA: Floats) -> tuple[Floats, Floats]:
    """Sums over episodes of advantage times gradient of log-probability, by the logits of each state: (S, A) twice."""
    seeds = len(before_SA)
    offset = 4 * np.arange(seeds)[:, None, None]
    by_turn = [
        np.bincount((offset + behaviour).ravel(), (advantage_SPN * going).ravel(), minlength=4 * seeds).reshape(
            seeds, 4
        )
        for behaviour, going in episodes.behaviours
    ]
    first_SA, later_SA = by_turn[0], np.sum(by_turn[1:], axis=0) if by_turn[1:] else np.zeros((seeds, 4))
    return (
        first_SA - first_SA.sum(axis=-1, keepdims=True) * before_SA,
        later_SA - later_SA.sum(axis=-1, keepdims=True) * after_SA,
    )


def simulate(
    rule: str,
    answers: int,
    max_calls: int,
    correlation: float,
    mode: Mode,
    *,
    seeds: int = 64,
    steps: int = 150,
    slips: bool = True,
    normalisation: Normalisation = "episode",
    seed: int = 0,
    frozen_evaluation: bool = False,
) -> Curves:
    """Train ``seeds`` policies at once and return their curves.

    Rules with the same ``seed`` share their draws, and a policy's curve does not depend on how many there are. At the
    first step the rollouts of `grpo` are the first half of those of the rules that sample twice as many.

    Args:
        rule: one of `RULES`.
        answers: number of possible answers; luck is right once in ``answers``.
        max_calls: calls before the guess is forced.
        correlation: of faults with confusion, 0 to 1.
        mode: whether faults follow the initial policy (``frozen``) or the current one (``running``).
        seeds: S, number of policies.
        steps: number of updates; the curves have one point more.
        slips: whether the initial policy slips; without, it never will.
        normalisation: mean gradient over episodes or over turns.
        seed: of all draws.
        frozen_evaluation: accuracy and recovery are measured under faults that follow the initial policy, in any mode.

    Raises:
        ConfigError: for a rule that the model does not know, or a number out of its range.
    """
    _check(rule, answers, max_calls, correlation, mode, seeds, steps, normalisation)
    start = (BEFORE, AFTER) if slips else (BEFORE_WITHOUT_SLIPS, AFTER_WITHOUT_SLIPS)
    with np.errstate(divide="ignore"):
        before_logits, after_logits = (np.tile(np.log(np.array(p) / sum(p)), (seeds, 1)) for p in start)
    prompts = 2 * PROMPTS if rule == "grpo_2p" else PROMPTS
    size = GROUP_SIZE if rule in ("grpo", "grpo_2p") else 2 * GROUP_SIZE
    initial_share_S = confused_share(softmax(before_logits))
    accuracy_ST, good_first_ST, recovery_ST, faulted_first_ST = (np.empty((seeds, steps + 1)) for _ in range(4))

    def outcomes_under(reference: Mode, before_SA: Floats, after_SA: Floats) -> tuple[Floats, Floats]:
        faults = fault_rates(initial_share_S if reference == "frozen" else confused_share(before_SA), correlation)
        return turn_outcomes(before_SA, *faults), turn_outcomes(after_SA, *faults)

    for step in range(steps + 1):
        before_SA, after_SA = softmax(before_logits), softmax(after_logits)
        outcomes = outcomes_under(mode, before_SA, after_SA)
        apart = frozen_evaluation and mode != "frozen"
        measured = outcomes_under("frozen", before_SA, after_SA) if apart else outcomes
        accuracy_ST[:, step], recovery_ST[:, step] = exact_values(*measured, answers, max_calls)
        good_first_ST[:, step] = before_SA[:, GOOD]
        faulted_first_ST[:, step] = measured[0][:, [GOOD_FAULTED, CONFUSED_FAULTED]].sum(axis=-1)
        if step == steps:
            break
        generator = rng.generator(rng.key(seed, "sampling", step))
        uniform_SPNK = generator.random((seeds, prompts, 2 * GROUP_SIZE, max_calls + 2))[:, :, :size]
        episodes = play(*outcomes, answers, max_calls, uniform_SPNK)
        advantage_SPN, trained_SPN = advantages(
            episodes.right_SPN, choose(rule, episodes, uniform_SPNK[..., max_calls + 1])
        )
        weight_SPN = trained_SPN * (episodes.turns_SPN if normalisation == "turn" else 1)
        scale_S1 = STEP_SIZE / np.maximum(weight_SPN.sum(axis=(1, 2)), 1)[:, None]
        before_gradient, after_gradient = gradients(episodes, advantage_SPN, before_SA, after_SA)
        before_logits, after_logits = (
            before_logits + scale_S1 * before_gradient,
            after_logits + scale_S1 * after_gradient,
        )
    return Curves(accuracy_ST, good_first_ST, recovery_ST, faulted_first_ST)


def _check(
    rule: str,
    answers: int,
    max_calls: int,
    correlation: float,
    mode: str,
    seeds: int,
    steps: int,
    normalisation: str,
) -> None:
    if rule not in RULES:
        raise ConfigError("rule", rule, ", ".join(RULES))
    if not 0 <= correlation <= 1:
        raise ConfigError("correlation", correlation, "0 to 1")
    for name, choice, allowed in (
        ("mode", mode, ("frozen", "running")),
        ("normalisation", normalisation, ("episode", "turn")),
    ):
        if choice not in allowed:
            raise ConfigError(name, choice, ", ".join(allowed))
    for name, number, least in (
        ("answers", answers, 2),
        ("max_calls", max_calls, 1),
        ("seeds", seeds, 1),
        ("steps", steps, 1),
    ):
        if number < least:
            raise ConfigError(name, number, f"an integer >= {least}")


# The table


class Gain(NamedTuple):
    """A mean difference over seeds and its standard error."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.error:.3f}"


@dataclass(frozen=True, slots=True)
class Cell:
    """Differences of two rules in one setting, paired by seed.

    Of the areas under accuracy and good first calls; and of recovery, over all updates, weighted by how many faulted
    first calls both rules have there (``difference``).
    """

    accuracy: Gain
    good_first: Gain
    recovery: Gain

    def __str__(self) -> str:
        return f"{self.accuracy} ({self.good_first})"


def difference(ours: Curves, theirs: Curves) -> Cell:
    """The differences of two rules' curves. Raises ConfigError for one seed."""
    if len(ours.accuracy_ST) < 2:
        raise ConfigError("seeds", len(ours.accuracy_ST), "an integer >= 2, for a standard error")
    deltas = [a_S - b_S for a_S, b_S in zip(ours.areas(), theirs.areas(), strict=True)]
    # Step 0, which both have in common, is left out.
    weights_ST = common_weights(ours.faulted_first_ST, theirs.faulted_first_ST) * (
        np.arange(ours.recovery_ST.shape[1]) > 0
    )
    deltas.append((weights_ST * (ours.recovery_ST - theirs.recovery_ST)).sum(axis=-1) / weights_ST.sum(axis=-1))
    return Cell(*(Gain(float(d_S.mean()), float(d_S.std(ddof=1) / np.sqrt(len(d_S)))) for d_S in deltas))


def common_weights(ours: Floats, theirs: Floats) -> Floats:
    """Weights of a difference of two shares that are known from so many cases: half their harmonic mean, 0 for none.

    Both sides get the same, or one would weigh more where it has more cases (Mantel and Haenszel 1959).
    """
    return np.divide(ours * theirs, ours + theirs, out=np.zeros_like(ours), where=ours * theirs > 0)


SETTINGS: tuple[tuple[float, Mode], ...] = (
    (0.0, "frozen"),
    (0.5, "running"),
    (1.0, "running"),
    (0.5, "frozen"),
    (1.0, "frozen"),
)
"""Columns of the table: correlation and mode. Without correlation the modes are one."""


@dataclass(frozen=True)
class TheoryConfig:
    """Print, for the smallest model, what a selection rule gains over another: a table by luck, budget and noise."""

    rule: str = "roc"
    """The rule: grpo, grpo_2g, grpo_2p, random, stratified, roc, roc_paper, roc_policy, shortest, anti_roc, oracle."""
    baseline: str = "stratified"
    """The rule that it is compared with."""
    rows: tuple[tuple[int, int], ...] = ((2, 2), (2, 4), (4, 2), (4, 4), (10, 2), (10, 4))
    """Rows of the table, each the number of answers and of calls."""
    slipless_rows: tuple[tuple[int, int], ...] = ((10, 4),)
    """Further rows, for a policy that never slips: only faults are left as errors."""
    seeds: int = 64
    """Policies per cell."""
    steps: int = 150
    """Updates."""
    normalisation: Normalisation = "episode"
    """Mean gradient over episodes or over turns."""
    frozen_evaluation: bool = False
    """Figures under faults that follow the initial policy, as those of evaluations do, in any mode."""
    seed: int = 0
    """Seed of all draws."""
    out: Path | None = None
    """A file to write the table to as well."""


def table(config: TheoryConfig) -> str:
    """The table as Markdown. Raises ConfigError for a bad setting."""
    header = ["answers, max calls", *(f"ρ = {rho:g}" + (f" {mode}" if rho else "") for rho, mode in SETTINGS)]
    lines = [
        f"Δ accuracy AUC (Δ AUC of the probability of good code first), {config.rule} − {config.baseline}, "
        f"± standard error, {config.seeds} seeds, {config.steps} steps",
        "",
        "| " + " | ".join(header) + " |",
        "|---" * len(header) + "|",
    ]
    for row in config.rows:
        lines.append(_row(config, *row, slips=True))
    for row in config.slipless_rows:
        lines.append(_row(config, *row, slips=False))
    return "\n".join(lines)


def _row(config: TheoryConfig, answers: int, max_calls: int, *, slips: bool) -> str:
    cells = [f"{answers}, {max_calls}" + ("" if slips else ", no slips")]
    for correlation, mode in SETTINGS:
        arms = [
            simulate(
                rule,
                answers,
                max_calls,
                correlation,
                mode,
                seeds=config.seeds,
                steps=config.steps,
                slips=slips,
                normalisation=config.normalisation,
                seed=config.seed,
                frozen_evaluation=config.frozen_evaluation,
            )
            for rule in (config.rule, config.baseline)
        ]
        cells.append(str(difference(*arms)))
    return "| " + " | ".join(cells) + " |"


def main(config: TheoryConfig) -> None:
    """Print the table, and write it to ``config.out`` where that is given."""
    text = table(config)
    print(text)
    if config.out is not None:
        config.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(config.out, text + "\n")
