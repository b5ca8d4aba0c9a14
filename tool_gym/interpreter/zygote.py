"""The process that workers are forked from, and what a worker does.

The zygote is started fresh, imports everything once, and never runs a program that matters. Forking it takes a
millisecond and inherits nothing of the trainer: no heap, no threads, no descriptors, no environment.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from itertools import repeat
from typing import NoReturn

from . import hardening
from .executor import Executor, prepare
from .guards import SPECIAL_METHODS
from .limits import Limits
from .wire import CONTROL, HEADER, MACHINERY, ProtocolError, encode_reply, frame, read_request, write_all

_MAX_CALLS = 20_000
_MAX_GROWTH_KIB = 128 << 10
_GROWTH_STEPS = 1000  # a program of fewer cannot grow by much: looked at now and then
_NICE = 10  # of the workers for long programs: a tenth of the processor time of one that runs short ones
_ALARM_SECONDS = 0.5  # the alarm clock is put on by at least so much

# Run once before forking, so that workers start with warm code: CPython specialises what it has seen.
_WARM_UP = (
    ("(((3+4)*2)-1)%10", True),
    ("x = 3\ny = x * 4 + 2\nprint(y, y // 3 > 1)", False),
    ("total = 0\nfor i in range(20):\n    total += i ** 2 % 7\nprint(f'{total:.2f}')", False),
    ("def f(n):\n    return 1 if n < 2 else n * f(n - 1)\n[f(n) for n in range(6)]", True),
    ("class A:\n    def __init__(self):\n        self.x = {'k': [1]}\nA().x['k'].append('a'.upper())", True),
    ("import math\nmath.sqrt(16)", True),
    ("def g(n):\n    if n:\n        yield from g(n - 1)\n    yield n\nfor _ in range(20):\n    list(g(40))", False),
    (
        "x = [1] * 90\nwhile x:\n    try:\n        del x[0], x[1 / 0]\n    except ArithmeticError:\n        pass",
        False,
    ),
    ("1 / 0", False),
    ("(", False),
    ("().__class__", False),
)

# And what calls the program's own methods from native code: how deep a program may recurse through it is counted
# differently before and after CPython has specialised the call, so all of it is specialised before the first fork.
_OWN_METHODS = """
o == 1; o != o; o < o; o <= o; o > 1.5; o >= 'a'; 1 < o < 2; 1 == o; o in [1]; [o] == [o]; 1 in o; o + 1; 1 + o; o - 1
o * 2; o / 2; o // 2; o % 2; o ** 2; o << 1; o >> 1; o | 1; o & 1; o ^ 1; -o; +o; ~o; abs(o); len(o); bool(o); not o
int(o); float(o); complex(o); round(o); round(o, 1); str(o); repr(o); f'{o}'; '%s' % o; '%d' % o; '{}'.format(o)
print(o); o[0]; o[:2]; list(o); [x for x in o]; tuple(o); next(o); iter(o); sum(o); max(o); min(o); sorted(o); any(o)
all(o); set(o); frozenset(o); bytes(o); dict(o); dict.fromkeys(o); o(1); o.p; o.m(); getattr(o, 'p'); hasattr(o, 'p')
hash(o); {o: 1}; {o}; [o, 1].index(1); [o].count(1); [o].remove(1); sorted([o, o]); max(o, o); min([o], key=len)
list(map(len, [o])); list(filter(None, [o])); list(zip(o, o)); list(enumerate(o)); divmod(o, 2); divmod(2, o)
pow(o, 2); pow(o, 2, 5); pow(2, o); reversed(o); [1, 2][o]; range(5)[o]; 'a' * o; (lambda *a: a)(*o); chr(o); hex(o)
''.join(o); [].extend(o); {1}.update(o); {1}.union(o); functools.reduce(len, o); heapq.heappush([o], o)
bisect.bisect([o], o); math.floor(o); math.sqrt(o); math.prod([o]); math.fsum(o); fractions.Fraction(1, 2) + o
collections.Counter(o); collections.deque(o); statistics.mean(o); list(itertools.chain(o, o)); itertools.islice(o, 2)
list(itertools.accumulate(o)); list(itertools.groupby(o)); list(itertools.product(o)); list(itertools.starmap(len, o))
str([[1], (1,), {1: [1]}, {(1, (2, frozenset([3])))}, collections.deque([[1]])]); isinstance(1, (str, (float, (int,))))
copy.deepcopy([[1], (1, (2,)), {1: [1]}, {1}, collections.deque([[1]])]); operator.add(o, 1); operator.eq(o, 1)
copy.copy(o); copy.deepcopy(o); json.dumps(o); random.choice(o); slice(o)
"""


def _warm_methods() -> str:
    """A program that uses an object with every special method in every way of ``_OWN_METHODS``, again and again."""
    methods = "".join(
        f"    def {name}(self, *a):\n        return 1\n" for name in sorted(SPECIAL_METHODS - {"__init__"})
    )
    uses = [f"lambda: {use}" for line in _OWN_METHODS.split("\n") for use in line.split("; ") if use]
    own = "    @property\n    def p(self):\n        return 1\n    def m(self):\n        return 1\n"
    turn = "    kept = o\n    kept += 1\n    try:\n        use()\n    except Exception:\n        pass\n"
    loop = f"for use in uses * 20:\n{turn}"
    return f"class A:\n{methods}{own}o = A()\nuses = [{', '.join(uses)}]\n{loop}"


def _serve(descriptor: int, limits: Limits) -> None:
    """A worker's life: confine itself, say so, then answer requests until one of them is the last."""
    layers = hardening.confine(limits.memory_bytes)
    executor = Executor(limits)
    write_all(descriptor, frame(json.dumps([os.getpid(), layers]).encode("ascii")))
    heaviest = _peak_memory() + _MAX_GROWTH_KIB
    served = 0
    alarm = 0.0
    while (request := read_request(descriptor)) is not None:
        for session in request.over:
            executor.forget(session)
        for source, session in zip(request.sources, request.sessions or repeat(0)):  # noqa: B905 - repeat has no end
            now = time.monotonic()
            if now >= alarm:
                # Processor time, whatever the host does: the default action of the signal ends the process.
                signal.setitimer(signal.ITIMER_PROF, limits.wall_seconds + 1.0 + _ALARM_SECONDS)
                alarm = now + _ALARM_SECONDS
            record = executor.run(source, request.inputs, request.echo, session, 0 if session else request.steps)
            served += 1
            grown = (record[5] > _GROWTH_STEPS or served % 64 == 0) and _peak_memory() > heaviest
            last = executor.tainted or grown or served >= _MAX_CALLS
            write_all(descriptor, encode_reply(record, last))
            if last:
                return


