"""``functools``, ``operator`` and ``copy`` for programs."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

from ..attributes import NAMED, READERS, check_name, read_attribute
from ..guards import HOOKS, MAKING, counted, getitem, item_key, write
from ..meter import METER
from ..modules import define
from ..values import (
    CONTAINERS,
    MAPPINGS,
    SETS,
    GuestMeta,
    check_key,
    class_name,
    enumeration,
    guest_function,
    of_program,
    register_text,
    special,
    to_repr,
)
from .records import Record, make_record, plain_tuple

_MISSING = object()

# ------------------------------------------------------------------ functools


def _reduce(function: Any, items: Any, initial: Any = _MISSING, /) -> Any:
    source = counted(items)
    total = next(source, _MISSING) if initial is _MISSING else initial
    if total is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    for item in source:
        total = function(total, item)
    return total


_CACHE_INFO = make_record("CacheInfo", ("hits", "misses", "maxsize", "currsize"), module="functools")


class Cached:
    """A function with a memory of its results, the least recently used forgotten beyond ``maxsize``."""

    __slots__ = ("__name__", "_function", "_hits", "_maxsize", "_misses", "_results", "_typed")

    def __init__(self, function: Any, maxsize: int | None, typed: bool) -> None:
        self.__name__ = _name_of(function)
        self._function = function
        self._maxsize = maxsize
        self._typed = typed
        self._hits = self._misses = 0
        self._results: dict[Any, Any] = {}

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        METER.charge(1)
        key: Any = (_MISSING, arguments, *names.items()) if names else arguments
        if self._typed:
            key = (_MISSING, key, *(type(value) for value in (*arguments, *names.values())))
        check_key(key)
        results = self._results
        found = results.get(key, _MISSING)
        if found is not _MISSING:
            self._hits += 1
            if self._maxsize is not None:
                del results[key]
                results[key] = found
            return found
        self._misses += 1
        found = self._function(*arguments, **names)
        if self._maxsize != 0:
            if self._maxsize is not None and len(results) >= self._maxsize and key not in results:
                del results[next(iter(results))]
            results[key] = found
        return found

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def info(self) -> Any:
        """Hits, misses, and how much of the memory is used."""
        return _CACHE_INFO(self._hits, self._misses, self._maxsize, len(self._results))

    def clear(self) -> None:
        """Forget everything."""
        METER.charge(len(self._results) >> 3)
        self._results.clear()
        self._hits = self._misses = 0

    def parameters(self) -> dict[str, Any]:
        """What ``lru_cache`` was given."""
        return {"maxsize": self._maxsize, "typed": self._typed}

    def wrapped(self) -> Any:
        """The function without its memory."""
        return self._function


_CACHED = {"cache_info": Cached.info, "cache_clear": Cached.clear, "cache_parameters": Cached.parameters}


def _cached_attribute(cached: Cached, name: str) -> Any:
    method = _CACHED.get(name)
    if method is None:
        raise AttributeError(f"'functools._lru_cache_wrapper' object has no attribute '{name}'")
    return types.MethodType(method, cached)


READERS[Cached] = _cached_attribute
NAMED.add(Cached)
register_text(Cached, lambda cached: f"<functools._lru_cache_wrapper {cached.__name__}>")


def _cached(function: Any, maxsize: int | None, typed: Any = False) -> Any:
    if not callable(function):
        raise TypeError("the first argument must be callable")
    METER.charge(2)
    return Cached(function, None if maxsize is None else max(0, maxsize), bool(typed))


def _cache(user_function: Any, /) -> Any:
    return _cached(user_function, None)


def _lru_cache(maxsize: Any = 128, typed: Any = False) -> Any:
    if callable(maxsize):
        return _cached(maxsize, 128)
    if maxsize is not None and type(maxsize) is not int:
        raise TypeError("Expected first argument to be an integer, a callable, or None")
    return lambda function: _cached(function, maxsize, typed)


class Partial:
    """``functools.partial``"""

    __slots__ = ("args", "func", "keywords")

    def __init__(self, function: Any, arguments: tuple[Any, ...], names: dict[str, Any]) -> None:
        self.func = function
        self.args = arguments
        self.keywords = names

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        METER.charge(1 + ((len(self.args) + len(self.keywords)) >> 3))
        return self.func(*self.args, *arguments, **{**self.keywords, **names})


def _partial(function: Any, /, *arguments: Any, **names: Any) -> Any:
    METER.charge(1)
    if not callable(function):
        raise TypeError("the first argument must be callable")
    if type(function) is Partial:
        METER.check_items(len(function.args) + len(arguments))
        return Partial(function.func, (*function.args, *arguments), {**function.keywords, **names})
    return Partial(function, arguments, names)


def _partial_attribute(partial: Partial, name: str) -> Any:
    if name in ("args", "func"):
        return getattr(partial, name)
    if name == "keywords":
        return dict(partial.keywords)
    raise AttributeError(f"'functools.partial' object has no attribute '{name}'")


def _partial_text(partial: Partial) -> str:
    names = [f"{name}={to_repr(value)}" for name, value in partial.keywords.items()]
    text = ", ".join([to_repr(partial.func), *map(to_repr, partial.args), *names])
    METER.check_characters(len(text))
    return f"functools.partial({text})"


READERS[Partial] = _partial_attribute
register_text(Partial, _partial_text)


class _Compared:
    """A sort key that compares by a function of two items."""

    __slots__ = ("function", "item")

    def __init__(self, function: Any, item: Any) -> None:
        self.function = function
        self.item = item

    def _difference(self, other: Any) -> Any:
        METER.charge(1)
        if type(other) is not _Compared:
            raise TypeError("other argument must be K instance")
        return self.function(self.item, other.item)

    def __lt__(self, other: Any) -> bool:
        return bool(self._difference(other) < 0)

    def __le__(self, other: Any) -> bool:
        return bool(self._difference(other) <= 0)

    def __gt__(self, other: Any) -> bool:
        return bool(self._difference(other) > 0)

    def __ge__(self, other: Any) -> bool:
        return bool(self._difference(other) >= 0)

    def __eq__(self, other: object) -> bool:
        return bool(self._difference(other) == 0)

    __hash__ = None  # type: ignore[assignment]


def _cmp_to_key(mycmp: Any) -> Any:
    return lambda item: _Compared(mycmp, item)


def _name_of(function: Any) -> str:
    if guest_function(function) or type(function) in NAMED:
        return str(function.__name__)
    return class_name(function) if isinstance(function, type) else "function"


def _update_wrapper(wrapper: Any, wrapped: Any, *options: Any, **names: Any) -> Any:
    """Gives a function of the program the name of the one that it wraps."""
    METER.charge(1)
    if options or names:
        METER.refuse("functools.update_wrapper with attributes to copy")
    if guest_function(wrapper) and (guest_function(wrapped) or type(wrapped) in NAMED or isinstance(wrapped, type)):
        wrapper.__name__ = wrapper.__qualname__ = _name_of(wrapped)
        if guest_function(wrapped):
            wrapper.__qualname__ = wrapped.__qualname__
    return wrapper


def _wraps(wrapped: Any, *options: Any, **names: Any) -> Any:
    return lambda wrapper: _update_wrapper(wrapper, wrapped, *options, **names)


def _derived(wanted: str, given: str) -> Callable[..., Any]:
    """The ordering ``wanted`` from the method of the ordering ``given`` and, where it decides, equality."""

    def method(self: Any, other: Any) -> Any:
        METER.charge(1)
        found = special(self, f"__{given}__")(self, other)
        if found is NotImplemented:
            return found
        found = bool(found)
        inclusive, upward = given in ("le", "ge"), given in ("gt", "ge")
        if (wanted in ("gt", "ge")) is upward:
            # The same direction: only equality differs.
            equal = bool(HOOKS["_eq_"](self, other))
            return (found and not equal) if inclusive else (found or equal)
        if (wanted in ("le", "ge")) is not inclusive:
            return not found
        equal = bool(HOOKS["_eq_"](self, other))
        return (not found or equal) if inclusive else (not found and not equal)

    return method


def _total_ordering(cls: Any) -> Any:
    if not of_program(cls):
        raise TypeError("total_ordering() is for classes of the program")
    METER.charge(10)
    given = next((name for name in ("lt", "le", "gt", "ge") if f"__{name}__" in _written(cls)), None)
    if given is None:
        raise ValueError("must define at least one ordering operation: < > <= >=")
    for name in ("lt", "le", "gt", "ge"):
        if f"__{name}__" not in _written(cls):
            method = _derived(name, given)
            method.__name__ = f"__{name}__"
            type.__setattr__(cls, f"__{name}__", method)
    return cls


def _written(cls: Any) -> set[str]:
    """Names that the class or its bases of the program define."""
    return {name for base in cls.__mro__ if type(base) is GuestMeta for name in base.__dict__}


class CachedProperty:
    """``functools.cached_property``: the first value of a property is kept as an attribute."""

    __slots__ = ("_function", "_name")

    def __init__(self, func: Any) -> None:
        METER.charge(2)
        self._function = func
        self._name = ""

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        METER.charge(1)
        value = self._function(instance)
        object.__setattr__(instance, self._name, value)
        return value


register_text(CachedProperty, lambda _: "<functools.cached_property object>")


class Dispatch:
    """``functools.singledispatch``: a function that depends on the type of its first argument."""

    __slots__ = ("__name__", "_default", "_functions")

    def __init__(self, function: Any) -> None:
        self.__name__ = _name_of(function)
        self._default = function
        self._functions: dict[Any, Any] = {}

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        if not arguments:
            raise TypeError(f"{self.__name__} requires at least 1 positional argument")
        return self.function(type(arguments[0]))(*arguments, **names)

    def function(self, kind: type) -> Any:
        """What is called for a type: the function of the nearest of its bases, or of an abstract kind."""
        METER.charge(1 + len(kind.__mro__))
        for base in kind.__mro__:
            if base is not object and base in self._functions:
                return self._functions[base]
        for wanted, function in self._functions.items():
            METER.charge(1)
            test = wanted.__dict__.get("_test_") if type(wanted) is GuestMeta else None
            if test is not None and test(kind):
                return function
        return self._functions.get(object, self._default)

    def register(self, cls: Any, func: Any = None) -> Any:
        """Use a function for a type, or decorate one with the type."""
        METER.charge(2)
        if guest_function(cls):
            METER.refuse("register of a function by its annotation: annotations are not evaluated")
        if func is None:
            return lambda function: self.register(cls, function)
        self._functions[_real_type(cls)] = func
        return func


def _real_type(kind: Any) -> Any:
    """The type behind a name of it. Raises TypeError if it is no type."""
    from ..guards import Standin

    if type(kind) is Standin:
        return kind.real
    if isinstance(kind, type):
        return kind
    raise TypeError("Invalid first argument to register(): it takes a type")


def _dispatch_attribute(dispatch: Dispatch, name: str) -> Any:
    if name == "register":
        return dispatch.register
    if name == "dispatch":
        return lambda kind: dispatch.function(_real_type(kind))
    raise AttributeError(f"'singledispatch' function has no attribute '{name}'")


READERS[Dispatch] = _dispatch_attribute
NAMED.add(Dispatch)
register_text(Dispatch, lambda dispatch: f"<function {dispatch.__name__}>")


def _singledispatch(func: Any) -> Any:
    METER.charge(2)
    return Dispatch(func)


define(
    "functools",
    {
        "cache": _cache,
        "cached_property": lambda func: CachedProperty(func),
        "cmp_to_key": _cmp_to_key,
        "lru_cache": _lru_cache,
        "partial": _partial,
        "reduce": _reduce,
        "singledispatch": _singledispatch,
        "total_ordering": _total_ordering,
        "update_wrapper": _update_wrapper,
        "wraps": _wraps,
    },
)


# ------------------------------------------------------------------ operator


def _itemgetter(item: Any, /, *items: Any) -> Any:
    if not items:
        return lambda container: getitem(container, item)
    keys = (item, *items)
    return lambda container: tuple(getitem(container, key) for key in keys)


def _path(attribute: Any) -> list[str]:
    if type(attribute) is not str:
        raise TypeError("attribute name must be a string")
    METER.charge(len(attribute) >> 2)
    return [check_name(name, "attrgetter") for name in attribute.split(".")]


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        METER.charge(1)
        value = read_attribute(value, name)
    return value


def _attrgetter(attribute: Any, /, *attributes: Any) -> Any:
    if not attributes:
        path = _path(attribute)
        return lambda value: _at(value, path)
    paths = list(map(_path, (attribute, *attributes)))
    return lambda value: tuple(_at(value, path) for path in paths)


def _methodcaller(name: Any, /, *arguments: Any, **names: Any) -> Any:
    check_name(name, "methodcaller")
    return lambda value: read_attribute(value, name)(*arguments, **names)


def _set_item(container: Any, key: Any, value: Any) -> None:
    METER.charge(1)
    write(container)[item_key(key)] = value


def _delete_item(container: Any, key: Any) -> None:
    METER.charge(1)
    del write(container)[item_key(key)]


def _count_of(items: Any, value: Any) -> int:
    return sum(1 for item in counted(items) if item is value or HOOKS["_eq_"](item, value))


def _index_of(items: Any, value: Any) -> int:
    for index, item in enumerate(counted(items)):
        if item is value or HOOKS["_eq_"](item, value):
            return index
    raise ValueError("sequence.index(x): x not in sequence")


def _concat(a: Any, b: Any) -> Any:
    if not all(type(value) in CONTAINERS or hasattr(type(value), "__getitem__") for value in (a, b)):
        raise TypeError(f"'{class_name(type(a))}' object can't be concatenated")
    return HOOKS["_add_"](a, b)


def _call(function: Any, /, *arguments: Any, **names: Any) -> Any:
    METER.charge(1)
    return function(*arguments, **names)


def _truth(value: Any) -> bool:
    METER.charge(1)
    return bool(value)


_HOOKED = "add sub mul floordiv mod pow lshift rshift eq ne lt le gt ge neg pos"
_RENAMED = {"and_": "_and_", "or_": "_or_", "xor": "_xor_", "truediv": "_div_", "inv": "_invert_", "invert": "_invert_"}
_INPLACE = "iadd isub imul ifloordiv imod ipow ilshift irshift iand ior ixor"
_RENAMED |= {"itruediv": "_idiv_", "iconcat": "_iadd_"}
define(
    "operator",
    {name: HOOKS[f"_{name}_"] for name in f"{_HOOKED} {_INPLACE}".split()}
    | {name: HOOKS[hook] for name, hook in _RENAMED.items()}
    | {
        "abs": abs,
        "attrgetter": _attrgetter,
        "call": _call,
        "concat": _concat,
        "contains": lambda a, b, /: HOOKS["_in_"](b, a),
        "countOf": _count_of,
        "delitem": _delete_item,
        "getitem": getitem,
        "index": operator.index,
        "indexOf": _index_of,
        "is_": operator.is_,
        "is_not": operator.is_not,
        "itemgetter": _itemgetter,
        "methodcaller": _methodcaller,
        "not_": lambda a, /: not _truth(a),
        "setitem": _set_item,
        "truth": _truth,
    },
)


# ------------------------------------------------------------------ copy


def _unchanging(value: Any) -> bool:
    """Whether an instance of a program's class is its own copy: errors, members, and numbers of façades."""
    if isinstance(value, BaseException) or enumeration(type(value)) is not None:
        return True
    return any(base.__dict__.get("__slots__") for base in type(value).__mro__ if type(base) is GuestMeta)


