"""Sampling on token ids: forced replies, limits, refill, and results that depend on nothing but a row's own inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agents import frozen, generation
from agents.cache import BatchedCache, Cache, SequentialCache, new_cache
from agents.config import AlgoConfig, PolicyConfig
from agents.engine import packed_logits
from agents.frozen import FrozenPolicy
from agents.generation import Generated, Ints, generate, sample_tokens
from agents.grpo import TrainingBatch, token_logprobs, update
from agents.model import Policy
from agents.packing import pack
from tests.tiny import DEVICES
from tool_gym import rng

Sampler = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]

END = 2
VOCABULARY = 12
FORBIDDEN = (0, 1, 11)
CONTEXT = 96


def make_policy(heads: int = 2) -> Policy:
    policy = Policy(
        PolicyConfig(layers=2, width=32, heads=heads, context=CONTEXT, max_turn_tokens=12), VOCABULARY, FORBIDDEN
    )
    policy.initialise(0)
    return policy


class Scripted:
    """Replies to a row's turns with 11s, as many as its number says, and ends it after its last turn.

    Replies are late by ``delay`` collects and more.
    """

    def __init__(self, numbers: Sequence[int], turns: int, delay: int = 0) -> None:
        self.numbers, self.delay = numbers, delay
        self.left = [turns for _ in numbers]
        self.turns: dict[int, list[list[int]]] = {}
        self.pending: list[tuple[int, int]] = []
        self.abandoned: list[int] = []

    def submit(self, rows: Sequence[int], turns: Sequence[np.ndarray]) -> None:
        for row, turn in zip(rows, turns, strict=True):
            self.turns.setdefault(row, []).append(turn.tolist())
            self.left[row] -= 1
            self.pending.append((row, self.delay * (1 + self.numbers[row] % 3)))

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        due = [row for row, wait in self.pending if wait <= 0]
        if block and not due and self.pending:
            due = [self.pending[0][0]]
        self.pending = [(row, wait - 1) for row, wait in self.pending if row not in due]
        return [(row, [11] * (self.numbers[row] % 13 + 1) if self.left[row] > 0 else None) for row in due]

    def abandon(self, rows: Sequence[int]) -> None:
        self.abandoned += rows


def run(
    policy: Policy,
    rows: int | Sequence[int] = 24,
    *,
    delay: int = 0,
    live_rows: int = 256,
    block_rows: int = 128,
    turns: int = 3,
    streams: int = 24,
) -> tuple[Generated, Scripted]:
    """Rows of these numbers; those that are the same modulo ``streams`` have the same prompt and draws."""
    numbers = list(range(rows)) if isinstance(rows, int) else list(rows)
    prompts = [[1, 4, 5, 6, END], [1, 7, END], [1, *range(3, 11), *range(3, 11), END]]
    conversation = Scripted(numbers, turns, delay)
    decoder = FrozenPolicy(policy)
    decoder.block_rows = block_rows
    stream = np.array(numbers) % streams
    generated = generate(
        decoder,
        prompts,
        stream % 3,
        rng.key(1, "sampling", stream),
        conversation,
        context=CONTEXT,
        end=END,
        max_turn_tokens=12,
        live_rows=live_rows,
    )
    return generated, conversation


def recomputed(policy: Policy, generated: Generated) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Log-probabilities of the sampled tokens by one forward pass, and where they are."""
    groups = [np.arange(len(generated.lengths_N))]
    packed = pack(generated.tokens_NT, generated.sampled_NT, generated.lengths_N, groups, policy.device)
    assert len(packed.targets_K) == generated.sampled_NT.sum()
    with torch.no_grad():
        return token_logprobs(packed_logits(policy, packed), packed.targets_K)[0].cpu().numpy(), packed.where


def same(a: Generated, b: Generated) -> bool:
    fields = ("tokens_NT", "sampled_NT", "logprobs_NT", "lengths_N", "clipped_N")
    return all(np.array_equal(getattr(a, f), getattr(b, f)) for f in fields)


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_rows_do_not_depend_on_how_late_replies_come_or_how_many_rows_are_decoded_together(heads: int) -> None:
    policy = make_policy(heads=heads)
    # Of its replies some are fed one by one, and the long ones at once.
    reference, _ = run(policy)
    for delay, live_rows, block_rows in ((1, 256, 128), (7, 256, 5), (0, 4, 128), (3, 5, 4), (2, 16, 8)):
        again, _ = run(policy, delay=delay, live_rows=live_rows, block_rows=block_rows)
        assert same(reference, again), (delay, live_rows, block_rows)


