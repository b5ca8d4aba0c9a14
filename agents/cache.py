"""Keys and values of rows that are being decoded, and the memory that they lie in."""

from __future__ import annotations

import contextlib
import math
import mmap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents import kernels

_SMALL = 1 << 20  # bytes up to which memory is left to the allocator

_FIRST_ROOM = 32
"""Positions of its own that a row has room for at first."""

Ints = npt.NDArray[np.int64]
Rows = slice | Ints


def new_cache(
    layers: int, rows: int, heads: int, positions: int, head_width: int, dtype: torch.dtype, device: torch.device
) -> Cache:
    """A cache with room for at least so many positions; zeros, since what is masked must be finite."""
    kind = SequentialCache if device.type == "cpu" and dtype == torch.float32 else BatchedCache
    return kind(layers, rows, heads, positions, head_width, dtype, device)


def rotate_(qk: Tensor, turns: Tensor) -> None:
    """Rotary position embedding (Su et al. 2021), in place: neighbours of the last axis are the coordinates of a plane.

    Args:
        qk: (..., width), contiguous along the last axis.
        turns: complex, broadcasts with (..., width / 2).
    """
    planes = qk.view(*qk.shape[:-1], -1, 2)
    if qk.dtype in (torch.float32, torch.float64):
        torch.view_as_complex(planes).mul_(turns)
    else:
        planes.copy_(torch.view_as_real(torch.view_as_complex(planes.float()) * turns))


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < _SMALL:
        return torch.zeros(shape, dtype=dtype, device=device)
    return _mapped(size).view(dtype).view(shape)


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


class Attention(Protocol):
    """What decoding asks of a cache."""

    def at(self, rows_N: Tensor | None, positions_NQ: Tensor, turns: Tensor) -> Any:
        """See ``Cache.at``."""

    def attend(self, layer: int, qkv: Tensor, at: Any, *, wanted: bool = True) -> Tensor | None:
        """See ``Cache.attend``."""


def together(parts: Sequence[tuple[Cache, slice]]) -> Attention:
    """The first rows of several caches, one after the other: which of all of them are the first of each."""
    return parts[0][0] if len(parts) == 1 else _Together(parts)


class _Together:
    def __init__(self, parts: Sequence[tuple[Cache, slice]]) -> None:
        self._parts = parts

    def at(self, rows_N: Tensor | None, positions_NQ: Tensor, turns: Tensor) -> Any:
        assert rows_N is None
        return [cache.at(None, positions_NQ[own], turns[own]) for cache, own in self._parts]

    def attend(self, layer: int, qkv: Tensor, at: Any, *, wanted: bool = True) -> Tensor | None:
        mixed = [
            found
            for (cache, own), where in zip(self._parts, at, strict=True)
            if (found := cache.attend(layer, qkv[own], where, wanted=wanted)) is not None
        ]
        return torch.cat(mixed) if mixed else None


