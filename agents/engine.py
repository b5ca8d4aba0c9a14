"""Where a policy's arithmetic is done: alone, or together with that of other runs (agents.stack)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from agents.frozen import FrozenPolicy
from agents.generation import Conversation, Generated, Ints, generate
from agents.model import Policy
from agents.packing import Packed
from tool_gym.rng import UInt64s

Loss = Callable[[Tensor], Tensor]
"""From logits (K, vocabulary) of the positions after which a token is trained to what is to be minimised."""


@dataclass(frozen=True)
class Sampling:
    """Conversations to be sampled; see generation.generate."""

    policy: Policy
    prompts: Sequence[Sequence[int]]
    prompt_of_row: Ints
    keys_N: UInt64s
    conversation: Conversation
    context: int
    end: int
    max_turn_tokens: int
    live_rows: int


class Engine(Protocol):
    """Does a run's arithmetic."""

    def sample(self, wanted: Sampling) -> Generated:
        """Sample conversations to their ends."""

    def backward(self, policy: Policy, packed: Packed, loss: Loss) -> None:
        """Add the gradients of a loss to those of the policy's parameters."""

    def meet(self) -> None:
        """Wait until every run with which the arithmetic is shared has come as far."""


def packed_logits(policy: Policy, packed: Packed) -> Tensor:
    """Logits (K, vocabulary) of the positions after which a token is trained."""
    return policy.logits(policy.hidden(packed.parts, packed.wanted_K))


class Alone:
    """Each call by itself."""

    def sample(self, wanted: Sampling) -> Generated:
        return generate(
            FrozenPolicy(wanted.policy),
            wanted.prompts,
            wanted.prompt_of_row,
            wanted.keys_N,
            wanted.conversation,
            context=wanted.context,
            end=wanted.end,
            max_turn_tokens=wanted.max_turn_tokens,
            live_rows=wanted.live_rows,
        )

    def backward(self, policy: Policy, packed: Packed, loss: Loss) -> None:
        loss(packed_logits(policy, packed)).backward()  # type: ignore[no-untyped-call]

    def meet(self) -> None:
        """There is no other run."""


ALONE = Alone()
