"""Walks over a program's values: what hashing, comparing and printing them costs, and how they read.

Nothing here trusts a value. Types are compared by identity, never by ``isinstance`` on something that a program
made; text never holds an address; sets have one order; and each walk charges the meter for what it sees, because
forty cells of ``a = [a, a]`` print as a terabyte and hash for a century.
"""

from __future__ import annotations

import collections
import fractions
import math
import operator
import re
import string
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from .meter import CHARS_PER_STEP_SHIFT, METER, PROGRAM, encodable

NoneType = type(None)
HASH_MODULUS = (1 << 61) - 1
"""CPython hashes an integer modulo this prime: programs can make as many collisions as they like."""
BIG = 1 << 1024
"""Integers below this in magnitude are not charged for."""
LEAST = -BIG
MEDIUM = 1 << 192
MINUS_MEDIUM = -MEDIUM
"""Products, quotients and texts of integers above this take more than the steps around them."""
_LONG = 512
_FEW_KINDS = 8
_DEPTH = 500

SCALARS: frozenset[type] = frozenset({int, float, bool, complex, NoneType})
FAST_KEYS: frozenset[type] = frozenset({float, bool})
SEQUENCES: frozenset[type] = frozenset({list, tuple, collections.deque})
SETS: frozenset[type] = frozenset({set, frozenset})
MAPPINGS: frozenset[type] = frozenset({dict, collections.OrderedDict, collections.defaultdict, collections.Counter})
_EMPTY: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
VIEWS: frozenset[type] = frozenset(
    type(view) for empty in _EMPTY for view in (empty.keys(), empty.values(), empty.items())
)
CONTAINERS = SEQUENCES | SETS | MAPPINGS | VIEWS


class GuestMeta(type):
    """The metaclass of every class that a program defines, and of ours that it may derive from.

    Ours are those whose module is not ``__main__``, which no program can write. They cannot be changed.
    """

    def __setattr__(cls, name: str, value: Any) -> None:
        _check_changeable(cls, name)
        type.__setattr__(cls, name, value)

    def __delattr__(cls, name: str) -> None:
        _check_changeable(cls, name)
        type.__delattr__(cls, name)


def of_program(kind: object) -> bool:
    """Whether ``kind`` is a class that a program defined, and not one of ours."""
    return type(kind) is GuestMeta and type.__getattribute__(kind, "__module__") == "__main__"


def _check_changeable(kind: type, name: str) -> None:
    """Before an attribute of a class changes. Raises AttributeError for a member of an enumeration."""
    if not of_program(kind):
        METER.refuse(f"changing the class {class_name(kind)}")
    members = enumeration(kind)
    if members is not None and name in members:
        raise AttributeError(f"cannot reassign member '{name}'")


def plain(value: Any) -> Any:
    """A member of an IntEnum as the plain integer; anything else as it is."""
    return int.__int__(value) if type(type(value)) is GuestMeta and isinstance(value, int) else value


def enumeration(kind: Any) -> dict[str, Any] | None:
    """Members of an enumeration that the program defined, by name; None for other classes."""
    found: dict[str, Any] | None = type.__getattribute__(kind, "__dict__").get("_members_")
    return found


def guest_function(value: object) -> bool:
    """Whether ``value`` is a function that a program defined."""
    return type(value) is types.FunctionType and value.__code__.co_filename == PROGRAM


def special(value: object, name: str) -> Any:
    """The method ``name`` that a program's class gives ``value``, unbound; None if there is none."""
    kinds = type(value).__mro__
    if len(kinds) > _FEW_KINDS:
        METER.charge(len(kinds) >> 1)
    for kind in kinds:
        if type(kind) is GuestMeta and name in kind.__dict__:
            return kind.__dict__[name]
    return None


def charged_kinds(kind: type) -> tuple[type, ...]:
    """The resolution order of a class, the walk over it charged."""
    kinds = kind.__mro__
    if len(kinds) > _FEW_KINDS:
        METER.charge(len(kinds) >> 1)
    return kinds


# ------------------------------------------------------------------ what keys and comparisons cost


