"""Which rollouts of a prompt's group to train on.

Pure functions of rewards, penalties and a generator; nothing here knows of text, models or steps. The
rules answer one question from two sides: what does resample-on-correct (`roc`, rStar2-Agent, arXiv
2508.20722) gain over a rule that differs from it in one thing only? `docs/SELECTION.md` describes each
rule with a worked example and its source.

Shapes: a group is one prompt's n valid rollouts; every array has shape (n,), in rollout order.

Deviations from the released code of rStar2-Agent, each for a reason given in `docs/SELECTION.md`:

1. Class quotas that do not add up to `keep` are repaired; the released code stops on an assertion.
2. An error is a structured status, never the word "error" in a tool's text.
3. The format penalty divides by the number of turns, as the paper has it, not by one less.
4. The minimum of each class is capped at half of `keep`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from tool_gym.errors import ConfigError

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Numbers = Sequence[float] | Sequence[int] | npt.NDArray[Any]

POSITIVE_REWARD = 0.5
"""A rollout is positive where its outcome reward, before any shaping, is above this."""

NO_CALL_ERROR_RATIO = 0.5
"""p_err of a rollout that called no tool: between a clean one and a failed one (arXiv 2508.20722)."""

NGRAM = 4
"""Length, in tokens, of the runs of tokens whose repetition p_ngram counts."""

PAPER_EPSILON = 0.05
"""Added to p before it is inverted in `roc_paper`, so that a clean rollout keeps a finite weight."""


# Penalties


@overload
def error_ratio(calls: float, errors: float) -> float: ...
@overload
def error_ratio(calls: Numbers, errors: Numbers) -> Floats: ...
def error_ratio(calls: float | Numbers, errors: float | Numbers) -> float | Floats:
    """p_err: tool errors divided by tool calls, 0.5 where no tool was called (arXiv 2508.20722).

    Args:
        calls: tool calls of each rollout; a scalar, or an array of any shape.
        errors: those whose result was not ok as the policy saw it; broadcasts against ``calls``.

    Returns:
        The ratio, in [0, 1]: a float for two scalars, else an array.

    Raises:
        ValueError: unless 0 <= errors <= calls everywhere.
    """
    called, failed = np.broadcast_arrays(np.asarray(calls, dtype=np.float64), np.asarray(errors, dtype=np.float64))
    if not bool(np.all((failed >= 0) & (failed <= called))):
        raise ValueError("error_ratio: needs 0 <= errors <= calls")
    ratio = np.where(called > 0, failed / np.maximum(called, 1.0), NO_CALL_ERROR_RATIO)
    return float(ratio) if ratio.ndim == 0 else ratio


@overload
def format_penalty(answers: float, turns: float, *, released: bool = ...) -> float: ...
@overload
def format_penalty(answers: Numbers, turns: Numbers, *, released: bool = ...) -> Floats: ...
def format_penalty(answers: float | Numbers, turns: float | Numbers, *, released: bool = False) -> float | Floats:
    """p_format: 1 without a well-formed answer, else min(1, (answers - 1) / turns) (arXiv 2508.20722).

    Args:
        answers: well-formed answer blocks of each rollout; 0 also where opening and closing answer tags do not
            match. A scalar, or an array of any shape.
        turns: assistant turns, the answering one included; broadcasts against ``answers``.
        released: compute what the released code computes. It counts turns in the response, where the first
            turn's header is missing, so it divides by turns - 1 and gives 1 to a rollout of one turn.

    Returns:
        The penalty, in [0, 1]: a float for two scalars, else an array.

    Raises:
        ValueError: if an entry of ``answers`` or ``turns`` is negative, or there are answers without a turn.
    """
    count, length = np.broadcast_arrays(np.asarray(answers, dtype=np.float64), np.asarray(turns, dtype=np.float64))
    if not bool(np.all((count >= 0) & (length >= 0) & ((count == 0) | (length >= 1)))):
        raise ValueError("format_penalty: needs answers >= 0 and turns >= 0, and turns >= 1 where there are answers")
    divisor = length - 1.0 if released else length
    repeated = np.minimum(1.0, (count - 1.0) / np.maximum(divisor, 1.0))
    penalty = np.where((count < 1) | (divisor < 1), 1.0, repeated)
    return float(penalty) if penalty.ndim == 0 else penalty


def repeated_ngrams(tokens: npt.NDArray[np.integer], sampled: Bools, n: int = NGRAM) -> Floats:
    """p_ngram: the share of a rollout's n-grams that stand in it for a second time or more.

    Of the tokens that the policy wrote, one turn after the other. rStar2-Agent (arXiv 2508.20722) tried to weigh down
    rollouts with repeated n-grams, and reports that it hurt; n and weight are not told.

    Args:
        tokens: ids, shape (rollouts, positions).
        sampled: which of them the policy wrote, same shape.
        n: length of an n-gram, at least 1.

    Returns:
        The share, shape (rollouts,): 0 where nothing is repeated, or fewer than n tokens were written.

    Raises:
        ConfigError: for an ``n`` below 1.
    """
    if n < 1:
        raise ConfigError("n", n, "an integer >= 1")
    count = len(tokens)
    row, position = np.nonzero(sampled)
    written = tokens[row, position]
    if len(written) < n:
        return np.zeros(count)
    windows = np.lib.stride_tricks.sliding_window_view(written, n)
    starts, ends = row[: len(windows)], row[n - 1 :]
    grams = np.column_stack((starts, windows))[starts == ends]  # those that lie in one rollout, its number first
    of_all, of_distinct = (np.bincount(found[:, 0], minlength=count) for found in (grams, np.unique(grams, axis=0)))
    return np.asarray((of_all - of_distinct) / np.maximum(of_all, 1), dtype=np.float64)


def rollout_penalties(
    rule: str,
    *,
    calls: Numbers,
    errors: Numbers,
    policy_errors: Numbers,
    answers: Numbers,
    turns: Numbers,
    ngrams: Numbers | None = None,
    released_format: bool = False,
) -> Floats:
    """The array that ``rule`` sorts by, from what the environment counted: the ``penalties`` of :func:`select`.

    `PENALTY[rule]` says which it is, ``SELECTORS[rule].errors`` which errors p_err counts.

    Args:
        rule: a key of `SELECTORS`.
        calls: tool calls, shape (n,).
        errors: calls whose result was not ok as the policy saw it, injected faults included, shape (n,).
        policy_errors: those of ``errors`` that the policy caused, shape (n,).
        answers: well-formed answers, 0 where the answer tags do not match, shape (n,).
        turns: assistant turns, shape (n,).
        ngrams: p_ngram (:func:`repeated_ngrams`), shape (n,); for `roc_ngram`.
        released_format: the released code's p_format (:func:`format_penalty`).

    Raises:
        ConfigError: for an unknown rule.
        ValueError: for counts that are impossible, or without ``ngrams`` where the rule needs them.
    """
    selector = _selector(rule)
    counted = policy_errors if selector.errors == "policy" else errors
    parts = {
        "p_err": np.asarray(error_ratio(np.asarray(calls), np.asarray(counted)), dtype=np.float64),
        "p_format": np.asarray(
            format_penalty(np.asarray(answers), np.asarray(turns), released=released_format), dtype=np.float64
        ),
    }
    if selector.penalty in parts:
        return parts[selector.penalty]
    p = parts["p_err"] + parts["p_format"]
    if selector.penalty == "p":
        return p
    if ngrams is None:
        raise ValueError(f"{rule}: needs ngrams")
    return p + _vector("ngrams", ngrams, len(p))


# Quotas


def quotas(
    positives: int, negatives: int, keep: int, *, min_positive: int = 2, min_negative: int = 2
) -> tuple[int, int]:
    """How many positives and negatives to keep: the released rule of rStar2-Agent, repaired.

    Each class keeps its share of the group, rounded half to even, but at least its minimum where it has that
    many; the minimum of the positives is looked at last and wins. The released code stops there, and where both
    shares end in one half (3 and 3 to keep 3) their sum misses ``keep``: the number of positives gives way, which
    never asks for more than there are nor for fewer than the minimum.

    Args:
        positives: positives of the group, >= 0.
        negatives: negatives of the group, >= 0.
        keep: rollouts to keep, 1 <= keep <= positives + negatives.
        min_positive: positives to keep where there are that many; capped at keep // 2.
        min_negative: negatives to keep where there are that many; capped at keep // 2.

    Returns:
        (kept positives, kept negatives): within what there is, and they sum to ``keep``.

    Raises:
        ConfigError: for a negative minimum or a ``keep`` below 1.
        ValueError: for fewer rollouts than ``keep``.
    """
    n = _checked_size(positives + negatives, keep, min_positive, min_negative)
    floor_positive = min(min_positive, keep // 2, positives)
    floor_negative = min(min_negative, keep // 2, negatives)
    kept_negative = round(negatives * keep / n)
    kept_positive = round(positives * keep / n)
    if kept_negative <= floor_negative:
        kept_negative, kept_positive = floor_negative, keep - floor_negative
    if kept_positive <= floor_positive:
        kept_negative, kept_positive = keep - floor_positive, floor_positive
    return keep - kept_negative, kept_negative


# Rules


@dataclass(frozen=True, slots=True)
class Group:
    """One prompt's n valid rollouts as the rules see them; arrays of shape (n,), extras None where unknown."""

    positive: Bools
    penalties: Floats
    keep: int
    min_positive: int
    min_negative: int
    lengths: Floats | None = None
    qualities: Floats | None = None
    void: Bools | None = None

    @property
    def size(self) -> int:
        return len(self.positive)

    def quotas(self) -> tuple[int, int]:
        positives = int(self.positive.sum())
        return quotas(
            positives,
            self.size - positives,
            self.keep,
            min_positive=self.min_positive,
            min_negative=self.min_negative,
        )


