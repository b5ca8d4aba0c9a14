"""A small task, a pool without processes and a scripted noise, for tests of episodes and their views."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tool_gym.errors import ConfigError
from tool_gym.noise import NoiseModel
from tool_gym.tasks.base import History, Problem, Task
from tool_gym.tools import Finished, Results, Tool, ToolRequest, ToolResult

VALUE_OF = {"right": 1.0, "half": 0.5}


def run_program(code: str) -> ToolResult:
    """What a pool answers to ``print``-less programs: a literal, a sum of two integers, or a named outcome."""
    if code == "lost":
        return ToolResult("infrastructure", "worker", "the worker is gone")
    if code == "loop":
        return ToolResult("limit", "steps", "step budget spent")
    if code == "escape":
        return ToolResult("refused", "policy", "not allowed")
    if code.startswith("say "):
        return ToolResult("ok", output=code.removeprefix("say ") + "\n")
    try:
        left, plus, right = code.partition("+")
        value = ast.literal_eval(left) + (ast.literal_eval(right) if plus else 0)
    except (SyntaxError, ValueError):
        return ToolResult("error", "SyntaxError", "line 1: invalid syntax")
    return ToolResult("ok", output=str(value))


class FakePending:
    """Hands out results in the order, and the helpings, that the pool's ``schedule`` says."""

    def __init__(self, results: list[ToolResult], helpings: list[list[int]]) -> None:
        self._results, self._helpings = results, helpings

    @property
    def remaining(self) -> int:
        return sum(map(len, self._helpings))

    def take(self, block: bool = False) -> list[tuple[int, ToolResult]]:
        while self._helpings:
            helping = self._helpings.pop(0)
            if helping or not block:
                return [(index, self._results[index]) for index in helping]
        return []


class FakePool:
    """Records batches; ``schedule(n)`` gives the helpings of indices in which n results come in."""

    def __init__(self, schedule: Callable[[int], list[list[int]]] = lambda n: [list(range(n))]) -> None:
        self.schedule = schedule
        self.batches: list[list[str]] = []

    def submit(
        self, codes: Sequence[str], *, inputs: Any = None, echo: bool = False, sessions: None = None
    ) -> FakePending:
        assert echo, "the python tool asks for the value of a final expression"
        self.batches.append(list(codes))
        return FakePending([run_program(code) for code in codes], self.schedule(len(codes)))


class Sums(Task):
    """``a+b`` for one-digit a and b times the difficulty; a call is right if it is the sum, half if it holds a plus."""

    difficulties: ClassVar[tuple[int, ...]] = (1, 2, 3)
    max_error_chars: ClassVar[int | None] = 40

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        if difficulty not in self.difficulties:
            raise ConfigError("difficulty", difficulty, "1, 2, 3")
        a, b = (int(x) * difficulty + self.offset for x in rng.integers(0, 1000, size=2))
        return Problem(f"{a}+{b}", str(a + b), difficulty)

    def grade(self, problem: Problem, answer: str) -> bool:
        return answer.strip() == problem.answer

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        call, _ = history[-1]
        return 1.0 if call.body == problem.prompt else 0.5 if "+" in call.body else 0.0

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        return [f"<python>{problem.prompt}</python>", f"<answer>{problem.answer}</answer>"]


class Echo(Tool):
    """A tool that runs inside the caller and says what it was told."""

    name = "echo"

    def submit(self, requests: Sequence[ToolRequest], pool: Callable[[], Any]) -> Results:
        return Finished([ToolResult("ok", output=request.body) for request in requests])


class ScriptedNoise(NoiseModel):
    """Strikes the calls of an episode whose bit is set in its key; remembers what it was asked."""

    name = "scripted"
    rate = 0.5

    def __init__(self) -> None:
        self.asked: list[list[tuple[float, int, int]]] = []
        self.observed: list[float] = []

    def draw(self, qualities: Any, keys: Any, calls: Any) -> npt.NDArray[np.bool_]:
        assert keys.dtype == np.uint64
        self.asked.append(list(zip(qualities.tolist(), keys.tolist(), calls.tolist(), strict=True)))
        return np.asarray((keys >> calls.astype(np.uint64)) & np.uint64(1) == 1)

    def fault_probability(self, quality: float) -> float:
        return self.rate

    def observe(self, qualities: Any) -> None:
        self.observed += np.asarray(qualities).tolist()
