"""What rewritten programs call in place of operators, items, iteration, unpacking, handlers and classes.

The compiler pass (``policy.py``) turns ``a * b`` into ``_mul_(a, b)`` and so on. Each hook checks the size of the
result before there is one, charges the meter, and then does the native operation.
"""

from __future__ import annotations

import collections
import fractions
import inspect
import itertools
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from .meter import CHARS_PER_STEP_SHIFT, ITEMS_PER_STEP_SHIFT, METER, Stop
from .values import (
    BIG,
    CONTAINERS,
    LEAST,
    MAPPINGS,
    MEDIUM,
    MINUS_MEDIUM,
    SCALARS,
    SEQUENCES,
    SETS,
    VIEWS,
    GuestMeta,
    check_key,
    class_name,
    enumeration,
    ordered,
    percent,
    plain,
    special,
    to_format,
    to_str,
    weigh,
)

Fraction = fractions.Fraction
_LONG = 512
_INTEGERS: frozenset[type] = frozenset({int, bool})


class Standin:
    """What a program gets for a built-in type: calling it is guarded, and nothing else of the type is in reach."""

    __slots__ = ("construct", "methods", "name", "real")

    def __init__(
        self, real: type, construct: Callable[..., Any], methods: dict[str, Any] | None = None, name: str = ""
    ) -> None:
        self.real = real
        self.construct = construct
        self.methods = methods or {}
        self.name = name or real.__name__

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        return self.construct(*arguments, **names)

    def __or__(self, other: Any) -> Any:
        return join_types(self, other)

    def __ror__(self, other: Any) -> Any:
        return join_types(other, self)


class Union:
    """``int | str``: types in place of one, for ``isinstance``."""

    __slots__ = ("kinds",)

    def __init__(self, kinds: tuple[Any, ...]) -> None:
        self.kinds = kinds

    def __or__(self, other: Any) -> Any:
        return join_types(self, other)

    def __ror__(self, other: Any) -> Any:
        return join_types(other, self)


def join_types(a: Any, b: Any) -> Any:
    """``a | b`` of types; NotImplemented if one of them is something else."""
    kinds: list[Any] = []
    for value in (a, b):
        parts = union_kinds(value)
        if parts is None:
            return NotImplemented
        METER.check_items(len(kinds) + len(parts))
        kinds += [part for part in parts if not any(part is kind for kind in kinds)]
    METER.charge(len(kinds))
    return Union(tuple(kinds))


def union_kinds(value: Any) -> tuple[Any, ...] | None:
    """The types that a member of a union stands for; None if it is no type."""
    if type(value) is Union:
        return value.kinds
    if type(value) is types.UnionType:
        return value.__args__
    if value is None:
        return (type(None),)
    return (value,) if type(value) is Standin or isinstance(value, type) else None


MAKING: dict[type, int] = {
    collections.deque: 40,
    collections.OrderedDict: 10,
    collections.defaultdict: 10,
    collections.Counter: 10,
}
"""Steps for making one. A deque is released recursively, so this also bounds how deep a program can nest them."""

STANDINS: dict[type, Standin] = {}
"""The stand-in of each built-in type: what ``type(x)`` answers."""


# ------------------------------------------------------------------ steps and handlers

_HANDLING = 4  # steps for an exception on its way to a handler


def step() -> bool:
    """Head of each loop body, function, lambda and comprehension: one step. True, for use in conditions."""
    METER.left = left = METER.left - 1
    if left < 0:
        METER.exhausted()
    return True


def steps(more: int) -> bool:
    """Head of one whose body is long: a step, and ``more`` of them. True, for use in conditions."""
    METER.left = left = METER.left - 1 - more
    if left < 0:
        METER.exhausted()
    return True


def error_kinds(kinds: Any) -> Any:
    """What a handler handles: each of a tuple is looked for among all that the exception is."""
    if type(kinds) is tuple and len(kinds) > 7:
        METER.charge(len(kinds) * len(type(sys.exc_info()[1]).__mro__) >> 5)
    return kinds


def caught() -> None:
    """Head of each handler and ``finally`` block: nothing that ended the call can be handled away."""
    METER.left -= _HANDLING
    if METER.left < 0:
        METER.exhausted()
    error = sys.exc_info()[1]
    if error is not None:
        # Raising walks the chain of these, to make no cycle of them: programs could lengthen it for ever.
        error.__context__ = None
    if isinstance(error, Stop):
        METER.exhausted()
    if METER.is_genuine(error, (RecursionError,)):
        METER.stop("limit", "recursion", "maximum recursion depth exceeded")
    if METER.is_genuine(error, (MemoryError,)):
        METER.stop("limit", "memory", "out of memory")


def raised(error: Any) -> Any:
    """Operand of each ``raise``: marks what the program raises itself."""
    METER.left -= 1
    if METER.left < 0:
        METER.exhausted()
    if isinstance(error, type) and issubclass(error, (MemoryError, RecursionError)):
        error = error()
    if isinstance(error, (MemoryError, RecursionError)):
        METER.forge(error)
    return error


# ------------------------------------------------------------------ arithmetic


