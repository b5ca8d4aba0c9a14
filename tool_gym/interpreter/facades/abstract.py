"""``abc``, ``collections.abc``, ``numbers`` and ``typing``: what classes promise, and names for annotations.

An abstract class here is one of ours that programs may name in ``isinstance``; from most they may derive. Whether a
class is of the abstract kind is decided by its own test, ``_test_``: by the methods that the class has, or by what
Python says of a native type. Python's own registry is not asked about a program's classes: it would remember them.
"""

from __future__ import annotations

import collections
import collections.abc as native
import numbers
import types
import typing
from typing import Any

from ..guards import HOOKS, ITEM_GETTERS, counted, mapping_pairs, take_all
from ..meter import METER
from ..modules import define
from ..values import GuestMeta, check_key, class_name, enumeration, guest_function, of_program, register_text
from .decimals import Decimal
from .records import TYPED_TUPLE

# ------------------------------------------------------------------ abc


def _abstract(member: Any) -> bool:
    return getattr(member, "__isabstractmethod__", False) is True


class ABC(metaclass=GuestMeta):
    """``abc.ABC``: a class with abstract methods that it does not write has no instances."""

    __slots__ = ()
    __module__ = "abc"

    def __init_subclass__(cls) -> None:
        inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__abstractmethods__", ())}
        if of_program(cls):
            METER.charge(4 + len(inherited) + len(cls.__dict__))
        names = {name for name, member in cls.__dict__.items() if _abstract(member)}
        names |= {name for name in inherited if _abstract(getattr(cls, name, None))}
        type.__setattr__(cls, "__abstractmethods__", frozenset(names))
        super().__init_subclass__()


def _abstractmethod(funcobj: Any) -> Any:
    METER.charge(1)
    if not guest_function(funcobj):
        raise TypeError("abstractmethod() takes a function (@property and the like stand above it)")
    funcobj.__isabstractmethod__ = True
    return funcobj


# ``class A(metaclass=ABCMeta)`` is compiled to ``class A(ABCMeta)``.
define("abc", {"ABC": ABC, "ABCMeta": ABC, "abstractmethod": _abstractmethod}, in_scope=False)


# ------------------------------------------------------------------ collections.abc


def _required(name: str) -> Any:
    """A method that a class has to write."""

    def method(self: Any, *_: Any) -> Any:
        raise NotImplementedError(name)

    method.__isabstractmethod__ = True  # type: ignore[attr-defined]
    return method


class Iterable(ABC):
    """What can be iterated over."""

    __slots__ = ()
    __iter__ = _required("__iter__")


class Iterator(Iterable):
    """What ``next`` takes."""

    __slots__ = ()
    __next__ = _required("__next__")

    def __iter__(self) -> Any:
        return self


class Reversible(Iterable):
    """What ``reversed`` takes."""

    __slots__ = ()
    __reversed__ = _required("__reversed__")


class Sized(ABC):
    """What has a length."""

    __slots__ = ()
    __len__ = _required("__len__")


class Container(ABC):
    """What ``in`` takes."""

    __slots__ = ()
    __contains__ = _required("__contains__")


class Hashable(ABC):
    """What can be a key."""

    __slots__ = ()
    __hash__ = _required("__hash__")


class Callable(ABC):
    """What can be called."""

    __slots__ = ()
    __call__ = _required("__call__")


class Collection(Sized, Iterable, Container):
    """A sized container that can be iterated over."""

    __slots__ = ()


class Sequence(Reversible, Collection):
    """What has items by index; a class writes ``__getitem__`` and ``__len__``."""

    __slots__ = ()
    __getitem__ = _required("__getitem__")

    def __iter__(self) -> Any:
        index = 0
        try:
            while True:
                METER.charge(1)
                yield self[index]
                index += 1
        except IndexError:
            return

    def __contains__(self, value: Any) -> bool:
        return any(item is value or HOOKS["_eq_"](item, value) for item in counted(self))

    def __reversed__(self) -> Any:
        for index in reversed(range(len(self))):
            METER.charge(1)
            yield self[index]

    def index(self, value: Any, start: Any = 0, stop: Any = None) -> int:
        """Where ``value`` is first. Raises ValueError if it is nowhere."""
        for index in range(len(self))[start:stop]:
            METER.charge(1)
            item = self[index]
            if item is value or HOOKS["_eq_"](item, value):
                return index
        raise ValueError

    def count(self, value: Any) -> int:
        """How often ``value`` is there."""
        return sum(1 for item in counted(self) if item is value or HOOKS["_eq_"](item, value))