def weigh(value: object) -> None:
    """Charge for a walk over ``value`` as comparing, sorting or copying it would do, aliases counted each time."""
    level = [value]
    while level:
        deeper: list[object] = []
        for item in level:
            kind = type(item)
            if kind in MAPPINGS:
                METER.charge(1 + len(item))  # type: ignore[arg-type]
                deeper.extend(item.keys())  # type: ignore[attr-defined]
                deeper.extend(item.values())  # type: ignore[attr-defined]
            elif kind in CONTAINERS:
                METER.charge(1 + len(item))  # type: ignore[arg-type]
                deeper.extend(item)  # type: ignore[arg-type]
            elif kind is slice:
                METER.charge(4)
                deeper.extend(slice_parts(item))
            elif kind is str or kind is bytes:
                METER.charge(len(item) >> CHARS_PER_STEP_SHIFT)  # type: ignore[arg-type]
            elif kind is int:
                if not LEAST < item < BIG:  # type: ignore[operator]
                    METER.charge(item.bit_length() >> 11)  # type: ignore[attr-defined]
            elif kind is fractions.Fraction:
                # Compared by cross-multiplication.
                METER.charge(1 + (_fraction_words(item) ** 2 >> 9))  # type: ignore[arg-type]
        level = deeper


def slice_parts(value: Any) -> tuple[Any, Any, Any]:
    """What a slice is compared and hashed by."""
    return value.start, value.stop, value.step


def _fraction_words(value: fractions.Fraction) -> int:
    """64-bit words of a fraction's numerator and denominator together."""
    return (value.numerator.bit_length() + value.denominator.bit_length()) >> 6


def to_hash(value: Any) -> int:
    """``hash(value)`` as programs see it: the same in every process."""
    check_key(value)
    if value is None:
        return 0xFCA86420
    kind = type(value)
    if kind is float and value != value:
        return METER.serial(value)  # not-a-number hashes by its address
    if kind in (int, float, bool, complex, str, bytes, fractions.Fraction):
        return hash(value)
    if isinstance(value, tuple):
        METER.charge(2 + 4 * len(value))
        # None hashes by its address before Python 3.12, alone and inside.
        return hash(tuple(map(to_hash, tuple.__iter__(value))))
    if kind is frozenset:
        return hash(tuple(sorted(to_hash(item) for item in value)))
    if kind is slice and sys.version_info >= (3, 12):
        return hash(tuple(map(to_hash, slice_parts(value))))
    if type(kind) is GuestMeta and special(value, "__hash__") is not None:
        return hash(value)
    if kind in MAPPINGS or kind in (list, set) or getattr(kind, "__hash__", None) is None:
        raise TypeError(f"unhashable type: '{class_name(kind)}'")
    return METER.serial(value)


def check_key(key: Any) -> Any:
    """Charge for hashing ``key`` and for the collisions it runs into; returns it.

    Raises TypeError (through ``hash``) for an unhashable key, and ends the call for one nested so deep that
    hashing it would overflow the C stack, which CPython does not check.
    """
    kind = type(key)
    if kind is str:
        if len(key) > _LONG:
            METER.charge(len(key) >> CHARS_PER_STEP_SHIFT)
        return key
    if kind in FAST_KEYS:
        return key
    if kind is int:
        if not -HASH_MODULUS < key < HASH_MODULUS:
            _collide(key)
        return key
    if kind is set:
        # Native code looks a set up as the frozenset of its items, whose hashes it keeps.
        METER.charge(1 + (len(key) >> 2))
        return key
    if _walk_key(key):
        _collide(key)
    return key


