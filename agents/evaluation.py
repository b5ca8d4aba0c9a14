"""Evaluation: fixed problems and draws, the same in every arm of a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from agents.metrics import evaluation_metrics
from agents.model import Policy
from agents.rollout import Play, TrajectoryBatch, check_finite, check_valid
from agents.setup import Setup, make_noise
from tool_gym import rng
from tool_gym.episodes import EpisodeSpec
from tool_gym.noise import NoiseModel, NoNoise

_SPLIT_NUMBER = {"validation": 0, "test": 1}


class Condition(NamedTuple):
    """One pass over the problems: with which noise, how many turns, and on which levels."""

    noise: NoiseModel
    max_turns: int
    difficulties: tuple[int, ...]


class Evaluator:
    """Evaluates policies on one seed's problems.

    ``noisy`` is the training's condition (with the frozen reference); ``clean`` has no faults; ``one_call``
    allows one call and an answer; ``harder`` poses the level that training does not.
    Draws are keyed without the step: each evaluation meets the same problems, faults and uniforms.

    Args:
        setup: of the run.
        reference: qualities that correlated noise refers to.
    """

    def __init__(self, setup: Setup, reference: npt.NDArray[np.float64]) -> None:
        self.setup = setup
        noise = make_noise(setup.config.noise, reference, frozen=True)
        turns, levels = setup.env.max_turns, setup.difficulties
        self.conditions = {
            "noisy": Condition(noise, turns, levels),
            "clean": Condition(NoNoise(), turns, levels),
            "one_call": Condition(noise, min(2, turns), levels),
        }
        if setup.harder is not None:
            self.conditions["harder"] = Condition(noise, turns, (setup.harder,))
        self._specs: dict[tuple[str, str], list[EpisodeSpec]] = {}

    def __call__(self, policy: Policy, split: str) -> dict[str, float]:
        """Figures under ``eval/`` on the validation or test problems; see agents.metrics.

        Raises InfrastructureError if more rollouts were lost to the machinery than figures can bear, DivergenceError
        if a log-probability is not finite: what such a policy says is no figure either.
        """
        batches = self.play(policy, split, list(self.conditions))
        for condition, batch in batches.items():
            check_valid(batch, self.setup.config.run.max_invalid)
            check_finite(batch, f"evaluation ({split}, {condition}): ")
        figures = {f"eval/{name}": value for name, value in evaluation_metrics(batches["noisy"]).items()}
        for condition, batch in batches.items():
            if condition != "noisy":
                figures[f"eval/accuracy_{condition}"] = evaluation_metrics(batch)["accuracy"]
        return figures

    def play(self, policy: Policy, split: str, conditions: Sequence[str]) -> dict[str, TrajectoryBatch]:
        """The rollouts of some conditions, by condition."""
        seed = self.setup.config.run.seed
        plays = []
        for name in conditions:
            condition = self.conditions[name]
            specs = self._draw(split, "harder" if name == "harder" else "noisy", condition)
            keys = rng.key(seed, "evaluation", 2, _SPLIT_NUMBER[split], np.arange(len(specs)))
            plays.append(Play(self.setup.episodes(condition.noise, condition.max_turns), specs, keys))
        return dict(zip(conditions, self.setup.rollout(policy, plays), strict=True))

    def _draw(self, split: str, problems: str, condition: Condition) -> list[EpisodeSpec]:
        """Problems and noise keys, drawn once; levels take turns, so that they are equally mixed."""
        if (split, problems) not in self._specs:
            run, number = self.setup.config.run, _SPLIT_NUMBER[split]
            count = run.eval_problems if split == "validation" else run.test_problems
            noise_keys = rng.key(run.seed, "evaluation", 1, number, np.arange(count))
            specs = []
            for index in range(count):
                level = condition.difficulties[index % len(condition.difficulties)]
                key = rng.key(run.seed, "evaluation", 0, number, level, index)
                specs.append(EpisodeSpec(self.setup.problem(key, (level,), split), int(noise_keys[index])))
            self._specs[split, problems] = specs
        return self._specs[split, problems]
