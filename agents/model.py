"""The policy: a small decoder-only transformer with rotary positions, trained in one pass, decoded with a cache."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from agents import kernels
from agents.config import PolicyConfig
from tool_gym import rng

# Both chosen by how fast the cold start learns to copy (docs/LOG.md).
_ROTARY_BASE = 4000.0
_INITIAL_SCALE = 0.7

Ints = npt.NDArray[np.int64]


class Linear(nn.Linear):
    """A linear layer that computes in its input's type, so that one cast at the embedding sets the type of all."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype))


class Norm(nn.Module):
    """Layer normalisation with a gain and no bias."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gain.shape, self.gain.to(x.dtype))


class Block(nn.Module):
    """Attention and a squared-ReLU perceptron, each behind a norm (pre-norm residual)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention_norm = Norm(width)
        self.qkv = Linear(width, 3 * width)
        self.attention_out = Linear(width, width)
        self.mlp_norm = Norm(width)
        self.mlp_in = Linear(width, 4 * width)
        self.mlp_out = Linear(4 * width, width)

    def after_attention(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The rest of the block, given what attention mixed; both (S, width)."""
        x = torch.addmm(x, mixed, self.attention_out.weight.to(x.dtype).T)
        w_in, w_out = (layer.weight.to(x.dtype) for layer in (self.mlp_in, self.mlp_out))
        out: Tensor = _Perceptron.apply(x, self.mlp_norm(x), w_in, w_out)  # type: ignore[no-untyped-call]
        return out


class _Perceptron(torch.autograd.Function):
    """x + relu(y W_inᵀ)² W_outᵀ, passing over the hidden layer half as often as automatic differentiation would."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, w_in: Tensor, w_out: Tensor) -> Tensor:
        hidden = torch.mm(y, w_in.T).relu_()
        squared = hidden * hidden
        ctx.save_for_backward(y, hidden, squared, w_in, w_out)
        return torch.addmm(x, squared, w_out.T)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        (grad,) = grads
        y, hidden, squared, w_in, w_out = ctx.saved_tensors
        # Of relu(a)² the derivative is 2 relu(a); the 2 is left to the small products.
        inner = torch.mm(grad, w_out).mul_(hidden)
        grad_y, grad_in = torch.mm(inner, w_in).mul_(2), torch.mm(inner.T, y).mul_(2)
        return grad, grad_y, grad_in, torch.mm(grad.T, squared)


class _AttentionOfRows(torch.autograd.Function):
    """``kernels.attention_of_rows``, of qkv (S, 3 width) and turns (2, longest, head width)."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, turns: Tensor, heads: int, lengths_R: Ints) -> Tensor:
        attend, _ = kernels.attention_of_rows(turns.shape[-1])
        mixed, most, sums = (qkv.new_empty(len(qkv), size) for size in (qkv.shape[1] // 3, heads, heads))
        attend(_by_kind(qkv), turns.numpy(), lengths_R, mixed.numpy(), most.numpy(), sums.numpy())
        ctx.save_for_backward(qkv, turns, mixed, most, sums)
        ctx.lengths_R = lengths_R
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, turns, *found = ctx.saved_tensors
        _, attend_back = kernels.attention_of_rows(turns.shape[-1])
        grad_qkv, grad = torch.empty_like(qkv), grads[0].contiguous()
        given = [tensor.numpy() for tensor in (*found, grad)]
        attend_back(_by_kind(qkv), turns.numpy(), ctx.lengths_R, *given, _by_kind(grad_qkv))
        return grad_qkv, None, None, None


def _by_kind(qkv: Tensor) -> npt.NDArray[np.float32]:
    """Queries, keys and values, (S, 3 width), as (S, 3, width)."""
    array: npt.NDArray[np.float32] = qkv.contiguous().numpy().reshape(len(qkv), 3, -1)
    return array


def _split(tensor: Tensor, shapes: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    """The positions, (S, ...), of each rectangle."""
    return torch.split(tensor, [rows * length for rows, length in shapes])


class Policy(nn.Module):
    """A decoder-only transformer over the ids of a Tokenizer.

    Args:
        config: sizes.
        vocabulary: number of token ids.
        forbidden_ids: ids that are never sampled. Their logits are minus infinity here, in the model, so
            that sampling, stored log-probabilities and the loss all see the same distribution.
        compute_dtype: type of activations; weights stay float32.
    """

    turns: Tensor
    logit_bias: Tensor

    def __init__(
        self,
        config: PolicyConfig,
        vocabulary: int,
        forbidden_ids: Sequence[int] = (),
        compute_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.config, self.vocabulary, self.compute_dtype = config, vocabulary, compute_dtype
        self.head_width = config.width // config.heads
        self.embedding = nn.Embedding(vocabulary, config.width)
        self._blocks = nn.ModuleList(Block(config.width) for _ in range(config.layers))
        self.final_norm = Norm(config.width)
        self.unembedding = Linear(config.width, vocabulary)
        half = self.head_width // 2
        angles = torch.arange(config.context)[:, None] * _ROTARY_BASE ** (-torch.arange(half) / half)
        turn = torch.polar(torch.ones_like(angles), angles)
        bias = torch.zeros(vocabulary)
        bias[list(forbidden_ids)] = -math.inf
        # Derived from the configuration, so not part of a checkpoint. Queries, the first of the two, are scaled too.
        self.register_buffer("turns", torch.stack((turn * self.head_width**-0.5, turn)), persistent=False)
        self.register_buffer("logit_bias", bias, persistent=False)

    @property
    def blocks(self) -> list[Block]:
        return typing.cast(list[Block], list(self._blocks))

    @property
    def device(self) -> torch.device:
        return self.logit_bias.device

    def initialise(self, seed: int) -> None:
        """Draw the weights, keyed by seed and the parameter's number: normal, residual outputs scaled down (GPT-2)."""
        residual = (2 * self.config.layers) ** -0.5
        for number, (name, parameter) in enumerate(self.named_parameters()):
            if name.endswith("gain"):
                nn.init.ones_(parameter)
                continue
            scale = 0.02 if "embedding" in name else _INITIAL_SCALE * parameter.shape[-1] ** -0.5
            if name.endswith(("attention_out.weight", "mlp_out.weight")):
                scale *= residual
            draw = rng.generator(rng.key(seed, "initialisation", number)).normal(0.0, scale, tuple(parameter.shape))
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(draw))

    def attend(self, qkv: Tensor, shapes: Sequence[tuple[int, int]]) -> Tensor:
        """What causal attention mixes for each position, (S, width).

        Args:
            qkv: (S, 3 width), queries, keys and values of the positions of rectangles of (rows, length), one after
                the other; S is the sum of their products.

        Raises ValueError where it is not, or where a rectangle is longer than the context.
        """
        lengths_R = np.concatenate([np.full(rows, length) for rows, length in shapes])
        if lengths_R.sum() != len(qkv) or lengths_R.max() > self.config.context:
            raise ValueError(f"{len(qkv)} positions, context {self.config.context}, but rectangles of {list(shapes)}")
        if qkv.device.type == "cpu" and qkv.dtype == torch.float32:
            turns = torch.view_as_real(self.turns).flatten(2)
            of_rows: Tensor = _AttentionOfRows.apply(qkv, turns, self.config.heads, lengths_R)  # type: ignore[no-untyped-call]
            return of_rows
        mixed = []
        for part, (rows, length) in zip(_split(qkv, shapes), shapes, strict=True):
            by_head = part.view(rows, length, 3, self.config.heads, -1, 2).permute(2, 0, 3, 1, 4, 5)
            planes = torch.view_as_complex(by_head[:2].float().contiguous()) * self.turns[:, None, None, :length]
            q, k = torch.view_as_real(planes).flatten(-2).to(qkv.dtype)
            part = F.scaled_dot_product_attention(q, k, by_head[2].flatten(-2), is_causal=True, scale=1.0)
            mixed.append(part.transpose(1, 2).reshape(rows * length, -1))
        return torch.cat(mixed)

    def hidden(self, parts: Sequence[Tensor], wanted: Tensor | None = None) -> Tensor:
        """Last hidden states, (S, width), of the positions of rectangles of token ids, one after the other.

        Args:
            parts: ids of shape (rows, length) each. Padding goes to the right, where causality hides it; rows of a
                kind of length belong into one rectangle, so that there is little.
            wanted: numbers of the positions whose hidden states are asked for: only they go through the last
                perceptron. None: all.

        Raises ValueError if a rectangle is longer than the context.
        """
        longest = max(part.shape[1] for part in parts)
        if longest > self.config.context:
            raise ValueError(f"{longest} positions, but the policy's context is {self.config.context}")
        shapes = [(part.shape[0], part.shape[1]) for part in parts]
        tokens = torch.cat([part.reshape(-1) for part in parts])
        x: Tensor = self.embedding(tokens).to(self.compute_dtype)
        for number, block in enumerate(self.blocks):
            qkv = F.embedding(tokens, self.first_qkv()) if number == 0 else block.qkv(block.attention_norm(x))
            mixed = self.attend(qkv, shapes)
            if wanted is not None and number == self.config.layers - 1:
                x, mixed = x.index_select(0, wanted), mixed.index_select(0, wanted)
            x = block.after_attention(x, mixed)
        return x

    def first_qkv(self) -> Tensor:
        """(vocabulary, 3 width): what the first block projects depends on nothing but the token."""
        first = self.blocks[0]
        return typing.cast(Tensor, first.qkv(first.attention_norm(self.embedding.weight.to(self.compute_dtype))))

    def logits(self, x: Tensor) -> Tensor:
        """Logits (..., vocabulary), float32, of last hidden states (..., width)."""
        logits: Tensor = self.unembedding(self.final_norm(x))
        return logits.float() + self.logit_bias

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """Logits (N, T, vocabulary) for the token after each position."""
        return self.logits(self.hidden([tokens_NT])).view(*tokens_NT.shape, self.vocabulary)


def parameter_count(policy: nn.Module) -> int:
    return sum(parameter.numel() for parameter in policy.parameters())
