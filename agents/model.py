"""The policy: a small decoder-only transformer with rotary positions, trained in one pass, decoded with a cache."""

from __future__ import annotations

import math
import typing
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agents.config import PolicyConfig
from tool_gym import rng

# Key lengths are rounded up to a multiple of this, so that a row's result does not depend, to the last
# bit, on how long its neighbours are: masked keys add exact zeros to the same order of summation.
KEY_BLOCK = 32
# A matrix product of fewer rows takes another kernel, with another order of summation.
MIN_ROWS = 4
# Both chosen by how fast the cold start learns to copy (docs/LOG.md).
_ROTARY_BASE = 4000.0
_INITIAL_SCALE = 0.7


class Cache(NamedTuple):
    """Keys and values of R rows. Keys are stored transposed: decoding reads them along the positions.

    It holds as many positions as are in use, rounded up, and is replaced by a longer one when they run out:
    a preallocated context would spread the few that are read over many pages.

    Shapes: keys (layers, R, heads, head width, positions), values (layers, R, heads, positions, head width).
    """

    keys: Tensor
    values: Tensor

    @property
    def positions(self) -> int:
        return self.keys.shape[-1]

    def resized(self, rows: int, positions: int) -> Cache:
        """A copy of the first rows with room for more positions: zeros, since what is masked must be finite."""
        more = positions - self.positions
        return Cache(F.pad(self.keys[:, :rows], (0, more)), F.pad(self.values[:, :rows], (0, 0, 0, more)))

    def copy_row(self, source: int, target: int, length: int) -> None:
        self.keys[:, target, :, :, :length] = self.keys[:, source, :, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]

    def load_prefix(self, row: int, prefix: Cache, source: int, length: int) -> None:
        """Fill the first ``length`` positions of a row from row ``source`` of another cache."""
        self.keys[:, row, :, :, :length] = prefix.keys[:, source, :, :, :length]
        self.values[:, row, :, :length] = prefix.values[:, source, :, :length]


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

    def mlp(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.mlp_in(self.mlp_norm(x)))
        out: Tensor = x + self.mlp_out(hidden * hidden)
        return out


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021): the two halves of the last axis are the coordinates of the planes.

    ``cos`` and ``sin`` are as wide as x; the first half of ``sin`` is negated, so that the two halves swap in one go.
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Policy(nn.Module):
    """A decoder-only transformer over the ids of a Tokenizer.

    Args:
        config: sizes.
        vocabulary: number of token ids.
        forbidden_ids: ids that are never sampled. Their logits are minus infinity here, in the model, so
            that sampling, stored log-probabilities and the loss all see the same distribution.
        compute_dtype: type of activations; weights stay float32.
    """

    cos: Tensor
    sin: Tensor
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
        cos, sin = angles.cos(), angles.sin()
        bias = torch.zeros(vocabulary)
        bias[list(forbidden_ids)] = -math.inf
        # Derived from the configuration, so not part of a checkpoint.
        self.register_buffer("cos", torch.cat((cos, cos), dim=-1), persistent=False)
        self.register_buffer("sin", torch.cat((-sin, sin), dim=-1), persistent=False)
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

    def _heads(self, block: Block, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, each (..., heads, head width); cos and sin broadcast over heads."""
        qkv = block.qkv(block.attention_norm(x))
        qkv = qkv.view(*x.shape[:-1], 3, self.config.heads, self.head_width)
        queries_keys = rotate(qkv[..., :2, :, :], cos, sin)
        return queries_keys[..., 0, :, :], queries_keys[..., 1, :, :], qkv[..., 2, :, :]

    def logits(self, x: Tensor) -> Tensor:
        """Logits (..., vocabulary), float32, of last hidden states (..., width)."""
        logits: Tensor = self.unembedding(self.final_norm(x))
        return logits.float() + self.logit_bias

    def _trunk(self, tokens_NT: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Last hidden states (N, T, width), and each layer's keys and values (N, heads, T, head width)."""
        positions = tokens_NT.shape[1]
        cos = self.cos[:positions, None, None].to(self.compute_dtype)
        sin = self.sin[:positions, None, None].to(self.compute_dtype)
        x = self.embedding(tokens_NT).to(self.compute_dtype)
        memory = []
        for block in self.blocks:
            q, k, v = (part.transpose(1, 2) for part in self._heads(block, x, cos, sin))
            memory.append((k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block.attention_out(mixed.transpose(1, 2).reshape(x.shape))
            x = block.mlp(x)
        return x, memory

    def hidden(self, tokens_NT: Tensor) -> Tensor:
        """Last hidden states (N, T, width). Padding goes to the right, where causality hides it.

        Raises ValueError if T is more than the context.
        """
        if tokens_NT.shape[1] > self.config.context:
            raise ValueError(f"{tokens_NT.shape[1]} positions, but the policy's context is {self.config.context}")
        return self._trunk(tokens_NT)[0]

    def forward(self, tokens_NT: Tensor) -> Tensor:
        """Logits (N, T, vocabulary) for the token after each position."""
        return self.logits(self.hidden(tokens_NT))

    def new_cache(self, rows: int, positions: int) -> Cache:
        """An empty cache; ``positions`` is a multiple of KEY_BLOCK."""
        shape = (self.config.layers, rows, self.config.heads)
        keys = torch.zeros((*shape, self.head_width, positions), dtype=self.compute_dtype, device=self.device)
        values = torch.zeros((*shape, positions, self.head_width), dtype=self.compute_dtype, device=self.device)
        return Cache(keys, values)

    def prefill(self, tokens_NT: Tensor) -> Cache:
        """Keys and values of whole prompts, padded on the right; positions of the cache beyond T do not exist."""
        _, memory = self._trunk(tokens_NT)
        return Cache(torch.stack([k.transpose(-1, -2) for k, _ in memory]), torch.stack([v for _, v in memory]))

    def decode(self, tokens_R: Tensor, positions_R: Tensor, cache: Cache, key_length: int) -> Tensor:
        """Feed one token to each of the first R rows of the cache; logits (R, vocabulary) for the next.

        Args:
            tokens_R, positions_R: the token of each row and its position; rows stand at positions of their own.
            cache: is written at ``positions_R``; later positions hold nothing that is read.
            key_length: how many positions to attend over, more than every position, at most the cache's; a multiple
                of KEY_BLOCK.
        """
        rows = tokens_R.shape[0]
        numbers = torch.arange(rows, device=self.device)
        cos = self.cos[positions_R][:, None, None].to(self.compute_dtype)
        sin = self.sin[positions_R][:, None, None].to(self.compute_dtype)
        hidden_keys = torch.arange(key_length, device=self.device) > positions_R[:, None]
        mask = torch.zeros(rows, key_length, dtype=self.compute_dtype, device=self.device)
        mask = mask.masked_fill_(hidden_keys, -math.inf)[:, None, None]
        scale = self.head_width**-0.5
        x = self.embedding(tokens_R).to(self.compute_dtype)
        for number, block in enumerate(self.blocks):
            keys, values = cache.keys[number, :rows], cache.values[number, :rows]
            q, k, v = self._heads(block, x, cos, sin)
            keys[numbers, :, :, positions_R] = k
            values[numbers, :, positions_R] = v
            scores = torch.matmul((q * scale)[:, :, None], keys[..., :key_length])
            mixed = torch.matmul(torch.softmax(scores.add_(mask), dim=-1), values[:, :, :key_length])
            x = x + block.attention_out(mixed.view(x.shape))
            x = block.mlp(x)
        return self.logits(x)


def parameter_count(policy: nn.Module) -> int:
    return sum(parameter.numel() for parameter in policy.parameters())
