"""``enum`` for programs: Enum, IntEnum, auto and unique.

Members of an IntEnum are integers that native code accepts without asking its guards, so their values are small, and
their operators are the guarded ones of plain integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..guards import HOOKS, divided, make_class, mapping_pairs, take_all
from ..meter import METER
from ..modules import define
from ..values import (
    GuestMeta,
    check_key,
    class_name,
    enumeration,
    of_program,
    plain,
    register_text,
    to_format,
    to_repr,
    to_str,
)

_LARGEST = 1 << 16
_MISSING = object()


class Auto:
    """``enum.auto()`` in the body of a class: the next number."""

    __slots__ = ()


register_text(Auto, lambda _: "<enum.auto object>")
_NO_MEMBERS: tuple[type, ...] = (property, classmethod, staticmethod)


def _is_member(name: str, value: Any) -> bool:
    """Whether a name in the body of an enumeration is one of its members, and not a method or the like."""
    if name.startswith("_") or isinstance(value, _NO_MEMBERS):
        return False
    return not hasattr(type(value), "__get__") and not isinstance(value, type)


def _next_number(values: list[Any]) -> Any:
    numbers = [value for value in values if isinstance(value, int)]
    return plain(max(numbers)) + 1 if numbers else 1


class Enum(metaclass=GuestMeta):
    """``enum.Enum``"""

    __module__ = "enum"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not of_program(cls):
            return
        _check_bases(cls)
        found = [(name, value) for name, value in cls.__dict__.items() if _is_member(name, value)]
        METER.charge(10 + 20 * len(found))
        if found or enumeration(cls) is not None:
            _fill(cls, found)

    def __new__(cls, value: Any = _MISSING, names: Any = None, *, start: Any = 1) -> Any:
        METER.charge(2)
        if enumeration(cls) is not None:
            return _lookup(cls, value)
        if value is _MISSING or names is None:
            raise TypeError(f"<enum '{class_name(cls)}'> has no members")
        return _functional(cls, value, names, start)

    name = property(lambda self: self._name_)
    value = property(lambda self: self._value_)

    def __repr__(self) -> str:
        return f"<{class_name(type(self))}.{_own(self, '_name_')}: {to_repr(_own(self, '_value_'))}>"

    def __str__(self) -> str:
        return f"{class_name(type(self))}.{_own(self, '_name_')}"

    def __format__(self, spec: str) -> str:
        return to_format(to_str(self), -1, spec)

    def __hash__(self) -> int:
        return hash(_own(self, "_name_"))


def _own(member: Any, name: str) -> Any:
    return object.__getattribute__(member, name)


def _check_bases(kind: Any) -> None:
    """Ends the call for a type mixed in. Raises TypeError for an enumeration that has members already."""
    for base in kind.__mro__[1:]:
        members = base.__dict__.get("_members_")
        if members:
            raise TypeError(f"<enum '{class_name(kind)}'> cannot extend <enum '{class_name(base)}'>")
        mixed = type(base) is GuestMeta and not of_program(base) and base not in (Enum, IntEnum)
        if mixed or (type(base) is not GuestMeta and base is not object and not issubclass(IntEnum, base)):
            METER.refuse(f"an enumeration that is also a {class_name(base)}")


def _fill(kind: Any, found: list[tuple[str, Any]]) -> None:
    """Make the members of an enumeration from the names in its body."""
    members: dict[str, Any] = {}
    values: list[Any] = []
    by_value: dict[Any, Any] = {}
    initialise = kind.__dict__.get("__init__")
    if initialise is None:
        initialise = next(
            (b.__dict__["__init__"] for b in kind.__mro__ if of_program(b) and "__init__" in b.__dict__), None
        )
    else:
        type.__delattr__(kind, "__init__")
    # Looking a member up must not run it again.
    type.__setattr__(kind, "__init__", _no_initialisation)
    for name, value in found:
        if type(value) is Auto:
            value = _next_number(values)
        values.append(value)
        member = _find(by_value, members, value)
        if member is None:
            member = _make_member(kind, name, value)
            if initialise is not None:
                arguments = value if type(value) is tuple else (value,)
                initialise(member, *arguments)
            if _hashable(value):
                by_value[check_key(value)] = member
        members[name] = member
        type.__setattr__(kind, name, member)
    for name, content in (("_members_", members), ("_by_value_", by_value), ("__members__", dict(members))):
        type.__setattr__(kind, name, content)


def _no_initialisation(self: Any, *_: Any, **__: Any) -> None:
    return None


def _hashable(value: Any) -> bool:
    if type(value) is tuple:
        METER.charge(len(value))
        return all(map(_hashable, value))
    return getattr(type(value), "__hash__", None) is not None


def _make_member(kind: Any, name: str, value: Any) -> Any:
    if issubclass(kind, int):
        number = plain(value)
        if type(number) is not int and type(number) is not bool:
            raise TypeError(f"{name}: the value of a member of an IntEnum is an integer")
        if not -_LARGEST <= number <= _LARGEST:
            METER.refuse(f"a member of an IntEnum beyond {_LARGEST}")
        member = int.__new__(kind, number)
        value = int(number)
    else:
        member = object.__new__(kind)
    object.__setattr__(member, "_name_", name)
    object.__setattr__(member, "_value_", value)
    return member


def _find(by_value: dict[Any, Any], members: dict[str, Any], value: Any) -> Any:
    """The member of a value; None if there is none."""
    if _hashable(value):
        return by_value.get(check_key(value))
    for member in members.values():
        METER.charge(1)
        if HOOKS["_eq_"](_own(member, "_value_"), value):
            return member
    return None


def _lookup(kind: Any, value: Any) -> Any:
    """``Color(1)``: a member by its value. Raises ValueError if there is none."""
    if type(value) is kind:
        return value
    members: Any = enumeration(kind)
    found = None if value is _MISSING else _find(kind.__dict__["_by_value_"], members, value)
    if found is None:
        if value is _MISSING:
            raise TypeError("a member is looked up by its value")
        raise ValueError(f"{to_repr(value)} is not a valid {type.__getattribute__(kind, '__qualname__')}")
    return found


def _functional(kind: Any, name: Any, names: Any, start: Any) -> Any:
    """``Enum('Color', 'RED GREEN')``"""
    if type(name) is not str:
        raise TypeError("the name of an enumeration is a string")
    if type(names) is str:
        METER.charge(len(names) >> 2)
        names = names.replace(",", " ").split()
    pairs = mapping_pairs(names) if type(names) is dict else take_all(names)
    members: dict[str, Any] = {}
    for index, pair in enumerate(pairs, plain(start)):
        key, value = (pair, index) if type(pair) is str else take_all(pair)
        if type(key) is not str or not key.isidentifier():
            raise ValueError("the names of members are identifiers")
        members[key] = value
    return make_class(name, (kind,), members | {"__qualname__": name})


class IntEnum(int, Enum):
    """``enum.IntEnum``: members are integers."""

    __module__ = "enum"

    def __new__(cls, *arguments: Any, **names: Any) -> Any:
        return Enum.__new__(cls, *arguments, **names)

    def __str__(self) -> str:
        return to_str(plain(self))

    def __format__(self, spec: str) -> str:
        return to_format(plain(self), -1, spec)

    def __hash__(self) -> int:
        return hash(plain(self))


def _operator(hook: Callable[[Any, Any], Any], reflected: bool) -> Callable[..., Any]:
    """An operator of IntEnum: that of plain integers."""

    def method(self: Any, other: Any) -> Any:
        a, b = plain(self), plain(other)
        return hook(b, a) if reflected else hook(a, b)

    return method


_OPERATORS = "add sub mul div floordiv mod pow lshift rshift and or xor"
for _operation in _OPERATORS.split():
    _hook = HOOKS[f"_{_operation}_"]
    _name_ = "truediv" if _operation == "div" else _operation
    type.__setattr__(IntEnum, f"__{_name_}__", _operator(_hook, reflected=False))
    type.__setattr__(IntEnum, f"__r{_name_}__", _operator(_hook, reflected=True))
type.__setattr__(IntEnum, "__divmod__", _operator(divided, reflected=False))
type.__setattr__(IntEnum, "__rdivmod__", _operator(divided, reflected=True))


def _auto(*arguments: Any) -> Any:
    METER.charge(1)
    if arguments:
        raise TypeError("auto() takes no arguments here")
    return Auto()


def _unique(enumeration_class: Any) -> Any:
    members = enumeration(enumeration_class) if of_program(enumeration_class) else None
    if members is None:
        raise TypeError("unique() is for enumerations")
    METER.charge(len(members))
    doubles = [(name, _own(member, "_name_")) for name, member in members.items() if name != _own(member, "_name_")]
    if doubles:
        shown = ", ".join(f"{alias} -> {name}" for alias, name in doubles)
        raise ValueError(f"duplicate values found in <enum '{class_name(enumeration_class)}'>: {shown}")
    return enumeration_class


define("enum", {"Enum": Enum, "IntEnum": IntEnum, "auto": _auto, "unique": _unique}, in_scope=False)
