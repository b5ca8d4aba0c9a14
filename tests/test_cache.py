"""The memory of caches: what is in use is nobody else's, what is over is used again, and nothing piles up."""

from __future__ import annotations

import itertools

import pytest
import torch

from agents.cache import Cache, CacheMemory


def new(memory: CacheMemory, rows: int, positions: int) -> Cache:
    return memory.new(2, rows, 2, positions, 16, torch.float32, torch.device("cpu"))


def span(cache: Cache) -> tuple[int, int]:
    return cache.memory.data_ptr(), cache.memory.data_ptr() + cache.memory.nbytes


def reserved(memory: CacheMemory) -> int:
    return sum(len(segment.memory) for segment in memory._segments)


def test_caches_in_use_share_no_memory_whatever_came_and_went() -> None:
    memory, draws = CacheMemory(), torch.Generator().manual_seed(0)
    live: list[Cache] = []
    for _ in range(200):
        rows, positions, leaving = (int(n) for n in torch.randint(1, 96, (3,), generator=draws))
        live.append(new(memory, 4 * rows, 2 * positions))
        if len(live) > 6:
            live.pop(leaving % len(live))
        spans = sorted(span(cache) for cache in live)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_a_cache_that_is_over_leaves_its_place_to_the_next() -> None:
    memory = CacheMemory()
    first = new(memory, 64, 32)
    place = span(first)
    other = new(memory, 64, 32)
    assert span(other)[0] >= place[1]
    del first
    assert span(new(memory, 64, 32)) == place


@pytest.mark.parametrize("held", [0, 3])
def test_memory_does_not_grow_with_the_number_of_sizes_that_were_needed(held: int) -> None:
    memory, size = CacheMemory(), 0
    kept = [new(memory, 4, 16) for _ in range(held)]
    # Pages that are not written to are not there: these hundreds of megabytes cost nothing.
    for positions in range(256, 4096, 16):
        cache = new(memory, 256, positions)
        size = cache.memory.nbytes
        del cache
    assert reserved(memory) <= size + (1 << 26) * (1 + len(kept))
