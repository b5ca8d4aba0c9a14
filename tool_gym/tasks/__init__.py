"""Problem families: how to draw a problem, grade an answer, judge a call, and demonstrate."""

from tool_gym.tasks.arithmetic import Arithmetic
from tool_gym.tasks.base import SPLITS, History, Problem, Task, split_of

__all__ = ["SPLITS", "Arithmetic", "History", "Problem", "Task", "split_of"]
