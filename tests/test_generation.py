"""Sampling on token ids: forced replies, limits, refill, and results that depend on nothing but a row's own inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import PolicyConfig
from agents.generation import Generated, generate, sample_tokens
from agents.grpo import token_logprobs
from agents.model import Cache, Policy
from tool_gym import rng

END = 2
VOCABULARY = 12
FORBIDDEN = (0, 1, 11)
CONTEXT = 96


def make_policy(seed: int = 0) -> Policy:
    policy = Policy(
        PolicyConfig(layers=2, width=32, heads=2, context=CONTEXT, max_turn_tokens=12), VOCABULARY, FORBIDDEN
    )
    policy.initialise(seed)
    return policy


class Scripted:
    """Replies to a row's turns with its number of 11s, ends it after its last turn; late by ``delay`` collects."""

    def __init__(self, turns_of_row: Sequence[int], delay: int = 0, reply_length: int = 5) -> None:
        self.left = list(turns_of_row)
        self.delay, self.reply_length = delay, reply_length
        self.turns: dict[int, list[list[int]]] = {}
        self.pending: list[tuple[int, int]] = []
        self.abandoned: list[int] = []

    def submit(self, rows: Sequence[int], turns: Sequence[np.ndarray]) -> None:
        for row, turn in zip(rows, turns, strict=True):
            self.turns.setdefault(row, []).append(turn.tolist())
            self.left[row] -= 1
            self.pending.append((row, self.delay * (1 + row % 3)))

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        due = [row for row, wait in self.pending if wait <= 0]
        if block and not due and self.pending:
            due = [self.pending[0][0]]
        self.pending = [(row, wait - 1) for row, wait in self.pending if row not in due]
        return [(row, None if self.left[row] <= 0 else [11] * (row % self.reply_length + 1)) for row in due]

    def abandon(self, rows: Sequence[int]) -> None:
        self.abandoned += rows


def run(
    decoder: object, rows: int = 24, *, delay: int = 0, live_rows: int = 256, turns: int = 3, seed: int = 1
) -> tuple[Generated, Scripted]:
    prompts = [[1, 4, 5, 6, END], [1, 7, END], [1, *range(3, 11), *range(3, 11), END]]
    uniforms = rng.uniform(rng.key(seed, "sampling", np.arange(rows))[:, None], np.arange(CONTEXT))
    conversation = Scripted([turns] * rows, delay)
    generated = generate(
        decoder,  # type: ignore[arg-type]
        prompts,
        np.arange(rows) % 3,
        uniforms,
        conversation,
        end=END,
        max_turn_tokens=12,
        live_rows=live_rows,
    )
    return generated, conversation


def same(a: Generated, b: Generated) -> bool:
    fields = ("tokens_NT", "sampled_NT", "logprobs_NT", "lengths_N", "clipped_N")
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in fields)


def test_rows_do_not_depend_on_how_late_replies_come_or_how_many_rows_are_live() -> None:
    policy = make_policy()
    reference, _ = run(policy)
    for delay, live_rows in ((1, 256), (7, 256), (0, 4), (3, 5), (2, 16)):
        assert same(reference, run(policy, delay=delay, live_rows=live_rows)[0]), (delay, live_rows)


def test_the_first_rows_are_those_that_fewer_rows_would_have_given() -> None:
    policy = make_policy()
    few, many = run(policy, 8)[0], run(policy, 24)[0]
    width = few.tokens_NT.shape[1]
    assert np.array_equal(few.lengths_N, many.lengths_N[:8])
    assert np.array_equal(few.tokens_NT, many.tokens_NT[:8, :width])
    assert np.array_equal(few.logprobs_NT, many.logprobs_NT[:8, :width])


def test_stored_logprobs_agree_with_one_forward_pass() -> None:
    policy = make_policy()
    generated, _ = run(policy)
    with torch.no_grad():
        again, _ = token_logprobs(policy, torch.from_numpy(generated.tokens_NT), torch.from_numpy(generated.sampled_NT))
    assert generated.sampled_NT.sum() > 200
    assert np.abs(again.numpy() - generated.logprobs_NT[generated.sampled_NT]).max() < 1e-4


def test_sampled_are_the_turns_and_nothing_else_their_ends_included() -> None:
    generated, conversation = run(make_policy())
    for row, turns in conversation.turns.items():
        tokens, sampled = generated.tokens_NT[row], generated.sampled_NT[row]
        assert tokens[sampled].tolist() == [token for turn in turns for token in turn]
        assert all(turn[-1] == END or len(turn) == 12 for turn in turns)
        assert not np.isin(tokens[sampled], FORBIDDEN).any()
        replies = tokens[: generated.lengths_N[row]][~sampled[: generated.lengths_N[row]]]
        assert (replies == 11).sum() == (len(turns) - 1) * (row % 5 + 1)
    assert any(turn[-1] == END for turns in conversation.turns.values() for turn in turns)
    assert not generated.logprobs_NT[~generated.sampled_NT].any()


