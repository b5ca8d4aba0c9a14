"""A sheet of named cells: a task in which the work is to find the order, for a tool that remembers.

A problem is a list of k assignments, ``a=2*c;b=3;c=4+b;a%10?``: one gives a digit, each of the others computes with
the name that another one sets, and the last of that chain is asked for. Evaluated in the order of dependence, b = 3,
c = 7, a = 14, answer 4. The list is in the order of the names, which tells nothing. The *confused* reading goes
through it from top to bottom and takes a name that is not set yet as 0: a = 2·0 = 0. The confused answer is right by
luck with probability exactly 1/answers.

Programs are written a few assignments a call, in an interpreter that keeps its state within an episode. The text is
made for small models that read characters: what a program says is copied from the prompt, a cell has its place by
its name, and each digit stands in one place only.
"""

from __future__ import annotations

import functools
import itertools
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

NAMES = "abcdef"
OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
PER_CALL = 2
"""Assignments that one call of a demonstration makes at most."""

_DIGITS = range(1, 10)  # a 0 would be what a name is that is not set yet
_LEAST_PROBLEMS = 100
_MOST_ANSWERS = 1000
_DIGIT_ORDERS, _OPERATORS, _PLACES = range(OWN_STREAMS, OWN_STREAMS + 3)
_ASSIGNMENT = re.compile(r"([a-z])=([1-9])(?:[-+*]([a-z]))?")


class Lists(NamedTuple):
    """N lists of k assignments, by their place in the chain.

    Attributes:
        digits_KN: the digit of each.
        operators_JN: of the k − 1 that compute, as indices.
        places_KN: where each stands in the list, by which it has its name.
    """

    digits_KN: Ints
    operators_JN: Ints
    places_KN: Ints


