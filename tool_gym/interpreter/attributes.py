"""Attributes that programs may read: an allow-list per exact type, with guarded methods in place of native ones.

A method here is a plain function of the value and its arguments. It charges for what the native method would do
and checks sizes before anything is made. What is not listed is refused if the real type has it, and is an
AttributeError if it does not.
"""

from __future__ import annotations

import builtins
import collections
import fractions
import operator
import types
from collections.abc import Callable
from typing import Any

from .guards import (
    MAKING,
    READABLE_NAMES,
    STANDINS,
    Standin,
    charge_search,
    checked,
    double_starred,
    mapping_pairs,
    private,
    raised,
    take_all,
)
from .meter import CHARS_PER_STEP_SHIFT, ITEMS_PER_STEP_SHIFT, METER
from .values import (
    CONTAINERS,
    MAPPINGS,
    SETS,
    VIEWS,
    GuestMeta,
    braces,
    charged_kinds,
    check_key,
    class_name,
    guest_function,
    of_program,
    ordered,
    to_repr,
    weigh,
)

Methods = dict[str, Callable[..., Any]]

METHODS: dict[type, Methods] = {}
"""Guarded methods by exact type."""
FIELDS: dict[type, frozenset[str]] = {}
"""Plain attributes, read as they are, by exact type."""
READERS: dict[type, Callable[[Any, str], Any]] = {}
"""How attributes of further trusted types are read."""
NAMED: set[type] = set()
"""Trusted types of functions with a ``__name__`` that programs may read."""
WITHHELD = object()
"""What a reader answers for a real attribute that programs may not have."""


def expect(value: Any, kind: type, method: str) -> None:
    """Raises TypeError unless ``value`` is exactly of ``kind``: a method was taken off its type and misused."""
    if type(value) is not kind:
        raise TypeError(f"descriptor '{method}' requires a '{kind.__name__}' object but received another")


# ------------------------------------------------------------------ strings


def _linear(kind: type, name: str) -> Callable[..., Any]:
    """A method of strings whose work and result are linear in the string."""
    native = getattr(kind, name)
    quadratic = name in _QUADRATIC

    def method(self: Any, *arguments: Any) -> Any:
        if type(self) is not kind:
            expect(self, kind, name)
        METER.left = left = METER.left - 1 - (len(self) >> (CHARS_PER_STEP_SHIFT - 1))
        if left < 0:
            METER.exhausted()
        for argument in arguments:
            extent = len(argument) if type(argument) in (str, bytes, tuple) else 0
            METER.charge((len(self) * extent) >> CHARS_PER_STEP_SHIFT if quadratic else extent >> 3)
        return native(self, *arguments)

    method.__name__ = name
    return method


_QUADRATIC: frozenset[str] = frozenset({"lstrip", "rfind", "rindex", "rpartition", "rstrip", "strip"})
"""Methods whose native code may look at each character of the argument for each of the string."""


def _splitting(kind: Any, name: str) -> Callable[..., Any]:
    """``split`` and ``rsplit``: the native method is asked for one piece more than a list may hold."""
    native = getattr(kind, name)

    def method(self: Any, sep: Any = None, maxsplit: Any = -1) -> list[Any]:
        expect(self, kind, name)
        METER.charge(1 + (len(self) >> (CHARS_PER_STEP_SHIFT - 2)))
        if name == "rsplit" and type(sep) is kind:
            METER.charge((len(self) * len(sep)) >> CHARS_PER_STEP_SHIFT)
        maxsplit = operator.index(maxsplit)
        bound = METER.items if maxsplit < 0 else min(maxsplit, METER.items)
        pieces: list[Any] = native(self, sep, bound)
        METER.check_items(len(pieces))
        METER.charge(len(pieces) >> 2)
        return pieces

    method.__name__ = name
    return method


def _splitlines(self: Any, keepends: Any = False) -> list[str]:
    expect(self, str, "splitlines")
    METER.charge(1 + (len(self) >> (CHARS_PER_STEP_SHIFT - 2)))
    if len(self) > METER.items:
        breaks = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
        METER.check_items(sum(self.count(character) for character in breaks))
    pieces = self.splitlines(keepends)
    METER.check_items(len(pieces))
    return pieces  # type: ignore[no-any-return]


