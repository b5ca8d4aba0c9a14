"""Frames between the pool and its workers: a length, then a payload, capped on both sides.

Requests come from the host and are trusted: marshal, which carries exact primitives only. Replies come from a
process that ran a hostile program: numbers of fixed width and text, and every field is checked. Nothing is ever
unpickled.
"""

from __future__ import annotations

import marshal
import os
import struct
from typing import NamedTuple

HEADER = struct.Struct(">I")
MAX_REQUEST = 256 << 20
CONTROL = struct.Struct(">cQ")
"""Requests to the zygote and the worker's number. ``S``: start a worker, ``L``: one for programs that take long, of low
priority, ``R``: kill and reap one."""

MACHINERY = 71
"""Exit status of a worker that failed at a request or a reply, and not at a program: sysexits.h calls it EX_OSERR."""

LONG = "long"
"""Status of a reply that is no answer: the program needs more steps than it was given this time."""
_STATUSES = ("ok", "refused", "error", "limit", LONG)
_CODES = {status: code for code, status in enumerate(_STATUSES)}
# Code of the status, flags, steps, and how many characters of the text are kind and message; the rest is output.
_REPLY = struct.Struct(">BBQHH")
_TRUNCATED, _LAST = 1, 2
_MOST_STEPS = (1 << 64) - 1
_KIND_CHARACTERS = 200
_MESSAGE_CHARACTERS = 4000

Record = tuple[str, str, str, str, bool, int]
"""status, kind, message, output, truncated, steps: the fields of a ToolResult."""


class ProtocolError(Exception):
    """A frame that no sound worker sends."""


def max_reply(output_chars: int) -> int:
    """Longest reply in bytes: a character takes at most 4."""
    return _REPLY.size + 4 * (output_chars + _KIND_CHARACTERS + _MESSAGE_CHARACTERS)


class Request(NamedTuple):
    """Programs for a worker.

    Attributes:
        sources: the programs, in order.
        inputs: marshalled names in scope of each, None for none.
        echo: whether the value of a final expression is shown.
        sessions: number of each program's session, 0 for none; empty if none has one.
        over: sessions that no program will be of again.
        steps: budget of each program, after which it is called long; 0 for that of the limits.
    """

    sources: list[str]
    inputs: bytes | None
    echo: bool
    sessions: list[int]
    over: list[int]
    steps: int = 0


def ends_session(status: str, kind: str) -> bool:
    """Whether a call with this answer was stopped in the middle of anything, so that its session starts anew."""
    return status == "limit" and kind not in ("output", "source")


def encode_request(request: Request) -> bytes:
    """A frame of programs to run. Raises ValueError if it is too long to send."""
    payload = marshal.dumps(tuple(request))
    if len(payload) > MAX_REQUEST:
        raise ValueError(f"a request of {len(payload)} bytes")
    return HEADER.pack(len(payload)) + payload


def read_request(descriptor: int) -> Request | None:
    """The next request, in a worker; None at the end of the stream. Raises ProtocolError for a cut or long one."""
    header = read_exactly(descriptor, HEADER.size)
    if header is None:
        return None
    (length,) = HEADER.unpack(header)
    if length > MAX_REQUEST:
        raise ProtocolError(f"a request of {length} bytes")
    payload = read_exactly(descriptor, length)
    if payload is None:
        raise ProtocolError("a cut request")
    return Request(*marshal.loads(payload))


def read_exactly(descriptor: int, size: int) -> bytes | None:
    """``size`` bytes, blocking; None if the stream ends first."""
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def encode_reply(record: Record, last: bool) -> bytes:
    """A frame with the reply to a call; ``last``: the worker ends with it."""
    status, kind, message, output, truncated, steps = record
    kind, message = kind[:_KIND_CHARACTERS], message[:_MESSAGE_CHARACTERS]
    flags = (_TRUNCATED if truncated else 0) | (_LAST if last else 0)
    head = _REPLY.pack(_CODES[status], flags, min(steps, _MOST_STEPS), len(kind), len(message))
    # The texts are encodable; were one not, the lengths would still be right.
    return frame(head + (kind + message + output).encode("utf-8", "replace"))


def frame(payload: bytes) -> bytes:
    """A payload with its length before it."""
    return HEADER.pack(len(payload)) + payload


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, blocking."""
    while data:
        data = data[os.write(descriptor, data) :]


def decode_reply(payload: bytes, output_chars: int) -> tuple[Record, bool]:
    """Check a reply field by field: the record, and whether the worker ends with it.

    Raises ProtocolError if anything about it is off.
    """
    if len(payload) < _REPLY.size:
        raise ProtocolError("a reply that is too short")
    code, flags, steps, kind_length, message_length = _REPLY.unpack_from(payload)
    try:
        text = payload[_REPLY.size :].decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("a reply that is no text") from None
    output_at = kind_length + message_length
    if (
        code >= len(_STATUSES)
        or flags > _TRUNCATED | _LAST
        or kind_length > _KIND_CHARACTERS
        or message_length > _MESSAGE_CHARACTERS
        or not 0 <= len(text) - output_at <= output_chars
    ):
        raise ProtocolError("a reply out of bounds")
    truncated, last = bool(flags & _TRUNCATED), bool(flags & _LAST)
    record = _STATUSES[code], text[:kind_length], text[kind_length:output_at], text[output_at:], truncated, steps
    return record, last


class FrameReader:
    """Cuts a stream of bytes into frames as they arrive."""

    __slots__ = ("_buffer", "_longest")

    def __init__(self, longest: int) -> None:
        self._buffer = bytearray()
        self._longest = longest

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now. Raises ProtocolError for one that is too long."""
        buffer = self._buffer
        buffer += data
        frames, at = [], 0
        while len(buffer) - at >= HEADER.size:
            (length,) = HEADER.unpack_from(buffer, at)
            if length > self._longest:
                raise ProtocolError(f"a reply of {length} bytes")
            end = at + HEADER.size + length
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[at + HEADER.size : end]))
            at = end
        del buffer[:at]
        return frames
