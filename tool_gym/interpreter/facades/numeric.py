"""``math``, ``cmath``, ``random`` and ``statistics`` for programs, and the place of ``fractions``."""

from __future__ import annotations

import cmath
import collections
import decimal
import fractions
import functools
import importlib
import math
import operator
import random
import statistics
import sys
from collections.abc import Callable
from typing import Any

from ..attributes import READERS, expect
from ..guards import Standin, add, consumed, mul, take_all
from ..meter import METER
from ..modules import define
from ..values import BIG, LEAST, GuestMeta, check_key, class_name, register_text
from .decimals import Decimal, native_number, of_native
from .records import Record, make_record, plain_tuple

if sys.version_info >= (3, 12):
    importlib.import_module("_pylong")  # divides long integers there; a worker, which needs it, can import nothing

_NUMBERS: frozenset[type] = frozenset({int, float, bool, fractions.Fraction})

# ------------------------------------------------------------------ math and cmath


def whole(value: Any) -> Any:
    """An argument that should be an integer: exactly one if the program's class has ``__index__``."""
    return operator.index(value) if type(type(value)) is GuestMeta else value


def _words(value: int) -> int:
    return (value.bit_length() >> 6) + 1


def _factorial(n: Any) -> int:
    n = whole(n)
    if type(n) is int and n > 20:
        METER.charge(n.bit_length() >> 9)
        bits = int(n * (math.log2(n) - 1.44)) + 32 if n < 1 << 40 else n
        METER.check_bits(bits)
        METER.charge((bits >> 6) ** 2 >> 6)
    return math.factorial(n)


def _arrangements(n: Any, k: Any, native: Callable[[Any, Any], int]) -> int:
    """``comb`` and ``perm``: the result has at most k·log2(n) bits."""
    n, k = whole(n), whole(k)
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
    return _arrangements(n, k, math.comb)


def _perm(n: Any, k: Any = None) -> int:
    return _factorial(n) if k is None else _arrangements(n, k, math.perm)


def _gcd(*values: Any) -> int:
    values = tuple(map(whole, values))
    METER.charge(1 + len(values))
    for value in values:
        if type(value) is int and not LEAST < value < BIG:
            METER.charge(_words(value) ** 2 >> 3)
    return math.gcd(*values)


def _lcm(*values: Any) -> int:
    values = tuple(map(whole, values))
    METER.check_bits(sum(value.bit_length() for value in values if type(value) is int))
    METER.charge(sum(_words(value) for value in values if type(value) is int) ** 2 >> 3)
    return math.lcm(*values)


def _isqrt(n: Any) -> int:
    n = whole(n)
    if type(n) is int and not LEAST < n < BIG:
        METER.charge(_words(n) ** 2 >> 4)
    return math.isqrt(n)


def _prod(values: Any, *, start: Any = 1) -> Any:
    total = start
    for value in consumed(values):
        METER.left -= 1
        total = mul(total, value)
    METER.charge(0)
    return total


def _fsum(values: Any) -> float:
    return math.fsum(_charged(take_all(values)))


def _dist(p: Any, q: Any) -> float:
    return math.dist(_charged(take_all(p)), _charged(take_all(q)))


def _sumprod(p: Any, q: Any) -> Any:
    first, second = take_all(p), take_all(q)
    kinds = set(map(type, first)) | set(map(type, second))
    if float in kinds and kinds <= {float, int, bool}:
        return math.sumprod(_charged(first), _charged(second))  # type: ignore[attr-defined]
    if len(first) != len(second):
        raise ValueError("Inputs are not the same length")
    total: Any = 0
    for a, b in zip(first, second, strict=True):
        METER.charge(1)
        total = add(total, mul(a, b))
    return total


def _charged(values: Any) -> Any:
    """Numbers that native code will make floats of; the big ones are charged for."""
    for value in values:
        kind = type(value)
        if kind is int:
            if not LEAST < value < BIG:
                METER.charge(value.bit_length() >> 10)
        elif kind is fractions.Fraction:
            words = (value.numerator.bit_length() + value.denominator.bit_length()) >> 6
            METER.charge(4 + (words * words >> 8))
    return values


