"""The python tool: a program in, what it printed and the value of its final expression out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tool_gym.errors import ConfigError
from tool_gym.tools.tool import Results, Tool, ToolRequest

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool, InterpreterSession


class PythonTool(Tool):
    """Runs the body as a program of restricted Python in the pool of workers.

    The result is what was printed, then the value of a final expression, as a notebook shows it.

    Args:
        stateful: each call of an episode finds the names that the one before it left
            (:class:`tool_gym.interpreter.InterpreterSession`); else each starts afresh.
    """

    name = "python"
    description = "Runs a Python program and returns what it printed, then the value of a final expression."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
    }

    def __init__(self, stateful: bool = False) -> None:
        if not isinstance(stateful, bool):
            raise ConfigError("stateful", stateful, "True or False")
        self.stateful = stateful

    def submit(self, requests: Sequence[ToolRequest], pool: Callable[[], InterpreterPool]) -> Results:
        codes = [request.body for request in requests]
        sessions = [_session(request) for request in requests] if self.stateful else None
        return pool().submit(codes, echo=True, sessions=sessions)


def _session(request: ToolRequest) -> InterpreterSession:
    from tool_gym.interpreter import InterpreterSession  # here, for the interpreter answers in this package's terms

    if "session" not in request.state:
        request.state["session"] = InterpreterSession()
    session: InterpreterSession = request.state["session"]
    return session
