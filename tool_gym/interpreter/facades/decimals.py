"""``decimal`` for programs: numbers of ours around native ones, which charge for what they are about to do.

The arithmetic runs under a context of the call, made anew for each. A number has at most as many digits as the
longest integer, so a precision beyond that is a limit. Exponents are free, because they cost nothing until
something writes them out: ``int``, ratios and fixed-point formats check first what they would make.
"""

from __future__ import annotations

import decimal
import fractions
import math
from collections.abc import Callable, Iterator
from typing import Any

from ..guards import CONTEXT_MANAGERS, take_all
from ..meter import METER
from ..modules import define
from ..values import GuestMeta, check_spec, class_name, plain
from .decimal_costs import (
    DIGITS_PER_WORD,
    Cost,
    adding_and_multiplying,
    charge_integer,
    charge_modular_power,
    charge_power,
    check_digits,
    check_ratio,
    check_written,
    dividing,
    in_series,
    linear,
    multiplying,
    places_of,
    product,
    rooting,
    words_of,
)
from .records import Record, make_record, plain_tuple

# ------------------------------------------------------------------ contexts


def _precision(value: Any) -> Any:
    """A precision within what a number may have."""
    value = plain(value)
    if type(value) is int:
        check_digits(value)
    return value


_SIGNALS: tuple[type, ...] = (
    decimal.Clamped,
    decimal.InvalidOperation,
    decimal.DivisionByZero,
    decimal.Inexact,
    decimal.Rounded,
    decimal.Subnormal,
    decimal.Overflow,
    decimal.Underflow,
    decimal.FloatOperation,
)


def _setting(name: str) -> property:
    """A setting of a context that is a number or the name of a way to round."""

    def read(self: Any) -> Any:
        return getattr(_context(self), name)

    def change(self: Any, value: Any) -> None:
        setattr(_context(self), name, _precision(value) if name == "prec" else _setting_value(value))

    return property(read, change)


def _setting_value(value: Any) -> Any:
    if type(value) not in (int, str, bool, type(None)):
        raise TypeError("settings of a context are integers, and its rounding one of the names")
    return value


