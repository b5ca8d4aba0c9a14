"""``@tool``: a Python function as a tool, its schema read from the signature and the docstring."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from tool_gym.errors import ConfigError, TaskError, ToolError
from tool_gym.tools.base import ToolResult
from tool_gym.tools.tool import Finished, Results, Tool, ToolRequest
from tool_gym.watchdog import watched_for_leaks

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool

# Parameters of these names are given by the environment, and no part of the schema.
_GIVEN = ("problem", "state")
_JSON_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
# ``name: what it is``, or ``name (type): what it is``.
_ENTRY = re.compile(r"(\w+)(?: *\(.*?\))?: *(.*)")
ARGUMENT_ERROR = "ArgumentError"
"""The error kind of a call whose body does not fit the tool's parameters."""


class FunctionTool(Tool):
    """A function that a policy can call; it runs in the caller's process, for it is trusted code.

    The body of a call is the argument itself where the function has one string parameter, else a JSON object with an
    entry for each parameter. A body that does not fit is an ``error`` to the policy, kind ``ArgumentError``; so is
    a :class:`~tool_gym.errors.ToolError` that the function raises, with its kind. Any other exception is a mistake
    in the function and stops the program with a TaskError. The function returns text, a number, None (no output), a
    list or dict (shown as JSON), or a ToolResult.

    The docstring is the tool's description, but for an ``Args:`` section in Google's style: what it says of a parameter
    is the ``description`` in that parameter's schema.

    Parameters named ``problem`` and ``state`` are not the policy's: the function gets the episode's Problem, and a
    dictionary of its own that lasts as long as the episode.

    Args:
        function: with an annotation for each parameter: str, int, float, bool, list, dict, list[T], T | None.
        name: the tag; by default the function's name.

    Raises:
        ConfigError: a parameter without an annotation or of a type that JSON does not have; a name under ``Args:`` that
            is no parameter.
    """

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        self.function = function
        self.name = function.__name__ if name is None else name
        self.description, documented = _documented(inspect.cleandoc(function.__doc__ or ""))
        self.__doc__ = function.__doc__
        hints = typing.get_type_hints(function)
        parameters = inspect.signature(function).parameters
        self._given = [given for given in _GIVEN if given in parameters]
        self._hints: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        for parameter in parameters.values():
            if parameter.name in _GIVEN:
                continue
            field = f"tool {self.name}, parameter {parameter.name}"
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ConfigError(field, str(parameter), "a parameter that can be given by name")
            self._hints[parameter.name] = hints.get(parameter.name)
            properties[parameter.name] = _schema(self._hints[parameter.name], field)
            if parameter.name in documented:
                properties[parameter.name]["description"] = documented[parameter.name]
        if unknown := documented.keys() - parameters.keys():
            allowed = f"parameters in Args: {', '.join(properties) or 'none'}"
            raise ConfigError(f"tool {self.name}, docstring", sorted(unknown)[0], allowed)
        required = [name for name in properties if parameters[name].default is inspect.Parameter.empty]
        self.parameters = {"type": "object", "properties": properties, "required": required}
        self._raw = len(self._hints) == 1 and next(iter(self._hints.values())) is str

    def __call__(self, *arguments: Any, **names: Any) -> Any:
        """The function itself, as if it were not decorated."""
        return self.function(*arguments, **names)

    def __reduce__(self) -> tuple[Any, ...]:
        # By name, as functions are pickled: the module has this object where the function was.
        return _find, (self.function.__module__, self.function.__qualname__)

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionTool:
        return self

    def submit(self, requests: Sequence[ToolRequest], pool: Callable[[], InterpreterPool]) -> Results:
        results = []
        with watched_for_leaks(f"tool {self.name!r}") as call:
            for request in requests:
                call.at(call.what, request.body)
                results.append(self._run(request))
        return Finished(results)

    def _run(self, request: ToolRequest) -> ToolResult:
        try:
            arguments = self._arguments(request.body)
            given = {name: getattr(request, name) for name in self._given}
            value = self.function(**arguments, **given)
        except ToolError as error:
            return ToolResult("error", error.kind, error.message)
        except Exception as error:
            hint = "raise ToolError for what is the policy's mistake"
            raise TaskError(f"tool {self.name!r} raised {error!r} for the call {request.body!r}: {hint}") from error
        return self._result(value, request)

    def _arguments(self, body: str) -> dict[str, Any]:
        """Arguments of a call. Raises ToolError for a body that does not fit."""
        if self._raw:
            return {next(iter(self._hints)): body}
        try:
            arguments = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            raise ToolError("not JSON", kind=ARGUMENT_ERROR) from None
        if type(arguments) is not dict:
            raise ToolError("not a JSON object", kind=ARGUMENT_ERROR)
        for name in self.parameters["required"]:
            if name not in arguments:
                raise ToolError(f"{name} is missing", kind=ARGUMENT_ERROR)
        for name, value in arguments.items():
            if name not in self._hints:
                raise ToolError(f"no parameter {name}", kind=ARGUMENT_ERROR)
            if not _fits(value, self._hints[name]):
                wanted = self.parameters["properties"][name].get("type", "another type")
                raise ToolError(f"{name} must be {wanted}", kind=ARGUMENT_ERROR)
        return arguments

    def _result(self, value: Any, request: ToolRequest) -> ToolResult:
        if isinstance(value, ToolResult):
            return value
        if value is None:
            return ToolResult("ok")
        if type(value) in (str, int, float, bool):
            return ToolResult("ok", output=str(value))
        if type(value) in (list, dict):
            try:
                return ToolResult("ok", output=json.dumps(value, allow_nan=False))
            except (TypeError, ValueError):
                pass  # named below
        allowed = "text, a number, a list or dict that JSON can write, None or a ToolResult"
        raise TaskError(f"tool {self.name!r} returned {value!r} for the call {request.body!r}; allowed: {allowed}")