# Integers of one digit in CPython: it compares them fastest, and every hook answers for them before it asks more.
_DIGIT = (1 << 30) - 1
_MINUS_DIGIT = -_DIGIT


def _words(value: int) -> int:
    return (value.bit_length() >> 6) + 1


def checked(value: Any) -> Any:
    """A number that arithmetic just made: charge for it, and end the call if it is too big."""
    kind = type(value)
    if kind is int:
        if not LEAST < value < BIG:
            bits = value.bit_length()
            METER.check_bits(bits)
            METER.charge(bits >> 11)
    elif kind is Fraction:
        METER.charge(4)
        checked(value.numerator)
        checked(value.denominator)
    return value


def add(a: Any, b: Any) -> Any:
    """``a + b``"""
    kind = type(a)
    if kind is int or kind is float:
        value = a + b
        if type(value) is float:
            return value
        if a < _DIGIT and a > _MINUS_DIGIT:
            if type(value) is int and value < _DIGIT and value > _MINUS_DIGIT:
                return value
        elif not LEAST < a < BIG:
            METER.charge(a.bit_length() >> 11)  # long operands may leave a short result
        return checked(value)
    if kind is str or kind is bytes:
        if type(b) is kind:
            size = len(a) + len(b)
            if size > 255 or size > METER.characters:
                METER.check_characters(size)
        return a + b
    joined = (kind is list or kind is tuple or kind is collections.deque) and type(b) is kind
    if joined or (kind in MAPPINGS and type(b) in MAPPINGS):
        METER.charge(MAKING.get(kind, 0))
        METER.check_items(len(a) + len(b))
    elif kind is Fraction or type(b) is Fraction:
        _charge_fractions(a, b)
    return checked(a + b)


def sub(a: Any, b: Any) -> Any:
    """``a - b``"""
    kind = type(a)
    if kind is int or kind is float:
        value = a - b
        if type(value) is float:
            return value
        if a < _DIGIT and a > _MINUS_DIGIT:
            if type(value) is int and value < _DIGIT and value > _MINUS_DIGIT:
                return value
        elif not LEAST < a < BIG:
            METER.charge(a.bit_length() >> 11)
        return checked(value)
    if kind in SETS or kind in MAPPINGS or kind in VIEWS or type(b) in VIEWS:
        return _set_operation(operator.sub, a, b)
    _charge_fractions(a, b)
    return checked(a - b)


def _charge_product(a: int, b: int) -> None:
    """Before a product of integers: its size, and a step for each 256 products of words."""
    METER.check_bits(a.bit_length() + b.bit_length())
    METER.charge(1 + ((_words(a) * _words(b)) >> 8))


def _charge_fractions(a: Any, b: Any) -> None:
    """Before arithmetic of fractions: their numerators and denominators are multiplied and reduced."""
    for value, other in ((a, b), (b, a)):
        if type(value) is Fraction:
            METER.charge(8)
            for part in (value.numerator, value.denominator):
                for factor in (other.numerator, other.denominator) if type(other) is Fraction else (other, part):
                    if type(factor) is int and not (LEAST < factor < BIG and LEAST < part < BIG):
                        _charge_product(part, factor)
                        METER.charge((_words(part) * _words(factor)) >> 4)


def _repeat(value: Any, times: Any) -> None:
    """Before ``value * times`` of a sequence."""
    count = int(times) if type(times) is int or type(times) is bool else 0
    if count > 0:
        if type(value) is str or type(value) is bytes:
            METER.check_characters(len(value) * count)
        else:
            METER.check_items(len(value) * count)


_REPEATED: frozenset[type] = frozenset({str, bytes, list, tuple, collections.deque})


def mul(a: Any, b: Any) -> Any:
    """``a * b``"""
    kind, other = type(a), type(b)
    if kind is int and other is int:
        if a < _DIGIT and a > _MINUS_DIGIT and b < _DIGIT and b > _MINUS_DIGIT:
            return a * b
        if not (MINUS_MEDIUM < a < MEDIUM and MINUS_MEDIUM < b < MEDIUM):
            _charge_product(a, b)
        return a * b
    if kind in _REPEATED:
        METER.charge(MAKING.get(kind, 0))
        _repeat(a, b)
    elif other in _REPEATED:
        METER.charge(MAKING.get(other, 0))
        _repeat(b, a)
    elif kind is Fraction or other is Fraction:
        _charge_fractions(a, b)
    return checked(a * b)