def _walk_key(key: object) -> bool:
    """Charge for the parts of a key; whether any of them is a number whose hash is not itself."""
    level, collides = [key], False
    for _ in range(_DEPTH):
        deeper: list[object] = []
        for item in level:
            kind = type(item)
            if kind is tuple or kind is frozenset:
                METER.charge(1 + len(item))  # type: ignore[arg-type]
                deeper.extend(item)  # type: ignore[arg-type]
            elif kind is slice:
                METER.charge(4)
                deeper.extend(slice_parts(item))
            elif kind is int:
                collides = collides or not -HASH_MODULUS < item < HASH_MODULUS  # type: ignore[operator]
            elif kind is fractions.Fraction:
                METER.charge(4 + 4 * _fraction_words(item))  # type: ignore[arg-type]
                collides = True
            elif kind is str:
                METER.charge(len(item) >> CHARS_PER_STEP_SHIFT)  # type: ignore[arg-type]
            elif kind not in SCALARS and kind is not bytes:
                if type(kind) is not GuestMeta or special(item, "__hash__") is None:
                    METER.serial(item)
                elif special(item, "__eq__") is None:
                    collides = True  # its hash may be what it likes, and comparing runs no code that is counted
        if not deeper:
            return collides
        level = deeper
    METER.stop("limit", "recursion", "a key nested too deeply")


def _collide(key: object) -> None:
    """Charge for a key whose hash other keys may share: as many steps as there are keys of that hash so far."""
    if type(key) is int and not LEAST < key < BIG:
        METER.charge(key.bit_length() >> 9)
    tokens = METER.big_keys.setdefault(hash(key), set())
    tokens.add(_token(key))
    METER.collisions = max(METER.collisions, len(tokens))
    METER.charge(len(tokens))


def _token(key: Any) -> str:
    """A text that stands for a key and does not share its collisions."""
    kind = type(key)
    if kind is int:
        return hex(key)
    if kind is fractions.Fraction:
        return f"{key.numerator:x}/{key.denominator:x}"
    if kind is tuple:
        return f"({','.join(map(_token, key))})"
    if kind is frozenset:
        return f"{{{','.join(sorted(map(_token, key)))}}}"
    if kind is slice:
        return f"[{':'.join(map(_token, slice_parts(key)))}]"
    if kind is str or kind is bytes:
        return str(hash(key))
    if type(kind) is GuestMeta and special(key, "__hash__") is not None and special(key, "__eq__") is not None:
        return f"@{hash(key)}"  # comparing it runs code that is counted
    return repr(key) if kind in SCALARS else f"#{METER.serial(key)}"


# ------------------------------------------------------------------ a defined order for sets


def _order_key(value: Any) -> tuple[Any, ...]:
    """A sort key that any two values of a set can be compared by, independent of addresses."""
    kind = type(value)
    METER.charge(1)
    if kind is int or kind is bool or kind is fractions.Fraction:
        return (0, value)
    if kind is float:
        return (0, value) if value == value else (1, 0)
    if kind is str:
        return (2, value)
    if kind is bytes:
        return (3, value)
    if kind is tuple:
        return (4, tuple(_order_key(item) for item in value))
    if kind is frozenset:
        return (5, tuple(sorted(_order_key(item) for item in value)))
    if kind is complex:
        return (6, value.real, value.imag)
    if value is None:
        return (7, 0)
    return (8, METER.serial(value))


def ordered(items: Any) -> list[Any]:
    """The items of a set in its defined order: numbers by value, then strings, then the rest."""
    METER.check_items(len(items))
    kinds = {type(item) for item in items}
    if kinds <= {int, bool} or kinds == {str}:
        METER.charge(len(items) >> 1)
        return sorted(items)
    return sorted(items, key=_order_key)


# ------------------------------------------------------------------ reading values as text


