"""The budget of the running call: steps, verdict and output. One per worker process, reset for each call.

Steps are *sticky*. Once the budget is spent, or anything else has ended the call, every later step raises
again, and so does the head of every handler and ``finally`` block. A program can catch the exception, or have
it swallowed by a finaliser, but cannot go on from there.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import NoReturn

from .limits import Limits

PROGRAM = "<program>"
"""File name of every program's code object: a frame that has it is the program's own."""

# A program that keeps printing is stopped at this multiple of the output that is kept: late enough that the
# end of a talkative program is still seen, early enough that flooding costs little.
_FLOOD = 64

# Sizes at which linear work costs a step. A step is about 0.1 microseconds: a loop iteration with its counter.
CHARS_PER_STEP_SHIFT = 8
ITEMS_PER_STEP_SHIFT = 3


def _shown(count: int) -> str:
    """A size in a message. Printing one of thousands of digits would raise, and the program could go on."""
    return str(count) if count < 1 << 64 else "over 2**64"


class Stop(BaseException):
    """Ends the running call. Programs cannot name it; the verdict is in the meter, never in the exception."""


def program_line() -> int:
    """Line of the program that is executing now, 0 if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM:
            return frame.f_lineno or 0
        frame = frame.f_back
    return 0


class Output:
    """Text that the call printed: the head and the tail are kept, at most ``capacity`` characters together."""

    __slots__ = ("_capacity", "_head", "_head_room", "_tail", "_tail_size", "size")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._head: list[str] = []
        self._head_room = capacity
        self._tail: list[str] = []
        self._tail_size = 0
        self.size = 0

    def write(self, text: str) -> None:
        """Append ``text``; the caller stops the call when :attr:`size` says so."""
        length = len(text)
        self.size += length
        if length <= self._head_room:
            self._head.append(text)
            self._head_room -= length
            return
        if self._head_room:
            self._head.append(text[: self._head_room])
            text = text[self._head_room :]
            self._head_room = 0
        text = text[-self._capacity :]
        self._tail.append(text)
        self._tail_size += len(text)
        if self._tail_size > 4 * self._capacity:
            kept = "".join(self._tail)[-self._capacity :]
            self._tail, self._tail_size = [kept], len(kept)

    @property
    def truncated(self) -> bool:
        return self.size > self._capacity

    def ends_line(self) -> bool:
        """Whether a new value would start on a line of its own."""
        parts = self._tail or self._head
        return not parts or parts[-1].endswith("\n") or (not parts[-1] and self.size == 0)

    def text(self) -> str:
        """What is kept, the cut marked, as encodable text: lone surrogates are written as escapes."""
        text = "".join(self._head)
        if self.truncated:
            marker = f"\n... [{self.size} characters printed, the middle is cut] ...\n"
            kept = max(0, self._capacity - len(marker))
            tail = (text + "".join(self._tail))[-(kept // 4) :] if kept >= 4 else ""
            text = text[: kept - len(tail)] + marker[: self._capacity] + tail
        return encodable(text)


def encodable(text: str) -> str:
    """``text`` with lone surrogates as backslash escapes, so that it can be written anywhere."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


class Memory:
    """What outlives a call in a session: generator, decimal context, and what the cost of later work depends on."""

    __slots__ = ("big_keys", "collisions", "decimal", "forged", "random", "serials")

    def __init__(self) -> None:
        self.random: object | None = None
        self.decimal: object | None = None
        self.big_keys: dict[int, set[str]] = {}
        self.collisions = 0
        self.forged: list[BaseException] = []
        self.serials: dict[int, tuple[int, object]] = {}


class Meter:
    """Steps left, what ended the call, its output, and what else lives as long as a call."""

    __slots__ = (
        "_forged",
        "_granted",
        "_memory",
        "_open",
        "_serials",
        "big_keys",
        "characters",
        "collisions",
        "decimal",
        "integer_bits",
        "items",
        "left",
        "output",
        "random",
        "steps",
        "used",
        "verdict",
    )

    def __init__(self, limits: Limits) -> None:
        self.configure(limits)
        self._open = False
        self.left = -1

    def configure(self, limits: Limits) -> None:
        """Take the caps of ``limits`` and forget the last call."""
        self.steps = limits.steps
        self.integer_bits = limits.integer_bits
        self.items = limits.items
        self.characters = limits.characters
        self.begin(limits)

    def begin(self, limits: Limits, memory: Memory | None = None, steps: int = 0) -> None:
        """A new call: full budget (or ``steps``), no verdict, no output; ``memory`` of the session it belongs to."""
        self.left = self._granted = steps or limits.steps
        self.used = 0
        self.verdict: tuple[str, str, str] | None = None
        self.output = Output(limits.output_chars)
        self._take(Memory() if memory is None else memory)
        self._open = True

    @property
    def overdrawn(self) -> bool:
        """Whether the call in progress has spent all steps that it was given."""
        return self.left < 0 if self.verdict is None else self.verdict[1] == "steps"

    def close(self) -> int:
        """End the call: whatever of it still runs (finalisers) stops at its next step. Returns the steps used."""
        self._open = False
        used = self.used if self.verdict is not None else self._granted - max(self.left, 0)
        self.left = -1
        return used

    def release(self) -> Memory:
        """Let go of what the call left, into the memory that is returned."""
        memory = self._memory
        memory.random, memory.decimal, memory.collisions = self.random, self.decimal, self.collisions
        self._take(Memory())
        return memory

    def _take(self, memory: Memory) -> None:
        self._memory = memory
        self.random: object | None = memory.random
        self.decimal: object | None = memory.decimal
        self.collisions: int = memory.collisions
        self.big_keys, self._forged, self._serials = memory.big_keys, memory.forged, memory.serials

    def charge(self, cost: int) -> None:
        """Spend ``cost`` steps; raises Stop when they are not there."""
        self.left -= cost
        if self.left < 0:
            self.exhausted()

    def exhausted(self) -> NoReturn:
        """The step budget is spent, or the call was stopped before."""
        self.stop("limit", "steps", f"step budget of {self.steps} spent")

    def stop(self, status: str, kind: str, message: str) -> NoReturn:
        """End the call with this verdict, unless it has one: the first stands."""
        if self._open and self.verdict is None:
            line = program_line()
            self.verdict = (status, kind, f"line {line}: {message}" if line else message)
            self.used = self._granted - max(self.left, 0)
        self.left = -1
        raise Stop

    def refuse(self, message: str) -> NoReturn:
        """End the call: the policy forbids what it does."""
        self.stop("refused", "PolicyError", message)

    def too_big(self, message: str) -> NoReturn:
        """End the call: it asks for more memory than a value may have."""
        self.stop("limit", "memory", message)

    def cap_items(self, count: int) -> None:
        """A container is about to have ``count`` items: check it against the cap."""
        if count > self.items:
            self.too_big(f"a container of {_shown(count)} items (at most {self.items})")

    def check_items(self, count: int) -> None:
        """A container of ``count`` items is about to be made: check it against the cap and charge for it."""
        if count > self.items:
            self.too_big(f"a container of {_shown(count)} items (at most {self.items})")
        self.left -= count >> ITEMS_PER_STEP_SHIFT
        if self.left < 0:
            self.exhausted()

    def check_characters(self, count: int) -> None:
        """A string of ``count`` characters is about to be made: check it against the cap and charge for it."""
        if count > self.characters:
            self.too_big(f"a string of {_shown(count)} characters (at most {self.characters})")
        self.left -= count >> CHARS_PER_STEP_SHIFT
        if self.left < 0:
            self.exhausted()

    def check_bits(self, bits: int) -> None:
        """An integer of ``bits`` bits is about to be made."""
        if bits > self.integer_bits:
            self.too_big(f"an integer of {_shown(bits)} bits (at most {self.integer_bits})")

    def write(self, text: str) -> None:
        """Print ``text``."""
        self.left -= 1 + (len(text) >> CHARS_PER_STEP_SHIFT)
        output = self.output
        output.write(text)
        if output.size > _FLOOD * output._capacity:
            self.stop("limit", "output", f"{output.size} characters printed")
        if self.left < 0:
            self.exhausted()

    def charge_merge(self, kept: int, merged: int) -> None:
        """Native code is about to look up each of ``merged`` keys in a table of ``kept``, collisions and all."""
        if self.collisions > 16:
            self.charge(merged * min(kept, self.collisions) >> 4)

    def forge(self, error: BaseException) -> None:
        """Remember that the program itself raised ``error``: it is not the interpreter's own MemoryError."""
        self._forged.append(error)

    def is_genuine(self, error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
        """Whether ``error`` is one of ``kinds`` and was not raised by the program itself."""
        return isinstance(error, kinds) and not any(error is forged for forged in self._forged)

    def serial(self, value: object) -> int:
        """A number for an object that is hashed by its address: the order in which the call used them as keys."""
        known = self._serials.get(id(value))
        if known is None:
            known = self._serials[id(value)] = (len(self._serials) + 1, value)
        return known[0]


METER = Meter(Limits())
"""The meter of this process. Everything that a program can call charges it."""
