"""Policies as they are at one moment, laid out for sampling: one alone, or several whose rows are decoded together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.cache import Attention, Cache, new_cache
from agents.model import Policy

Ints = npt.NDArray[np.int64]

# A matrix product of fewer rows takes another kernel, with another order of summation.
MIN_ROWS = 4


class _Layout(NamedTuple):
    """How rows of S policies become M places of each, for products over a leading axis.

    Attributes:
        spread: (S M,) the row of each place; where there are fewer, any.
        gather: (R,) the place of each row.
        owners: (R,) the policy of each row.
    """

    spread: Tensor
    gather: Tensor
    owners: Tensor


class _Layer(NamedTuple):
    """A block's weights, in the type of activations and transposed; of several policies, over a leading axis."""

    attention_gain: Tensor
    qkv: Tensor
    attention_out: Tensor
    mlp_gain: Tensor
    mlp_in: Tensor
    mlp_out: Tensor


class _Weights:
    """One policy's. ``layout`` says whose each row is, where there are several; the other methods are given it."""

    def __init__(self, policy: Policy) -> None:
        dtype = policy.compute_dtype

        def frozen(parameter: Tensor) -> Tensor:
            return parameter.detach().to(dtype)

        self.layers = [
            _Layer(
                frozen(block.attention_norm.gain),
                frozen(block.qkv.weight).T,
                frozen(block.attention_out.weight).T,
                frozen(block.mlp_norm.gain),
                frozen(block.mlp_in.weight).T,
                frozen(block.mlp_out.weight).T,
            )
            for block in policy.blocks
        ]
        with torch.no_grad():
            self.embedding, self.first_qkv = frozen(policy.embedding.weight), policy.first_qkv()
        self.gain, self.unembedding = frozen(policy.final_norm.gain), frozen(policy.unembedding.weight).T

    def layout(self, owners_R: Ints) -> Any:
        return None

    def embed(self, tokens: Tensor, layout: Any) -> Tensor:
        return torch.embedding(self.embedding, tokens)

    def project(self, number: int, x: Tensor, tokens: Tensor, layout: Any) -> Tensor:
        """Queries, keys and values (rows, 3 width)."""
        if number == 0:
            return torch.embedding(self.first_qkv, tokens)
        layer = self.layers[number]
        return torch.mm(torch.layer_norm(x, x.shape[1:], layer.attention_gain), layer.qkv)

    def after_attention(self, number: int, x: Tensor, mixed: Tensor, layout: Any) -> Tensor:
        """As ``Block.after_attention``."""
        layer = self.layers[number]
        x = torch.addmm(x, mixed, layer.attention_out)
        hidden = torch.mm(torch.layer_norm(x, x.shape[1:], layer.mlp_gain), layer.mlp_in).relu_()
        return torch.addmm(x, hidden.mul_(hidden), layer.mlp_out)

    def logits(self, x: Tensor, layout: Any) -> Tensor:
        return torch.mm(torch.layer_norm(x, x.shape[1:], self.gain), self.unembedding)


