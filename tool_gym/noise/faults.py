"""Fault kinds: what the policy sees in place of the true result of a call that was made to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tool_gym.errors import ConfigError
from tool_gym.tools.base import ToolResult


def _timeout(result: ToolResult) -> ToolResult:
    return ToolResult(status="error", kind="timeout", message="no reply")


# A kind maps the true result to the one delivered; every kind is recoverable by calling again.
FAULTS: Mapping[str, Callable[[ToolResult], ToolResult]] = {"timeout": _timeout}


def apply_fault(kind: str, result: ToolResult) -> ToolResult:
    """The result that the policy sees when a fault of this kind replaces ``result``.

    Raises ConfigError for a kind that is not in :data:`FAULTS`.
    """
    if kind not in FAULTS:
        raise ConfigError("fault", kind, ", ".join(FAULTS))
    return FAULTS[kind](result)
