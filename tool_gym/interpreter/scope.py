"""The names that programs start with: guarded built-in functions, stand-ins for built-in types, exceptions."""

from __future__ import annotations

import builtins
import collections
import fractions
import importlib
import itertools
import operator
import types
from collections.abc import Iterator
from typing import Any

from . import facades as facades  # these two add to MODULES
from . import regex as regex
from .attributes import (
    METHODS,
    check_name,
    count_into,
    from_bytes,
    from_keys,
    make_translation,
    read_attribute,
    sort,
    standin_for,
)
from .facades.abstract import ALIASES
from .facades.decimals import Decimal
from .guards import (
    EXCEPTION_BASES,
    HOOKS,
    ITEM_GETTERS,
    MAKING,
    STANDINS,
    UNBOUND,
    Standin,
    Union,
    add,
    checked,
    consumed,
    counted,
    divided,
    iterable,
    mapping_pairs,
    power,
    printed,
    take_all,
    union_kinds,
    write,
)
from .meter import ITEMS_PER_STEP_SHIFT, METER
from .modules import MODULES, Module, import_from, import_module
from .values import (
    BIG,
    LEAST,
    MAPPINGS,
    SEQUENCES,
    SETS,
    VIEWS,
    GuestMeta,
    charge_decimals,
    check_key,
    class_name,
    enumeration,
    full_name,
    plain,
    register_text,
    special,
    to_ascii,
    to_format,
    to_hash,
    to_repr,
    to_str,
    weigh,
)

_MISSING = object()


# ------------------------------------------------------------------ types


def _int(value: Any = 0, base: Any = _MISSING) -> int:
    if type(value) is str or type(value) is bytes:
        METER.charge(1 + (len(value) >> 4))
    if type(value) is float or type(value) is fractions.Fraction:
        METER.charge(1)
    return checked(int(value) if base is _MISSING else int(value, base))  # type: ignore[no-any-return]


def _float(value: Any = 0.0) -> float:
    if type(value) is str or type(value) is bytes:
        METER.charge(1 + (len(value) >> 4))
    elif type(value) is fractions.Fraction:
        METER.charge(4 + ((value.numerator.bit_length() + value.denominator.bit_length()) >> 10))
    return float(value)


def _str(object: Any = _MISSING, encoding: Any = _MISSING, errors: Any = _MISSING) -> str:
    METER.charge(1)
    options = _given(encoding=encoding, errors=errors)
    if object is _MISSING:
        return ""
    if options:
        if type(object) is str:
            raise TypeError("decoding str is not supported")
        return METHODS[bytes]["decode"](object, **options)  # type: ignore[no-any-return]
    return to_str(object)


def _given(**options: Any) -> dict[str, Any]:
    """The options that a call gave."""
    return {name: value for name, value in options.items() if value is not _MISSING}


def _bool(value: Any = False) -> bool:
    return bool(value)


def _bytes(source: Any = b"", encoding: Any = _MISSING, errors: Any = _MISSING) -> bytes:
    options = _given(encoding=encoding, errors=errors)
    if type(source) is str:
        if "encoding" not in options:
            raise TypeError("string argument without an encoding")
        return METHODS[str]["encode"](source, **options)  # type: ignore[no-any-return]
    if options:
        raise TypeError("encoding without a string argument")
    if type(type(source)) is GuestMeta and special(source, "__index__") is not None:
        source = operator.index(source)
    if type(source) is int or type(source) is bool:
        METER.check_characters(max(0, int(source)))
        return bytes(source)
    return source if type(source) is bytes else bytes(take_all(source))


def _list(value: Any = ()) -> list[Any]:
    return take_all(value)


def _tuple(value: Any = ()) -> tuple[Any, ...]:
    return value if type(value) is tuple else tuple(take_all(value))


def _keys(value: Any) -> Any:
    """Items of a set to be: sets as they are, their hashes are known."""
    if type(value) in SETS:
        METER.check_items(len(value))
        return value
    items = take_all(value)
    METER.charge(len(items) >> 2)
    for item in items:
        check_key(item)
    return items


def _set(value: Any = ()) -> set[Any]:
    return set(_keys(value))


def _frozenset(value: Any = ()) -> frozenset[Any]:
    return value if type(value) is frozenset else frozenset(_keys(value))