def _joining(kind: Any, wanted: str) -> Callable[..., Any]:
    def join(self: Any, items: Any) -> Any:
        expect(self, kind, "join")
        pieces = take_all(items)
        METER.check_items(len(pieces))
        if not {kind}.issuperset(map(type, pieces)):
            for index, piece in enumerate(pieces):
                if type(piece) is not kind:
                    raise TypeError(f"sequence item {index}: expected {wanted}, {class_name(type(piece))} found")
        METER.check_characters(len(self) * max(0, len(pieces) - 1) + sum(map(len, pieces)))
        return self.join(pieces)

    return join


def _replacing(kind: Any) -> Callable[..., Any]:
    def replace(self: Any, old: Any, new: Any, count: Any = -1) -> Any:
        expect(self, kind, "replace")
        METER.charge(1 + (len(self) >> (CHARS_PER_STEP_SHIFT - 2)))
        if type(old) is kind and type(new) is kind and len(new) > len(old):
            times = self.count(old)
            if type(count) is int and count >= 0:
                times = min(times, count)
            METER.check_characters(len(self) + times * (len(new) - len(old)))
        return self.replace(old, new, count)

    return replace


def _padding(kind: type, name: str) -> Callable[..., Any]:
    native = getattr(kind, name)

    def method(self: Any, width: Any, *fill: Any) -> Any:
        expect(self, kind, name)
        if type(width) is int:
            METER.check_characters(max(width, len(self)))
        return native(self, width, *fill)

    method.__name__ = name
    return method


def _expanded(self: Any, tabsize: Any = 8) -> str:
    expect(self, str, "expandtabs")
    if type(tabsize) is int:
        METER.check_characters(len(self) + max(0, tabsize) * self.count("\t"))
    return self.expandtabs(tabsize)  # type: ignore[no-any-return]


def _translated(self: Any, table: Any) -> str:
    expect(self, str, "translate")
    METER.charge(1 + (len(self) >> 3))
    if type(table) is not dict:
        METER.refuse("str.translate with a table that is not a plain dict, as str.maketrans makes it")
    longest = max((len(item) for item in table.values() if type(item) is str), default=1)
    if any(type(item) not in (str, int, type(None)) for item in table.values()):
        raise TypeError("character mapping must return integer, None or str")
    METER.charge(len(table) >> 3)
    METER.check_characters(len(self) * max(1, longest))
    return self.translate(table)  # type: ignore[no-any-return]


def make_translation(*arguments: Any) -> dict[int, Any]:
    """``str.maketrans``"""
    for argument in arguments:
        METER.charge(len(argument) >> 2 if type(argument) in (str, dict) else 1)
    return str.maketrans(*arguments)


_CODECS = {"utf-8", "utf-16", "utf-32", "ascii", "latin-1", "iso-8859-1", "us-ascii", "utf-16-le", "utf-16-be"}
_CODECS |= {"utf-32-le", "utf-32-be"}
_SLOW_CODECS = {"punycode", "idna"}
_ERRORS = {"strict", "ignore", "replace", "backslashreplace", "xmlcharrefreplace", "surrogatepass", "surrogateescape"}


def _codec(encoding: Any, errors: Any, size: int) -> str:
    """A codec's name if programs may use it, its work charged. Raises LookupError for others."""
    if type(encoding) is not str or type(errors) is not str:
        raise TypeError("encoding and errors must be strings")
    name = encoding[:20].lower().replace("_", "-")
    name = {"utf8": "utf-8", "utf16": "utf-16", "utf32": "utf-32", "latin1": "latin-1"}.get(name, name)
    if errors not in _ERRORS:
        raise LookupError(f"unknown error handler name '{errors[:20]}'")
    if name in _SLOW_CODECS:
        METER.charge(size * size)  # written in Python, and quadratic
        METER.refuse(f"the codec {name}")
    if name not in _CODECS:
        raise LookupError(f"unknown encoding: {encoding[:20]}")
    METER.check_characters(size << (3 if errors.endswith("eplace") else 2))
    return name


def _encoded(self: Any, encoding: Any = "utf-8", errors: Any = "strict") -> bytes:
    expect(self, str, "encode")
    return self.encode(_codec(encoding, errors, len(self)), errors)  # type: ignore[no-any-return]


def _decoded(self: Any, encoding: Any = "utf-8", errors: Any = "strict") -> str:
    expect(self, bytes, "decode")
    return self.decode(_codec(encoding, errors, len(self)), errors)  # type: ignore[no-any-return]