def test_a_turn_at_its_limit_is_submitted_and_marked_clipped() -> None:
    generated, conversation = run(make_policy())
    for row, turns in conversation.turns.items():
        assert generated.clipped_N[row] == any(turn[-1] != END for turn in turns)
    assert generated.clipped_N.any()
    assert not generated.clipped_N.all()


def test_a_reply_that_does_not_fit_into_the_context_ends_the_episode() -> None:
    generated, conversation = run(make_policy(), turns=50)
    assert len(conversation.abandoned) + int((generated.lengths_N == CONTEXT).sum()) >= 24
    assert generated.clipped_N.all()
    assert (generated.lengths_N <= CONTEXT).all()


class CountingDecoder:
    """Its next token is always (last + 1) mod 10, END after 9: generation needs no transformer."""

    device = torch.device("cpu")

    def new_cache(self, rows: int, positions: int) -> Cache:
        return Cache(torch.zeros(1, rows, 1, 1, positions), torch.zeros(1, rows, 1, positions, 1))

    def prefill(self, tokens_NT: torch.Tensor) -> Cache:
        n, t = tokens_NT.shape
        return Cache(torch.zeros(1, n, 1, 1, t), torch.zeros(1, n, 1, t, 1))

    def decode(self, tokens_R: torch.Tensor, positions_R: torch.Tensor, cache: Cache, key_length: int) -> torch.Tensor:
        assert key_length > int(positions_R.max())
        following = torch.where(tokens_R == 9, END, torch.where(tokens_R == END, 6, tokens_R + 1))
        logits = torch.full((len(tokens_R), VOCABULARY), -torch.inf)
        return logits.scatter(1, following.clamp(max=11)[:, None], 0.0)


def test_tokens_follow_a_decoder_of_a_few_tokens() -> None:
    prompts = [[1, 5, END]]
    conversation = Scripted([1, 1])
    uniforms = np.full((2, CONTEXT), 0.5)
    generated = generate(
        CountingDecoder(), prompts, np.array([0, 0]), uniforms, conversation, end=END, max_turn_tokens=12
    )
    assert conversation.turns == {0: [[6, 7, 8, 9, END]], 1: [[6, 7, 8, 9, END]]}
    assert generated.lengths_N.tolist() == [8, 8]
    assert not generated.logprobs_NT.any()


def test_prompts_that_cannot_be_played_are_refused() -> None:
    for prompt in ([], [1] * CONTEXT):
        with pytest.raises(ValueError, match="does not fit a context"):
            generate(
                CountingDecoder(),
                [prompt],
                np.array([0]),
                np.full((1, CONTEXT), 0.5),
                Scripted([1]),
                end=END,
                max_turn_tokens=12,
            )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.just(float("-inf")), st.floats(-20, 20)), min_size=2, max_size=40).filter(
        lambda row: max(row) > float("-inf")
    ),
    st.floats(0, 1),
)
def test_tokens_of_probability_zero_never_come_out(row: list[float], uniform: float) -> None:
    logits = torch.tensor([row], dtype=torch.float32)
    token, logprob = sample_tokens(logits, torch.tensor([uniform], dtype=torch.float32))
    assert row[int(token)] > float("-inf")
    assert float(logprob) == pytest.approx(float(torch.log_softmax(logits, -1)[0, token]), abs=1e-4)


def test_sampling_by_inverse_cdf_has_the_softmax_frequencies() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, -torch.inf, 2.0])
    count = 100_000
    uniforms = torch.from_numpy(rng.uniform(rng.key(0, "sampling"), np.arange(count)).astype(np.float32))
    tokens, _ = sample_tokens(logits.expand(count, -1), uniforms)
    frequencies = torch.bincount(tokens, minlength=5) / count
    assert torch.allclose(frequencies, torch.softmax(logits, -1), atol=0.005)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_generation_and_update_run_in_bf16_on_cuda() -> None:
    config = PolicyConfig(layers=2, width=32, heads=2, context=CONTEXT, max_turn_tokens=12)
    policy = Policy(config, VOCABULARY, FORBIDDEN, torch.bfloat16)
    policy.initialise(0)
    generated, _ = run(policy.cuda())
    with torch.no_grad():
        tokens, sampled = torch.from_numpy(generated.tokens_NT).cuda(), torch.from_numpy(generated.sampled_NT).cuda()
        again, _ = token_logprobs(policy, tokens, sampled)
    assert np.abs(again.cpu().numpy() - generated.logprobs_NT[generated.sampled_NT]).max() < 0.1