def _dict(source: Any = (), /, **names: Any) -> dict[Any, Any]:
    result: dict[Any, Any] = dict(mapping_pairs(source))
    result.update(names)
    return result


def _range(*bounds: Any) -> range:
    METER.charge(1)
    return range(*bounds)


def _slice(*bounds: Any) -> slice:
    return slice(*bounds)


def _complex(real: Any = _MISSING, imag: Any = _MISSING) -> complex:
    METER.charge(1)
    parts = _given(real=real, imag=imag)
    for part in parts.values():
        if type(part) is str or type(part) is bytes:
            METER.charge(len(part) >> 4)
    return complex(**parts)


class _Object(metaclass=GuestMeta):
    """What ``object()`` makes: a value that equals only itself."""

    __slots__ = ()
    __module__ = "builtins"


for _attribute in ("__name__", "__qualname__"):
    type.__setattr__(_Object, _attribute, "object")


def _object() -> Any:
    METER.charge(1)
    return _Object()


def _type(*arguments: Any) -> Any:
    if len(arguments) != 1:
        METER.refuse("type() with other than one argument")
    if type(arguments[0]) is Standin or isinstance(arguments[0], type):
        return STANDINS[type]
    return standin_for(type(arguments[0]))


def _fraction(numerator: Any = 0, denominator: Any = None) -> fractions.Fraction:
    METER.charge(10)
    if denominator is None and isinstance(numerator, Decimal):
        numerator, denominator = numerator.as_integer_ratio()
    numerator, denominator = plain(numerator), plain(denominator)
    for value in (numerator, denominator):
        if type(value) is str:
            METER.charge(len(value))
            _check_fraction_text(value)
        elif type(value) is int and not LEAST < value < BIG:
            METER.charge((value.bit_length() >> 6) ** 2 >> 4)
    return checked(fractions.Fraction(numerator, denominator))  # type: ignore[no-any-return]


def _check_fraction_text(text: str) -> None:
    """``Fraction('1e999999')`` is an integer of a million digits: the exponent bounds the size."""
    _, mark, exponent = text.lower().partition("e")
    digits = exponent.strip().lstrip("+-").replace("_", "")
    if mark and digits.isdecimal():
        METER.check_bits(int(digits[:12]) * 4)


def _counter(source: Any = (), /, **names: Any) -> Any:
    METER.charge(MAKING[collections.Counter])
    counter: collections.Counter[Any] = collections.Counter()
    count_into(counter, source, 1)
    count_into(counter, names, 1)
    return counter


def _defaultdict(factory: Any = None, source: Any = (), /, **names: Any) -> Any:
    if factory is not None and not callable(factory):
        raise TypeError("first argument must be callable or None")
    METER.charge(MAKING[collections.defaultdict])
    result: collections.defaultdict[Any, Any] = collections.defaultdict(factory)
    result.update(mapping_pairs(source))
    result.update(names)
    return result


def _ordereddict(source: Any = (), /, **names: Any) -> Any:
    METER.charge(MAKING[collections.OrderedDict])
    result = collections.OrderedDict(mapping_pairs(source))
    result.update(names)
    return result


def _deque(items: Any = (), maxlen: Any = None) -> Any:
    METER.charge(MAKING[collections.deque])
    result: collections.deque[Any] = collections.deque(maxlen=maxlen)
    result.extend(take_all(items))
    return result


def _standin_name(kind: Any) -> str:
    """The name of a type as its text has it."""
    if type(kind) is not Standin:
        return full_name(kind)
    module = kind.real.__module__
    return f"{module}.{kind.name}" if module in MODULES else kind.name


register_text(Standin, lambda standin: f"<class '{_standin_name(standin)}'>")
register_text(
    Union, lambda union: " | ".join("None" if kind is type(None) else _standin_name(kind) for kind in union.kinds)
)


def _standin(real: type, construct: Any, methods: dict[str, Any] | None = None) -> Standin:
    standin = Standin(real, construct, methods)
    STANDINS[real] = standin
    return standin


