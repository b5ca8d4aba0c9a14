"""Questions of several hops over a knowledge base: a task without Python, whose work is to ask in the right order.

A problem is a question ``RSa?``: from entity a follow relation R, from there S. The right calls are
``<lookup>Ra</lookup>``, which says d, then ``<lookup>Sd</lookup>``, which says the answer. The *confused* reading
is that of nested functions, R(S(a)): it follows the relations from the last one back, and its answer is right by
luck with probability exactly 1/answers. Some questions need no tool: their answer stands in the prompt,
``RSa=c; RSa?``.

Each problem has a knowledge base of its own, which only the tool shows: the prompt says nothing about it, and nothing
about it can be learnt by heart. Splits are by the prompt, so that a question posed in training is not posed in test
over any knowledge base.
"""

from __future__ import annotations

import functools
import itertools
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tool_gym import rng as keyed
from tool_gym.errors import ConfigError, TaskError, ToolError
from tool_gym.protocol import format_call
from tool_gym.tasks.base import History, Problem, split_of
from tool_gym.tasks.family import OWN_STREAMS, Bools, Family, Ints
from tool_gym.tools import tool

RELATIONS = "PQRSTU"
ENTITIES = string.ascii_lowercase
_STATED, _QUESTIONS, _READINGS, _OTHERS, _FACTS = range(OWN_STREAMS, OWN_STREAMS + 5)
_MAX_ATTEMPTS = 10_000


@tool
def lookup(key: str, problem: Problem) -> str:
    """Follows one relation from one entity, ``Ra``."""
    facts: dict[str, str] = problem.data["facts"]
    if key.strip() not in facts:
        raise ToolError(key, kind="KeyError")
    return facts[key.strip()]