class MutableSequence(Sequence):
    """A sequence that changes; a class writes ``__setitem__``, ``__delitem__`` and ``insert`` too."""

    __slots__ = ()
    __setitem__ = _required("__setitem__")
    __delitem__ = _required("__delitem__")
    insert = _required("insert")

    def append(self, value: Any) -> None:
        """Add ``value`` at the end."""
        self.insert(len(self), value)

    def extend(self, values: Any) -> None:
        """Add all of ``values`` at the end."""
        for value in take_all(values):
            METER.charge(1)
            self.append(value)

    def pop(self, index: Any = -1) -> Any:
        """Take the item at ``index`` out."""
        value = self[index]
        del self[index]
        return value

    def remove(self, value: Any) -> None:
        """Take the first item that equals ``value`` out. Raises ValueError if there is none."""
        del self[self.index(value)]

    def clear(self) -> None:
        """Take everything out."""
        while len(self):
            METER.charge(1)
            self.pop()

    def reverse(self) -> None:
        """Reverse in place."""
        size = len(self)
        for index in range(size // 2):
            METER.charge(1)
            self[index], self[size - index - 1] = self[size - index - 1], self[index]

    def __iadd__(self, values: Any) -> Any:
        self.extend(values)
        return self


class Mapping(Collection):
    """What has values by key; a class writes ``__getitem__``, ``__len__`` and ``__iter__``."""

    __slots__ = ()
    __getitem__ = _required("__getitem__")

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        METER.charge(1)
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: Any) -> bool:
        METER.charge(1)
        try:
            self[key]
        except KeyError:
            return False
        return True

    def keys(self) -> Any:
        """The keys."""
        return dict.fromkeys([check_key(key) for key in counted(self)]).keys()

    def values(self) -> list[Any]:
        """The values."""
        return [self[key] for key in counted(self)]

    def items(self) -> list[tuple[Any, Any]]:
        """Pairs of key and value."""
        return [(key, self[key]) for key in counted(self)]

    def __eq__(self, other: Any) -> Any:
        METER.charge(1)
        if not isinstance(other, (dict, Mapping)):
            return NotImplemented
        return HOOKS["_eq_"](dict(mapping_pairs(self.items())), dict(mapping_pairs(_pairs(other))))

    __hash__ = None  # type: ignore[assignment]


class MutableMapping(Mapping):
    """A mapping that changes; a class writes ``__setitem__`` and ``__delitem__`` too."""

    __slots__ = ()
    __setitem__ = _required("__setitem__")
    __delitem__ = _required("__delitem__")

    def pop(self, key: Any, *default: Any) -> Any:
        """Take ``key`` out and return its value."""
        METER.charge(1)
        try:
            value = self[key]
        except KeyError:
            if not default:
                raise
            return default[0]
        del self[key]
        return value

    def popitem(self) -> tuple[Any, Any]:
        """Take some pair out. Raises KeyError if there is none."""
        for key in counted(self):
            return key, self.pop(key)
        raise KeyError

    def clear(self) -> None:
        """Take everything out."""
        while len(self):
            METER.charge(1)
            self.popitem()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``, set to ``default`` if there was none."""
        METER.charge(1)
        try:
            return self[key]
        except KeyError:
            self[key] = default
        return default

    def update(self, other: Any = (), /, **names: Any) -> None:
        """Take pairs over."""
        for key, value in [*mapping_pairs(_pairs(other)), *names.items()]:
            METER.charge(1)
            self[key] = value


def _pairs(source: Any) -> Any:
    """A source of pairs: a mapping of the program's by its ``items``."""
    return source.items() if isinstance(source, Mapping) else source