TYPES: dict[str, Standin] = {
    standin.name: standin
    for standin in (
        _standin(int, _int, {"from_bytes": from_bytes}),
        _standin(float, _float, {"fromhex": float.fromhex}),
        _standin(str, _str, {"maketrans": make_translation}),
        _standin(bool, _bool),
        _standin(bytes, _bytes, {"fromhex": bytes.fromhex}),
        _standin(list, _list),
        _standin(tuple, _tuple),
        _standin(set, _set),
        _standin(frozenset, _frozenset),
        _standin(dict, _dict, {"fromkeys": from_keys(dict)}),
        _standin(range, _range),
        _standin(slice, _slice),
        _standin(complex, _complex),
        _standin(object, _object),
        _standin(type, _type),
    )
}
COLLECTIONS: dict[str, Any] = {
    "Counter": _standin(collections.Counter, _counter),
    "OrderedDict": _standin(collections.OrderedDict, _ordereddict, {"fromkeys": from_keys(collections.OrderedDict)}),
    "defaultdict": _standin(collections.defaultdict, _defaultdict),
    "deque": _standin(collections.deque, _deque),
}
_standin(fractions.Fraction, _fraction)
_GENERIC: frozenset[type] = SEQUENCES | SETS | MAPPINGS | {type}


def _parameterized(standin: Any, _: Any) -> Any:
    """``list[int]``: the type itself. Raises TypeError for a type that takes no parameters."""
    if standin.real not in _GENERIC:
        raise TypeError(f"type '{standin.name}' is not subscriptable")
    return standin


ITEM_GETTERS[Standin] = _parameterized
MODULES["collections"].exports.update(COLLECTIONS)
MODULES["fractions"].exports["Fraction"] = STANDINS[fractions.Fraction]
MODULES["typing"].exports.update({name: STANDINS[kind] for name, kind in ALIASES.items()})


# ------------------------------------------------------------------ functions


def _kinds(kinds: Any, function: str) -> tuple[type, ...]:
    """The real types behind the second argument of ``isinstance``. Raises TypeError for what is no type."""
    if type(kinds) is tuple:
        # Each time it is met: a tuple of the same tuple twice, nested, is short and endless.
        METER.charge(1 + len(kinds))
        return tuple(kind for inner in kinds for kind in _kinds(inner, function))
    members = union_kinds(kinds)
    if members is None or kinds is None:
        raise TypeError(f"{function}() arg 2 must be a type, a tuple of types, or a union")
    METER.charge(len(members))
    return tuple(kind.real if type(kind) is Standin else kind for kind in members)


def _passes(kind: type, kinds: tuple[type, ...]) -> bool:
    """Whether ``kind`` passes the test of an abstract one of ``kinds``."""
    for wanted in kinds:
        if type(wanted) is GuestMeta and (test := wanted.__dict__.get("_test_")) is not None and test(kind):
            return True
    return False


def _isinstance(value: Any, kinds: Any) -> bool:
    METER.charge(1)
    wanted = _kinds(kinds, "isinstance")
    return issubclass(type(value), wanted) or _passes(type(value), wanted)


def _issubclass(kind: Any, kinds: Any) -> bool:
    METER.charge(1)
    real = kind.real if type(kind) is Standin else kind
    if not isinstance(real, type):
        raise TypeError("issubclass() arg 1 must be a class")
    wanted = _kinds(kinds, "issubclass")
    return issubclass(real, wanted) or _passes(real, wanted)


def _len(value: Any) -> int:
    METER.left -= 1
    if type(value) is GuestMeta and enumeration(value) is not None:
        return sum(1 for _ in iterable(value))
    return len(value)


def _abs(value: Any) -> Any:
    return checked(abs(value))


def _sum(values: Any, start: Any = 0) -> Any:
    if type(start) is str:
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    if type(start) is bytes:
        raise TypeError("sum() can't sum bytes [use b''.join(seq) instead]")
    values = consumed(values)
    if type(start) is int or type(start) is float:
        if type(values) is range or _plain_numbers(values):
            return checked(sum(values, start))
        values = iter(values)
        start, values = _sum_numbers(values, start)
    total = start
    for value in values:
        METER.left -= 1
        total = add(total, value)
    return total


