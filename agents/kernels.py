"""What the processor is told loop by loop, where a library's operations would pass over memory several times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np
import numpy.typing as npt

from agents import vectors
from agents.vectors import (
    LANES,
    add,
    firsts,
    fma,
    lane_numbers,
    larger,
    largest,
    load,
    load_one,
    multiply,
    seconds,
    spread,
    store,
    subtract,
    swapped,
    total,
    two_to,
    where_below,
    whole,
)

BLOCK = 2 * LANES
"""Positions whose keys are beside one another."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

# Sums of loops may be taken in any order, that of the compiled loop: it hangs on how long the loop is and on the kind
# of processor, not on what is in memory; what is said in vectors is not reordered. That there is no NaN is not assumed:
# a policy that diverged must be noticed.
_options: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "nogil": True}
_jit: Callable[..., Callable[[Callable[..., Any]], Any]] = numba.njit

# What a compiled function is made from, as it is when it is imported.
_made_from = (
    Path(__file__).read_bytes(),
    Path(vectors.__file__).read_bytes(),
    numba.__version__,
    llvmlite.__version__,
    llvm.get_host_cpu_name(),
    llvm.get_host_cpu_features().flatten(),
)
_DIGEST = hashlib.sha256(repr(_made_from).encode()).hexdigest()[:16]


def _compiled(*constants: int) -> Callable[[_Function], _Function]:
    """Compiles a function at its first call, and keeps what was compiled beside this file or in the user's folder.

    In a file of its own for each source, processor and value of what the function closes over, ``constants`` (and it is
    called with one kind of arrays): where several share a file, as Numba has it, two processes that write at once, or
    one that is killed between an index and its entry, can leave what is then taken for another function. Where no
    folder can be written to nothing is kept. What earlier sources left is not removed.
    """

    def decorate(function: _Function) -> _Function:
        function.__qualname__ = "_".join([function.__name__, *map(str, constants), _DIGEST])
        try:
            made: _Function = _jit(cache=True, **_options)(function)
        except RuntimeError:  # Numba finds no folder that it may write to
            made = _jit(**_options)(function)
        return made

    return decorate


_LEAST_EXPONENT = np.float32(-87.0)  # of e, for a float32 that is neither 0 nor denormal
_LOG2_E = np.float32(1.44269504)
_HALF = np.float32(0.5)
# ln 2 in two parts, the first with few digits, so that its multiples are exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ZERO, _ONE, _INFINITY = np.float32(0.0), np.float32(1.0), np.float32(np.inf)


# Not to be reordered: the two parts of ln 2 would become one.
@_jit(fastmath={"contract", "nsz"}, error_model="numpy")
def _exp(x: Any) -> Any:
    """e to the x of a float32 that is not above 0 (the polynomial of Cephes' expf); 0 below -87, NaN of NaN.

    Arithmetic alone, so that a loop over it can be vectorised.
    """
    above = x if x > _LEAST_EXPONENT else _LEAST_EXPONENT  # also of NaN, which no integer stands for
    power = np.int32(above * _LOG2_E - _HALF)  # cut towards 0, so the nearest
    whole = np.float32(power)
    rest = x - whole * _LN2_HIGH - whole * _LN2_LOW
    y = ((((_P0 * rest + _P1) * rest + _P2) * rest + _P3) * rest + _P4) * rest + _P5
    y = y * (rest * rest) + rest + _ONE
    y *= np.int32((power + np.int32(127)) << np.int32(23)).view(np.float32)
    return _ZERO if x < _LEAST_EXPONENT else y