class Context(metaclass=GuestMeta):
    """``decimal.Context``"""

    __slots__ = ("_native",)
    __module__ = "decimal"
    _native: Any

    def __new__(
        cls,
        prec: Any = None,
        rounding: Any = None,
        Emin: Any = None,
        Emax: Any = None,
        capitals: Any = None,
        clamp: Any = None,
        flags: Any = None,
        traps: Any = None,
    ) -> Any:
        METER.charge(20)
        settings = {
            "rounding": rounding,
            "Emin": Emin,
            "Emax": Emax,
            "capitals": capitals,
            "clamp": clamp,
        }
        native = _fresh()
        for name, value in settings.items():
            if value is not None:
                setattr(native, name, _setting_value(value))
        if prec is not None:
            native.prec = _precision(prec)
        for signals, chosen in ((native.flags, flags), (native.traps, traps)):
            if chosen is not None:
                wanted = [_signal(signal) for signal in take_all(chosen)]
                for signal in signals:
                    signals[signal] = signal in wanted
        return _of_context(cls, native)

    prec = _setting("prec")
    rounding = _setting("rounding")
    Emin = _setting("Emin")
    Emax = _setting("Emax")
    capitals = _setting("capitals")
    clamp = _setting("clamp")
    flags = property(lambda self: _signals(_context(self).flags))
    traps = property(lambda self: _signals(_context(self).traps))

    def copy(self) -> Any:
        """A context with the same settings."""
        METER.charge(10)
        return _of_context(Context, _context(self).copy())

    def clear_flags(self) -> None:
        """Forget which signals there were."""
        _context(self).clear_flags()

    def clear_traps(self) -> None:
        """Let no signal raise."""
        _context(self).clear_traps()

    def create_decimal(self, num: Any = "0") -> Any:
        """A number rounded as the context says."""
        return _made(_context(self).create_decimal(_readable(num)))

    def create_decimal_from_float(self, f: Any) -> Any:
        """A float rounded as the context says."""
        return _made(_context(self).create_decimal_from_float(_real(f)))

    def power(self, a: Any, b: Any, modulo: Any = None) -> Any:
        """``a ** b``, or that modulo a number."""
        native = _context(self)
        base, exponent = _operand_of(a), _operand_of(b)
        if modulo is not None:
            divisor = _operand_of(modulo)
            charge_modular_power(base, exponent, divisor)
            return _made(native.power(base, exponent, divisor))
        charge_power(base, exponent, native.prec // DIGITS_PER_WORD + 1)
        return _made(native.power(base, exponent))

    def Etiny(self) -> int:
        """The smallest exponent that a subnormal number has."""
        return int(_context(self).Etiny())

    def Etop(self) -> int:
        """The largest exponent of a number of full precision."""
        return int(_context(self).Etop())

    def __repr__(self) -> str:
        METER.charge(4)
        return repr(_context(self))


def _fresh() -> decimal.Context:
    """A context with Python's defaults, whatever the process has done."""
    return decimal.Context(
        prec=28,
        rounding=decimal.ROUND_HALF_EVEN,
        Emin=-999999,
        Emax=999999,
        capitals=1,
        clamp=0,
        flags=[],
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )


def _of_context(kind: Any, native: decimal.Context) -> Any:
    context = object.__new__(kind)
    context._native = native
    return context


def _context(value: Any) -> decimal.Context:
    """The native context. Raises TypeError for anything else."""
    METER.charge(1)
    if not isinstance(value, Context):
        raise TypeError("optional argument must be a context")
    return value._native  # type: ignore[no-any-return]


_active: object = None
"""The context that native arithmetic follows now: that of the call which used it last."""


def _getcontext() -> Any:
    """The context of the call, or of its session: what arithmetic follows."""
    METER.charge(1)
    if METER.decimal is None:
        _activate(_of_context(Context, _fresh()))
    elif METER.decimal is not _active:
        _activate(METER.decimal)
    return METER.decimal


def _activate(context: Any) -> None:
    global _active
    METER.decimal = _active = context
    decimal.setcontext(context._native)


def _setcontext(context: Any) -> None:
    _context(context)
    _activate(context)


class Local:
    """``with localcontext() as context``: a copy of a context that holds until the end of the block."""

    __slots__ = ("_before", "_context")

    def __init__(self, context: Any) -> None:
        self._context = context
        self._before: Any = None

    def __enter__(self) -> Any:
        self._before = _getcontext()
        _activate(self._context)
        return self._context

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            _activate(self._before)


CONTEXT_MANAGERS.add(Local)


def _localcontext(ctx: Any = None, **settings: Any) -> Any:
    context = (_getcontext() if ctx is None else ctx).copy() if ctx is None or isinstance(ctx, Context) else None
    if context is None:
        raise TypeError("optional argument must be a context")
    for name, value in settings.items():
        if name not in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp"):
            raise TypeError(f"'{name}' is an invalid keyword argument for this function")
        setattr(context, name, value)
    return Local(context)


def _signal(signal: Any) -> Any:
    """A signal of the module. Raises KeyError for anything else."""
    for known in _SIGNALS:
        if signal is known:
            return signal
    raise KeyError("invalid error flag")


class Signals(metaclass=GuestMeta):
    """The flags or the traps of a context: which signals are set."""

    __slots__ = ("_native",)
    __module__ = "decimal"
    _native: Any

    def __new__(cls, *arguments: Any) -> Any:
        raise TypeError("cannot create 'decimal.SignalDict' instances")

    def __getitem__(self, signal: Any) -> bool:
        METER.charge(1)
        return bool(self._native[_signal(signal)])

    def __setitem__(self, signal: Any, value: Any) -> None:
        METER.charge(1)
        self._native[_signal(signal)] = bool(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._native))

    def __len__(self) -> int:
        return len(self._native)

    def __contains__(self, signal: Any) -> bool:
        return any(signal is known for known in _SIGNALS)

    def __repr__(self) -> str:
        return repr(self._native)

    def keys(self) -> list[Any]:
        """The signals."""
        return list(self._native)

    def values(self) -> list[Any]:
        """Whether each is set."""
        return list(self._native.values())

    def items(self) -> list[Any]:
        """Signals, and whether each is set."""
        return list(self._native.items())

    def copy(self) -> dict[Any, Any]:
        """Which are set now."""
        return dict(self._native.items())


def _signals(native: Any) -> Any:
    signals: Any = object.__new__(Signals)
    signals._native = native
    return signals


# ------------------------------------------------------------------ numbers


