"""The memory of caches: what is in use is nobody else's, zero where nothing was written, and given back."""

from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path

import pytest
import torch

from agents.cache import Cache, new_cache


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


def test_a_loaded_row_is_copied_and_the_rest_stays_finite() -> None:
    source, target = new(8, 30), new(64, 500)
    source.memory.normal_()
    target.load(slice(3, 11), source, slice(0, 8))
    assert torch.equal(target.memory[:, :, 3:11, :, : source.positions], source.memory)
    assert target.memory.isfinite().all()