class _WeightsInTurn(_Weights):
    """Those of several policies, of which each computes its own rows: what it would compute alone, to the last bit."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.members = [_Weights(policy) for policy in policies]

    def layout(self, owners_R: Ints) -> list[Tensor]:
        """The rows of each, repeated where there are too few."""
        return [torch.from_numpy(_at_least(np.flatnonzero(owners_R == owner))) for owner in range(len(self.members))]

    def _in_turn(self, compute: Callable[[_Weights, Tensor], Tensor], layout: Any) -> Tensor:
        rows = [(compute(member, own), own) for member, own in zip(self.members, layout, strict=True) if len(own)]
        out = rows[0][0].new_empty(1 + max(int(own.max()) for _, own in rows), rows[0][0].shape[1])
        for values, own in rows:
            out[own] = values
        return out

    def embed(self, tokens: Tensor, layout: Any) -> Tensor:
        return self._in_turn(lambda member, own: member.embed(tokens[own], None), layout)

    def project(self, number: int, x: Tensor, tokens: Tensor, layout: Any) -> Tensor:
        return self._in_turn(lambda member, own: member.project(number, x[own], tokens[own], None), layout)

    def after_attention(self, number: int, x: Tensor, mixed: Tensor, layout: Any) -> Tensor:
        return self._in_turn(lambda member, own: member.after_attention(number, x[own], mixed[own], None), layout)

    def logits(self, x: Tensor, layout: Any) -> Tensor:
        return self._in_turn(lambda member, own: member.logits(x[own], None), layout)


def _at_least(rows: Ints) -> Ints:
    return np.resize(rows, MIN_ROWS) if 0 < len(rows) < MIN_ROWS else rows


class _StackedWeights(_Weights):
    """Those of S policies of the same shape: (S, ...) each."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        members = [_Weights(policy) for policy in policies]

        def stacked(tensors: Sequence[Tensor]) -> Tensor:
            both = torch.stack(list(tensors))
            return both[:, None] if both.dim() == 2 else both

        self.layers = [
            _Layer(*(stacked(parts) for parts in zip(*layers, strict=True)))
            for layers in zip(*(member.layers for member in members), strict=True)
        ]
        self.vocabulary = policies[0].vocabulary
        self.embedding = torch.cat([member.embedding for member in members])
        self.first_qkv = torch.cat([member.first_qkv for member in members])
        self.gain = stacked([member.gain for member in members])
        self.unembedding = stacked([member.unembedding for member in members])

    def layout(self, owners_R: Ints) -> _Layout:
        count = len(self.gain)
        held = np.bincount(owners_R, minlength=count)
        places = max(int(held.max()), MIN_ROWS)
        order = np.argsort(owners_R, kind="stable")
        number = np.arange(len(order)) - np.repeat(np.cumsum(held) - held, held)
        gather = np.empty(len(order), dtype=np.int64)
        gather[order] = owners_R[order] * places + number
        spread = np.zeros(count * places, dtype=np.int64)
        spread[gather] = np.arange(len(order))
        device = self.embedding.device
        return _Layout(*(torch.from_numpy(part).to(device) for part in (spread, gather, owners_R)))

    def embed(self, tokens: Tensor, layout: Any) -> Tensor:
        return torch.embedding(self.embedding, tokens + layout.owners * self.vocabulary)

    def project(self, number: int, x: Tensor, tokens: Tensor, layout: Any) -> Tensor:
        if number == 0:
            return torch.embedding(self.first_qkv, tokens + layout.owners * self.vocabulary)
        layer = self.layers[number]
        normed = _normed(self._spread(x, layout), layer.attention_gain)
        return _gathered(torch.bmm(normed, layer.qkv), layout)

    def after_attention(self, number: int, x: Tensor, mixed: Tensor, layout: Any) -> Tensor:
        layer = self.layers[number]
        x = torch.baddbmm(self._spread(x, layout), self._spread(mixed, layout), layer.attention_out)
        hidden = torch.bmm(_normed(x, layer.mlp_gain), layer.mlp_in).relu_()
        return _gathered(torch.baddbmm(x, hidden.mul_(hidden), layer.mlp_out), layout)

    def logits(self, x: Tensor, layout: Any) -> Tensor:
        return _gathered(torch.bmm(_normed(self._spread(x, layout), self.gain), self.unembedding), layout)

    def _spread(self, x: Tensor, layout: _Layout) -> Tensor:
        return x.index_select(0, layout.spread).view(len(self.gain), -1, x.shape[1])


def _gathered(x: Tensor, layout: _Layout) -> Tensor:
    return x.flatten(0, 1).index_select(0, layout.gather)


def _normed(x: Tensor, gain: Tensor) -> Tensor:
    return torch.layer_norm(x, x.shape[-1:]).mul_(gain)