class Decimal(metaclass=GuestMeta):
    """``decimal.Decimal``: holds a native number that no program can reach."""

    __slots__ = ("_native",)
    __module__ = "decimal"
    _native: Any

    def __new__(cls, value: Any = "0", context: Any = None) -> Any:
        METER.charge(6)
        _getcontext()
        number = object.__new__(cls)
        number._native = decimal.Decimal(_readable(value), None if context is None else _context(context))
        return number

    @classmethod
    def from_float(cls, f: Any) -> Any:
        """The exact value of a float or an integer."""
        number = cls.__new__(cls)
        number._native = decimal.Decimal.from_float(_real(f))
        return number

    real = property(lambda self: _made(_native(self)))
    imag = property(lambda self: Decimal(0))

    def as_tuple(self) -> Any:
        """Sign, digits and exponent."""
        native = _native(self)
        METER.charge(words_of(native) << 1)
        return _TUPLE(*native.as_tuple())

    def as_integer_ratio(self) -> tuple[int, int]:
        """Numerator and denominator, without a common factor."""
        native = _native(self)
        check_ratio(native)
        return native.as_integer_ratio()

    def __hash__(self) -> int:
        native = _native(self)
        METER.charge(4 + (words_of(native) >> 1))
        # Not-a-number hashes by its address.
        return METER.serial(self) if native.is_qnan() else hash(native)

    def __bool__(self) -> bool:
        return bool(_native(self))

    def __int__(self) -> int:
        check_written(_native(self))
        return int(_native(self))

    __trunc__ = __int__

    def __floor__(self) -> int:
        check_written(_native(self))
        return math.floor(_native(self))

    def __ceil__(self) -> int:
        check_written(_native(self))
        return math.ceil(_native(self))

    def __round__(self, n: Any = None) -> Any:
        native, n = _native(self), plain(n)
        if n is None:
            check_written(native)
            return round(native)
        if type(n) is not int:
            raise TypeError("optional argument must be an integer")
        return _made(round(native, n))

    def __float__(self) -> float:
        native = _native(self)
        METER.charge(4 + words_of(native))
        return float(native)

    def __complex__(self) -> complex:
        return complex(float(self))

    def __repr__(self) -> str:
        return f"Decimal('{_text(self)}')"

    def __str__(self) -> str:
        return _text(self)

    def __format__(self, spec: str) -> str:
        return _format(_native(self), spec)


def _native(value: Any) -> decimal.Decimal:
    """The native number that ``value`` holds. Raises TypeError for anything else."""
    METER.charge(1)
    if METER.decimal is not _active or _active is None:
        _getcontext()
    if not isinstance(value, Decimal):
        raise TypeError("descriptor requires a 'decimal.Decimal' object but received another")
    return value._native  # type: ignore[no-any-return]


native_number = _native


def _made(native: decimal.Decimal) -> Any:
    """A number for the program."""
    number: Any = object.__new__(Decimal)
    number._native = native
    return number


def of_native(value: Any) -> Any:
    """A native result: numbers of ``decimal`` as the program's, anything else as it is."""
    return _made(value) if type(value) is decimal.Decimal else value


def _text(number: Any) -> str:
    native = _native(number)
    METER.check_characters((words_of(native) + 2) * DIGITS_PER_WORD)
    METER.charge(words_of(native) >> 1)
    return str(native)


def _format(number: decimal.Decimal, spec: str) -> str:
    """``format(number, spec)``: a fixed-point format writes the exponent out."""
    check_spec(spec)
    size = words_of(number) * DIGITS_PER_WORD
    if number.is_finite() and spec.rstrip()[-1:] in ("f", "F", "%"):
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        places = 0 if "." in spec else max(-exponent, 0)  # places that the format names are checked already
        size = len(digits) + max(number.adjusted(), 0) + places
    METER.check_characters(size << 1)
    METER.charge(size >> 3)
    return format(number, spec)


def _real(value: Any) -> Any:
    """Argument of ``from_float``."""
    if type(value) is int:
        charge_integer(value)
        return value
    if type(value) is float or type(value) is bool:
        return value
    raise TypeError("argument must be int or float.")


def _readable(value: Any) -> Any:
    """What a number is to be made of, in a form that native code may read.

    Raises TypeError for what no number can be made of.
    """
    if isinstance(value, Decimal):
        return _native(value)
    if isinstance(value, int):
        value = plain(value)
        charge_integer(value)
        return value
    if type(value) is str:
        check_digits(len(value))
        METER.charge(len(value) >> 4)
        return value
    if type(value) is float:
        return value
    if type(value) is list or isinstance(value, tuple):
        return _parts(value)
    raise TypeError(f"conversion from {class_name(type(value))} to Decimal is not supported")


