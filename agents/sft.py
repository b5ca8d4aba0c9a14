"""The cold start: supervised training on demonstrations, one per seed, shared by all arms of that seed.

It teaches the transcript's format, tool calls, and calling again after a fault; the reasoning is left to be
learned: the mixture of styles gives the policy what a pre-trained model brings, competence, sloppiness and luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from agents.config import SFTConfig
from agents.generation import Bools, Ints
from agents.model import Policy
from agents.optimizer import AdamW
from agents.packing import MICRO_BATCH, micro_batches, pack
from agents.rollout import encode_prompt, encode_turn
from agents.tokenizer import Tokenizer
from tool_gym import rng
from tool_gym.episodes import Episodes
from tool_gym.errors import ConfigError, DivergenceError, InfrastructureError
from tool_gym.interpreter import InterpreterPool
from tool_gym.noise import IIDNoise
from tool_gym.registration import Resolved
from tool_gym.tasks.base import draw_many
from tool_gym.tasks.demonstrations import Demonstration, play_demonstrations, sample_styles

_PLAY_TOGETHER = 1024


@dataclass(frozen=True)
class Examples:
    """M demonstrations: tokens_MT (padded on the right), written_MT (what the policy is to write), lengths_M."""

    tokens_MT: Ints
    written_MT: Bools
    lengths_M: Ints


def encode_demonstration(tokenizer: Tokenizer, demonstration: Demonstration) -> tuple[list[int], list[bool]]:
    """Tokens of a transcript, and which of them the policy is to write, each turn's end included."""
    tokens = encode_prompt(tokenizer, demonstration.problem.prompt)
    written = [False] * len(tokens)
    for turn, reply in zip(demonstration.turns, demonstration.observations, strict=True):
        own, other = encode_turn(tokenizer, turn), tokenizer.encode(reply)
        tokens += own + other
        written += [True] * len(own) + [False] * len(other)
    return tokens, written


def demonstrate(
    env: Resolved,
    pool: InterpreterPool,
    tokenizer: Tokenizer,
    config: SFTConfig,
    *,
    difficulties: Sequence[int],
    seed: int,
    context: int,
) -> Examples:
    """Draw and play the cold start's demonstrations, on training problems, difficulties equally mixed.

    Raises InfrastructureError if the machinery lost a call (what was shown would not be what was meant), and
    ConfigError if a demonstration does not fit into the context (the mixture would shift to short ones).
    """
    count = config.demonstrations
    generator = rng.generator(rng.key(seed, "cold_start", 0))
    levels = generator.integers(len(difficulties), size=count)
    problems = draw_many(env.task, generator, [difficulties[level] for level in levels], "train")
    styles = sample_styles(config.mixture or env.task.mixture, generator.random(count))
    keys = rng.key(seed, "cold_start", 1, np.arange(count))
    noise = IIDNoise(config.fault_rate)
    episodes = Episodes(env.task, env.tools, noise=noise, max_turns=env.max_turns, pool=pool)
    encoded = []
    for start in range(0, count, _PLAY_TOGETHER):
        part = slice(start, start + _PLAY_TOGETHER)
        for played in play_demonstrations(episodes, problems[part], styles[part], keys[part]):
            if not played.record.valid:
                raise InfrastructureError("a tool call of a demonstration was lost; see the pool's log")
            encoded.append(encode_demonstration(tokenizer, played))
    lengths = np.array([len(tokens) for tokens, _ in encoded])
    if lengths.max() > context:
        raise ConfigError("policy.context", context, f"at least {lengths.max()}, the length of a demonstration")
    tokens_MT = np.zeros((len(encoded), lengths.max()), dtype=np.int64)
    written_MT = np.zeros_like(tokens_MT, dtype=np.bool_)
    for row, (tokens, written) in enumerate(encoded):
        tokens_MT[row, : len(tokens)], written_MT[row, : len(tokens)] = tokens, written
    return Examples(tokens_MT, written_MT, lengths)


def learning_rate(config: SFTConfig, step: int) -> float:
    """Linear warm-up, then linear decay towards a tenth of the peak, which the step after the last would have."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(config.step_count - config.warmup, 1)
    return config.learning_rate * (1.0 - 0.9 * progress)


def train(
    policy: Policy,
    examples: Examples,
    config: SFTConfig,
    *,
    seed: int,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> list[float]:
    """Minimise the cross-entropy of what the policy is to write; returns the loss (nats a token) of each step.

    ``on_step`` is called with the number of steps done and the loss. Raises DivergenceError, with the step and its
    batch, where loss, gradient or, in the end, a weight is not finite.
    """
    matrices = [p for p in policy.parameters() if p.dim() > 1]
    gains = [p for p in policy.parameters() if p.dim() <= 1]
    optimizer = AdamW((matrices, config.weight_decay), (gains, 0.0), learning_rate=config.learning_rate)
    losses = []
    batches = _batches(len(examples.lengths_M), config.batch_size, seed)
    for step, chosen in zip(range(config.step_count), batches, strict=False):
        optimizer.learning_rate = learning_rate(config, step)
        optimizer.zero_grad()
        losses.append(_accumulate(policy, examples, chosen))
        norm = float(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0))
        if not math.isfinite(losses[-1]):
            raise _diverged(step + 1, f"the loss is {losses[-1]}", examples, chosen)
        if not math.isfinite(norm):
            raise _diverged(step + 1, f"the gradient's norm is {norm}", examples, chosen)
        optimizer.step()
        on_step(step + 1, losses[-1])
    # Between steps the next loss tells; after the last one nothing would.
    if losses and not all(bool(parameter.isfinite().all()) for parameter in policy.parameters()):
        raise _diverged(len(losses), "a weight is not finite after it", examples, chosen)
    return losses


def _diverged(step: int, what: str, examples: Examples, chosen: Ints) -> DivergenceError:
    batch = {
        "tokens_NT": examples.tokens_MT[chosen],
        "written_NT": examples.written_MT[chosen],
        "lengths_N": examples.lengths_M[chosen],
    }
    return DivergenceError(f"cold start, step {step}: {what}; try a smaller --sft.learning-rate", batch)


def _batches(count: int, size: int, seed: int) -> Iterator[Ints]:
    """Row numbers of batch after batch, every example once an epoch, in keyed order."""
    epoch, left = 0, np.zeros(0, dtype=np.int64)
    while True:
        while len(left) < size:
            order = rng.generator(rng.key(seed, "cold_start", 2, epoch)).permutation(count)
            left, epoch = np.concatenate((left, order)), epoch + 1
        yield left[:size]
        left = left[size:]


def _accumulate(policy: Policy, examples: Examples, chosen: Ints) -> float:
    """Gradients of the mean loss over the chosen examples' written tokens; returns that loss."""
    total = int(examples.written_MT[chosen].sum())
    loss_sum = 0.0
    for groups in micro_batches(examples.lengths_M[chosen], *MICRO_BATCH[policy.device.type]):
        rows = [chosen[group] for group in groups]
        packed = pack(examples.tokens_MT, examples.written_MT, examples.lengths_M, rows, policy.device)
        logits = policy.logits(policy.hidden(packed.parts, packed.wanted_K))
        loss = F.cross_entropy(logits, packed.targets_K, reduction="sum") / total
        loss.backward()  # type: ignore[no-untyped-call]
        loss_sum += float(loss.detach())
    return loss_sum
