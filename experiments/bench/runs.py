"""The runs part of the benchmark: a default run from nothing, and two runs with a core each."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.bench.engine import LIVE_ROWS
from experiments.bench.figures import BenchConfig, Row, interleaved, paired

_ROOT = Path(__file__).parents[2]
_MINUTE = 60.0
_STEPS = 12

_PINNED_PROGRAM = r"""
import os, sys, tempfile
from pathlib import Path
os.sched_setaffinity(0, {int(sys.argv[1])})
import torch
from experiments.bench.engine import LIVE_ROWS, SIZES, _Steps
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    trainer = _Steps(SIZES[0].policy, LIVE_ROWS // 16, 0, int(sys.argv[3]), Path(folder))
    try:
        trainer.measure(0)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(sum(trainer.measure(step)[1] for step in range(int(sys.argv[2]))), flush=True)
    finally:
        trainer.setup.close()
"""


def rows(config: BenchConfig) -> Iterator[Row]:
    """What a default run takes, everything included, and what a second run beside it costs each of two."""
    yield from _default_run(config)
    if hasattr(os, "sched_getaffinity") and len(cores := sorted(os.sched_getaffinity(0))) > 1:
        yield _two_pinned(cores[:2], config)


def _default_run(config: BenchConfig) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "train.py", "--seed", str(config.seed), "--runs-dir", folder, "--name", "bench"]
        before, started = _processor_seconds(), time.perf_counter()
        subprocess.run(words, cwd=_ROOT, stdout=subprocess.DEVNULL, check=True)
        seconds, worked = time.perf_counter() - started, _processor_seconds() - before
    yield Row("python train.py, from nothing", seconds, "s", paired([seconds], [_MINUTE]), "a minute", 1.0)
    yield Row("  processor time, tool workers included", worked, "s")


def _processor_seconds() -> float:
    """Of the processes that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _two_pinned(cores: Sequence[int], config: BenchConfig) -> Row:
    """Rollouts a second of two processes with a core each, tool workers included, to those of one such alone."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", _PINNED_PROGRAM, str(core), str(_STEPS), str(config.seed)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for core in cores
    ]
    try:
        for program in programs:
            _line(program)
        sides = {
            "one": lambda index: _rate(programs[index % 2 :][:1]),
            "two": lambda index: _rate(programs),
        }
        measured = interleaved(max(2, config.rounds // 3 * 2), sides)
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    ratio = paired(measured["two"], measured["one"])
    best = max(measured["two"])
    return Row("two runs, a core each", best, "rollouts/s", ratio, "one such run", 1.8, at_least=True)


def _rate(programs: Sequence[subprocess.Popen[str]]) -> float:
    """Rollouts a second of all, each over its own time."""
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    return sum(_STEPS * LIVE_ROWS / float(_line(program)) for program in programs)


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line:
        raise RuntimeError("a pinned run ended before it was measured")
    return line
