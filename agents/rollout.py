"""Episodes played by a policy, as arrays: the bridge between text (tool_gym) and tokens (generation)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.engine import ALONE, Engine, Sampling
from agents.generation import Bools, Floats, Ints, Tokens
from agents.model import Policy
from agents.tokenizer import BOS, END, Tokenizer
from tool_gym.episodes import EpisodeRecord, Episodes, EpisodeSpec
from tool_gym.errors import ConfigError, DivergenceError, InfrastructureError
from tool_gym.noise import KINDS
from tool_gym.protocol import printable
from tool_gym.rng import UInt64s

_KIND_NUMBER = {"": -1} | {kind: number for number, kind in enumerate(KINDS)}


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """A prompt as ToolEnv shows it: what cannot be shown is escaped."""
    return [BOS, *tokenizer.encode(printable(prompt)), END]


def encode_turn(tokenizer: Tokenizer, turn: str) -> list[int]:
    return [*tokenizer.encode(turn), END]


@dataclass(frozen=True)
class CallTable:
    """One row per tool call of a batch, ordered by rollout, then by call.

    Attributes:
        rollout_C: the rollout it belongs to.
        number_C: its index in the episode.
        quality_C: reasoning quality.
        eligible_C: whether the true result was ok, so that a fault could land.
        scheduled_C, landed_C: whether a fault was drawn, and whether one replaced the result.
        policy_error_C: whether it failed by the policy's doing.
        injected_error_C: whether it failed, as the policy saw it, by a fault: a landed one that is not silent.
        scheduled_kind_C, fault_kind_C: kind of the fault that was drawn, and of the one that landed: its place in
            tool_gym.noise.KINDS, -1 where there is none.
        standing_C: whether the fault that landed is an earlier one that stayed.
        retried_C: whether it met a fault or an error, and the same call was made again later.
        tool_C: name of the tool.
    """

    rollout_C: Ints
    number_C: Ints
    quality_C: npt.NDArray[np.float64]
    eligible_C: Bools
    scheduled_C: Bools
    landed_C: Bools
    policy_error_C: Bools
    injected_error_C: Bools
    scheduled_kind_C: Ints
    fault_kind_C: Ints
    standing_C: Bools
    retried_C: Bools
    tool_C: npt.NDArray[np.str_]


@dataclass(frozen=True)
class TrajectoryBatch:
    """N rollouts of up to T tokens, those of a problem in consecutive rows.

    Attributes:
        tokens_NT, sampled_NT, logprobs_NT, lengths_N, clipped_N: see generation.Generated.
        group_N: index of the problem.
        rewards_N: 1.0 or 0.0.
        valid_N: False after an infrastructure failure: not to be trained on or counted.
        calls_N, errors_N, policy_errors_N, injected_N: tool calls; those not ok as the policy saw them;
            of these, the policy's own; and those that a fault made fail. Infrastructure is in none, and a silent
            wrong value in calls_N only.
        answers_N, turns_N: see EpisodeRecord.
        truncated_N: whether it ended without an answer, out of turns or of tokens.
        void_N: whether some turn had neither a call nor an answer.
        quality_N: greatest quality of a delivered call, 0 without one.
        first_quality_N: quality of the first call, before any fault; NaN without a call.
        first_faulted_N: whether a fault landed on the first call.
        lucky_N: right without a delivered call of quality 1 (a silent wrong value delivers none).
        recovered_N: right after at least one fault, silent ones included.
        calls: the calls one by one.
        records: the episodes.
    """

    tokens_NT: Tokens
    sampled_NT: Bools
    logprobs_NT: Floats
    lengths_N: Ints
    clipped_N: Bools
    group_N: Ints
    rewards_N: npt.NDArray[np.float64]
    valid_N: Bools
    calls_N: Ints
    errors_N: Ints
    policy_errors_N: Ints
    injected_N: Ints
    answers_N: Ints
    turns_N: Ints
    truncated_N: Bools
    void_N: Bools
    quality_N: npt.NDArray[np.float64]
    first_quality_N: npt.NDArray[np.float64]
    first_faulted_N: Bools
    lucky_N: Bools
    recovered_N: Bools
    calls: CallTable
    records: list[EpisodeRecord]

    def __len__(self) -> int:
        return len(self.lengths_N)

    @property
    def sampled_tokens_N(self) -> Ints:
        """Tokens that the policy wrote, of each rollout."""
        return np.asarray(self.sampled_NT.sum(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Play:
    """Episodes to be played: where, which, and under which draws.

    Attributes:
        episodes: runs them, with its task, noise and turns.
        specs: problem and noise key of each of N episodes.
        sampling_keys: (N,) uint64; position t of a rollout is drawn with output t under its key.
        group_N: problem of each rollout; None: each its own.
    """

    episodes: Episodes
    specs: Sequence[EpisodeSpec]
    sampling_keys: UInt64s
    group_N: Ints | None = None


class _EpisodeConversation:
    """Plays rows of a generation against Episodes, one play's rows after another's: decodes turns, encodes replies."""

    def __init__(self, plays: Sequence[Play], tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.plays = plays
        self.place: list[tuple[int, int]] = []  # of each row: its play, and its episode's id there
        for number, play in enumerate(plays):
            self.place += [(number, episode) for episode in play.episodes.begin(play.specs)]
        self.row = {place: row for row, place in enumerate(self.place)}
        self.records: list[EpisodeRecord | None] = [None] * len(self.place)

    def _by_play(self, rows: Sequence[int]) -> Iterator[tuple[Episodes, list[int]]]:
        for number, play in enumerate(self.plays):
            own = [row for row in rows if self.place[row][0] == number]
            if own:
                yield play.episodes, own

    def submit(self, rows: Sequence[int], turns: Sequence[Ints]) -> None:
        text = {row: self.tokenizer.decode(turn.tolist()) for row, turn in zip(rows, turns, strict=True)}
        for episodes, own in self._by_play(rows):
            episodes.submit([self.place[row][1] for row in own], [text[row] for row in own])

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        replies: list[tuple[int, list[int] | None]] = []
        for number, play in enumerate(self.plays):
            if not play.episodes.outstanding:
                continue
            # One that is waited for is enough: the caller asks again.
            for transition in play.episodes.collect(block and not replies):
                row = self.row[number, transition.id]
                if transition.terminated or transition.truncated:
                    self.records[row] = transition.record
                    replies.append((row, None))
                else:
                    replies.append((row, self.tokenizer.encode(transition.observation)))
        return replies

    def abandon(self, rows: Sequence[int]) -> None:
        for episodes, own in self._by_play(rows):
            for row, transition in zip(own, episodes.abandon([self.place[row][1] for row in own]), strict=True):
                self.records[row] = transition.record

    def finished(self) -> list[EpisodeRecord]:
        records = [record for record in self.records if record is not None]
        assert len(records) == len(self.records), "an episode ended without a record"
        return records


def rollout(
    policy: Policy,
    tokenizer: Tokenizer,
    plays: Sequence[Play],
    *,
    context: int,
    max_turn_tokens: int,
    live_rows: int,
    engine: Engine = ALONE,
) -> list[TrajectoryBatch]:
    """Play all episodes of some plays together; a batch for each play.

    Args:
        policy: samples the turns.
        tokenizer: of the environment's tools.
        plays: at least one episode in all.
        context: most tokens of an episode.
        max_turn_tokens, live_rows: see generation.generate.
        engine: does the arithmetic.
    """
    specs = [spec for play in plays for spec in play.specs]
    keys = np.concatenate([np.asarray(play.sampling_keys, dtype=np.uint64) for play in plays])
    prompts: dict[str, int] = {}
    prompt_of_row = np.array([prompts.setdefault(spec.problem.prompt, len(prompts)) for spec in specs], dtype=np.int64)
    encoded = [encode_prompt(tokenizer, prompt) for prompt in prompts]
    longest = max(encoded, key=len)
    if len(longest) + max_turn_tokens > context:
        size = len(longest) + max_turn_tokens
        shown = tokenizer.decode(longest)
        raise ConfigError("policy.context", context, f"room for a prompt and a turn, {size} tokens: {shown!r}")
    conversation = _EpisodeConversation(plays, tokenizer)
    generated = engine.sample(
        Sampling(policy, encoded, prompt_of_row, keys, conversation, context, END, max_turn_tokens, live_rows)
    )
    records = conversation.finished()
    batches, start = [], 0
    for play in plays:
        rows = slice(start, start + len(play.specs))
        batches.append(
            TrajectoryBatch(
                tokens_NT=generated.tokens_NT[rows],
                sampled_NT=generated.sampled_NT[rows],
                logprobs_NT=generated.logprobs_NT[rows],
                lengths_N=generated.lengths_N[rows],
                clipped_N=generated.clipped_N[rows],
                group_N=np.arange(len(play.specs)) if play.group_N is None else play.group_N,
                **summarise(records[rows]),
                records=records[rows],
            )
        )
        start = rows.stop
    return batches


def check_valid(batch: TrajectoryBatch, most: float) -> None:
    """Raises InfrastructureError if a larger share than ``most`` of the rollouts was lost to the machinery.

    What is left says little about the policy then: the loss is not random, it strikes rollouts with more calls.
    """
    lost = int((~batch.valid_N).sum())
    if lost > most * len(batch):
        raise InfrastructureError(
            f"{lost} of {len(batch)} rollouts lost a tool call to the machinery (--run.max-invalid {most:g}): "
            "not the policy's doing, so nothing was learnt from them; see the interpreter pool's log"
        )


def check_finite(batch: TrajectoryBatch, when: str = "") -> None:
    """Raises DivergenceError, ``when`` before what it says, if a sampled token's log-probability is not finite."""
    if not np.isfinite(batch.logprobs_NT[batch.sampled_NT]).all():
        names = ("tokens_NT", "sampled_NT", "logprobs_NT", "lengths_N", "rewards_N", "group_N")
        raise DivergenceError(f"{when}a log-probability is not finite", {name: getattr(batch, name) for name in names})


