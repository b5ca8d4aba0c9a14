"""The memory of caches: what is in use is nobody else's, zero where nothing was written, and given back."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.cache import BatchedCache, Cache, SequentialCache, new_cache


def new(rows: int, positions: int) -> Cache:
    return new_cache(2, rows, 2, positions, 16, torch.float32, torch.device("cpu"))


def resident() -> int:
    """Bytes of this process that are there."""
    found = re.search(r"VmRSS:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def test_caches_in_use_share_no_memory_whatever_came_and_went() -> None:
    draws = torch.Generator().manual_seed(0)
    live: list[Cache] = []
    for _ in range(100):
        rows, positions, leaving = (int(n) for n in torch.randint(1, 96, (3,), generator=draws))
        live.append(new(4 * rows, 2 * positions))
        assert not live[-1].memory.any()
        live[-1].memory.fill_(1.0)
        if len(live) > 6:
            live.pop(leaving % len(live))
        spans = sorted((c.memory.data_ptr(), c.memory.data_ptr() + c.memory.nbytes) for c in live)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_of_caches_that_are_over_goes_back_to_the_system() -> None:
    before = resident()
    for positions in range(256, 1024, 16):
        cache = new(256, positions)
        cache.memory.fill_(1.0)
        assert resident() - before < 2 * cache.memory.nbytes
        del cache
    assert resident() - before < 32 << 20


KINDS = (SequentialCache, BatchedCache)


def made(kind: type[Cache], rows: int, positions: int, width: int = 16) -> Cache:
    return kind(2, rows, 3, positions, width, torch.float32, torch.device("cpu"))


def fed(
    cache: Cache, rows: Sequence[int] | None, starts: Sequence[int], length: int = 1, seed: int = 1
) -> torch.Tensor:
    """What the next positions of some rows, or of the first ones, mix in both layers: (2, rows, length, width).

    Queries, keys and values are keyed by the seed, the number in ``starts`` and the position after it.
    """
    draws, width = torch.Generator().manual_seed(seed), 3 * cache.head_width
    qkv = torch.randn(2, 16, 64, 3 * width, generator=draws)[:, : len(starts), :length].reshape(2, -1, 3 * width)
    angles = torch.randn(16, 64, 2, width // 2, generator=draws)[: len(starts), :length].flatten(0, 1)
    positions = torch.tensor(starts)[:, None] + torch.arange(length)
    turns = torch.polar(torch.ones_like(angles), angles)
    at = cache.at(None if rows is None else torch.tensor(rows), positions, turns)
    mixed = [cache.attend(layer, qkv[layer].clone(), at) for layer in range(2)]
    return torch.stack([found.view(len(starts), length, -1) for found in mixed if found is not None])


def grown(cache: Cache, rows: int, positions: int) -> Cache:
    larger = cache.like(rows, positions)
    larger.load(slice(0, cache.rows), cache, slice(0, cache.rows))
    return larger


@pytest.mark.parametrize("width", [2, 6, 16, 32])
@torch.inference_mode()
def test_both_kinds_attend_to_the_same(width: int) -> None:
    starts = [0, 1, 14, 15, 16, 17, 31, 40, 5]
    ours, theirs = (
        [
            fed(cache, range(9), [0] * 9, 48),
            fed(cache, None, starts),
            fed(cache, [7, 2], [3, 20], 8),
            fed(cache, None, starts),
        ]
        for cache in (made(kind, 9, 48, width) for kind in KINDS)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_nothing_is_mixed_where_nobody_asks_and_yet_all_is_written() -> None:
    for kind in KINDS:
        asked, not_asked = made(kind, 3, 16), made(kind, 3, 16)
        fed(asked, range(3), [0] * 3, 5)
        draws = torch.Generator().manual_seed(1)
        qkv = torch.randn(2, 16, 64, 144, generator=draws)[:, :3, :5].reshape(2, 15, 144)
        angles = torch.randn(16, 64, 2, 24, generator=draws)[:3, :5].flatten(0, 1)
        turns = torch.polar(torch.ones_like(angles), angles)
        at = not_asked.at(torch.arange(3), torch.arange(5).expand(3, -1), turns)
        assert all(not_asked.attend(layer, qkv[layer].clone(), at, wanted=False) is None for layer in range(2))
        assert torch.equal(asked.memory, not_asked.memory)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_positions_beyond_the_room_are_refused_before_anything_is_written(kind: type[Cache]) -> None:
    cache = made(kind, 3, 16)
    fed(cache, None, [15, 15, 15])
    before = cache.memory.clone()
    for row in range(3):
        for start, length in ((16, 1), (12, 5)):
            with pytest.raises(IndexError, match="room for 16"):
                fed(cache, [row], [start], length)
    assert torch.equal(cache.memory, before)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_loaded_rows_attend_as_where_they_come_from(kind: type[Cache]) -> None:
    source, target = made(kind, 8, 30), made(kind, 64, 500)
    fed(source, range(8), [0] * 8, 29)
    target.load(slice(3, 11), source, slice(0, 8))
    target.load(np.array([40, 20]), target, np.array([4, 9]))
    assert target.memory.isfinite().all()
    for there, here in ((10, 7), (40, 1), (20, 6)):
        ours, theirs = (fed(cache, [row], [29]) for cache, row in ((target, there), (source, here)))
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_row_that_is_loaded_sees_nothing_of_whoever_was_there_before(kind: type[Cache]) -> None:
    source, target = made(kind, 2, 16), made(kind, 4, 64)
    fed(source, range(2), [0, 0], 13)
    target.memory.fill_(torch.nan)
    target.load(slice(1, 3), source, slice(0, 2))
    clean = grown(source, 4, 64)
    for position in range(13, 40):
        got, expected = (
            fed(cache, rows, [position] * 2, seed=2) for cache, rows in ((target, [1, 2]), (clean, [0, 1]))
        )
        assert torch.equal(got, expected), position


@torch.inference_mode()
def test_what_a_row_mixes_hangs_on_its_own_past_to_the_last_bit() -> None:
    starts = [0, 3, 15, 16, 29, 46]
    cache = made(SequentialCache, 6, 48)
    fed(cache, range(6), [0] * 6, 48)
    # In a longer cache, in which other things lie where it has not been yet; and with some of the rows.
    longer = made(SequentialCache, 64, 200)
    longer.memory.normal_()
    longer.load(slice(0, 6), cache, slice(0, 6))
    longer.memory[:, 2, :, :, 1:] = torch.nan
    whole = fed(cache, None, starts)
    assert torch.equal(fed(longer, None, starts), whole)
    assert torch.equal(fed(longer, None, starts[:4]), whole[:, :4])
    # Also several positions at once.
    at_once = fed(cache, [2, 5], [16, 7], 9, seed=2)
    assert torch.equal(fed(longer, [2, 5], [16, 7], 9, seed=2), at_once)


@torch.inference_mode()
def test_scores_far_apart_and_all_alike_are_weighed_as_softmax_does() -> None:
    for scale in (0.0, 30.0, 1e4):
        mixed = []
        for kind in KINDS:
            cache = made(kind, 4, 32)
            draws = torch.Generator().manual_seed(2)
            qkv = torch.randn(2, 4 * 32, 144, generator=draws)
            qkv[:, :, 48:96] *= scale
            turns = torch.ones(4 * 32, 2, 24, dtype=torch.complex64)
            at = cache.at(torch.arange(4), torch.arange(32).expand(4, -1), turns)
            mixed.append(torch.stack([cache.attend(layer, qkv[layer].clone(), at) for layer in range(2)]))
        ours, theirs = mixed
        assert ours.isfinite().all()
        # Scores of thousands are known to some 1e-4, and so are their exponentials.
        assert torch.allclose(ours, theirs, atol=1e-5 + 1e-6 * scale)


@pytest.mark.parametrize("width", [6, 16])
@torch.inference_mode()
def test_rows_that_go_on_from_prompts_attend_to_them_wherever_they_are_moved(width: int) -> None:
    """The same comings and goings in both kinds; the prompts are of two lengths, and one is gone on from twice."""
    mixed = []
    for kind in KINDS:
        short, long = made(kind, 3, 8, width), made(kind, 2, 20, width)
        fed(short, range(3), [0] * 3, 8, seed=3)
        fed(long, range(2), [0] * 2, 20, seed=4)
        prompts = [(np.array([0, 2, 3]), short, np.array([2, 0, 2])), (np.array([1, 4]), long, np.array([0, 1]))]
        place = np.array([7, 18, 5, 6, 20])
        cache = long.going_on(8, prompts, place)
        other = short.going_on(4, [(np.arange(4), short, np.array([1, 1, 0, 2]))], np.array([8, 3, 1, 5]))
        steps = []
        for step in range(40):
            if step == 5:
                # Rows are copied within the cache, and it grows.
                cache.load(np.array([5]), cache, np.array([1]))
                place = np.append(place, place[1])
                cache = grown(cache, 16, cache.positions)
            if step == 9:
                # Those of another cache come in, and some go into one of their own.
                cache.load(slice(6, 10), other, slice(0, 4))
                place = np.append(place, [8, 3, 1, 5])
            if step == 20:
                chosen = np.array([9, 4, 1, 6, 5])
                part = cache.like(6, cache.positions)
                part.load(slice(0, 5), cache, chosen)
                cache, place = part, place[chosen]
            needed = cache.needed(place + 5, slice(0, len(place)))
            if needed > cache.positions:
                cache = grown(cache, cache.rows, needed)
            if step % 7 == 3:
                # Several positions at once, of some rows.
                some = [3, 0]
                steps.append(fed(cache, some, place[some].tolist(), 5, seed=100 + step))
                place[some] += 5
            else:
                steps.append(fed(cache, None, place.tolist(), seed=step))
                place = place + 1
        mixed.append(steps)
    for ours, theirs in zip(*mixed, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5, rtol=1e-5)
