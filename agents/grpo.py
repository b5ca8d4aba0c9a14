"""Group-relative policy optimisation: advantages, the clipped loss, and one step's update.

GRPO (arXiv 2402.03300) as rStar2-Agent uses it (2508.20722): outcome rewards, advantages over the *selected*
rollouts of a group, clip-higher (DAPO, 2503.14476), no KL term and no entropy bonus.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.config import AlgoConfig
from agents.engine import ALONE, Engine
from agents.generation import Bools, Floats, Ints, Tokens
from agents.model import Policy
from agents.optimizer import Optimizer
from agents.packing import MICRO_BATCH, micro_batches, pack
from tool_gym.errors import ConfigError, DivergenceError

_EPSILON = 1e-6


def group_advantages(
    rewards: npt.ArrayLike, group_ids: npt.ArrayLike, *, scale: str = "group"
) -> npt.NDArray[np.float64]:
    """Advantages of N rollouts: reward minus the mean of its group, divided as ``scale`` says.

    Args:
        rewards: (N,).
        group_ids: (N,) integers; rollouts with the same id are one group.
        scale: ``group``: by the group's standard deviation + 1e-6 (GRPO); ``batch``: by that of all
            rewards + 1e-6; ``none``: not at all (Dr. GRPO, 2503.20783). Deviations have ddof 1, as in
            verl; of a single rollout it is 0.

    Raises ConfigError for another scale, ValueError where the shapes differ.
    """
    if scale not in ("group", "batch", "none"):
        raise ConfigError("algo.scale", scale, "group, batch, none")
    values = np.asarray(rewards, dtype=np.float64)
    ids = np.asarray(group_ids)
    if values.ndim != 1 or values.shape != ids.shape:
        raise ValueError(f"rewards of shape {values.shape} and group_ids of shape {ids.shape}: both must be (N,)")
    _, group, size = np.unique(ids, return_inverse=True, return_counts=True)
    mean = np.bincount(group, weights=values) / size if len(values) else np.zeros(0)
    centred = values - mean[group]
    if scale == "none":
        return centred
    if scale == "batch":
        return centred / (_deviation(values) + _EPSILON)
    squares = np.bincount(group, weights=centred**2)
    deviation = np.sqrt(squares / np.maximum(size - 1, 1))
    return centred / (deviation[group] + _EPSILON)


def _deviation(values: npt.NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def rollout_weights(tokens_N: Ints, normalisation: str, max_tokens: int) -> npt.NDArray[np.float64]:
    """Weight of each token's loss, per rollout, so that the weighted sum over tokens is the loss.

    Args:
        tokens_N: how many tokens the policy wrote in each rollout of the minibatch.
        normalisation: ``token``: the mean over all tokens; ``sequence``: the mean over rollouts of the
            mean over tokens; ``constant``: the sum over tokens / (N max_tokens) (Dr. GRPO).
        max_tokens: the constant of ``constant``.
    """
    if normalisation == "token":
        return np.full(len(tokens_N), 1.0 / max(int(tokens_N.sum()), 1))
    if normalisation == "sequence":
        return 1.0 / (len(tokens_N) * np.maximum(tokens_N, 1))
    if normalisation == "constant":
        return np.full(len(tokens_N), 1.0 / (len(tokens_N) * max_tokens))
    raise ConfigError("algo.normalisation", normalisation, "token, sequence, constant")


def clipped_token_losses(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Losses −min(ρA, clip(ρ, 1 − low, 1 + high)A) of tokens, and where the clip took effect. Arguments broadcast."""
    ratio = torch.exp(logprobs - old_logprobs)
    clipped = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    free, bound = ratio * advantages, clipped * advantages
    return -torch.minimum(free, bound), bound < free


@dataclass(frozen=True)
class TrainingBatch:
    """The selected rollouts of a step: N rows of T tokens, as sampled.

    Attributes:
        tokens_NT, sampled_NT, logprobs_NT, lengths_N: see generation.Generated.
        advantages_N, group_N: of each rollout.
    """

    tokens_NT: Tokens
    sampled_NT: Bools
    logprobs_NT: Floats
    lengths_N: Ints
    advantages_N: npt.NDArray[np.float64]
    group_N: Ints

    def rows(self, chosen: npt.NDArray[np.integer]) -> TrainingBatch:
        """Some rows, cut to the longest of them."""
        width = int(self.lengths_N[chosen].max(initial=0))
        cut = (self.tokens_NT, self.sampled_NT, self.logprobs_NT)
        whole = (self.lengths_N, self.advantages_N, self.group_N)
        return TrainingBatch(*(a[chosen, :width] for a in cut), *(a[chosen] for a in whole))  # type: ignore[arg-type]


