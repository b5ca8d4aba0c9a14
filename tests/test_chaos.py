"""The soak: calls under attack are answered rightly or as lost, and what goes wrong is seen."""

from __future__ import annotations

import dataclasses
import io
import os
import random
import signal
import subprocess
import sys
from collections import Counter

import pytest
from rich.console import Console

from experiments.chaos import (
    HOSTILE,
    LIMITS,
    Census,
    ChaosConfig,
    Report,
    Saboteur,
    Watch,
    _judge,
    chaos,
    cut_frames,
    programs,
)
from tool_gym.errors import ConfigError
from tool_gym.interpreter import InterpreterPool
from tool_gym.interpreter.wire import FrameReader
from tool_gym.tools.base import ToolResult

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the saboteur reads /proc")


def test_calls_under_attack_are_answered_rightly_or_as_lost_and_nothing_is_left() -> None:
    console = Console(file=io.StringIO(), width=200)
    status = chaos(ChaosConfig(calls=2500, seed=1), console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert status == 0, shown
    assert "worker killed" in shown
    assert "nothing is left" in shown


def test_hostile_programs_end_by_the_rules_of_the_interpreter() -> None:
    with InterpreterPool(workers=1, limits=LIMITS) as pool:
        results = pool.run_batch(HOSTILE, echo=True)
        stats = pool.stats
    assert (stats.kills, stats.crashes, stats.infrastructure_failures) == (0, 0, 0)
    assert {result.status for result in results} <= {"refused", "limit", "error", "ok"}
    assert sum(result.status == "limit" for result in results) > len(HOSTILE) / 2


def test_the_share_of_hostile_programs_is_as_asked() -> None:
    sources, weights = programs(ChaosConfig(hostile=0.2))
    shares = Counter[bool]()
    for source, weight in zip(sources, weights, strict=True):
        shares[source in HOSTILE] += weight  # type: ignore[assignment]
    assert shares[True] == pytest.approx(0.2)
    assert shares[False] == pytest.approx(0.8)


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_that_is_cut_each_time_loses_every_call_as_infrastructure(seed: int) -> None:
    whole, strikes = FrameReader.feed, Counter[str]()
    with InterpreterPool(workers=1, limits=LIMITS) as pool:
        assert pool.run("1 + 1", echo=True).output == "2"
        with cut_frames(random.Random(seed), 1.0, strikes):
            assert pool.run("1 + 1", echo=True).status == "infrastructure"
        assert strikes["stream cut in a frame"] >= 2
        assert FrameReader.feed is whole
        assert pool.run("1 + 1", echo=True).output == "2"


def test_the_saboteur_leaves_alone_what_was_there_before() -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        watch = Watch()
        with Saboteur(watch, seed=0) as saboteur, InterpreterPool(workers=2, limits=LIMITS) as pool:
            while saboteur.strikes["worker killed"] < 3:
                pool.run_batch(["1 + 1"] * 20)
        assert bystander.poll() is None
        assert watch.look()[1:] == ([], [])
    finally:
        bystander.kill()
        bystander.wait()


def test_zombies_and_stopped_workers_are_counted() -> None:
    watch = Watch()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert (watch.census().processes, watch.census().zombies) == (1, 0)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert (watch.census().processes, watch.census().zombies) == (1, 1)
    child.wait()
    assert watch.census().processes == 0


GOOD = Census(descriptors=10, processes=5, zombies=0, host_mib=100.0, zygote_mib=20.0, worker_mib=20.0)
ANSWERED = Counter({"ok": 1000})


def judged(**changes: float) -> list[str]:
    after = dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]
    report = Report(answers=ANSWERED, censuses={"10 %": GOOD, "end": after})
    return _judge(report, ChaosConfig(calls=1000))


@pytest.mark.parametrize(
    "changes",
    [
        {"descriptors": 40},
        {"processes": 9},
        {"zombies": 1},
        {"host_mib": 108.0},
        {"zygote_mib": 26.0},
        {"worker_mib": 26.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_whatever_grows_is_a_problem(changes: dict[str, float]) -> None:
    assert judged() == []
    assert len(judged(**changes)) == 1


def test_a_wrong_or_missing_answer_is_a_problem() -> None:
    wrong = [("1 + 1", ToolResult("ok", output="3"), ToolResult("ok", output="2"))]
    config, censuses = ChaosConfig(calls=1000), {"10 %": GOOD, "end": GOOD}
    assert len(_judge(Report(answers=ANSWERED, wrong=wrong, censuses=censuses), config)) == 1
    assert len(_judge(Report(answers=Counter({"ok": 999}), censuses=censuses), config)) == 1


@pytest.mark.parametrize("changes", [{"calls": 5}, {"hostile": 1.5}, {"hostile": -0.1}])
def test_a_bad_setting_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        chaos(ChaosConfig(**changes), Console(file=io.StringIO()))  # type: ignore[arg-type]