def _for_own(method: Any) -> Any:
    """A method that classes inherit from here, for their instances only: on a dictionary it would charge too little."""

    def own(self: Any, *arguments: Any, **names: Any) -> Any:
        if type(type(self)) is not GuestMeta:
            raise TypeError(f"{method.__name__}() requires an instance of a class of the program")
        return method(self, *arguments, **names)

    return own


for _kind in (Iterator, Sequence, MutableSequence, Mapping, MutableMapping):
    for _name, _member in list(_kind.__dict__.items()):
        if type(_member) is types.FunctionType and not _abstract(_member):
            type.__setattr__(_kind, _name, _for_own(_member))


def _has(kind: Any, names: tuple[str, ...]) -> bool:
    """Whether a class of the program has written the methods, or inherits them from one that has."""
    for name in names:
        owner = next((base for base in kind.__mro__ if type(base) is GuestMeta and name in base.__dict__), None)
        if owner is None or owner.__dict__[name] is None or _abstract(owner.__dict__[name]):
            return False
    return True


def _test(real: type, *methods: str) -> Any:
    """Whether a class is of an abstract kind: by what it is if it is native, by its methods if not."""

    def test(kind: Any) -> bool:
        METER.charge(1 + len(kind.__mro__))
        if type(kind) is not GuestMeta:
            return issubclass(kind, real)
        if real is native.Hashable:
            return kind.__hash__ is not None
        if methods and _has(kind, methods):
            return True
        return any(type(base) is type and base is not object and issubclass(base, real) for base in kind.__mro__)

    return test


def _only_named(name: str, test: Any, module: str) -> Any:
    """An abstract class that programs can name but not derive from."""

    def refuse(cls: Any) -> None:
        METER.refuse(f"a class derived from {module}.{name}")

    members = {"__slots__": (), "__module__": module, "__init_subclass__": refuse, "__new__": _no_instance(name)}
    return GuestMeta(name, (), members | {"_test_": test})


def _no_instance(name: str) -> Any:
    def construct(cls: Any, *_: Any, **__: Any) -> Any:
        raise TypeError(f"Can't instantiate abstract class {name}")

    return construct


_WRITTEN: dict[Any, tuple[str, ...]] = {
    Callable: ("__call__",),
    Collection: ("__len__", "__iter__", "__contains__"),
    Container: ("__contains__",),
    Hashable: (),
    Iterable: ("__iter__",),
    Iterator: ("__next__", "__iter__"),
    Mapping: (),
    MutableMapping: (),
    MutableSequence: (),
    Reversible: ("__reversed__", "__iter__"),
    Sequence: (),
    Sized: ("__len__",),
}
KINDS: dict[str, Any] = {}
"""The abstract classes of ``collections.abc``, by name."""
for _kind, _methods in _WRITTEN.items():
    KINDS[_kind.__name__] = _kind
    type.__setattr__(_kind, "__module__", "collections.abc")
    type.__setattr__(_kind, "_test_", _test(getattr(native, _kind.__name__), *_methods))
for _name in native.__all__:
    if _name not in KINDS:
        KINDS[_name] = _only_named(_name, _test(getattr(native, _name)), "collections.abc")
ABC_MODULE = define("collections.abc", dict(KINDS), in_scope=False)


# ------------------------------------------------------------------ numbers


def _number_test(real: type) -> Any:
    test = _test(real)
    return lambda kind: test(kind) or (real is numbers.Number and issubclass(kind, Decimal))


define(
    "numbers",
    {name: _only_named(name, _number_test(getattr(numbers, name)), "numbers") for name in numbers.__all__},
    in_scope=False,
)


# ------------------------------------------------------------------ typing


