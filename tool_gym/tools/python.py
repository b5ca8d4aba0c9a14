"""The python tool: a program in, what it printed and the value of its final expression out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tool_gym.tools.tool import Results, Tool

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool


class PythonTool(Tool):
    """Runs the body as a program of restricted Python, each call with fresh state, in the pool of workers.

    The result is what was printed, then the value of a final expression, as a notebook shows it.
    """

    name = "python"
    description = "Runs a Python program and returns what it printed, then the value of a final expression."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The program."}},
        "required": ["code"],
    }

    def submit(self, bodies: Sequence[str], pool: Callable[[], InterpreterPool]) -> Results:
        return pool().submit(list(bodies), echo=True)
