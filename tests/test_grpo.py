"""Advantages, normalisations, the clipped loss, and what an update trains on."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agents.config import AlgoConfig, PolicyConfig
from agents.engine import packed_logits
from agents.grpo import (
    TrainingBatch,
    clipped_token_losses,
    group_advantages,
    rollout_weights,
    token_logprobs,
    update,
)
from agents.model import Policy
from agents.packing import micro_batches, pack, rectangles
from tool_gym.errors import ConfigError

VOCABULARY, END = 12, 2


def test_advantages_of_a_worked_example() -> None:
    rewards, groups = [1, 0, 0, 0, 1, 1], [0, 0, 0, 0, 7, 7]
    advantages = group_advantages(rewards, groups)
    deviation = np.std([1, 0, 0, 0], ddof=1) + 1e-6
    assert np.allclose(advantages, [0.75 / deviation, *[-0.25 / deviation] * 3, 0, 0])
    assert np.allclose(group_advantages(rewards, groups, scale="none"), [0.75, -0.25, -0.25, -0.25, 0, 0])
    batch = np.std(rewards, ddof=1) + 1e-6
    assert np.allclose(group_advantages(rewards, groups, scale="batch"), np.array([0.75, *[-0.25] * 3, 0, 0]) / batch)


@given(arrays(float, st.integers(1, 40), elements=st.floats(-5, 5)), st.data())
def test_advantages_of_a_group_sum_to_zero_and_ignore_the_order(rewards: np.ndarray, data: st.DataObject) -> None:
    groups = np.array(data.draw(st.lists(st.integers(0, 4), min_size=len(rewards), max_size=len(rewards))))
    for scale in ("group", "batch", "none"):
        advantages = group_advantages(rewards, groups, scale=scale)
        order = np.array(data.draw(st.permutations(range(len(rewards)))))
        assert np.allclose(advantages[order], group_advantages(rewards[order], groups[order], scale=scale), atol=1e-6)
        for group in np.unique(groups):
            assert abs(advantages[groups == group].sum()) < 1e-6 * max(1, np.abs(advantages).max())


def test_advantages_refuse_what_they_cannot_mean() -> None:
    with pytest.raises(ConfigError, match=r"algo\.scale.*'std'.*group, batch, none"):
        group_advantages([1.0], [0], scale="std")
    with pytest.raises(ValueError, match="both must be"):
        group_advantages([1.0, 0.0], [0])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_normalisations_weigh_tokens_as_their_names_say(counts: list[int]) -> None:
    tokens = np.array(counts)
    assert np.isclose((rollout_weights(tokens, "token", 9) * tokens).sum(), 1)
    assert np.allclose(rollout_weights(tokens, "sequence", 9) * tokens, 1 / len(tokens))
    assert np.allclose(rollout_weights(tokens, "constant", 9), 1 / (9 * len(tokens)))


def test_the_clip_bounds_gains_and_never_losses() -> None:
    ratios = torch.tensor([0.5, 0.9, 1.5, 0.5, 1.1, 1.5])
    advantages = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    losses, clipped = clipped_token_losses(ratios.log(), torch.zeros(6), advantages, 0.2, 0.28)
    assert torch.allclose(losses, torch.tensor([-0.5, -0.9, -1.28, 0.8, 1.1, 1.5]))
    assert clipped.tolist() == [False, False, True, True, False, False]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(64, 1024))
def test_micro_batches_hold_every_row_once_within_the_bound(lengths: list[int], tokens: int) -> None:
    batches = micro_batches(np.array(lengths), tokens, overhead=16)
    assert sorted(row for groups in batches for group in groups for row in group.tolist()) == list(range(len(lengths)))
    for groups in batches:
        positions = sum(len(group) * max(lengths[row] for row in group) for group in groups)
        assert positions <= tokens or [len(group) for group in groups] == [1]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(0, 40))
def test_rectangles_hold_every_row_once_and_no_cut_pads_less(lengths: list[int], overhead: int) -> None:
    def cost(groups: list[list[int]]) -> int:
        return sum(len(group) * max(group) + overhead for group in groups)

    groups = rectangles(np.array(lengths), overhead)
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    ordered = sorted(lengths)
    gaps = range(1, len(lengths))
    every_cut = (
        [ordered[a:b] for a, b in itertools.pairwise((0, *cuts, len(lengths)))]
        for count in range(len(lengths))
        for cuts in itertools.combinations(gaps, count)
    )
    assert cost([[lengths[row] for row in group] for group in groups]) == min(map(cost, every_cut))


def test_packed_rows_name_what_is_trained_and_where_it_is() -> None:
    batch = make_batch(make_policy())
    packed = pack(
        batch.tokens_NT,
        batch.sampled_NT,
        batch.lengths_N,
        rectangles(batch.lengths_N, overhead=16),
        torch.device("cpu"),
    )
    rows, columns = packed.where
    assert batch.sampled_NT[rows, columns].all()
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == len(rows) == batch.sampled_NT.sum()
    flat = torch.cat([part.flatten() for part in packed.parts]).numpy()
    assert np.array_equal(flat[packed.wanted_K], batch.tokens_NT[rows, columns - 1])
    assert np.array_equal(packed.targets_K, batch.tokens_NT[rows, columns])
    assert len(flat) < batch.tokens_NT.size


def make_policy() -> Policy:
    policy = Policy(PolicyConfig(layers=2, width=32, heads=2, context=64, max_turn_tokens=8), VOCABULARY, (0, 1, 11))
    policy.initialise(3)
    return policy


def make_batch(policy: Policy, rows: int = 12, seed: int = 0) -> TrainingBatch:
    """Rows of prompt, a turn with its end, a reply, another turn; stored log-probabilities as the policy has them."""
    g = np.random.default_rng(seed)
    width = 40
    tokens = np.zeros((rows, width), dtype=np.int64)
    sampled = np.zeros((rows, width), dtype=np.bool_)
    lengths = np.zeros(rows, dtype=np.int64)
    for row in range(rows):
        parts = [(5, False), (int(g.integers(2, 9)), True), (4, False), (int(g.integers(2, 9)), True)]
        at = 0
        for size, own in parts:
            tokens[row, at : at + size] = g.integers(3, 11, size) if own else 11
            tokens[row, at + size - 1] = END
            sampled[row, at : at + size] = own
            at += size
        lengths[row] = at
    logprobs = np.zeros((rows, width), dtype=np.float32)
    packed = pack(tokens, sampled, lengths, [np.arange(rows)], policy.device)
    with torch.no_grad():
        logprobs[packed.where] = token_logprobs(packed_logits(policy, packed), packed.targets_K)[0].numpy()
    advantages = group_advantages(g.integers(0, 2, rows), np.arange(rows) // 4)
    return TrainingBatch(tokens, sampled, logprobs, lengths, advantages, np.arange(rows) // 4)


def gradient(policy: Policy, batch: TrainingBatch, config: AlgoConfig) -> torch.Tensor:
    """The gradient of one update, before clipping and the optimiser."""

    class Keep(torch.optim.SGD):
        seen: torch.Tensor

        def step(self, closure: None = None) -> None:  # type: ignore[override]
            self.seen = torch.cat([p.grad.flatten() for p in policy.parameters()])

    optimizer = Keep(policy.parameters(), lr=1.0)
    update(policy, optimizer, batch, dataclasses.replace(config, grad_clip=1e6), 64)
    return optimizer.seen


@pytest.mark.parametrize("normalisation", ["token", "sequence", "constant"])
def test_the_gradient_is_that_of_the_textbook_loss(normalisation: str) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    got = gradient(policy, batch, AlgoConfig(normalisation=normalisation))
    policy.zero_grad()
    log_p = torch.log_softmax(policy(torch.from_numpy(batch.tokens_NT)), dim=-1)
    rows = []
    for n in range(len(batch.lengths_N)):
        losses = []
        for t in np.flatnonzero(batch.sampled_NT[n]):
            ratio = torch.exp(log_p[n, t - 1, batch.tokens_NT[n, t]] - float(batch.logprobs_NT[n, t]))
            a = float(batch.advantages_N[n])
            losses.append(-torch.minimum(ratio * a, ratio.clamp(0.8, 1.28) * a))
        rows.append(torch.stack(losses))
    loss = {
        "token": torch.cat(rows).mean(),
        "sequence": torch.stack([row.mean() for row in rows]).mean(),
        "constant": torch.cat(rows).sum() / (len(rows) * 64),
    }[normalisation]
    loss.backward()
    want = torch.cat([p.grad.flatten() for p in policy.parameters()])
    assert torch.allclose(got, want, atol=1e-6 * float(want.abs().max()) + 1e-8, rtol=1e-3)


def test_the_end_token_is_trained_and_replies_are_not() -> None:
    policy = make_policy()
    batch = make_batch(policy)
    base = gradient(policy, batch, AlgoConfig())
    tokens = batch.tokens_NT.copy()
    last = batch.lengths_N - 1
    assert (tokens[np.arange(len(last)), last] == END).all()
    assert batch.sampled_NT[np.arange(len(last)), last].all()
    without_ends = batch.sampled_NT & (tokens != END)
    changed = gradient(policy, dataclasses.replace(batch, sampled_NT=without_ends), AlgoConfig())
    assert not torch.allclose(base, changed, atol=1e-6)
    # Where the last reply is followed by nothing that is trained, what it says changes nothing.
    head = batch.rows(np.arange(len(last)))
    first_turn = head.sampled_NT & (np.cumsum(~head.sampled_NT, axis=1) <= 5)
    only_first = dataclasses.replace(head, sampled_NT=first_turn)
    scrambled = head.tokens_NT.copy()
    later = (np.cumsum(~head.sampled_NT, axis=1) > 5) & ~head.sampled_NT
    scrambled[later] = 5
    assert not np.array_equal(scrambled, head.tokens_NT)
    a = gradient(policy, only_first, AlgoConfig())
    b = gradient(policy, dataclasses.replace(only_first, tokens_NT=scrambled), AlgoConfig())
    assert torch.equal(a, b)


def test_rows_without_advantage_leave_the_gradient_direction_to_the_others() -> None:
    policy = make_policy()
    batch = make_batch(policy)
    quiet = dataclasses.replace(batch, advantages_N=np.zeros(len(batch.lengths_N)))
    assert not gradient(policy, quiet, AlgoConfig()).any()


def test_one_minibatch_clips_nothing_and_several_report_what_they_clip() -> None:
    policy = make_policy()
    batch = make_batch(policy)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-9)
    stats = update(policy, optimizer, batch, AlgoConfig(), 64)
    assert stats.clip_ratio == 0
    assert stats.grad_norm > 0
    assert stats.loss == pytest.approx(
        -(batch.advantages_N * batch.sampled_NT.sum(1)).sum() / batch.sampled_NT.sum(), abs=1e-5
    )
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    stats = update(policy, optimizer, batch, AlgoConfig(minibatches=3, epochs=3, grad_clip=100.0), 64)
    assert stats.clip_ratio > 0
    assert stats.update_norm > 0


def test_entropy_is_that_of_the_unmasked_tokens() -> None:
    policy = make_policy()
    batch = make_batch(policy)
    tokens, sampled = torch.from_numpy(batch.tokens_NT), torch.from_numpy(batch.sampled_NT)
    packed = pack(batch.tokens_NT, batch.sampled_NT, batch.lengths_N, [np.arange(len(tokens))], policy.device)
    _, entropy = token_logprobs(packed_logits(policy, packed), packed.targets_K)
    probabilities = torch.softmax(policy(tokens), dim=-1)[:, :-1][sampled[:, 1:]]
    allowed = probabilities[:, [*range(2, 11)]]
    assert torch.allclose(entropy, -(allowed * allowed.log()).sum(-1), atol=1e-5)
    assert float(entropy.max()) <= np.log(9) + 1e-5


def test_an_empty_batch_is_refused() -> None:
    policy = make_policy()
    batch = make_batch(policy).rows(np.zeros(0, dtype=np.int64))
    with pytest.raises(ValueError, match="empty batch"):
        update(policy, torch.optim.SGD(policy.parameters(), lr=1.0), batch, AlgoConfig(), 64)
