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

LANES = 16
"""Positions of a block: as many float32 as the widest vector registers hold."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

# Sums may be taken in any order, that of the compiled loop: it hangs on how long the loop is and on the kind of
# processor, not on what is in memory. That there is no NaN is not assumed: a policy that diverged must be noticed.
_options: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy", "nogil": True}
_jit: Callable[..., Callable[[Callable[..., Any]], Any]] = numba.njit

# What a compiled function is made from, as it is when it is imported.
_made_from = (
    Path(__file__).read_bytes(),
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


@_jit(inline="always", **_options)
def _turn(vector: Any, turn: Any, to: Any, place: int, step: int, head_width: int) -> None:
    """A vector, its pairs turned, is written from a place on, its coordinates ``step`` apart (``cache.rotate_``)."""
    for d in range(0, head_width, 2):
        to[place + d * step] = vector[d] * turn[d] - vector[d + 1] * turn[d + 1]
        to[place + (d + 1) * step] = vector[d] * turn[d + 1] + vector[d + 1] * turn[d]


@_jit(inline="always", **_options)
def _turn_back(vector: Any, step: int, turn: Any, to: Any, head_width: int) -> None:
    """The inverse of ``_turn``: from coordinates that are ``step`` apart."""
    for d in range(0, head_width, 2):
        one, other = vector[d * step], vector[(d + 1) * step]
        to[d] = one * turn[d] + other * turn[d + 1]
        to[d + 1] = other * turn[d] - one * turn[d + 1]


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
    weights, sums = np.zeros(-(-count // LANES) * LANES, np.float32), np.empty(-(-count // LANES), np.float32)
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
            of_block = weights[b * LANES : (b + 1) * LANES]
            part = np.float32(0)
            for i in range(LANES):
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
        for j in range(block * LANES, (block + 1) * LANES):
            if weights[j] > 0:
                chosen = j
                if weights[j] > left:
                    break
                left -= weights[j]
        if chosen < 0:
            # Rounding has led past the last token that has a probability.
            chosen = block * LANES
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
    return -(-head_width // 8) * 8


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
      up to 16, so that what it comes to depends neither on the other rows nor on how much room there is.
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
        scores = np.empty((shared.shape[3] + own.shape[3]) // width, np.float32)
        query, total = np.zeros(width, np.float32), np.empty(width, np.float32)
        for s in range(len(qkv)):
            r = rows[s]
            before = shared_length[r]
            # A place without a row, which computes along, may stand anywhere.
            new = max(positions[s] - before, 0)
            shared_blocks, own_blocks = (before + LANES - 1) // LANES, new // LANES + 1
            first, end = shared_blocks * LANES, (shared_blocks + own_blocks) * LANES
            for h in range(own.shape[1]):
                part = slice(h * head_width, (h + 1) * head_width)
                q, k, v = qkv[s, 0, part], qkv[s, 1, part], qkv[s, 2, part]
                turn_q, turn_k = turns[s, 0, part], turns[s, 1, part]
                past, present = shared[shared_by[r], h], own[r, h]
                keys, values = present[0], present[1]
                place = new // LANES * LANES * width + new % LANES
                if new % LANES == 0:
                    # Whoever was here before may have left what is no number, which a weight of 0 would not hide.
                    keys[new * width : (new + LANES) * width] = 0
                    values[new * width : (new + LANES) * width] = 0
                _turn(q, turn_q, query, 0, 1, head_width)
                _turn(k, turn_k, keys, place, LANES, head_width)
                for d in range(head_width):
                    values[new * width + d] = v[d]
                if len(mixed) == 0:
                    continue
                for b in range(shared_blocks + own_blocks):
                    keys, at = (past[0], b) if b < shared_blocks else (present[0], b - shared_blocks)
                    block = keys[at * LANES * width : (at + 1) * LANES * width]
                    of_block = scores[b * LANES : (b + 1) * LANES]
                    for i in range(LANES):
                        score = np.float32(0)
                        for d in range(width):
                            score += query[d] * block[d * LANES + i]
                        of_block[i] = score
                # What is hidden counts as the new position until it counts as nothing.
                scores[before:first] = scores[first + new]
                scores[first + new + 1 : end] = scores[first + new]
                most = scores[first]
                for j in range(end):
                    most = max(most, scores[j])
                for j in range(end):
                    scores[j] = _exp(scores[j] - most)
                scores[before:first] = 0
                scores[first + new + 1 : end] = 0
                weights = np.float32(0)
                for j in range(end):
                    weights += scores[j]
                total[:] = 0
                for b in range(shared_blocks + own_blocks):
                    values, at = (past[1], b) if b < shared_blocks else (present[1], b - shared_blocks)
                    block = values[at * LANES * width : (at + 1) * LANES * width]
                    of_block = scores[b * LANES : (b + 1) * LANES]
                    for d in range(width):
                        part_of_total = np.float32(0)
                        for i in range(LANES):
                            part_of_total += of_block[i] * block[i * width + d]
                        total[d] += part_of_total
                out = mixed[s, part]
                for d in range(head_width):
                    out[d] = total[d] / weights

    compiled: Callable[[Floats, Floats, Floats, Ints, Ints, Floats, Ints, Ints, Floats], None] = attend
    return compiled


@_jit(inline="always", **_options)
def _take(kv: Any, turns: Any, keys: Any, values: Any, width: int, head_width: int) -> None:
    """Keys, turned, and values of a row, (length, 2, D), as vectors, (length, W), and 0 up to the end of a block.

    Of a longer row before it may be left what is no number, which a weight of 0 would not hide.
    """
    length = len(kv)
    for j in range(length):
        _turn(kv[j, 0], turns[j], keys, j * width, 1, head_width)
        value = kv[j, 1]
        for d in range(head_width):
            values[j * width + d] = value[d]
    for j in range(length * width, (length + LANES - 1) // LANES * LANES * width):
        keys[j] = 0
        values[j] = 0


@_jit(inline="always", **_options)
def _products(vectors: Any, lanes: Any, products: Any, end: int, width: int, part: int) -> None:
    """Products (end, 16) of the first vectors (end, W) with 16 others, (W, 16)."""
    for j in range(0, end, 2):
        to, two = products[j * LANES : (j + 2) * LANES], vectors[j * width : (j + 2) * width]
        to[:] = 0
        for first in range(0, width, part):  # in parts that the compiler unrolls
            others, own = lanes[first * LANES : (first + part) * LANES], two[first:]
            for i in range(LANES):
                one = another = _ZERO
                for d in range(part):
                    lane = others[d * LANES + i]
                    one += own[d] * lane
                    another += own[width + d] * lane
                to[i] += one
                to[LANES + i] += another


@_jit(inline="always", **_options)
def _mix(weights: Any, vectors: Any, lanes: Any, end: int, width: int, part: int) -> None:
    """Lanes (W, 16): sums of the first vectors (end, W) by 16 weights each, (end, 16)."""
    lanes[:] = 0
    for j in range(0, end, 2):
        by, two = weights[j * LANES : (j + 2) * LANES], vectors[j * width : (j + 2) * width]
        for first in range(0, width, part):
            to, own = lanes[first * LANES : (first + part) * LANES], two[first:]
            for i in range(LANES):
                one, another = by[i], by[LANES + i]
                for d in range(part):
                    to[d * LANES + i] += one * own[d] + another * own[width + d]


@_jit(inline="always", **_options)
def _spread(weights: Any, rows: Any, vectors: Any, end: int, width: int) -> None:
    """To each of the first vectors (end, W) is added the sum of 16 rows, (16, W), by its 16 weights, (end, 16)."""
    for j in range(0, end, 2):
        by, to = weights[j * LANES : (j + 2) * LANES], vectors[j * width : (j + 2) * width]
        for d in range(width):
            one = another = _ZERO
            for i in range(LANES):
                row = rows[i * width + d]
                one += by[i] * row
                another += by[LANES + i] * row
            to[d] += one
            to[width + d] += another


@_jit(inline="always", **_options)
def _hide(scores: Any, first: int) -> None:
    """Minus infinity for what comes after each of 16 queries from ``first`` on; scores (first + 16, 16)."""
    for j in range(1, LANES):
        own = scores[(first + j) * LANES : (first + j + 1) * LANES]
        for i in range(LANES):
            own[i] = own[i] if i >= j else -_INFINITY


@lru_cache
def attention_of_rows(head_width: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compiled causal attention of whole rows, and its derivative, for heads of a width D.

    Sixteen queries at a time, beside one another in a vector, with one key after another up to the last that any of
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
    part, block = 8 if width % 16 else 16, LANES * width

    @_compiled(head_width)
    def attend_rows(qkv: Any, turns: Any, lengths: Any, mixed: Any, most: Any, sums: Any) -> None:
        room = (lengths.max() + LANES - 1) // LANES
        keys, values = np.zeros(room * block, np.float32), np.zeros(room * block, np.float32)
        weights = np.empty(room * LANES * LANES, np.float32)
        query, total = np.zeros(block, np.float32), np.empty(block, np.float32)
        highest, total_weight = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
        start = 0
        for length in lengths:
            for h in range(most.shape[1]):
                own = slice(h * head_width, (h + 1) * head_width)
                _take(qkv[start : start + length, 1:, own], turns[1], keys, values, width, head_width)
                for first in range(0, length, LANES):
                    count, end = min(LANES, length - first), first + LANES
                    for i in range(count):
                        _turn(qkv[start + first + i, 0, own], turns[0, first + i], query, i, LANES, head_width)
                    _products(keys, query, weights, end, width, part)
                    _hide(weights, first)
                    highest[:] = -_INFINITY
                    for j in range(0, end, 2):
                        two = weights[j * LANES : (j + 2) * LANES]
                        for i in range(LANES):
                            highest[i] = max(highest[i], max(two[i], two[LANES + i]))
                    total_weight[:] = 0
                    for j in range(0, end, 2):
                        two = weights[j * LANES : (j + 2) * LANES]
                        for i in range(LANES):
                            one, another = _exp(two[i] - highest[i]), _exp(two[LANES + i] - highest[i])
                            two[i], two[LANES + i] = one, another
                            total_weight[i] += one + another
                    _mix(weights, values, total, end, width, part)
                    for i in range(count):
                        place = start + first + i
                        most[place, h], sums[place, h] = highest[i], total_weight[i]
                        out, share = mixed[place, own], _ONE / total_weight[i]
                        for d in range(head_width):
                            out[d] = total[d * LANES + i] * share
            start += length

    @_compiled(head_width)
    def attend_rows_back(
        qkv: Any, turns: Any, lengths: Any, mixed: Any, most: Any, sums: Any, grad: Any, grad_qkv: Any
    ) -> None:
        room = (lengths.max() + LANES - 1) // LANES
        keys, values = np.zeros(room * block, np.float32), np.zeros(room * block, np.float32)
        grad_keys, grad_values = np.empty(room * block, np.float32), np.empty(room * block, np.float32)
        weights, scores = np.empty(room * LANES * LANES, np.float32), np.empty(room * LANES * LANES, np.float32)
        # Of 16 queries: themselves and what is derived by what they mixed, (W, 16) and (16, W).
        query, queries = np.zeros(block, np.float32), np.zeros(block, np.float32)
        grad_mixed, grads = np.zeros(block, np.float32), np.zeros(block, np.float32)
        total = np.empty(block, np.float32)
        highest, share, inner = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
        start = 0
        for length in lengths:
            for h in range(most.shape[1]):
                own = slice(h * head_width, (h + 1) * head_width)
                _take(qkv[start : start + length, 1:, own], turns[1], keys, values, width, head_width)
                grad_keys[:] = 0
                grad_values[:] = 0
                for first in range(0, length, LANES):
                    count, end = min(LANES, length - first), first + LANES
                    if count < LANES:
                        # Of queries that are not there nothing is derived.
                        query[:], queries[:], grad_mixed[:], grads[:] = 0, 0, 0, 0
                        highest[:], share[:], inner[:] = 0, 0, 0
                    for i in range(count):
                        place = start + first + i
                        _turn(qkv[place, 0, own], turns[0, first + i], query, i, LANES, head_width)
                        _turn(qkv[place, 0, own], turns[0, first + i], queries, i * width, 1, head_width)
                        by, out = grad[place, own], mixed[place, own]
                        product = _ZERO
                        for d in range(head_width):
                            grad_mixed[d * LANES + i] = by[d]
                            grads[i * width + d] = by[d]
                            product += by[d] * out[d]
                        inner[i] = product
                        highest[i], share[i] = most[place, h], _ONE / sums[place, h]
                    _products(keys, query, weights, end, width, part)
                    _products(values, grad_mixed, scores, end, width, part)
                    _hide(weights, first)
                    for j in range(end):
                        w, s = weights[j * LANES : (j + 1) * LANES], scores[j * LANES : (j + 1) * LANES]
                        for i in range(LANES):
                            weight = _exp(w[i] - highest[i]) * share[i]
                            w[i] = weight
                            s[i] = weight * (s[i] - inner[i])
                    _mix(scores, keys, total, end, width, part)
                    _spread(scores, queries, grad_keys, end, width)
                    _spread(weights, grads, grad_values, end, width)
                    for i in range(count):
                        to = grad_qkv[start + first + i, 0, own]
                        _turn_back(total[i:], LANES, turns[0, first + i], to, head_width)
                for j in range(length):
                    _turn_back(grad_keys[j * width :], 1, turns[1, j], grad_qkv[start + j, 1, own], head_width)
                    to = grad_qkv[start + j, 2, own]
                    for d in range(head_width):
                        to[d] = grad_values[j * width + d]
            start += length

    return attend_rows, attend_rows_back