def _formatted(self: Any, *arguments: Any, **names: Any) -> str:
    expect(self, str, "format")
    return braces(self, arguments, names)


def _formatted_map(self: Any, mapping: Any) -> str:
    expect(self, str, "format_map")
    return braces(self, (), double_starred(mapping))


_STR_LINEAR = (
    "capitalize casefold count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower "
    "isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex "
    "rpartition rstrip startswith strip swapcase title upper"
)
METHODS[str] = {name: _linear(str, name) for name in _STR_LINEAR.split()} | {
    "center": _padding(str, "center"),
    "encode": _encoded,
    "expandtabs": _expanded,
    "format": _formatted,
    "format_map": _formatted_map,
    "join": _joining(str, "str instance"),
    "ljust": _padding(str, "ljust"),
    "replace": _replacing(str),
    "rjust": _padding(str, "rjust"),
    "rsplit": _splitting(str, "rsplit"),
    "split": _splitting(str, "split"),
    "splitlines": _splitlines,
    "translate": _translated,
    "zfill": _padding(str, "zfill"),
}
_BYTES_LINEAR = (
    "capitalize count endswith find hex index isalnum isalpha isascii isdigit islower isspace istitle isupper lower "
    "lstrip partition removeprefix removesuffix rfind rindex rpartition rstrip startswith strip swapcase title upper"
)
METHODS[bytes] = (
    {name: _linear(bytes, name) for name in _BYTES_LINEAR.split()}
    | {name: _padding(bytes, name) for name in ("center", "ljust", "rjust", "zfill")}
    | {name: _splitting(bytes, name) for name in ("rsplit", "split")}
    | {"decode": _decoded, "join": _joining(bytes, "a bytes-like object"), "replace": _replacing(bytes)}
)


# ------------------------------------------------------------------ numbers


def _charged_integer(name: str) -> Callable[..., Any]:
    native = getattr(int, name)

    def method(self: Any, *arguments: Any, **names: Any) -> Any:
        if type(self) is not int and type(self) is not bool:
            raise TypeError(f"descriptor '{name}' requires an 'int' object")
        METER.charge(1 + (self.bit_length() >> 11))
        return native(self, *arguments, **names)

    return method


def _to_bytes(self: Any, length: Any = 1, byteorder: Any = "big", *, signed: Any = False) -> bytes:
    if type(self) is not int and type(self) is not bool:
        raise TypeError("descriptor 'to_bytes' requires an 'int' object")
    if type(length) is int:
        METER.check_characters(length)
    return self.to_bytes(length, byteorder, signed=bool(signed))


def from_bytes(bytes: Any, byteorder: Any = "big", *, signed: Any = False) -> int:
    """``int.from_bytes`` of bytes or a list of small integers."""
    data = bytes if type(bytes) is builtins.bytes else builtins.bytes(take_all(bytes))
    METER.check_bits(len(data) * 8)
    METER.charge((len(data) >> 3) ** 2 >> 10)
    return int.from_bytes(data, byteorder, signed=bool(signed))


METHODS[int] = {name: _charged_integer(name) for name in ("bit_length", "bit_count", "conjugate", "as_integer_ratio")}
METHODS[int]["to_bytes"] = _to_bytes
METHODS[bool] = METHODS[int]
METHODS[float] = {name: getattr(float, name) for name in ("as_integer_ratio", "hex", "is_integer", "conjugate")}
METHODS[complex] = {"conjugate": complex.conjugate}
FIELDS[int] = FIELDS[bool] = FIELDS[float] = frozenset({"real", "imag"})
FIELDS[int] |= {"numerator", "denominator"}
FIELDS[bool] |= {"numerator", "denominator"}
FIELDS[complex] = frozenset({"real", "imag"})


def _limit_denominator(self: Any, max_denominator: Any = 1_000_000) -> fractions.Fraction:
    expect(self, fractions.Fraction, "limit_denominator")
    METER.charge(20 + (self.denominator.bit_length() ** 2 >> 8))
    return self.limit_denominator(max_denominator)  # type: ignore[no-any-return]


METHODS[fractions.Fraction] = {
    "limit_denominator": _limit_denominator,
    "as_integer_ratio": lambda self: (self.numerator, self.denominator),
}
FIELDS[fractions.Fraction] = frozenset({"numerator", "denominator"})


