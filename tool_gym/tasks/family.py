"""What the built-in families share: exact luck, keyed sampling of many problems, demonstrations in six styles.

In each family an obvious, *confused* reading of the problem gives an answer of its own. Both the right answer and
whether the confused one agrees with it are drawn before the problem is, so that answers are uniform and a confused
answer is right by luck with probability exactly 1/answers, as a guess is.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tool_gym import rng as keyed
from tool_gym.errors import ConfigError, TaskError
from tool_gym.protocol import format_answer
from tool_gym.tasks.base import SPLITS, Problem, Task, split_of

# Sub-streams of a batch's key; the families' own begin after them.
TARGETS, LUCK, CANDIDATES, OWN_STREAMS = range(4)
_BLOCK_SIZES = (256, 65_536)
_MAX_CANDIDATES = 1 << 26
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Candidates = TypeVar("Candidates")


class Family(Task):
    """A family of problems with a confused reading that is right by luck with probability exactly 1/answers.

    Attributes:
        answers: the number of answers that there can be, each as likely.
        luck: 1/answers: of the confused reading, and of a guess.
    """

    def __init__(self, answers: int) -> None:
        if isinstance(answers, bool) or not isinstance(answers, int) or answers < 2:
            raise ConfigError("answers", answers, "an integer of at least 2")
        self.answers = answers
        self.luck = 1.0 / answers

    def __repr__(self) -> str:
        return f"{type(self).__name__}(answers={self.answers})"

    # Problems

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        """A problem of a difficulty, of any split. Raises ConfigError for an unknown difficulty."""
        return self._sample(rng, [difficulty], None)[0]

    def sample_split(self, rng: np.random.Generator, difficulty: int, split: str) -> Problem:
        return self.sample_many(rng, [difficulty], split)[0]

    def sample_many(self, rng: np.random.Generator, difficulties: Sequence[int], split: str) -> list[Problem]:
        """One problem of ``split`` per difficulty, in order, some tens of µs each for many at once.

        Answer and luck are fixed before the split, so both are exact within each split as well. Takes one
        draw from ``rng`` whatever the number of problems, and the first n of N problems are those that n
        difficulties alone would have given.

        Raises ConfigError for an unknown split or difficulty.
        """
        if split not in SPLITS:
            raise ConfigError("split", split, ", ".join(SPLITS))
        return self._sample(rng, difficulties, split)

    def check_difficulty(self, difficulty: int) -> None:
        """Raises ConfigError for a difficulty that the family does not have."""
        if difficulty not in self.difficulties:
            raise ConfigError("difficulty", difficulty, ", ".join(map(str, self.difficulties)))

    def _sample(self, rng: np.random.Generator, difficulties: Sequence[int], split: str | None) -> list[Problem]:
        for difficulty in set(difficulties):
            self.check_difficulty(difficulty)
        key = int(rng.integers(1 << 63))
        positions = np.arange(len(difficulties))
        targets = (keyed.uniform(keyed.fold(key, TARGETS), positions) * self.answers).astype(np.int64)
        lucky = keyed.uniform(keyed.fold(key, LUCK), positions) < 1.0 / self.answers
        return self._draw(key, difficulties, targets, lucky, split)

    @abstractmethod
    def _draw(
        self, key: int, difficulties: Sequence[int], targets: Ints, lucky: Bools, split: str | None
    ) -> list[Problem]:
        """N problems with the right answers ``targets`` (indices) and the luck ``lucky``, from draws under ``key``.

        A problem may depend on ``key``, its index, difficulty, target and luck, and on those before it; not on those
        after it. ``split`` None is any.
        """

    # Demonstrations

    def demonstrate(self, problem: Problem, rng: np.random.Generator, style: str) -> list[str]:
        """The turns of one demonstration.

        ``clean``: the right calls, the answer. ``confused``: the calls of the confused reading, its answer.
        ``slip_then_fix``: a call that fails by the policy's own doing, then as ``clean``; ``slip_then_guess``: such
        a call, then a uniform guess; ``guess``: a uniform guess at once. ``double_answer``: as ``clean``, the answer
        given twice.

        Raises ConfigError for another style.
        """
        answer = format_answer(problem.answer)
        scripts: Mapping[str, Callable[[], list[str]]] = {
            "clean": lambda: [*self._right_calls(problem), answer],
            "confused": lambda: [*self._confused_calls(problem), format_answer(self.confused_answer(problem))],
            "slip_then_fix": lambda: [self._slip(problem, rng), *self._right_calls(problem), answer],
            "slip_then_guess": lambda: [self._slip(problem, rng), self._guess(rng)],
            "guess": lambda: [self._guess(rng)],
            "double_answer": lambda: [*self._right_calls(problem), answer * 2],
        }
        if style not in scripts:
            raise ConfigError("style", style, ", ".join(scripts))
        return scripts[style]()

    @abstractmethod
    def confused_answer(self, problem: Problem) -> str:
        """The answer of the confused reading."""

    @abstractmethod
    def _right_calls(self, problem: Problem) -> list[str]:
        """The turns that reason rightly, before the answer."""

    @abstractmethod
    def _confused_calls(self, problem: Problem) -> list[str]:
        """The turns of the confused reading, before its answer."""

    @abstractmethod
    def _slip(self, problem: Problem, rng: np.random.Generator) -> str:
        """A turn whose call fails by itself."""

    def _guess(self, rng: np.random.Generator) -> str:
        return format_answer(self._candidate(int(rng.integers(self.answers))))

    def _candidate(self, index: int) -> str:
        """The text of the answer number ``index`` of ``answers``."""
        return str(index)


def same_integer(text: str, right: str) -> bool:
    """Whether a text, without blanks around it, is the integer ``right``. Other text is not, never an error."""
    text = text.strip()
    return _INTEGER.fullmatch(text) is not None and int(text) == int(right)


class RejectionFamily(Family, Generic[Candidates]):
    """A family whose problems are drawn by rejection: uniform candidates, each given to a slot that waits for its kind.

    A kind, or *cell*, is 2 · answer + lucky. ``Candidates`` holds a block of them, as arrays.
    """

    def _draw(
        self, key: int, difficulties: Sequence[int], targets: Ints, lucky: Bools, split: str | None
    ) -> list[Problem]:
        slots: dict[int, dict[int, deque[int]]] = {}
        cells = (2 * targets + lucky).tolist()
        for position, (difficulty, cell) in enumerate(zip(difficulties, cells, strict=True)):
            slots.setdefault(int(difficulty), {}).setdefault(cell, deque()).append(position)
        problems: dict[int, Problem] = {}
        for difficulty, waiting in slots.items():
            candidates = keyed.fold(key, CANDIDATES, difficulty)
            self._fill(problems, waiting, candidates, difficulty, split)
        return [problems[position] for position in range(len(difficulties))]

    def _fill(
        self,
        problems: dict[int, Problem],
        waiting: dict[int, deque[int]],
        key: keyed.UInt64s,
        difficulty: int,
        split: str | None,
    ) -> None:
        """Go through one stream of candidates, and give each to the first slot waiting for its cell.

        ``waiting`` holds the positions to fill of each cell. Candidates of a cell come in the order of the stream, so
        a slot's problem does not depend on the size of the blocks.
        """
        offset = 0
        smallest, largest = _BLOCK_SIZES
        while waiting:
            size = min(max(smallest, 4 * sum(map(len, waiting.values()))), largest)
            block = self._candidates(key, np.arange(offset, offset + size), difficulty)
            cells = self._cells(block)
            wanted = np.zeros(2 * self.answers + 1, dtype=np.bool_)
            wanted[list(waiting)] = True
            for index in np.flatnonzero(wanted[cells]).tolist():
                slots = waiting.get(cells[index])
                if slots is None:
                    continue
                problem = self._build(block, index)
                if split is None or split_of(problem) == split:
                    problems[slots.popleft()] = problem
                    if not slots:
                        del waiting[cells[index]]
            offset += size
            if offset > _MAX_CANDIDATES:
                raise TaskError(f"{self}: no problem of difficulty {difficulty}, split {split!r}, cells {set(waiting)}")

    @abstractmethod
    def _candidates(self, key: keyed.UInt64s, positions: Ints, difficulty: int) -> Candidates:
        """The candidates at N positions of the stream of ``key``, uniform."""

    @abstractmethod
    def _cells(self, candidates: Candidates) -> Ints:
        """(N,) cells; −1 for what is not to be posed, as where the two readings agree in value."""

    @abstractmethod
    def _build(self, candidates: Candidates, index: int) -> Problem:
        """The problem of one candidate."""