def _parts(value: Any) -> Any:
    """Sign, digits and exponent as plain values."""
    if len(value) != 3:
        raise ValueError("argument must be a sequence of length 3")
    parts = list(plain_tuple(value)) if isinstance(value, Record) else list(value)
    if type(parts[1]) is list or isinstance(parts[1], tuple):
        digits = parts[1]
        check_digits(len(digits))
        METER.charge(len(digits) >> 2)
        parts[1] = tuple(digits) if type(digits) in (list, tuple) else plain_tuple(digits)
    for part in (*parts[:1], *parts[2:]):
        if type(part) not in (int, str, bool):
            raise ValueError("a tuple for a Decimal holds a sign, a tuple of digits and an exponent")
    return tuple(parts)


def _operand(value: Any) -> decimal.Decimal | None:
    """The native number of an operand; None if it is neither a Decimal nor an integer."""
    if type(value) is Decimal:
        return value._native  # type: ignore[no-any-return]
    if isinstance(value, Decimal):
        return _native(value)
    if isinstance(value, int):
        value = plain(value)
        charge_integer(value)
        return decimal.Decimal(value)
    return None


def _operand_of(value: Any) -> decimal.Decimal:
    """The native number of an argument. Raises TypeError if it is no number."""
    number = _operand(value)
    if number is None:
        raise TypeError(f"conversion from {class_name(type(value))} to Decimal is not supported")
    return number


# ------------------------------------------------------------------ operators and methods


def _current_places() -> int:
    return places_of(decimal.getcontext().prec)


_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "divmod": "divmod()"}


def _no_operand(symbol: str, other: Any, reflected: bool) -> Any:
    """The answer to an operand that is no number: the other's turn if it is the program's, else Python's error."""
    if type(type(other)) is GuestMeta:
        return NotImplemented
    kinds = ["decimal.Decimal", class_name(type(other))]
    first, second = reversed(kinds) if reflected else kinds
    raise TypeError(f"unsupported operand type(s) for {symbol}: '{first}' and '{second}'")


def _binary(name: str, reflected: bool, cost: Cost) -> Callable[..., Any]:
    """An arithmetic operator, and what it costs."""
    native = getattr(decimal.Decimal, f"__{'r' if reflected else ''}{name}__")

    def method(self: Any, other: Any) -> Any:
        a, b = _native(self), _operand(other)
        if b is None:
            return _no_operand(_SYMBOLS[name], other, reflected)
        words = [words_of(b), words_of(a)] if reflected else [words_of(a), words_of(b)]
        METER.charge(cost(words, _current_places()))
        result = native(a, b)
        return tuple(map(_made, result)) if type(result) is tuple else of_native(result)

    return method


def _raise(reflected: bool) -> Callable[..., Any]:
    def method(self: Any, other: Any, modulo: Any = None) -> Any:
        a, b = _native(self), _operand(other)
        if b is None:
            return _no_operand("** or pow()", other, reflected)
        if modulo is not None:
            return _getcontext().power(self, other, modulo)
        base, exponent = (b, a) if reflected else (a, b)
        charge_power(base, exponent, _current_places())
        return _made(base**exponent)

    return method


def _unary(name: str) -> Callable[..., Any]:
    native = getattr(decimal.Decimal, f"__{name}__")

    def method(self: Any) -> Any:
        number = _native(self)
        METER.charge(linear([words_of(number)], 0))
        return _made(native(number))

    return method


def _comparison(name: str) -> Callable[..., Any]:
    """A comparison with a number of any kind, exact."""
    native = getattr(decimal.Decimal, f"__{name}__")

    def method(self: Any, other: Any) -> Any:
        a: decimal.Decimal = _native(self)
        b: Any = _operand(other)
        if b is not None:
            METER.charge(5 + ((words_of(a) + words_of(b)) >> 3))
        elif type(other) is float or (type(other) is complex and name in ("eq", "ne")):
            METER.charge(8 + (words_of(a) >> 3))
            b = other
        elif type(other) is fractions.Fraction:
            for part in (other.numerator, other.denominator):
                charge_integer(part)
                METER.charge(20 + product(words_of(a), (part.bit_length() >> 5) + 1))
            b = other
        else:
            return NotImplemented
        return native(a, b)

    return method


_OPERATORS: dict[str, Cost] = {
    "add": linear,
    "sub": linear,
    "mul": multiplying,
    "truediv": dividing,
    "floordiv": dividing,
    "mod": dividing,
    "divmod": dividing,
}
for _name, _cost in _OPERATORS.items():
    type.__setattr__(Decimal, f"__{_name}__", _binary(_name, False, _cost))
    type.__setattr__(Decimal, f"__r{_name}__", _binary(_name, True, _cost))
