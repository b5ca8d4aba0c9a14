"""Trusted code that hangs or leaks is ended and named."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tool_gym import watchdog
from tool_gym.errors import ConfigError, TaskError
from tool_gym.tasks.arithmetic import Arithmetic
from tool_gym.tasks.base import Problem, Task, draw, draw_many
from tool_gym.tools.function import FunctionTool
from tool_gym.tools.tool import ToolRequest
from tool_gym.watchdog import trusted, watched

ROOT = Path(__file__).resolve().parent.parent


def spin() -> None:
    while True:
        pass


def test_a_loop_is_interrupted_and_named() -> None:
    with pytest.raises(TaskError, match=r"Lab\.grade has not returned for \d+\.\d seconds"), watched("Lab.grade", 0.2):
        spin()


def test_a_call_that_catches_everything_is_still_ended() -> None:
    def stubborn() -> None:
        while True:
            try:
                spin()
            except Exception:
                continue

    with pytest.raises(TaskError, match="stubborn"), watched("stubborn", 0.2):
        stubborn()


def test_a_leak_is_interrupted_and_named() -> None:
    kept: list[bytearray] = []

    def leak() -> None:
        while True:
            kept.append(bytearray(1 << 20))
            time.sleep(0.002)

    with pytest.raises(TaskError, match=r"leak took up 0\.\d GiB"), watched("leak", 20.0, growth=64 << 20):
        leak()


def test_what_returns_in_time_is_left_alone_and_errors_pass_through() -> None:
    for _ in range(1000):
        with watched("quick", 5.0):
            pass
    with pytest.raises(KeyError), watched("raises", 5.0):
        raise KeyError("k")
    with watched("outer", 0.5), watched("inner", 5.0):
        pass


def test_each_thread_is_watched_by_itself() -> None:
    said: list[str] = []

    def hang(name: str) -> None:
        try:
            with watched(name, 0.2):
                spin()
        except TaskError as error:
            said.append(re.sub(r"\d+\.\d", "…", str(error)))

    threads = [threading.Thread(target=hang, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(said) == ["one has not returned for … seconds", "two has not returned for … seconds"]


def test_what_cannot_be_interrupted_ends_the_process_with_the_same_line() -> None:
    code = (
        "import time, tool_gym.watchdog as w\nw._GRACE = 0.3\nwith w.watched('Lab.sample', 0.2):\n    time.sleep(60)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "error: Lab.sample has not returned for" in ended.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_a_tool_that_leaks_a_little_with_each_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_kept", watchdog._Kept())
    monkeypatch.setattr(watchdog, "GROWTH_BYTES", 64 << 20)
    kept: list[mmap.mmap] = []

    def leaky(text: str) -> str:
        # Of the system: on the heap it could take what others have left, and the process would not grow.
        kept.append(mmap.mmap(-1, 1 << 20))
        kept[-1].write(os.urandom(1 << 20))
        return text

    def thrifty(text: str) -> str:
        return str(len(os.urandom(8 << 20)))

    request = [ToolRequest("x", problem=draw(Arithmetic(), np.random.default_rng(0), 3, "train"), state={})]
    for _ in range(100):
        FunctionTool(thrifty).submit(request, pytest.fail)

    def call_again_and_again() -> None:
        for _ in range(100):
            FunctionTool(leaky).submit(request, pytest.fail)

    with pytest.raises(TaskError, match=r"tool 'leaky' has kept 0\.1 GiB of memory over its calls"):
        call_again_and_again()
    assert 55 < len(kept) < 100


def test_time_in_which_the_whole_process_stood_still_is_not_the_calls() -> None:
    watch, call = watchdog._Watch(), watchdog.Call("Lab.grade", 60.0, 1 << 60)
    watch.entries[0] = call  # of no thread, so that there is none to interrupt
    call.seen -= 1000.0
    watch._look(0, call)
    assert not call.reason
    for _ in range(100):
        call.seen -= 1.0
        watch._look(0, call)
    assert re.fullmatch(r"Lab\.grade has not returned for 6\d\.\d seconds", call.reason)


class _Own(Arithmetic):
    """Draws its problems one by one, as most tasks do."""

    sample_many = Task.sample_many
    sample_split = Task.sample_split


class _Hangs(_Own):
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        spin()
        raise AssertionError


class _Raises(_Own):
    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        raise KeyError("problems")


class _Odd(_Own):
    def sample_split(self, rng: np.random.Generator, difficulty: int, split: str) -> Problem:
        return None  # type: ignore[return-value]


class _HangsTogether(Arithmetic):
    def sample_many(self, rng: np.random.Generator, difficulties: Sequence[int], split: str) -> list[Problem]:
        spin()
        raise AssertionError


class _TooFew(Arithmetic):
    def sample_many(self, rng: np.random.Generator, difficulties: Sequence[int], split: str) -> list[Problem]:
        return super().sample_many(rng, difficulties, split)[1:]


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (_Hangs, r"_Hangs\.sample \('difficulty 3'\) has not returned"),
        (_Raises, r"_Raises\.sample raised KeyError\('problems'\) \('difficulty 3'\)"),
        (_Odd, r"_Odd\.sample returned None, not a Problem"),
        (_HangsTogether, r"_HangsTogether\.sample_many .* has not returned"),
        (_TooFew, r"_TooFew\.sample_many returned 2 problems for 3 difficulties"),
    ],
)
def test_a_task_whose_problems_do_not_come_is_named(
    task: type[Arithmetic], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "SECONDS", 0.2)
    with pytest.raises(TaskError, match=said):
        draw_many(task(), np.random.default_rng(0), [3, 3, 3], "train")


def test_the_librarys_own_errors_pass_through_trusted_code() -> None:
    with pytest.raises(ConfigError, match="x: got 1"), trusted("Lab.sample"):
        raise ConfigError("x", 1, "2")
