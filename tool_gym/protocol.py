"""The grammar of a turn: what a policy's text means, and how a tool's result is told to it.

A turn is free text with blocks. A call is ``<tool>body</tool>``, an answer ``<answer>text</answer>``; what
stands between the tags is raw text up to the first matching closing tag. The first block decides what the
turn is. The reply to a turn is ``<output>...</output>`` or ``<error>Kind: message</error>``: tags that only
the environment may write, so that a policy which writes them itself commits a format violation, and text
that comes out of a tool has every tag escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from tool_gym.tools.base import ToolResult

ANSWER = "answer"
OUTPUT = "output"
ERROR = "error"

ENVIRONMENT_TAGS = (f"<{OUTPUT}>", f"</{OUTPUT}>", f"<{ERROR}>", f"</{ERROR}>")
"""Tags that only the environment may write."""

FORMAT_ERROR = "FormatError"
"""The error kind of a turn that the grammar does not allow."""

MIN_OUTPUT_CHARS = 40
"""The shortest cap on output: room for the mark of a cut."""

_NEWLINE = "\n"

# string.printable, as a class to exclude: tab to carriage return, space to tilde.
_UNPRINTABLE = re.compile(r"[^\t-\r -~]")


class ParsedTurn(NamedTuple):
    """What one turn of a policy means.

    Attributes:
        kind: ``call``; ``answer``; ``unclosed`` (the first block is a call without its closing tag);
            ``idle`` (neither a call nor an answer).
        tool: the tool called, "" unless ``call`` or ``unclosed``.
        body: the text between the tags of the call, up to the end of the turn if it is unclosed.
        answer: the text of the last answer block, None unless ``answer``.
        answers: well-formed answer blocks of an answering turn; 0 if its answer tags do not match, however
            many blocks there are, and 0 for every other turn.
        violations: places at which the turn breaks the grammar: a block after the deciding one, a tag
            without its partner, a block (or lone tag) that only the environment may write.
        unclosed: name of the tag that is still open at the end of the turn, "" if none is.
    """

    kind: Literal["call", "answer", "unclosed", "idle"]
    tool: str
    body: str
    answer: str | None
    answers: int
    violations: int
    unclosed: str


def tags(tool_names: Sequence[str]) -> tuple[str, ...]:
    """Every tag of an environment in a fixed order: its tools' in their order, the answer's, the environment's.

    The opening tag comes before the closing one. A tokenizer can give each a token of its own.
    """
    names = (*tool_names, ANSWER, OUTPUT, ERROR)
    return tuple(tag for name in names for tag in (f"<{name}>", f"</{name}>"))


@lru_cache(maxsize=256)
def _scanner(tool_names: tuple[str, ...]) -> re.Pattern[str]:
    """Matches every tag; group 1 is the slash of a closing tag or "", group 2 the name."""
    names = "|".join(map(re.escape, (*tool_names, ANSWER, OUTPUT, ERROR)))
    return re.compile(f"<(/?)({names})>")


def parse(text: str, tool_names: tuple[str, ...]) -> ParsedTurn:
    """What a policy's turn means, in one pass over its tags: linear in the length of ``text`` whatever it holds.

    The tag of a tool that is not in ``tool_names`` is text like any other.
    """
    kind: Literal["call", "answer", "unclosed", "idle"] = "idle"
    tool = body = opened = forged = ""
    answer: str | None = None
    start = answers = violations = 0
    answers_match = True
    for tag in _scanner(tool_names).finditer(text):
        slash, name = tag.groups()
        if name in (OUTPUT, ERROR):
            # A forged block counts once: its closing tag is part of it.
            if not slash or name != forged:
                violations += 1
            forged = "" if slash else name
        elif not opened:
            if slash:
                violations += 1
                answers_match = answers_match and name != ANSWER
            else:
                opened, start = name, tag.end()
        elif name == opened and slash:
            if name == ANSWER and kind in ("idle", "answer"):
                violations += kind == "answer"
                kind, answer, answers = "answer", text[start : tag.start()], answers + 1
            elif kind == "idle":
                kind, tool, body = "call", name, text[start : tag.start()]
            else:
                violations += 1
            opened = ""
        elif name == opened == ANSWER:
            # A second opening tag inside an answer: one of the two has no partner.
            violations += 1
            answers_match = False
        # Any other tag inside a block is part of its raw text.
    if opened:
        violations += 1
        answers_match = answers_match and opened != ANSWER
        if kind == "idle" and opened != ANSWER:
            kind, tool, body = "unclosed", opened, text[start:]
    if kind != "answer" or not answers_match:
        answers = 0
    return ParsedTurn(kind, tool, body, answer, answers, violations, opened)


def format_call(tool: str, body: str) -> str:
    """The turn that calls a tool: ``<tool>body</tool>``."""
    return f"<{tool}>{body}</{tool}>"


def format_answer(text: str) -> str:
    """The turn that answers: ``<answer>text</answer>``."""
    return f"<{ANSWER}>{text}</{ANSWER}>"


def format_problem(turn: ParsedTurn) -> ToolResult:
    """The result that tells a policy what is wrong with an ``idle`` or ``unclosed`` turn."""
    # Short, for tasks whose policies read a character at a time.
    message = f"unclosed {turn.unclosed}" if turn.unclosed else "no block"
    return ToolResult("error", FORMAT_ERROR, message)


def printable(text: str) -> str:
    """``text`` with every character outside of ``string.printable`` as an escape: ``\\x1b``, ``\\u202e``."""
    return _UNPRINTABLE.sub(_escape_character, text) if _UNPRINTABLE.search(text) else text


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape_tags(text: str, tool_names: tuple[str, ...]) -> str:
    """``text`` in which no tag parses: the ``<`` of each becomes ``\\x3c``."""
    if "<" not in text:
        return text
    return _scanner(tool_names).sub(lambda tag: "\\x3c" + tag.group()[1:], text)


def _shorten(head: str, tail: str, length: int, total: int) -> str:
    """At most ``length`` characters: the start of ``head``, a mark that names the ``total``, the end of ``tail``."""
    mark = f"[...cut, {total} in all...]"
    kept = length - len(mark)
    return head[: kept - kept // 2] + mark + tail[len(tail) - kept // 2 :]


def _displayed(text: str, tool_names: tuple[str, ...], length: int) -> str:
    """``text`` as it may stand in an observation: printable, without a tag that parses, in ``length`` characters."""
    if len(text) <= 2 * length:
        shown = _escape_tags(printable(text), tool_names)
        return shown if len(shown) <= length else _shorten(shown, shown, length, len(text))
    # Escaping only makes text longer, so that nothing between these two pieces can be shown.
    head = _escape_tags(printable(text[:length]), tool_names)
    tail = _escape_tags(printable(text[-length:]), tool_names)
    return _shorten(head, tail, length, len(text))


def format_reply(
    result: ToolResult,
    tool_names: tuple[str, ...],
    *,
    max_output_chars: int = 1000,
    max_error_chars: int | None = None,
) -> str:
    """The reply to a call: ``<output>...</output>`` if it is ok, else ``<error>Kind: message</error>``.

    One trailing newline of the output is dropped. Text inside the tags is printable and holds no tag that
    parses. It is cut to ``max_output_chars`` characters (at least MIN_OUTPUT_CHARS), head and tail kept and the
    cut marked with the length of the whole; an error's ``Kind: message`` to its first ``max_error_chars``, where given.
    """
    if result.ok:
        return f"<{OUTPUT}>{_displayed(result.output.removesuffix(_NEWLINE), tool_names, max_output_chars)}</{OUTPUT}>"
    kind = result.kind or result.status
    text = _displayed(f"{kind}: {result.message}" if result.message else kind, tool_names, max_output_chars)
    return f"<{ERROR}>{text[:max_error_chars]}</{ERROR}>"
