"""What both sides of a comparison with a peer do: prompts, rollouts, and a policy that writes what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_lowercase

import numpy as np
import torch

from agents.model import Policy
from agents.tokenizer import Tokenizer
from tool_gym import rng
from tool_gym.errors import ConfigError, ToolGymError

Chain = dict[str, dict[str, float]]
"""To each piece of text the pieces that may follow it, with their probabilities."""

# Nats by which what may follow stands out, and lengths of embeddings, in which what the blocks add is lost.
_MARGIN, _LENGTH = 40.0, 10_000.0
_MOST_DIFFERENCE = 0.05


@dataclass(frozen=True)
class Load:
    """Prompts of a step and rollouts of each, all of them trained on; steps of each side that count; the seed."""

    prompts: int = 16
    group: int = 16
    rounds: int = 10
    seed: int = 0

    @property
    def rollouts(self) -> int:
        """Of one step."""
        return self.prompts * self.group


@dataclass(frozen=True)
class Work:
    """What a rollout is.

    Attributes:
        name: for the table.
        chain: what the policy writes.
        tokens, calls: sampled tokens and tool calls of every rollout; None where they vary.
        ways: how the peer plays it, a comparison each.
        bounded: whether the size's bound is asked for.
    """

    name: str
    chain: Chain
    tokens: int | None
    calls: int | None
    ways: tuple[str, ...]
    bounded: bool = False


# ---------------------------------------------------------------- what the policy writes


_TURN_END = ("<|end|>",)
_ANSWER = (("<answer>",), ("0", "1"), ("</answer>",), _TURN_END)
_PROGRAM = (("(",), ("3", "4"), ("+",), ("5", "6"), ("*",), ("7", "8"), ("-",), ("9",), (")",), ("%",), ("2",), ("#",))


def answer_chain(tokens: int) -> Chain:
    """Rollouts of one turn: letters in either case, and an answer, 0 or 1."""
    return _linked((_TURN_END, *_letters(tokens - len(_ANSWER)), *_ANSWER))


def call_chain(tokens: int) -> Chain:
    """Rollouts of a call and an answer, 0 or 1. Letters in either case, in a comment, make a program unlike others."""
    letters = _letters(tokens - len(_PROGRAM) - len(_ANSWER) - 3)
    call = (_TURN_END, ("<python>",), *_PROGRAM, *letters, ("</python>",), _TURN_END)
    return _linked(call, (("</output>",), *_ANSWER))


def varied_chain(longest: int, leave: float, again: float) -> Chain:
    """``call_chain`` of at most ``longest`` tokens, with luck.

    A comment ends after each letter with probability ``leave``, and an output is followed by another call with
    probability ``again``, until turns run out.
    """
    chain = call_chain(longest)
    for letter in ascii_lowercase + ascii_lowercase.upper():
        if letter in chain:
            chain[letter] = _mixed(chain[letter], "</python>", leave)
    chain["</output>"] = _mixed(chain["</output>"], "<python>", again)
    return chain


def _letters(count: int) -> tuple[tuple[str, str], ...]:
    if not 0 <= count <= len(ascii_lowercase):
        raise ConfigError("tokens", count, f"room for 0 to {len(ascii_lowercase)} letters")
    return tuple((letter, letter.upper()) for letter in ascii_lowercase[:count])


def _linked(*paths: Sequence[tuple[str, ...]]) -> Chain:
    """The chain of paths, whose steps are sets of pieces, one as likely as the other."""
    return {
        piece: dict.fromkeys(there, 1.0 / len(there))
        for path in paths
        for here, there in pairwise(path)
        for piece in here
    }


def _mixed(followers: Mapping[str, float], other: str, share: float) -> dict[str, float]:
    """The followers, or ``other`` with probability ``share``."""
    mixed = {piece: probability * (1.0 - share) for piece, probability in followers.items()}
    return mixed | {other: mixed.get(other, 0.0) + share}


@torch.no_grad()
def write_chain(policy: Policy, tokenizer: Tokenizer, chain: Chain, seed: int = 0) -> None:
    """Make a policy write a chain: what follows a piece of the chain has the probabilities that the chain gives it.

    The pieces get orthogonal embeddings, so long that what the blocks add turns them by next to nothing, and the
    unembedding reads the logarithms of the probabilities off their directions. So the policy is computed in full and
    sampled from freely, and still writes as asked: another token has a probability of some e^-40.

    Raises ConfigError for a chain of more pieces than the width has room for.
    """
    width, vocabulary = policy.config.width, len(tokenizer)
    if len(chain) > width - 2:
        raise ConfigError("chain", f"{len(chain)} pieces", f"at most {width - 2}, for a width of {width}")
    directions = rng.generator(rng.key(seed, "initialisation")).normal(size=(width, width))
    directions[:, 0] = 1.0  # what the layer norm takes away
    directions = np.linalg.qr(directions)[0].T[1:]
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    embedding, unembedding = np.tile(directions[-1], (vocabulary, 1)), np.zeros((vocabulary, width))
    for direction, (piece, followers) in zip(directions, chain.items(), strict=False):
        embedding[ids[piece]] = direction
        for follower, probability in followers.items():
            # Behind the final norm a hidden state is its direction times the root of the width.
            unembedding[ids[follower]] += (_MARGIN + np.log(probability)) * width**-0.5 * direction
    policy.embedding.weight.copy_(torch.from_numpy(_LENGTH * embedding))
    policy.unembedding.weight.copy_(torch.from_numpy(unembedding))


# ---------------------------------------------------------------- what was done


@dataclass
class Tally:
    """What a side did: rollouts, tokens that the policy wrote, those trained on, tool calls."""

    rollouts: int = 0
    tokens: int = 0
    trained: int = 0
    calls: int = 0


def check_same_work(work: Work, ours: Tally, theirs: Tally) -> None:
    """Raises ToolGymError where the sides did different work: by one token, or by 5 % where rollouts vary."""
    for name, here in vars(ours).items():
        there = vars(theirs)[name]
        if work.tokens is None or work.calls is None:
            same = abs(here - there) <= _MOST_DIFFERENCE * there
        else:
            each = {"rollouts": 1, "calls": work.calls}.get(name, work.tokens)
            same = here == there == each * ours.rollouts
        if not same:
            raise ToolGymError(f"{work.name}: the sides did different work: {name} {here} here, {there} there")
