"""What the host keeps of calls: their arguments, checked; results to come; sessions."""

from __future__ import annotations

import itertools
import keyword
import marshal
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ConfigError, InfrastructureError
from ..tools.base import ToolResult
from .limits import Limits
from .wire import ends_session

if TYPE_CHECKING:
    from .pool import InterpreterPool

_INPUT_NODES = 100_000
_INPUT_BYTES = 64 << 20


def check_limits(limits: Limits) -> None:
    """Raises ConfigError for limits that are none, or out of range."""
    if not isinstance(limits, Limits):
        raise ConfigError("limits", limits, "Limits")
    ranges = {
        "steps": (1, 2**62),
        "integer_bits": (64, 2**32),
        "items": (1, 2**40),
        "characters": (1, 2**40),
        "output_chars": (1, 10**7),
        "source_chars": (0, 10**7),
        "memory_bytes": (2**24, 2**50),
    }
    for name, (least, most) in ranges.items():
        given = getattr(limits, name)
        if type(given) is not int or not least <= given <= most:
            raise ConfigError(f"limits.{name}", given, f"an integer from {least} to {most}")
    seconds = limits.wall_seconds
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.01 <= seconds <= 86400.0:
        raise ConfigError("limits.wall_seconds", seconds, "seconds between 0.01 and 86400")


def _copy_input(name: str, value: Any, depth: int, count: list[int]) -> Any:
    """A copy of an input in exact primitive types. Raises ConfigError for anything else."""
    count[0] += 1
    if depth > 50 or count[0] > _INPUT_NODES:
        raise ConfigError(f"inputs[{name!r}]", type(value).__name__, f"at most {_INPUT_NODES} values, nested 50 deep")
    kind = type(value)
    if value is None or kind in (bool, int, float, str, bytes):
        return value
    if kind is list or kind is tuple:
        return kind(_copy_input(name, item, depth + 1, count) for item in value)
    if kind is dict:
        return {
            _copy_input(name, key, depth + 1, count): _copy_input(name, item, depth + 1, count)
            for key, item in value.items()
        }
    raise ConfigError(
        f"inputs[{name!r}]", value, "None, bool, int, float, str, bytes, and lists, tuples, dicts of them"
    )


def encode_inputs(inputs: Mapping[str, Any] | None) -> bytes | None:
    """Names in scope of a call as they are sent. Raises ConfigError for what may not be sent."""
    if not inputs:
        return None
    if not isinstance(inputs, Mapping):
        raise ConfigError("inputs", inputs, "a mapping of names to values")
    names: dict[str, Any] = {}
    for name, value in inputs.items():
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            raise ConfigError("inputs", name, "names that a program can write, without a leading underscore")
        names[name] = _copy_input(name, value, 0, [0])
    encoded = marshal.dumps(names)
    if len(encoded) > _INPUT_BYTES:
        raise ConfigError("inputs", f"{len(encoded)} bytes", f"at most {_INPUT_BYTES} bytes")
    return encoded


# ------------------------------------------------------------------ sessions


class _Past(NamedTuple):
    """A call that a session has had: enough to have it again."""

    source: str
    inputs: bytes | None
    echo: bool
    result: ToolResult


_numbers = itertools.count(1)


class InterpreterSession:
    """Keeps what programs leave: the next call of the session finds the names that the last one left.

        session = InterpreterSession()
        pool.run("x = 3", session=session)
        pool.run("x + 1", echo=True, session=session).output  # "4"

    The state lives in a worker. Programs are deterministic, so that what a session *is* are the calls it has had:
    where its worker is gone they are run again on another, before the next call, and each must answer as it did.
    For the same reason a copy (``copy.deepcopy``, pickle) is a session of its own that goes on from the same state.

    An exception keeps what was done before it, as in a notebook. A call that ends in ``limit`` was stopped in the
    middle of anything: the session starts anew after it (but for cut output, and for a source too long to run).

    One call at a time. A session belongs to the pool of its first call; its state is dropped with it.
    """

    def __init__(self) -> None:
        self._number = next(_numbers)
        self._past: list[_Past] = []
        self._pool: InterpreterPool | None = None
        self._busy = False

    def __repr__(self) -> str:
        return f"InterpreterSession({len(self._past)} calls)"

    def __getstate__(self) -> dict[str, Any]:
        if self._busy:
            raise InfrastructureError("a session cannot be copied while its call is under way")
        return {"past": list(self._past)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._past = state["past"]

    def __del__(self) -> None:
        pool = self.__dict__.get("_pool")
        if pool is not None:
            # May run in the middle of anything, so it takes no lock: the pool looks after it with its next call.
            pool._over.append(self._number)

    def _begin(self, pool: InterpreterPool) -> None:
        """Raises ConfigError if the session cannot take a call in this pool now."""
        if self._busy:
            raise ConfigError("sessions", self, "sessions whose last result has come")
        if self._pool is not None and self._pool is not pool:
            raise ConfigError("sessions", self, "sessions of this pool (a copy.deepcopy of one may be used in another)")
        self._pool = pool
        self._busy = True

    def _end(self, call: Call, result: ToolResult) -> None:
        self._busy = False
        if ends_session(result.status, result.kind):
            self._past.clear()
        elif result.status != "infrastructure" and result.kind != "source":
            self._past.append(_Past(call.source, call.inputs, call.echo, result))


# ------------------------------------------------------------------ calls


class Call:
    """One program, until it has its result."""

    __slots__ = ("batch", "crashes", "index", "losses", "session", "slow", "source", "spoiled")

    def __init__(self, batch: Pending, index: int, source: str, session: InterpreterSession | None) -> None:
        self.batch = batch
        self.index = index
        self.source = source
        self.session = session
        self.losses = 0
        self.crashes = 0
        self.slow = False
        """Whether it has shown to be long."""
        self.spoiled = False
        """Whether a call that its session had before answered otherwise now."""

    @property
    def inputs(self) -> bytes | None:
        return self.batch._inputs

    @property
    def echo(self) -> bool:
        return self.batch._echo


class Replay:
    """A call that a session has had, run again so that ``call`` finds its state."""

    __slots__ = ("call", "past")

    def __init__(self, call: Call, past: _Past) -> None:
        self.call = call
        self.past = past

    @property
    def source(self) -> str:
        return self.past.source

    @property
    def inputs(self) -> bytes | None:
        return self.past.inputs

    @property
    def echo(self) -> bool:
        return self.past.echo

    @property
    def session(self) -> InterpreterSession | None:
        return self.call.session


class Pending:
    """Results to come of one :meth:`InterpreterPool.submit`."""

    def __init__(self, pool: InterpreterPool, count: int, inputs: bytes | None, echo: bool) -> None:
        self._pool = pool
        self._owner = os.getpid()
        self._inputs = inputs
        self._echo = echo
        self._ready: list[tuple[int, ToolResult]] = []
        self._remaining = count

    @property
    def remaining(self) -> int:
        """Number of results not yet taken."""
        return self._remaining

    def take(self, block: bool = False) -> list[tuple[int, ToolResult]]:
        """Results finished since the last take, each once, as (index in ``codes``, result), in no set order.

        With ``block`` waits until there is at least one more; [] when all have been taken.
        Raises InfrastructureError in a process forked since: the calls are its parent's, which takes them.
        """
        if self._owner != os.getpid():
            raise InfrastructureError("these calls were submitted by the process that this one was forked from")
        return self._pool._take(self, block)