class _Renderer:
    """One ``repr``: pieces of text, charged as they come."""

    __slots__ = ()

    active: ClassVar[set[int]] = set()
    """What is being rendered, over all renderers: a program's ``__repr__`` may ask for the text of its holder."""

    def text(self, value: Any) -> str:
        """``repr(value)``, without addresses and with sets in order."""
        METER.charge(1)
        kind = type(value)
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(value)
        if type(kind) is GuestMeta:
            return self.instance(value)
        handler = _NESTED.get(kind)
        if handler is None:
            return _opaque(value)
        if id(value) in self.active:
            return _ELLIPSES.get(kind, "...")
        self.active.add(id(value))
        try:
            text = handler(self, value)
        finally:
            self.active.discard(id(value))
        return text

    def joined(self, values: Iterable[Any]) -> str:
        """The items of a container, with commas between."""
        if type(values) is list and _short_numbers(values):
            METER.charge(len(values))
            text = ", ".join(map(repr, values))
            METER.check_characters(len(text) + 2)
            return text
        parts, size = [], 0
        for value in values:
            part = self.text(value)
            parts.append(part)
            size += len(part) + 2
            if size > METER.characters:
                METER.too_big(f"a text of more than {METER.characters} characters")
        METER.check_characters(size)
        return ", ".join(parts)

    def pairs(self, value: Mapping[Any, Any]) -> str:
        """The items of a mapping."""
        parts, size = [], 0
        for key, item in list(value.items()):
            part = f"{self.text(key)}: {self.text(item)}"
            parts.append(part)
            size += len(part) + 2
            if size > METER.characters:
                METER.too_big(f"a text of more than {METER.characters} characters")
        METER.check_characters(size)
        return ", ".join(parts)

    def instance(self, value: Any) -> str:
        """An instance of a program's class: its own ``__repr__`` if it has one."""
        own = special(value, "__repr__")
        if own is not None:
            return _own_text("__repr__", own(value))
        if isinstance(value, BaseException):
            return self.exception(value)
        return f"<{full_name(type(value))} object>"

    def exception(self, value: BaseException) -> str:
        arguments = self.joined(value.args)
        return f"{class_name(type(value))}({arguments})"


def _own_text(method: str, text: object) -> str:
    """What a program's ``__str__`` or ``__repr__`` returned. Raises TypeError if it is not a string."""
    if type(text) is not str:
        raise TypeError(f"{method} returned non-string (type {class_name(type(text))})")
    return text


def class_name(kind: type) -> str:
    """The name of a class as programs know it."""
    name = type.__getattribute__(kind, "__name__")
    return str(name)


def full_name(kind: type) -> str:
    """The name of a class as its text has it: with its module, unless it is built in, and what it is nested in."""
    contents = type.__getattribute__(kind, "__dict__")
    module = contents.get("__module__", "builtins")
    name = str(type.__getattribute__(kind, "__qualname__"))
    return name if module == "builtins" else f"{module}.{name}"


def _string(value: str) -> str:
    METER.check_characters(len(value) << 2)
    return repr(value)


def _bytes(value: bytes) -> str:
    METER.check_characters(len(value) << 2)
    return repr(value)


def _short_numbers(values: list[Any]) -> bool:
    """Whether a list holds nothing but numbers whose text is short, so that it can be made at once."""
    if not {int, float}.issuperset(map(type, values)):
        return False
    # A NaN at the head stays the greatest and the least, and is neither below nor above anything.
    return not values or (min(values) > LEAST and max(values) < BIG)


def charge_digits(value: int) -> None:
    """Before the digits of a long integer are found."""
    bits = value.bit_length()
    METER.charge(bits >> 4 if bits > 1024 else bits >> 6)


def _integer(value: int) -> str:
    if not MINUS_MEDIUM < value < MEDIUM:
        charge_digits(value)
    return int.__repr__(value)


def _deque(self: _Renderer, value: collections.deque[Any]) -> str:
    bound = "" if value.maxlen is None else f", maxlen={value.maxlen}"
    return f"deque([{self.joined(list(value))}]{bound})"


def _tuple(self: _Renderer, value: tuple[Any, ...]) -> str:
    return f"({self.joined(value)},)" if len(value) == 1 else f"({self.joined(value)})"


def _set(self: _Renderer, value: set[Any]) -> str:
    return f"{{{self.joined(ordered(value))}}}" if value else "set()"


def _frozenset(self: _Renderer, value: frozenset[Any]) -> str:
    return f"frozenset({{{self.joined(ordered(value))}}})" if value else "frozenset()"


def _counter(self: _Renderer, value: collections.Counter[Any]) -> str:
    METER.check_items(len(value))
    try:
        items = dict(value.most_common())
    except TypeError:
        items = dict(value)
    return f"Counter({{{self.pairs(items)}}})" if value else "Counter()"