def _copied(value: Any) -> Any:
    kind = type(value)
    METER.charge(1)
    if kind in CONTAINERS and kind is not tuple and kind is not frozenset:
        METER.check_items(len(value))
        METER.charge(MAKING.get(kind, 0))
        return kind(value) if kind is list or kind is set else read_attribute(value, "copy")()
    if type(kind) is not GuestMeta or isinstance(value, Record):
        return value
    own = special(value, "__copy__")
    if own is not None:
        return own(value)
    if not _unchanging(value):
        twin = object.__new__(kind)
        if kind.__dictoffset__:
            twin.__dict__.update(value.__dict__)
        return twin
    return value


def _deeply(value: Any, seen: dict[int, Any]) -> Any:
    kind = type(value)
    METER.charge(1)
    if id(value) in seen:
        return seen[id(value)]
    if kind is list or kind is collections.deque:
        METER.check_items(len(value))
        METER.charge(MAKING.get(kind, 0))
        twin: Any = [] if kind is list else collections.deque(maxlen=value.maxlen)
        seen[id(value)] = twin
        twin.extend(_deeply(item, seen) for item in list(value))
        return twin
    if kind in SETS:
        METER.check_items(len(value))
        METER.charge_merge(len(value), len(value))
        return kind([_deeply(item, seen) for item in list(value)])
    if kind is tuple:
        return tuple([_deeply(item, seen) for item in value])
    if isinstance(value, Record):
        return tuple.__new__(kind, [_deeply(item, seen) for item in plain_tuple(value)])
    own = special(value, "__deepcopy__") if type(kind) is GuestMeta else None
    if own is not None:
        return own(value, lambda item: _deeply(item, seen))
    if kind in MAPPINGS or (type(kind) is GuestMeta and not _unchanging(value)):
        twin = _copied(value)
        seen[id(value)] = twin
        content = twin if kind in MAPPINGS else twin.__dict__ if kind.__dictoffset__ else {}
        for key, item in list(content.items()):
            content[key] = _deeply(item, seen)
        return twin
    return value


def deepcopy(value: Any, memo: Any = None) -> Any:
    """``copy.deepcopy``: containers and instances of the program's classes, at any depth."""
    return _deeply(value, {})


define("copy", {"copy": _copied, "deepcopy": deepcopy})
