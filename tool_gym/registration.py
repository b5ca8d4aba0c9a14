"""Registering environments with Gymnasium, and finding the task behind a registered one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from tool_gym.errors import ConfigError
from tool_gym.tasks.base import Task
from tool_gym.tools import Tool, resolve_tools

ENTRY_POINT = "tool_gym.env:ToolEnv"
VECTOR_ENTRY_POINT = "tool_gym.vector:ToolVectorEnv"
DEFAULT_MAX_TURNS = 5

TaskLike = Task | type[Task] | str


@dataclass(frozen=True)
class Resolved:
    """What a registered id stands for: enough to run its episodes without Gymnasium."""

    task: Task
    tools: tuple[Tool, ...]
    max_turns: int


def register(
    id: str,  # Gymnasium's name for it
    *,
    task: TaskLike,
    tools: Sequence[str | Tool] = ("python",),
    max_turns: int = DEFAULT_MAX_TURNS,
    stateful: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    **gymnasium_register_kwargs: Any,
) -> None:
    """Register a tool environment: ``gymnasium.make(id)`` gives a ToolEnv, ``gymnasium.make_vec(id)`` a ToolVectorEnv.

    Args:
        id: ``namespace/Name-v0``.
        task: a Task class, an instance, or "module:Class", which is imported when an environment is made.
        tools: names of tools, or Tool objects.
        max_turns: turns of an episode, the answering one included.
        stateful: the python tool keeps its state within an episode.
        kwargs: further defaults for ToolEnv and the task, such as ``{"answers": 4}``.
        gymnasium_register_kwargs: the rest of ``gymnasium.register``'s parameters.

    Raises:
        ConfigError: a task or tool of the wrong kind, ``max_turns`` below 1, or one of Gymnasium's parameters
            that a tool environment sets itself (``max_episode_steps`` would bound turns a second time, and
            reach the vector environment as an unknown argument); a parameter that nobody knows; an id that another
            class or environment has.
    """
    if not isinstance(id, str):
        raise ConfigError("id", id, "a text such as my_lab/Roman-v0")
    if not isinstance(task, (Task, str)) and not (isinstance(task, type) and issubclass(task, Task)):
        raise ConfigError("task", task, "a Task subclass, an instance of one, or 'module:Class'")
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
        raise ConfigError("max_turns", max_turns, "an integer of at least 1")
    for name in ("entry_point", "vector_entry_point", "max_episode_steps"):
        if name in gymnasium_register_kwargs:
            raise ConfigError(
                name, gymnasium_register_kwargs[name], "nothing: register sets it; use max_turns for turns"
            )
    known = inspect.signature(gymnasium.register).parameters
    for name, value in gymnasium_register_kwargs.items():
        if name not in known:
            allowed = "task, tools, max_turns, stateful, kwargs, or a parameter of gymnasium.register"
            raise ConfigError(name, value, allowed)
    there = gymnasium.registry.get(id)
    if there is not None and (owner := _owner(there)) != _class_name(task):
        allowed = f"an id that is free: it is that of {owner} (del gymnasium.registry[{id!r}] gives it up)"
        raise ConfigError("id", id, allowed)
    resolve_tools(tools, stateful)
    gymnasium.register(
        id,
        entry_point=ENTRY_POINT,
        vector_entry_point=VECTOR_ENTRY_POINT,
        kwargs={
            "task": task,
            "tools": tuple(tools),
            "max_turns": max_turns,
            "stateful": stateful,
            **(kwargs or {}),
        },
        **gymnasium_register_kwargs,
    )


def _class_name(task: TaskLike) -> str:
    """The name of a task's class, without its module: that is ``__main__`` for a module which is run as a program."""
    if isinstance(task, str):
        return task.rpartition(":")[2]
    return (task if isinstance(task, type) else type(task)).__qualname__


def _owner(spec: EnvSpec) -> str:
    """Whose a registered id is. A class that is defined anew, as in a notebook, may replace itself."""
    return _class_name(spec.kwargs["task"]) if spec.entry_point == ENTRY_POINT else str(spec.entry_point)


def tool_environments() -> dict[str, EnvSpec]:
    """The registered tool environments by id, in alphabetical order."""
    return {id_: spec for id_, spec in sorted(gymnasium.registry.items()) if spec.entry_point == ENTRY_POINT}


def find(env_id: str) -> EnvSpec:
    """The spec of a registered tool environment; "module:id" imports the module first, as Gymnasium does.

    Raises:
        ConfigError: the module cannot be imported, or the id is not that of a tool environment.
    """
    module, colon, id_ = env_id.rpartition(":")
    if colon:
        import_module("env", env_id, module)
    known = tool_environments()
    if id_ not in known:
        raise ConfigError("env", env_id, f"{', '.join(known)}, or module:id to import a module that registers it")
    return known[id_]


def resolve(env_id: str, **task_kwargs: Any) -> Resolved:
    """Task, tools and budget of a registered tool environment, for callers that run episodes themselves.

    Args:
        env_id: an id, or "module:id".
        task_kwargs: settings of the task, over those given at registration.

    Raises:
        ConfigError: see :func:`find` and :func:`resolve_task`.
    """
    from tool_gym.vector import ToolVectorEnv  # here, for it needs this module

    spec = find(env_id)
    own = inspect.signature(ToolVectorEnv).parameters
    defaults = {name: value for name, value in spec.kwargs.items() if name not in own}
    task = resolve_task(spec.kwargs["task"], **{**defaults, **task_kwargs})
    tools = resolve_tools(spec.kwargs["tools"], spec.kwargs["stateful"])
    return Resolved(task, tools, spec.kwargs["max_turns"])


def resolve_task(task: TaskLike, **settings: Any) -> Task:
    """A Task instance for a class, an instance, or "module:Class".

    Raises:
        ConfigError: what is given is no task, a setting that its constructor does not take, or one missing
            that it needs. What the constructor itself raises passes through.
    """
    if isinstance(task, str):
        task = _load(task)
    if isinstance(task, Task):
        for name, value in settings.items():
            raise ConfigError(name, value, f"nothing: the task is an instance of {type(task).__name__} already")
        return task
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise ConfigError("task", task, "a Task subclass, an instance of one, or 'module:Class'")
    if missing := sorted(task.__abstractmethods__):
        raise ConfigError("task", task.__name__, f"a class that defines {', '.join(missing)}")
    signature = inspect.signature(task)
    parameters = signature.parameters
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name, value in settings.items():
            if name not in parameters:
                raise ConfigError(
                    name, value, f"settings of the environment, or of {task.__name__}: {_list(parameters)}"
                )
    for name, parameter in parameters.items():
        needed = parameter.default is inspect.Parameter.empty and parameter.kind not in _VARIADIC
        if needed and name not in settings:
            raise ConfigError(name, None, f"a value: {task.__name__} needs it")
    return task(**settings)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _list(parameters: Mapping[str, inspect.Parameter]) -> str:
    return ", ".join(name for name, parameter in parameters.items() if parameter.kind not in _VARIADIC) or "none"


def _load(path: str) -> Any:
    module, colon, name = path.partition(":")
    loaded = import_module("task", path, module) if colon else None
    if loaded is None or not hasattr(loaded, name):
        raise ConfigError("task", path, "'module:Class' of an importable module")
    return getattr(loaded, name)


def import_module(field: str, value: str, module: str) -> Any:
    """Import a module that a setting names; one that exists and fails to import raises its own error."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise ConfigError(field, value, "the dotted name of a module before the colon")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise ConfigError(field, value, f"a module that can be imported ({error})") from error