def _defaultdict(self: _Renderer, value: collections.defaultdict[Any, Any]) -> str:
    return f"defaultdict({self.text(value.default_factory)}, {{{self.pairs(value)}}})"


def _ordereddict(self: _Renderer, value: Mapping[Any, Any]) -> str:
    if not value:
        return "OrderedDict()"
    if sys.version_info >= (3, 12):
        return f"OrderedDict({{{self.pairs(value)}}})"
    return f"OrderedDict([{self.joined(list(value.items()))}])"


def _view(self: _Renderer, value: Any) -> str:
    name = {"odict_keys": "odict_keys", "odict_values": "odict_values"}.get(type(value).__name__, type(value).__name__)
    return f"{name}([{self.joined(list(value))}])"


def _slice(self: _Renderer, value: slice) -> str:
    return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"


_PLAIN: dict[type, Callable[[Any], str]] = {
    int: _integer,
    float: float.__repr__,
    bool: repr,
    complex: repr,
    NoneType: repr,
    type(Ellipsis): repr,
    type(NotImplemented): repr,
    str: _string,
    bytes: _bytes,
    range: repr,
    fractions.Fraction: lambda value: f"Fraction({_integer(value.numerator)}, {_integer(value.denominator)})",
}
_NESTED: dict[type, Callable[[_Renderer, Any], str]] = {
    list: lambda self, value: f"[{self.joined(list(value))}]",
    tuple: _tuple,
    dict: lambda self, value: f"{{{self.pairs(value)}}}",
    set: _set,
    frozenset: _frozenset,
    collections.deque: _deque,
    collections.Counter: _counter,
    collections.defaultdict: _defaultdict,
    collections.OrderedDict: _ordereddict,
    slice: _slice,
    **dict.fromkeys(VIEWS, _view),
}
_ELLIPSES: dict[type, str] = {list: "[...]", tuple: "(...)", dict: "{...}"}


def register_text(kind: type, render: Callable[[Any], str]) -> None:
    """Say how values of a trusted type read."""
    _PLAIN[kind] = render


def _opaque(value: Any) -> str:
    """A value without contents to show: its kind and name, never its address."""
    if isinstance(value, BaseException):
        return _Renderer().exception(value)
    if isinstance(value, type):
        if enumeration(value) is not None:
            return f"<enum '{class_name(value)}'>"
        return f"<class '{full_name(value)}'>"
    if guest_function(value):
        return f"<function {value.__qualname__}>"
    if type(value) is types.FunctionType:
        return f"<built-in function {value.__name__.strip('_')}>"
    if type(value) is types.MethodType:
        return f"<bound method {value.__func__.__name__.strip('_')}>"
    if type(value) is types.BuiltinFunctionType:
        return f"<built-in function {value.__name__}>"
    if type(value) is types.GeneratorType:
        if value.gi_code.co_filename == PROGRAM:
            return f"<generator object {value.__qualname__}>"
        return f"<{value.__name__.strip('_')} object>"
    if type(value) is types.UnionType:
        return " | ".join(full_name(kind) for kind in value.__args__)
    return f"<{class_name(type(value))} object>"


def fields_text(value: Any, name: str, fields: Iterable[tuple[str, Any]]) -> str:
    """``name(field=value, ...)``, as records read; ``...`` inside itself."""
    METER.charge(10)
    if id(value) in _Renderer.active:
        return "..."
    _Renderer.active.add(id(value))
    try:
        parts, size = [], len(name) + 2
        for field, content in fields:
            METER.charge(4)
            part = f"{field}={to_repr(content)}"
            parts.append(part)
            size += len(part) + 2
            if size > METER.characters:
                METER.too_big(f"a text of more than {METER.characters} characters")
        METER.check_characters(size)
        return f"{name}({', '.join(parts)})"
    finally:
        _Renderer.active.discard(id(value))