class Cache(ABC):
    """Keys and values of R rows with room for P positions each, and attention to them.

    Attributes:
        memory: keys and values of all layers, laid out as attention reads them.
        rows, positions: R and P.
    """

    memory: Tensor

    def __init__(
        self,
        layers: int,
        rows: int,
        heads: int,
        positions: int,
        head_width: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.layers, self.rows, self.heads, self.head_width = layers, rows, heads, head_width
        self.positions = -(-max(positions, 1) // kernels.BLOCK) * kernels.BLOCK
        self.dtype, self.device = dtype, device

    def like(self, rows: int, positions: int) -> Self:
        """A cache with room for at least so many positions, to be filled by ``load``."""
        return type(self)(self.layers, rows, self.heads, positions, self.head_width, self.dtype, self.device)

    @abstractmethod
    def going_on(self, rows: int, prompts: Sequence[tuple[Ints, Self, Ints]], lengths_N: Ints) -> Self:
        """A cache of so many rows, the first N of which go on from prompts, with room for some more positions.

        Args:
            rows: N or more.
            prompts: which rows go on from which rows of a cache, all of which have room for no more positions than
                this one.
            lengths_N: positions that each of the N goes on from.
        """

    @abstractmethod
    def needed(self, positions: Ints, rows: Rows) -> int:
        """How many positions there must be room for, so that some rows can stand at ``positions``."""

    @abstractmethod
    def load(self, rows: Rows, source: Self, source_rows: Rows) -> None:
        """Copy rows of a cache (this one, too) that has room for no more positions than this one."""

    @abstractmethod
    def at(self, rows_N: Tensor | None, positions_NQ: Tensor, turns: Tensor) -> Any:
        """What ``attend`` needs to know, in all layers, of N rows that go on by Q positions each.

        Args:
            rows_N: the rows; None: the first N, by one position each.
            positions_NQ: the positions; each row's follow one another.
            turns: (N Q, 2, width / 2), complex: by which each query and key is turned.

        Raises IndexError, on a processor, where a position lies beyond the cache's room.
        """

    def check_room(self, positions: Ints, rows: Rows) -> None:
        """Raises IndexError where rows have no room for positions: what is written there would be somebody else's."""
        if self.needed(positions, rows) > self.positions:
            raise IndexError(f"{self.needed(positions, rows)} positions, but a cache with room for {self.positions}")

    @abstractmethod
    def attend(self, layer: int, qkv: Tensor, at: Any, *, wanted: bool = True) -> Tensor | None:
        """Write the keys and values of new positions, and let each attend to all up to it.

        Args:
            qkv: (N Q, 3 width), contiguous, not yet turned; may be overwritten.
            at: of ``at``.
            wanted: whether what they come to is asked for.

        Returns what is mixed, (N Q, width), None if it is not wanted.
        """


class _Blocks:
    """Keys and values, (layers, N, heads, 2, positions / 16, 16 W), as ``kernels.attention`` reads them."""

    def __init__(self, memory: Tensor) -> None:
        self.memory, self.positions = memory, memory.shape[4] * kernels.BLOCK
        self.layers = list(memory.flatten(-2).numpy())

    def copy(self, rows: Rows, source: _Blocks, source_rows: Rows) -> None:
        """The first positions of some rows, as many as both have room for."""
        if self.positions == source.positions:
            # What is moved within a cache: layer by layer a row lies together, and NumPy copies it at once.
            for ours, theirs in zip(self.layers, source.layers, strict=True):
                ours.reshape(len(ours), -1)[rows] = theirs.reshape(len(theirs), -1)[source_rows]
            return
        blocks = min(self.memory.shape[4], source.memory.shape[4])
        self.memory[:, rows, :, :, :blocks] = source.memory[:, source_rows, :, :, :blocks]


class SequentialCache(Cache):
    """On a processor: what a row and a head attend to lies together, and is read once, in order.

    What rows share, the prompt that they go on from, is there once. P is the room for a row's own positions.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._width = kernels.padded(self.head_width)
        self._own = self._blocks(self.rows, self.positions)
        self.memory = self._own.memory
        self._shared = self._blocks(1, 0)
        # By row: which of the shared ones is its, and how many positions it has of it.
        self._shared_by, self._shared_length = np.zeros((2, self.rows), dtype=np.int64)
        self._numbers = np.arange(self.rows)
        self._kernel = kernels.attention(self.head_width)

    def _blocks(self, count: int, positions: int) -> _Blocks:
        blocks = -(-positions // kernels.BLOCK)
        shape = (self.layers, count, self.heads, 2, blocks, kernels.BLOCK * self._width)
        return _Blocks(_zeros(shape, self.dtype, self.device))

    def like(self, rows: int, positions: int) -> Self:
        other = super().like(rows, positions)
        other._shared = self._shared
        return other

    def going_on(self, rows: int, prompts: Sequence[tuple[Ints, Self, Ints]], lengths_N: Ints) -> Self:
        cache = self.like(rows, _FIRST_ROOM)
        cache._shared_length[: len(lengths_N)] = lengths_N
        distinct = [np.unique(places, return_inverse=True) for _, _, places in prompts]
        cache._shared = self._blocks(sum(len(places) for places, _ in distinct), int(lengths_N.max()))
        first = 0
        for (own, source, _), (places, which) in zip(prompts, distinct, strict=True):
            cache._shared.copy(slice(first, first + len(places)), source._own, places)
            cache._shared_by[own] = first + which
            first += len(places)
        return cache

    def needed(self, positions: Ints, rows: Rows) -> int:
        return int((positions - self._shared_length[rows]).max()) + 1

    def load(self, rows: Rows, source: Self, source_rows: Rows) -> None:
        self._own.copy(rows, source._own, source_rows)
        by, self._shared_length[rows] = source._shared_by[source_rows], source._shared_length[source_rows]
        if source._shared is not self._shared:
            by = self._share_with(source, by)
        self._shared_by[rows] = by

    def _share_with(self, source: Self, by: Ints) -> Ints:
        """Take over what rows of another cache share, numbered anew. What no place of ours refers to is dropped."""
        both = (self._shared, source._shared)
        ours, self._shared_by = np.unique(self._shared_by, return_inverse=True)
        theirs, which = np.unique(by, return_inverse=True)
        self._shared = self._blocks(len(ours) + len(theirs), max(shared.positions for shared in both))
        self._shared.copy(slice(0, len(ours)), both[0], ours)
        self._shared.copy(slice(len(ours), len(ours) + len(theirs)), both[1], theirs)
        return len(ours) + which

    def at(self, rows_N: Tensor | None, positions_NQ: Tensor, turns: Tensor) -> Any:
        count, length = positions_NQ.shape
        rows = self._numbers[:count] if rows_N is None else np.repeat(rows_N.numpy(), length)
        positions = positions_NQ.flatten().numpy()
        self.check_room(positions, rows)
        return torch.view_as_real(turns).flatten(-2).numpy(), rows, positions

    def attend(self, layer: int, qkv: Tensor, at: Any, *, wanted: bool = True) -> Tensor | None:
        turns, rows, positions = at
        mixed = qkv.new_empty(len(qkv) if wanted else 0, self.heads * self.head_width)
        shared = (self._shared.layers[layer], self._shared_by, self._shared_length)
        new = qkv.view(len(qkv), 3, -1).numpy()
        self._kernel(new, turns, *shared, self._own.layers[layer], rows, positions, mixed.numpy())
        return mixed if wanted else None


class BatchedCache(Cache):
    """On any device, by batched products over rows and heads.

    It is as long as its longest row, rounded up: gaps between what is read would cost more than the copies do. Where
    several positions of a row are fed at once its last bits depend on that length, and so on its neighbours.

    memory: (layers, 2, R, heads, P, head width), keys and values.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        shape = (self.layers, 2, self.rows, self.heads, self.positions, self.head_width)
        self.memory = _zeros(shape, self.dtype, self.device)
        # Of each layer the vectors, (2 R heads P, head width), and keys and values, (R heads, P, head width) each.
        flat, by_head = (-1, self.head_width), (-1, self.positions, self.head_width)
        self._by_layer = [(both.view(flat), both[0].view(by_head), both[1].view(by_head)) for both in self.memory]
        kinds, heads = (torch.arange(count, device=self.device) for count in (2, self.heads))
        self._offsets = (kinds[:, None] * self.rows * self.heads + heads) * self.positions
        self._numbers = torch.arange(max(self.positions, self.rows), device=self.device)
        self._never, self._always = torch.tensor((-math.inf, 0.0), dtype=self.dtype, device=self.device)

    def _places(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Numbers (..., 2, heads) of the vectors that are keys and values at some positions of some rows."""
        return (rows * (self.heads * self.positions) + positions)[..., None, None] + self._offsets

    def going_on(self, rows: int, prompts: Sequence[tuple[Ints, Self, Ints]], lengths_N: Ints) -> Self:
        cache = self.like(rows, self.positions + 1)
        for own, source, places in prompts:
            cache.load(own, source, places)
        return cache

    def needed(self, positions: Ints, rows: Rows) -> int:
        return int(positions.max()) + 1

    def load(self, rows: Rows, source: Self, source_rows: Rows) -> None:
        self.memory[:, :, rows, :, : source.positions] = source.memory[:, :, source_rows]
        # Whoever was here before may have left what is no number, which being hidden would not hide.
        self.memory[:, :, rows, :, source.positions :] = 0

    def at(self, rows_N: Tensor | None, positions_NQ: Tensor, turns: Tensor) -> Any:
        rows = self._numbers[: len(positions_NQ)] if rows_N is None else rows_N
        if self.device.type == "cpu":  # elsewhere it would wait for the device
            self.check_room(positions_NQ.numpy(), rows.numpy())
        # (N, 1, Q, P): minus infinity at the keys after each position, 0 elsewhere.
        after = self._numbers[: self.positions] > positions_NQ[..., None]
        hidden = torch.where(after, self._never, self._always)[:, None]
        return turns, rows_N, self._places(rows[:, None], positions_NQ), hidden

    def attend(self, layer: int, qkv: Tensor, at: Any, *, wanted: bool = True) -> Tensor | None:
        turns, rows_N, places, hidden = at
        vectors, keys, values = self._by_layer[layer]
        count, length = places.shape[:2]
        qkv = qkv.view(count * length, 3, -1)
        rotate_(qkv[:, :2], turns)
        qkv = qkv.view(count, length, 3, self.heads, -1)
        vectors[places] = qkv[:, :, 1:]
        if not wanted:
            return None
        if rows_N is None:
            # One query each: rows and heads are one axis, without a copy of what they attend to.
            heads = count * self.heads
            scores = torch.bmm(qkv[:, 0, 0].reshape(heads, 1, -1), keys[:heads].mT)
            scores.view(count, self.heads, -1).add_(hidden[:, 0])
            return torch.bmm(torch.softmax(scores, -1, out=scores), values[:heads]).view(count, -1)
        k, v = self.memory[layer, :, rows_N]
        scores = torch.matmul(qkv[:, :, 0].transpose(1, 2), k.mT).add_(hidden)
        mixed = torch.matmul(torch.softmax(scores, -1, out=scores), v)
        return mixed.transpose(1, 2).reshape(count * length, -1)
