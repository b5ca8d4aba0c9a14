"""A tiny transformer policy that learns to use tools: cold start, GRPO, and rules for which rollouts to learn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.player import Player, load

__all__ = ["Player", "load"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `agents.selection` (numpy alone) does not bring torch with it.
    if name in __all__:
        from agents import player

        return getattr(player, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