def to_repr(value: Any) -> str:
    """``repr(value)`` as programs see it."""
    kind = type(value)
    if kind is int and MINUS_MEDIUM < value < MEDIUM:
        return repr(value)
    return _Renderer().text(value)


def to_str(value: Any) -> str:
    """``str(value)`` as programs see it."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is int and MINUS_MEDIUM < value < MEDIUM:
        return repr(value)
    if kind is fractions.Fraction:
        return to_repr(value.numerator) + ("" if value.denominator == 1 else f"/{to_repr(value.denominator)}")
    if type(kind) is GuestMeta:
        own = special(value, "__str__")
        if own is not None:
            return _own_text("__str__", own(value))
        if special(value, "__repr__") is not None and not isinstance(value, BaseException):
            return to_repr(value)
    if isinstance(value, BaseException):
        return error_text(value)
    return _Renderer().text(value)


def _native_text(error: BaseException) -> bool:
    """Whether Python's own text of a built-in error is made of short parts: the codec's errors, and those of the
    operating system."""
    kinds = tuple(map(type, error.args))
    if type(error) is UnicodeDecodeError:
        return kinds == (str, bytes, int, int, str)
    if type(error) is UnicodeEncodeError:
        return kinds == (str, str, int, int, str)
    return type(type(error)) is type and isinstance(error, OSError) and kinds == (int, str)


def error_text(error: BaseException) -> str:
    """``str(error)``, without running anything of the program but its own ``__str__`` methods."""
    arguments = error.args
    if not arguments:
        return ""
    if isinstance(error, (OSError, UnicodeError)) and _native_text(error):
        METER.check_characters(sum(len(part) for part in arguments if type(part) is str))
        return str(error)
    if len(arguments) == 1:
        return to_repr(arguments[0]) if isinstance(error, KeyError) else to_str(arguments[0])
    return to_repr(arguments)


# ------------------------------------------------------------------ formats


_EVERYDAY_FORMAT = re.compile(r"[<>^]?[+, ]?0?[0-9]{0,2}(\.[0-9])?[%a-zA-Z]?")


def check_spec(spec: str) -> None:
    """End the call if a number in a format asks for more than a string may hold, else charge for it."""
    if METER.characters > 255 and _EVERYDAY_FORMAT.fullmatch(spec):
        return
    number = 0
    for character in spec:
        if character.isdigit():
            number = number * 10 + (ord(character) - 48 if character <= "9" else 9)
            if number > METER.characters:
                METER.too_big(f"a format of more than {METER.characters} characters")
        else:
            METER.check_characters(number)
            number = 0
    METER.check_characters(number)


_FORMATTED: frozenset[type] = frozenset({int, float, bool, complex, str})


def to_format(value: Any, conversion: int = -1, spec: str = "") -> str:
    """One replacement field: ``format(value, spec)`` after ``!s`` (115), ``!r`` (114), ``!a`` (97) or none (-1)."""
    kind = type(value)
    if kind is int and spec == "" and MINUS_MEDIUM < value < MEDIUM:
        return repr(value)
    if conversion == 114:
        value = to_repr(value)
    elif conversion == 115:
        value = to_str(value)
    elif conversion == 97:
        value = to_ascii(value)
    if not spec:
        own = special(value, "__format__") if type(type(value)) is GuestMeta else None
        text = to_str(value) if own is None else _own_text("__format__", own(value, ""))
        METER.charge(1 + (len(text) >> CHARS_PER_STEP_SHIFT))
        return text
    if type(spec) is not str:
        raise TypeError("a format must be a string")
    kind = type(value)
    if kind is fractions.Fraction and sys.version_info >= (3, 12):
        value, kind = float(value), float
    if kind not in _FORMATTED:
        own = special(value, "__format__")
        if own is not None:
            return _own_text("__format__", own(value, spec))
        raise TypeError(f"unsupported format string passed to {class_name(kind)}.__format__")
    check_spec(spec)
    if kind is str:
        METER.check_characters(len(value))
    elif kind is int and not MINUS_MEDIUM < value < MEDIUM:
        charge_digits(value)
    METER.charge(1)
    charge_decimals(value)
    return format(value, spec)


def charge_decimals(value: Any) -> None:
    """Before a float is rounded or written to given digits: those of a large one are found by long division."""
    if type(value) is float:
        if not -1e22 < value < 1e22:
            METER.charge((math.frexp(value)[1] >> 6) ** 2 >> 1)
    elif type(value) is complex:
        charge_decimals(value.real)
        charge_decimals(value.imag)


def to_ascii(value: Any) -> str:
    """``ascii(value)`` as programs see it."""
    text = to_repr(value)
    METER.check_characters(len(text) << 2)
    return text.encode("ascii", "backslashreplace").decode("ascii")


_FORMATTER = string.Formatter()
_PERCENT_FLAGS = "#0- +"
_PERCENT_KINDS = "diouxXeEfFgGcrsa%"


def _percent_number(text: str, at: int, take: Callable[[], Any]) -> tuple[str, int]:
    """A width or precision at ``at``: its digits, with ``*`` replaced by an argument, and where it ends."""
    if at < len(text) and text[at] == "*":
        number = take()
        if type(number) is not int:
            raise TypeError("* wants int")
        digits = str(number) if LEAST < number < BIG else "9" * 12
        return digits, at + 1
    end = at
    while end < len(text) and text[end] in "0123456789":
        end += 1
    return text[at:end], end


def _subscripted(value: Any) -> bool:
    """Whether ``%`` takes a lone argument for a mapping, which need not be used up."""
    kind = type(value)
    return kind in (list, bytes, range) or (type(kind) is GuestMeta and special(value, "__getitem__") is not None)


def percent(text: str, arguments: Any) -> str:
    """``text % arguments``. Raises TypeError and ValueError as Python does."""
    METER.check_characters(len(text))
    METER.charge(4)
    if type(arguments) is not tuple and isinstance(arguments, tuple):
        arguments = tuple(tuple.__iter__(arguments))
    mapping = arguments if type(arguments) in MAPPINGS else None
    values: Iterator[Any] = iter(arguments if type(arguments) is tuple else (arguments,))
    taken = 0

    def take() -> Any:
        nonlocal taken
        taken += 1
        try:
            return next(values)
        except StopIteration:
            raise TypeError("not enough arguments for format string") from None

    parts: list[str] = []
    size = at = 0
    while True:
        start = text.find("%", at)
        if start < 0:
            parts.append(text[at:])
            break
        parts.append(text[at:start])
        piece, at = _percent_field(text, start + 1, mapping, take)
        parts.append(piece)
        size += len(piece)
        METER.charge(1)
        if size > METER.characters:
            METER.too_big(f"a string of more than {METER.characters} characters")
    if mapping is None and not (type(arguments) is not tuple and taken == 1):
        leftover = next(values, parts)
        if leftover is not parts and not _subscripted(arguments):
            raise TypeError("not all arguments converted during string formatting")
    METER.check_characters(size)
    return "".join(parts)


def _percent_field(text: str, at: int, mapping: Any, take: Callable[[], Any]) -> tuple[str, int]:
    """One conversion of a ``%`` format that starts after the ``%``; its text and where it ends."""
    named = at < len(text) and text[at] == "("
    value: Any = None
    if named:
        end = text.find(")", at)
        if mapping is None:
            raise TypeError("format requires a mapping")
        if end < 0:
            raise ValueError("incomplete format key")
        value, at = mapping[text[at + 1 : end]], end + 1
    flags = at
    while at < len(text) and text[at] in _PERCENT_FLAGS:
        at += 1
    prefix = text[flags:at]
    width, at = _percent_number(text, at, take)
    precision = ""
    if at < len(text) and text[at] == ".":
        digits, at = _percent_number(text, at + 1, take)
        precision = f".{digits}"
    check_spec(f"{width} {precision}")
    if at < len(text) and text[at] in "hlL":
        at += 1
    if at >= len(text):
        raise ValueError("incomplete format")
    kind = text[at]
    if kind not in _PERCENT_KINDS:
        raise ValueError(f"unsupported format character '{kind}' at index {at}")
    if kind == "%":
        return "%", at + 1
    if not named:
        value = take()
    if kind in "rsa":
        value, kind = {"r": to_repr, "s": to_str, "a": to_ascii}[kind](value), "s"
    elif type(value) is int and not MINUS_MEDIUM < value < MEDIUM:
        charge_digits(value)
    elif type(value) is fractions.Fraction or type(type(value)) is GuestMeta:
        value = _converted(value, kind)
    elif type(value) not in _FORMATTED:
        raise TypeError(f"%{kind} format: a number is required, not {class_name(type(value))}")
    charge_decimals(value)
    return f"%{prefix}{width}{precision}{kind}" % (value,), at + 1


def _converted(value: Any, kind: str) -> int | float:
    """A fraction or an instance of a program's class as the number that a ``%`` conversion takes it for."""
    value = plain(value)
    if type(value) is int:
        return value
    wanted = "__float__" if kind in "eEfFgG" else "__int__" if kind in "diu" else "__index__"
    if type(value) is not fractions.Fraction and special(value, wanted) is None and special(value, "__index__") is None:
        raise TypeError(f"%{kind} format: a number is required, not {class_name(type(value))}")
    if type(value) is fractions.Fraction and wanted == "__index__":
        raise TypeError(f"%{kind} format: an integer is required, not Fraction")
    if wanted == "__float__":
        return float(value)
    number = int(value) if wanted == "__int__" else operator.index(value)
    if not MINUS_MEDIUM < number < MEDIUM:
        charge_digits(number)
    return number


