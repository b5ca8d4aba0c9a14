"""Problem families: how to draw a problem, grade an answer, judge a call, and demonstrate."""

from tool_gym.tasks.arithmetic import Arithmetic
from tool_gym.tasks.assignments import Assignments
from tool_gym.tasks.base import SPLITS, History, Problem, Task, split_of
from tool_gym.tasks.retrieval import Retrieval

__all__ = ["SPLITS", "Arithmetic", "Assignments", "History", "Problem", "Retrieval", "Task", "split_of"]
