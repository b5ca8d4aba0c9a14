"""What is known of a program's numbers before it runs: operations on them that stay small need no guard.

A name is *known* if whatever its scope binds it to is a number, and an integer among them has at most so many bits,
however the program goes: a literal, an index of a ``range``, arithmetic on known names, a counter that grows by
known amounts. This is abstract interpretation (Cousot and Cousot 1977) of sizes alone, without the flow of control:
sizes are proposed by a few rounds over all bindings, with counters widened to what the longest run could make of
them; then it is checked that no binding exceeds them. Floats and complex numbers are known too: they are of one size.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from .meter import METER

SMALL_BITS = 1024
"""Most bits of an integer that counts as small: operations on two such cost next to nothing."""
COUNT_BITS = 64
"""Bits of a length."""
_STATEMENT_BITS = 15  # no program has more statements
_ROUNDS = 4
_PASSES = 5
_MOST_BINDINGS = 300
_NEVER = -1  # of a name: nothing it is bound to has been seen yet

BUILTINS = frozenset({"abs", "enumerate", "len", "max", "min", "ord", "range", "zip"})
"""Names of which this module assumes that they mean the built-in functions, unless the program binds them."""

Known = Mapping[str, int]
"""Bits of the known names of a scope."""


class _Index:
    """A binding to the items of ``range(*arguments)``."""

    def __init__(self, arguments: Sequence[ast.expr]) -> None:
        self.arguments = arguments


_Binding = ast.expr | _Index | None
"""What a name is bound to; None for anything."""
Bindings = dict[str, list[_Binding]]
"""All that each name of a scope is bound to."""


def _turn_bits() -> int:
    """Bits of the number of turns, of all loops together, that a run can have."""
    return METER.steps.bit_length()


def literal_bits(node: ast.expr) -> int | None:
    """Bits of a literal number; None if it is something else."""
    if type(node) is ast.Constant:
        value = node.value
        if type(value) is int:
            bits = value.bit_length()
            return bits if bits <= SMALL_BITS else None
        return 1 if type(value) is float or type(value) is bool or type(value) is complex else None
    return None


def combined(op: ast.operator, left: int, right: int, operand: ast.expr) -> int | None:
    """Bits of ``left op right`` of numbers of so many bits, ``operand`` being the right one; None if not small."""
    kind = type(op)
    if kind is ast.Add or kind is ast.Sub or kind in _BITWISE:
        bits = max(left, right) + 1
    elif kind is ast.Mult:
        bits = left + right
    elif kind is ast.FloorDiv or kind is ast.RShift:
        bits = max(left, 1)
    elif kind is ast.Mod:
        bits = right
    elif kind is ast.Div:
        bits = 1
    elif kind is ast.Pow and type(operand) is ast.Constant:
        bits = _power_bits(left, operand.value)
    else:
        return None
    return bits if bits <= SMALL_BITS else None


def _power_bits(base: int, exponent: object) -> int:
    if type(exponent) is int:
        return base * exponent + 1
    return 1 if type(exponent) is float else SMALL_BITS + 1


_BITWISE = frozenset({ast.BitAnd, ast.BitOr, ast.BitXor})


def known_in_comprehension(generators: Sequence[ast.comprehension], outer: Known) -> dict[str, int]:
    """Bits of the names that are known inside a comprehension, but for its first iterable: that is of the outside."""
    bound = [[name for name, _ in _assigned(generator.target, None)] for generator in generators]
    hidden = [name for names in bound for name in names]
    known = {name: bits for name, bits in outer.items() if name not in hidden}
    for index, generator in enumerate(generators):
        scope = _Scope({}, known if index else outer)
        for name, value in _iterated(generator.target, generator.iter):
            bits = scope.bits_of(value) if hidden.count(name) == 1 else None
            if bits is not None:
                known[name] = max(bits, known.get(name, 0))
            else:
                hidden.append(name)
                known.pop(name, None)
    return known


def _range_arguments(node: ast.expr) -> Sequence[ast.expr] | None:
    """The arguments of a call of ``range``; None if it is something else."""
    if type(node) is not ast.Call or type(node.func) is not ast.Name or node.func.id != "range":
        return None
    plain = not node.keywords and not any(type(argument) is ast.Starred for argument in node.args)
    return node.args if plain and 1 <= len(node.args) <= 3 else None


def native_iterable(node: ast.expr) -> bool:
    """Whether iterating over the value of ``node`` needs no guard: one of a few built-in functions made it."""
    return type(node) is ast.Call and type(node.func) is ast.Name and node.func.id in ("range", "enumerate", "zip")


# ------------------------------------------------------------------ the names of a scope


def known_names(bindings: Bindings, outer: Known, unsure: frozenset[str]) -> dict[str, int]:
    """Bits of the names that are known in a scope: those of ``outer`` that it does not bind, and its own.

    Args:
        bindings: of the scope.
        outer: known names of the scopes around.
        unsure: names that are bound from elsewhere too (parameters, ``global``, ``nonlocal``).
    """
    for name in unsure:
        if name in bindings:
            bindings[name] = [None]
    result = {name: bits for name, bits in outer.items() if name not in bindings and name not in unsure}
    if 0 < sum(map(len, bindings.values())) <= _MOST_BINDINGS:
        result.update(_Scope(bindings, result).solve())
    return result


def bindings_of(body: Sequence[ast.stmt]) -> Bindings:
    """All that the statements of a module or function bind names to. Assignment expressions are left out: see
    ``policy.py``."""
    found: Bindings = {}
    waiting = [body]
    while waiting:
        for statement in waiting.pop():
            if isinstance(statement, ast.Expr):
                continue
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(statement.value)
                    continue
            for name, value in _bound_by(statement):
                found.setdefault(name, []).append(value)
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(statement, field, None)
                if inner and type(statement) not in _SCOPES:
                    waiting.append(inner)
            for handler in getattr(statement, "handlers", ()):
                waiting.append(handler.body)
                if handler.name is not None:
                    found.setdefault(handler.name, []).append(None)
    return found


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, _Binding]]:
    """Names that a statement itself binds, and to what."""
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _assigned(target, statement.value)
    elif isinstance(statement, ast.AugAssign):
        if isinstance(statement.target, ast.Name):
            name = statement.target.id
            yield name, ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
    elif isinstance(statement, ast.AnnAssign):
        yield from _assigned(statement.target, statement.value)
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from _iterated(statement.target, statement.iter)
    elif isinstance(statement, _SCOPES):
        yield statement.name, None
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0], None
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        for item in statement.items:
            if item.optional_vars is not None:
                yield from _assigned(item.optional_vars, None)


def _assigned(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, _Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Starred):
        yield from _assigned(target.value, None)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values: Sequence[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
            starred = any(isinstance(item, ast.Starred) for item in (*target.elts, *value.elts))
            values = values if starred else value.elts
        for item, part in zip(target.elts, values, strict=True):
            yield from _assigned(item, part)


def _iterated(target: ast.expr, iterable: ast.expr) -> Iterator[tuple[str, _Binding]]:
    """Names that a ``for`` binds."""
    arguments = _range_arguments(iterable)
    if isinstance(target, ast.Name) and arguments is not None:
        yield target.id, _Index(arguments)
    elif isinstance(iterable, (ast.Tuple, ast.List)):
        for item in iterable.elts:
            yield from _assigned(target, None if isinstance(item, ast.Starred) else item)
    else:
        yield from _assigned(target, None)


class _Scope:
    """Finds the known names among ``bindings``, given those of the scopes around."""

    def __init__(self, bindings: Mapping[str, Sequence[_Binding]], outer: Known) -> None:
        self._bindings = bindings
        self._outer = outer
        self._bits: dict[str, int] = {}
        self._unknown: set[str] = set()

    def solve(self) -> dict[str, int]:
        """Bits of the names that are known."""
        counters: dict[str, int] = {}
        for _ in range(_PASSES):
            changed = self._settle(counters)
            if not changed:
                # No binding exceeds the bits of its name. What remains to be checked are the counters.
                return self._bits if all(self._growth_of_all(name) <= counters[name] for name in counters) else {}
            growing = changed - self._unknown
            widened = {name: bits for name in growing if (bits := self._as_counter(name, growing)) is not None}
            counters |= widened
            if not widened:
                self._unknown |= growing
        return {}

    def _size(self, binding: _Binding) -> int:
        bits = self.bits_of(binding)
        return SMALL_BITS + 1 if bits is None else bits

    def _settle(self, counters: Known) -> set[str]:
        """Rounds over all bindings, until they change nothing; names that the last of them still changed."""
        self._bits = dict(counters)
        names = [name for name in self._bindings if name not in counters]
        changed: set[str] = set()
        for _ in range(_ROUNDS):
            changed = {name for name in names if name not in self._unknown and self._update(name)}
            if not changed:
                break
        return changed

    def _update(self, name: str) -> bool:
        """Take in all bindings of a name; whether that changed what is known of it."""
        before = self._bits.get(name, _NEVER)
        most = before
        for binding in self._bindings[name]:
            bits = self.bits_of(binding)
            if bits is None:
                self._unknown.add(name)
                self._bits.pop(name, None)
                return True
            most = max(most, bits)
        if most > before:
            self._bits[name] = most
        return most > before

    def _as_counter(self, name: str, growing: set[str]) -> int | None:
        """Bits of a name that is set to known values and then grows by known amounts; None if it is no such."""
        hidden = {other: self._bits.pop(other) for other in growing if other in self._bits}
        self._unknown |= growing
        bits = self._growth_of_all(name)
        self._unknown -= growing
        self._bits |= hidden
        return bits if bits <= SMALL_BITS else None

    def _growth_of_all(self, name: str) -> int:
        """Bits that a counter can reach in the longest run; more than SMALL_BITS if it is none."""
        most = 0
        for binding in self._bindings[name]:
            growth = self._growth(binding, name) if isinstance(binding, ast.BinOp) else None
            most = max(most, self._size(binding) if growth is None else growth)
        # Each statement is run at most once a turn.
        return most + _turn_bits() + _STATEMENT_BITS + 1

    def _growth(self, node: ast.expr, name: str) -> int | None:
        """Bits of the amount by which ``node`` may exceed the name in it; None if it is no sum with that name."""
        if isinstance(node, ast.Name) and node.id == name:
            return 0
        if not isinstance(node, ast.BinOp) or type(node.op) not in (ast.Add, ast.Sub):
            return None
        for side, other in ((node.left, node.right), (node.right, node.left)):
            growth, amount = self._growth(side, name), self.bits_of(other)
            if growth is not None and amount is not None:
                return max(growth, amount) + 1
        return None

    def bits_of(self, binding: _Binding) -> int | None:
        """Bits of a value; _NEVER while it is not known to have one; None if it is not known to be small."""
        if type(binding) is ast.Name:
            name = binding.id
            if name in self._unknown:
                return None
            if name in self._bits:
                return self._bits[name]
            return _NEVER if name in self._bindings else self._outer.get(name)
        if type(binding) is ast.Constant:
            return literal_bits(binding)
        if type(binding) is ast.BinOp:
            left = self.bits_of(binding.left)
            right = None if left is None else self.bits_of(binding.right)
            if left is None or right is None:
                return None
            if left == _NEVER or right == _NEVER:
                return _NEVER
            return combined(binding.op, left, right, binding.right)
        if type(binding) is ast.UnaryOp:
            if type(binding.op) is ast.Not:
                return 1
            bits = self.bits_of(binding.operand)
            return bits + 1 if bits is not None and type(binding.op) is ast.Invert else bits
        if type(binding) is ast.IfExp:
            return self._join((binding.body, binding.orelse))
        if type(binding) is ast.Call:
            return self._result(binding)
        if type(binding) is _Index:
            return self._index(binding.arguments)
        return None

    def _join(self, values: Sequence[ast.expr]) -> int | None:
        """Bits of whichever of the values it is."""
        most = _NEVER
        for value in values:
            bits = self.bits_of(value)
            if bits is None:
                return None
            most = max(most, bits)
        return most

    def _result(self, call: ast.Call) -> int | None:
        """Bits of what a built-in function returns."""
        if type(call.func) is not ast.Name or call.keywords or any(type(a) is ast.Starred for a in call.args):
            return None
        name = call.func.id
        if name == "len" or name == "ord":
            return COUNT_BITS
        if (name == "abs" and len(call.args) == 1) or (name in ("min", "max") and len(call.args) > 1):
            return self._join(call.args)
        return None

    def _index(self, arguments: Sequence[ast.expr]) -> int | None:
        """Bits of an item of a range: it lies between the ends, or is as far as a run gets."""
        bits = [self.bits_of(argument) for argument in arguments]
        if len(bits) == 1:
            return _turn_bits() if bits[0] is None else bits[0]
        start, end, step = bits[0], bits[1], bits[2] if len(bits) == 3 else 1
        if start is None or step is None:
            return None
        if start == _NEVER or step == _NEVER or end == _NEVER:
            return _NEVER
        return max(start, step + _turn_bits()) + 1 if end is None else max(start, end)