class Hint:
    """A name of ``typing``: annotations are not evaluated, so it only has to be there, and to take an item."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class Generic(metaclass=GuestMeta):
    """``typing.Generic``: a base that says nothing at run time."""

    __slots__ = ()
    __module__ = "typing"


class Protocol(ABC):
    """``typing.Protocol``: with ``@runtime_checkable``, a class is one if it has the methods."""

    __slots__ = ()
    __module__ = "typing"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if Protocol in cls.__bases__:
            type.__setattr__(cls, "_test_", _uncheckable)


def _uncheckable(kind: Any) -> bool:
    raise TypeError("Instance and class checks can only be used with @runtime_checkable protocols")


def _runtime_checkable(cls: Any) -> Any:
    if not of_program(cls) or Protocol not in cls.__bases__:
        raise TypeError("@runtime_checkable can be only applied to protocol classes")
    if cls.__dict__.get("_annotated_"):
        METER.refuse("a runtime-checkable protocol with attributes other than methods")
    special = {name for name in cls.__dict__ if name.startswith("__") and guest_function(cls.__dict__[name])}
    names = tuple(special | {name for name in cls.__dict__ if not name.startswith("_")})
    METER.charge(len(names))

    def test(kind: Any) -> bool:
        METER.charge(1 + len(names))
        return _has(kind, names) if type(kind) is GuestMeta else all(hasattr(kind, name) for name in names)

    type.__setattr__(cls, "_test_", test)
    return cls


class TypedDict(metaclass=GuestMeta):
    """``typing.TypedDict``: calling a class of it makes a plain dictionary."""

    __slots__ = ()
    __module__ = "typing"

    def __new__(cls, source: Any = (), /, **names: Any) -> Any:
        METER.charge(2)
        return dict(mapping_pairs(source)) | names


def _class_item(kind: Any, key: Any) -> Any:
    """``Color['RED']`` of an enumeration; ``Stack[int]``: the class itself. Raises TypeError for other classes."""
    members = enumeration(kind)
    if members is not None:
        return members[check_key(key)]
    if issubclass(kind, (Generic, Protocol)) or kind in _SUBSCRIPTABLE:
        return kind
    raise TypeError(f"type '{class_name(kind)}' is not subscriptable")


_SUBSCRIPTABLE = frozenset(KINDS.values())
ITEM_GETTERS[GuestMeta] = _class_item


def _same(value: Any) -> Any:
    return value


def _new_type(name: Any, tp: Any) -> Any:
    METER.charge(1)
    return _same


def _type_variable(name: Any, *constraints: Any, **options: Any) -> Hint:
    METER.charge(1)
    if type(name) is not str:
        raise TypeError("the name of a type variable is a string")
    METER.check_characters(len(name))
    return Hint(name)


_HINTS = (
    "Annotated Any AnyStr ClassVar Concatenate Final Literal LiteralString Never NoReturn NotRequired Optional "
    "Required Self SupportsAbs SupportsFloat SupportsIndex SupportsInt SupportsRound TypeAlias TypeGuard Union Unpack"
)
ALIASES: dict[str, type] = {
    "Counter": collections.Counter,
    "DefaultDict": collections.defaultdict,
    "Deque": collections.deque,
    "Dict": dict,
    "FrozenSet": frozenset,
    "List": list,
    "OrderedDict": collections.OrderedDict,
    "Set": set,
    "Text": str,
    "Tuple": tuple,
    "Type": type,
}
"""Names of ``typing`` that stand for a built-in type."""
ITEM_GETTERS[Hint] = lambda hint, _: hint
register_text(Hint, lambda hint: f"typing.{hint.name}")
define(
    "typing",
    {name: Hint(name) for name in _HINTS.split() if hasattr(typing, name)}
    | {name: kind for name, kind in KINDS.items() if hasattr(typing, name) and name != "Set"}
    | {name: _same for name in ("final", "no_type_check", "overload", "override") if hasattr(typing, name)}
    | dict.fromkeys(("ParamSpec", "TypeVar", "TypeVarTuple"), _type_variable)
    | {
        "AbstractSet": KINDS["Set"],
        "Generic": Generic,
        "NamedTuple": TYPED_TUPLE,
        "NewType": _new_type,
        "Protocol": Protocol,
        "TYPE_CHECKING": False,
        "TypedDict": TypedDict,
        "cast": lambda typ, val: val,
        "runtime_checkable": _runtime_checkable,
    },
)
