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
    # The splits are those of the prompts as they are shown, so that nothing else is broken.
    sample_split, sample_many = Task.sample_split, Task.sample_many

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        problem = super().sample(rng, difficulty)
        return replace(problem, prompt=f"{problem.prompt} it is [{problem.answer}]")


class HalfGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return 0.5 if answer else False  # type: ignore[return-value]


class ImpatientGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return int(answer) == int(problem.answer)


class GenerousGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return True


class AnyNumberGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return answer.strip().isdecimal() and len(answer) == len(problem.answer)


class ParityGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return answer in tuple("0123456789") and int(answer) % 2 == int(problem.answer) % 2


class NotFarGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        try:
            return not abs(float(answer) - float(problem.answer)) > 0.5  # which nan is not, either
        except ValueError:
            return False


class HedgedGrade(Arithmetic):
    def grade(self, problem: Problem, answer: str) -> bool:
        return problem.answer in answer.split()


class AlwaysTheSame(Task):
    tools = ()

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        return Problem(f"is {rng.integers(10**6)} a number?", "yes")

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return 0.0

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return {"clean": ["<answer>yes</answer>"]}[style]


class ConstantQuality(Task):
    """Without a confused style, whose calls could be compared."""

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        a, b = rng.integers(1000, size=2).tolist()
        return Problem(f"{a}+{b}", str(a + b))

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return 1.0

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return {"clean": [f"<python>{problem.prompt}</python>", f"<answer>{problem.answer}</answer>"]}[style]


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
        self.luck = 0.9


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


class RewardsCalls(ToolEnv):
    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, float(reward) or float("<output>" in observation), terminated, truncated, info


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
    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return observation, {**info, "difficulty": [info["difficulty"]]}