def _sum_numbers(values: Iterator[Any], start: Any) -> tuple[Any, Any]:
    """The sum of the numbers that ``values`` begins with, and what follows them.

    Native code adds them, because it keeps what rounding loses of floats, from Python 3.12 on.
    """
    small: list[Any] = []
    for value in values:
        METER.left -= 1
        if METER.left < 0:
            METER.exhausted()
        if type(value) is not float and (type(value) is not int or not LEAST < value < BIG):
            return sum(small, start), itertools.chain((value,), values)
        small.append(value)
    return checked(sum(small, start)), ()


def _plain_numbers(values: Any) -> bool:
    """Whether a sequence holds nothing but numbers that cost nothing to add."""
    if type(values) is not list and type(values) is not tuple:
        return False
    kinds = set(map(type, values))
    return kinds <= {int, float, bool} and (not values or (min(values) > LEAST and max(values) < BIG))


def _extreme(native: Any, values: tuple[Any, ...], key: Any, default: Any) -> Any:
    """``min`` and ``max``."""
    if not values:
        raise TypeError(f"{native.__name__} expected at least 1 argument, got 0")
    if len(values) > 1 and default is not _MISSING:
        raise TypeError("Cannot specify a default for more than one positional argument")
    if len(values) == 1:
        items = consumed(values[0])
        if type(items) is not range:
            items = take_all(items)
    else:
        items = list(values)
    METER.charge(1)
    if key is None and default is _MISSING and type(items) is list and {int, float}.issuperset(map(type, items)):
        return native(items)
    options: dict[str, Any] = {} if default is _MISSING else {"default": default}
    if key is not None:
        options["key"] = key
    elif type(items) is list:
        for item in items:
            if type(item) is not int and type(item) is not float:
                METER.left -= 1
                weigh(item)
    return native(items, **options)


def _min(*values: Any, key: Any = None, default: Any = _MISSING) -> Any:
    return _extreme(min, values, key, default)


def _max(*values: Any, key: Any = None, default: Any = _MISSING) -> Any:
    return _extreme(max, values, key, default)


def _sorted(values: Any, /, *, key: Any = None, reverse: Any = False) -> list[Any]:
    items = take_all(values)
    sort(items, key, reverse)
    return items


def _all(values: Any) -> bool:
    return all(_items(values))


def _any(values: Any) -> bool:
    return any(_items(values))


def _items(values: Any) -> Any:
    """Operand of a function that may stop early: short sequences as they are, anything else counted."""
    if type(values) in (list, tuple):
        METER.charge(len(values) >> ITEMS_PER_STEP_SHIFT)
        return values
    return counted(values)


def _enumerate(iterable: Any, start: Any = 0) -> Iterator[Any]:
    items = _items(iterable)
    return _pairs(items, operator.index(start))


def _pairs(items: Any, start: int) -> Iterator[Any]:
    yield from enumerate(items, start)


def _zip(*iterables: Any, strict: Any = False) -> Iterator[Any]:
    sources = [_items(values) for values in iterables]
    return _tuples(sources, bool(strict))


def _tuples(sources: list[Any], strict: bool) -> Iterator[Any]:
    yield from zip(*sources, strict=strict)


def _map(function: Any, *iterables: Any) -> Iterator[Any]:
    if not iterables:
        raise TypeError("map() must have at least two arguments.")
    sources = [_items(values) for values in iterables]
    return _mapped(function, sources)


def _mapped(function: Any, sources: list[Any]) -> Iterator[Any]:
    for values in zip(*sources, strict=False):
        METER.left -= 1
        try:
            value = function(*values)
        except StopIteration:  # which ends a native map; in a generator it would be a RuntimeError
            return
        yield value


def _filter(function: Any, values: Any) -> Iterator[Any]:
    return _filtered(function, _items(values))


def _filtered(function: Any, items: Any) -> Iterator[Any]:
    for item in items:
        METER.left -= 1
        try:
            wanted = bool(item if function is None else function(item))
        except StopIteration:
            return
        if wanted:
            yield item
        if METER.left < 0:
            METER.exhausted()


def counted_back(items: Iterator[Any]) -> Iterator[Any]:
    """The items of a program's own sequence from its end."""
    yield from items


_REVERSIBLE: frozenset[type] = (
    SEQUENCES | (MAPPINGS - {collections.Counter}) | VIEWS | {str, bytes, collections.Counter}
)