# ------------------------------------------------------------------ sorting


def _weigh_sorted(keys: list[Any]) -> None:
    """Charge for sorting by ``keys``: n log n comparisons, each of what its operands weigh."""
    rounds = max(1, len(keys).bit_length())
    METER.charge((len(keys) * rounds) >> 4)
    kinds = set(map(type, keys))
    if kinds <= {int, float} or (kinds == {str} and max(map(len, keys)) < 256):
        return
    for key in keys:
        kind = type(key)
        if kind is int or kind is float:
            continue
        before = METER.left
        weigh(key)
        METER.charge((before - METER.left) * (rounds - 1) + (4 if kind is fractions.Fraction else 0))


def sort(items: list[Any], key: Any = None, reverse: Any = False) -> None:
    """Sort a list in place, as ``list.sort`` does, its keys weighed first."""
    if key is None:
        _weigh_sorted(list(items))
        items.sort(reverse=reverse)
        return
    keys = [key(item) for item in list(items)]
    _weigh_sorted(keys)
    if len(keys) != len(items):
        raise ValueError("list modified during sort")
    following = iter(keys)
    items.sort(key=lambda _: next(following), reverse=reverse)


# ------------------------------------------------------------------ containers


def _list_sort(self: Any, *, key: Any = None, reverse: Any = False) -> None:
    expect(self, list, "sort")
    sort(self, key, reverse)


def _append(kind: type) -> Callable[..., Any]:
    native = kind.append  # type: ignore[attr-defined]

    def append(self: Any, item: Any) -> None:
        if type(self) is not kind:
            expect(self, kind, "append")
        METER.left = left = METER.left - 1
        if left < 0:
            METER.exhausted()
        if len(self) >= METER.items:
            METER.too_big(f"a container of more than {METER.items} items")
        native(self, item)

    return append


def _extend(kind: type, name: str = "extend") -> Callable[..., Any]:
    native = getattr(kind, name)

    def extend(self: Any, items: Any) -> None:
        expect(self, kind, name)
        items = take_all(items)
        METER.check_items(len(self) + len(items))
        native(self, items)

    return extend


def _shifting(kind: type, name: str) -> Callable[..., Any]:
    """A method that may move every item: ``insert``, ``pop``, ``copy``, ``reverse``, ``clear``, ``rotate``."""
    native = getattr(kind, name)

    def method(self: Any, *arguments: Any) -> Any:
        expect(self, kind, name)
        METER.charge(1 + (len(self) >> 6) + (MAKING.get(kind, 0) if name == "copy" else 0))
        if len(self) > METER.items:
            METER.too_big(f"a container of more than {METER.items} items")
        return native(self, *arguments)

    method.__name__ = name
    return method


def _ended(kind: type, name: str) -> Callable[..., Any]:
    """A method of an ordered dictionary that says which end by ``last``."""
    native = getattr(kind, name)

    def method(self: Any, *arguments: Any, last: Any = True) -> Any:
        expect(self, kind, name)
        METER.charge(1)
        for key in arguments[:1]:
            check_key(key)
        return native(self, *arguments, last=bool(last))

    return method


def _cheap(kind: type, name: str) -> Callable[..., Any]:
    native = getattr(kind, name)

    def method(self: Any, *arguments: Any, **names: Any) -> Any:
        expect(self, kind, name)
        METER.charge(1)
        return native(self, *arguments, **names)

    method.__name__ = name
    return method


def _index(kind: type) -> Callable[..., Any]:
    native = kind.index  # type: ignore[attr-defined]

    def index(self: Any, item: Any, *bounds: Any) -> int:
        expect(self, kind, "index")
        charge_search(item, self)
        try:
            return native(self, item, *bounds)  # type: ignore[no-any-return]
        except ValueError as error:
            if not error.args or "not in" not in str(error.args[0])[-40:]:
                raise
        # The native message is the repr of the item, which nothing bounds.
        raise ValueError(f"{to_repr(item)} is not in {kind.__name__}")

    return index


def _searching(kind: type, name: str) -> Callable[..., Any]:
    """``count`` and ``remove``."""
    native = getattr(kind, name)

    def method(self: Any, item: Any) -> Any:
        expect(self, kind, name)
        charge_search(item, self)
        return native(self, item)

    method.__name__ = name
    return method


