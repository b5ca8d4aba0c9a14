"""Trusted code that hangs or leaks is ended and named."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tool_gym.errors import TaskError
from tool_gym.watchdog import watched

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
