"""The standard modules that programs may use, but for ``math`` (modules.py) and ``re`` (regex.py).

Each function is either native and of bounded cost, or written here so that it charges for what it does. Whatever
yields without end is a generator that charges for each item.
"""

from __future__ import annotations

import bisect
import collections
import copy
import fractions
import functools
import heapq
import itertools
import json
import operator
import random
import statistics
import string
from collections.abc import Callable, Iterator
from typing import Any

from .attributes import READERS, WITHHELD, expect, sort
from .guards import HOOKS, ITEM_GETTERS, MAKING, Standin, add, counted, getitem, take_all
from .meter import METER
from .modules import define
from .values import (
    BIG,
    CONTAINERS,
    LEAST,
    MAPPINGS,
    SCALARS,
    GuestMeta,
    check_key,
    class_name,
    register_text,
    to_str,
    weigh,
)

# ------------------------------------------------------------------ random


class Generator:
    """A random number generator of a program: a Mersenne Twister with a fixed seed unless it sets another."""

    __slots__ = ("native",)

    def __init__(self, seed: Any = 0) -> None:
        self.native = random.Random(_seed(seed))


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
        METER.random = random.Random(0)
    assert isinstance(METER.random, random.Random)
    return METER.random


def _population(items: Any) -> Any:
    if type(items) not in (list, tuple, str, range):
        raise TypeError("Population must be a sequence.")
    return items


def _choice(rng: random.Random, items: Any) -> Any:
    if type(items) not in (list, tuple, str, range):
        raise TypeError(f"'{class_name(type(items))}' object is not a sequence")
    return rng.choice(items)


def _choices(rng: random.Random, items: Any, weights: Any = None, *, cum_weights: Any = None, k: Any = 1) -> list[Any]:
    if type(k) is int:
        METER.check_items(max(k, 0))
        METER.charge(max(k, 0))
    items = _population(items)
    weights = None if weights is None else take_all(weights)
    return rng.choices(items, weights, cum_weights=None if cum_weights is None else take_all(cum_weights), k=k)


def _sample(rng: random.Random, items: Any, k: Any, *, counts: Any = None) -> list[Any]:
    if counts is not None:
        METER.refuse("random.sample with counts")
    if type(k) is int:
        METER.check_items(max(k, 0))
        METER.charge(max(k, 0) << 3)
    return rng.sample(_population(items), k)


def _shuffle(rng: random.Random, items: Any) -> None:
    expect(items, list, "shuffle")
    METER.check_items(len(items))
    METER.charge(len(items) << 2)
    rng.shuffle(items)


def _randbits(rng: random.Random, k: Any) -> int:
    if type(k) is int:
        METER.check_bits(k)
        METER.charge(k >> 6)
    return rng.getrandbits(k)


def _reseed(rng: random.Random, seed: Any = None) -> None:
    rng.seed(_seed(seed))


def _draw(name: str) -> Callable[..., Any]:
    native = getattr(random.Random, name)

    def draw(rng: random.Random, *arguments: Any, **names: Any) -> Any:
        METER.charge(4)
        for argument in arguments:
            if type(argument) is int:
                METER.charge(argument.bit_length() >> 5)
            elif type(argument) is str or type(argument) is bytes:
                METER.charge(len(argument) >> 4)  # an error will show it
        return native(rng, *arguments, **names)

    return draw


