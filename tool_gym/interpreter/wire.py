"""Frames between the pool and its workers: a length, then a payload, capped on both sides.

Requests come from the host and are trusted: marshal, which carries exact primitives only. Replies come from a
process that ran a hostile program: JSON, and every field is checked. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import marshal
import os
import struct
from typing import Any, NamedTuple

HEADER = struct.Struct(">I")
MAX_REQUEST = 256 << 20
CONTROL = struct.Struct(">cQ")
"""Requests to the zygote: an operation (``S`` start a worker, ``R`` kill and reap one) and the worker's number."""

_STATUSES = frozenset({"ok", "refused", "error", "limit"})
_FIELDS = (str, str, str, str, bool, int, bool)
_encode = json.JSONEncoder(check_circular=False).encode

Reply = tuple[str, str, str, str, bool, int, bool]
"""status, kind, message, output, truncated, steps, and whether the worker ends with this reply."""


class ProtocolError(Exception):
    """A frame that no sound worker sends."""


def max_reply(output_chars: int) -> int:
    """Longest reply in bytes: a character takes at most 12 in JSON."""
    return 12 * output_chars + (1 << 16)


class Request(NamedTuple):
    """Programs for a worker.

    Attributes:
        sources: the programs, in order.
        inputs: marshalled names in scope of each, None for none.
        echo: whether the value of a final expression is shown.
        sessions: number of each program's session, 0 for none; empty if none has one.
        over: sessions that no program will be of again.
    """

    sources: list[str]
    inputs: bytes | None
    echo: bool
    sessions: list[int]
    over: list[int]


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


def encode_reply(fields: Any) -> bytes:
    """A frame with one reply."""
    payload = _encode(fields).encode("ascii")
    return HEADER.pack(len(payload)) + payload


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, blocking."""
    while data:
        data = data[os.write(descriptor, data) :]


def decode_reply(payload: bytes, output_chars: int) -> Reply:
    """Check a reply field by field. Raises ProtocolError if anything about it is off."""
    try:
        fields = json.loads(payload.decode("ascii"))
    except (ValueError, RecursionError):
        raise ProtocolError("a reply that is no JSON") from None
    if type(fields) is not list or tuple(type(field) for field in fields) != _FIELDS:
        raise ProtocolError("a reply of the wrong shape")
    status, kind, message, output, truncated, steps, last = fields
    if status not in _STATUSES or len(kind) > 200 or len(message) > 4000 or len(output) > output_chars:
        raise ProtocolError("a reply out of bounds")
    return status, kind, message, output, truncated, steps, last


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