class _Numbering:
    """Which argument the next ``{}`` takes; a format numbers its fields itself or not at all."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: int | None = None

    def of(self, field: str) -> str:
        """The field's number or name. Raises ValueError for a mixture."""
        if field and not field.isdigit():
            return field
        if self._next is None:
            self._next = -1 if field else 0
        if bool(field) is not (self._next < 0):
            ways = ("manual field specification", "automatic field numbering")
            raise ValueError("cannot switch from {} to {}".format(*(ways if self._next < 0 else ways[::-1])))
        if field:
            return field
        self._next += 1
        return str(self._next - 1)


def braces(
    text: str,
    arguments: tuple[Any, ...],
    names: Mapping[str, Any],
    numbering: _Numbering | None = None,
    depth: int = 2,
) -> str:
    """``text.format(*arguments, **names)`` with plain fields only: attributes and items are refused.

    Raises ValueError, IndexError and KeyError as Python does.
    """
    if depth <= 0:
        raise ValueError("Max string recursion exceeded")
    METER.check_characters(len(text))
    numbering = numbering or _Numbering()
    parts: list[str] = []
    size = 0
    for literal, field, spec, conversion in _FORMATTER.parse(text):
        METER.charge(1)
        parts.append(literal)
        size += len(literal)
        if field is None:
            continue
        if "." in field or "[" in field:
            METER.refuse("attributes and items in a format field")
        value = _field_value(numbering.of(field), arguments, names)
        if spec and ("{" in spec or "}" in spec):
            spec = braces(spec, arguments, names, numbering, depth - 1)
        if conversion not in (None, "r", "s", "a"):
            raise ValueError(f"Unknown conversion specifier {conversion!r}")
        part = to_format(value, ord(conversion) if conversion else -1, spec or "")
        parts.append(part)
        size += len(part)
        if size > METER.characters:
            METER.too_big(f"a string of more than {METER.characters} characters")
    METER.check_characters(size)
    return "".join(parts)


def _field_value(field: str, arguments: tuple[Any, ...], names: Mapping[str, Any]) -> Any:
    if field.isdigit():
        index = int(field[:9])
        if index >= len(arguments):
            raise IndexError(f"Replacement index {field[:9]} out of range for positional args tuple")
        return arguments[index]
    return names[field]


def one_line(text: str, longest: int = 300) -> str:
    """``text`` cut and escaped to a single encodable line."""
    text = encodable(text[: longest + 1])
    if len(text) > longest:
        text = text[: longest - 3] + "..."
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