@dataclass(frozen=True)
class UpdateStats:
    """What one step's update did: means over its tokens and optimiser steps."""

    loss: float
    entropy: float
    clip_ratio: float
    grad_norm: float
    update_norm: float


def token_logprobs(logits_KV: Tensor, targets_K: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the trained tokens, (K,), and the entropy at each (no gradient).

    Logits are there at those positions only: most of a batch is prompt, reply or padding.
    """
    logprobs = torch.log_softmax(logits_KV, dim=-1)
    with torch.no_grad():
        # Forbidden tokens have probability 0 and log-probability minus infinity: their product is 0.
        entropy = -(logprobs.exp() * logprobs.clamp(min=-1e9)).sum(dim=-1)
    return logprobs.gather(-1, targets_K[:, None])[:, 0], entropy


def update(
    policy: Policy,
    optimizer: Optimizer,
    batch: TrainingBatch,
    config: AlgoConfig,
    max_tokens: int,
    engine: Engine = ALONE,
) -> UpdateStats:
    """One step of GRPO: ``epochs`` passes of ``minibatches`` optimiser steps over the batch's groups.

    Raises ValueError for an empty batch (a step without a trainable group makes no update), DivergenceError for
    a gradient, loss or weight that is not finite.
    """
    if not len(batch.lengths_N):
        raise ValueError("an empty batch cannot be trained on")
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    groups = np.unique(batch.group_N)
    totals = np.zeros(4)  # loss, entropy and clipped tokens, tokens
    norms = []
    for _ in range(config.epochs):
        for members in np.array_split(groups, min(config.minibatches, len(groups))):
            part = batch.rows(np.flatnonzero(np.isin(batch.group_N, members)))
            optimizer.zero_grad()
            totals += _accumulate(policy, part, config, max_tokens, engine)
            norms.append(float(torch.nn.utils.clip_grad_norm_(policy.parameters(), config.grad_clip)))
            if not math.isfinite(norms[-1]):
                raise DivergenceError(f"the gradient's norm is {norms[-1]}", vars(batch))
            if not math.isfinite(totals[0]):
                raise DivergenceError(f"the loss is {totals[0]}", vars(batch))
            optimizer.step()
    moved = sum(float((p.detach() - b).square().sum()) for p, b in zip(policy.parameters(), before, strict=True))
    if not math.isfinite(moved):
        raise DivergenceError("a weight is not finite after the update", vars(batch))
    return UpdateStats(
        loss=totals[0] / len(norms),
        entropy=totals[1] / totals[3],
        clip_ratio=totals[2] / totals[3],
        grad_norm=float(np.mean(norms)),
        update_norm=moved**0.5,
    )


def _accumulate(
    policy: Policy, part: TrainingBatch, config: AlgoConfig, max_tokens: int, engine: Engine
) -> npt.NDArray[np.float64]:
    """Gradients of one minibatch's loss; returns (loss, sum of entropies, clipped tokens, tokens)."""
    weights_N = rollout_weights(part.sampled_NT.sum(axis=1), config.normalisation, max_tokens)
    sums = torch.zeros(4, dtype=torch.float64)
    for groups in micro_batches(part.lengths_N, *MICRO_BATCH[policy.device.type]):
        packed = pack(part.tokens_NT, part.sampled_NT, part.lengths_N, groups, policy.device)
        rows, _ = packed.where
        per_token = np.stack((weights_N[rows], part.advantages_N[rows], part.logprobs_NT[packed.where]))
        weight, advantage, old = torch.from_numpy(per_token).float().to(policy.device)

        def loss(
            logits: Tensor,
            weight: Tensor = weight,
            advantage: Tensor = advantage,
            old: Tensor = old,
            targets: Tensor = packed.targets_K,
        ) -> Tensor:
            logprobs, entropy = token_logprobs(logits, targets)
            losses, clipped = clipped_token_losses(logprobs, old, advantage, config.clip_low, config.clip_high)
            total = (weight * losses).sum()
            with torch.no_grad():
                figures = torch.stack((total, entropy.sum(), clipped.sum(), torch.tensor(len(old)).to(total)))
                sums.add_(figures.double().cpu())
            return total

        engine.backward(policy, packed, loss)
    return sums.numpy()
