"""Ctrl-C and SIGTERM: the first ends a run after its step, with a checkpoint; the second ends it at once."""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal ended the run. Not an Exception: nothing between here and the command line may handle it."""

    def __init__(self, number: int, where: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}{where}")
        self.number = number


class StopSignals:
    """Turns signals into a request while a run is inside :meth:`deferred`, and into :class:`Stopped` elsewhere.

    Args:
        on_request: is told of the first signal of a deferred part, in a thread of its own.
    """

    def __init__(self, on_request: Callable[[str], None] = lambda text: None) -> None:
        self._on_request = on_request
        self._deferring = False
        self._requested: int | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals until the end of the block. Only the main thread can, so that others change nothing."""
        try:
            before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._deferring or self._requested is not None:
            raise Stopped(number)
        self._requested = number
        # Not from here: the handler may have interrupted a print, and a thread is not to enter a stream twice.
        # Not by `threading` either: its locks may be held by what the handler has interrupted.
        _thread.start_new_thread(
            self._on_request, (f"{signal.Signals(number).name}: ends after this step (again: at once)",)
        )

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """A part that is not to be interrupted by the first signal: ask :meth:`check` where it may end."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    @property
    def number(self) -> int | None:
        """The signal that came, None without one."""
        return self._requested

    @property
    def requested(self) -> bool:
        return self.number is not None

    def check(self) -> None:
        """Raises Stopped if a signal came."""
        number = self.number
        if number is not None:
            raise Stopped(number)
