"""A trained policy that plays any tool environment, a turn of text at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from agents.cache import Cache
from agents.frozen import MIN_ROWS, FrozenPolicy
from agents.generation import sample_tokens
from agents.model import Policy
from agents.rollout import encode_prompt
from agents.runs import load_weights, read_config
from agents.tokenizer import END, Tokenizer
from tool_gym import rng
from tool_gym.registration import resolve


class Player:
    """Plays episodes: ``act(observation)`` gives the next turn.

    Args:
        policy: a trained policy, on the CPU.
        tokenizer: of the tools that it was trained with.
        max_turn_tokens: a turn is given as it stands when it reaches this length.
    """

    def __init__(self, policy: Policy, tokenizer: Tokenizer, max_turn_tokens: int) -> None:
        self.policy, self.tokenizer, self.max_turn_tokens = policy, tokenizer, max_turn_tokens
        self._frozen = FrozenPolicy(policy)
        self.reset()

    def reset(self, seed: int = 0) -> None:
        """Forget the episode; the first observation after it is a prompt. The same seed plays the same game."""
        self._key = rng.key(seed, "sampling")
        self._position = 0
        self._cache: Cache = self._frozen.new_cache(MIN_ROWS, self.policy.config.context)

    @torch.inference_mode()
    def act(self, observation: str) -> str:
        """The policy's turn, as text, to the prompt or to what a tool replied.

        When the context is full the turn is "": the environment's turn budget then ends the episode.
        """
        tokens = (
            encode_prompt(self.tokenizer, observation) if not self._position else self.tokenizer.encode(observation)
        )
        turn: list[int] = []
        while tokens and self._position < self.policy.config.context:
            logits = self._feed(tokens)
            if len(turn) == self.max_turn_tokens or (turn and turn[-1] == END):
                break
            uniform = torch.from_numpy(rng.uniform(self._key, np.array([self._position])).astype(np.float32))
            token = int(sample_tokens(logits[:1], uniform)[0])
            turn.append(token)
            tokens = [token]
        return self.tokenizer.decode(turn)

    def _feed(self, tokens: list[int]) -> torch.Tensor:
        logits = torch.empty(0)
        for token in tokens[: self.policy.config.context - self._position]:
            positions = torch.full((MIN_ROWS,), self._position)
            tokens_R, owners_R = torch.full((MIN_ROWS,), token), np.zeros(MIN_ROWS, dtype=np.int64)
            logits = self._frozen.decode(tokens_R, positions, self._cache, owners_R)
            self._position += 1
        return logits


def load(run: str | Path, which: str = "last") -> Player:
    """The policy of a run: its ``last`` checkpoint, the ``best`` on validation problems, or one by folder name.

        player = agents.load("runs/NAME")
        observation, info = env.reset(seed=0)
        player.reset(seed=0)
        turn = player.act(observation)

    Raises ConfigError where there is no such run or its checkpoint is damaged.
    """
    folder = Path(run)
    config = read_config(folder)
    tokenizer = Tokenizer([tool.name for tool in resolve(config.env.id).tools])
    policy = Policy(config.policy, len(tokenizer), tokenizer.forbidden_ids)
    load_weights(folder, which, policy)
    return Player(policy, tokenizer, config.policy.max_turn_tokens)
