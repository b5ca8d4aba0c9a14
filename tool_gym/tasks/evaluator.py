"""What a piece of straight-line integer code computes, without running it.

A bounded evaluator over the syntax tree, for judging the reasoning behind a call: assignments, augmented
assignments, ``print`` and expressions over integer literals and names with ``+ - * // % **`` and unary
signs. Everything else stops it. Nothing is ever executed, no name but ``print`` means anything, integers
stay below 2**256, and depth and source length are capped: the cost of hostile text is bounded.

Where the tool keeps its state from call to call, so does the evaluator: :func:`trace` takes the variables that were
there before, :func:`names_after` tells which are certain after it.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tool_gym.tools.base import ToolResult

MAX_SOURCE_CHARS = 2_000
_MAX_BITS = 256
_MAX_DEPTH = 64
# Text on which the parser may warn (``1or 2``, invalid escapes): rare, so only then are warnings caught.
_MAY_WARN = re.compile(r"\\|[0-9][A-Za-z_]")

Names = tuple[tuple[str, int, int], ...]
"""Variables: name, value, and the value before its last reduction by the modulus."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a call computes.

    Attributes:
        values: results of the operation nodes (not of literals) in evaluation order, up to the first thing
            that the evaluator cannot follow. Remainders by the modulus are left out: reducing an answer is
            not a step towards it.
        shown: the last value that the call prints, or echoes as its final expression; where it is a
            remainder by the modulus, the dividend. None if it shows none, or could not be followed to the end.
        reduced: whether ``shown`` is the dividend of a remainder (by name: of one that differs from it).
        names: the variables at the end; where it stopped before, those that the rest does not touch.
        stopped: "" where it was followed to the end, else the kind of error that Python raises where it stopped, or
            "unknown".
    """

    values: tuple[int, ...]
    shown: int | None
    reduced: bool = field(default=False, compare=False)
    names: Names = field(default=(), compare=False)
    stopped: str = field(default="", compare=False)


class _Unsupported(Exception):
    """The evaluator cannot follow this node."""

    kind = "unknown"


class _NoName(_Unsupported):
    """A name that is not there: Python stops here too, unless it knows it from elsewhere."""

    kind = "NameError"


@functools.lru_cache(maxsize=16_384)
def trace(source: str, modulus: int, names: Names = ()) -> Trace | None:
    """The trace of ``source``, None where it is longer than 2,000 characters or does not parse.

    ``modulus`` is the divisor whose remainders reduce an answer; ``names`` are the variables that are there before.
    Cached: rollouts of a group repeat programs.
    """
    if len(source) > MAX_SOURCE_CHARS:
        return None
    try:
        module = _parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The parser's four ways to refuse a text: malformed, null bytes, nesting beyond its own two limits.
        return None
    return _Evaluator(modulus, names).run(module)


def was_parsed(result: ToolResult) -> bool:
    """Whether the interpreter accepted the source of a call, from its true result."""
    if result.status == "refused" or result.kind in ("SyntaxError", "IndentationError", "TabError"):
        return False
    return (result.status, result.kind) != ("limit", "source")


def names_after(names: Names, traced: Trace | None, result: ToolResult) -> Names:
    """The variables that a stateful tool certainly has after a call; none where they cannot be known.

    Args:
        names: those before it.
        traced: the trace of its source from ``names``.
        result: what truly came of it. After an error those set before it stay; after a limit that stopped the
            program, the state is new.
    """
    if not was_parsed(result):
        return names
    if traced is None or (result.status == "limit" and result.kind != "output"):
        return ()
    return traced.names if traced.stopped in ("", result.kind) else ()


def progress(values: Sequence[int], partials: Sequence[int], found: int) -> int:
    """The greatest i such that ``values`` hold partial result i, those before it being found in order. 0 if none.

    Args:
        values: what a call computes, in order.
        partials: the true partial results, in order.
        found: how many of them are known from before, by which the call may begin.
    """
    reached = 0
    for start in range(found + 1):
        matched = start
        for value in values:
            if matched < len(partials) and value == partials[matched]:
                matched += 1
        if matched > start:
            reached = max(reached, matched)
    return reached


def _parse(source: str) -> ast.Module:
    if _MAY_WARN.search(source) is None:
        return ast.parse(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _power(base: int, exponent: int) -> int:
    # Refused before it is computed where it would not fit; a negative exponent gives a float.
    if exponent < 0 or base.bit_length() * exponent > 2 * _MAX_BITS:
        raise _Unsupported
    return int(base**exponent)


_OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


# What binds no name but by a plain assignment.
_PLAIN = (
    *(ast.Assign, ast.AugAssign, ast.Expr, ast.Pass, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call),
    *(ast.keyword, ast.expr_context, ast.operator, ast.unaryop),
)


def _bound(statements: Sequence[ast.stmt]) -> Iterator[str] | None:
    """Names that statements may bind; None where that cannot be told at a glance."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    if not all(isinstance(node, _PLAIN) for node in nodes):
        return None
    return (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


class _Evaluator:
    """State of one evaluation: the variables, the values so far, and what was shown last."""

    def __init__(self, modulus: int, names: Names) -> None:
        self.modulus = modulus
        self.names: dict[str, int] = {name: value for name, value, _ in names}
        self.dividends: dict[str, int] = {name: dividend for name, _, dividend in names}
        self.values: list[int] = []
        self.shown: int | None = None
        self.reduced = False

    def run(self, module: ast.Module) -> Trace:
        for number, statement in enumerate(module.body):
            try:
                self._execute(statement, echoed=statement is module.body[-1])
            except (_Unsupported, ZeroDivisionError) as error:
                self._forget(module.body[number:])
                kind = error.kind if isinstance(error, _Unsupported) else "ZeroDivisionError"
                return Trace(tuple(self.values), None, names=self._state(), stopped=kind)
        return Trace(tuple(self.values), self.shown, self.reduced, self._state())

    def _state(self) -> Names:
        return tuple((name, value, self.dividends[name]) for name, value in sorted(self.names.items()))

    def _forget(self, statements: Sequence[ast.stmt]) -> None:
        """Forget whatever statements may change that are not evaluated."""
        bound = _bound(statements)
        for name in list(self.names) if bound is None else bound:
            self.names.pop(name, None)

    def _execute(self, statement: ast.stmt, *, echoed: bool) -> None:
        match statement:
            case ast.Expr(value=ast.Call() as call):
                self._print(call)
            case ast.Expr(value=expression):
                _, unreduced, reduced = self._evaluate_top(expression)
                if echoed:
                    self.shown, self.reduced = unreduced, reduced
            case ast.Assign(targets=targets, value=expression):
                value, unreduced, _ = self._evaluate_top(expression)
                for target in targets:
                    self._assign(target, value, unreduced)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=expression):
                if name not in self.names:
                    raise _NoName
                right = self._evaluate(expression, 0)
                dividend = self.dividends[name]
                value = self._apply(op, self.names[name], right)
                self._assign(target, value, dividend if self._reduces(op, right) else value)
            case ast.Pass():
                pass
            case _:
                raise _Unsupported

    def _print(self, call: ast.Call) -> None:
        """``print`` of expressions and strings; options such as ``end`` must be literals."""
        if not (isinstance(call.func, ast.Name) and call.func.id == "print" and "print" not in self.names):
            raise _Unsupported
        if any(option.arg is None or not isinstance(option.value, ast.Constant) for option in call.keywords):
            raise _Unsupported
        for argument in call.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                _, self.shown, self.reduced = self._evaluate_top(argument)

    def _assign(self, target: ast.expr, value: int, unreduced: int) -> None:
        if not isinstance(target, ast.Name):
            raise _Unsupported
        self.names[target.id] = value
        self.dividends[target.id] = unreduced

    def _evaluate_top(self, node: ast.expr) -> tuple[int, int, bool]:
        """Value of a whole expression, the same before a final reduction by the modulus, and whether there is one."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            left, right = self._evaluate(node.left, 1), self._evaluate(node.right, 1)
            value = self._apply(node.op, left, right)
            reduced = right == self.modulus
            return value, self._dividend(node.left, left) if reduced else value, reduced
        value = self._evaluate(node, 0)
        unreduced = self._dividend(node, value)
        return value, unreduced, unreduced != value

    def _dividend(self, node: ast.expr, value: int) -> int:
        """``value`` of ``node``, before the reduction where the node is the name of a remainder."""
        return self.dividends[node.id] if isinstance(node, ast.Name) else value

    def _evaluate(self, node: ast.expr, depth: int) -> int:
        if depth > _MAX_DEPTH:
            raise _Unsupported
        if isinstance(node, ast.BinOp):
            left = self._evaluate(node.left, depth + 1)
            return self._apply(node.op, left, self._evaluate(node.right, depth + 1))
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return self._bounded(node.value)
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                raise _NoName
            return self.names[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self._evaluate(node.operand, depth + 1)
            return -value if isinstance(node.op, ast.USub) else value
        raise _Unsupported

    def _apply(self, op: ast.operator, left: int, right: int) -> int:
        operation = _OPERATIONS.get(type(op))
        if operation is None:
            raise _Unsupported
        value = self._bounded(operation(left, right))
        if not self._reduces(op, right):
            self.values.append(value)
        return value

    def _reduces(self, op: ast.operator, right: int) -> bool:
        return right == self.modulus and isinstance(op, ast.Mod)

    @staticmethod
    def _bounded(value: int) -> int:
        if value.bit_length() > _MAX_BITS:
            raise _Unsupported
        return value
