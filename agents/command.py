"""Command lines read by tyro, whose mistakes are one line like any other: ``error: ...``, exit status 2."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tyro

from agents.signals import Stopped
from tool_gym.errors import ConfigError, ToolGymError
from tool_gym.protocol import printable

_RULE = re.compile(r"^([\s│╭╮╰╯─━|+-]*|[╭+].*)$")
_FRAME = re.compile(r"^[│|]?\s?|\s*[│|]?$")


def complain(error: BaseException) -> int:
    """Say what went wrong as one line on stderr; the exit status: 2 for what was asked, 1 for what happened.

    An error may quote what a policy, a tool or a file holds: nothing of it reaches the terminal but as printable text.
    """
    print(f"error: {printable(' '.join(str(error).split()))}", file=sys.stderr)
    return 2 if isinstance(error, ConfigError) else 1


def exit_status(work: Callable[[], object], hint: str) -> int:
    """Do what a command is for; its exit status, with what ends it on purpose as one line on stderr.

    Args:
        work: may raise the library's errors, OSError (a full disk is the machine's) and Stopped.
        hint: how to go on after a signal.
    """
    try:
        work()
        return 0
    except (ToolGymError, OSError) as error:
        return complain(error)
    except Stopped as stopped:
        print(f"{stopped}; {hint}", file=sys.stderr)
        return 128 + stopped.number
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


class UsageError(ConfigError):
    """A command line that cannot be read."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def parse(kind: Any, words: Sequence[str] | None, **settings: Any) -> Any:
    """``tyro.cli``, but that a line which cannot be read raises UsageError with one line.

    ``--help`` prints and exits as usual.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(kind, args=words, **settings)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UsageError(_one_line(said.getvalue())) from None


def _one_line(text: str) -> str:
    """What tyro says in a box, as a line: the message, and what it suggests."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if _RULE.fullmatch(line):
            parts.append([])
        else:
            parts[-1].append(_FRAME.sub("", line).strip())
    told = [" ".join(part) for part in parts if part]
    # The help is where it always is.
    kept = [part for part in told if not part.startswith("For full helptext")] or told
    return "; ".join(re.sub(r"\s+", " ", part) for part in kept)[:600]
