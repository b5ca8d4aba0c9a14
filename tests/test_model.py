"""The transformer: what it computes, its hand-written derivatives, and the same by cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agents import model
from agents.config import PolicyConfig
from agents.frozen import FrozenPolicy
from agents.model import Policy

VOCABULARY = 11
CONFIG = PolicyConfig(layers=3, width=24, heads=2, context=64, max_turn_tokens=8)


def make_policy() -> Policy:
    policy = Policy(CONFIG, VOCABULARY, (0, 1))
    policy.initialise(5)
    return policy


def plain_logits(policy: Policy, tokens_NT: torch.Tensor) -> torch.Tensor:
    """The policy in the words of a textbook, from its weights alone."""
    rows, length = tokens_NT.shape
    width, heads = CONFIG.width, CONFIG.heads
    size = width // heads
    angles = torch.arange(length)[:, None] * 4000.0 ** (-torch.arange(0, size, 2) / size)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def turn(x: torch.Tensor) -> torch.Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)

    x = policy.embedding.weight[tokens_NT]
    for block in policy.blocks:
        y = F.layer_norm(x, (width,)) * block.attention_norm.gain
        q, k, v = (y @ block.qkv.weight.T).view(rows, length, 3, heads, size).unbind(2)
        scores = torch.einsum("nqhd,nkhd->nhqk", turn(q), turn(k)) / math.sqrt(size)
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        mixed = torch.einsum("nhqk,nkhd->nqhd", weights, v).reshape(rows, length, width)
        x = x + mixed @ block.attention_out.weight.T
        y = F.layer_norm(x, (width,)) * block.mlp_norm.gain
        x = x + F.relu(y @ block.mlp_in.weight.T) ** 2 @ block.mlp_out.weight.T
    logits = F.layer_norm(x, (width,)) * policy.final_norm.gain @ policy.unembedding.weight.T
    return logits + policy.logit_bias


def gradients(policy: Policy, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    names, parameters = zip(*policy.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["kernel", "library"])
def test_logits_and_gradients_are_those_of_a_plain_transformer(dtype: torch.dtype) -> None:
    policy = make_policy()
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if name.endswith("gain"):
                parameter.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(1))
    policy.compute_dtype = dtype
    draws = np.random.default_rng(0)
    parts = [torch.from_numpy(draws.integers(2, VOCABULARY, shape)) for shape in ((3, 7), (1, 20), (2, 9))]
    wanted = torch.tensor([0, 5, 6, 20, 21, 33, 40, 58])
    hidden = policy.hidden(parts, wanted)
    plain = torch.cat([plain_logits(policy, part).flatten(0, 1) for part in parts])[wanted]
    got = policy.logits(hidden)
    assert torch.allclose(got, plain, atol=1e-5)
    target = torch.arange(8) % (VOCABULARY - 2) + 2
    ours, theirs = (gradients(policy, F.cross_entropy(logits, target)) for logits in (got, plain))
    for name, gradient in theirs.items():
        assert torch.allclose(ours[name], gradient, atol=1e-5 * float(gradient.abs().max())), name


def test_only_the_wanted_positions_are_returned_and_they_are_the_same_as_of_all() -> None:
    policy = make_policy()
    tokens = torch.from_numpy(np.random.default_rng(1).integers(2, VOCABULARY, (4, 12)))
    wanted = torch.tensor([3, 11, 12, 40])
    assert torch.allclose(policy.hidden([tokens], wanted), policy.hidden([tokens])[wanted], atol=1e-6)
    assert policy(tokens).shape == (4, 12, VOCABULARY)


def test_padding_on_the_right_changes_nothing() -> None:
    policy = make_policy()
    tokens = torch.from_numpy(np.random.default_rng(2).integers(2, VOCABULARY, (2, 12)))
    longer = F.pad(tokens, (0, 5))
    assert torch.allclose(policy(longer)[:, :12], policy(tokens), atol=1e-5)


def test_hand_written_derivatives_are_those_of_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    perceptron = (draw(5, 6), draw(5, 6), draw(12, 6), draw(6, 12))
    assert torch.autograd.gradcheck(model._Perceptron.apply, perceptron)


def qkv_of(shapes: Sequence[tuple[int, int]], width: int, scale: float = 1.0) -> torch.Tensor:
    count = sum(rows * length for rows, length in shapes)
    return scale * torch.randn(count, 3 * width, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize(("width", "heads"), [(4, 2), (6, 1), (24, 2), (64, 4), (64, 2), (96, 2)])
@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_attention_of_rows_and_its_derivative_are_those_of_plain_products_in_double_precision(
    width: int, heads: int, scale: float
) -> None:
    policy = Policy(PolicyConfig(layers=1, width=width, heads=heads, context=608), VOCABULARY)
    shapes = [(3, 7), (1, 1), (2, 16), (1, 17), (2, 33), (1, 47), (1, 600), (1, 128)]
    qkv = qkv_of(shapes, width, scale)
    by = torch.randn(len(qkv), width, generator=torch.Generator().manual_seed(1))
    ours, theirs = qkv.clone().requires_grad_(), qkv.double().requires_grad_()
    mixed = policy.attend(ours, shapes)
    mixed.backward(by)
    plain, start = [], 0
    for rows, length in shapes:
        part = theirs[start : start + rows * length].view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        turns = policy.turns[:, None, None, :length].to(torch.complex128)
        planes = torch.view_as_complex(part[:2].unflatten(-1, (-1, 2)).contiguous()) * turns
        q, k = torch.view_as_real(planes).flatten(-2)
        weights = (q @ k.mT).masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
        plain.append((weights @ part[2]).transpose(1, 2).reshape(rows * length, width))
        start += rows * length
    torch.cat(plain).backward(by.double())
    for got, exact in ((mixed, torch.cat(plain)), (ours.grad, theirs.grad)):
        assert got is not None
        assert exact is not None
        assert torch.allclose(got.double(), exact, atol=1e-6 * scale**2 * float(exact.detach().abs().max()))


def attended(policy: Policy, qkv: torch.Tensor, shapes: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """What is mixed, and the derivative of its sum."""
    own = qkv.clone().requires_grad_()
    mixed = policy.attend(own, shapes)
    mixed.sum().backward()
    assert own.grad is not None
    return mixed.detach(), own.grad


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_attention_comes_to_in_a_row_hangs_on_that_row_alone_to_the_last_bit(broken: float) -> None:
    policy = Policy(PolicyConfig(layers=1, width=32, heads=2, context=128), VOCABULARY)
    shapes = [(1, 128), (1, 40), (1, 21), (2, 40), (1, 3)]
    starts = np.cumsum([0, 128, 40, 21, 40, 40, 3])
    qkv = qkv_of(shapes, 32)
    for row in (0, 1, 3):
        qkv[starts[row] : starts[row + 1]] = broken
    whole = attended(policy, qkv, shapes)
    for row in range(6):
        own = slice(starts[row], starts[row + 1])
        for got, alone in zip(whole, attended(policy, qkv[own], [(1, own.stop - own.start)]), strict=True):
            if row in (0, 1, 3):
                assert not got[own].isfinite().any()
            else:
                assert torch.equal(got[own], alone), row
    # What comes after a position, in its block of keys too, is nothing to it.
    longer, shorter = (policy.attend(qkv_of([(1, 40)], 32)[:length], [(1, length)]) for length in (40, 21))
    assert torch.equal(longer[:21], shorter)


def test_rectangles_that_are_not_those_of_the_positions_are_refused() -> None:
    policy = Policy(PolicyConfig(layers=1, width=32, heads=2, context=32), VOCABULARY)
    for count, shapes in ((10, [(1, 5)]), (10, [(2, 6)]), (33, [(1, 33)])):
        with pytest.raises(ValueError, match="rectangles of"):
            policy.attend(torch.zeros(count, 96), shapes)


def test_decoding_by_cache_gives_the_logits_of_one_pass() -> None:
    policy = make_policy()
    tokens = torch.from_numpy(np.random.default_rng(3).integers(2, VOCABULARY, (6, 40)))
    with torch.inference_mode():
        frozen = FrozenPolicy(policy)
        whole = policy(tokens)
        cache = frozen.new_cache(6, 48)
        every, owners = torch.arange(6), np.zeros(6, dtype=np.int64)
        frozen.extend(tokens[:, :16], torch.zeros(6, dtype=torch.int64), cache, every, owners)
        for position in range(16, 24):
            logits = frozen.decode(tokens[:, position], torch.full((6,), position), cache, owners)
            assert torch.allclose(logits, whole[:, position], atol=1e-4)
        # Rows in another order, and only some of them, get a reply of eight tokens at once.
        rows = torch.tensor([4, 1, 5, 0])
        frozen.extend(tokens[rows, 24:32], torch.full((4,), 24), cache, rows, owners[:4])
        logits = frozen.decode(tokens[:, 32], torch.full((6,), 32), cache, owners)
        assert torch.allclose(logits[rows], whole[rows, 32], atol=1e-4)


def test_a_frozen_policy_samples_what_the_policy_was() -> None:
    policy = make_policy()
    with torch.no_grad():
        before = policy(torch.tensor([[2, 3, 4]]))
    for _ in range(2):
        with torch.inference_mode():
            frozen = FrozenPolicy(policy)
            zeros = torch.zeros(4, dtype=torch.int64)
            logits = frozen.decode(torch.full((4,), 2), zeros, frozen.new_cache(4, 16), zeros.numpy())
        assert torch.allclose(logits[0], policy(torch.tensor([[2]]))[0, 0], atol=1e-5)
        with torch.no_grad():
            policy.embedding.weight.add_(0.3)
            policy.blocks[0].qkv.weight.mul_(1.5)
    assert not torch.allclose(before, policy(torch.tensor([[2, 3, 4]])), atol=1e-2)


def test_more_positions_than_the_context_are_refused() -> None:
    with pytest.raises(ValueError, match="65 positions, but the policy's context is 64"):
        make_policy().hidden([torch.zeros(1, 65, dtype=torch.int64)])
