"""Tools: what a policy can call, and what it gets back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tool_gym.errors import ConfigError
from tool_gym.tools.base import Status, ToolCall, ToolResult
from tool_gym.tools.function import FunctionTool, tool
from tool_gym.tools.python import PythonTool
from tool_gym.tools.tool import Finished, Results, Tool, ToolRequest

__all__ = [
    "BUILTIN",
    "Finished",
    "FunctionTool",
    "PythonTool",
    "Results",
    "Status",
    "Tool",
    "ToolCall",
    "ToolRequest",
    "ToolResult",
    "resolve_tools",
    "tool",
]

# Tools that may be given by name.
BUILTIN: Mapping[str, type[PythonTool]] = {"python": PythonTool}

# Names that the grammar of a turn uses itself.
RESERVED = ("answer", "output", "error")

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def resolve_tools(tools: Sequence[str | Tool], stateful: bool = False) -> tuple[Tool, ...]:
    """Tool objects for names and tool objects, in the same order; an empty sequence is an environment without tools.

    A name is ``python``, or "module:name" of a Tool in a module to import: named so, an environment's spec can be
    written as JSON.

    With ``stateful`` a python tool given by name keeps its state within an episode.

    Raises:
        ConfigError: ``stateful`` where no python tool is given by name, an unknown name, something that is
            neither a name nor a Tool, a name that cannot be a tag or that the grammar uses itself, or the same
            name twice.
    """
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        raise ConfigError("tools", tools, "a sequence of tool names and Tool objects")
    if stateful and not any(given == "python" for given in tools):
        raise ConfigError("stateful", stateful, "False where `tools` does not name the python tool")
    resolved: list[Tool] = []
    for given in tools:
        if isinstance(given, str):
            resolved.append(_imported(given) if ":" in given else _builtin(given, stateful))
        elif isinstance(given, Tool):
            resolved.append(given)
        else:
            raise ConfigError("tools", given, "a sequence of tool names and Tool objects")
    names = [each.name for each in resolved]
    for index, name in enumerate(names):
        if not _NAME.fullmatch(name) or name in RESERVED:
            allowed = f"lower-case letters, digits and underscores, a letter first, and none of {', '.join(RESERVED)}"
            raise ConfigError("tool name", name, allowed)
        if name in names[:index]:
            raise ConfigError("tools", name, "each name once")
    return tuple(resolved)


def _builtin(name: str, stateful: bool) -> Tool:
    if name not in BUILTIN:
        raise ConfigError("tools", name, f"a Tool, 'module:name' of one, or one of the names {', '.join(BUILTIN)}")
    return BUILTIN[name](stateful)


def _imported(path: str) -> Tool:
    from tool_gym.registration import import_module  # here, for it needs this module

    module, _, name = path.partition(":")
    found = getattr(import_module("tools", path, module), name, None)
    if not isinstance(found, Tool):
        raise ConfigError("tools", path, "'module:name' of a Tool in an importable module")
    return found
