"""Batches without padding: rows of a kind of length become rectangles, and only what is trained is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.generation import Bools, Ints

MICRO_BATCH = {"cpu": (2048, 16), "cuda": (65536, 2048)}
"""Positions computed at once, so that activations stay in the cache and memory does not grow with the batch, and those
whose computation costs what one more rectangle does: on a GPU it is launches that cost."""


def rectangles(lengths_N: Ints, overhead: int) -> list[Ints]:
    """Row numbers in groups of similar length, so that the padding to each group's longest, plus ``overhead``
    positions for each group, is least (by dynamic programming over the lengths that occur); short rows first.
    """
    order = np.argsort(lengths_N, kind="stable")
    lengths, starts = np.unique(lengths_N[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    cost, cuts = np.zeros(len(lengths) + 1), np.zeros(len(lengths) + 1, dtype=np.int64)
    for last, (length, end) in enumerate(zip(lengths, ends, strict=True)):
        totals = cost[: last + 1] + (end - starts[: last + 1]) * length + overhead
        cuts[last + 1] = np.argmin(totals)
        cost[last + 1] = totals[cuts[last + 1]]
    groups, last = [], len(lengths)
    while last:
        groups.append(order[starts[cuts[last]] : ends[last - 1]])
        last = int(cuts[last])
    return groups[::-1]


def micro_batches(lengths_N: Ints, tokens: int, overhead: int) -> list[list[Ints]]:
    """Rectangles of rows (see ``rectangles``) in batches of at most ``tokens`` positions, or of one row."""
    batches: list[list[Ints]] = [[]]
    room = tokens
    for group in rectangles(lengths_N, overhead):
        length = int(lengths_N[group].max())
        while len(group):
            fit = max(room // length, 0 if batches[-1] else 1)
            if fit <= 0:
                batches.append([])
                room = tokens
                continue
            batches[-1].append(group[:fit])
            room -= len(group[:fit]) * length
            group = group[fit:]
    return batches if batches[-1] else []


@dataclass(frozen=True)
class Packed:
    """Some rows of a batch as the policy takes them: rectangles with little padding, and what is trained there.

    Attributes:
        parts: token ids of each rectangle, (rows, length).
        wanted_K: numbers of the positions, rectangle after rectangle, after which a token is trained.
        targets_K: those tokens.
        where: row and column of each of those tokens in the batch.
    """

    parts: list[Tensor]
    wanted_K: Tensor
    targets_K: Tensor
    where: tuple[Ints, Ints]


def pack(
    tokens_NT: npt.NDArray[np.integer],
    trained_NT: Bools,
    lengths_N: Ints,
    groups: Sequence[Ints],
    device: torch.device,
) -> Packed:
    """Rows of a batch, in groups that become rectangles. A row's first token cannot be trained: nothing precedes it."""
    parts, wanted, rows, columns, start = [], [], [], [], 0
    for group in groups:
        length = int(lengths_N[group].max())
        parts.append(torch.from_numpy(tokens_NT[group, :length].astype(np.int64)).to(device))
        row, column = np.nonzero(trained_NT[group, 1:length])
        wanted.append(start + row * length + column)
        rows.append(group[row])
        columns.append(column + 1)
        start += len(group) * length
    where = np.concatenate(rows), np.concatenate(columns)
    targets = torch.from_numpy(tokens_NT[where].astype(np.int64)).to(device)
    return Packed(parts, torch.from_numpy(np.concatenate(wanted)).to(device), targets, where)
