"""Façades of standard modules: frozen tables of chosen functions. The real modules are never in reach.

To allow another function, list it here; to allow another module, add a table to ``MODULES`` (docs/SANDBOX.md says
what a function must do before it may be listed).
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from typing import Any

from .attributes import READERS
from .guards import take_all
from .meter import METER
from .values import BIG, LEAST, register_text


class Module:
    """What a program gets for a module: the exported names, and the names that are known and withheld."""

    __slots__ = ("exports", "name", "withheld")

    def __init__(self, name: str, exports: dict[str, Any], withheld: frozenset[str] = frozenset()) -> None:
        self.name = name
        self.exports = exports
        self.withheld = withheld


def _attribute(module: Module, name: str) -> Any:
    if name in module.exports:
        return module.exports[name]
    if name in module.withheld or name in sys.stdlib_module_names:
        METER.refuse(f"{module.name}.{name}")
    raise AttributeError(f"module '{module.name}' has no attribute '{name}'")


READERS[Module] = _attribute
register_text(Module, lambda module: f"<module '{module.name}'>")

MODULES: dict[str, Module] = {}
"""Modules by name. All of them are in scope without an import."""


def define(name: str, exports: dict[str, Any]) -> Module:
    """Add a façade; what else the real module of that name holds is withheld."""
    withheld = frozenset(dir(importlib.import_module(name))) - exports.keys()
    module = MODULES[name] = Module(name, exports, withheld)
    return module


def import_module(name: str) -> Any:
    """``import name``"""
    METER.charge(1)
    module = MODULES.get(name)
    if module is None:
        METER.refuse(f"import of {name[:60]!r} (available: {', '.join(sorted(MODULES))})")
    return module


def import_from(name: str, attribute: str) -> Any:
    """``from name import attribute``. Raises ImportError if there is no such name in the real module."""
    module = import_module(name)
    if attribute in module.exports:
        return module.exports[attribute]
    if attribute in module.withheld:
        METER.refuse(f"{name}.{attribute}")
    raise ImportError(f"cannot import name {attribute!r} from {name!r}")


# ------------------------------------------------------------------ math


def _words(value: int) -> int:
    return (value.bit_length() >> 6) + 1


def _factorial(n: Any) -> int:
    if type(n) is int and n > 20:
        METER.charge(n.bit_length() >> 9)
        bits = int(n * (math.log2(n) - 1.44)) + 32 if n < 1 << 40 else n
        METER.check_bits(bits)
        METER.charge((bits >> 6) ** 2 >> 6)
    return math.factorial(n)


def _choices(n: Any, k: Any, native: Callable[[Any, Any], int]) -> int:
    """``comb`` and ``perm``: the result has at most k·log2(n) bits."""
    if type(n) is int and type(k) is int and 0 <= k <= n:
        METER.charge(n.bit_length() >> 6)
        terms = min(k, n - k) if native is math.comb else k
        bits = terms * n.bit_length()
        if native is math.comb:
            bits = min(bits, n)
        METER.check_bits(bits)
        METER.charge(terms + ((bits >> 6) ** 2 >> 4))
    return native(n, k)


def _comb(n: Any, k: Any) -> int:
    return _choices(n, k, math.comb)


def _perm(n: Any, k: Any = None) -> int:
    return _factorial(n) if k is None else _choices(n, k, math.perm)


def _gcd(*values: Any) -> int:
    total = 1
    for value in values:
        if type(value) is int and not LEAST < value < BIG:
            METER.charge(_words(value) ** 2 >> 3)
        total += 1
    METER.charge(total)
    return math.gcd(*values)


def _lcm(*values: Any) -> int:
    METER.check_bits(sum(value.bit_length() for value in values if type(value) is int))
    METER.charge(sum(_words(value) for value in values if type(value) is int) ** 2 >> 3)
    return math.lcm(*values)


def _isqrt(n: Any) -> int:
    if type(n) is int and not LEAST < n < BIG:
        METER.charge(_words(n) ** 2 >> 4)
    return math.isqrt(n)


def _prod(values: Any, *, start: Any = 1) -> Any:
    from .guards import consumed, mul

    total = start
    for value in consumed(values):
        METER.left -= 1
        total = mul(total, value)
    METER.charge(0)
    return total


def _fsum(values: Any) -> float:
    return math.fsum(take_all(values))


def _dist(p: Any, q: Any) -> float:
    return math.dist(take_all(p), take_all(q))


_MATH_NATIVE = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees e erf erfc exp exp2 expm1 "
    "fabs floor fmod frexp gamma hypot inf isclose isfinite isinf isnan ldexp lgamma log log10 log1p log2 "
    "modf nan nextafter pi pow radians remainder sin sinh sqrt tan tanh tau trunc ulp"
)


def _of_numbers(name: str) -> Any:
    """A function of the module as it is, but that big integers are charged for; a constant."""
    native = getattr(math, name)
    if not callable(native):
        return native

    def function(*values: Any, **names: Any) -> Any:
        for value in values:
            if type(value) is int and not LEAST < value < BIG:
                METER.charge(value.bit_length() >> 10)
        return native(*values, **names)

    function.__name__ = name
    return function


define(
    "math",
    {name: _of_numbers(name) for name in _MATH_NATIVE.split()}
    | {
        "comb": _comb,
        "dist": _dist,
        "factorial": _factorial,
        "fsum": _fsum,
        "gcd": _gcd,
        "isqrt": _isqrt,
        "lcm": _lcm,
        "perm": _perm,
        "prod": _prod,
    },
)
define("collections", {})
define("fractions", {})