class FrozenPolicy:
    """The weights of one policy or of several of the same shape. Its tensors are for ``torch.inference_mode``.

    Not to be used after the next update. With several, each row says which is its owner.
    """

    def __init__(self, *policies: Policy) -> None:
        policy = policies[0]
        self.config, self.device = policy.config, policy.device
        self._dtype = policy.compute_dtype
        on_cpu = self.device.type == "cpu"
        # Most rows that are decoded together, and the positions of room in vain that are not too many for one block
        # in place of two (docs/PERFORMANCE.md). On a GPU each block costs a row of launches, whatever is in it.
        self.block_rows, self.block_cost = (256, 2000) if on_cpu else (1 << 20, 1 << 40)
        self._weights: _Weights
        if len(policies) == 1:
            self._weights = _Weights(policy)
        else:
            # A processor is busy with the rows of one; a batched product's bits would depend on how many each has.
            self._weights = _WeightsInTurn(policies) if on_cpu else _StackedWeights(policies)
        self._logit_bias = policy.logit_bias
        self._turns = policy.turns.transpose(0, 1).repeat(1, 1, self.config.heads)  # (context, 2, width / 2)

    def new_cache(self, rows: int, positions: int) -> Cache:
        """An empty cache with room for at least so many positions."""
        config = self.config
        head_width = config.width // config.heads
        return new_cache(config.layers, rows, config.heads, positions, head_width, self._dtype, self.device)

    def prefill(self, tokens_NQ: Tensor, cache: Cache, owners_N: Ints) -> None:
        """Feed prompts to the first N rows of a new cache; otherwise as ``extend``."""
        rows_N = torch.arange(len(tokens_NQ), device=self.device)
        self.extend(tokens_NQ, torch.zeros_like(rows_N), cache, rows_N, owners_N)

    def extend(self, tokens_NQ: Tensor, starts_N: Tensor, cache: Cache, rows_N: Tensor, owners_N: Ints) -> None:
        """Feed Q tokens at once to some rows of the cache, at positions from ``starts_N`` on.

        Shorter rows are padded on the right; what padding leaves in the cache is never read. ``owners_N``: the policy
        of each.
        """
        length = tokens_NQ.shape[1]
        positions = starts_N[:, None] + torch.arange(length, device=self.device)
        turns = self._turns[positions.flatten().clamp_(max=self.config.context - 1)]
        at = cache.at(rows_N, positions, turns)
        # Nobody asks for what comes after these tokens.
        self._pass(tokens_NQ.reshape(-1), at, cache, np.repeat(owners_N, length), wanted=False)

    def decode(self, tokens_R: Tensor, positions_R: Tensor, cache: Attention, owners_R: Ints) -> Tensor:
        """Feed one token to each of the first R rows of the cache; logits (R, vocabulary) for the next.

        Args:
            tokens_R, positions_R: the token of each row and its position; rows stand at positions of their own.
            cache: is written at ``positions_R``; later positions hold nothing that is read.
            owners_R: the policy of each row.
        """
        at = cache.at(None, positions_R[:, None], self._turns.index_select(0, positions_R))
        logits = self._pass(tokens_R, at, cache, owners_R, wanted=True)
        assert logits is not None
        return logits

    def _pass(self, tokens: Tensor, at: Any, cache: Attention, owners: Ints, *, wanted: bool) -> Tensor | None:
        """Through all blocks; logits, if they are wanted."""
        layout = self._weights.layout(owners)
        x = self._weights.embed(tokens, layout)
        last = self.config.layers - 1
        for number in range(self.config.layers):
            qkv = self._weights.project(number, x, tokens, layout)
            mixed = cache.attend(number, qkv, at, wanted=wanted or number < last)
            if mixed is None:
                return None
            x = self._weights.after_attention(number, x, mixed, layout)
        return self._weights.logits(x, layout).float().add_(self._logit_bias)