METHODS[list] = {
    "append": _append(list),
    "clear": _shifting(list, "clear"),
    "copy": _shifting(list, "copy"),
    "count": _searching(list, "count"),
    "extend": _extend(list),
    "index": _index(list),
    "insert": _shifting(list, "insert"),
    "pop": _shifting(list, "pop"),
    "remove": _searching(list, "remove"),
    "reverse": _shifting(list, "reverse"),
    "sort": _list_sort,
}
METHODS[tuple] = {"count": _searching(tuple, "count"), "index": _index(tuple)}


def _rotate(self: Any, n: Any = 1) -> None:
    expect(self, collections.deque, "rotate")
    METER.charge(1 + (len(self) >> 3))
    self.rotate(n)


METHODS[collections.deque] = {
    "append": _append(collections.deque),
    "appendleft": _shifting(collections.deque, "appendleft"),
    "clear": _shifting(collections.deque, "clear"),
    "copy": _shifting(collections.deque, "copy"),
    "count": _searching(collections.deque, "count"),
    "extend": _extend(collections.deque),
    "extendleft": _extend(collections.deque, "extendleft"),
    "index": _index(collections.deque),
    "insert": _shifting(collections.deque, "insert"),
    "pop": _cheap(collections.deque, "pop"),
    "popleft": _cheap(collections.deque, "popleft"),
    "remove": _searching(collections.deque, "remove"),
    "reverse": _shifting(collections.deque, "reverse"),
    "rotate": _rotate,
}
FIELDS[collections.deque] = frozenset({"maxlen"})


