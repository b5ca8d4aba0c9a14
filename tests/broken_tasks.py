"""Environments that each break one part of the contract, for the tests of the checker."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from tool_gym import ToolEnv
from tool_gym.tasks.arithmetic import Arithmetic
from tool_gym.tasks.base import History, Problem, Task


class LeakingPrompt(Arithmetic):
    def sample_many(self, rng: np.random.Generator, difficulties: Any, split: str) -> list[Problem]:
        drawn = super().sample_many(rng, difficulties, split)
        return [replace(problem, prompt=f"{problem.prompt} it is [{problem.answer}]") for problem in drawn]


class HalfGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return 0.5 if answer else False  # type: ignore[return-value]


class ImpatientGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return int(answer) == int(problem.answer)


class NotPicklable(Arithmetic):
    def __init__(self) -> None:
        super().__init__()
        self.helper = lambda: None


class Unseeded(Arithmetic):
    def sample_many(self, rng: np.random.Generator, difficulties: Any, split: str) -> list[Problem]:
        return super().sample_many(np.random.default_rng(), difficulties, split)


class OfItsProcess(Arithmetic):
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        return super().sample(np.random.default_rng(os.getpid()), difficulty)


class BoastingLuck(Arithmetic):
    def __init__(self) -> None:
        super().__init__()
        self.luck = 0.6


class WrongOracle(Arithmetic):
    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        turns = super().demonstrate(problem, rng, style)
        return [*turns[:-1], "<answer>x</answer>"] if style == "clean" else turns


class BlindQuality(Arithmetic):
    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return 1.0


class GrudgingQuality(Arithmetic):
    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return 0.5


class BadQuality(Arithmetic):
    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return 1.5


class AnySplit(Arithmetic):
    def sample_many(self, rng: np.random.Generator, difficulties: Any, split: str) -> list[Problem]:
        return [self.sample(rng, int(level)) for level in difficulties]


class Rambling(Arithmetic):
    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        turns = super().demonstrate(problem, rng, style)
        return ["let me think", *turns] if style == "guess" else turns


class CannotSample(Task):
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        raise OSError("no such file: problems.json")

    def grade(self, problem: Problem, answer: str) -> bool:
        return False

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return 0.0

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return []


class HalfReward(ToolEnv):
    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, 0.5 * float(reward), terminated, truncated, info


class GradesOutput(ToolEnv):
    def step(self, action: str) -> Any:
        answer = self.episodes._running[self._id].record.problem.answer  # type: ignore[index]
        observation, reward, terminated, truncated, info = super().step(action)
        if answer in observation:
            return observation, 1.0, True, False, info
        return observation, reward, terminated, truncated, info


class GrowingInfo(ToolEnv):
    def step(self, action: str) -> Any:
        *step, info = super().step(action)
        return *step, {**info, "note": "a key that reset does not have"}


class ShowsProblem(ToolEnv):
    def reset(self, **arguments: Any) -> Any:
        observation, info = super().reset(**arguments)
        return observation, {**info, "difficulty": [info["difficulty"]]}
