"""Tasks and tools are trusted code, and still hang or leak: the watchdog ends the call and says which it was.

One thread looks now and then at what is running. A call that takes too long, or during which the process takes up too
much memory, is interrupted where it stands, also in the middle of a loop; the caller raises a TaskError that names it.
A call that cannot be interrupted, such as one in a C function that never returns, ends the process with the same line.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tool_gym.errors import TaskError, ToolGymError

SECONDS = 60.0
"""How long one call of a task's method, or of a function tool, may take."""

GROWTH_BYTES = 4 << 30
"""How much resident memory the process may gain during one call, or keep of all calls of one tool together."""

_GRACE = 10.0  # seconds that an interrupted call has to come back
_LOOK = 0.5  # seconds between looks, or a quarter of the patience if that is less


class _Interrupted(BaseException):
    """Raised into the thread of a call that is ended. Not an Exception: a task should not catch it by mistake."""


class Call:
    """A call under way."""

    __slots__ = ("detail", "growth", "interrupted", "memory", "reason", "seconds", "seen", "spent", "what")

    def __init__(self, what: str, seconds: float, growth: int) -> None:
        self.what, self.seconds, self.growth = what, seconds, growth
        self.detail = ""
        self.seen = time.monotonic()  # when it was last looked at, or began
        self.spent = 0.0
        self.memory = -1  # resident bytes at the first look
        self.reason = ""
        self.interrupted = 0.0

    def at(self, what: str, detail: str = "") -> None:
        """The next call of several in the same block begins, with as much time as the first."""
        self.what, self.detail, self.seen, self.spent = what, detail, time.monotonic(), 0.0

    def __str__(self) -> str:
        return f"{self.what} ({self.detail[:200]!r})" if self.detail else self.what


class _Watch(threading.Thread):
    """The thread that looks. Started with the first call that is watched; ends with the process."""

    def __init__(self) -> None:
        super().__init__(name="tool_gym watchdog", daemon=True)
        self.entries: dict[int, Call] = {}
        self.lock = threading.Lock()
        self.busy = threading.Event()

    def run(self) -> None:
        while True:
            self.busy.wait()
            with self.lock:
                entries = dict(self.entries)
                if not entries:
                    self.busy.clear()
            for thread, entry in entries.items():
                self._look(thread, entry)
            time.sleep(min([_LOOK, *(entry.seconds / 4 for entry in entries.values())]))

    def _look(self, thread: int, entry: Call) -> None:
        now, memory = time.monotonic(), _resident_bytes()
        if entry.interrupted:
            if now - entry.interrupted > _GRACE and self.entries.get(thread) is entry:
                print(f"error: {entry.reason}; it cannot be interrupted, so the process ends", file=sys.stderr)
                sys.stderr.flush()
                os._exit(1)
            return
        entry.memory = memory if entry.memory < 0 else entry.memory
        # Between two looks only so much counts: the process may have stood still (Ctrl-Z), or had no processor.
        entry.spent += min(now - entry.seen, 2 * _LOOK)
        entry.seen = now
        if entry.spent > entry.seconds:
            reason = f"{entry} has not returned for {entry.spent:.1f} seconds"
        elif memory - entry.memory > entry.growth:
            reason = f"{entry} took up {(memory - entry.memory) / 2**30:.1f} GiB of memory and has not returned"
        else:
            return
        with self.lock:
            # Only while it runs: an interruption that comes too late would strike whoever is next.
            if self.entries.get(thread) is entry:
                entry.reason, entry.interrupted = reason, now
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Interrupted))


_watch: _Watch | None = None


def _running_watch() -> _Watch:
    """The thread of this process; started anew after a fork, which does not copy threads."""
    global _watch
    if _watch is None or not _watch.is_alive():
        _watch = _Watch()
        _watch.start()
    return _watch


class _Kept:
    """Resident memory that stayed after the calls of each tool: a leak too slow for any one call to show."""

    def __init__(self) -> None:
        self.first = -1
        self.by_what: dict[str, int] = {}

    def add(self, what: str, before: int, most: int) -> None:
        """A call ended. Raises TaskError where it and those before it have kept more than ``most`` bytes.

        The process as a whole must have grown as much, too: what is freed between two calls is no leak.
        """
        now = _resident_bytes()
        self.first = before if self.first < 0 else self.first
        kept = self.by_what[what] = max(0, self.by_what.get(what, 0) + now - before)
        if min(kept, now - self.first) > most:
            raise TaskError(f"{what} has kept {kept / 2**30:.1f} GiB of memory over its calls")


_kept = _Kept()


@contextmanager
def watched_for_leaks(what: str, seconds: float | None = None, growth: int | None = None) -> Iterator[Call]:
    """:func:`watched`, for code whose every call should leave the memory as it was; leaks over many calls are named."""
    before = _resident_bytes()
    with watched(what, seconds, growth) as call:
        yield call
    _kept.add(what, before, GROWTH_BYTES if growth is None else growth)


@contextmanager
def trusted(what: str, detail: str = "", seconds: float | None = None) -> Iterator[Call]:
    """:func:`watched`; what the block raises, but for the library's own errors, becomes a TaskError that names it."""
    with watched(what, seconds) as call:
        call.at(what, detail)
        try:
            yield call
        except ToolGymError:
            raise
        except Exception as error:
            at = f" ({call.detail[:200]!r})" if call.detail else ""
            raise TaskError(f"{call.what} raised {error!r}{at}") from error


@contextmanager
def watched(what: str, seconds: float | None = None, growth: int | None = None) -> Iterator[Call]:
    """Run trusted code that should come back soon.

    Args:
        what: whose and which call it is, as the error says it: ``Arithmetic.grade``.
        seconds: how long it may take; None: ``SECONDS``.
        growth: bytes of resident memory that the process may gain meanwhile; None: ``GROWTH_BYTES``.

    The block gets the call, to say with ``at`` that the next of many begins: cheaper than a block for each.

    Raises TaskError, with ``what`` and why, where it does not come back.
    """
    watch = _running_watch()
    seconds, growth = SECONDS if seconds is None else seconds, GROWTH_BYTES if growth is None else growth
    thread, entry = threading.get_ident(), Call(what, seconds, growth)
    outer = watch.entries.get(thread)
    watch.entries[thread] = entry
    watch.busy.set()
    try:
        try:
            yield entry
        finally:
            with watch.lock:
                if outer is None:
                    watch.entries.pop(thread, None)
                else:
                    watch.entries[thread] = outer
    except _Interrupted:
        raise TaskError(entry.reason) from None


def _resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
