"""Exceptions of tool_gym: one small tree, so that ``except ToolGymError`` catches what the library raises on purpose.

To a policy nothing here is visible but a ToolError's text: whatever a tool does reaches it as a
:class:`tool_gym.tools.ToolResult`. These exceptions are for the person who wrote the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ToolGymError(Exception):
    """Base of every exception that this library raises on purpose."""


class ConfigError(ToolGymError):
    """A setting is outside its range; the message names field, value and what is allowed."""

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        super().__init__(f"{field}: got {value!r}; allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class TaskError(ToolGymError):
    """A task or tool (trusted code) raised, or returned what its contract forbids."""


class ContractError(ToolGymError):
    """A tool environment does not keep what ``check_tool_env`` checks; a line for each part."""


class ReplayError(ToolGymError):
    """A recorded episode did not come out as it was recorded."""


class ToolError(ToolGymError):
    """Raised by a ``@tool`` function to tell the policy that its call failed: ``<error>kind: message</error>``."""

    def __init__(self, message: str, kind: str = "ToolError") -> None:
        super().__init__(message)
        self.message, self.kind = str(message), str(kind)


class DivergenceError(ToolGymError):
    """Training went wrong in its numbers: a loss, gradient, weight or log-probability that is not finite.

    ``batch`` holds the arrays at which it did, by name, to be kept for inspection.
    """

    def __init__(self, message: str, batch: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.batch: Mapping[str, Any] = {} if batch is None else batch


class InfrastructureError(ToolGymError):
    """The machinery around the tools failed: a pool that cannot start, workers that keep dying."""
