"""Keys and values of rows that are being decoded, and the memory that they lie in."""

from __future__ import annotations

import contextlib
import math
import mmap

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# A batched product of fewer multiplications takes another kernel, with another order of summation.
_LEAST_PRODUCT = 400
_KEY_BLOCK = 16

_SMALL = 1 << 20  # bytes up to which memory is left to the allocator

Rows = slice | npt.NDArray[np.int64]


def cache_room(positions: int, head_width: int) -> int:
    """Positions of a cache for at least so many: such that a row's bits do not depend on how many there are.

    In multiples of 16 masked keys add exact zeros to the same order of summation, in kernels that are the same.
    """
    least = max(positions, -(-_LEAST_PRODUCT // head_width))
    return -(-least // _KEY_BLOCK) * _KEY_BLOCK


def new_cache(
    layers: int, rows: int, heads: int, positions: int, head_width: int, dtype: torch.dtype, device: torch.device
) -> Cache:
    """A cache with room for at least so many positions; zeros, since what is masked must be finite."""
    shape = (layers, 2, rows, heads, cache_room(positions, head_width), head_width)
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < _SMALL:
        return Cache(torch.zeros(shape, dtype=dtype, device=device))
    return Cache(_mapped(size).view(dtype).view(shape))


def _mapped(size: int) -> Tensor:
    """Bytes, zero, that go back to the system when the tensor is gone, in huge pages where there are any.

    Caches come and go in ever other sizes while rows start and end. In the C library's heap the holes that they leave
    would in the end take several times what is live.
    """
    # Shared memory, the default, gets no huge pages.
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


class Cache:
    """Keys and values of R rows with room for P positions each.

    It is as long as its longest row, rounded up: gaps between what is read would cost more than the copies do.

    Args:
        memory: (layers, 2, R, heads, P, head width), keys and values.

    Attributes:
        by_layer: the same memory of each layer, as vectors (2 R heads P, head width), and as keys and values,
            (R heads, P, head width) each.
    """

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
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
        return new_cache(layers, rows, heads, positions, head_width, self.memory.dtype, self.memory.device)

    def load(self, rows: Rows, source: Cache, source_rows: Rows) -> None:
        """Copy rows of a cache (this one, too) that has room for no more positions than this one."""
        self.memory[:, :, rows, :, : source.positions] = source.memory[:, :, source_rows]
