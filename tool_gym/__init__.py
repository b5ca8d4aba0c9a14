"""Gymnasium environments with tools that can fail, and whose failures can follow the reasoning.

    >>> import gymnasium, tool_gym
    >>> env = gymnasium.make("tool_gym/Arithmetic-v0", noise="correlated", noise_rate=0.3, correlation=0.9)

Importing the package registers its environments with Gymnasium.
"""

from __future__ import annotations

from tool_gym import errors, interpreter, noise, wrappers
from tool_gym.checker import check_tool_env
from tool_gym.env import ToolEnv
from tool_gym.registration import register
from tool_gym.tasks.base import Problem, Task
from tool_gym.tools import Tool, ToolResult, tool
from tool_gym.vector import ToolVectorEnv

__all__ = [
    "Problem",
    "Task",
    "Tool",
    "ToolEnv",
    "ToolResult",
    "ToolVectorEnv",
    "check_tool_env",
    "errors",
    "interpreter",
    "noise",
    "register",
    "tool",
    "wrappers",
]

# Named, not imported: making the environment imports it, and the spec can be written as JSON.
register("tool_gym/Arithmetic-v0", task="tool_gym.tasks.arithmetic:Arithmetic")
register("tool_gym/Assignments-v0", task="tool_gym.tasks.assignments:Assignments", max_turns=6, stateful=True)
register(
    "tool_gym/Retrieval-v0",
    task="tool_gym.tasks.retrieval:Retrieval",
    tools=("tool_gym.tasks.retrieval:lookup",),
    max_turns=8,
)