class Retrieval(Family):
    """Questions of k hops over six relations and ``answers`` entities, any of which may be the answer. Difficulty is k.

    The relations of a question are all different. ``Problem.data``: ``facts`` (the knowledge base, ``{"Ra": "d"}``),
    ``path`` and ``confused_path`` (the k keys that either reading looks up, in order), ``confused`` (the answer of
    the confused reading), ``stated`` (whether the answer stands in the prompt).

    The two paths share no key: so the last fact of each is free, which makes luck exact, and no call of the confused
    reading is a right one. Beside the paths each fact exists with probability 1/2: looking up another is an error.

    Args:
        answers: the number of entities, a, b, c and so on: 2 to 26.
        no_tool: the share of questions whose answer stands in the prompt, 0 to 1.

    Raises ConfigError for other values.
    """

    difficulties: ClassVar[tuple[int, ...]] = (2, 3, 4, 5)
    # After a slip a guess is the rule: were it the right calls, slipping first would be learnt in place of them.
    mixture: ClassVar[Mapping[str, float]] = {
        "clean": 0.10,
        "confused": 0.55,
        "slip_then_fix": 0.05,
        "slip_then_guess": 0.10,
        "guess": 0.20,
    }
    max_error_chars: ClassVar[int | None] = 24

    def __init__(self, answers: int = 10, no_tool: float = 0.1) -> None:
        super().__init__(answers)
        if answers > len(ENTITIES):
            raise ConfigError("answers", answers, f"2 to {len(ENTITIES)}")
        if isinstance(no_tool, bool) or not isinstance(no_tool, int | float) or not 0 <= no_tool <= 1:
            raise ConfigError("no_tool", no_tool, "a number from 0 to 1")
        self.no_tool = float(no_tool)
        self._keys = [f"{relation}{entity}" for relation in RELATIONS for entity in ENTITIES[:answers]]

    def __repr__(self) -> str:
        return f"Retrieval(answers={self.answers}, no_tool={self.no_tool})"

    # Problems

    def problem(self, question: str, facts: Mapping[str, str], *, stated: bool = False) -> Problem:
        """The problem of a given question and knowledge base, whatever its luck: for pinned problems and tests.

        Args:
            question: such as ``RSa``: different relations of ``PQRSTU``, their number a difficulty, and an entity.
            facts: such as ``{"Ra": "d", ...}``, with all that the two readings need.
            stated: whether the answer stands in the prompt.

        Raises ConfigError for anything else.
        """
        relations, start = question[:-1], question[-1:]
        self.check_difficulty(len(relations))
        if not set(relations) <= set(RELATIONS) or len(set(relations)) != len(relations):
            raise ConfigError("question", question, f"different relations of {', '.join(RELATIONS)}")
        entities = ENTITIES[: self.answers]
        for key, value in facts.items():
            if key not in self._keys or len(value) != 1 or value not in entities:
                raise ConfigError("facts", f"{key}: {value}", f"facts such as {self._keys[0]}: {entities[-1]}")
        paths: list[tuple[tuple[str, ...], str]] = []
        for order in (relations, relations[::-1]):
            entity, keys = start, []
            for relation in order:
                keys.append(f"{relation}{entity}")
                if keys[-1] not in facts:
                    raise ConfigError("facts", facts, f"one of {keys[-1]}")
                entity = facts[keys[-1]]
            paths.append((tuple(keys), entity))
        (path, answer), (confused_path, confused) = paths
        return self._problem(question, dict(facts), path, answer, confused_path, confused, stated)

    def _draw(
        self, key: int, difficulties: Sequence[int], targets: Ints, lucky: Bools, split: str | None
    ) -> list[Problem]:
        positions, levels = np.arange(len(difficulties)), np.asarray(difficulties)
        stated = keyed.uniform(keyed.fold(key, _STATED), positions) < self.no_tool
        others = (keyed.uniform(keyed.fold(key, _OTHERS), positions) * (self.answers - 1)).astype(np.int64)
        confused = np.where(lucky, targets, (targets + 1 + others) % self.answers)
        problems: dict[int, Problem] = {}
        for level in sorted(set(difficulties)):
            own = positions[levels == level]
            answers = [ENTITIES[target] for target in targets[own].tolist()]
            stated_answers = [
                answer if is_stated else "" for answer, is_stated in zip(answers, stated[own], strict=True)
            ]
            relations, starts = self._questions(key, own, level, stated_answers, split)
            readings = self._readings(key, own, starts, level)
            readings[:, 0, -1], readings[:, 1, -1] = targets[own], confused[own]
            bases = self._knowledge(key, own, relations, readings)
            for row, position in enumerate(own.tolist()):
                problems[position] = self._assemble(relations[row], readings[row], bases[row], bool(stated[position]))
        return [problems[position] for position in positions.tolist()]

    def _questions(
        self, key: int, positions: Ints, level: int, stated_answers: Sequence[str], split: str | None
    ) -> tuple[Ints, Ints]:
        """Relations (N, k) and entities (N,) of questions, uniform among those of the split."""
        orders = _orders(level)
        relations, starts = np.empty((len(positions), level), dtype=np.int64), np.empty(len(positions), dtype=np.int64)
        left = np.arange(len(positions))
        for attempt in range(_MAX_ATTEMPTS):
            drawn = keyed.uniform(keyed.fold(key, _QUESTIONS, attempt), positions[left])
            number = (drawn * len(orders) * self.answers).astype(np.int64)
            relations[left], starts[left] = orders[number // self.answers], number % self.answers
            if split is not None:
                prompts = [
                    _prompt(_question(relations[row], starts[row]), stated_answers[row]) for row in left.tolist()
                ]
                left = left[[split_of(Problem(prompt, "")) != split for prompt in prompts]]
            if split is None or not len(left):
                return relations, starts
        raise TaskError(f"{self}: no question of {level} hops in split {split!r}")

    def _readings(self, key: int, positions: Ints, starts: Ints, level: int) -> Ints:
        """(N, 2, k + 1) entities that the two readings pass, the right one first; the last of each is left to fill in.

        Uniform among those in which the readings share no key: relation i of the question is followed from entity
        i − 1 of the right one, and from entity k − i of the other.
        """
        readings = np.zeros((len(positions), 2, level + 1), dtype=np.int64)
        readings[:, :, 0] = starts[:, None]
        left = np.arange(len(positions))
        for attempt in range(_MAX_ATTEMPTS):
            keys = keyed.fold(key, _READINGS, attempt, positions[left])[:, None]
            drawn = (keyed.uniform(keys, np.arange(2 * (level - 1))) * self.answers).astype(np.int64)
            readings[left, :, 1:-1] = drawn.reshape(-1, 2, level - 1)
            shared = readings[left, 0, :-1] == readings[left, 1, -2::-1]
            left = left[shared.any(axis=1)]
            if not len(left):
                return readings
        raise TaskError(f"{self}: no two readings of {level} hops that share no key")

    def _knowledge(self, key: int, positions: Ints, relations: Ints, readings: Ints) -> list[dict[str, str]]:
        """N knowledge bases in which the two readings are as given, and of the other facts each exists or not."""
        keys = keyed.fold(key, _FACTS, positions)[:, None]
        # Of twice as many values as there are entities, the upper half stands for no fact.
        values = (keyed.uniform(keys, np.arange(len(self._keys))) * 2 * self.answers).astype(np.int64)
        followed = np.stack((relations, relations[:, ::-1]), axis=1) * self.answers + readings[:, :, :-1]
        values[np.arange(len(positions))[:, None, None], followed] = readings[:, :, 1:]
        known = [*ENTITIES[: self.answers], *[None] * self.answers]
        rows = ([known[value] for value in row] for row in values.tolist())
        return [{name: value for name, value in zip(self._keys, row, strict=True) if value is not None} for row in rows]

    def _assemble(self, relations: Ints, readings: Ints, facts: dict[str, str], stated: bool) -> Problem:
        right, confused = [[ENTITIES[entity] for entity in row] for row in readings.tolist()]
        names = [RELATIONS[relation] for relation in relations.tolist()]
        path = tuple(f"{name}{entity}" for name, entity in zip(names, right, strict=False))
        confused_path = tuple(f"{name}{entity}" for name, entity in zip(names[::-1], confused, strict=False))
        question = _question(relations, readings[0, 0])
        return self._problem(question, facts, path, right[-1], confused_path, confused[-1], stated)

    def _problem(
        self,
        question: str,
        facts: dict[str, str],
        path: tuple[str, ...],
        answer: str,
        confused_path: tuple[str, ...],
        confused: str,
        stated: bool,
    ) -> Problem:
        data: dict[str, Any] = {
            "facts": facts,
            "path": path,
            "confused_path": confused_path,
            "confused": confused,
            "stated": stated,
        }
        return Problem(_prompt(question, answer if stated else ""), answer, len(path), data)

    # Judgement

    def grade(self, problem: Problem, answer: str) -> bool:
        """Whether ``answer``, without blanks around it, is the entity that the question leads to."""
        return answer.strip() == problem.answer

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        """1 for a right step, else the share of the hops that stand behind the call, in [0, 1).

        A call is a right step if it looks up the next key of the true path, or again one that was found: those before
        it were found in order, in the calls of the episode. Another that finds a fact scores i/k, at most (k − 1)/k,
        i being the number of hops found so far. 0 for a call that fails, and for calls of other tools.
        """
        path: tuple[str, ...] = problem.data["path"]
        found, quality = 0, 0.0
        for call, result in history:
            if call.tool != lookup.name or not result.ok:
                quality = 0.0
                continue
            key = call.body.strip()
            if key in path[: found + 1]:
                found, quality = max(found, path.index(key) + 1), 1.0
            else:
                quality = min(found, len(path) - 1) / len(path)
        return quality

    # Demonstrations

    def confused_answer(self, problem: Problem) -> str:
        return str(problem.data["confused"])

    def _right_calls(self, problem: Problem) -> list[str]:
        """The hops one by one; none where the answer stands in the prompt."""
        return [] if problem.data["stated"] else [_lookup(key) for key in problem.data["path"]]

    def _confused_calls(self, problem: Problem) -> list[str]:
        return [_lookup(key) for key in problem.data["confused_path"]]

    def _slip(self, problem: Problem, rng: np.random.Generator) -> str:
        """What no knowledge base has: the whole question, a relation or an entity alone, or a key turned round."""
        relation, entity = problem.data[("path", "confused_path")[int(rng.integers(2))]][0]
        question = "".join(key[0] for key in problem.data["path"]) + entity
        slips = (question, relation, entity, entity + relation)
        return _lookup(slips[int(rng.integers(len(slips)))])

    def _candidate(self, index: int) -> str:
        return ENTITIES[index]


@functools.cache
def _orders(size: int) -> Ints:
    """(P, size) ways to put ``size`` different relations in order."""
    return np.array(list(itertools.permutations(range(len(RELATIONS)), size)), dtype=np.int64)


def _question(relations: Ints, start: int) -> str:
    """``RSa``."""
    return "".join(RELATIONS[relation] for relation in relations) + ENTITIES[start]


def _prompt(question: str, stated_answer: str) -> str:
    """``RSa?``, or ``RSa=c; RSa?`` where the answer is stated."""
    return f"{question}={stated_answer}; {question}?" if stated_answer else f"{question}?"


def _lookup(key: str) -> str:
    return format_call(lookup.name, key)
