"""The memory of caches: what is in use is nobody else's, zero where nothing was written, and given back."""

from __future__ import annotations

import itertools
import re
import sys
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


def fill(cache: Cache, rows: int, positions: int, seed: int = 0) -> torch.Tensor:
    """Keys and values of some rows, written in both layers; (rows, positions, 2, heads, width)."""
    draws = torch.Generator().manual_seed(seed)
    kv = torch.randn(rows, positions, 2, 3, cache.head_width, generator=draws)
    for layer in range(2):
        cache.store(layer, torch.arange(rows), torch.arange(positions).expand(rows, -1), kv + layer)
    return kv


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [2, 6, 16, 32])
def test_what_was_stored_is_read_also_after_a_load(kind: type[Cache], width: int) -> None:
    source, target = made(kind, 8, 30, width), made(kind, 64, 500, width)
    kv = fill(source, 8, 29)
    target.load(slice(3, 11), source, slice(0, 8))
    target.load(np.array([40, 20]), target, np.array([4, 9]))
    assert target.memory.isfinite().all()
    for layer in range(2):
        keys, values = (kv + layer).unbind(2)
        for cache, rows, wanted in ((source, range(8), range(8)), (target, (10, 40, 20), (7, 1, 6))):
            k, v = cache.read(layer, torch.tensor(rows), 29)
            assert torch.equal(k, keys[list(wanted)].permute(0, 2, 3, 1))
            assert torch.equal(v, values[list(wanted)].transpose(1, 2))
        # After the last position there is something that can be weighed by 0.
        k, v = source.read(layer, torch.tensor([1]), 600)
        assert k.shape[-1] == v.shape[-2] == 600
        assert k.isfinite().all()
        assert v.isfinite().all()


def attended(cache: Cache, positions: list[int], seed: int = 1, rows: slice = slice(None)) -> torch.Tensor:
    """What the rows' next position mixes, in both layers; the new one's projections keyed by seed."""
    draws = torch.Generator().manual_seed(seed)
    width = 3 * cache.head_width
    qkv = torch.randn(2, 64, 3 * width, generator=draws)[:, : len(positions)][:, rows]
    angles = torch.randn(64, 2, width // 2, generator=draws)[: len(positions)][rows]
    turns = torch.polar(torch.ones_like(angles), angles)
    at = cache.at(torch.tensor(positions)[rows], turns)
    return torch.stack([cache.attend(layer, qkv[layer].clone(), at) for layer in range(2)])


@pytest.mark.parametrize("width", [2, 6, 16, 32])
@torch.inference_mode()
def test_both_kinds_attend_to_the_same(width: int) -> None:
    positions = [0, 1, 14, 15, 16, 17, 31, 40, 5]
    caches = [made(kind, 9, 48, width) for kind in KINDS]
    for cache in caches:
        fill(cache, 9, 48)
    ours, theirs = (attended(cache, positions) for cache in caches)
    assert torch.allclose(ours, theirs, atol=2e-6, rtol=1e-5)
    # And have written the same keys and values.
    for layer in range(2):
        for one, other in zip(*(cache.read(layer, torch.arange(9), 48) for cache in caches), strict=True):
            assert torch.allclose(one, other, atol=1e-6)


def grown(cache: Cache, rows: int, positions: int) -> Cache:
    larger = cache.like(rows, positions)
    larger.load(slice(0, cache.rows), cache, slice(0, cache.rows))
    return larger


@pytest.mark.parametrize("width", [6, 16])
@torch.inference_mode()
def test_rows_that_go_on_from_prompts_attend_to_them_wherever_they_are_moved(width: int) -> None:
    """The same comings and goings in both kinds; the prompts are of two lengths, and one is gone on from twice."""
    mixed = []
    for kind in KINDS:
        short, long = made(kind, 3, 8, width), made(kind, 2, 20, width)
        fill(short, 3, 8, seed=3)
        fill(long, 2, 20, seed=4)
        prompts = [(np.array([0, 2, 3]), short, np.array([2, 0, 2])), (np.array([1, 4]), long, np.array([0, 1]))]
        lengths = np.array([7, 18, 5, 6, 20])
        cache = long.going_on(8, prompts, lengths)
        other = short.going_on(4, [(np.arange(4), short, np.array([1, 1, 0, 2]))], np.array([8, 3, 1, 5]))
        place, steps = lengths.copy(), []
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
            needed = cache.needed(place, slice(0, len(place)))
            if needed > cache.positions:
                cache = grown(cache, cache.rows, needed)
            steps.append(attended(cache, place.tolist(), seed=step))
            place = place + 1
        # Several positions at once, at places of their own, and what is there then.
        kv = torch.arange(2.0 * 3 * 2 * 3 * width).view(2, 3, 2, 3, width)
        some = torch.tensor([3, 0])
        cache = grown(cache, 6, cache.positions + 3)
        cache.store(1, some, torch.from_numpy(place)[some][:, None] + torch.arange(3), kv)
        for row, at in zip(some.tolist(), place[some].tolist(), strict=True):
            k, v = cache.read(1, torch.tensor([row]), 80)
            steps += [k[..., : at + 3], v[:, :, : at + 3]]
        mixed.append(steps)
    for ours, theirs in zip(*mixed, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-5)


@torch.inference_mode()
def test_what_a_row_mixes_hangs_on_its_own_past_to_the_last_bit() -> None:
    positions = [0, 3, 15, 16, 29, 46]
    cache = made(SequentialCache, 6, 48)
    fill(cache, 6, 48)
    whole = attended(cache, positions)
    # In a longer cache, in which other things lie where it has not been yet; and with some of the rows.
    longer = made(SequentialCache, 64, 200)
    longer.memory.normal_()
    longer.load(slice(0, 6), cache, slice(0, 6))
    longer.memory[:, 2, :, :, 1:] = 1e30
    assert torch.equal(attended(longer, positions), whole)
    assert torch.equal(attended(longer, positions, rows=slice(0, 4)), whole[:, :4])


@torch.inference_mode()
def test_scores_far_apart_and_all_alike_are_weighed_as_softmax_does() -> None:
    for scale in (0.0, 30.0, 1e4):
        caches = [made(kind, 4, 32) for kind in KINDS]
        for cache in caches:
            kv = torch.randn(4, 32, 2, 3, 16, generator=torch.Generator().manual_seed(2))
            kv[:, :, 0] *= scale
            cache.store(0, torch.arange(4), torch.arange(32).expand(4, -1), kv)
            cache.store(1, torch.arange(4), torch.arange(32).expand(4, -1), kv)
        ours, theirs = (attended(cache, [31, 20, 7, 0]) for cache in caches)
        assert ours.isfinite().all()
        # Scores of thousands are known to some 1e-4, and so are their exponentials.
        assert torch.allclose(ours, theirs, atol=1e-5 + 1e-6 * scale)
