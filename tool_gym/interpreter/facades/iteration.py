"""``itertools``, ``heapq`` and ``bisect`` for programs."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ..attributes import expect, sort
from ..guards import HOOKS, Standin, add, counted, take_all
from ..meter import METER
from ..modules import define
from ..values import CONTAINERS, GuestMeta, weigh
from .numeric import whole

# ------------------------------------------------------------------ itertools


def _count(start: Any = 0, step: Any = 1) -> Iterator[Any]:
    while True:
        METER.charge(1)
        yield start
        start = add(start, step)


def _cycle(iterable: Any, /) -> Iterator[Any]:
    saved = []
    for item in counted(iterable):
        yield item
        saved.append(item)
        METER.cap_items(len(saved))
    while saved:
        for item in saved:
            METER.charge(1)
            yield item


def _repeat(object: Any, times: Any = None) -> Iterator[Any]:
    for _ in itertools.count() if times is None else range(times):
        METER.charge(1)
        yield object


def _chain(*iterables: Any) -> Iterator[Any]:
    for items in iterables:
        yield from counted(items)


def _chain_from(iterable: Any, /) -> Iterator[Any]:
    for items in counted(iterable):
        yield from counted(items)


def _costed(native: Iterator[tuple[Any, ...]], size: int) -> Iterator[Any]:
    """Tuples of ``size`` from a native iterator, charged."""
    cost = 1 + (size >> 3)
    for item in native:
        METER.charge(cost)
        yield item


def _product(*iterables: Any, repeat: Any = 1) -> Iterator[Any]:
    pools = [take_all(items) for items in iterables]
    repeat = whole(repeat)
    if type(repeat) is int:
        METER.check_items(len(pools) * max(repeat, 0))
    return _costed(itertools.product(*pools, repeat=repeat), len(pools) * repeat)


def _arranged(native: Callable[..., Any]) -> Callable[..., Any]:
    def arrange(iterable: Any, r: Any = None) -> Iterator[Any]:
        pool = take_all(iterable)
        r = whole(r)
        if r is None:
            if native is not itertools.permutations:
                raise TypeError(f"{native.__name__}() missing required argument 'r' (pos 2)")
            r = len(pool)
        if type(r) is int:
            METER.check_items(max(r, 0))
        return _costed(native(pool, r), r)

    return arrange


def _accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Iterator[Any]:
    source = counted(iterable)
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


def _islice(iterable: Any, /, *bounds: Any) -> Iterator[Any]:
    yield from itertools.islice(counted(iterable), *map(whole, bounds))


def _takewhile(predicate: Any, iterable: Any, /) -> Iterator[Any]:
    yield from itertools.takewhile(predicate, counted(iterable))


def _dropwhile(predicate: Any, iterable: Any, /) -> Iterator[Any]:
    yield from itertools.dropwhile(predicate, counted(iterable))


def _filterfalse(predicate: Any, iterable: Any, /) -> Iterator[Any]:
    yield from itertools.filterfalse(predicate, counted(iterable))


def _starmap(function: Any, iterable: Any, /) -> Iterator[Any]:
    for arguments in counted(iterable):
        yield function(*take_all(arguments))


def _compress(data: Any, selectors: Any) -> Iterator[Any]:
    yield from itertools.compress(counted(data), counted(selectors))


def _pairwise(iterable: Any, /) -> Iterator[Any]:
    yield from itertools.pairwise(counted(iterable))


def _batched(iterable: Any, n: Any, *, strict: Any = False) -> Iterator[Any]:
    n = whole(n)
    if type(n) is not int:
        raise TypeError("'n' must be an integer")
    if n < 1:
        raise ValueError("n must be at least one")
    return _batches(counted(iterable), n, bool(strict))


def _batches(source: Iterator[Any], n: int, strict: bool) -> Iterator[Any]:
    while batch := tuple(itertools.islice(source, n)):
        METER.cap_items(len(batch))
        if strict and len(batch) < n:
            raise ValueError("batched(): incomplete batch")
        yield batch


def _zip_longest(*iterables: Any, fillvalue: Any = None) -> Iterator[Any]:
    yield from itertools.zip_longest(*[counted(items) for items in iterables], fillvalue=fillvalue)


def _groupby(iterable: Any, key: Any = None) -> Iterator[Any]:
    group: list[Any] = []
    current: Any = None
    for item in counted(iterable):
        value = item if key is None else key(item)
        if group and not HOOKS["_eq_"](value, current):
            yield current, iter(group)
            group = []
        current = value
        group.append(item)
        METER.cap_items(len(group))
    if group:
        yield current, iter(group)


def _tee(iterable: Any, n: Any = 2, /) -> tuple[Any, ...]:
    n = whole(n)
    expect(n, int, "tee")
    if n < 0:
        raise ValueError("n must be >= 0")
    METER.check_items(n)
    METER.charge(n)
    source: Iterator[Any] = counted(iterable)
    first: list[Any] = []
    return tuple(_branch(source, first) for _ in range(n))


def _branch(source: Iterator[Any], link: list[Any]) -> Iterator[Any]:
    """One of the iterators of ``tee``: follows a chain of (item, next link) that the first to come extends."""
    while True:
        METER.charge(1)
        if not link:
            try:
                item = next(source)
            except StopIteration:
                return
            link += (item, [])
        item, link = link
        yield item


_ITERTOOLS: dict[str, Any] = {
    "accumulate": _accumulate,
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
}
if hasattr(itertools, "batched"):
    _ITERTOOLS["batched"] = _batched
for _name, _function in _ITERTOOLS.items():
    if not isinstance(_function, Standin):
        _function.__name__ = _name
define("itertools", _ITERTOOLS)


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

    def function(heap: Any, /, *item: Any) -> Any:
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
    def function(n: Any, iterable: Any, key: Any = None) -> list[Any]:
        taken = take_all(iterable)
        sort(taken, key, reverse)
        return taken[: max(0, whole(n))]

    return function


def _merge(*iterables: Any, key: Any = None, reverse: Any = False) -> Iterator[Any]:
    """One sorted iterator of several: the smallest of what each has next, the first of equal ones first."""
    sources = [counted(items) for items in iterables]
    waiting = [(item, item if key is None else key(item), source) for source in sources for item in _next_of(source)]
    before = HOOKS["_gt_"] if reverse else HOOKS["_lt_"]
    while waiting:
        METER.charge(len(waiting))
        best = 0
        for index in range(1, len(waiting)):
            if before(waiting[index][1], waiting[best][1]):
                best = index
        item, _, source = waiting[best]
        yield item
        following = [(item, item if key is None else key(item), source) for item in _next_of(source)]
        waiting[best : best + 1] = following


def _next_of(source: Iterator[Any]) -> list[Any]:
    return list(itertools.islice(source, 1))


define(
    "heapq",
    {name: _heap(name) for name in ("heapify", "heappop", "heappush", "heappushpop", "heapreplace")}
    | {"merge": _merge, "nlargest": _extreme_items(True), "nsmallest": _extreme_items(False)},
)


def _bisection(name: str) -> Callable[..., Any]:
    native = getattr(bisect, name)

    def function(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
        readable = type(a) in (tuple, range, str) and not name.startswith("insort")
        if not readable and type(type(a)) is not GuestMeta:
            expect(a, list, name)
        _charge_comparisons(x, len(a))
        if name.startswith("insort") and type(a) is list:
            METER.charge(len(a) >> 6)
            METER.check_items(0 if len(a) < METER.items else len(a) + 1)
        return native(a, x, whole(lo), whole(hi), key=key)

    return function


define(
    "bisect",
    {
        name: _bisection(name)
        for name in ("bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right")
    },
)