_DRAWS = "random uniform triangular betavariate expovariate gammavariate gauss lognormvariate normalvariate"
_RANDOM: dict[str, Callable[..., Any]] = {
    name: _draw(name) for name in [*_DRAWS.split(), "randint", "randrange", "paretovariate", "vonmisesvariate"]
} | {
    "choice": _choice,
    "choices": _choices,
    "getrandbits": _randbits,
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


# ------------------------------------------------------------------ itertools


def _count(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    while True:
        METER.charge(1)
        yield start
        start = add(start, step)


def _cycle(items: Any) -> Iterator[Any]:
    saved = take_all(items)
    while saved:
        for item in saved:
            METER.charge(1)
            yield item


def _repeat(item: Any, times: Any = None) -> Iterator[Any]:
    for _ in itertools.count() if times is None else range(times):
        METER.charge(1)
        yield item


def _chain(*iterables: Any) -> Iterator[Any]:
    for items in iterables:
        yield from counted(items)


def _chain_from(iterables: Any) -> Iterator[Any]:
    for items in counted(iterables):
        yield from counted(items)


def _costed(native: Iterator[tuple[Any, ...]], size: int) -> Iterator[Any]:
    """Tuples of ``size`` from a native iterator, charged."""
    cost = 1 + (size >> 3)
    for item in native:
        METER.charge(cost)
        yield item


def _product(*iterables: Any, repeat: Any = 1) -> Iterator[Any]:
    pools = [take_all(items) for items in iterables]
    if type(repeat) is int:
        METER.check_items(len(pools) * max(repeat, 0))
    return _costed(itertools.product(*pools, repeat=repeat), len(pools) * repeat)


def _arranged(native: Callable[..., Any]) -> Callable[..., Any]:
    def arrange(items: Any, r: Any = None) -> Iterator[Any]:
        pool = take_all(items)
        if r is None:
            if native is not itertools.permutations:
                raise TypeError("combinations() missing required argument 'r'")
            r = len(pool)
        if type(r) is int:
            METER.check_items(max(r, 0))
        return _costed(native(pool, r), r)

    return arrange


def _accumulate(items: Any, func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    source = counted(items)
    total = initial
    if initial is None:
        try:
            total = next(source)
        except StopIteration:
            return
    yield total
    for item in source:
        total = add(total, item) if func is None else func(total, item)
        yield total


def _islice(items: Any, *bounds: Any) -> Iterator[Any]:
    yield from itertools.islice(items if hasattr(type(items), "__next__") else counted(items), *bounds)


def _takewhile(predicate: Any, items: Any) -> Iterator[Any]:
    yield from itertools.takewhile(predicate, counted(items))


def _dropwhile(predicate: Any, items: Any) -> Iterator[Any]:
    yield from itertools.dropwhile(predicate, counted(items))


def _filterfalse(predicate: Any, items: Any) -> Iterator[Any]:
    yield from itertools.filterfalse(predicate, counted(items))


def _starmap(function: Any, items: Any) -> Iterator[Any]:
    for arguments in counted(items):
        yield function(*take_all(arguments))


def _compress(items: Any, selectors: Any) -> Iterator[Any]:
    yield from itertools.compress(counted(items), counted(selectors))


def _pairwise(items: Any) -> Iterator[Any]:
    yield from itertools.pairwise(counted(items))


def _batched(items: Any, n: Any) -> Iterator[Any]:
    if type(n) is not int or n < 1:
        raise ValueError("n must be at least one")
    source = counted(items)
    while batch := tuple(itertools.islice(source, n)):
        yield batch


def _zip_longest(*iterables: Any, fillvalue: Any = None) -> Iterator[Any]:
    yield from itertools.zip_longest(*[counted(items) for items in iterables], fillvalue=fillvalue)


def _groupby(items: Any, key: Any = None) -> Iterator[Any]:
    group: list[Any] = []
    current: Any = None
    for item in counted(items):
        value = item if key is None else key(item)
        if group and not HOOKS["_eq_"](value, current):
            yield current, iter(group)
            group = []
        current = value
        group.append(item)
    if group:
        yield current, iter(group)


def _tee(items: Any, n: Any = 2) -> tuple[Any, ...]:
    expect(n, int, "tee")
    saved = take_all(items)
    METER.check_items(len(saved) * n)
    return tuple(iter(list(saved)) for _ in range(n))


define(
    "itertools",
    {
        "accumulate": _accumulate,
        "batched": _batched,
        "chain": Standin(itertools.chain, _chain, {"from_iterable": _chain_from}),
        "combinations": _arranged(itertools.combinations),
        "combinations_with_replacement": _arranged(itertools.combinations_with_replacement),
        "compress": _compress,
        "count": _count,
        "cycle": _cycle,
        "dropwhile": _dropwhile,
        "filterfalse": _filterfalse,
        "groupby": _groupby,
        "islice": _islice,
        "pairwise": _pairwise,
        "permutations": _arranged(itertools.permutations),
        "product": _product,
        "repeat": _repeat,
        "starmap": _starmap,
        "takewhile": _takewhile,
        "tee": _tee,
        "zip_longest": _zip_longest,
    },
)


# ------------------------------------------------------------------ functools and operator

_MISSING = object()


def _reduce(function: Any, items: Any, initial: Any = _MISSING) -> Any:
    source = counted(items)
    total = next(source, _MISSING) if initial is _MISSING else initial
    if total is _MISSING:
        raise TypeError("reduce() of empty iterable with no initial value")
    for item in source:
        total = function(total, item)
    return total


def _cached(function: Any, maxsize: int | None) -> Any:
    """A memory of results by arguments, the oldest forgotten beyond ``maxsize``."""
    results: dict[Any, Any] = {}

    def cached(*arguments: Any, **names: Any) -> Any:
        METER.charge(1)
        key = (arguments, tuple(names.items())) if names else arguments
        check_key(key)
        found = results.get(key, _MISSING)
        if found is _MISSING:
            found = function(*arguments, **names)
            if maxsize is not None and len(results) >= maxsize and results:
                del results[next(iter(results))]
            if maxsize != 0:
                results[key] = found
        return found

    cached.__name__ = "cached"
    return cached


def _lru_cache(maxsize: Any = 128, typed: Any = False) -> Any:
    if callable(maxsize):
        return _cached(maxsize, 128)
    if maxsize is not None and type(maxsize) is not int:
        raise TypeError("Expected first argument to be an integer, a callable, or None")
    return lambda function: _cached(function, maxsize)


def _partial(function: Any, /, *arguments: Any, **names: Any) -> Any:
    if not callable(function):
        raise TypeError("the first argument must be callable")

    def partial(*more: Any, **others: Any) -> Any:
        METER.charge(1)
        return function(*arguments, *more, **{**names, **others})

    return partial


class _Compared:
    """A sort key that compares by a function of two items."""

    __slots__ = ("function", "item")

    def __init__(self, function: Any, item: Any) -> None:
        self.function = function
        self.item = item

    def __lt__(self, other: Any) -> bool:
        METER.charge(1)
        return bool(self.function(self.item, other.item) < 0)


def _cmp_to_key(function: Any) -> Any:
    return lambda item: _Compared(function, item)


def _wraps(wrapped: Any, *ignored: Any, **others: Any) -> Any:
    return lambda function: function


define(
    "functools",
    {
        "cache": lambda function: _cached(function, None),
        "cmp_to_key": _cmp_to_key,
        "lru_cache": _lru_cache,
        "partial": _partial,
        "reduce": _reduce,
        "wraps": _wraps,
    },
)


def _itemgetter(*keys: Any) -> Any:
    if len(keys) == 1:
        return lambda container: getitem(container, keys[0])
    return lambda container: tuple(getitem(container, key) for key in keys)


_OPERATORS = {"add", "sub", "mul", "floordiv", "mod", "pow", "lshift", "eq", "ne", "lt", "le", "gt", "ge"}
define(
    "operator",
    {name: HOOKS[f"_{name}_"] for name in _OPERATORS}
    | {
        "abs": abs,
        "and_": HOOKS["_and_"],
        "contains": lambda items, needle: HOOKS["_in_"](needle, items),
        "getitem": getitem,
        "is_": operator.is_,
        "is_not": operator.is_not,
        "itemgetter": _itemgetter,
        "neg": HOOKS["_neg_"],
        "not_": operator.not_,
        "or_": HOOKS["_or_"],
        "pos": HOOKS["_pos_"],
        "truediv": HOOKS["_div_"],
        "truth": operator.truth,
        "xor": HOOKS["_xor_"],
    },
)


# ------------------------------------------------------------------ string


def _capwords(text: Any, sep: Any = None) -> str:
    if type(text) is not str:
        raise AttributeError(f"'{class_name(type(text))}' object has no attribute 'split'")
    METER.charge(len(text) >> 2)
    return str(string.capwords(text, sep))


class Template(metaclass=GuestMeta):
    """``string.Template``: programs may derive from it, and patterns of theirs run in the counted matcher."""

    delimiter = "$"
    idpattern = "[_a-zA-Z][_a-zA-Z0-9]*"
    pattern = WITHHELD
    flags = WITHHELD
    braceidpattern = WITHHELD

    def __init__(self, template: Any) -> None:
        self.template = template

    def substitute(self, mapping: Any = None, /, **names: Any) -> str:
        """Fill in the placeholders. Raises KeyError for one without a value, ValueError for a bad one."""
        return _fill(self, mapping, names, safe=False)

    def safe_substitute(self, mapping: Any = None, /, **names: Any) -> str:
        """Fill in what has a value and leave the rest."""
        return _fill(self, mapping, names, safe=True)


def _fill(template: Any, mapping: Any, names: dict[str, Any], safe: bool) -> str:
    from .regex import compile_pattern

    kind = type(template)
    text, delimiter, identifier = template.template, kind.delimiter, kind.idpattern
    for value in (text, delimiter, identifier):
        if type(value) is not str:
            raise TypeError("a template, its delimiter and its idpattern are strings")
    if any(getattr(kind, name) is not WITHHELD for name in ("pattern", "flags", "braceidpattern")):
        METER.refuse("a Template with a pattern of its own")
    if mapping is not None and type(mapping) not in MAPPINGS:
        raise TypeError("substitute() takes a mapping")
    matcher = compile_pattern(identifier, 0)
    parts: list[str] = []
    at = size = 0
    while (start := text.find(delimiter, at)) >= 0 and delimiter:
        METER.charge(1)
        parts.append(text[at:start])
        piece, at = _placeholder(matcher, text, start, delimiter, {**(mapping or {}), **names}, safe)
        parts.append(piece)
        size += len(piece)
        METER.check_characters(size)
    parts.append(text[at:])
    METER.check_characters(len(text) + size)
    return "".join(parts)


def _placeholder(
    matcher: Any, text: str, start: int, delimiter: str, values: dict[str, Any], safe: bool
) -> tuple[str, int]:
    """What stands for the placeholder at ``start``, and where the text goes on."""
    at = start + len(delimiter)
    if text.startswith(delimiter, at):
        return delimiter, at + len(delimiter)
    braced = text.startswith("{", at)
    found = matcher.match_at(text, at + braced)
    end = -1 if found is None else found[0]
    if end < 0 or (braced and not text.startswith("}", end)):
        if safe:
            return delimiter, at
        raise ValueError("Invalid placeholder in string")
    name = text[at + braced : end]
    end += braced
    if name not in values:
        if safe:
            return text[start:end], end
        raise KeyError(name)
    return to_str(values[name]), end


define(
    "string",
    {name: getattr(string, name) for name in dir(string) if type(getattr(string, name)) is str and name[0] != "_"}
    | {"Template": Template, "capwords": _capwords},
)


# ------------------------------------------------------------------ json

_JSON_KEYS: frozenset[type] = frozenset({str, int, float, bool, type(None)})


def _check_json(value: Any) -> None:
    """Charge for a walk over ``value``. Raises TypeError for what JSON does not know."""
    level = [value]
    while level:
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            METER.charge(1)
            if kind in MAPPINGS:
                METER.charge(len(item))
                for key in item:
                    if type(key) not in _JSON_KEYS:
                        raise TypeError(f"keys must be str, int, float, bool or None, not {class_name(type(key))}")
                deeper.extend(item.values())
            elif kind is list or kind is tuple:
                METER.charge(len(item))
                deeper.extend(item)
            elif kind is str:
                METER.check_characters(len(item) << 2)
            elif kind not in SCALARS or kind is complex:
                raise TypeError(f"Object of type {class_name(kind)} is not JSON serializable")
        level = deeper


def _dumps(
    value: Any, *, indent: Any = None, sort_keys: Any = False, separators: Any = None, ensure_ascii: Any = True
) -> str:
    _check_json(value)
    if indent is not None and type(indent) not in (int, str):
        raise TypeError("indent must be an integer or a string")
    if type(indent) is bool or (type(indent) is int and indent > 16) or (type(indent) is str and len(indent) > 16):
        METER.refuse("json.dumps with an indent of more than 16")
    if separators is not None:
        separators = tuple(take_all(separators))
        if len(separators) != 2 or any(type(mark) is not str or len(mark) > 16 for mark in separators):
            raise TypeError("separators must be two short strings")
    text = json.dumps(
        value, indent=indent, sort_keys=bool(sort_keys), separators=separators, ensure_ascii=bool(ensure_ascii)
    )
    METER.check_characters(len(text))
    return text


def _loads(text: Any) -> Any:
    if type(text) is bytes:
        text = text.decode("utf-8")
    expect(text, str, "loads")
    METER.check_characters(len(text))
    METER.charge(len(text) >> 3)
    return json.loads(text)


define("json", {"JSONDecodeError": json.JSONDecodeError, "dumps": _dumps, "loads": _loads})


# ------------------------------------------------------------------ statistics


def _statistic(name: str) -> Callable[..., Any]:
    """A function of one data set: exact, in pure Python, and slow, so each item costs more than a step."""
    native = getattr(statistics, name)

    def statistic(data: Any, *arguments: Any) -> Any:
        items = take_all(data)
        METER.charge(20 * len(items))
        fractional = [item for item in items if type(item) is fractions.Fraction]
        if fractional:
            # Sums of fractions multiply their denominators, and a deviation squares them.
            words = sum(item.numerator.bit_length() + item.denominator.bit_length() for item in fractional) >> 6
            METER.charge(len(fractional) * (1 + (words * words >> 4)))
        for item in items:
            if type(item) not in (int, float, bool, fractions.Fraction):
                if name not in ("mode", "multimode"):
                    raise TypeError(f"can't convert type '{class_name(type(item))}' to numerator/denominator")
                check_key(item)
            elif type(item) is int and not LEAST < item < BIG:
                METER.refuse(f"statistics.{name} of integers beyond 1024 bits")
        return native(items, *arguments)

    return statistic


_STATISTICS = (
    "fmean geometric_mean harmonic_mean mean median median_high median_low mode multimode pstdev pvariance stdev "
    "variance"
)
define(
    "statistics",
    {name: _statistic(name) for name in _STATISTICS.split()} | {"StatisticsError": statistics.StatisticsError},
)


# ------------------------------------------------------------------ heapq and bisect


def _charge_comparisons(item: Any, count: int) -> None:
    """Charge for comparing ``item`` with a logarithm of ``count`` others."""
    rounds = 1 + count.bit_length()
    kind = type(item)
    if kind is str or kind in CONTAINERS:
        before = METER.left
        weigh(item)
        METER.charge((before - METER.left) * rounds)
    METER.charge(rounds >> 1)


def _heap(name: str) -> Callable[..., Any]:
    native = getattr(heapq, name)

    def function(heap: Any, *item: Any) -> Any:
        expect(heap, list, name)
        if item:
            METER.check_items(0 if len(heap) < METER.items else len(heap) + 1)
            _charge_comparisons(item[0], len(heap))
        elif heap:
            if name == "heapify":
                for value in heap:
                    _charge_comparisons(value, 1)
            else:
                _charge_comparisons(heap[-1], len(heap))
        return native(heap, *item)

    return function


def _extreme_items(reverse: bool) -> Callable[..., Any]:
    def function(n: Any, items: Any, key: Any = None) -> list[Any]:
        taken = take_all(items)
        sort(taken, key, reverse)
        return taken[: max(0, n)]

    return function


define(
    "heapq",
    {name: _heap(name) for name in ("heapify", "heappop", "heappush", "heappushpop", "heapreplace")}
    | {"nlargest": _extreme_items(True), "nsmallest": _extreme_items(False)},
)


def _bisection(name: str) -> Callable[..., Any]:
    native = getattr(bisect, name)

    def function(items: Any, x: Any, *bounds: Any, key: Any = None) -> Any:
        expect(items, list, name)
        _charge_comparisons(x, len(items))
        if name.startswith("insort"):
            METER.charge(len(items) >> 6)
            METER.check_items(0 if len(items) < METER.items else len(items) + 1)
        return native(items, x, *bounds, key=key)

    return function


define(
    "bisect",
    {
        name: _bisection(name)
        for name in ("bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right")
    },
)


# ------------------------------------------------------------------ copy


def _copied(value: Any) -> Any:
    kind = type(value)
    METER.charge(1)
    if kind in CONTAINERS and kind is not tuple and kind is not frozenset:
        METER.check_items(len(value))
        METER.charge(MAKING.get(kind, 0))
        return copy.copy(value)
    if type(kind) is GuestMeta and not isinstance(value, BaseException):
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
    if kind is list:
        METER.check_items(len(value))
        twin: Any = []
        seen[id(value)] = twin
        twin.extend(_deeply(item, seen) for item in list(value))
        return twin
    if kind is tuple or kind is frozenset:
        return kind(_deeply(item, seen) for item in value)
    if kind in MAPPINGS or (type(kind) is GuestMeta and not isinstance(value, BaseException)):
        twin = _copied(value)
        seen[id(value)] = twin
        content = twin if kind in MAPPINGS else twin.__dict__ if kind.__dictoffset__ else {}
        for key, item in list(content.items()):
            content[key] = _deeply(item, seen)
        return twin
    if kind is collections.deque:
        METER.charge(MAKING[kind])
        seen[id(value)] = twin = collections.deque(maxlen=value.maxlen)
        twin.extend(_deeply(item, seen) for item in list(value))
        return twin
    if kind in CONTAINERS:
        return kind(_deeply(item, seen) for item in list(value))
    return value


def _deepcopy(value: Any) -> Any:
    return _deeply(value, {})


define("copy", {"copy": _copied, "deepcopy": _deepcopy})


# ------------------------------------------------------------------ typing


class Hint:
    """A name of ``typing``: annotations are not evaluated, so it only has to be there, and to take an item."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


_HINTS = (
    "Any Callable ClassVar Deque DefaultDict Dict Final FrozenSet Generator Generic Hashable Iterable Iterator List "
    "Literal Mapping NoReturn Optional Self Sequence Set Tuple Type Union"
)
ITEM_GETTERS[Hint] = lambda hint, _: hint
register_text(Hint, lambda hint: f"typing.{hint.name}")
define("typing", {name: Hint(name) for name in _HINTS.split()})