def _find(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _documented(docstring: str) -> tuple[str, dict[str, str]]:
    """A docstring without its ``Args:`` section, and what that section says of each name."""
    lines = docstring.splitlines()
    if "Args:" not in lines:
        return docstring, {}
    first = lines.index("Args:") + 1
    # The section ends at the next line that is not indented.
    end = next((row for row in range(first, len(lines)) if lines[row][:1].strip()), len(lines))
    section = inspect.cleandoc("\n".join(["", *lines[first:end]])).splitlines()
    entries: dict[str, list[str]] = {}
    words: list[str] = []
    for line in section:
        if (entry := _ENTRY.fullmatch(line)) is not None:
            words = entries[entry[1]] = [entry[2]]
        else:
            words.append(line.strip())
    rest = "\n".join([*lines[: first - 1], *lines[end:]]).strip()
    return rest, {name: " ".join(part for part in said if part) for name, said in entries.items()}


def _members(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union; of another type, itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _schema(hint: Any, field: str) -> dict[str, Any]:
    """JSON schema of a parameter's type. Raises ConfigError for one that JSON does not have."""
    members = [member for member in _members(hint) if member is not type(None)]
    if len(members) > 1:
        return {"anyOf": [_schema(member, field) for member in members]}
    only = members[0] if members else None
    origin = typing.get_origin(only) or only
    if origin in _JSON_TYPES:
        return {"type": _JSON_TYPES[origin]}
    if origin is dict:
        return {"type": "object"}
    if origin is list:
        items = typing.get_args(only)
        return {"type": "array", "items": _schema(items[0], field)} if items else {"type": "array"}
    raise ConfigError(field, hint, "an annotation of str, int, float, bool, list, dict, list[T] or T | None")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value that JSON gave is of a parameter's type; an integer is a number too, and true is neither."""
    if len(members := _members(hint)) > 1:
        return any(_fits(value, member) for member in members)
    origin = typing.get_origin(hint) or hint
    if origin is type(None):
        return value is None
    if origin is float:
        return type(value) in (int, float) and math.isfinite(value)
    if origin is list and type(value) is list:
        items = typing.get_args(hint)
        return not items or all(_fits(item, items[0]) for item in value)
    return type(value) is origin


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(*, name: str | None = None) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """Make a function a tool: ``@tool``, or ``@tool(name="search")``. See :class:`FunctionTool`."""
    if function is None:
        return lambda decorated: FunctionTool(decorated, name)
    return FunctionTool(function, name)