Penalty = Literal["p", "p_err", "p_format", "p+p_ngram"]
Choose = Callable[[Group, np.random.Generator], Indices]
Key = Callable[[Group, np.random.Generator], Floats]


@dataclass(frozen=True, slots=True)
class Selector:
    """A rule, and what a trainer must know to serve it.

    Attributes:
        choose: the rule itself: (group, generator) -> indices in any order.
        candidates: rollouts to sample for each prompt, in multiples of the group size G.
        prompt_factor: prompts to sample each step, in multiples of the usual number.
        penalty: what ``penalties`` holds: p = p_err + p_format, one of the two, or p with p_ngram.
        errors: which tool errors p_err counts: all that the policy saw, or only those that it caused.
    """

    choose: Choose
    candidates: int = 2
    prompt_factor: int = 1
    penalty: Penalty = "p"
    errors: Literal["all", "policy"] = "all"

    def rollouts(self, group_size: int) -> int:
        """Rollouts to sample for each prompt."""
        return self.candidates * group_size

    def prompts(self, usual: int) -> int:
        """Prompts to sample each step, where the other rules sample ``usual``."""
        return self.prompt_factor * usual

    def keep(self, group_size: int) -> int:
        """The ``keep`` of :func:`select`, and the valid rollouts that a group must have: G for every rule.

        Also for `grpo_2g`, which trains on all there are: a group that lost one of 2G rollouts is still of use.
        """
        return group_size


