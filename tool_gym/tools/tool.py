"""A tool as an episode sees it: a name, a description, a schema, and batches of calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tool_gym.tools.base import ToolResult

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool
    from tool_gym.tasks.base import Problem


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One call as a tool gets it.

    Attributes:
        body: the raw text between the tags.
        problem: the problem of the episode that the call belongs to.
        state: whatever the tool keeps in this episode from call to call: empty at the first, its own, and gone with
            the episode. It is copied and pickled with the episode.
    """

    body: str
    problem: Problem
    state: dict[str, Any] = field(default_factory=dict)


class Results(Protocol):
    """The results of one batch of calls, handed out as they come in."""

    @property
    def remaining(self) -> int:
        """How many results have not been taken yet."""
        ...

    def take(self, block: bool = False) -> list[tuple[int, ToolResult]]:
        """Results that came in since the last take, each exactly once, with its index in the batch.

        With ``block`` waits until there is at least one, if any remains.
        """
        ...


class Finished:
    """:class:`Results` that are all known at once: for tools that run inside the caller."""

    def __init__(self, results: Sequence[ToolResult]) -> None:
        self._results = list(enumerate(results))

    @property
    def remaining(self) -> int:
        return len(self._results)

    def take(self, block: bool = False) -> list[tuple[int, ToolResult]]:
        results, self._results = self._results, []
        return results


class Tool(ABC):
    """Something that a policy can call by writing ``<name>body</name>``.

    A tool is trusted code, and picklable. It answers every call with a
    :class:`~tool_gym.tools.ToolResult` and raises for no body that a policy can write.

    Attributes:
        name: the tag: a lower-case letter, then lower-case letters, digits and underscores.
        description: what the tool does, for people and for prompts.
        parameters: JSON schema (type ``object``) of the arguments.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

    @abstractmethod
    def submit(self, requests: Sequence[ToolRequest], pool: Callable[[], InterpreterPool]) -> Results:
        """Start a batch of calls, and return at once where the work can go on elsewhere.

        Args:
            requests: N calls, each of another episode.
            pool: gives the pool of restricted interpreters, starting it on first need; a tool that runs no
                Python need not call it.

        Returns:
            The N results, by index.

        Raises:
            InfrastructureError: the machinery that runs the calls cannot be had; the caller answers each
                call with an ``infrastructure`` result.
        """