@pytest.mark.parametrize("heads", [1, 2])
def test_batched_products_sample_the_same(heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache of a GPU, through everything that becomes of a cache while rows come and go."""
    policy = make_policy(heads=heads)
    reference, _ = run(policy, 60, streams=20)
    monkeypatch.setattr(frozen, "new_cache", BatchedCache)
    for delay, live_rows, block_rows in ((0, 256, 128), (7, 20, 5), (3, 12, 128)):
        again, _ = run(policy, 60, streams=20, delay=delay, live_rows=live_rows, block_rows=block_rows)
        assert np.array_equal(again.tokens_NT, reference.tokens_NT), (delay, live_rows, block_rows)
        assert np.abs(again.logprobs_NT - reference.logprobs_NT).max() < 1e-5


@pytest.mark.parametrize("kind", [SequentialCache, BatchedCache])
def test_a_policy_that_diverged_leaves_the_rows_of_another_alone(
    kind: type[Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows come and go in the same places: see agents.stack."""
    sound, broken = make_policy(), make_policy()
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(torch.nan)
    monkeypatch.setattr(frozen, "new_cache", kind)
    for seed in range(4):
        decoder = FrozenPolicy(sound, broken)
        decoder.block_rows = 12
        owners = np.random.default_rng(seed).integers(0, 2, 48)
        prompts = [[1, 4, 5, 6, END], [1, 7, 8, END]]
        generated = generate(
            decoder,
            prompts,
            owners,
            rng.key(seed, "sampling", np.arange(48)),
            Scripted(list(range(48)), 5, 7),
            context=CONTEXT,
            end=END,
            max_turn_tokens=12,
            live_rows=10,
            owner_of_prompt=np.array([0, 1]),
        )
        assert np.isfinite(generated.logprobs_NT[owners == 0]).all(), seed
        assert not np.isfinite(generated.logprobs_NT[owners == 1]).all()


class Verbose(Scripted):
    """Says everything five times, so that rows become long and replies are fed at once into long caches."""

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        return [(row, None if reply is None else 5 * reply) for row, reply in super().collect(block)]


def test_long_rows_of_the_default_policy_do_not_depend_on_how_late_replies_come() -> None:
    sizes = PolicyConfig()
    policy = Policy(sizes, VOCABULARY, FORBIDDEN)
    policy.initialise(0)

    def sampled(delay: int, live_rows: int) -> Generated:
        return generate(
            FrozenPolicy(policy),
            [[1, *range(3, 11), *range(3, 11), END]],
            np.zeros(40, dtype=np.int64),
            rng.key(1, "sampling", np.arange(40)),
            Verbose(list(range(40)), 5, delay),
            context=sizes.context,
            end=END,
            max_turn_tokens=12,
            live_rows=live_rows,
        )

    reference = sampled(0, 256)
    assert reference.lengths_N.max() > 200
    for delay, live_rows in ((3, 256), (40, 256), (11, 16)):
        assert same(reference, sampled(delay, live_rows)), (delay, live_rows)


def test_rows_that_wait_for_a_place_are_what_they_would_have_been_among_all() -> None:
    policy = make_policy()
    reference, _ = run(policy, 150, streams=150)
    for delay, live_rows in ((0, 24), (2, 31), (5, 64)):
        assert same(reference, run(policy, 150, streams=150, delay=delay, live_rows=live_rows)[0]), (delay, live_rows)


def test_no_more_rows_are_decoded_at_a_time_than_a_block_and_the_live_rows_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[int] = []
    decode = FrozenPolicy.decode

    def watched(self: FrozenPolicy, tokens: torch.Tensor, *others: Any) -> torch.Tensor:
        decoded.append(len(tokens))
        return decode(self, tokens, *others)

    monkeypatch.setattr(FrozenPolicy, "decode", watched)
    for live_rows, block_rows, most in ((12, 8, 8), (5, 128, 5), (60, 128, 60)):
        decoded.clear()
        run(make_policy(), 60, live_rows=live_rows, block_rows=block_rows, streams=60)
        assert max(decoded) == most


def test_the_first_rows_are_those_that_fewer_rows_would_have_given() -> None:
    policy = make_policy()
    few, many = run(policy, 8)[0], run(policy, 24)[0]
    width = few.tokens_NT.shape[1]
    assert np.array_equal(few.lengths_N, many.lengths_N[:8])
    assert np.array_equal(few.tokens_NT, many.tokens_NT[:8, :width])
    assert np.array_equal(few.logprobs_NT, many.logprobs_NT[:8, :width])


def test_rows_of_the_same_prompt_and_draws_are_what_each_would_have_been_alone() -> None:
    policy = make_policy()
    for delay, live_rows, block_rows in ((0, 256, 128), (3, 7, 4), (1, 4, 128)):
        together, conversation = run(policy, 40, streams=10, delay=delay, live_rows=live_rows, block_rows=block_rows)
        # The first turns of rows 3 and 13 are the same, the replies are not, and so are the turns after them.
        assert conversation.turns[3][0] == conversation.turns[13][0]
        assert conversation.turns[3] != conversation.turns[13]
        for part in range(4):
            numbers = np.arange(10 * part, 10 * part + 10)
            alone, _ = run(policy, numbers, streams=10)
            width = alone.tokens_NT.shape[1]
            assert np.array_equal(together.lengths_N[numbers], alone.lengths_N)
            assert np.array_equal(together.clipped_N[numbers], alone.clipped_N)
            for name in ("tokens_NT", "sampled_NT", "logprobs_NT"):
                wide = getattr(together, name)[numbers]
                assert np.array_equal(wide[:, :width], getattr(alone, name)), (name, part)
                assert not wide[:, width:].any()


def test_stored_logprobs_agree_with_one_forward_pass() -> None:
    policy = make_policy()
    generated, _ = run(policy)
    again, where = recomputed(policy, generated)
    assert generated.sampled_NT.sum() > 200
    assert np.abs(again - generated.logprobs_NT[where]).max() < 1e-4


def test_sampled_are_the_turns_and_nothing_else_their_ends_included() -> None:
    generated, conversation = run(make_policy())
    for row, turns in conversation.turns.items():
        tokens, sampled = generated.tokens_NT[row], generated.sampled_NT[row]
        assert tokens[sampled].tolist() == [token for turn in turns for token in turn]
        assert all(turn[-1] == END or len(turn) == 12 for turn in turns)
        assert not np.isin(tokens[sampled], FORBIDDEN).any()
        replies = tokens[: generated.lengths_N[row]][~sampled[: generated.lengths_N[row]]]
        assert (replies == 11).sum() == (len(turns) - 1) * (row % 13 + 1)
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
    block_rows, block_cost = 8, 100

    def new_cache(self, rows: int, positions: int) -> Cache:
        return new_cache(1, rows, 1, positions, 2, torch.float32, self.device)

    def prefill(self, tokens_NQ: torch.Tensor, cache: Cache, owners_N: Ints) -> None:
        assert cache.positions >= tokens_NQ.shape[1]

    def extend(
        self, tokens_NQ: torch.Tensor, starts_N: torch.Tensor, cache: Cache, rows_N: torch.Tensor, owners_N: Ints
    ) -> None:
        assert cache.positions >= int(starts_N.max()) + tokens_NQ.shape[1]

    def decode(self, tokens_R: torch.Tensor, positions_R: torch.Tensor, cache: Cache, owners_R: Ints) -> torch.Tensor:
        assert cache.positions > int(positions_R.max())
        following = torch.where(tokens_R == 9, END, torch.where(tokens_R == END, 6, tokens_R + 1))
        logits = torch.full((len(tokens_R), VOCABULARY), -torch.inf)
        return logits.scatter(1, following.clamp(max=11)[:, None], 0.0)


def test_tokens_follow_a_decoder_of_a_few_tokens() -> None:
    prompts = [[1, 5, END]]
    conversation = Scripted([0, 1], turns=1)
    generated = generate(
        CountingDecoder(),
        prompts,
        np.array([0, 0]),
        np.arange(2, dtype=np.uint64),
        conversation,
        context=CONTEXT,
        end=END,
        max_turn_tokens=12,
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
                np.zeros(1, dtype=np.uint64),
                Scripted([0], turns=1),
                context=CONTEXT,
                end=END,
                max_turn_tokens=12,
            )


SAMPLERS = (generation._sampled_by_rows, generation._sampled_at_once)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.just(float("-inf")), st.floats(-20, 20)), min_size=2, max_size=40).filter(
        lambda row: max(row) > float("-inf")
    ),
    st.floats(0, 1),
)
def test_tokens_of_probability_zero_never_come_out(row: list[float], uniform: float) -> None:
    logits = torch.tensor([row], dtype=torch.float32)
    draw = torch.tensor([uniform], dtype=torch.float32).clamp(max=1.0 - 2.0**-23)
    for sampler in (sample_tokens, *SAMPLERS):
        token, logprob = sampler(logits, draw)
        assert row[int(token)] > float("-inf")
        assert float(logprob) == pytest.approx(float(torch.log_softmax(logits, -1)[0, token]), abs=1e-4)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_sampling_by_inverse_cdf_has_the_softmax_frequencies(sampler: Sampler) -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, -torch.inf, 2.0])
    count = 100_000
    uniforms = torch.from_numpy(rng.uniform(rng.key(0, "sampling"), np.arange(count)).astype(np.float32))
    tokens, _ = sampler(logits.expand(count, -1), uniforms)
    frequencies = torch.bincount(tokens, minlength=5) / count
    assert torch.allclose(frequencies, torch.softmax(logits, -1), atol=0.005)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("broken", [torch.nan, -torch.nan, torch.inf])
