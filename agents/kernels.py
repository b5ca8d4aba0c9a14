"""What the processor is told loop by loop, where a library's operations would pass over memory several times."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

LANES = 16
"""Positions of a block of keys: as many float32 as the widest vector registers hold."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# Sums may be taken in any order, that of the compiled loop: it depends on how long the loop is and on nothing else.
_MATH = {"reassoc", "contract", "nsz", "nnan"}
_options: dict[str, Any] = {"fastmath": _MATH, "error_model": "numpy", "nogil": True}
_jit: Callable[..., Callable[[Callable[..., Any]], Any]] = numba.njit

_LEAST_EXPONENT = np.float32(-87.0)  # of e, for a float32 that is neither 0 nor denormal
_LOG2_E = np.float32(1.44269504)
_HALF = np.float32(0.5)
# ln 2 in two parts, the first with few digits, so that its multiples are exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ONE = np.float32(1.0)


@_jit(inline="always", **_options)
def _exp(x: Any) -> Any:
    """e to the x of a float32 that is not above 0, within 2 units in the last place (the polynomial of Cephes' expf).

    Arithmetic alone, so that a loop over it can be vectorised.
    """
    x = max(x, _LEAST_EXPONENT)
    power = np.int32(x * _LOG2_E - _HALF)  # cut towards 0, so the nearest
    whole = np.float32(power)
    rest = x - whole * _LN2_HIGH - whole * _LN2_LOW
    y = ((((_P0 * rest + _P1) * rest + _P2) * rest + _P3) * rest + _P4) * rest + _P5
    y = y * (rest * rest) + rest + _ONE
    return y * np.int32((power + np.int32(127)) << np.int32(23)).view(np.float32)


@_jit(cache=True, **_options)
def sample(logits: Any, uniforms: Any, tokens: Any, logprobs: Any) -> None:
    """Tokens by inverse CDF from one uniform each, and their log-probabilities; none of probability 0 comes out.

    Args:
        logits: (R, V).
        uniforms: (R,), below 1.
        tokens: (R,), is written.
        logprobs: (R,), is written.
    """
    rows, count = logits.shape
    weights, sums = np.zeros(-(-count // LANES) * LANES, np.float32), np.empty(-(-count // LANES), np.float32)
    for r in range(rows):
        own = logits[r]
        most = own[0]
        for j in range(count):
            most = max(most, own[j])
        for j in range(count):
            below = own[j] - most
            weights[j] = _exp(below) if below > _LEAST_EXPONENT else np.float32(0)
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


@_jit(cache=True, **_options)
def fed(tokens: Any, uniforms: Any, row: Any, positions: Any, inputs: Any, draws: Any) -> None:
    """Each slot's token at its position, and its draw for the one after it."""
    last = tokens.shape[1] - 1
    for slot in range(len(row)):
        inputs[slot] = tokens[row[slot], positions[slot]]
        draws[slot] = uniforms[slot, min(positions[slot] + 1, last)]


@_jit(cache=True, **_options)
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
    """Width that a head has in the cache: loops over it have no rest."""
    return -(-head_width // 8) * 8


@lru_cache
def attention(head_width: int) -> Callable[[Floats, Floats, Floats, Ints, Ints, Floats, Ints, Ints, Floats], None]:
    """Compiled causal attention of S new positions, one after the other, for heads of a width D.

    A row's past is in two places: the first positions, which it may share with others, and its own. In both keys are
    (positions / 16, W, 16), so that 16 positions are reckoned at once, and values are (positions, W); W is D
    :func:`padded`. The function's arguments, all contiguous:

    - qkv: (S, 3, heads D), queries, keys and values of the new positions.
    - turns: (S, 2, heads D), by which queries and keys are turned (``model.rotate_``), real and imaginary by turns.
    - shared: (prompts, heads, 2, positions W), keys and values of what rows share.
    - shared_by, shared_length: (R,), which of these is a row's, and how many positions it has.
    - own: (R, heads, 2, P W), keys and values of the positions after these; is written at the new ones.
    - rows, positions: (S,), which row each new position is of, and where. Only what lies up to there is read, rounded
      up to 16, so that what it comes to depends neither on the other rows nor on how much room there is.
    - mixed: (S, heads D), is written; of no rows where nobody asks for it.
    """
    width = padded(head_width)

    # Numba keeps what it has compiled by the values that a function closes over, so these may only be numbers.
    @_jit(cache=True, **_options)
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
                for d in range(0, head_width, 2):
                    query[d] = q[d] * turn_q[d] - q[d + 1] * turn_q[d + 1]
                    query[d + 1] = q[d] * turn_q[d + 1] + q[d + 1] * turn_q[d]
                    keys[place + d * LANES] = k[d] * turn_k[d] - k[d + 1] * turn_k[d + 1]
                    keys[place + (d + 1) * LANES] = k[d] * turn_k[d + 1] + k[d + 1] * turn_k[d]
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
