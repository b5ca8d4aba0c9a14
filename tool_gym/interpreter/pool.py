"""The host's side: a pool of worker processes that runs programs and answers every call with a ToolResult.

There is no thread of its own: whoever waits for a result pumps the pipes, and workers hold enough calls to stay
busy in between. All state changes under one lock; only the wait for the pipes happens outside of it.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from types import TracebackType
from typing import Any

from ..errors import ConfigError, InfrastructureError
from ..tools.base import ToolResult
from .calls import Call, InterpreterSession, Pending, Replay, check_limits, encode_inputs
from .limits import Limits
from .wire import (
    CONTROL,
    HEADER,
    LONG,
    MACHINERY,
    FrameReader,
    ProtocolError,
    Request,
    decode_reply,
    encode_request,
    max_reply,
)

_log = logging.getLogger("tool_gym.interpreter")

_WINDOW = 256  # calls that a worker holds at most: enough to work through while the host is busy elsewhere
_FRAME = 64  # calls in one request
_SHORT_STEPS = 2000  # some 0.2 ms: a program that needs more is run again where it holds up no other
# Results are gathered a little before they are looked at: so long for each call in the workers' hands, less than two
# workers take for one whose code they know.
_GATHER = 3e-6
_LONGEST_GATHER = 0.001
_CROWD = 16  # calls in the workers' hands from which on
_START_SECONDS = 30.0  # until a new worker must have said hello
_PATIENCE = 4.0  # wall budgets that a call may take on a machine that gives its worker no processor time
_SLOW_PATIENCE = 40.0  # and where its worker is of low priority, so that it gets little
_TICK = 0.25  # longest wait for the pipes: calls that another thread adds are looked after within this time
_BREATH = 0.01  # shortest wait: a call that is overdue but was starved is not watched in a tight loop
_ATTEMPTS = 2  # of a call whose worker is lost
_STARTS = 5  # starts of a worker that may fail in a row, by whatever kills them, before the pool says that it cannot
_FRAME_CHARACTERS = 1 << 22  # and in all of its programs together, but for a single longer one

# Ends that a program can bring about itself. A worker killed by anything else was killed by somebody.
_TIMED_OUT = {signal.SIGPROF, signal.SIGXCPU}
_CRASHES = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
    signal.SIGXFSZ,
}


@dataclasses.dataclass(slots=True)
class PoolStats:
    """Counters of a pool since it was made; also readable as ``stats["calls"]``."""

    calls: int = 0
    """Results handed out."""
    kills: int = 0
    """Workers killed for a call that ran out of time: each is a gap in the step budget, to be costed."""
    recycled: int = 0
    """Workers replaced in the ordinary course: after a limit, growth, or many calls."""
    infrastructure_failures: int = 0
    """Workers lost to something other than their call, and pools that could not start."""
    crashes: int = 0
    """Workers that died of their call."""

    def __getitem__(self, name: str) -> int:
        value: int = getattr(self, name)
        return value

    def keys(self) -> Iterator[str]:
        """Names of the counters, so that ``dict(stats)`` works."""
        return (field.name for field in dataclasses.fields(self))


# ------------------------------------------------------------------ processes


class _Zygote:
    """The process that forks workers for one pool."""

    def __init__(self, limits: Limits) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_START_SECONDS)
        self._inherited = os.getpid()
        spec = find_spec("RestrictedPython")
        if spec is None or spec.origin is None:
            raise InfrastructureError("RestrictedPython is not installed")
        command = [
            *(sys.executable, "-s", "-P", "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")),
            *(str(theirs.fileno()), json.dumps(dataclasses.asdict(limits))),
            os.path.dirname(os.path.dirname(spec.origin)),
        ]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PYTHONHASHSEED": "0"},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def start(self, number: int, slow: bool) -> socket.socket:
        """Ask for a worker; returns our end of its channel at once. Raises OSError if the zygote is gone."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                request = CONTROL.pack(b"L" if slow else b"S", number)
                socket.send_fds(self._control, [request], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        ours.setblocking(False)
        return ours

    def reap(self, number: int) -> int | None:
        """Kill a worker if it lives; its wait status. Raises OSError, with the reason, if the zygote is gone."""
        self._control.sendall(CONTROL.pack(b"R", number))
        while True:
            message = self._receive()
            if "error" in message:
                raise ConnectionError(str(message["error"]).strip().splitlines()[-1])
            if message.get("number") == number:
                status = int(message["status"])
                return None if status < 0 else status

    def reason(self) -> str:
        """Why the zygote ended, as far as it said."""
        try:
            while True:
                message = self._receive()
                if "error" in message:
                    return str(message["error"]).strip().splitlines()[-1]
        except (OSError, ValueError):
            return f"the process that starts workers ended with status {self._process.poll()}"

    def _receive(self) -> dict[str, Any]:
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        message: dict[str, Any] = json.loads(self._exactly(length))
        return message

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._control.recv(size - len(data))
            if not part:
                raise ConnectionError("the process that starts workers is gone")
            data += part
        return data

    def close(self) -> None:
        """End the zygote and with it all workers; in a forked child of the owner, only let go of it."""
        self._control.close()
        if os.getpid() != self._inherited:
            self._process.returncode = 0  # not our child: never wait for it
            return
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Worker:
    """Our end of one worker."""

    __slots__ = (
        "backlog",
        "calls",
        "channel",
        "ending",
        "number",
        "out",
        "over",
        "pid",
        "processor",
        "reader",
        "since",
        "slow",
        "writing",
        "zygote",
    )

    def __init__(self, number: int, zygote: _Zygote, output_chars: int, slow: bool) -> None:
        """Starts it. Raises OSError if the zygote is gone."""
        self.number = number
        self.zygote = zygote
        self.slow = slow
        """Whether it is of those that run long programs, at low priority."""
        self.channel = zygote.start(number, slow)
        self.reader = FrameReader(max_reply(output_chars))
        self.calls: deque[Call | Replay] = deque()
        """What it was sent and has not answered."""
        self.backlog: deque[Call] = deque()
        """Calls of the sessions whose state it has, waiting for room."""
        self.over: list[int] = []
        """Sessions that it may forget."""
        self.out = bytearray()
        self.writing = False
        self.pid = 0
        self.ending = False
        self.since = time.monotonic()
        self.processor = 0.0

    @property
    def load(self) -> int:
        """Calls that it has to answer."""
        return len(self.calls) + len(self.backlog)

    def progressed(self) -> None:
        """The call at the head starts now."""
        self.since = time.monotonic()
        self.processor = self.processor_seconds()

    def processor_seconds(self) -> float:
        """Processor time of the worker so far; 0.0 where the system does not tell."""
        if not self.pid or sys.platform != "linux":
            return 0.0
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # the clock of a process: clock_getcpuclockid(3)
        except OSError:
            return 0.0

    def stopped(self, wall: float) -> bool:
        """Whether the worker got next to no processor time for its call: somebody stopped it, and not its program."""
        now = self.processor_seconds()
        return now > 0.0 and now - self.processor < wall / 50

    def overdue(self, wall: float) -> bool:
        """Whether the call at the head had its time: not before the worker did, on a machine under load."""
        elapsed = time.monotonic() - self.since
        if not self.pid:
            return elapsed > _START_SECONDS
        if elapsed <= wall:
            return False
        starved = sys.platform == "linux" and self.processor_seconds() - self.processor < wall / 2
        if self.slow and not self.stopped(wall):
            return elapsed > _SLOW_PATIENCE * wall or not starved
        return elapsed > _PATIENCE * wall or not starved


_POOLS: weakref.WeakSet[InterpreterPool] = weakref.WeakSet()


class InterpreterPool:
    """Runs restricted Python programs in worker processes.

    Args:
        workers: number of processes, at least 1; they start with the first calls. Up to as many more, of low
            priority, run what turns out long, so that it holds up no other call.
        limits: budgets of each call.

    Use it as a context manager, or call :meth:`close`. Any thread may use it; a process forked from this one may
    too, and gets workers of its own. Raises ConfigError for a bad argument.
    """

    def __init__(self, workers: int = 2, limits: Limits | None = None) -> None:
        limits = Limits() if limits is None else limits
        if type(workers) is not int or not 1 <= workers <= 1024:
            raise ConfigError("workers", workers, "an integer from 1 to 1024")
        check_limits(limits)
        self._size = workers
        self._limits = limits
        self._short_steps = _SHORT_STEPS if limits.steps > _SHORT_STEPS else 0
        self._stats = PoolStats()
        self._layers: dict[str, bool] = {}
        self._closed = False
        self._reset()
        _POOLS.add(self)

    def _reset(self) -> None:
        """State without any process."""
        self._changed = threading.Condition(threading.RLock())
        self._selector = selectors.DefaultSelector()
        self._zygote: _Zygote | None = None
        self._workers: dict[int, _Worker] = {}
        self._queue: deque[Call] = deque()
        self._long: deque[Call] = deque()  # calls that were given up for those that take less
        self._homes: dict[int, _Worker] = {}  # of sessions: who has their state
        self._over: deque[int] = deque()  # sessions that are no more
        self._numbers = 0
        self._pumping = False
        self._failed_starts = 0
        self._trouble = ""

    # -- calls

    def run(
        self,
        code: str,
        inputs: Mapping[str, Any] | None = None,
        echo: bool = False,
        session: InterpreterSession | None = None,
    ) -> ToolResult:
        """Run one program.

        Args:
            code: source text.
            inputs: names in scope: None, bool, int, float, str, bytes, and lists, tuples and dicts of them. Each
                call gets a copy.
            echo: append the value of a final expression to the output, as a notebook would; None shows nothing.
            session: whose names the program finds and leaves; None: it finds none.

        Never raises for what the program does. Raises ConfigError for a bad argument and InfrastructureError on a
        closed pool.
        """
        return self.run_batch([code], inputs, echo, None if session is None else [session])[0]

    def run_batch(
        self,
        codes: Sequence[str],
        inputs: Mapping[str, Any] | None = None,
        echo: bool = False,
        sessions: Sequence[InterpreterSession | None] | None = None,
    ) -> list[ToolResult]:
        """Run programs, each with fresh state or in a session; the results in their order. See :meth:`submit`."""
        pending = self.submit(codes, inputs=inputs, echo=echo, sessions=sessions)
        results: dict[int, ToolResult] = {}
        while pending.remaining:
            results.update(pending.take(block=True))
        return [results[index] for index in range(len(results))]

    def submit(
        self,
        codes: Sequence[str],
        *,
        inputs: Mapping[str, Any] | None = None,
        echo: bool = False,
        sessions: Sequence[InterpreterSession | None] | None = None,
    ) -> Pending:
        """Start programs and return at once. See :meth:`run` for the arguments and what is raised.

        ``sessions`` has one for each program, or None; the same one can have one call at a time.
        """
        if isinstance(codes, str) or not isinstance(codes, Sequence):
            raise ConfigError("codes", str(codes)[:60], "a sequence of programs, not one")
        for code in codes:
            if not isinstance(code, str):
                raise ConfigError("code", code, "source text")
        batch = Pending(self, len(codes), encode_inputs(inputs), bool(echo))
        with self._changed:
            if self._closed:
                raise InfrastructureError("the interpreter pool is closed")
            owners = [None] * len(codes) if sessions is None else self._begin(sessions, len(codes))
            for index in _alike_together(codes):
                code = codes[index]
                call = Call(batch, index, str(code), owners[index])
                if len(code) > self._limits.source_chars:
                    message = f"{len(code)} characters of source (at most {self._limits.source_chars})"
                    self._finish(call, ToolResult("limit", "source", message))
                else:
                    self._line(call).append(call)
            self._dispatch()
        return batch

    def _begin(self, sessions: Sequence[InterpreterSession | None], count: int) -> list[InterpreterSession | None]:
        """The sessions, each with a call under way from now on. Raises ConfigError, and changes nothing then."""
        if len(sessions) != count:
            raise ConfigError("sessions", f"{len(sessions)} of them", f"one for each of {count} programs, or None")
        begun: list[InterpreterSession] = []
        try:
            for session in sessions:
                if session is not None:
                    if not isinstance(session, InterpreterSession):
                        raise ConfigError("sessions", session, "InterpreterSession objects, or None")
                    session._begin(self)
                    begun.append(session)
        except ConfigError:
            for session in begun:
                session._busy = False
            raise
        return list(sessions)

    def _line(self, call: Call) -> deque[Call]:
        """Where a call waits: for the worker that has its session's state, else for any of its kind."""
        if call.slow:
            return self._long
        home = self._homes.get(call.session._number) if call.session is not None else None
        return self._queue if home is None or home.ending else home.backlog

    @property
    def stats(self) -> PoolStats:
        """Counters so far, as a copy."""
        with self._changed:
            return dataclasses.replace(self._stats)

    @property
    def layers(self) -> dict[str, bool]:
        """Which of the operating system's layers confine the workers; empty before the first has started."""
        return dict(self._layers)

    # -- life

    def __enter__(self) -> InterpreterPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers. Calls still under way become ``infrastructure`` results. May be called again."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            calls = [call for worker in list(self._workers.values()) for call in self._drop(worker)]
            calls += [*self._queue, *self._long]
            self._queue.clear()
            self._long.clear()
            if self._zygote is not None:
                self._zygote.close()
                self._zygote = None
            self._selector.close()
            for call in calls:
                self._finish(call, ToolResult("infrastructure", "closed", "the interpreter pool was closed"))
            self._changed.notify_all()

    def __del__(self) -> None:
        # Not close(): a lock may be held by the very thread that collects this. The zygote ends with its socket.
        zygote = self.__dict__.get("_zygote")
        if zygote is not None and not self._closed:
            for worker in self._workers.values():
                worker.channel.close()
            self._selector.close()
            zygote.close()

    def _forget(self) -> None:
        """In a forked child: the processes and calls are the parent's; start anew."""
        for worker in self._workers.values():
            worker.channel.close()
        if self._zygote is not None:
            self._zygote.close()
        # The selector is closed without unregistering: the parent shares its descriptors.
        self._selector.close()
        self._reset()

    # -- under the lock: sending

    def _dispatch(self) -> None:
        """Give waiting calls to workers that have room, starting workers as needed."""
        self._forget_sessions()
        for worker in self._workers.values():
            while worker.backlog and not worker.ending and len(worker.calls) < _WINDOW:
                self._send(worker, worker.backlog, min(_FRAME, _WINDOW - len(worker.calls)))
        self._fill(self._queue, slow=False)
        self._fill(self._long, slow=True)

    def _fill(self, queue: deque[Call], slow: bool) -> None:
        """Give the calls of ``queue`` to workers of their kind that have room, starting workers as needed."""
        room = 1 if slow else _WINDOW
        while queue and not self._closed:
            workers = [worker for worker in self._workers.values() if worker.slow is slow]
            free = [worker for worker in workers if not worker.ending]
            if len(workers) < self._size and all(worker.calls for worker in free):
                if not self._start_worker(slow):
                    return
                continue
            least = min(free, key=_load, default=None)
            if least is None or len(least.calls) >= room:
                return
            share = -(-len(queue) // self._size)
            self._send(least, queue, min(_FRAME, room - len(least.calls), share))

    def _forget_sessions(self) -> None:
        """Let workers drop the state of sessions that are no more, with the next programs that they get."""
        while self._over:
            home = self._homes.pop(number := self._over.popleft(), None)
            if home is not None:
                home.over.append(number)

    def _start_worker(self, slow: bool) -> bool:
        """Ask for one more worker. False if that failed, and every waiting call has been answered."""
        while self._failed_starts < _STARTS:
            try:
                if self._zygote is None:
                    self._zygote = _Zygote(self._limits)
                self._numbers += 1
                worker = _Worker(self._numbers, self._zygote, self._limits.output_chars, slow)
            except (OSError, InfrastructureError) as error:
                self._start_failed(str(error))
                continue
            self._workers[worker.number] = worker
            self._selector.register(worker.channel, selectors.EVENT_READ, worker)
            return True
        self._give_up()
        return False

    def _start_failed(self, reason: str) -> None:
        """A zygote or worker did not come up."""
        self._failed_starts += 1
        self._stats.infrastructure_failures += 1
        self._trouble = reason
        _log.warning("interpreter workers cannot start: %s", reason)
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None

    def _give_up(self) -> None:
        """Answer all waiting calls: there are no workers. The next submit tries again."""
        message = f"interpreter workers cannot start: {self._trouble}"
        for queue in (self._queue, self._long):
            while queue:
                self._finish(queue.popleft(), ToolResult("infrastructure", "start", message))
        self._failed_starts = 0

    def _send(self, worker: _Worker, queue: deque[Call], most: int) -> None:
        """Send up to ``most`` calls of the batch at the head of ``queue``, and before each what its session had."""
        batch = queue[0].batch
        sent: list[Call | Replay] = []
        room = _FRAME_CHARACTERS
        while queue and len(sent) < most and room > 0 and queue[0].batch is batch:
            call = queue.popleft()
            if call.session is not None and self._homes.get(call.session._number) is not worker:
                self._homes[call.session._number] = worker
                call.spoiled = False
                sent += [Replay(call, past) for past in call.session._past]
            sent.append(call)
            room -= len(call.source)
        if not worker.calls:
            worker.progressed()
        worker.calls.extend(sent)
        for (inputs, echo), part in groupby(sent, key=_scope):
            items = list(part)
            numbers = [0 if item.session is None else item.session._number for item in items]
            sources = [item.source for item in items]
            steps = 0 if worker.slow else self._short_steps
            request = Request(sources, inputs, echo, numbers if any(numbers) else [], worker.over, steps)
            worker.out += encode_request(request)
            worker.over = []
        self._flush(worker)

    def _flush(self, worker: _Worker) -> None:
        """Write what the channel takes; the rest when it takes more. A broken channel shows when it is read."""
        with contextlib.suppress(BlockingIOError):
            try:
                while worker.out:
                    del worker.out[: worker.channel.send(worker.out)]
            except (BrokenPipeError, ConnectionResetError):
                worker.out.clear()
        writing = bool(worker.out)
        if writing != worker.writing:
            worker.writing = writing
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            self._selector.modify(worker.channel, events, worker)

    # -- waiting and receiving

    def _take(self, batch: Pending, block: bool) -> list[tuple[int, ToolResult]]:
        with self._changed:
            self._pump(0.0)
            while block and batch._remaining and not batch._ready:
                self._pump(_TICK)
            taken, batch._ready = batch._ready, []
            batch._remaining -= len(taken)
            return taken

    def _pump(self, longest: float) -> None:
        """Handle what the workers sent, waiting up to ``longest`` seconds for it. One thread at a time does so."""
        if self._closed:
            return
        if self._pumping:
            if longest:
                self._changed.wait(longest)
            return
        self._pumping = True
        selector = self._selector
        held = sum(len(worker.calls) for worker in self._workers.values()) if longest else 0
        self._changed.release()
        try:
            if held >= _CROWD:
                # Each look costs as much as a few results, and takes the processor from a worker.
                time.sleep(min(held * _GATHER, _LONGEST_GATHER))
            events = selector.select(min(longest, self._next_deadline()) if longest else 0.0)
        finally:
            self._changed.acquire()
            self._pumping = False
        for key, mask in events:
            worker: _Worker = key.data
            if self._workers.get(worker.number) is worker:
                if mask & selectors.EVENT_WRITE:
                    self._flush(worker)
                if mask & selectors.EVENT_READ:
                    self._read(worker)
        if not self._closed:
            self._kill_overdue()
            self._dispatch()
        self._changed.notify_all()

    def _next_deadline(self) -> float:
        """Seconds until a worker could be overdue."""
        now = time.monotonic()
        wall = self._limits.wall_seconds
        return max(_BREATH, min((w.since + wall - now for w in list(self._workers.values()) if w.calls), default=_TICK))

    def _read(self, worker: _Worker) -> None:
        """Take in all that a worker has sent, and its end."""
        reason = ""
        try:
            data = worker.channel.recv(1 << 16)
            ended = not data
            for frame in worker.reader.feed(data):
                self._receive(worker, frame)
        except BlockingIOError:
            return
        except ConnectionResetError:
            ended = True
        except ProtocolError as error:
            ended, reason = True, str(error)
        if ended:
            self._bury(worker, reason)
        elif worker.calls:
            worker.progressed()

    def _receive(self, worker: _Worker, frame: bytes) -> None:
        """One frame: the hello, or the reply to the call at the head."""
        if not worker.pid:
            hello = json.loads(frame)
            worker.pid, layers = int(hello[0]), dict(hello[1])
            self._failed_starts = 0
            if layers != self._layers:
                self._layers = layers
                _log.info("interpreter workers are confined by: %s", layers)
            return
        if not worker.calls or worker.ending:
            raise ProtocolError("a reply to no call")
        record, last = decode_reply(frame, self._limits.output_chars)
        item = worker.calls.popleft()
        if record[0] != LONG:
            self._answered(item, ToolResult(*record))  # type: ignore[arg-type]
        elif isinstance(item, Call) and item.session is None and not item.slow:
            item.slow = True
            self._long.append(item)
        else:
            worker.calls.appendleft(item)
            raise ProtocolError("no answer to a call that had all its steps")
        if last:
            worker.ending = True
            self._stats.recycled += 1

    def _answered(self, item: Call | Replay, result: ToolResult) -> None:
        """A worker's reply to a call, or to one that its session had before."""
        if isinstance(item, Call):
            if item.spoiled:
                message = "an earlier call of the session answered otherwise when it was run again"
                result = ToolResult("infrastructure", "replay", message)
                self._stats.infrastructure_failures += 1
            self._finish(item, result)
        elif result != item.past.result:
            item.call.spoiled = True
            _log.error("a call answered %r, and %r when it was run again: %r", item.past.result, result, item.source)

    def _finish(self, call: Call, result: ToolResult) -> None:
        if call.session is not None:
            call.session._end(call, result)
        self._stats.calls += 1
        call.batch._ready.append((call.index, result))

    # -- deaths

    def _kill_overdue(self) -> None:
        for worker in list(self._workers.values()):
            if (worker.calls or not worker.pid) and worker.overdue(self._limits.wall_seconds):
                if worker.stopped(self._limits.wall_seconds):
                    self._bury(worker, "without having been given processor time")
                else:
                    self._bury(worker, "", overdue=True)

    def _drop(self, worker: _Worker) -> list[Call]:
        """Stop listening to a worker; the calls that it leaves unanswered. The sessions that it had are homeless."""
        self._selector.unregister(worker.channel)
        worker.channel.close()
        del self._workers[worker.number]
        self._homes = {number: home for number, home in self._homes.items() if home is not worker}
        return [item for item in worker.calls if isinstance(item, Call)] + list(worker.backlog)

    def _bury(self, worker: _Worker, reason: str, overdue: bool = False) -> None:
        """A worker is at its end: answer or retry the call it was at, and queue the others again."""
        # Before its last answer it was at the first; what it left is run again, after all that its session had.
        at = worker.calls[0] if worker.calls and worker.pid and not worker.ending else None
        left = self._drop(worker)
        status: int | None = None
        orphan = worker.zygote is not self._zygote
        if self._zygote is not None and not orphan:
            try:
                status = self._zygote.reap(worker.number)
            except (OSError, ValueError) as error:
                reason = reason or str(error)
                self._zygote.close()
                self._zygote = None
        blamed = left.pop(0) if at is not None else None
        for call in reversed(left):
            self._line(call).appendleft(call)
        if blamed is not None:
            if at is not blamed:
                reason = reason or "while a session's earlier calls were run again"
            self._settle(blamed, status, reason, overdue, its_own=at is blamed)
        elif not worker.pid and not orphan:
            # The loss of a zygote is one failure, however many workers it was starting.
            self._start_failed(reason or f"a worker ended with status {status} before its first call")
        if self._failed_starts >= _STARTS:
            self._give_up()

    def _settle(self, call: Call, status: int | None, reason: str, overdue: bool, its_own: bool) -> None:
        """Answer the call that a worker died in, or queue it once more."""
        number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else 0
        if its_own and (overdue or number in _TIMED_OUT):
            self._stats.kills += 1
            message = f"killed after {self._limits.wall_seconds:g} seconds"
            self._finish(call, ToolResult("limit", "time", message))
            return
        # A worker that ends in order, with 0, has lost its connection, and one that failed at a request or a reply says
        # so. What else ends it came out of the call: a fault of the sandbox then, but the program brought it about, and
        # must not have its rollouts masked where others' count.
        exited = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else 0
        if not reason and (number in _CRASHES or exited not in (0, MACHINERY)):
            self._stats.crashes += 1
            call.crashes += 1
            if call.crashes >= _ATTEMPTS:
                self._finish(call, ToolResult("limit", "crash", "the program crashed its worker process twice"))
                return
        else:
            self._stats.infrastructure_failures += 1
            call.losses += 1
            _log.warning("an interpreter worker was lost (wait status %s) %s", status, reason)
            if call.losses >= _ATTEMPTS:
                message = f"the worker process was lost twice {reason}".strip()
                self._finish(call, ToolResult("infrastructure", "lost", message))
                return
        self._line(call).appendleft(call)


def _alike_together(codes: Sequence[str]) -> Sequence[int]:
    """Indices of the programs, those of one text in a row: they come to the same worker, which compiles it once."""
    places: dict[str, list[int]] = {}
    for index, code in enumerate(codes):
        places.setdefault(code, []).append(index)
    if len(places) == len(codes):
        return range(len(codes))
    return [index for alike in places.values() for index in alike]


def _load(worker: _Worker) -> int:
    return worker.load


def _scope(item: Call | Replay) -> tuple[bytes | None, bool]:
    return item.inputs, item.echo


# ------------------------------------------------------------------ one pool for a process

_SHARED: dict[tuple[int, int, Limits], InterpreterPool] = {}
_SHARED_LOCK = threading.Lock()


def shared_pool(workers: int = 1, limits: Limits | None = None) -> InterpreterPool:
    """The pool of this process for these arguments, started at the first call and closed at exit.

    Environments share it, so that many of them need no more processes than one. A process forked from this one
    gets its own. Raises ConfigError for a bad argument.
    """
    limits = Limits() if limits is None else limits
    key = (os.getpid(), workers, limits)
    with _SHARED_LOCK:
        pool = _SHARED.get(key)
        if pool is None or pool._closed:
            pool = _SHARED[key] = InterpreterPool(workers, limits)
        return pool


def _close_shared() -> None:
    for (owner, _, _), pool in list(_SHARED.items()):
        if owner == os.getpid():
            pool.close()


def _after_fork() -> None:
    global _SHARED_LOCK
    _SHARED_LOCK = threading.Lock()
    for pool in list(_POOLS):
        if not pool._closed:
            pool._forget()


atexit.register(_close_shared)
os.register_at_fork(after_in_child=_after_fork)
