"""Keys and values of rows that are being decoded, and the memory that they lie in."""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# A batched product of fewer multiplications takes another kernel, with another order of summation.
_LEAST_PRODUCT = 400
_KEY_BLOCK = 16

_PAGE = 4096
_SEGMENT = 1 << 26  # bytes asked for at once; pages that were never written to are not there

Rows = slice | npt.NDArray[np.int64]


def cache_room(positions: int, head_width: int) -> int:
    """Positions of a cache for at least so many: such that a row's bits do not depend on how many there are.

    In multiples of 16 masked keys add exact zeros to the same order of summation, in kernels that are the same.
    """
    least = max(positions, -(-_LEAST_PRODUCT // head_width))
    return -(-least // _KEY_BLOCK) * _KEY_BLOCK


class CacheMemory:
    """Memory for caches: of the system rather than of the heap, kept, and used again from its beginning on.

    Caches come and go in ever other sizes while rows start and end. In the C library's heap the holes that they leave
    would in the end take several times what is live; asking the system each time costs a fifth of sampling.
    """

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    def new(
        self,
        layers: int,
        rows: int,
        heads: int,
        positions: int,
        head_width: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Cache:
        """A cache with room for at least so many positions.

        What is in it is of no meaning, but finite: it is masked, and counts nothing after a softmax.
        """
        shape = (layers, 2, rows, heads, cache_room(positions, head_width), head_width)
        if device.type != "cpu":
            return Cache(torch.zeros(shape, dtype=dtype, device=device), self)
        size = -(-math.prod(shape) * dtype.itemsize // _PAGE) * _PAGE
        for segment in self._segments:
            place = segment.gap(size)
            if place is not None:
                break
        else:
            # A new one does for what those that nobody uses did, or each size yet unseen would add to the memory.
            self._segments = [segment for segment in self._segments if segment.used]
            segment, place = _Segment(max(size, _SEGMENT)), 0
            self._segments.append(segment)
        memory = segment.memory[place : place + size].view(dtype)[: math.prod(shape)].view(shape)
        cache = Cache(memory, self)
        segment.lend(place, size, cache)
        return cache


class _Segment:
    """Bytes, zero at first, in huge pages where there are any, of which pieces are lent while a cache uses them."""

    def __init__(self, size: int) -> None:
        mapped = mmap.mmap(-1, size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                mapped.madvise(mmap.MADV_HUGEPAGE)
        self.memory = torch.frombuffer(mapped, dtype=torch.uint8)
        self._lent: list[tuple[int, int, weakref.ref[Cache]]] = []

    def gap(self, size: int) -> int | None:
        """The first place from which so many bytes are free."""
        self._lent = [piece for piece in self._lent if piece[2]() is not None]
        free = 0
        for start, end in [*((start, end) for start, end, _ in self._lent), (len(self.memory), 0)]:
            if start - free >= size:
                return free
            free = end
        return None

    @property
    def used(self) -> bool:
        return any(cache() is not None for _, _, cache in self._lent)

    def lend(self, start: int, size: int, cache: Cache) -> None:
        self._lent.append((start, start + size, weakref.ref(cache)))
        self._lent.sort(key=lambda piece: piece[0])


class Cache:
    """Keys and values of R rows with room for P positions each.

    It is as long as its longest row, rounded up: gaps between what is read would cost more than the copies do.

    Args:
        memory: (layers, 2, R, heads, P, head width), keys and values.
        source: what gives memory to caches like this one.

    Attributes:
        by_layer: the same memory of each layer, as vectors (2 R heads P, head width), and as keys and values,
            (R heads, P, head width) each.
    """

    def __init__(self, memory: Tensor, source: CacheMemory) -> None:
        self.memory, self._source = memory, source
        _, _, self.rows, self.heads, self.positions, head_width = memory.shape
        flat, by_head = (-1, head_width), (-1, self.positions, head_width)
        self.by_layer = [(both.view(flat), both[0].view(by_head), both[1].view(by_head)) for both in memory.unbind()]
        kinds, heads = (torch.arange(count, device=memory.device) for count in (2, self.heads))
        self._offsets = (kinds[:, None] * self.rows * self.heads + heads) * self.positions

    def places(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Numbers (..., 2, heads) of the vectors that are keys and values at some positions of some rows."""
        return (rows * (self.heads * self.positions) + positions)[..., None, None] + self._offsets

    def like(self, rows: int, positions: int) -> Cache:
        """A cache with room for at least so many positions, to be filled by ``load``."""
        layers, _, _, heads, _, head_width = self.memory.shape
        memory = self.memory
        return self._source.new(layers, rows, heads, positions, head_width, memory.dtype, memory.device)

    def load(self, rows: Rows, source: Cache, source_rows: Rows) -> None:
        """Copy rows of a cache (this one, too) that has room for no more positions than this one."""
        self.memory[:, :, rows, :, : source.positions] = source.memory[:, :, source_rows]
