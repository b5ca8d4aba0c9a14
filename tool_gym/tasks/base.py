"""The contract between an episode and a family of problems."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tool_gym import watchdog
from tool_gym.errors import ConfigError, TaskError
from tool_gym.tools.base import ToolCall, ToolResult
from tool_gym.watchdog import trusted

# Of every ten hash buckets eight are for training, one for validation, one for test.
SPLITS: Mapping[str, range] = {"train": range(0, 8), "validation": range(8, 9), "test": range(9, 10)}
_MANY = 1000  # problems that may take as long together as one call
_MAX_REJECTIONS = 100_000

History = Sequence[tuple[ToolCall, ToolResult]]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. ``data`` holds what the task needs to grade and judge; the policy sees only ``prompt``.

    Prompt and answer are text, the prompt not empty, the difficulty is an int: whoever draws a problem checks it.
    """

    prompt: str
    answer: str
    difficulty: int = 1
    data: Mapping[str, Any] = field(default_factory=dict)


def split_of(problem: Problem) -> str:
    """The split a problem belongs to, by a hash of its prompt: the same on every machine, for every seed."""
    bucket = int.from_bytes(hashlib.blake2b(problem.prompt.encode(), digest_size=8).digest(), "big") % 10
    return next(name for name, buckets in SPLITS.items() if bucket in buckets)


class Task(ABC):
    """A family of problems: how to draw one, grade an answer, judge a call, and demonstrate.

    A task is trusted code, and picklable: it is sent to worker processes.

    Class attributes:
        difficulties: the levels that ``sample`` accepts.
        mixture: share of each demonstration style in the default cold start; sums to 1.
        cold_start: ``steps`` and ``batch`` of the default cold start, where the task needs others than most do.
        trained: the levels that a policy is trained on by default; () for the first two.
        max_error_chars: error texts shown to the policy are cut to this length, None for no cut.
        extractive: whether the answer stands in the prompt by design, to be found there.

    Attributes:
        luck: probability with which the answer of the ``confused`` demonstration is right, and a uniform guess; None
            where the task does not promise one.
    """

    difficulties: ClassVar[tuple[int, ...]] = (1,)
    mixture: ClassVar[Mapping[str, float]] = {"clean": 1.0}
    cold_start: ClassVar[Mapping[str, int]] = {}
    trained: ClassVar[tuple[int, ...]] = ()
    max_error_chars: ClassVar[int | None] = None
    extractive: ClassVar[bool] = False
    luck: float | None = None

    @abstractmethod
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        """Draw a problem of any split. Raises ConfigError if the difficulty is not one of ``difficulties``."""

    def grade(self, problem: Problem, answer: str) -> bool:
        """Whether the text between the answer tags is right: here, whether it is the answer, blanks around it aside."""
        return answer.strip() == problem.answer

    @abstractmethod
    def reasoning_quality(self, problem: Problem, history: History) -> float:
        """Quality of the last call of ``history``, 0 (confused) to 1 (right), from true results, before any fault."""

    @abstractmethod
    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        """The assistant turns of one demonstration, as text.

        Raises ConfigError (or KeyError) for a style that the task does not know.
        """

    def sample_split(self, rng: np.random.Generator, difficulty: int, split: str) -> Problem:
        """Draw a problem of one split by rejection.

        Raises ConfigError for an unknown split, TaskError where the split seems empty.
        """
        if split not in SPLITS:
            raise ConfigError("split", split, ", ".join(SPLITS))
        for _ in range(_MAX_REJECTIONS):
            problem = _checked(f"{type(self).__name__}.sample", self.sample(rng, difficulty))
            if split_of(problem) == split:
                return problem
        raise TaskError(f"{type(self).__name__}.sample: no problem of split {split!r} at difficulty {difficulty}")

    def sample_many(self, rng: np.random.Generator, difficulties: Sequence[int], split: str) -> list[Problem]:
        """One problem of ``split`` per difficulty, in order. Tasks with a faster way than one at a time override it.

        Raises as ``sample_split`` does.
        """
        return [self.sample_split(rng, int(difficulty), split) for difficulty in difficulties]


def draw(task: Task, rng: np.random.Generator, difficulty: int, split: str) -> Problem:
    """``task.sample_split``, watched. Raises TaskError, naming the task, for whatever it raises or returns wrongly."""
    name = f"{type(task).__name__}.sample"
    with trusted(name, f"difficulty {difficulty}"):
        return _checked(name, task.sample_split(rng, difficulty, split))


def demonstrates(task: Task, problem: Problem, style: str, rng: np.random.Generator) -> bool:
    """Whether a task knows a style of demonstration, watched: those of its mixture, and what else it can write.

    Raises TaskError, naming the task, for whatever ``demonstrate`` raises but ConfigError and KeyError.
    """
    with trusted(f"{type(task).__name__}.demonstrate", problem.prompt):
        try:
            task.demonstrate(problem, rng, style)
        except (ConfigError, KeyError):
            return False
    return True


def draw_many(task: Task, rng: np.random.Generator, difficulties: Sequence[int], split: str) -> list[Problem]:
    """``task.sample_many``, watched. Raises TaskError as :func:`draw` does, and for another number of problems."""
    if type(task).sample_many is Task.sample_many:
        return [draw(task, rng, int(difficulty), split) for difficulty in difficulties]
    name = f"{type(task).__name__}.sample_many"
    # One call for all of them, which may take as long as a good number of calls.
    seconds = watchdog.SECONDS * (1.0 + len(difficulties) / _MANY)
    with trusted(name, f"{len(difficulties)} problems", seconds):
        drawn = [_checked(name, problem) for problem in task.sample_many(rng, difficulties, split)]
    if len(drawn) != len(difficulties):
        raise TaskError(f"{name} returned {len(drawn)} problems for {len(difficulties)} difficulties")
    return drawn


def _checked(name: str, problem: Any) -> Problem:
    """The problem that a task returned. Raises TaskError, with its method and the value, for what is none."""
    if not isinstance(problem, Problem):
        raise TaskError(f"{name} returned {problem!r}, not a Problem")
    if not isinstance(problem.prompt, str) or not problem.prompt:
        raise TaskError(f"{name} returned a Problem whose prompt is {problem.prompt!r}, not a text that says something")
    # An answer that is no text equals no policy's: the right one would never be rewarded.
    if not isinstance(problem.answer, str):
        raise TaskError(f"{name} returned a Problem whose answer is {problem.answer!r}, not a text: {problem.prompt!r}")
    if not isinstance(problem.difficulty, int) or isinstance(problem.difficulty, bool):
        wrong = f"{problem.difficulty!r}, not an int: {problem.prompt!r}"
        raise TaskError(f"{name} returned a Problem whose difficulty is {wrong}")
    return problem