def _reversed(values: Any) -> Any:
    if type(values) is range:
        return reversed(values)
    if type(type(values)) is GuestMeta:
        found = reversed(values)
        return counted_back(found) if type(found) is reversed else found
    if type(values) not in _REVERSIBLE and (type(values) is not GuestMeta or enumeration(values) is None):
        raise TypeError(f"'{class_name(type(values))}' object is not reversible")
    items = take_all(values)
    items.reverse()
    return iter(items)


def _iter(values: Any, sentinel: Any = _MISSING) -> Any:
    if sentinel is not _MISSING:
        return _until(values, sentinel)
    from .guards import iterable

    return iter(iterable(values))


def _until(function: Any, sentinel: Any) -> Iterator[Any]:
    while True:
        METER.charge(1)
        try:
            value = function()
        except StopIteration:
            return
        if HOOKS["_eq_"](value, sentinel):
            return
        yield value


def _next(iterator: Any, *default: Any) -> Any:
    METER.charge(1)
    return next(iterator, *default)


def _round(number: Any, ndigits: Any = None) -> Any:
    METER.charge(1)
    ndigits = plain(ndigits)
    if ndigits is None:
        return checked(round(number))
    charge_decimals(number)
    if type(ndigits) is int and (type(number) is int or type(number) is fractions.Fraction):
        METER.check_bits(abs(ndigits) * 4)
        if type(number) is int and not LEAST < number < BIG:
            METER.charge((number.bit_length() >> 6) ** 2 >> 6)
    return checked(round(number, ndigits))