def _of_numbers(module: Any, name: str) -> Any:
    """A function of the module as it is, but that big numbers are charged for; a constant."""
    native = getattr(module, name)
    if not callable(native):
        return native

    def function(*values: Any, **names: Any) -> Any:
        _charged(values)
        return native(*values, **names)

    function.__name__ = name
    return function


_MATH_NATIVE = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh degrees e erf erfc exp exp2 expm1 fabs floor "
    "fma fmod frexp gamma hypot inf isclose isfinite isinf isnan ldexp lgamma log log10 log1p log2 modf nan nextafter "
    "pi pow radians remainder sin sinh sqrt tan tanh tau trunc ulp"
)
_CMATH_NATIVE = (
    "acos acosh asin asinh atan atanh cos cosh e exp inf infj isclose isfinite isinf isnan log log10 nan nanj phase pi "
    "polar rect sin sinh sqrt tan tanh tau"
)
define(
    "math",
    {name: _of_numbers(math, name) for name in _MATH_NATIVE.split() if hasattr(math, name)}
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
    }
    | ({"sumprod": _sumprod} if hasattr(math, "sumprod") else {}),
)
define("cmath", {name: _of_numbers(cmath, name) for name in _CMATH_NATIVE.split()})
define("fractions", {})


# ------------------------------------------------------------------ random


class _Twister(random.Random):
    """Python's generator, but that each draw is charged: with odd parameters a distribution may draw for ever."""

    def random(self) -> float:
        METER.charge(1)
        return super().random()

    def getrandbits(self, k: int) -> int:
        METER.charge(1 + (k >> 6))
        return super().getrandbits(k)


_Twister("a text")  # what hashing a seed takes is imported now: a worker can import nothing


class Generator:
    """A random number generator of a program: a Mersenne Twister with a fixed seed unless it sets another."""

    __slots__ = ("native",)

    def __init__(self, x: Any = 0) -> None:
        self.native = _Twister(_seed(x))


def _seed(seed: Any) -> Any:
    """A seed that gives the same draws everywhere: None, the clock in Python, is zero here."""
    METER.charge(50)
    if seed is None:
        return 0
    if type(seed) is str or type(seed) is bytes:
        METER.check_characters(len(seed) << 2)
        return seed
    if type(seed) is int:
        METER.charge(seed.bit_length() >> 5)
        return seed
    if type(seed) in (float, bool):
        return seed
    raise TypeError("The only supported seed types are: None, int, float, str and bytes.")


def _current() -> random.Random:
    """The generator behind the functions of the module: made anew for each call."""
    if METER.random is None:
        METER.random = _Twister(0)
    assert isinstance(METER.random, random.Random)
    return METER.random


def _sequence(items: Any, message: str) -> Any:
    """``items`` if native code may index it. Raises TypeError with ``message`` if it is no sequence."""
    if isinstance(items, Record):
        return plain_tuple(items)
    if type(items) not in (list, tuple, str, bytes, range):
        raise TypeError(message)
    return items


def _population(items: Any) -> Any:
    return _sequence(items, "Population must be a sequence.  For dicts or sets, use sorted(d).")


def _choice(rng: random.Random, seq: Any) -> Any:
    if type(seq) is collections.deque:
        METER.charge(len(seq) >> 9)
        return rng.choice(seq)
    if type(type(seq)) is GuestMeta and not isinstance(seq, Record):
        return rng.choice(seq)  # by its own __len__ and __getitem__
    return rng.choice(_sequence(seq, f"'{class_name(type(seq))}' object is not a sequence"))


def _choices(
    rng: random.Random, population: Any, weights: Any = None, *, cum_weights: Any = None, k: Any = 1
) -> list[Any]:
    k = whole(k)
    if type(k) is int:
        METER.check_items(max(k, 0))
        METER.charge(max(k, 0))
    population = _population(population)
    return rng.choices(population, _weights(weights), cum_weights=_weights(cum_weights), k=k)