class Assignments(RejectionFamily[Lists]):
    """Assignments that form a chain in a hidden order, its end modulo ``answers``. Difficulty is their number, k.

    ``Problem.data``: ``listed`` (the k assignments as posed), ``ordered`` (the same in the order of dependence),
    ``partials`` (the k − 1 values computed in that order), ``confused`` (the value of the confused reading).

    The digits of a list are all different. Only lists are posed of which the confused reading gets a value wrong among
    each ``PER_CALL`` assignments but the last, and in which no value that it gets wrong is one of the true partial
    results: so that each program of the confused reading computes something wrong, however lucky its answer.

    Args:
        answers: the number of answers, 0 to answers − 1; from 2 to 10: of each pair of an answer and luck there must
            be 100 lists of three assignments; of 11 and more some have none. Raises ConfigError otherwise.
    """

    difficulties: ClassVar[tuple[int, ...]] = (3, 4, 5, 6)
    mixture: ClassVar[Mapping[str, float]] = {
        "clean": 0.30,
        "confused": 0.40,
        "slip_then_fix": 0.10,
        "slip_then_guess": 0.10,
        "guess": 0.10,
    }
    # Copying in another order takes many updates to be learned, and the more the longer the lists (docs/LOG.md).
    cold_start: ClassVar[Mapping[str, int]] = {"steps": 1500, "batch": 32}
    trained: ClassVar[tuple[int, ...]] = (3,)
    max_error_chars: ClassVar[int | None] = 27  # ``NameError: line 1: name 'b'``

    def __init__(self, answers: int = 10) -> None:
        super().__init__(answers)
        if answers > _MOST_ANSWERS or self._rarest_cell() < _LEAST_PROBLEMS:
            raise ConfigError("answers", answers, "2 to 10: there luck can be exact")

    # Problems

    def problem(self, text: str) -> Problem:
        """The problem of a given list, ``a=2*c;b=3;c=4+b``, whatever its luck: for pinned problems and tests.

        The order of its names is free. Raises ConfigError unless the assignments, their number a difficulty, form
        one chain: one of a digit from 1 to 9, each other of such a digit, an operator of ``+-*`` and another's name.
        """
        listed = tuple(part.replace(" ", "") for part in text.split(";"))
        self.check_difficulty(len(listed))
        matches = [_ASSIGNMENT.fullmatch(part) for part in listed]
        # By the name that an assignment uses; "" for the first of the chain, which uses none.
        users = {match[3] or "": match for match in matches if match is not None}
        ordered: list[str] = []
        used = ""
        while used in users:
            match = users.pop(used)
            ordered.append(match[0])
            used = match[1]
        if len(ordered) != len(listed) or len({part[0] for part in listed}) != len(listed):
            raise ConfigError("text", text, "assignments such as b=3 and c=4+b that form one chain")
        return self._problem(listed, tuple(ordered))

    def _candidates(self, key: keyed.UInt64s, positions: Ints, difficulty: int) -> Lists:
        def draw(stream: int, table_PK: Ints) -> Ints:
            chosen = keyed.uniform(keyed.fold(key, stream), positions) * len(table_PK)
            return table_PK[chosen.astype(np.int64)].T

        return Lists(
            _DIGITS.start + draw(_DIGIT_ORDERS, _arrangements(len(_DIGITS), difficulty)),
            draw(_OPERATORS, _choices(len(OPERATORS), difficulty - 1)),
            draw(_PLACES, _arrangements(difficulty, difficulty)),
        )

    def _cells(self, candidates: Lists) -> Ints:
        digits, operators, places = candidates
        true = confused = digits[0]
        misread = np.zeros(true.shape, dtype=np.bool_)  # whether the confused reading has gone wrong by now
        programs, each = -(-len(digits) // PER_CALL), np.arange(len(true))
        misread_in = np.zeros((programs, len(true)), dtype=np.bool_)
        partials, misreadings = [], []
        for before, number in itertools.pairwise(range(len(digits))):
            in_order = places[before] < places[number]
            true = _apply(operators[before], digits[number], true)
            confused = _apply(operators[before], digits[number], np.where(in_order, confused, 0))
            misread = misread | ~in_order
            misread_in[places[number] // PER_CALL, each] |= misread
            partials.append(true)
            misreadings.append((misread, confused))
        posed = misread_in[: max(programs - 1, 1)].all(axis=0)
        for (misread, value), partial in itertools.product(misreadings, partials):
            posed = posed & ~(misread & (value == partial))
        lucky = (true - confused) % self.answers == 0
        return np.where(posed, 2 * (true % self.answers) + lucky, -1)

    def _build(self, candidates: Lists, index: int) -> Problem:
        digits, operators, places = (rows[:, index].tolist() for rows in candidates)
        names, signs = [NAMES[place] for place in places], [*OPERATORS]
        ordered = [f"{names[0]}={digits[0]}"]
        for before, number in itertools.pairwise(range(len(names))):
            ordered.append(f"{names[number]}={digits[number]}{signs[operators[before]]}{names[before]}")
        return self._problem(tuple(sorted(ordered)), tuple(ordered))

    def _rarest_cell(self) -> int:
        """How many lists of the least difficulty the rarest cell has."""
        level = self.difficulties[0]
        digits, operators = _arrangements(len(_DIGITS), level), _choices(len(OPERATORS), level - 1)
        places = _arrangements(level, level)
        each = np.indices((len(digits), len(operators), len(places))).reshape(3, -1)
        digits_KN, places_KN = _DIGITS.start + digits[each[0]].T, places[each[2]].T
        cells = self._cells(Lists(digits_KN, operators[each[1]].T, places_KN))
        return int(np.bincount(cells[cells >= 0], minlength=2 * self.answers).min())

    def _problem(self, listed: tuple[str, ...], ordered: tuple[str, ...]) -> Problem:
        partials = tuple(_values(ordered))[1:]
        asked = ordered[-1][0]
        confused = _values(listed)[[part[0] for part in listed].index(asked)]
        data: dict[str, Any] = {"listed": listed, "ordered": ordered, "partials": partials, "confused": confused}
        prompt = f"{';'.join(listed)};{asked}%{self.answers}?"
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

        The slip is a lost name or a stray operator, after an operator. A pinned list whose beginning is in order has
        only the latter.
        """
        listed = problem.data["listed"]
        if rng.random() < 0.5 and _read_downwards(listed[:PER_CALL]) != listed[:PER_CALL]:
            return format_call("python", self._programs(problem, listed)[0])
        code = self._programs(problem, problem.data["ordered"])[0]
        written = len(";".join(problem.data["ordered"][:PER_CALL]))  # without what shows the answer
        place = 1 + _choose(rng, [i for i in range(written) if code[i] in OPERATORS])
        if rng.random() < 0.5:
            slipped = code[:place] + code[place + 1 :]
        else:
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
        name, _, digit, *rest = list(assignment)
        values[name] = OPERATORS[rest[0]](int(digit), values.get(rest[1], 0)) if rest else int(digit)
    return list(values.values())


def _read_downwards(assignments: Sequence[str]) -> tuple[str, ...]:
    """The assignments with 0 for each name that is not set yet."""
    assigned: set[str] = set()
    read = []
    for assignment in assignments:
        used = assignment[-1]
        read.append(assignment[:-1] + "0" if used.isalpha() and used not in assigned else assignment)
        assigned.add(assignment[0])
    return tuple(read)


def _choose(rng: np.random.Generator, places: Sequence[int]) -> int:
    return places[int(rng.integers(len(places)))]


@functools.cache
def _arrangements(count: int, size: int) -> Ints:
    """(P, size) ways to put ``size`` of ``count`` numbers in order."""
    return np.array(list(itertools.permutations(range(count), size)), dtype=np.int64)


@functools.cache
def _choices(count: int, size: int) -> Ints:
    """(P, size) ways to choose one of ``count`` numbers, ``size`` times."""
    return np.array(list(itertools.product(range(count), repeat=size)), dtype=np.int64)


def _apply(operators: Ints, left: Ints, right: Ints) -> Ints:
    """(N,) results of operators, by index in OPERATORS."""
    return np.choose(operators, [operation(left, right) for operation in OPERATORS.values()])