def _smallest(members: Indices, key: Floats, count: int) -> Indices:
    """The ``count`` members with the smallest keys; ties go to the earlier rollout (a stable sort)."""
    return members[np.argsort(key[members], kind="stable")[:count]]


def _positives_by(key: Key) -> Choose:
    """A rule with the class quotas of `roc`: positives with the smallest keys, negatives in rollout order.

    Rollouts of a prompt are exchangeable, so the first negatives are a uniform sample of them, and arms that
    share their rollouts share these negatives too.
    """

    def choose(group: Group, rng: np.random.Generator) -> Indices:
        kept_positive, kept_negative = group.quotas()
        positives = _smallest(np.flatnonzero(group.positive), key(group, rng), kept_positive)
        return np.concatenate([positives, np.flatnonzero(~group.positive)[:kept_negative]])

    return choose


def _cleanness(group: Group, _: np.random.Generator) -> Floats:
    return group.penalties


def _dirtiness(group: Group, _: np.random.Generator) -> Floats:
    return -group.penalties


def _uniform(group: Group, rng: np.random.Generator) -> Floats:
    # A key for every rollout, not only the positives: the draws then depend on the group's size alone.
    return rng.random(group.size)


def _exponential_race(group: Group, rng: np.random.Generator) -> Floats:
    """Arrival times of exponential clocks with rates 1 / (p + 0.05).

    The first k to arrive are a sample without replacement with probabilities proportional to the rates
    (Efraimidis and Spirakis 2006).
    """
    if np.any(group.penalties < 0):
        raise ValueError("roc_paper: needs penalties >= 0")
    return rng.standard_exponential(group.size) * (group.penalties + PAPER_EPSILON)