def _peak_memory() -> int:
    """Most KiB that this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _worker(descriptor: int, limits: Limits, parent: int, nice: int) -> NoReturn:
    """Runs in the forked child, and never returns into the zygote."""
    status = 70
    try:
        os.setpgid(0, 0)
        os.nice(nice)
        hardening.die_with_parent(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPROF):
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(ConnectionError):  # the pool listens no more: no program's doing
            _serve(descriptor, limits)
        status = 0
    except (OSError, ProtocolError):
        # Of the stream to the pool: nothing that a program raises leaves its call, and it touches no descriptor.
        status = MACHINERY
    finally:
        os._exit(status)


class _Zygote:
    """Starts and reaps workers as the pool asks."""

    def __init__(self, control: socket.socket, limits: Limits) -> None:
        self._control = control
        self._limits = limits
        self._workers: dict[int, int] = {}

    def run(self) -> None:
        """Serve the pool until it goes away; then end every worker."""
        while True:
            request, descriptors, _, _ = socket.recv_fds(self._control, CONTROL.size, 1)
            if len(request) < CONTROL.size:
                break
            operation, number = CONTROL.unpack(request)
            if operation == b"R":
                self._reap(number)
            else:
                self._start(number, descriptors[0], _NICE if operation == b"L" else 0)
        for number in list(self._workers):
            self._end(number)

    def _start(self, number: int, descriptor: int, nice: int) -> None:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            self._control.close()
            _worker(descriptor, self._limits, parent, nice)
        os.close(descriptor)
        self._workers[number] = child

    def _end(self, number: int) -> int:
        """Kill a worker and what it may have started; its wait status says how it ended, if it had before."""
        child = self._workers.pop(number)
        for kill in (os.kill, os.killpg):
            try:
                kill(child, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # ended already, or not yet in a group of its own
        return os.waitpid(child, 0)[1]

    def _reap(self, number: int) -> None:
        status = self._end(number) if number in self._workers else -1
        report(self._control, {"number": number, "status": status})


def report(control: socket.socket, message: dict[str, object]) -> None:
    """Send a message to the pool."""
    payload = json.dumps(message).encode("ascii")
    control.sendall(HEADER.pack(len(payload)) + payload)


def main(control: socket.socket, settings: dict[str, float]) -> None:
    """Warm up, then serve. Called by ``worker.py``."""
    limits = Limits(**settings)  # type: ignore[arg-type]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hardening.deepen_stack()
    sys.setrecursionlimit(1000)
    warm = Executor(Limits())
    for source, echo in (*_WARM_UP, (_warm_methods(), False)):
        warm.run(source, None, echo)
    del warm
    gc.collect()
    prepare(base_depth=10)
    _Zygote(control, limits).run()