def _weights(weights: Any) -> list[Any] | None:
    """Weights as a list, charged. Raises TypeError for what is no number: sums of texts or lists grow."""
    if weights is None:
        return None
    items = take_all(weights)
    if any(type(item) not in _NUMBERS for item in items):
        raise TypeError("The weights must be numbers")
    found: list[Any] = _charged(items)
    return found


def _sample(rng: random.Random, population: Any, k: Any, *, counts: Any = None) -> list[Any]:
    k = whole(k)
    if type(k) is int:
        METER.check_items(max(k, 0))
        METER.charge(max(k, 0) << 2)
    population = _population(population)
    if counts is None:
        return rng.sample(population, k)
    counts = take_all(counts)
    if any(type(count) is not int for count in counts):
        raise TypeError("Counts must be integers")
    METER.check_items(len(population))
    return rng.sample(population, k, counts=_charged(counts))


def _shuffle(rng: random.Random, x: Any) -> None:
    expect(x, list, "shuffle")
    METER.check_items(len(x))
    METER.charge(len(x) << 1)
    rng.shuffle(x)


def _randbits(rng: random.Random, k: Any) -> int:
    k = whole(k)
    if type(k) is int:
        METER.check_bits(k)
    return rng.getrandbits(k)


def _randbytes(rng: random.Random, n: Any) -> bytes:
    n = whole(n)
    expect(n, int, "randbytes")
    METER.check_bits(max(n, 0) << 3)
    return rng.randbytes(n)


def _reseed(rng: random.Random, a: Any = None, version: Any = 2) -> None:
    if version != 2:
        METER.refuse("random.seed of another version")
    rng.seed(_seed(a))


def _draw(name: str) -> Callable[..., Any]:
    native = getattr(random.Random, name)

    def draw(rng: random.Random, *arguments: Any, **names: Any) -> Any:
        METER.charge(4)
        for argument in (*arguments, *names.values()):
            if type(argument) is int:
                METER.charge(argument.bit_length() >> 5)
            elif type(argument) is str or type(argument) is bytes:
                METER.charge(len(argument) >> 4)  # an error will show it
            elif type(argument) is fractions.Fraction:
                _charged((argument,) * 8)
        return native(rng, *arguments, **names)

    return draw


_DRAWS = (
    "random uniform triangular betavariate binomialvariate expovariate gammavariate gauss lognormvariate "
    "normalvariate paretovariate randint randrange vonmisesvariate weibullvariate"
)
_RANDOM: dict[str, Callable[..., Any]] = {
    name: _draw(name) for name in _DRAWS.split() if hasattr(random.Random, name)
} | {
    "choice": _choice,
    "choices": _choices,
    "getrandbits": _randbits,
    "randbytes": _randbytes,
    "sample": _sample,
    "seed": _reseed,
    "shuffle": _shuffle,
}


def _of_module(method: Callable[..., Any]) -> Callable[..., Any]:
    def function(*arguments: Any, **names: Any) -> Any:
        return method(_current(), *arguments, **names)

    return function


def _generator_attribute(generator: Generator, name: str) -> Any:
    if name in _RANDOM:
        return functools.partial(_RANDOM[name], generator.native)
    if hasattr(random.Random, name):
        METER.refuse(f"the attribute {name!r} of random generators")
    raise AttributeError(f"'Random' object has no attribute {name!r}")


READERS[Generator] = _generator_attribute
register_text(Generator, lambda _: "<random.Random object>")
define(
    "random",
    {name: _of_module(method) for name, method in _RANDOM.items()}
    | {"Random": Standin(Generator, Generator, name="Random")},
)


# ------------------------------------------------------------------ statistics