def _length(group: Group, _: np.random.Generator) -> Floats:
    if group.lengths is None:
        raise ValueError("shortest: needs lengths")
    return group.lengths


def _confusion(group: Group, _: np.random.Generator) -> Floats:
    if group.qualities is None:
        raise ValueError("oracle: needs qualities")
    return -group.qualities


def _first(group: Group, _: np.random.Generator) -> Indices:
    return np.arange(group.keep)


def _all(group: Group, _: np.random.Generator) -> Indices:
    return np.arange(group.size)


def _random(group: Group, rng: np.random.Generator) -> Indices:
    return _smallest(np.arange(group.size), _uniform(group, rng), group.keep)


def _max_variance(group: Group, rng: np.random.Generator) -> Indices:
    """PODS (2504.13818): half positives and half negatives, as far as there are; uniform within a class."""
    positives, negatives = np.flatnonzero(group.positive), np.flatnonzero(~group.positive)
    kept_negative = min(len(negatives), group.keep - min(len(positives), group.keep // 2))
    key = _uniform(group, rng)
    return np.concatenate(
        [_smallest(positives, key, group.keep - kept_negative), _smallest(negatives, key, kept_negative)]
    )


def _void_turn(group: Group, rng: np.random.Generator) -> Indices:
    """SimpleTIR (2509.02479): without the rollouts that have a void turn, then as `stratified`."""
    if group.void is None:
        return _stratified(group, rng)
    rest = np.flatnonzero(~group.void)
    if len(rest) < group.keep:
        return rest
    remaining = Group(group.positive[rest], group.penalties[rest], group.keep, group.min_positive, group.min_negative)
    return rest[_stratified(remaining, rng)]


_stratified = _positives_by(_uniform)

SELECTORS: dict[str, Selector] = {
    "grpo": Selector(_first, candidates=1),
    "grpo_2g": Selector(_all),
    "grpo_2p": Selector(_first, candidates=1, prompt_factor=2),
    "random": Selector(_random),
    "stratified": Selector(_stratified),
    "roc": Selector(_positives_by(_cleanness)),
    "roc_paper": Selector(_positives_by(_exponential_race)),
    "roc_error": Selector(_positives_by(_cleanness), penalty="p_err"),
    "roc_format": Selector(_positives_by(_cleanness), penalty="p_format"),
    "roc_policy": Selector(_positives_by(_cleanness), errors="policy"),
    "roc_ngram": Selector(_positives_by(_cleanness), penalty="p+p_ngram"),
    "max_variance": Selector(_max_variance),
    "shortest": Selector(_positives_by(_length)),
    "void_turn": Selector(_void_turn),
    "penalty": Selector(_stratified),
    "anti_roc": Selector(_positives_by(_dirtiness)),
    "oracle": Selector(_positives_by(_confusion)),
}
"""The rules by name."""

PENALTY: dict[str, Penalty] = {name: selector.penalty for name, selector in SELECTORS.items()}
"""What each rule's ``penalties`` hold: p = p_err + p_format, one of the two, or p with p_ngram.

In `roc_policy` p has the same two parts, but its p_err counts only the errors that the policy caused:
``SELECTORS[rule].errors`` says so, and :func:`rollout_penalties` computes every rule's array from the counts.
"""


def select(
    rule: str,
    rewards: Numbers,
    penalties: Numbers,
    keep: int,
    rng: np.random.Generator,
    *,
    lengths: Numbers | None = None,
    qualities: Numbers | None = None,
    void: Numbers | Sequence[bool] | None = None,
    min_positive: int = 2,
    min_negative: int = 2,
) -> Indices:
    """Choose the rollouts of one prompt's group to train on.

    Rollouts that are not valid for training must have been removed. Groups of one class only are accepted. The
    result depends on the arguments and the state of ``rng`` alone; only the rules that draw advance it.

    Args:
        rule: a key of `SELECTORS`.
        rewards: outcome rewards before shaping, shape (n,); positive where above 0.5.
        penalties: what the rule sorts by (:func:`rollout_penalties`), shape (n,), finite; other rules ignore it.
        keep: G, the number of rollouts to keep.
        rng: source of the random draws.
        lengths: tokens that the policy wrote, shape (n,); for `shortest`.
        qualities: true reasoning quality of each rollout, shape (n,); for `oracle`.
        void: whether a rollout has a turn with neither call nor answer, shape (n,); for `void_turn`, to which
            None means that none has.
        min_positive: positives to keep where there are that many (:func:`quotas`).
        min_negative: negatives to keep where there are that many.

    Returns:
        Indices into the group, ascending, without repetition: exactly ``keep``, but all n for `grpo_2g`, and for
        `void_turn` fewer where fewer are without a void turn. `grpo` and `grpo_2p` keep the first ``keep``.

    Raises:
        ConfigError: for an unknown rule, a ``keep`` below 1 or a negative minimum.
        ValueError: for fewer rollouts than ``keep``, arrays of different shapes, values that are not finite, or an
            extra that the rule needs and did not get.
    """
    selector = _selector(rule)
    outcome = _vector("rewards", rewards)
    n = _checked_size(len(outcome), keep, min_positive, min_negative)
    group = Group(
        positive=outcome > POSITIVE_REWARD,
        penalties=_vector("penalties", penalties, n),
        keep=keep,
        min_positive=min_positive,
        min_negative=min_negative,
        lengths=None if lengths is None else _vector("lengths", lengths, n),
        qualities=None if qualities is None else _vector("qualities", qualities, n),
        void=None if void is None else _vector("void", void, n) != 0,
    )
    return np.sort(selector.choose(group, rng)).astype(np.intp)


def shape_rewards(rule: str, rewards: Numbers, penalties: Numbers, weight: float) -> Floats:
    """The rewards that advantages are computed from: r - weight * p under `penalty`, else r.

    Args:
        rule: a key of `SELECTORS`.
        rewards: outcome rewards, any shape.
        penalties: p of the same rollouts, same shape.
        weight: λ of the `penalty` rule, >= 0.

    Returns:
        A new array of the same shape.

    Raises:
        ConfigError: for an unknown rule or a weight that is negative or not finite.
        ValueError: for arrays of different shapes.
    """
    _selector(rule)
    if not (np.isfinite(weight) and weight >= 0):
        raise ConfigError("weight", weight, "a finite number >= 0")
    outcome, p = np.array(rewards, dtype=np.float64), np.asarray(penalties, dtype=np.float64)
    if outcome.shape != p.shape:
        raise ValueError(f"shape_rewards: rewards have shape {outcome.shape}, penalties {p.shape}")
    return outcome - weight * p if rule == "penalty" else outcome


# Checks


def _selector(rule: str) -> Selector:
    if rule not in SELECTORS:
        raise ConfigError("selector", rule, ", ".join(SELECTORS))
    return SELECTORS[rule]


def _checked_size(n: int, keep: int, min_positive: int, min_negative: int) -> int:
    for name, value, least in (("keep", keep, 1), ("min_positive", min_positive, 0), ("min_negative", min_negative, 0)):
        if value < least:
            raise ConfigError(name, value, f"an integer >= {least}")
    if n < keep:
        raise ValueError(f"cannot keep {keep} of {n} valid rollouts: drop the group or sample more")
    return n


def _vector(name: str, values: Numbers | Sequence[bool], n: int | None = None) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (n is not None and len(array) != n):
        expected = "(n,)" if n is None else f"({n},)"
        raise ValueError(f"{name}: has shape {array.shape}, must have {expected}, one value a rollout")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: has values that are not finite")
    return array
