"""What a tool is and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "refused", "error", "limit", "infrastructure"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one tool call. To a policy everything is one of these.

    Attributes:
        status: ``ok``; ``refused`` (a policy of the tool forbids the call); ``error`` (the call raised);
            ``limit`` (a resource budget is spent); ``infrastructure`` (not the call's doing: never
            rewarded, never trained on).
        kind: what went wrong in one word, "" if ok: an exception's type name (``ZeroDivisionError``), the
            limit (``steps``, ``memory``, ``output``, ``source``, ``recursion``, ``time``, ``crash``), or
            the fault (``timeout``, ``connection``, ``malformed``, ``truncated``).
        message: one line for people, "" if ok.
        output: what the call printed, then the value of a final expression where that was asked for.
        truncated: whether ``output`` was cut.
        steps: deterministic cost in interpreter steps, 0 where not counted.
    """

    status: Status
    kind: str = ""
    message: str = ""
    output: str = ""
    truncated: bool = False
    steps: int = 0

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as a policy wrote it: the tag's name and the raw text between the tags."""

    tool: str
    body: str