def _exact(value: Any, name: str) -> Any:
    """A number as the native module takes it. Raises TypeError for what is no number."""
    kind = type(value)
    if kind is int and not LEAST < value < BIG:
        METER.refuse(f"statistics.{name} of integers beyond 1024 bits")
    if kind in _NUMBERS:
        return value
    if isinstance(value, Decimal):
        return native_number(value)
    if isinstance(value, int):
        return whole(value)
    raise TypeError(f"can't convert type '{class_name(kind)}' to numerator/denominator")


def _decimal_words(value: decimal.Decimal) -> int:
    """64-bit words of a number as an exact ratio."""
    if not value.is_finite():
        return 1
    _, digits, exponent = value.as_tuple()
    METER.charge(1 + (len(digits) >> 3))
    bits = (len(digits) + abs(int(exponent))) << 2
    METER.check_bits(bits)
    return 1 + (bits >> 6)


def _charge_ratios(values: list[Any]) -> None:
    """Charge for sums of exact ratios: denominators are multiplied unless they are powers of ten."""
    fractional = [value for value in values if type(value) is fractions.Fraction]
    words = sum(value.numerator.bit_length() + value.denominator.bit_length() for value in fractional) >> 6
    METER.charge(len(fractional) * (1 + (words * words >> 4)))
    tenths = [_decimal_words(value) for value in values if type(value) is decimal.Decimal]
    if tenths:
        METER.charge(len(tenths) * (4 + (max(tenths) ** 2 >> 2)))


def _argument(value: Any, name: str) -> Any:
    """An argument of a function of the module: a number, or data as a list, charged."""
    if value is None:
        return value
    if type(value) in _NUMBERS or isinstance(value, (Decimal, int)):
        number = _exact(value, name)
        _charge_ratios([number])
        return number
    items = take_all(value)
    METER.charge(20 * len(items))
    if name in _OF_ANYTHING and not all(type(item) in _NUMBERS for item in items):
        for item in items:
            check_key(item)
        return items
    items = [_exact(item, name) for item in items]
    _charge_ratios(items)
    return items


_SWITCHES: frozenset[str] = frozenset({"method", "proportional"})
_OF_ANYTHING: frozenset[str] = frozenset({"mode", "multimode"})


def _result(value: Any) -> Any:
    """A native result: the numbers of ``decimal`` as the program's, named tuples as ours."""
    if type(value) is list:
        return [of_native(item) for item in value]
    if type(value) is getattr(statistics, "LinearRegression", None):
        return _LINE(*value)
    return of_native(value)


_LINE = make_record("LinearRegression", ("slope", "intercept"), module="statistics")


def _statistic(name: str) -> Callable[..., Any]:
    """A function of data: exact, in pure Python, and slow, so each item costs more than a step."""
    native = getattr(statistics, name)

    def statistic(*arguments: Any, **names: Any) -> Any:
        METER.charge(20)
        given = [_argument(value, name) for value in arguments]
        options = {key: value if key in _SWITCHES else _argument(value, name) for key, value in names.items()}
        for key in _SWITCHES & names.keys():
            if type(names[key]) not in (str, bool):
                raise TypeError(f"{key} must be a string or a boolean")
        return _result(native(*given, **options))

    return statistic


def _quantiles(data: Any, *, n: Any = 4, method: Any = "exclusive") -> list[Any]:
    n = whole(n)
    if type(n) is int:
        METER.check_items(max(n, 0))
        METER.charge(max(n, 0) << 3)
    if type(method) is not str or method not in ("exclusive", "inclusive"):
        raise ValueError("Unknown method: it is 'exclusive' or 'inclusive'")
    native: Any = statistics.quantiles
    found: list[Any] = _result(native(_argument(data, "quantiles"), n=n, method=method))
    return found


_STATISTICS = (
    "correlation covariance fmean geometric_mean harmonic_mean linear_regression mean median median_grouped "
    "median_high median_low mode multimode pstdev pvariance stdev variance"
)
define(
    "statistics",
    {name: _statistic(name) for name in _STATISTICS.split()}
    | {"StatisticsError": statistics.StatisticsError, "quantiles": _quantiles},
)
