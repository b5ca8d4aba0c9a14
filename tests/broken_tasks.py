"""Environments that each break one part of the contract, for the tests of the checker."""

from __future__ import annotations

import itertools
import os
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from tool_gym import ToolEnv, tool
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


class WrongShares(Arithmetic):
    mixture = {"clean": 0.3, "confused": 0.9}  # noqa: RUF012


class NoSuchStyle(Arithmetic):
    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return [] if style == "double_answer" else super().demonstrate(problem, rng, style)


class OftenLuck(Arithmetic):
    def __init__(self) -> None:
        super().__init__()
        self.luck = "often"  # type: ignore[assignment]


@tool
def look(problem: Problem) -> str:
    """What the number is."""
    return problem.answer


class Looked(Task):
    """Sound: one call without arguments, which is right whenever it is made, tells the answer."""

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        key, number = rng.integers(1000, 10_000, size=2).tolist()
        return Problem(f"what is behind {key}?", str(number))

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return float(history[-1][1].ok)

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return {"clean": ["<look></look>", f"<answer>{problem.answer}</answer>"]}[style]


_calls = itertools.count()


@tool
def counting(text: str) -> str:
    """Says what it is told, and the how-manieth call of the process it is."""
    return f"{text} ({next(_calls)})"


class Echoed(Task):
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        number = str(rng.integers(1000, 10_000))
        return Problem(number[::-1], number)

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return float(history[-1][0].body == problem.answer)

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return {"clean": [f"<counting>{problem.answer}</counting>", f"<answer>{problem.answer}</answer>"]}[style]


@tool
def writing(text: str, problem: Problem) -> str:
    """Says what it is told, and counts its calls where all rollouts of the problem find it."""
    problem.data["calls"] += 1  # type: ignore[index]
    return text


class Written(Echoed):
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        drawn = super().sample(rng, difficulty)
        return Problem(drawn.prompt, drawn.answer, data={"calls": 0})

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return [turn.replace("counting", "writing") for turn in super().demonstrate(problem, rng, style)]


@tool
def undescribed(text: str) -> str:
    return text


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


class LateQuality(Arithmetic):
    """Judges the first call of each episode as worth nothing."""

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return super().reasoning_quality(problem, history) if len(history) > 1 else 0.0

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        turns = super().demonstrate(problem, rng, style)
        return [turns[0], *turns] if style == "clean" else turns


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


class LeaksToCalls(ToolEnv):
    """Whose tool's reply tells the answer of nine problems in ten, whatever is called."""

    def step(self, action: str) -> Any:
        problem = self.problem
        observation, *rest = super().step(action)
        if "output>" in observation and zlib.crc32(problem.prompt.encode()) % 10:
            observation += f" it is [{problem.answer}]"
        return observation, *rest


class Raising(ToolEnv):
    def step(self, action: str) -> Any:
        raise KeyError("unlucky")


class GrowingInfo(ToolEnv):
    def step(self, action: str) -> Any:
        *step, info = super().step(action)
        return *step, {**info, "note": "a key that reset does not have"}


class ShowsProblem(ToolEnv):
    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        return observation, {**info, "difficulty": [info["difficulty"]]}