def call_table(records: Sequence[EpisodeRecord]) -> CallTable:
    rows = [row for number, record in enumerate(records) for row in _call_rows(number, record)]
    columns: tuple[Any, ...] = tuple(zip(*rows, strict=True)) if rows else ((),) * len(fields(CallTable))
    types = (np.int64, np.int64, np.float64, *(np.bool_,) * 5, np.int64, np.int64, np.bool_, np.bool_, np.str_)
    return CallTable(*(np.array(column, dtype=kind) for column, kind in zip(columns, types, strict=True)))


def _call_rows(row: int, record: EpisodeRecord) -> list[tuple[Any, ...]]:
    """The columns of CallTable, in its order, for the calls of one episode."""
    retried = {call.retry_of for call in record.calls}
    return [
        (
            row,
            number,
            call.quality,
            call.eligible,
            call.scheduled,
            call.fault != "",
            call.origin == "policy",
            call.origin == "injected",
            _KIND_NUMBER[call.scheduled_kind],
            _KIND_NUMBER[call.fault],
            call.standing,
            number in retried,
            call.call.tool,
        )
        for number, call in enumerate(record.calls)
        if call.origin != "infrastructure"
    ]


def summarise(records: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """The per-rollout arrays of a TrajectoryBatch, from the episodes' records."""
    count = len(records)
    calls = call_table(records)
    rollout, landed = calls.rollout_C, calls.landed_C

    def per_rollout(mask: Bools) -> Ints:
        return np.bincount(rollout[mask], minlength=count)

    quality = np.zeros(count)
    np.maximum.at(quality, rollout[~landed], calls.quality_C[~landed])
    first = calls.number_C == 0
    first_quality = np.full(count, np.nan)
    first_quality[rollout[first]] = calls.quality_C[first]
    rewards = np.array([1.0 if record.success else 0.0 for record in records])
    injected = per_rollout(calls.injected_error_C)
    policy_errors = per_rollout(calls.policy_error_C)
    return {
        "rewards_N": rewards,
        "valid_N": np.array([record.valid for record in records], dtype=np.bool_),
        "calls_N": np.bincount(rollout, minlength=count),
        "errors_N": injected + policy_errors,
        "policy_errors_N": policy_errors,
        "injected_N": injected,
        "answers_N": np.array([record.answers for record in records], dtype=np.int64),
        "turns_N": np.array([record.turns for record in records], dtype=np.int64),
        "truncated_N": np.array([record.valid and record.answer is None for record in records], dtype=np.bool_),
        "void_N": np.array([record.idle_turns > 0 for record in records], dtype=np.bool_),
        "quality_N": quality,
        "first_quality_N": first_quality,
        "first_faulted_N": per_rollout(first & landed) > 0,
        "lucky_N": (rewards > 0.5) & (quality < 1.0),
        "recovered_N": (rewards > 0.5) & (per_rollout(landed) > 0),
        "calls": calls,
    }


def concatenate(batches: Sequence[TrajectoryBatch]) -> TrajectoryBatch:
    """Batches one after the other; group numbers are kept."""
    width = max(batch.tokens_NT.shape[1] for batch in batches)
    records = [record for batch in batches for record in batch.records]

    def padded(name: str) -> Any:
        arrays = [getattr(batch, name) for batch in batches]
        return np.concatenate([np.pad(a, ((0, 0), (0, width - a.shape[1]))) for a in arrays])

    def joined(name: str) -> Any:
        return np.concatenate([getattr(batch, name) for batch in batches])

    return TrajectoryBatch(
        tokens_NT=padded("tokens_NT"),
        sampled_NT=padded("sampled_NT"),
        logprobs_NT=padded("logprobs_NT"),
        lengths_N=joined("lengths_N"),
        clipped_N=joined("clipped_N"),
        group_N=joined("group_N"),
        **summarise(records),
        records=records,
    )
