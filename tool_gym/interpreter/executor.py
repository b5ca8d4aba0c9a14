"""Running programs in a worker: the cache of compiled programs, one call, its record, and what sessions keep."""

from __future__ import annotations

import gc
import marshal
import sys
import warnings
from typing import Any, NamedTuple

from .guards import echo as echo_value
from .limits import Limits
from .meter import METER, PROGRAM, Memory, Stop
from .policy import Program, Rejected, compile_program
from .scope import HIDEABLE_NAMES, globals_of, intact
from .values import class_name, error_text, one_line
from .wire import LONG, Record, ends_session

_CACHED_PROGRAMS = 4096
_CACHED_CHARACTERS = 1 << 22
# Depth of the program's own calls, on top of the frames of the worker: Python's own default.
_RECURSION = 1000
_COMPILER_RECURSION = 5000
_NO_NAMES: frozenset[str] = frozenset()


class _State(NamedTuple):
    """What a session keeps between its calls."""

    names: dict[str, Any]
    memory: Memory
    plain: bool
    """Whether no program so far could leave anything that only a garbage collection finds."""


class Executor:
    """Executes programs one after the other, each with a full budget: in fresh globals, or in those of a session."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._programs: dict[tuple[str, bool, bool, frozenset[str]], Program | Record] = {}
        self._cached = 0
        self._states: dict[int, _State] = {}
        METER.configure(limits)
        self.tainted = False
        """Whether the process should not serve another call."""

    def run(
        self, source: str, inputs: bytes | None = None, echo: bool = False, session: int = 0, steps: int = 0
    ) -> Record:
        """One call.

        Args:
            source, echo: see InterpreterPool.run.
            inputs: a marshalled dictionary of names, unmarshalled afresh for each call.
            session: number of the session whose globals the program finds and leaves; 0 for none. A program that
                hits a limit leaves none: it was stopped in the middle of anything.
            steps: budget in place of that of the limits, not with a session. A program that needs more is no answer
                but LONG: nothing of it remains, and it can be run again with all its steps.
        """
        state = self._states.pop(session, None) if session else None
        names, memory, plain = (globals_of(), None, True) if state is None else state
        given = marshal.loads(inputs) if inputs is not None else {}
        # A built-in that is withheld may be used by whom it does not mean the built-in.
        # In a session a later program can bind a name anew that an earlier one's functions still use.
        fresh = not given and not session
        own = _NO_NAMES if not given and state is None else HIDEABLE_NAMES.intersection([*names, *given])
        program = self._programs.get((source, echo, fresh, own))
        if program is None:
            program = self._compile(source, echo, fresh, own)
        if not isinstance(program, Program):
            if state is not None:
                self._states[session] = state
            return program
        names.update(given)
        METER.begin(self._limits, memory, steps)
        error: BaseException | None = None
        try:
            # The handler keeps nothing: an exception holds its frames, and those the program's values.
            value = eval(program.code, names)
            if program.shows:
                echo_value(value)
        except BaseException as raised:
            error = raised
        record = self._record(error, may_be_long=steps > 0)
        del error
        memory = METER.release()
        plain = plain and program.plain
        if session and not ends_session(*record[:2]):
            self._states[session] = _State(names, memory, plain)
        else:
            names.clear()
        del names, memory, state
        if not plain:
            gc.collect()
            if not intact():
                self.tainted = True
        return record

    def forget(self, session: int) -> None:
        """A session is over; not every number is known here."""
        state = self._states.pop(session, None)
        if state is not None:
            state.names.clear()

    def _compile(self, source: str, echo: bool, fresh: bool, own: frozenset[str]) -> Program | Record:
        """Compile and remember; a program that cannot run is remembered by its answer."""
        result: Program | Record
        depth = sys.getrecursionlimit()
        sys.setrecursionlimit(_COMPILER_RECURSION)
        try:
            result = compile_program(source, self._limits.source_chars, echo, own, fresh)
        except Rejected as rejected:
            status, kind, message = rejected.args
            result = (status, kind, one_line(message), "", False, 0)
        finally:
            sys.setrecursionlimit(depth)
        if len(self._programs) >= _CACHED_PROGRAMS or self._cached > _CACHED_CHARACTERS:
            self._programs.clear()
            self._cached = 0
        self._programs[source, echo, fresh, own] = result
        self._cached += len(source)
        return result

    def _record(self, error: BaseException | None, may_be_long: bool) -> Record:
        """The answer to the call that just ended with ``error``. Closes the meter."""
        status, kind, message = "ok", "", ""
        if error is not None and METER.verdict is None:
            try:
                status, kind, message = describe(error)
            except BaseException:
                # The program's own __str__ raised, or ran out of budget: then the meter has the verdict.
                status, kind, message = "error", class_name(type(error))[:100], _where(error)
        overdrawn = METER.overdrawn
        steps = METER.close()
        if may_be_long and overdrawn:
            return LONG, "", "", "", False, steps
        if METER.verdict is not None:
            status, kind, message = METER.verdict
        output = METER.output
        truncated = output.truncated
        if truncated and (status == "ok" or kind == "steps"):
            status, kind, message = "limit", "output", f"{output.size} characters printed"
        if ends_session(status, kind):
            self.tainted = True
        return status, kind, one_line(message), output.text(), truncated, steps


def _where(error: BaseException) -> str:
    """``line N`` of the program, where the exception left it."""
    line, frames = 0, error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code.co_filename == PROGRAM:
            line = frames.tb_lineno or line
        frames = frames.tb_next
    return f"line {line}" if line else ""


def describe(error: BaseException) -> tuple[str, str, str]:
    """Status, kind and message of an exception that a program let out."""
    if METER.is_genuine(error, (MemoryError,)):
        return "limit", "memory", "out of memory"
    if METER.is_genuine(error, (RecursionError,)):
        return "limit", "recursion", "maximum recursion depth exceeded"
    if isinstance(error, Stop):
        METER.exhausted()
    kind = class_name(type(error))[:100]
    place = _where(error)
    text = error_text(error)
    if " at 0x" in text:
        text = _without_addresses(text)
    return "error", kind, f"{place}: {text}" if text and place else text or place


def _without_addresses(text: str) -> str:
    """Native messages now and then hold an address, which differs from process to process."""
    parts = text.split(" at 0x")
    return parts[0] + "".join(" at 0x..." + part.lstrip("0123456789abcdef") for part in parts[1:])


def prepare(base_depth: int = 0) -> None:
    """Set the process up for programs: recursion, garbage collection, silence. Called once, before the first."""
    sys.setrecursionlimit(_RECURSION + base_depth)
    # Collections at times of their own choosing would run the program's finalisers in the wrong call.
    gc.disable()
    gc.freeze()
    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore")