for _name in ("neg", "pos", "abs"):
    type.__setattr__(Decimal, f"__{_name}__", _unary(_name))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    type.__setattr__(Decimal, f"__{_name}__", _comparison(_name))
type.__setattr__(Decimal, "__pow__", _raise(reflected=False))
type.__setattr__(Decimal, "__rpow__", _raise(reflected=True))


def _argument(value: Any) -> Any:
    """An argument of a method as native code takes it."""
    if isinstance(value, Context):
        return _context(value)
    if value is None or (type(value) is str and len(value) < 32):
        return value
    return _operand_of(value)


def _method(name: str, cost: Cost) -> Callable[..., Any]:
    """A method of numbers: its operands are numbers, but for a way to round and a context."""
    native = getattr(decimal.Decimal, name)

    def method(self: Any, *arguments: Any, **names: Any) -> Any:
        number = _native(self)
        given = [_argument(value) for value in arguments]
        options = {key: _argument(value) for key, value in names.items()}
        operands, precision = [number], decimal.getcontext().prec
        for value in (*given, *options.values()):
            if type(value) is decimal.Decimal:
                operands.append(value)
            elif type(value) is decimal.Context:
                precision = max(precision, value.prec)
        METER.charge(cost(list(map(words_of, operands)), places_of(precision)))
        return of_native(native(number, *given, **options))

    method.__name__ = name
    return method


def _function(name: str, cost: Cost) -> Callable[..., Any]:
    """A function of a context: the same operations under its settings."""
    native = getattr(decimal.Context, name)

    def function(self: Any, *arguments: Any, **names: Any) -> Any:
        context = _context(self)
        given = [_argument(value) for value in arguments]
        options = {key: _argument(value) for key, value in names.items()}
        operands = [value for value in (*given, *options.values()) if type(value) is decimal.Decimal]
        if operands:
            METER.charge(cost(list(map(words_of, operands)), places_of(context.prec)))
        result = native(context, *given, **options)
        return tuple(map(_made, result)) if type(result) is tuple else of_native(result)

    function.__name__ = name
    return function


_ON_DIGITS = (
    "canonical compare compare_signal compare_total compare_total_mag copy_abs copy_negate copy_sign is_canonical "
    "is_finite is_infinite is_nan is_normal is_qnan is_signed is_snan is_subnormal is_zero logb logical_and "
    "logical_invert logical_or logical_xor max max_mag min min_mag next_minus next_plus next_toward normalize "
    "number_class quantize radix rotate same_quantum scaleb shift to_eng_string to_integral_exact to_integral_value"
)
_OPERATIONS: dict[str, Cost] = dict.fromkeys(_ON_DIGITS.split(), linear)
_OPERATIONS |= {"exp": in_series, "ln": in_series, "log10": in_series, "sqrt": rooting}
_OPERATIONS |= {"fma": adding_and_multiplying, "remainder_near": dividing}
_OF_NUMBERS: dict[str, Cost] = {"adjusted": linear, "conjugate": linear, "to_integral": linear}
_OF_CONTEXTS: dict[str, Cost] = dict.fromkeys(("abs", "add", "minus", "plus", "subtract", "to_sci_string"), linear)
_OF_CONTEXTS |= dict.fromkeys(("divide", "divide_int", "divmod", "remainder"), dividing)
_OF_CONTEXTS["multiply"] = multiplying
for _name, _cost in (_OPERATIONS | _OF_NUMBERS).items():
    type.__setattr__(Decimal, _name, _method(_name, _cost))
for _name, _cost in (_OPERATIONS | _OF_CONTEXTS).items():
    type.__setattr__(Context, _name, _function(_name, _cost))

_TUPLE = make_record("DecimalTuple", ("sign", "digits", "exponent"), module="decimal")
define(
    "decimal",
    {name: getattr(decimal, name) for name in dir(decimal) if name.startswith("ROUND_")}
    | {signal.__name__: signal for signal in _SIGNALS}
    | {
        "Context": Context,
        "Decimal": Decimal,
        "DecimalException": decimal.DecimalException,
        "DecimalTuple": _TUPLE,
        "HAVE_THREADS": True,
        "MAX_EMAX": decimal.MAX_EMAX,
        "MAX_PREC": decimal.MAX_PREC,
        "MIN_EMIN": decimal.MIN_EMIN,
        "MIN_ETINY": decimal.MIN_ETINY,
        "getcontext": _getcontext,
        "localcontext": _localcontext,
        "setcontext": _setcontext,
    },
)
