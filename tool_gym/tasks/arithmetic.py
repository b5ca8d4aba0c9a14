"""Arithmetic from left to right: a task in which the obvious code is wrong and luck is exact.

A problem is a chain of k operations on one-digit numbers, ``3+4*2-1 mod 10``, to be evaluated strictly from
left to right: ((3 + 4) · 2) − 1 = 13, answer 3. The *confused* reading is Python's precedence:
3 + 4 · 2 − 1 = 10. Only problems where the two values differ are posed, and the confused answer is right
by luck with probability exactly 1/answers, as a random guess is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tool_gym import rng as keyed
from tool_gym.errors import ConfigError
from tool_gym.protocol import format_call
from tool_gym.tasks.base import History, Problem
from tool_gym.tasks.evaluator import progress, trace, was_parsed
from tool_gym.tasks.family import Ints, RejectionFamily, same_integer
from tool_gym.tools.base import ToolCall, ToolResult

OPERATORS = "+-*"
_DIGITS = 9  # 1 to 9: a 0 would erase the chain before it or leave it as it was
_LEAST_PROBLEMS = 100
_MOST_ANSWERS = 1000

Chains = tuple[Ints, Ints]


class Arithmetic(RejectionFamily[Chains]):
    """Chains of one-digit operations, evaluated from left to right, modulo ``answers``.

    ``Problem.data``: ``operands`` (k + 1 numbers from 1 to 9), ``operators`` (k characters of ``+-*``),
    ``partials`` (the k true results, left to right), ``confused`` (the value under Python's precedence).

    Args:
        answers: the number of answers, 0 to answers − 1; a guess is right with probability 1/answers. Any number
            of at least 2 for which luck can be exact: of each pair of an answer and luck there must be 100 chains
            of three operations or more. So 2 to 12, 14 to 16, 18, 20, 21 and 24; of 13 some pairs have 90, of 29
            and many a larger number one has none. Raises ConfigError otherwise.
    """

    difficulties: ClassVar[tuple[int, ...]] = (3, 4, 5, 6)
    mixture: ClassVar[Mapping[str, float]] = {
        "clean": 0.05,
        "confused": 0.55,
        "slip_then_fix": 0.15,
        "slip_then_guess": 0.05,
        "guess": 0.20,
    }
    max_error_chars: ClassVar[int | None] = 24

    def __init__(self, answers: int = 10) -> None:
        super().__init__(answers)
        if answers > _MOST_ANSWERS or self._rarest_cell() < _LEAST_PROBLEMS:
            raise ConfigError("answers", answers, "2 to 12, 14 to 16, 18, 20, 21, 24: there luck can be exact")

    # Problems

    def problem(self, operands: Sequence[int], operators: str) -> Problem:
        """The problem of a given chain, whatever its luck: for pinned problems and tests.

        Args:
            operands: k + 1 numbers from 1 to 9.
            operators: k characters of ``+-*``, k a difficulty.

        Raises ConfigError for anything else.
        """
        self.check_difficulty(len(operators))
        if len(operands) != len(operators) + 1 or not all(1 <= x <= _DIGITS for x in operands):
            raise ConfigError("operands", operands, f"{len(operators) + 1} numbers from 1 to {_DIGITS}")
        if not set(operators) <= set(OPERATORS):
            raise ConfigError("operators", operators, f"characters of {OPERATORS}")
        return self._problem(tuple(int(x) for x in operands), operators)

    def _candidates(self, key: keyed.UInt64s, positions: Ints, difficulty: int) -> Chains:
        count = _DIGITS ** (difficulty + 1) * len(OPERATORS) ** difficulty
        return _chains((keyed.uniform(key, positions) * count).astype(np.int64), difficulty)

    def _cells(self, candidates: Chains) -> Ints:
        true, confused = _left_to_right(*candidates), _by_precedence(*candidates)
        lucky = (true - confused) % self.answers == 0
        return np.where(true == confused, -1, 2 * (true % self.answers) + lucky)

    def _build(self, candidates: Chains, index: int) -> Problem:
        operands, operators = candidates
        chain = "".join(OPERATORS[op] for op in operators[:, index].tolist())
        return self._problem(tuple(operands[:, index].tolist()), chain)

    def _rarest_cell(self) -> int:
        """How many chains of the least difficulty the rarest cell has."""
        level = self.difficulties[0]
        cells = self._cells(_chains(np.arange(_DIGITS ** (level + 1) * len(OPERATORS) ** level), level))
        return int(np.bincount(cells[cells >= 0], minlength=2 * self.answers).min())

    def _problem(self, operands: tuple[int, ...], operators: str) -> Problem:
        total = term = operands[0]
        confused = 0
        partials = []
        for operator, operand in zip(operators, operands[1:], strict=True):
            if operator == "*":
                total *= operand
                term *= operand
            else:
                signed = operand if operator == "+" else -operand
                total += signed
                confused += term
                term = signed
            partials.append(total)
        data: dict[str, Any] = {
            "operands": operands,
            "operators": operators,
            "partials": tuple(partials),
            "confused": confused + term,
        }
        prompt = f"{_chain(operands, operators)} mod {self.answers}"
        return Problem(prompt, str(total % self.answers), len(operators), data)

    # Judgement

    def grade(self, problem: Problem, answer: str) -> bool:
        """Whether ``answer``, without blanks around it, is the right integer; other text is wrong, never an error."""
        return same_integer(answer, problem.answer)

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        """How far the last call gets along the true chain: i/k, in [0, 1].

        i is the greatest index such that *this call* computes the true partial result i (as the value of an
        operation, in evaluation order) while those before it were found, in order, by this or earlier calls.
        So a chain may be spread over calls, a repeated call scores what it scored, and a confused call after
        a right one does not inherit its score. 1 only if the value that the call shows last is the true one
        (before the modulus: a final ``X % answers`` counts as X), else at most (k − 1)/k. 0 for code that
        the interpreter did not parse, and for calls of other tools.
        """
        partials: tuple[int, ...] = problem.data["partials"]
        found = reached = 0
        for call, result in history:
            reached = self._reach(call, result, partials, found)
            found = max(found, reached)
        if reached < len(partials):
            return reached / len(partials)
        last = trace(history[-1][0].body, self.answers)
        right = last is not None and last.shown == partials[-1]
        return 1.0 if right else (reached - 1) / reached

    def _reach(self, call: ToolCall, result: ToolResult, partials: tuple[int, ...], found: int) -> int:
        """The greatest partial result that this call computes, 0 if none, when ``found`` were found before it."""
        if call.tool != "python" or not was_parsed(result):
            return 0
        traced = trace(call.body, self.answers)
        return 0 if traced is None else progress(traced.values, partials, found)

    # Demonstrations

    def confused_answer(self, problem: Problem) -> str:
        return str(problem.data["confused"] % self.answers)

    def _right_calls(self, problem: Problem) -> list[str]:
        return [_python("".join(self._right_code(problem)))]

    def _confused_calls(self, problem: Problem) -> list[str]:
        """The chain as Python reads it."""
        return [_python(f"({_chain(problem.data['operands'], problem.data['operators'])})%{self.answers}")]

    def _right_code(self, problem: Problem) -> list[str]:
        """``(((3+4)*2)-1)%10`` in its parts: opening parentheses, operands, operators and so on, one each."""
        first, *rest = problem.data["operands"]
        parts = ["("] * len(rest) + [str(first)]
        for operator, operand in zip(problem.data["operators"], rest, strict=True):
            parts += [operator, str(operand), ")"]
        return [*parts, "%", str(self.answers)]

    def _slip(self, problem: Problem, rng: np.random.Generator) -> str:
        """Right code with one slip of the pen, always a SyntaxError.

        A lost or doubled parenthesis, a lost operand (not the first: a sign would still parse in its place),
        or a stray operator after an operator.
        """
        parts = self._right_code(problem)
        kind = ("lose parenthesis", "double parenthesis", "lose operand", "double operator")[int(rng.integers(4))]
        if kind == "lose operand":
            places = [i for i, part in enumerate(parts) if part.isdigit()][1:-1]
        elif kind == "double operator":
            places = [i for i, part in enumerate(parts) if part in OPERATORS or part == "%"]
        else:
            places = [i for i, part in enumerate(parts) if part in "()"]
        place = places[int(rng.integers(len(places)))]
        if kind.startswith("lose"):
            del parts[place]
        elif kind == "double operator":
            parts.insert(place + 1, "/%"[int(rng.integers(2))])
        else:
            parts.insert(place, parts[place])
        return _python("".join(parts))


def _chains(code: Ints, difficulty: int) -> Chains:
    """The N chains of numbers: operands of shape (k + 1, N), operators as indices into OPERATORS of shape (k, N)."""
    operands = np.empty((difficulty + 1, code.size), dtype=np.int64)
    operators = np.empty((difficulty, code.size), dtype=np.int64)
    for row in operands:
        quotient = code // _DIGITS
        row[:] = code - quotient * _DIGITS + 1
        code = quotient
    for row in operators:
        quotient = code // len(OPERATORS)
        row[:] = code - quotient * len(OPERATORS)
        code = quotient
    return operands, operators


def _left_to_right(operands: Ints, operators: Ints) -> Ints:
    """(N,) values of chains evaluated from left to right."""
    value: Ints = operands[0]
    for operator, operand in zip(operators, operands[1:], strict=True):
        added = value + np.where(operator == 0, operand, -operand)
        value = np.where(operator == 2, value * operand, added)
    return value


def _by_precedence(operands: Ints, operators: Ints) -> Ints:
    """(N,) values of chains with multiplication first."""
    total: Ints = np.zeros_like(operands[0])
    term: Ints = operands[0]
    for operator, operand in zip(operators, operands[1:], strict=True):
        multiplies = operator == 2
        total = total + np.where(multiplies, 0, term)
        term = np.where(multiplies, term * operand, np.where(operator == 0, operand, -operand))
    return total + term


def _chain(operands: Sequence[int], operators: str) -> str:
    """``3+4*2-1``."""
    return str(operands[0]) + "".join(f"{op}{x}" for op, x in zip(operators, operands[1:], strict=True))


def _python(code: str) -> str:
    return format_call("python", code)