def _range_count(self: Any, item: Any) -> int:
    expect(self, range, "count")
    if type(item) is not int and type(item) is not bool:
        METER.charge(max(0, (self.stop - self.start) // self.step) >> ITEMS_PER_STEP_SHIFT)
    return self.count(item)  # type: ignore[no-any-return]


def _range_index(self: Any, item: Any) -> int:
    expect(self, range, "index")
    if type(item) is not int and type(item) is not bool:
        METER.charge(max(0, (self.stop - self.start) // self.step) >> ITEMS_PER_STEP_SHIFT)
    return self.index(item)  # type: ignore[no-any-return]


METHODS[range] = {"count": _range_count, "index": _range_index}
FIELDS[range] = frozenset({"start", "stop", "step"})
FIELDS[slice] = frozenset({"start", "stop", "step"})


# ------------------------------------------------------------------ dictionaries


def _keyed(kind: type, name: str) -> Callable[..., Any]:
    """A method whose first argument is a key."""
    native = getattr(kind, name)

    def method(self: Any, key: Any, *arguments: Any, **names: Any) -> Any:
        if type(self) is not kind:
            expect(self, kind, name)
        METER.left = left = METER.left - 1
        if left < 0:
            METER.exhausted()
        check_key(key)
        if len(self) >= METER.items:
            METER.too_big(f"a container of more than {METER.items} items")
        return native(self, key, *arguments, **names)

    method.__name__ = name
    return method


def _update(kind: type) -> Callable[..., Any]:
    def update(self: Any, source: Any = (), /, **names: Any) -> None:
        expect(self, kind, "update")
        pairs = mapping_pairs(source)
        METER.check_items(len(self) + len(pairs) + len(names))
        for key, value in pairs:
            self[key] = value
        for key, value in names.items():
            self[key] = value

    return update


def from_keys(kind: type) -> Callable[..., Any]:
    """``fromkeys`` of a kind of mapping."""

    def fromkeys(keys: Any, value: Any = None) -> Any:
        items = take_all(keys)
        METER.charge((len(items) >> 1) + MAKING.get(kind, 0))
        for key in items:
            check_key(key)
        return kind.fromkeys(items, value)  # type: ignore[attr-defined]

    return fromkeys


for _kind in (dict, collections.OrderedDict, collections.defaultdict):
    METHODS[_kind] = {
        "clear": _shifting(_kind, "clear"),
        "copy": _shifting(_kind, "copy"),
        "get": _keyed(_kind, "get"),
        "items": _cheap(_kind, "items"),
        "keys": _cheap(_kind, "keys"),
        "pop": _keyed(_kind, "pop"),
        "popitem": _cheap(_kind, "popitem"),
        "setdefault": _keyed(_kind, "setdefault"),
        "update": _update(_kind),
        "values": _cheap(_kind, "values"),
    }
for _name in ("move_to_end", "popitem"):
    METHODS[collections.OrderedDict][_name] = _ended(collections.OrderedDict, _name)
FIELDS[collections.defaultdict] = frozenset({"default_factory"})


def count_into(counter: Any, source: Any, sign: int) -> None:
    """``Counter.update`` and ``subtract``: adds what ``source`` counts, or one for each of its items."""
    if source is None:
        return
    if type(source) in MAPPINGS:
        if sign > 0 and not counter:
            counter.update(dict(mapping_pairs(source)))
            return
        for key, count in mapping_pairs(source):
            counter[key] = checked(counter.get(key, 0) + sign * count)
        return
    for item in take_all(source):
        check_key(item)
        METER.left -= 1
        counter[item] = counter.get(item, 0) + sign
    METER.charge(0)


def _counter_change(sign: int) -> Callable[..., Any]:
    def change(self: Any, source: Any = (), /, **names: Any) -> None:
        expect(self, collections.Counter, "update")
        count_into(self, source, sign)
        count_into(self, names, sign)

    return change


def _most_common(self: Any, n: Any = None) -> list[tuple[Any, int]]:
    expect(self, collections.Counter, "most_common")
    pairs = list(self.items())
    sort(pairs, key=operator.itemgetter(1), reverse=True)
    return pairs if n is None else pairs[: max(0, n)]


def _elements(self: Any) -> Any:
    for key, count in list(self.items()):
        for _ in range(count):
            METER.charge(1)
            yield key


def _total(self: Any) -> Any:
    METER.charge(len(self) >> ITEMS_PER_STEP_SHIFT)
    return self.total()


METHODS[collections.Counter] = {
    name: _cheap(collections.Counter, name) for name in ("items", "keys", "values", "popitem")
} | {
    "clear": _shifting(collections.Counter, "clear"),
    "copy": _shifting(collections.Counter, "copy"),
    "elements": _elements,
    "get": _keyed(collections.Counter, "get"),
    "most_common": _most_common,
    "pop": _keyed(collections.Counter, "pop"),
    "setdefault": _keyed(collections.Counter, "setdefault"),
    "subtract": _counter_change(-1),
    "total": _total,
    "update": _counter_change(1),
}


# ------------------------------------------------------------------ sets


def _sets(others: tuple[Any, ...], room: int) -> list[Any]:
    """Operands of a set method as sets, charged."""
    result = []
    for other in others:
        if type(other) in SETS:
            METER.check_items(len(other) + room)
            METER.charge(len(other) >> 2)
            METER.charge_merge(room, len(other))
            result.append(other)
        else:
            items = take_all(other)
            for item in items:
                check_key(item)
            METER.check_items(len(items) + room)
            result.append(set(items))
    return result


def _set_method(kind: type, name: str) -> Callable[..., Any]:
    """A method that takes other iterables."""
    native = getattr(kind, name)

    def method(self: Any, *others: Any) -> Any:
        expect(self, kind, name)
        METER.charge(1 + (len(self) >> 4))
        return native(self, *_sets(others, len(self)))

    method.__name__ = name
    return method


def _pop_first(self: Any) -> Any:
    expect(self, set, "pop")
    if not self:
        raise KeyError("pop from an empty set")
    if len(self) == 1:
        return self.pop()
    kinds = {type(item) for item in self}
    if kinds <= {int, bool} or kinds == {str}:
        METER.charge(len(self) >> 2)
        first = min(self)
    else:
        first = ordered(self)[0]
    self.remove(first)
    return first


_SET_OPERATIONS = "difference intersection isdisjoint issubset issuperset symmetric_difference union"
_SET_UPDATES = "difference_update intersection_update symmetric_difference_update update"
METHODS[frozenset] = {name: _set_method(frozenset, name) for name in _SET_OPERATIONS.split()}
METHODS[frozenset]["copy"] = _shifting(frozenset, "copy")
METHODS[set] = {name: _set_method(set, name) for name in (_SET_OPERATIONS + " " + _SET_UPDATES).split()} | {
    "add": _keyed(set, "add"),
    "clear": _shifting(set, "clear"),
    "copy": _shifting(set, "copy"),
    "discard": _keyed(set, "discard"),
    "pop": _pop_first,
    "remove": _keyed(set, "remove"),
}


def _disjoint_view(self: Any, other: Any) -> bool:
    if type(self) not in VIEWS:
        raise TypeError("isdisjoint requires a view of a dictionary")
    items = take_all(other)
    for item in items:
        check_key(item)
        if type(item) in CONTAINERS:
            weigh(item)
    METER.charge((len(self) + len(items)) >> ITEMS_PER_STEP_SHIFT)
    METER.charge_merge(len(self), len(items))
    return self.isdisjoint(items)  # type: ignore[no-any-return]


for _view in VIEWS:
    if hasattr(_view, "isdisjoint"):
        METHODS[_view] = {"isdisjoint": _disjoint_view}


# ------------------------------------------------------------------ generators, functions, exceptions, classes


def _throw(self: Any, error: Any) -> Any:
    expect(self, types.GeneratorType, "throw")
    return self.throw(raised(error))


METHODS[types.GeneratorType] = {
    "send": _cheap(types.GeneratorType, "send"),
    "close": _cheap(types.GeneratorType, "close"),
    "throw": _throw,
}
METHODS[property] = {name: getattr(property, name) for name in ("getter", "setter", "deleter")}

_ERROR_FIELDS: dict[type[BaseException], frozenset[str]] = {
    StopIteration: frozenset({"value"}),
    SystemExit: frozenset({"code"}),
    KeyError: frozenset(),
    AttributeError: frozenset({"name"}),
    NameError: frozenset({"name"}),
    ImportError: frozenset({"name", "msg"}),
    UnicodeDecodeError: frozenset({"encoding", "reason", "start", "end"}),
    UnicodeEncodeError: frozenset({"encoding", "reason", "start", "end"}),
    SyntaxError: frozenset({"msg", "lineno"}),
}


def _error_attribute(error: BaseException, name: str) -> Any:
    """An attribute that exceptions have by nature; WITHHELD if it is none of those allowed."""
    if name == "args":
        return error.args
    if name == "add_note":
        return WITHHELD
    for kind, fields in _ERROR_FIELDS.items():
        if isinstance(error, kind) and name in fields:
            return getattr(error, name)
    return WITHHELD


def _real(value: Any, name: str) -> bool:
    """Whether ``value`` really has the attribute: looked up without running anything."""
    kinds = type(value).__mro__
    return any(name in kind.__dict__ for kind in kinds)


def _missing(value: Any, name: str) -> Any:
    """Refuse an attribute that exists and is not allowed; else raise AttributeError."""
    if _real(value, name):
        METER.refuse(f"the attribute {name!r} of {class_name(type(value))!r} objects")
    raise AttributeError(f"{class_name(type(value))!r} object has no attribute {name!r}")


def _unless_withheld(found: Any, name: str) -> Any:
    if found is WITHHELD:
        METER.refuse(f"the attribute {name!r}")
    return found


def _instance_attribute(value: Any, name: str) -> Any:
    """An attribute of an instance of a program's class: one that the program made, or an allowed one of its base."""
    for kind in charged_kinds(type(value)):
        if type(kind) is GuestMeta and name in kind.__dict__:
            return _unless_withheld(getattr(value, name), name)
    if type(value).__dictoffset__:
        own = object.__getattribute__(value, "__dict__")
        if name in own:
            return own[name]
    if isinstance(value, BaseException) and _real(value, name):
        found = _error_attribute(value, name)
        if found is WITHHELD:
            METER.refuse(f"the attribute {name!r} of exceptions")
        return found
    raise AttributeError(f"{class_name(type(value))!r} object has no attribute {name!r}")


def _class_attribute(value: Any, name: str) -> Any:
    """An attribute of a program's class itself."""
    for kind in charged_kinds(value):
        if type(kind) is GuestMeta and name in kind.__dict__:
            return _unless_withheld(getattr(value, name), name)
    if hasattr(type, name):
        METER.refuse(f"the attribute {name!r} of classes")
    raise AttributeError(f"type object {class_name(value)!r} has no attribute {name!r}")


def _super_attribute(value: Any, name: str) -> Any:
    """An attribute through ``super()``: methods of the program's classes, and ``__init__``."""
    if name == "__init__":
        return getattr(value, name)
    instance = object.__getattribute__(value, "__self__")
    start = object.__getattribute__(value, "__thisclass__")
    kinds = charged_kinds(instance if type(instance) is GuestMeta else type(instance))
    for kind in kinds[kinds.index(start) + 1 :]:
        if type(kind) is GuestMeta and name in kind.__dict__:
            return getattr(value, name)
    raise AttributeError(f"'super' object has no attribute {name!r}")


def _standin_attribute(value: Standin, name: str) -> Any:
    """An attribute of a built-in type: its methods, guarded, to be called with a value."""
    found = value.methods.get(name) or METHODS.get(value.real, {}).get(name)
    if found is not None:
        return found
    if hasattr(value.real, name) or hasattr(type, name):
        METER.refuse(f"the attribute {name!r} of the built-in type {value.name!r}")
    raise AttributeError(f"type object {value.name!r} has no attribute {name!r}")


READERS[Standin] = _standin_attribute
READERS[GuestMeta] = _class_attribute
READERS[super] = _super_attribute


def _dunder_name(value: Any) -> str:
    """``__name__`` of classes and of the program's functions: the one such attribute that programs may read."""
    if type(value) is Standin:
        return value.name
    if isinstance(value, type):
        return class_name(value)
    if guest_function(value) or type(value) in NAMED:
        return value.__name__  # type: ignore[no-any-return]
    METER.refuse(f"the attribute '__name__' of {class_name(type(value))!r} objects")


_bound = types.MethodType


def _private_attribute(value: Any, name: str) -> Any:
    """An attribute that starts with an underscore: only of the program's own classes, and not what they inherit."""
    kind = type(value)
    if kind is super:
        instance = object.__getattribute__(value, "__self__")
        holder = instance if isinstance(instance, type) else type(instance)
    else:
        holder = value if kind is GuestMeta else kind
    if not of_program(holder):
        METER.refuse(f"the attribute {name!r} of {class_name(kind)!r} objects")
    kinds = charged_kinds(holder)
    if kind is super:
        kinds = kinds[kinds.index(object.__getattribute__(value, "__thisclass__")) + 1 :]
    for base in kinds:
        if of_program(base) and name in base.__dict__:
            return getattr(value, name)
    if kind is holder and kind.__dictoffset__:
        own = object.__getattribute__(value, "__dict__")
        if name in own:
            return own[name]
    if kind is GuestMeta:
        raise AttributeError(f"type object {class_name(value)!r} has no attribute {name!r}")
    raise AttributeError(f"{class_name(kind)!r} object has no attribute {name!r}")


def read_attribute(value: Any, name: str) -> Any:
    """``value.name``: the hook behind every attribute that a program reads."""
    kind = type(value)
    if name[0] == "_" and private(name):
        return _private_attribute(value, name)
    methods = METHODS.get(kind)
    if methods is not None:
        method = methods.get(name)
        if method is not None:
            return _bound(method, value)
        if name in FIELDS.get(kind, ()):
            return getattr(value, name)
    elif name == "__name__":
        return _dunder_name(value)
    elif type(kind) is GuestMeta:
        return _instance_attribute(value, name)
    else:
        reader = READERS.get(kind)
        if reader is not None:
            return reader(value, name)
        if name in FIELDS.get(kind, ()):
            return getattr(value, name)
        if isinstance(value, BaseException) and _real(value, name):
            found = _error_attribute(value, name)
            if found is not WITHHELD:
                return found
        if isinstance(value, type):
            METER.refuse(f"the attribute {name!r} of the class {class_name(value)!r}")
    if name == "__name__":
        return _dunder_name(value)
    return _missing(value, name)


def check_name(name: Any, function: str) -> str:
    """The name given to ``getattr`` and its like.

    Raises TypeError unless it is exactly a string; ends the call for a private one.
    """
    if type(name) is not str:
        METER.refuse(f"{function} with a name that is not a plain string")
    if name.startswith("_") and name not in READABLE_NAMES and not private(name):
        METER.refuse(f"the attribute {name[:60]!r}")
    return name


def standin_for(kind: type) -> Any:
    """What ``type(x)`` answers: a stand-in for a built-in type, the class itself for a program's class."""
    if type(kind) is GuestMeta or issubclass(kind, BaseException):
        return kind
    known = STANDINS.get(kind)
    if known is None:
        known = STANDINS[kind] = Standin(kind, _no_construction(kind))
    return known


def _no_construction(kind: type) -> Callable[..., Any]:
    def construct(*arguments: Any, **names: Any) -> Any:
        raise TypeError(f"cannot create '{class_name(kind)}' instances")

    return construct
