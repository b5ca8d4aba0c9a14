"""A shuffled list of assignments: a task in which the work is to find the order, for a tool that remembers.

A problem is a list of k assignments, ``c=b*2; a=3; b=a+4; c mod 10?``: one gives a digit, each of the others computes
with the name that another one sets, and the last of that chain is asked for. Evaluated in the order of dependence,
a = 3, b = 7, c = 14, answer 4. The *confused* reading goes through the list from top to bottom and takes a name that
is not set yet as 0: c = 0·2 = 0. The confused answer is right by luck with probability exactly 1/answers.

Programs are written a few assignments a call, in an interpreter that keeps its state within an episode.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tool_gym import rng as keyed
from tool_gym.errors import ConfigError
from tool_gym.protocol import format_call
from tool_gym.tasks.base import History, Problem
from tool_gym.tasks.evaluator import Names, Trace, names_after, progress, trace, was_parsed
from tool_gym.tasks.family import OWN_STREAMS, Ints, RejectionFamily, same_integer
from tool_gym.tools.base import ToolCall, ToolResult

NAMES = "abcdefgh"
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
PER_CALL = 3
"""Assignments that one call of a demonstration makes at most."""

_DIGITS = 9  # 1 to 9: a 0 would be what a name is that is not set yet
_LEAST_PROBLEMS = 100
_MOST_ANSWERS = 1000
_ORDERS, _NAMINGS = range(OWN_STREAMS, OWN_STREAMS + 2)
_ASSIGNMENT = re.compile(r"([a-z])=(?:([a-z])([-+*]))?([1-9])")


class Lists(NamedTuple):
    """N lists of k assignments, by their place in the chain.

    Attributes:
        first_N: what the first is set to.
        operators_KN, operands_KN: of the k − 1 others, operators as indices.
        places_KN: place in the list of each of the k.
        namings_N: which of the :func:`_namings`.
    """

    first_N: Ints
    operators_KN: Ints
    operands_KN: Ints
    places_KN: Ints
    namings_N: Ints


class Assignments(RejectionFamily[Lists]):
    """Shuffled assignments that form a chain, its end modulo ``answers``. Difficulty is their number, k.

    ``Problem.data``: ``listed`` (the k assignments as posed), ``ordered`` (the same in the order of dependence),
    ``partials`` (the k − 1 values computed in that order), ``confused`` (the value of the confused reading).

    Only lists are posed in which a name is used before it is set among the first ``PER_CALL`` assignments, and in
    which no value that the confused reading gets wrong is one of the true partial results: so that each program of
    the confused reading computes something wrong, whatever the luck of its answer.

    Args:
        answers: the number of answers, 0 to answers − 1; from 2 to 10: of each pair of an answer and luck there must
            be 100 lists of three assignments, naming aside, and of 11 some pairs have 24. Raises ConfigError
            otherwise.
    """

    difficulties: ClassVar[tuple[int, ...]] = (3, 4, 5, 6)
    mixture: ClassVar[Mapping[str, float]] = {
        "clean": 0.10,
        "confused": 0.55,
        "slip_then_fix": 0.10,
        "slip_then_guess": 0.10,
        "guess": 0.15,
    }
    max_error_chars: ClassVar[int | None] = 27  # ``NameError: line 1: name 'b'``

    def __init__(self, answers: int = 10) -> None:
        super().__init__(answers)
        if answers > _MOST_ANSWERS or self._rarest_cell() < _LEAST_PROBLEMS:
            raise ConfigError("answers", answers, "2 to 10: there luck can be exact")

    # Problems

    def problem(self, text: str) -> Problem:
        """The problem of a given list, ``c=b*2; a=3; b=a+4``, whatever its luck: for pinned problems and tests.

        Raises ConfigError unless the assignments, their number a difficulty, form one chain: one of a digit from 1
        to 9, each other of another's name, an operator of ``+-*`` and such a digit.
        """
        listed = tuple(part.replace(" ", "") for part in text.split(";"))
        self.check_difficulty(len(listed))
        matches = [_ASSIGNMENT.fullmatch(part) for part in listed]
        # By the name that an assignment uses; "" for the first of the chain, which uses none.
        users = {match[2] or "": match for match in matches if match is not None}
        ordered: list[str] = []
        used = ""
        while used in users:
            match = users.pop(used)
            ordered.append(match[0])
            used = match[1]
        if len(ordered) != len(listed) or len({part[0] for part in listed}) != len(listed):
            raise ConfigError("text", text, "assignments such as a=3 and b=a+4 that form one chain")
        return self._problem(listed, tuple(ordered))

    def _candidates(self, key: keyed.UInt64s, positions: Ints, difficulty: int) -> Lists:
        def draw(key: keyed.UInt64s, count: int) -> Ints:
            return (keyed.uniform(key, positions) * count).astype(np.int64)

        chains = draw(key, _DIGITS * (_DIGITS * len(OPERATORS)) ** (difficulty - 1))
        orders = draw(keyed.fold(key, _ORDERS), math.factorial(difficulty))
        namings = draw(keyed.fold(key, _NAMINGS), math.perm(len(NAMES), difficulty))
        return _lists(chains, orders, namings, difficulty)

    def _cells(self, candidates: Lists) -> Ints:
        true = confused = candidates.first_N
        partials, wrong = [], []
        misread = np.zeros(len(true), dtype=np.bool_)  # whether the confused reading is wrong by now
        misread_early = misread.copy()
        for number, (operators, operands) in enumerate(
            zip(candidates.operators_KN, candidates.operands_KN, strict=True)
        ):
            place, before = candidates.places_KN[number + 1], candidates.places_KN[number]
            true = _apply(operators, true, operands)
            confused = _apply(operators, np.where(before < place, confused, 0), operands)
            misread = misread | (place < before)
            misread_early |= misread & (place < PER_CALL)
            partials.append(true)
            wrong.append((misread, confused))
        posed = misread_early
        for misread, value in wrong:
            for partial in partials:
                posed = posed & ~(misread & (value == partial))
        lucky = (true - confused) % self.answers == 0
        return np.where(posed, 2 * (true % self.answers) + lucky, -1)

    def _build(self, candidates: Lists, index: int) -> Problem:
        names = _namings(len(candidates.places_KN))[candidates.namings_N[index]]
        ordered = [f"{names[0]}={candidates.first_N[index]}"]
        signs = [*OPERATORS]
        steps = zip(candidates.operators_KN[:, index].tolist(), candidates.operands_KN[:, index].tolist(), strict=True)
        for number, (sign, operand) in enumerate(steps):
            ordered.append(f"{names[number + 1]}={names[number]}{signs[sign]}{operand}")
        listed = [""] * len(ordered)
        for place, assignment in zip(candidates.places_KN[:, index].tolist(), ordered, strict=True):
            listed[place] = assignment
        return self._problem(tuple(listed), tuple(ordered))

    def _rarest_cell(self) -> int:
        """How many lists of the least difficulty the rarest cell has, naming aside."""
        level = self.difficulties[0]
        chains, orders = _DIGITS * (_DIGITS * len(OPERATORS)) ** (level - 1), math.factorial(level)
        number = np.arange(chains * orders)
        cells = self._cells(_lists(number // orders, number % orders, np.zeros_like(number), level))
        return int(np.bincount(cells[cells >= 0], minlength=2 * self.answers).min())

    def _problem(self, listed: tuple[str, ...], ordered: tuple[str, ...]) -> Problem:
        partials = tuple(_values(ordered))[1:]
        asked = ordered[-1][0]
        confused = _values(listed)[[part[0] for part in listed].index(asked)]
        data: dict[str, Any] = {"listed": listed, "ordered": ordered, "partials": partials, "confused": confused}
        prompt = f"{'; '.join(listed)}; {asked} mod {self.answers}?"
        return Problem(prompt, str(partials[-1] % self.answers), len(listed), data)

    # Judgement

    def grade(self, problem: Problem, answer: str) -> bool:
        """Whether ``answer``, without blanks around it, is the right integer; other text is wrong, never an error."""
        return same_integer(answer, problem.answer)

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        """1 for a right step, else how far the call gets along the true chain before it goes astray, in [0, 1).

        The chain's n = k − 1 partial results are found in order, over the calls of the episode, as values of
        operations; what a call computes is followed with the variables that earlier calls left. A call is a *right
        step* if it computes a run of them that begins no later than with the first that is not found yet, nothing
        else, and shows nothing or one that is found; or if it shows the last one, all being found by now. (Before the
        modulus: a final ``X % answers`` counts as X. Such a remainder of an earlier one is not right.)

        Any other call scores i/n, at most (n − 1)/n, i being the greatest index such that it computes partial result
        i while those before it are found. 0 for code that the interpreter did not parse, and for other tools' calls.
        """
        partials: tuple[int, ...] = problem.data["partials"]
        quality, found = 0.0, 0
        names: Names = ()
        for call, result in history:
            quality, found, names = self._judge(call, result, partials, found, names)
        return quality

    def _judge(
        self, call: ToolCall, result: ToolResult, partials: tuple[int, ...], found: int, names: Names
    ) -> tuple[float, int, Names]:
        """Quality of a call; and after it, how many partial results are found, and the variables that there are."""
        if call.tool != "python":
            return 0.0, found, names
        traced = trace(call.body, self.answers, names)
        names = names_after(names, traced, result)
        if traced is None or not was_parsed(result):
            return 0.0, found, names
        reached = progress(traced.values, partials, found)
        right = _is_right_step(traced, partials, found, reached)
        return 1.0 if right else min(reached, len(partials) - 1) / len(partials), max(found, reached), names

    # Demonstrations

    def confused_answer(self, problem: Problem) -> str:
        return str(problem.data["confused"] % self.answers)

    def _right_calls(self, problem: Problem) -> list[str]:
        return [format_call("python", code) for code in self._programs(problem, problem.data["ordered"])]

    def _confused_calls(self, problem: Problem) -> list[str]:
        return [
            format_call("python", code) for code in self._programs(problem, _read_downwards(problem.data["listed"]))
        ]

    def _slip(self, problem: Problem, rng: np.random.Generator) -> str:
        """Half of the time the list as it stands, a NameError; else right code with a slip of the pen, a SyntaxError.

        The slip is a lost digit, or a stray operator after an operator. A pinned list whose beginning is in order has
        only the latter.
        """
        listed = problem.data["listed"]
        if rng.random() < 0.5 and _read_downwards(listed[:PER_CALL]) != listed[:PER_CALL]:
            return format_call("python", self._programs(problem, listed)[0])
        code = self._programs(problem, problem.data["ordered"])[0]
        written = len(
            ";".join(problem.data["ordered"][:PER_CALL])
        )  # up to there each number and each operator is one character
        if rng.random() < 0.5:
            place = _choose(rng, [i for i in range(written) if code[i].isdigit()])
            slipped = code[:place] + code[place + 1 :]
        else:
            place = 1 + _choose(rng, [i for i in range(written) if code[i] in OPERATORS])
            slipped = code[:place] + "/%"[int(rng.integers(2))] + code[place:]
        return format_call("python", slipped)

    def _programs(self, problem: Problem, assignments: Sequence[str]) -> list[str]:
        """Programs that make some assignments, ``PER_CALL`` each; the last one also shows the answer."""
        parts = [list(assignments[i : i + PER_CALL]) for i in range(0, len(assignments), PER_CALL)]
        parts[-1].append(f"{problem.data['ordered'][-1][0]}%{self.answers}")
        return [";".join(part) for part in parts]


def _is_right_step(traced: Trace, partials: tuple[int, ...], found: int, reached: int) -> bool:
    """Whether a call is a right step: see :meth:`Assignments.reasoning_quality`.

    Args:
        found: partial results found before the call.
        reached: the greatest that it computes.
    """
    if traced.stopped:
        return False
    size, known = len(traced.values), max(found, reached)
    if traced.shown == partials[-1] and known == len(partials) and (reached == known or size == 0):
        return True
    if size and not any(partials[start : start + size] == traced.values for start in range(found + 1)):
        return False
    if traced.shown is None:
        return size > 0
    return not traced.reduced and traced.shown in partials[:known]


def _values(assignments: Sequence[str]) -> list[int]:
    """What each of some assignments gives, in turn, where a name that is not set yet counts as 0."""
    values: dict[str, int] = {}
    for assignment in assignments:
        name, _, first, *rest = list(assignment)
        if rest:
            values[name] = OPERATORS[rest[0]](values.get(first, 0), int(rest[1]))
        else:
            values[name] = int(first)
    return list(values.values())


def _read_downwards(assignments: Sequence[str]) -> tuple[str, ...]:
    """The assignments with 0 for each name that is not set yet."""
    assigned: set[str] = set()
    read = []
    for assignment in assignments:
        name, equals, first, *rest = list(assignment)
        read.append("".join((name, equals, "0" if first.isalpha() and first not in assigned else first, *rest)))
        assigned.add(name)
    return tuple(read)


def _choose(rng: np.random.Generator, places: Sequence[int]) -> int:
    return places[int(rng.integers(len(places)))]


def _lists(chains: Ints, orders: Ints, namings: Ints, difficulty: int) -> Lists:
    """The lists of the numbers that stand for their chains, orders and namings."""
    first = chains % _DIGITS + 1
    left = chains // _DIGITS
    operators = np.empty((difficulty - 1, len(chains)), dtype=np.int64)
    operands = np.empty_like(operators)
    for row in range(difficulty - 1):
        operands[row] = left % _DIGITS + 1
        operators[row] = left // _DIGITS % len(OPERATORS)
        left = left // (_DIGITS * len(OPERATORS))
    return Lists(first, operators, operands, _orders(difficulty)[orders].T, namings)


@functools.cache
def _orders(size: int) -> Ints:
    """(size!, size) permutations."""
    return np.array(list(itertools.permutations(range(size))), dtype=np.int64)


@functools.cache
def _namings(size: int) -> list[tuple[str, ...]]:
    """Each way to give names to ``size`` assignments."""
    return list(itertools.permutations(NAMES, size))


def _apply(operators: Ints, left: Ints, right: Ints) -> Ints:
    """(N,) results of operators, by index in OPERATORS."""
    return np.choose(operators, [operation(left, right) for operation in OPERATORS.values()])