def test_what_a_diverged_policy_samples_has_no_finite_log_probability(sampler: Sampler, broken: float) -> None:
    """Or nobody would notice, also where a single logit is no number: see agents.rollout.check_finite."""
    draws = torch.tensor([0.0, 0.5, 1.0 - 2.0**-23])
    for vocabulary in (1, 5, 16, 20, 37):
        whole = torch.full((3, vocabulary), broken)
        for place in range(vocabulary):
            single = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(place))
            single[:, 0] = -torch.inf
            single[:, place] = broken
            for logits in (whole, single):
                tokens, logprobs = sampler(logits, draws)
                assert ((tokens >= 0) & (tokens < vocabulary)).all()
                assert logprobs.isnan().all(), (vocabulary, place)


def test_both_ways_of_sampling_draw_the_same_tokens() -> None:
    generator = torch.Generator().manual_seed(0)
    for vocabulary in (2, 15, 16, 17, 111):
        logits, uniforms = 3 * torch.randn(4096, vocabulary, generator=generator), torch.rand(4096, generator=generator)
        logits[:, 0] = -torch.inf
        (ours, our_logprobs), (theirs, their_logprobs) = (sampler(logits, uniforms) for sampler in SAMPLERS)
        # But for draws that fall between two tokens, to the last bits of a sum.
        alike = ours == theirs
        assert alike.sum() >= 4090
        assert torch.allclose(our_logprobs[alike], their_logprobs[alike], atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_generation_and_update_run_in_bf16(device: str) -> None:
    config = PolicyConfig(layers=2, width=32, heads=2, context=CONTEXT, max_turn_tokens=12)
    policy = Policy(config, VOCABULARY, FORBIDDEN, torch.bfloat16)
    policy.initialise(0)
    generated, _ = run(policy.to(device))
    again, where = recomputed(policy, generated)
    assert np.abs(again - generated.logprobs_NT[where]).max() < 0.1

    rows = len(generated.lengths_N)
    advantages = np.where(np.arange(rows) % 2 == 0, 1.0, -1.0)
    batch = TrainingBatch(
        generated.tokens_NT,
        generated.sampled_NT,
        generated.logprobs_NT,
        generated.lengths_N,
        advantages,
        np.arange(rows) // 4,
    )
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, fused=True)
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    stats = update(policy, optimizer, batch, AlgoConfig(), CONTEXT)
    assert np.isfinite([stats.loss, stats.grad_norm, stats.entropy]).all()
    assert stats.update_norm > 0
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))
    after, _ = recomputed(policy, generated)
    # What was better than its group has become likelier than what was worse.
    gained = np.array([(after - again)[where[0] == row].sum() for row in range(rows)])
    assert gained[advantages > 0].mean() > gained[advantages < 0].mean()