def div(a: Any, b: Any) -> Any:
    """``a / b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a / b
    if type(a) is Fraction or type(b) is Fraction:
        _charge_fractions(a, b)
    elif type(a) is int and not LEAST < a < BIG:
        METER.charge(a.bit_length() >> 9)
    return checked(a / b)


def _charge_division(a: Any, b: Any) -> None:
    if type(a) is int and type(b) is int:
        if not LEAST < a < BIG and not LEAST < b < BIG:
            METER.charge((_words(b) * max(1, _words(a) - _words(b) + 1)) >> 6)
        elif not MINUS_MEDIUM < a < MEDIUM:
            METER.charge(2 + (a.bit_length() >> 9))
    elif type(a) is Fraction or type(b) is Fraction:
        _charge_fractions(a, b)


def floordiv(a: Any, b: Any) -> Any:
    """``a // b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a // b
    _charge_division(a, b)
    return checked(a // b)


def mod(a: Any, b: Any) -> Any:
    """``a % b``"""
    kind = type(a)
    if kind is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a % b
    if kind is str:
        return percent(a, b)
    if kind is bytes:
        METER.refuse("% formatting of bytes")
    _charge_division(a, b)
    return checked(a % b)


def divided(a: Any, b: Any) -> Any:
    """``divmod(a, b)``"""
    _charge_division(a, b)
    return divmod(a, b)


def power(a: Any, b: Any, modulus: Any = None) -> Any:
    """``a ** b``, or ``pow(a, b, modulus)``."""
    if modulus is not None:
        a, b, modulus = plain(a), plain(b), plain(modulus)
        if type(a) is int and type(b) is int and type(modulus) is int:
            words = _words(modulus)
            METER.charge((max(b.bit_length(), 1) * words * words) >> 4)
            if b < 0:
                METER.charge(words * words)
            METER.charge((_words(a) * words) >> 6)
        return pow(a, b, modulus)
    if type(b) is int and 0 <= b < 5 and type(a) in (int, float) and _MINUS_DIGIT < a < _DIGIT:
        return a**b
    if type(b) is int or type(b) is bool:
        bases = (a.numerator, a.denominator) if type(a) is Fraction else (a,)
        for base in bases:
            if type(base) is int and not -2 < base < 2:
                bits = (base.bit_length() - 1) * abs(b) + 1
                if b > 0 or type(a) is Fraction:
                    METER.check_bits(bits)
                    METER.charge((bits >> 6) ** 2 >> 10)
    elif type(a) is Fraction or type(b) is Fraction:
        _charge_fractions(a, b)
    return checked(a**b)


def lshift(a: Any, b: Any) -> Any:
    """``a << b``"""
    if type(a) in _INTEGERS and type(b) in _INTEGERS and b > 0 and a:
        METER.check_bits(a.bit_length() + b)
    return checked(a << b)


def rshift(a: Any, b: Any) -> Any:
    """``a >> b``"""
    if type(a) is int and not LEAST < a < BIG:
        METER.charge(a.bit_length() >> 11)
    if type(b) is int and not LEAST < b < BIG:
        METER.charge(b.bit_length() >> 6)
    return a >> b


def _charge_sign(value: Any) -> None:
    """Before ``-value`` and ``+value``: a counter makes another one, in Python."""
    if type(value) is int and not LEAST < value < BIG:
        METER.charge(value.bit_length() >> 11)
    elif type(value) is collections.Counter:
        METER.charge(MAKING[collections.Counter] + len(value))


def negated(value: Any) -> Any:
    """``-value``"""
    _charge_sign(value)
    return -value


def posited(value: Any) -> Any:
    """``+value``"""
    _charge_sign(value)
    return +value


def inverted(value: Any) -> Any:
    """``~value``"""
    if type(value) is int and not LEAST < value < BIG:
        METER.charge(value.bit_length() >> 11)
    return ~value


def _as_keys(value: Any) -> Any:
    """An operand beside a view of a mapping: native code hashes its items, so each is charged as a key."""
    kind = type(value)
    if kind in SETS or kind in MAPPINGS or type(kind) is GuestMeta:
        return value
    items = value if kind in VIEWS else take_all(value)
    for item in items:
        check_key(item)
    return items


def _set_operation(operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """``| & ^ -`` of sets, mappings and their views; of integers too."""
    cost = 0
    if type(a) in VIEWS or type(b) in VIEWS:
        a, b = _as_keys(a), _as_keys(b)
        weigh(a if type(a) in CONTAINERS else None)  # pairs are compared, values and all
        weigh(b if type(b) in CONTAINERS else None)
    for value in (a, b):
        if type(value) in CONTAINERS:
            cost += len(value)
        elif type(value) is int and not LEAST < value < BIG:
            METER.charge(value.bit_length() >> 11)
    METER.check_items(cost)
    METER.charge(cost >> 2)
    if type(a) in CONTAINERS and type(b) in CONTAINERS:
        METER.charge_merge(len(a), len(b))
    return checked(operation(a, b))


def bit_or(a: Any, b: Any) -> Any:
    """``a | b``"""
    return _set_operation(operator.or_, a, b)


def bit_and(a: Any, b: Any) -> Any:
    """``a & b``"""
    return _set_operation(operator.and_, a, b)


def bit_xor(a: Any, b: Any) -> Any:
    """``a ^ b``"""
    return _set_operation(operator.xor, a, b)


def _update_mapping(native: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """``a |= b`` of a mapping and pairs. Raises TypeError for other operations and operands."""
    if native is not operator.ior or type(a) is collections.Counter:
        raise TypeError(f"unsupported operand: {class_name(type(b))}")
    pairs = mapping_pairs(b)
    METER.check_items(len(a) + len(pairs))
    for key, value in pairs:
        a[key] = value
    return a


def mapping_pairs(source: Any) -> list[tuple[Any, Any]]:
    """Items of a mapping or of an iterable of pairs, keys charged.

    Raises TypeError and ValueError as ``dict`` does.
    """
    if type(source) in MAPPINGS:
        METER.check_items(len(source))
        METER.charge_merge(len(source), len(source))
        return list(source.items())
    keys = special(source, "keys")
    if keys is not None:
        return [(check_key(key), getitem(source, key)) for key in take_all(keys(source))]
    pairs = []
    for index, pair in enumerate(take_all(source)):
        items = take_all(pair)
        if len(items) != 2:
            raise ValueError(f"dictionary update sequence element #{index} has length {len(items)}; 2 is required")
        check_key(items[0])
        pairs.append((items[0], items[1]))
    METER.charge(len(pairs) >> 1)
    return pairs


def inplace(native: Callable[[Any, Any], Any], simple: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The augmented form of an operation: in place for lists, deques, sets, mappings and the program's classes."""

    def augmented(a: Any, b: Any) -> Any:
        kind = type(a)
        if kind is int or kind is float or kind is str:
            return simple(a, b)
        if kind in SCALARS or kind is str or kind is tuple or kind is Fraction:
            return simple(a, b)
        if type(kind) is GuestMeta:
            return native(a, b)
        if kind is list and native is operator.iadd:
            items = take_all(b)
            METER.check_items(len(a) + len(items))
            a += items
            return a
        if kind is collections.deque and native is operator.iadd:
            items = take_all(b)
            METER.check_items(len(a) + len(items))
            a += items
            return a
        if kind in SETS or kind in MAPPINGS:
            METER.check_items(len(a) + (len(b) if type(b) in CONTAINERS else 0))
            METER.charge(len(b) >> 2 if type(b) in CONTAINERS else 1)
            if type(b) in CONTAINERS:
                METER.charge_merge(len(a), len(b))
            if kind in MAPPINGS and type(b) not in MAPPINGS:
                return _update_mapping(native, a, b)
            return native(a, b)
        if kind is list and native is operator.imul:
            _repeat(a, b)
            return native(a, b)
        return simple(a, b)

    return augmented


# ------------------------------------------------------------------ comparison


def _weigh_pair(a: Any, b: Any) -> None:
    """Charge for comparing ``a`` with ``b``."""
    kind, other = type(a), type(b)
    if kind in SCALARS:
        if kind is int and other is int and not LEAST < a < BIG:
            METER.charge(a.bit_length() >> 11)
        return
    if kind is str or kind is bytes:
        if other is kind:
            METER.charge(min(len(a), len(b)) >> CHARS_PER_STEP_SHIFT)
        return
    if kind is Fraction or other is Fraction:
        _charge_fractions(a, b)
        return
    if kind in CONTAINERS and other in CONTAINERS:
        METER.charge(1)
        weigh(a if len(a) <= len(b) else b)
        if kind not in SEQUENCES:
            METER.charge_merge(len(a), len(b))
    elif kind is slice and other is slice:
        weigh(a)


def comparison(native: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The guarded form of a comparison."""

    def compare(a: Any, b: Any) -> Any:
        if type(a) is not str or len(a) > 255:
            _weigh_pair(a, b)
        return native(a, b)

    return compare


_equal, _unequal = comparison(operator.eq), comparison(operator.ne)
_less, _at_most = comparison(operator.lt), comparison(operator.le)
_greater, _at_least = comparison(operator.gt), comparison(operator.ge)


def equal(a: Any, b: Any) -> Any:
    """``a == b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a == b
    return _equal(a, b)


def unequal(a: Any, b: Any) -> Any:
    """``a != b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a != b
    return _unequal(a, b)


def less(a: Any, b: Any) -> Any:
    """``a < b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a < b
    return _less(a, b)


def at_most(a: Any, b: Any) -> Any:
    """``a <= b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a <= b
    return _at_most(a, b)


def greater(a: Any, b: Any) -> Any:
    """``a > b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a > b
    return _greater(a, b)


def at_least(a: Any, b: Any) -> Any:
    """``a >= b``"""
    if type(a) is int and type(b) is int and a < _DIGIT and a > _MINUS_DIGIT:
        return a >= b
    return _at_least(a, b)


def operand(value: Any) -> Any:
    """An operand of a chain of comparisons: charged by its own size, since its neighbours are not known here."""
    kind = type(value)
    if kind in SCALARS:
        if kind is int and not LEAST < value < BIG:
            METER.charge(value.bit_length() >> 11)
    elif kind is str or kind is bytes:
        METER.charge(len(value) >> CHARS_PER_STEP_SHIFT)
    elif kind in CONTAINERS or kind is slice:
        weigh(value)
    elif kind is range:
        METER.charge(len(value) >> ITEMS_PER_STEP_SHIFT)
    elif kind in _REMAINING:
        METER.charge(operator.length_hint(value) >> ITEMS_PER_STEP_SHIFT)
    return value


def charge_search(needle: Any, items: Any) -> None:
    """Charge for looking for ``needle`` in a sequence by comparison."""
    METER.charge(len(items) >> ITEMS_PER_STEP_SHIFT)
    kind = type(needle)
    if kind is str or kind is bytes:
        METER.charge(len(items) * (len(needle) >> CHARS_PER_STEP_SHIFT))
    elif kind in CONTAINERS or kind is slice:
        before = METER.left
        weigh(needle)
        METER.charge((before - METER.left) * (len(items) >> 2))
    elif kind is int and not LEAST < needle < BIG:
        METER.charge(len(items) * (needle.bit_length() >> 11))
    elif kind is Fraction:
        METER.charge(len(items))  # compared in Python


def contains(needle: Any, items: Any) -> bool:
    """``needle in items``"""
    kind = type(items)
    if kind in MAPPINGS or kind in SETS:
        check_key(needle)
    elif kind is str or kind is bytes:
        METER.charge(len(items) >> (CHARS_PER_STEP_SHIFT - 2))
    elif kind is list or kind is tuple or kind is collections.deque:
        charge_search(needle, items)
    elif kind is range:
        if type(needle) is not int and type(needle) is not bool:
            METER.charge(len(items) >> ITEMS_PER_STEP_SHIFT)
    elif kind in VIEWS:
        METER.charge(len(items) >> ITEMS_PER_STEP_SHIFT)
        check_key(needle)
        if type(needle) in CONTAINERS or type(needle) is slice:
            charge_search(needle, items)
    elif kind in _REMAINING:
        items = take_all(items)
        charge_search(needle, items)
    elif kind is GuestMeta and (members := _members(items)) is not None:
        return any(needle is member for member in members)
    elif type(kind) is not GuestMeta and kind not in _ENDLESS:
        raise TypeError(f"argument of type '{class_name(kind)}' is not iterable")
    return needle in items


def lacks(needle: Any, items: Any) -> bool:
    """``needle not in items``"""
    return not contains(needle, items)


# ------------------------------------------------------------------ iteration

_SAMPLES: tuple[Any, ...] = (
    [],
    (),
    "",
    "\u0101",
    b"",
    range(0),
    range(1 << 70),
    {},
    {}.keys(),
    {}.values(),
    {}.items(),
    set(),
    collections.deque(),
    collections.OrderedDict(),
    collections.OrderedDict().items(),
    collections.OrderedDict().values(),
)
_REMAINING: frozenset[type] = frozenset(type(iter(sample)) for sample in _SAMPLES)
"""Native iterators whose length hint says what is left."""


class _Sequence:
    def __getitem__(self, index: int) -> int:
        raise IndexError


_ENDLESS: frozenset[type] = frozenset({types.GeneratorType, type(iter(_Sequence()))})
"""Iterators that run the program's code for each item: nothing says how many there are."""
_NATIVE: frozenset[type] = (
    frozenset({list, tuple, str, bytes, range, collections.deque}) | MAPPINGS | VIEWS | _REMAINING | _ENDLESS
)


_SIZED: frozenset[type] = frozenset({list, tuple, str, bytes, dict})


def iterable(value: Any) -> Any:
    """Operand of ``for``, whose body counts each turn: the value itself, sets in their order.

    Raises TypeError for what cannot be iterated.
    """
    kind = type(value)
    if kind in _NATIVE:
        return value
    if kind in SETS:
        return ordered(value)
    if type(kind) is GuestMeta:
        return iter(value)
    if kind is GuestMeta and (members := _members(value)) is not None:
        return iter(members)
    raise TypeError(f"'{class_name(kind)}' object is not iterable")


def _members(kind: Any) -> list[Any] | None:
    """The members of an enumeration, each once; None for other classes."""
    found = enumeration(kind)
    if found is None:
        return None
    METER.charge(len(found) >> ITEMS_PER_STEP_SHIFT)
    return list({id(member): member for member in found.values()}.values())


def turns(value: Any, more: int = 0) -> Any:
    """Operand of a comprehension that runs to its end: its turns are charged at once, unless they may be many.

    A turn is a step, and ``more`` of them. What the list of them may grow by in between is charged where it grows.
    Raises TypeError for what cannot be iterated.
    """
    if type(value) in _SIZED:
        count = len(value)
        if count <= _FEW:
            METER.left = left = METER.left - count * (1 + more)
            if left < 0:
                METER.exhausted()
            return value
    elif type(value) is range and length(value) <= _FEW:
        METER.charge(len(value) * (1 + more))
        return value
    return _counted(iterable(value), 1 + more)


_FEW = 1000


def consumed(value: Any) -> Any:
    """Operand of native code that will iterate over all of it: charged up front where the length is known.

    Raises TypeError for what cannot be iterated.
    """
    value = iterable(value)
    kind = type(value)
    if kind in _REMAINING:
        count = operator.length_hint(value)
    elif kind in _ENDLESS or kind not in _NATIVE:
        return value
    else:
        count = length(value)
    METER.charge(count >> ITEMS_PER_STEP_SHIFT)
    return value


def length(value: Any) -> int:
    """``len(value)``, of a range of any size too."""
    try:
        return len(value)
    except OverflowError:
        return sys.maxsize


def take_all(value: Any) -> list[Any]:
    """All items as a new list, counted against the cap on containers as they come.

    Raises TypeError for what cannot be iterated.
    """
    value = iterable(value)
    kind = type(value)
    if kind in _NATIVE and kind not in _ENDLESS and kind not in _REMAINING:
        METER.check_items(length(value))
        return list(value)
    items: list[Any] = []
    iterator = iter(value)
    while True:
        chunk = list(itertools.islice(iterator, 1024))
        items += chunk
        METER.charge(1 + (len(chunk) >> ITEMS_PER_STEP_SHIFT))
        if len(items) > METER.items:
            METER.too_big(f"more than {METER.items} items")
        if len(chunk) < 1024:
            return items


def counted(value: Any) -> Iterator[Any]:
    """A lazy iterator that charges a step for each item: what native code consumes in place of an endless one.

    Raises TypeError at once for what cannot be iterated.
    """
    return _counted(iterable(value), 1)


def _counted(items: Any, cost: int) -> Iterator[Any]:
    for item in items:
        METER.left -= cost
        if METER.left < 0:
            METER.exhausted()
        yield item


def delegated(value: Any) -> Any:
    """Operand of ``yield from``: generators as they are, in a chain of a few, anything else counted."""
    if type(value) is not types.GeneratorType:
        return _delegated(iterable(value))
    # What is asked of the first of a chain goes through all of it, as native code: each few of them are a step.
    links = 0
    inner: Any = value
    while links < _CHAIN and type(inner) is types.GeneratorType:
        inner = inner.gi_yieldfrom
        links += 1
    frame: types.FrameType | None = sys._getframe(1)
    while links < _CHAIN and frame is not None and frame.f_code.co_flags & inspect.CO_GENERATOR:
        frame = frame.f_back
        links += 1
    return value if links < _CHAIN else _Link(value)


_CHAIN = 16


class _Link:
    """A generator that others delegate to, whose every step is counted."""

    __slots__ = ("_generator",)

    def __init__(self, generator: types.GeneratorType[Any, Any, Any]) -> None:
        self._generator = generator

    def __iter__(self) -> _Link:
        return self

    def __next__(self) -> Any:
        METER.charge(1)
        return next(self._generator)

    def send(self, value: Any) -> Any:
        METER.charge(1)
        return self._generator.send(value)

    def throw(self, *error: Any) -> Any:
        METER.charge(1)
        return self._generator.throw(*error)

    def close(self) -> None:
        self._generator.close()


def _delegated(items: Any) -> Iterator[Any]:
    for item in items:
        METER.left -= 1
        if METER.left < 0:
            METER.exhausted()
        if (yield item) is not None:
            raise AttributeError(f"'{class_name(type(items))}' object has no attribute 'send'")


def starred(value: Any) -> Any:
    """Operand of ``*`` in a call or display, and of an assignment to several targets: a list or tuple."""
    kind = type(value)
    if kind is list or kind is tuple:
        METER.check_items(len(value))
        return value
    return take_all(value)


def double_starred(value: Any) -> Any:
    """Operand of ``**`` in a call or display. Raises TypeError if it is not a mapping."""
    if type(value) not in MAPPINGS:
        raise TypeError(f"argument after ** must be a mapping, not {class_name(type(value))}")
    METER.check_items(len(value))
    METER.charge(len(value) >> 1)  # as a call takes it, one by one
    return value


def unpacked(value: Any, shape: tuple[Any, ...]) -> Any:
    """Right side of an assignment to several targets: lists all the way down, as ``shape`` nests.

    ``shape`` holds (index, inner shape) for the targets that are themselves several.
    """
    value = starred(value)
    if shape:
        value = list(value)
        for index, inner in shape:
            if -len(value) <= index < len(value):
                value[index] = unpacked(value[index], inner)
    return value


def unpacked_items(value: Any, shape: tuple[Any, ...]) -> Iterator[Any]:
    """Operand of a ``for`` with nested or starred targets."""
    for item in iterable(value):
        yield unpacked(item, shape)


# ------------------------------------------------------------------ items


def getitem(container: Any, key: Any) -> Any:
    """``container[key]``"""
    kind = type(container)
    if type(key) is int and (kind is list or kind is str or kind is tuple):
        return container[key]
    if kind is dict:
        check_key(key)
        return container[key]
    if kind is list or kind is tuple or kind is str or kind is range or kind is bytes:
        if type(key) is slice and kind is not range:
            count = len(range(*key.indices(len(container))))
            METER.charge(count >> (CHARS_PER_STEP_SHIFT if kind is str or kind is bytes else ITEMS_PER_STEP_SHIFT))
        return container[key]
    if kind in MAPPINGS:
        check_key(key)
        return container[key]
    if kind is collections.deque:
        METER.charge(len(container) >> 9)
        return container[key]
    if type(kind) is GuestMeta and special(container, "__getitem__") is not None:
        return container[key]
    getter = ITEM_GETTERS.get(kind)
    if getter is not None:
        return getter(container, key)
    raise TypeError(f"'{class_name(kind)}' object is not subscriptable")


ITEM_GETTERS: dict[type, Callable[[Any, Any], Any]] = {}
"""How to read items of further trusted types."""


def item_key(key: Any) -> Any:
    """Index of an item that is stored or deleted: hashable within the budget, and no slice."""
    if type(key) is int and key < _DIGIT and key > _MINUS_DIGIT:
        return key
    if type(key) is slice:
        METER.refuse("a slice object as the target of an assignment")
    return check_key(key)


class _SliceTarget:
    """``xs[a:b] = items`` and ``del xs[a:b]``: sizes are checked before the list changes."""

    __slots__ = ("_items",)

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __setitem__(self, part: slice, values: Any) -> None:
        values = take_all(values)
        METER.cap_items(len(self._items) + len(values))
        METER.charge(len(self._items) >> 6)
        self._items[part] = values

    def __delitem__(self, part: slice) -> None:
        METER.charge(len(self._items) >> 6)
        del self._items[part]


def slice_target(value: Any) -> Any:
    """Object whose slice is assigned to or deleted. Raises TypeError unless it is a list or the program's own."""
    if type(type(value)) is GuestMeta:
        return value
    if type(value) is not list:
        raise TypeError(f"'{class_name(type(value))}' object does not support slice assignment")
    return _SliceTarget(value)


_WRITABLE: frozenset[type] = (
    frozenset({list, collections.deque, str, bytes, tuple, range, Fraction, types.GeneratorType})
    | MAPPINGS
    | SCALARS
    | SETS
    | VIEWS
)


def write(value: Any) -> Any:
    """Object whose attribute or item is assigned to or deleted.

    Immutable values pass, for Python's own error; modules, built-in types and functions are refused.
    """
    kind = type(value)
    if kind is list:
        return value
    if kind in _WRITABLE:
        if kind in MAPPINGS and len(value) >= METER.items:
            METER.too_big(f"a container of more than {METER.items} items")
        if kind is collections.deque:
            METER.charge(len(value) >> 9)
        return value
    if type(kind) is GuestMeta or (kind is GuestMeta and own_class(value)):
        return value
    METER.refuse(f"changing {_thing(value)}")


def delete_from(value: Any) -> Any:
    """Object whose attribute or item is deleted: what follows an item moves up."""
    value = write(value)
    if type(value) is list or type(value) is collections.deque:
        METER.charge(len(value) >> 6)
    return value


def own_class(kind: Any) -> bool:
    """Whether the program made this class: ours outlive the call and must not change."""
    return bool(type.__getattribute__(kind, "__dict__").get("__module__") == "__main__")


def _thing(value: Any) -> str:
    if type(value) is GuestMeta:
        return f"the class {class_name(value)}"
    if type(value) is Standin:
        return f"the built-in type {value.name}"
    return f"a {class_name(type(value))}"


# ------------------------------------------------------------------ classes

# The last two are ours: programs cannot write such names.
_CLASS_NAMES: frozenset[str] = frozenset(
    {"__module__", "__qualname__", "__doc__", "__classcell__", "_annotated_", "__slots__"}
)
_COMPILER_NAMES: frozenset[str] = frozenset(
    {"__firstlineno__", "__static_attributes__", "__annotations__", "__classdictcell__", "__conditional_annotations__"}
)
EXCEPTION_BASES: set[type] = set()
"""Exceptions that programs may derive from."""


def make_class(name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **keywords: Any) -> Any:
    """What a ``class`` statement calls in place of a metaclass."""
    METER.charge(20)
    real: list[type] = []
    for base in bases:
        if type(base) is GuestMeta or (isinstance(base, type) and base in EXCEPTION_BASES):
            real.append(base)
        elif type(base) is Standin and base.real is object:
            continue
        elif type(base) in CLASS_BASES:
            real.append(CLASS_BASES[type(base)](base, namespace))
        else:
            METER.refuse(f"a class derived from {_thing(base)}")
    # CPython walks the whole resolution order for each slot of the new class.
    METER.charge(sum(len(base.__mro__) for base in real) << 5)
    members = {
        key: member for key, member in namespace.items() if key not in _COMPILER_NAMES and not key.startswith("_tmp")
    }
    for key in members:
        known = key == "_" or key in _CLASS_NAMES or key in SPECIAL_METHODS or private(key)
        if key.startswith("_") and not known:
            METER.refuse(f'"{key}" in a class')
        if type(members[key]) is types.FunctionType and members[key].__code__ in UNBOUND:
            members[key] = staticmethod(members[key])
    members["__module__"] = "__main__"
    return GuestMeta(name, tuple(real), members)


CLASS_BASES: dict[type, Callable[[Any, dict[str, Any]], type]] = {}
"""How a class may derive from a trusted object that is not a class of the program."""

UNBOUND: set[types.CodeType] = set()
"""Code of functions here that stand for native ones: those are no methods of a class that holds them."""

_OPERATORS = "add sub mul truediv floordiv mod pow lshift rshift and or xor"
SPECIAL_METHODS: frozenset[str] = frozenset(
    f"__{name}__"
    for name in (
        "init post_init lt le eq ne gt ge hash contains len bool call iter next getitem setitem delitem str repr "
        "neg pos abs invert int float index round divmod rdivmod reversed format "
        + " ".join(f"{name} r{name} i{name}" for name in _OPERATORS.split())
    ).split()
)
"""Special methods that a class may define: those that Python calls within an operation that is counted."""

_PRIVATE = re.compile(r"_(?!tmp[0-9])[A-Za-z0-9](?:\w*[^\W_])?", re.ASCII)


def private(name: str) -> bool:
    """Whether programs may call something of their own so, though it starts with an underscore.

    Hooks end in one, and temporary names start with ``_tmp``; what is private to others is never read or written.
    """
    return _PRIVATE.fullmatch(name) is not None and name not in READABLE_NAMES


READABLE_NAMES: frozenset[str] = frozenset({"__members__", "__name__", "_asdict", "_fields", "_make", "_replace"})
"""Names with a leading underscore that programs may read: of classes, functions, named tuples and enumerations."""

CONTEXT_MANAGERS: set[type] = set()
"""Types of ours that a ``with`` statement takes."""


def context_manager(value: Any) -> Any:
    """Operand of ``with``: only objects of ours, because leaving a block would hand the program a traceback."""
    METER.charge(1)
    if type(value) not in CONTEXT_MANAGERS:
        METER.refuse(f"with: {_thing(value)} is not a context manager here")
    return value


# ------------------------------------------------------------------ output


def echo(value: Any) -> None:
    """Value of a final expression: written as a notebook shows it, on a line of its own."""
    if value is not None:
        from .values import to_repr

        text = to_repr(value)
        if not METER.output.ends_line():
            text = "\n" + text
        METER.write(text)


def printed(*values: Any, sep: Any = " ", end: Any = "\n", file: Any = None, flush: Any = False) -> None:
    """``print``, into the output of the call. Raises TypeError for a ``file``: there are none."""
    if file is not None:
        raise TypeError("print: there are no files, use print without file=")
    for name, value in (("sep", sep), ("end", end)):
        if value is not None and type(value) is not str:
            raise TypeError(f"{name} must be None or a string, not {class_name(type(value))}")
    between = " " if sep is None else sep
    end = "\n" if end is None else end
    texts = _short_texts(values)
    if texts is not None:
        # What each part costs, but all written at once.
        METER.left -= len(texts) + (max(0, len(texts) - 1) if between else 0)
        METER.write(between.join(texts) + end)
        return
    for index, value in enumerate(values):
        if index and between:
            METER.write(between)
        METER.write(to_str(value))
    METER.write(end)


def _short_texts(values: tuple[Any, ...]) -> list[str] | None:
    """The values as text, if they are short strings and numbers: nothing of the program runs to show them."""
    texts = []
    for value in values:
        kind = type(value)
        if kind is int:
            if value > _DIGIT or value < _MINUS_DIGIT:
                return None
            texts.append(repr(value))
        elif kind is str and len(value) < 256:
            texts.append(value)
        else:
            return None
    return texts


HOOKS: dict[str, Any] = {
    "_step_": step,
    "_steps_": steps,
    "_kinds_": error_kinds,
    "_caught_": caught,
    "_raise_": raised,
    "_add_": add,
    "_sub_": sub,
    "_mul_": mul,
    "_div_": div,
    "_floordiv_": floordiv,
    "_mod_": mod,
    "_pow_": power,
    "_lshift_": lshift,
    "_rshift_": rshift,
    "_neg_": negated,
    "_pos_": posited,
    "_invert_": inverted,
    "_or_": bit_or,
    "_and_": bit_and,
    "_xor_": bit_xor,
    "_iadd_": inplace(operator.iadd, add),
    "_isub_": inplace(operator.isub, sub),
    "_imul_": inplace(operator.imul, mul),
    "_idiv_": inplace(operator.itruediv, div),
    "_ifloordiv_": inplace(operator.ifloordiv, floordiv),
    "_imod_": inplace(operator.imod, mod),
    "_ipow_": inplace(operator.ipow, power),
    "_ilshift_": inplace(operator.ilshift, lshift),
    "_irshift_": inplace(operator.irshift, rshift),
    "_ior_": inplace(operator.ior, bit_or),
    "_iand_": inplace(operator.iand, bit_and),
    "_ixor_": inplace(operator.ixor, bit_xor),
    "_eq_": equal,
    "_ne_": unequal,
    "_lt_": less,
    "_le_": at_most,
    "_gt_": greater,
    "_ge_": at_least,
    "_in_": contains,
    "_notin_": lacks,
    "_operand_": operand,
    "_getiter_": iterable,
    "_turns_": turns,
    "_delegate_": delegated,
    "_star_": starred,
    "_doublestar_": double_starred,
    "_unpack_": unpacked,
    "_unpackiter_": unpacked_items,
    "_getitem_": getitem,
    "_key_": check_key,
    "_itemkey_": item_key,
    "_slices_": slice_target,
    "_write_": write,
    "_delete_": delete_from,
    "_format_": to_format,
    "_with_": context_manager,
    "_echo_": echo,
    "__metaclass__": make_class,
}
"""Name in rewritten programs: hook. Programs cannot write these names."""
