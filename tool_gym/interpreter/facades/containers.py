"""``collections`` beyond the built-in containers, which ``scope.py`` adds: named tuples and ``ChainMap``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..guards import HOOKS, getitem, item_key, mapping_pairs, take_all, write
from ..meter import METER
from ..modules import define
from ..values import MAPPINGS, GuestMeta, check_key, class_name, to_repr
from .abstract import ABC_MODULE, MutableMapping
from .records import namedtuple


class ChainMap(MutableMapping):
    """``collections.ChainMap``: the first of several mappings that has a key; changes go to the first."""

    __slots__ = ("_maps",)
    __module__ = "collections"

    def __init__(self, *maps: Any) -> None:
        for mapping in maps:
            if type(mapping) not in MAPPINGS and type(type(mapping)) is not GuestMeta:
                raise TypeError(f"ChainMap of a {class_name(type(mapping))}: it takes mappings")
        METER.charge(1 + len(maps))
        self._maps = list(maps) or [{}]

    maps = property(lambda self: self._maps)
    parents = property(lambda self: type(self)(*self._maps[1:]))

    def new_child(self, m: Any = None, **names: Any) -> Any:
        """A chain with one more mapping in front."""
        return type(self)(dict(names) if m is None else m, *self._maps)

    def copy(self) -> Any:
        """A chain whose first mapping is a copy."""
        return type(self)(dict(mapping_pairs(self._maps[0])), *self._maps[1:])

    __copy__ = copy

    def __deepcopy__(self, copied: Any) -> Any:
        return type(self)(*[copied(mapping) for mapping in self._maps])

    def __getitem__(self, key: Any) -> Any:
        for mapping in self._maps:
            METER.charge(1)
            if HOOKS["_in_"](key, mapping):
                return getitem(mapping, key)
        raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        METER.charge(len(self._maps))
        return any(HOOKS["_in_"](key, mapping) for mapping in self._maps)

    def _merged(self) -> dict[Any, None]:
        """The keys, in the order of Python's: those of the last mapping first."""
        keys: dict[Any, None] = {}
        for mapping in reversed(self._maps):
            found = take_all(mapping)
            METER.charge(len(found) >> 1)
            for key in found:
                keys[check_key(key)] = None
        return keys

    def __iter__(self) -> Iterator[Any]:
        return iter(self._merged())

    def __len__(self) -> int:
        return len(self._merged())

    def __bool__(self) -> bool:
        return any(map(len, self._maps))

    def __setitem__(self, key: Any, value: Any) -> None:
        METER.charge(1)
        write(self._maps[0])[item_key(key)] = value

    def __delitem__(self, key: Any) -> None:
        METER.charge(1)
        first = write(self._maps[0])
        if not HOOKS["_in_"](key, first):
            raise KeyError(f"Key not found in the first mapping: {to_repr(key)}")
        del first[item_key(key)]

    def __repr__(self) -> str:
        return f"{class_name(type(self))}({', '.join(map(to_repr, self._maps))})"


define("collections", {"ChainMap": ChainMap, "abc": ABC_MODULE, "namedtuple": namedtuple})
