"""Façades of standard modules: frozen tables of chosen functions. The real modules are never in reach.

The tables are in ``facades/``. docs/SANDBOX.md says what a function must do before it may be listed in one.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .attributes import READERS
from .meter import METER
from .values import register_text


class Module:
    """What a program gets for a module: the exported names, and the names that are known and withheld."""

    __slots__ = ("exports", "in_scope", "name", "withheld")

    def __init__(self, name: str, exports: dict[str, Any], withheld: frozenset[str], in_scope: bool) -> None:
        self.name = name
        self.exports = exports
        self.withheld = withheld
        self.in_scope = in_scope


def _attribute(module: Module, name: str) -> Any:
    if name in module.exports:
        return module.exports[name]
    if name in module.withheld or name in sys.stdlib_module_names:
        METER.refuse(f"{module.name}.{name}")
    raise AttributeError(f"module '{module.name}' has no attribute '{name}'")


READERS[Module] = _attribute
register_text(Module, lambda module: f"<module '{module.name}'>")

MODULES: dict[str, Module] = {}
"""Modules by name."""

_REASONS: dict[str, str] = dict.fromkeys(("time", "datetime", "calendar", "zoneinfo"), "there is no clock here")
_REASONS |= dict.fromkeys(("os", "sys", "io", "pathlib", "subprocess", "socket"), "nothing of the machine is in reach")
_REASONS |= dict.fromkeys(("threading", "asyncio", "multiprocessing"), "a program has one thread")


def define(name: str, exports: dict[str, Any], in_scope: bool = True) -> Module:
    """Add a façade; what else the real module of that name holds is withheld.

    Args:
        in_scope: whether programs find it without an import.
    """
    withheld = frozenset(dir(importlib.import_module(name))) - exports.keys()
    module = MODULES[name] = Module(name, exports, withheld, in_scope)
    return module


def import_module(name: str, bound: str = "") -> Any:
    """``import name``, or the package ``bound`` that the statement binds a name to."""
    METER.charge(1)
    module = MODULES.get(name)
    if module is None:
        reason = _REASONS.get(name.partition(".")[0])
        why = f": {reason}" if reason else f" (available: {', '.join(sorted(MODULES))})"
        METER.refuse(f"import of {name[:60]!r}{why}")
    return MODULES[bound or name]


def import_from(name: str, attribute: str) -> Any:
    """``from name import attribute``. Raises ImportError if there is no such name in the real module."""
    module = import_module(name)
    if attribute in module.exports:
        return module.exports[attribute]
    if attribute in module.withheld:
        METER.refuse(f"{name}.{attribute}")
    raise ImportError(f"cannot import name {attribute!r} from {name!r}")
