"""A tiny transformer policy that learns to use tools: cold start, GRPO, and rules for which rollouts to learn from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Torch reads it at its first allocation: huge pages for large tensors where the system offers them. Otherwise a tenth
# of a bigger policy's sampling goes into page faults (docs/PERFORMANCE.md).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

if TYPE_CHECKING:
    from agents.player import Player, load

__all__ = ["Player", "load"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `agents.selection` (numpy alone) does not bring torch with it.
    if name in __all__:
        from agents import player

        return getattr(player, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