@_compiled()
def sample(logits: Any, uniforms: Any, tokens: Any, logprobs: Any) -> None:
    """Tokens by inverse CDF from one uniform each, and their log-probabilities; none of probability 0 comes out.

    Of a row with a NaN or an infinity, or in which nothing may come out, the log-probability is NaN.

    Args:
        logits: (R, V), contiguous.
        uniforms: (R,), below 1.
        tokens: (R,), is written.
        logprobs: (R,), is written.
    """
    rows, count = logits.shape
    weights, sums = np.zeros(-(-count // BLOCK) * BLOCK, np.float32), np.empty(-(-count // BLOCK), np.float32)
    for r in range(rows):
        own = logits[r]
        most, broken = own[0], False
        for j in range(count):
            most = max(most, own[j])
            broken |= not own[j] < _INFINITY
        if broken or not most > -_INFINITY:
            tokens[r], logprobs[r] = 0, np.nan
            continue
        for j in range(count):
            weights[j] = _exp(own[j] - most)
        total = np.float32(0)
        for b in range(len(sums)):
            of_block = weights[b * BLOCK : (b + 1) * BLOCK]
            part = np.float32(0)
            for i in range(BLOCK):
                part += of_block[i]
            sums[b] = part
            total += part
        # First the block that the draw falls into, then the token.
        left = uniforms[r] * total
        block = 0
        while block < len(sums) - 1 and sums[block] <= left:
            left -= sums[block]
            block += 1
        chosen = -1
        for j in range(block * BLOCK, (block + 1) * BLOCK):
            if weights[j] > 0:
                chosen = j
                if weights[j] > left:
                    break
                left -= weights[j]
        if chosen < 0:
            # Rounding has led past the last token that has a probability.
            chosen = block * BLOCK
            while chosen > 0 and not weights[chosen] > 0:
                chosen -= 1
        tokens[r] = chosen
        logprobs[r] = np.log(weights[chosen] / total)


@_compiled()
def fed(tokens: Any, uniforms: Any, row: Any, positions: Any, inputs: Any, draws: Any) -> None:
    """Each slot's token at its position, and its draw for the one after it."""
    last = tokens.shape[1] - 1
    for slot in range(len(row)):
        inputs[slot] = tokens[row[slot], positions[slot]]
        draws[slot] = uniforms[slot, min(positions[slot] + 1, last)]


@_compiled()
def emitted(
    new: Any,
    new_logprobs: Any,
    end: int,
    max_turn_tokens: int,
    runnable: Any,
    row: Any,
    fed: Any,
    known: Any,
    waiting: Any,
    turn_start: Any,
    tokens: Any,
    logprobs: Any,
    sampled: Any,
    clipped: Any,
    over: Any,
) -> int:
    """Slots that are runnable have been fed; where that was the last known token, and no reply is due, the new one is.

    The first ones of ``over`` become the slots whose turn is over; returns how many.
    """
    count, context = 0, tokens.shape[1]
    for slot in range(len(runnable)):
        if not runnable[slot]:
            continue
        fed[slot] += 1
        if fed[slot] != known[slot] or waiting[slot]:
            continue
        own, place = row[slot], known[slot]
        tokens[own, place], logprobs[own, place], sampled[own, place] = new[slot], new_logprobs[slot], True
        known[slot] = place + 1
        cut = place + 1 - turn_start[slot] >= max_turn_tokens or place + 1 >= context
        if cut and new[slot] != end:
            clipped[own] = True
        if cut or new[slot] == end:
            over[count] = slot
            count += 1
    return count


def padded(head_width: int) -> int:
    """Width that a head has in the cache: loops over it have no rest. Raises ValueError for an odd one."""
    if head_width < 2 or head_width % 2:
        raise ValueError(f"heads of width {head_width}: it must be even, since pairs of coordinates are turned")
    return -(-head_width // LANES) * LANES


@_jit(forceinline=True, **_options)
def _exp_of_lanes(x: Any) -> Any:
    """``_exp`` of a vector, which may be a little above 0; of what is far above 0 or infinite any number or NaN comes
    out, as where a score that is no number hid the largest: the same lane then has NaN from elsewhere.
    """
    power = whole(fma(larger(x, spread(_LEAST_EXPONENT)), spread(_LOG2_E), spread(-_HALF)))
    rest = fma(power, spread(-_LN2_LOW), fma(power, spread(-_LN2_HIGH), x))
    y = fma(fma(spread(_P0), rest, spread(_P1)), rest, spread(_P2))
    y = fma(fma(fma(y, rest, spread(_P3)), rest, spread(_P4)), rest, spread(_P5))
    y = multiply(fma(y, multiply(rest, rest), add(rest, spread(_ONE))), two_to(power))
    return where_below(x, spread(_LEAST_EXPONENT), spread(_ZERO), y)


@_jit(forceinline=True, **_options)
def _turn(source: Any, start: int, turns: Any, turn: int, to: Any, at: int, sign: Any, head_width: int) -> None:
    """A head's vector, its pairs turned as complex numbers (back where ``sign`` is -1), is written from ``at`` on."""
    whole_vectors = head_width // LANES * LANES
    for d in range(0, whole_vectors, LANES):
        vector, by = load(source, start + d), load(turns, turn + d)
        across = multiply(multiply(swapped(vector), seconds(by)), spread(sign))
        store(to, at + d, fma(vector, firsts(by), across))
    for d in range(whole_vectors, head_width, 2):
        one, other = source[start + d], source[start + d + 1]
        real, imaginary = turns[turn + d], turns[turn + d + 1] * sign
        to[at + d], to[at + d + 1] = one * real - other * imaginary, one * imaginary + other * real


@_jit(forceinline=True, **_options)
def _copy(source: Any, start: int, to: Any, at: int, share: Any, head_width: int) -> None:
    """A head's vector, by a factor, is written from ``at`` on."""
    whole_vectors = head_width // LANES * LANES
    for d in range(0, whole_vectors, LANES):
        store(to, at + d, multiply(load(source, start + d), spread(share)))
    for d in range(whole_vectors, head_width):
        to[at + d] = source[start + d] * share


@_jit(forceinline=True, **_options)
def _tile(
    a: Any,
    at: int,
    row: int,
    step: int,
    b: Any,
    b_at: int,
    b_step: int,
    count: int,
    to: Any,
    to_at: int,
    to_row: int,
    more: bool,
) -> None:
    """Eight vectors are written, or with ``more`` added to: each the sum of ``count`` vectors of b by the values of a
    row of a. Rows of a are ``row`` apart, values of a row ``step``.

    The eight sums stay in registers; each takes part in every eighth operation, so that none waits for the last.
    """
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = spread(_ZERO)
    half = to_at + 4 * to_row
    if more:
        s0, s1 = load(to, to_at), load(to, to_at + to_row)
        s2, s3 = load(to, to_at + 2 * to_row), load(to, to_at + 3 * to_row)
        s4, s5 = load(to, half), load(to, half + to_row)
        s6, s7 = load(to, half + 2 * to_row), load(to, half + 3 * to_row)
    for k in range(count):
        lanes, own = load(b, b_at + k * b_step), at + k * step
        s0 = fma(load_one(a, own), lanes, s0)
        s1 = fma(load_one(a, own + row), lanes, s1)
        s2 = fma(load_one(a, own + 2 * row), lanes, s2)
        s3 = fma(load_one(a, own + 3 * row), lanes, s3)
        s4 = fma(load_one(a, own + 4 * row), lanes, s4)
        s5 = fma(load_one(a, own + 5 * row), lanes, s5)
        s6 = fma(load_one(a, own + 6 * row), lanes, s6)
        s7 = fma(load_one(a, own + 7 * row), lanes, s7)
    store(to, to_at, s0)
    store(to, to_at + to_row, s1)
    store(to, to_at + 2 * to_row, s2)
    store(to, to_at + 3 * to_row, s3)
    store(to, half, s4)
    store(to, half + to_row, s5)
    store(to, half + 2 * to_row, s6)
    store(to, half + 3 * to_row, s7)


@_jit(forceinline=True, **_options)
def _scores(query: Any, keys: Any, at: int, blocks: int, scores: Any, first: int, width: int) -> None:
    """Products of a query and the keys of blocks, (blocks, W, 16), are written from ``first`` on."""
    for block in range(blocks):
        a0 = a1 = b0 = b1 = spread(_ZERO)
        for d in range(0, width, 2):
            place = at + (block * width + d) * BLOCK
            one, another = load_one(query, d), load_one(query, d + 1)
            a0, a1 = fma(one, load(keys, place), a0), fma(one, load(keys, place + LANES), a1)
            place += BLOCK
            b0, b1 = fma(another, load(keys, place), b0), fma(another, load(keys, place + LANES), b1)
        store(scores, first + block * BLOCK, add(a0, b0))
        store(scores, first + block * BLOCK + LANES, add(a1, b1))


@_jit(forceinline=True, **_options)
def _hide_rest(scores: Any, end: int) -> None:
    """Minus infinity in the rest of the block that ends behind ``end``."""
    first = (end - 1) // BLOCK * BLOCK
    for place in range(first, first + BLOCK, LANES):
        seen = where_below(lane_numbers(), spread(np.float32(end - place)), load(scores, place), spread(-_INFINITY))
        store(scores, place, seen)


@_jit(forceinline=True, **_options)
def _mix(weights: Any, first: int, values: Any, at: int, count: int, out: Any, width: int) -> None:
    """To a vector (W) is added the sum of values, (count, W), by their weights, rounded up to four of them."""
    for d in range(0, width, LANES):
        a, b, c, e = load(out, d), spread(_ZERO), spread(_ZERO), spread(_ZERO)
        for j in range(0, count, 4):
            place, weight = at + j * width + d, first + j
            a = fma(load_one(weights, weight), load(values, place), a)
            b = fma(load_one(weights, weight + 1), load(values, place + width), b)
            c = fma(load_one(weights, weight + 2), load(values, place + 2 * width), c)
            e = fma(load_one(weights, weight + 3), load(values, place + 3 * width), e)
        store(out, d, add(add(a, b), add(c, e)))


@lru_cache
def attention(head_width: int) -> Callable[[Floats, Floats, Floats, Ints, Ints, Floats, Ints, Ints, Floats], None]:
    """Compiled causal attention of S new positions, one after the other, for heads of a width D.

    A row's past is in two places: the first positions, which it may share with others, and its own. In both keys are
    (positions / 16, W, 16), so that 16 positions are reckoned at once, and values are (positions, W); W is D
    :func:`padded`. The function's arguments, all contiguous:

    - qkv: (S, 3, heads D), queries, keys and values of the new positions.
    - turns: (S, 2, heads D), by which queries and keys are turned (``cache.rotate_``), real and imaginary by turns.
    - shared: (prompts, heads, 2, positions W), keys and values of what rows share.
    - shared_by, shared_length: (R,), which of these is a row's, and how many positions it has.
    - own: (R, heads, 2, P W), keys and values of the positions after these; is written at the new ones.
    - rows, positions: (S,), which row each new position is of, and where. Only what lies up to there is read, rounded
      up to 16 (of values to 4; what is shared must be finite up to there), so that what it comes to depends neither on
      the other rows nor on how much room there is.
    - mixed: (S, heads D), is written; of no rows where nobody asks for it.

    Raises ValueError for an odd width.
    """
    width = padded(head_width)

    @_compiled(head_width)
    def attend(
        qkv: Any,
        turns: Any,
        shared: Any,
        shared_by: Any,
        shared_length: Any,
        own: Any,
        rows: Any,
        positions: Any,
        mixed: Any,
    ) -> None:
        heads, all_width, shared_size, own_size = own.shape[1], qkv.shape[2], shared.shape[3], own.shape[3]
        wanted = len(mixed) > 0
        count, qkv, turns, mixed = len(qkv), qkv.reshape(qkv.size), turns.reshape(turns.size), mixed.reshape(mixed.size)
        shared, own = shared.reshape(shared.size), own.reshape(own.size)
        scores = np.empty((shared_size + own_size) // width, np.float32)
        query, key, out = np.zeros(width, np.float32), np.zeros(width, np.float32), np.empty(width, np.float32)
        for s in range(count):
            r = rows[s]
            before = shared_length[r]
            # A place without a row, which computes along, may stand anywhere.
            new = max(positions[s] - before, 0)
            shared_blocks, own_blocks = (before + BLOCK - 1) // BLOCK, new // BLOCK + 1
            first, end = shared_blocks * BLOCK, (shared_blocks + own_blocks) * BLOCK
            for h in range(heads):
                at, turn = s * 3 * all_width + h * head_width, s * 2 * all_width + h * head_width
                past, keys = (shared_by[r] * heads + h) * 2 * shared_size, (r * heads + h) * 2 * own_size
                past_values, values = past + shared_size, keys + own_size
                if new % BLOCK == 0:
                    # Whoever was here before may have left what is no number, which a weight of 0 would not hide.
                    for place in range(new * width, (new + BLOCK) * width, LANES):
                        store(own, keys + place, spread(_ZERO))
                        store(own, values + place, spread(_ZERO))
                _turn(qkv, at + all_width, turns, turn + all_width, key, 0, _ONE, head_width)
                place = keys + new // BLOCK * BLOCK * width + new % BLOCK
                for d in range(head_width):
                    own[place + d * BLOCK] = key[d]
                _copy(qkv, at + 2 * all_width, own, values + new * width, _ONE, head_width)
                if not wanted:
                    continue
                _turn(qkv, at, turns, turn, query, 0, _ONE, head_width)
                _scores(query, shared, past, shared_blocks, scores, 0, width)
                _scores(query, own, keys, own_blocks, scores, first, width)
                if before % BLOCK:
                    _hide_rest(scores, before)
                _hide_rest(scores, first + new + 1)
                highest = spread(-_INFINITY)
                for j in range(0, end, BLOCK):
                    highest = larger(larger(load(scores, j), load(scores, j + LANES)), highest)
                highest, weights = spread(largest(highest)), spread(_ZERO)
                for j in range(0, end, LANES):
                    weight = _exp_of_lanes(subtract(load(scores, j), highest))
                    store(scores, j, weight)
                    weights = add(weights, weight)
                for d in range(0, width, LANES):
                    store(out, d, spread(_ZERO))
                _mix(scores, 0, shared, past_values, before, out, width)
                _mix(scores, first, own, values, new + 1, out, width)
                _copy(out, 0, mixed, s * all_width + h * head_width, _ONE / total(weights), head_width)

    compiled: Callable[[Floats, Floats, Floats, Ints, Ints, Floats, Ints, Ints, Floats], None] = attend
    return compiled


@_jit(forceinline=True, **_options)
def _take(
    qkv: Any,
    start: int,
    length: int,
    h: int,
    turns: Any,
    keys: Any,
    values: Any,
    width: int,
    head_width: int,
    all_width: int,
) -> None:
    """Keys, turned, and values of a head of a row, as vectors, (length, W), and 0 up to a whole eight of them."""
    turned_by = len(turns) // 2
    for j in range(length):
        at = (start + j) * 3 * all_width + h * head_width
        _turn(qkv, at + all_width, turns, turned_by + j * head_width, keys, j * width, _ONE, head_width)
        _copy(qkv, at + 2 * all_width, values, j * width, _ONE, head_width)
    for j in range(length * width, (length + LANES - 1) // LANES * LANES * width):
        # Of a longer row before it may be left what is no number, which a weight of 0 would not hide.
        keys[j] = 0
        values[j] = 0


@_jit(forceinline=True, **_options)
def _across(rows: Any, lanes: Any, width: int) -> None:
    """Eight vectors, (8, W), beside one another, (W, 8)."""
    for i in range(LANES):
        for d in range(width):
            lanes[d * LANES + i] = rows[i * width + d]


@_jit(forceinline=True, **_options)
def _scores_of_rows(others: Any, lanes: Any, scores: Any, end: int, width: int) -> None:
    """Products, (end, 8), of the first vectors with eight others beside one another."""
    for j in range(0, end, LANES):
        _tile(others, j * width, width, 1, lanes, 0, LANES, width, scores, j * LANES, LANES, False)


@_jit(forceinline=True, **_options)
def _hide_later(scores: Any, first: int) -> None:
    """Minus infinity for what comes after each of eight queries from ``first`` on."""
    for j in range(1, LANES):
        at = (first + j) * LANES
        earlier = where_below(lane_numbers(), spread(np.float32(j)), spread(-_INFINITY), load(scores, at))
        store(scores, at, earlier)


@_jit(forceinline=True, **_options)
def _mix_of_rows(weights: Any, others: Any, end: int, rows: Any, width: int) -> None:
    """Rows (8, W): sums of the first vectors by eight weights each, (end, 8)."""
    for d in range(0, width, LANES):
        _tile(weights, 0, 1, LANES, others, d, width, end, rows, d, width, False)


@lru_cache
def attention_of_rows(head_width: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compiled causal attention of whole rows, and its derivative, for heads of a width D.

    Eight queries at a time, beside one another in a vector, with eight keys after another up to the last that any of
    them sees: what softmax takes from all keys is then taken lane by lane. As Dao et al. 2022 (2205.14135), the
    derivative reckons the weights anew, from the largest score and the sum of the exponentials, so that no weight is
    written to memory. The functions' arguments, all contiguous:

    - qkv: (S, 3, heads D), queries, keys and values of all positions, row after row.
    - turns: (2, longest, D), by which queries and keys are turned, as real and imaginary by turns; the queries' scale
      is part of it.
    - lengths: (R,), positions of each row, one row or more: their sum is S, and none is longer than ``turns``.
    - mixed: (S, heads D), most and sums: (S, heads), of the exponentials: the first function writes, the second reads.
    - grad: (S, heads D), grad_qkv: (S, 3, heads D): of the second; the last is written.

    Raises ValueError for an odd width.
    """
    width = padded(head_width)
    in_vectors, block = head_width // LANES * LANES, LANES * width

    @_compiled(head_width)
    def attend_rows(qkv: Any, turns: Any, lengths: Any, mixed: Any, most: Any, sums: Any) -> None:
        heads, all_width = most.shape[1], mixed.shape[1]
        qkv, turns, mixed = qkv.reshape(qkv.size), turns.reshape(turns.size), mixed.reshape(mixed.size)
        room = (lengths.max() + LANES - 1) // LANES * LANES
        keys, values = np.zeros(room * width, np.float32), np.zeros(room * width, np.float32)
        queries, lanes, rows = np.zeros(block, np.float32), np.zeros(block, np.float32), np.zeros(block, np.float32)
        weights = np.empty(room * LANES, np.float32)
        highest, total_weight = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
        start = 0
        for length in lengths:
            for h in range(heads):
                _take(qkv, start, length, h, turns, keys, values, width, head_width, all_width)
                for first in range(0, length, LANES):
                    count, end = min(LANES, length - first), first + LANES
                    for i in range(count):
                        at = (start + first + i) * 3 * all_width + h * head_width
                        _turn(qkv, at, turns, (first + i) * head_width, queries, i * width, _ONE, head_width)
                    _across(queries, lanes, width)
                    _scores_of_rows(keys, lanes, weights, end, width)
                    _hide_later(weights, first)
                    peak = spread(-_INFINITY)
                    for j in range(0, end * LANES, 4 * LANES):
                        one = larger(load(weights, j), load(weights, j + LANES))
                        another = larger(load(weights, j + 2 * LANES), load(weights, j + 3 * LANES))
                        peak = larger(larger(one, another), peak)
                    weight_sum = spread(_ZERO)
                    for j in range(0, end * LANES, LANES):
                        weight = _exp_of_lanes(subtract(load(weights, j), peak))
                        store(weights, j, weight)
                        weight_sum = add(weight_sum, weight)
                    store(highest, 0, peak)
                    store(total_weight, 0, weight_sum)
                    _mix_of_rows(weights, values, end, rows, width)
                    for i in range(count):
                        place = start + first + i
                        most[place, h], sums[place, h] = highest[i], total_weight[i]
                        share = _ONE / total_weight[i]
                        _copy(rows, i * width, mixed, place * all_width + h * head_width, share, head_width)
            start += length

    @_compiled(head_width)
    def attend_rows_back(
        qkv: Any, turns: Any, lengths: Any, mixed: Any, most: Any, sums: Any, grad: Any, grad_qkv: Any
    ) -> None:
        heads, all_width = most.shape[1], mixed.shape[1]
        qkv, turns, mixed = qkv.reshape(qkv.size), turns.reshape(turns.size), mixed.reshape(mixed.size)
        grad, grad_qkv = grad.reshape(grad.size), grad_qkv.reshape(grad_qkv.size)
        turned_by = len(turns) // 2
        room = (lengths.max() + LANES - 1) // LANES * LANES
        keys, values = np.zeros(room * width, np.float32), np.zeros(room * width, np.float32)
        grad_keys, grad_values = np.empty(room * width, np.float32), np.empty(room * width, np.float32)
        weights, scores = np.empty(room * LANES, np.float32), np.empty(room * LANES, np.float32)
        # Of eight queries: themselves and what is derived by what they mixed, (8, W), and beside one another, (W, 8).
        queries, query_lanes = np.zeros(block, np.float32), np.empty(block, np.float32)
        grads, grad_lanes = np.zeros(block, np.float32), np.empty(block, np.float32)
        rows = np.empty(block, np.float32)
        highest, share, inner = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
        start = 0
        for length in lengths:
            for h in range(heads):
                _take(qkv, start, length, h, turns, keys, values, width, head_width, all_width)
                grad_keys[:] = 0
                grad_values[:] = 0
                for first in range(0, length, LANES):
                    count, end = min(LANES, length - first), first + LANES
                    if count < LANES:
                        # Of queries that are not there nothing is derived.
                        queries[:], grads[:], highest[:], share[:], inner[:] = 0, 0, 0, 0, 0
                    for i in range(count):
                        place = start + first + i
                        own, at = place * all_width + h * head_width, place * 3 * all_width + h * head_width
                        _turn(qkv, at, turns, (first + i) * head_width, queries, i * width, _ONE, head_width)
                        _copy(grad, own, grads, i * width, _ONE, head_width)
                        product = _ZERO
                        for d in range(0, in_vectors, LANES):
                            product += total(multiply(load(grad, own + d), load(mixed, own + d)))
                        for d in range(in_vectors, head_width):
                            product += grad[own + d] * mixed[own + d]
                        highest[i], share[i], inner[i] = most[place, h], _ONE / sums[place, h], product
                    _across(queries, query_lanes, width)
                    _across(grads, grad_lanes, width)
                    _scores_of_rows(keys, query_lanes, weights, end, width)
                    _scores_of_rows(values, grad_lanes, scores, end, width)
                    _hide_later(weights, first)
                    peak, part, less = load(highest, 0), load(share, 0), load(inner, 0)
                    for j in range(0, end * LANES, LANES):
                        weight = multiply(_exp_of_lanes(subtract(load(weights, j), peak)), part)
                        store(weights, j, weight)
                        store(scores, j, multiply(weight, subtract(load(scores, j), less)))
                    _mix_of_rows(scores, keys, end, rows, width)
                    for i in range(count):
                        at = (start + first + i) * 3 * all_width + h * head_width
                        _turn(rows, i * width, turns, (first + i) * head_width, grad_qkv, at, -_ONE, head_width)
                    for j in range(0, end, LANES):
                        for d in range(0, width, LANES):
                            at = j * width + d
                            _tile(scores, j * LANES, LANES, 1, queries, d, width, LANES, grad_keys, at, width, True)
                            _tile(weights, j * LANES, LANES, 1, grads, d, width, LANES, grad_values, at, width, True)
                for j in range(length):
                    at = (start + j) * 3 * all_width + h * head_width
                    _turn(
                        grad_keys,
                        j * width,
                        turns,
                        turned_by + j * head_width,
                        grad_qkv,
                        at + all_width,
                        -_ONE,
                        head_width,
                    )
                    _copy(grad_values, j * width, grad_qkv, at + 2 * all_width, _ONE, head_width)
            start += length

    return attend_rows, attend_rows_back