def _getattr(value: Any, name: Any, *default: Any) -> Any:
    check_name(name, "getattr")
    METER.charge(1)
    try:
        return read_attribute(value, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(value: Any, name: Any) -> bool:
    check_name(name, "hasattr")
    METER.charge(1)
    try:
        read_attribute(value, name)
    except AttributeError:
        return False
    return True


def _setattr(value: Any, name: Any, content: Any) -> None:
    check_name(name, "setattr")
    if name == "__name__":
        METER.refuse("the attribute '__name__'")
    METER.charge(1)
    setattr(write(value), name, content)


def _ord(character: Any) -> int:
    if type(character) is bytes or type(character) is str:
        return ord(character)
    raise TypeError(f"ord() expected string of length 1, but {class_name(type(character))} found")


def _digits(native: Any) -> Any:
    def convert(value: Any) -> str:
        if type(value) is int:
            METER.check_characters(value.bit_length())
        return native(value)  # type: ignore[no-any-return]

    convert.__name__ = native.__name__
    return convert


def _pow(base: Any, exp: Any, mod: Any = None) -> Any:
    METER.charge(1)
    return power(base, exp, mod)


def _format(value: Any, spec: Any = "") -> str:
    if type(spec) is not str:
        raise TypeError("format() argument 2 must be str")
    return to_format(value, -1, spec)


def _callable(value: Any) -> bool:
    return callable(value)


FUNCTIONS: dict[str, Any] = {
    "abs": _abs,
    "all": _all,
    "any": _any,
    "ascii": to_ascii,
    "bin": _digits(bin),
    "callable": _callable,
    "chr": chr,
    "divmod": divided,
    "enumerate": _enumerate,
    "filter": _filter,
    "format": _format,
    "getattr": _getattr,
    "hasattr": _hasattr,
    "hash": to_hash,
    "hex": _digits(hex),
    "isinstance": _isinstance,
    "issubclass": _issubclass,
    "iter": _iter,
    "len": _len,
    "map": _map,
    "max": _max,
    "min": _min,
    "next": _next,
    "oct": _digits(oct),
    "ord": _ord,
    "pow": _pow,
    "print": printed,
    "repr": to_repr,
    "reversed": _reversed,
    "round": _round,
    "setattr": _setattr,
    "sorted": _sorted,
    "sum": _sum,
    "zip": _zip,
}


def _decorator(kind: type) -> Standin:
    """A type of ours for methods; making one looks for the names of what it holds."""

    def construct(*arguments: Any, **names: Any) -> Any:
        METER.charge(20)
        return kind(*arguments, **names)

    return _standin(kind, construct)


_DECORATORS: dict[str, Any] = {kind.__name__: _decorator(kind) for kind in (classmethod, property, staticmethod)}
_DECORATORS["super"] = super  # which looks at the frame that calls it
_EXCEPTIONS = (
    "ArithmeticError AssertionError AttributeError BaseException EOFError Exception FloatingPointError "
    "GeneratorExit ImportError IndexError KeyError KeyboardInterrupt LookupError MemoryError "
    "ModuleNotFoundError NameError NotImplementedError OSError OverflowError RecursionError RuntimeError "
    "StopIteration SyntaxError SystemExit TimeoutError TypeError UnboundLocalError UnicodeDecodeError "
    "UnicodeEncodeError UnicodeError ValueError Warning ZeroDivisionError DeprecationWarning UserWarning "
    "RuntimeWarning IOError FileNotFoundError PermissionError IndentationError"
)
ERRORS: dict[str, Any] = {name: getattr(builtins, name) for name in _EXCEPTIONS.split()}
EXCEPTION_BASES.update(kind for kind in ERRORS.values() if kind is not SyntaxError and kind is not IndentationError)

WITHHELD_NAMES: frozenset[str] = frozenset(
    name for name in dir(builtins) if not name.startswith("_") and name not in {"True", "False", "None"}
) - (FUNCTIONS.keys() | TYPES.keys() | _DECORATORS.keys() | ERRORS.keys() | {"NotImplemented", "Ellipsis"}) | {
    "__builtins__",
    "__import__",
    "builtins",
    "exit",
    "quit",
    "help",
    "copyright",
    "credits",
    "license",
}
"""Built-in names that programs may not use, unless they define them themselves."""

HIDEABLE_NAMES: frozenset[str] = frozenset(name for name in WITHHELD_NAMES if not name.startswith("_"))
"""Those that a program can define, or an input be called."""

for _name, _function in FUNCTIONS.items():
    if isinstance(_function, types.FunctionType):
        _function.__name__ = _name
        UNBOUND.add(_function.__code__)
for _module in MODULES.values():
    _real = importlib.import_module(_module.name)
    UNBOUND.update(
        function.__code__
        for name, function in _module.exports.items()
        if type(function) is types.FunctionType and type(getattr(_real, name, None)) is not types.FunctionType
    )
for _name, _generators in {
    "enumerate": (_pairs,),
    "filter": (_filtered,),
    "map": (_mapped,),
    "zip": (_tuples,),
    "callable_iterator": (_until,),
    "reversed": (counted_back,),
}.items():
    for _function in _generators:
        _function.__name__ = _name

CONSTRUCTORS: dict[str, str] = {
    name: f"_{name}_" for name in ("bool", "dict", "float", "int", "list", "range", "set", "str", "tuple")
}
"""Built-in types that programs call most, and the hooks that do what calling their stand-ins does."""

BUILTINS: dict[str, Any] = {
    **HOOKS,
    **{hook: TYPES[name].construct for name, hook in CONSTRUCTORS.items()},
    **FUNCTIONS,
    **TYPES,
    **_DECORATORS,
    **ERRORS,
    **{name: module for name, module in MODULES.items() if module.in_scope},
    "NotImplemented": NotImplemented,
    "Ellipsis": Ellipsis,
    "_getattr_": read_attribute,
    "_slice_": slice,
    "_class_": _type,
    "_import_": import_module,
    "_import_from_": import_from,
    "__build_class__": builtins.__build_class__,
    "__name__": "builtins",
}
"""The ``__builtins__`` of every program. No program can reach the dictionary: it can only shadow names."""

PRISTINE: tuple[tuple[str, Any], ...] = tuple(BUILTINS.items())
_MODULE_EXPORTS: tuple[tuple[Module, tuple[tuple[str, Any], ...]], ...] = ()


def _freeze() -> None:
    global _MODULE_EXPORTS
    _MODULE_EXPORTS = tuple((module, tuple(module.exports.items())) for module in MODULES.values())


_freeze()


def intact() -> bool:
    """Whether built-ins and modules are what they were at the start: no call may change them."""
    if len(BUILTINS) != len(PRISTINE) or any(BUILTINS[name] is not value for name, value in PRISTINE):
        return False
    return all(
        len(module.exports) == len(exports) and all(module.exports[name] is value for name, value in exports)
        for module, exports in _MODULE_EXPORTS
    )


def globals_of() -> dict[str, Any]:
    """Fresh globals."""
    return {"__builtins__": BUILTINS, "__name__": "__main__"}
