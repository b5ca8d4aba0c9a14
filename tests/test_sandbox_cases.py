"""Every case of the catalogue of bad inputs: the right kind of answer, in time, and nothing left behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox_cases import CASES
from tool_gym.interpreter import InterpreterPool
from tool_gym.tools.base import ToolResult

INPUTS = {"DATA": [1, 2, 3], "CONFIG": {"k": {"v": 1}}}
LONGEST_SECONDS = 15.0  # a case takes under a second; on a machine under load the steps take longer, not more
LONGEST_TEXT = 100_000

# Case: why it does not get the answer that it should. Asserted to fail still, so that the list cannot rot.
KNOWN_SHORTFALLS: dict[str, str] = {}

HERE = [case for case in CASES if tuple(case.get("needs", (3,))) <= sys.version_info[:2]]
DETERMINISTIC = [case for case in HERE if case.get("deterministic")]


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterPool]:
    """One pool with one worker for all cases: what a case breaks shows in the next."""
    with InterpreterPool(workers=1) as pool:
        yield pool


def wrong(case: dict[str, Any], result: ToolResult) -> str:
    """What is wrong with the answer to a case; "" if nothing is."""
    expect, errors = case["expect"], case.get("error", ())
    got = f"{result.status}/{result.kind}: {result.message} {result.output[:80]!r}"
    if result.status == "infrastructure" or result.kind in ("time", "crash"):
        return f"a backstop had to act: {got}"
    if expect == "ok":
        right = result.status == "ok" and result.output == case.get("stdout", result.output)
    elif expect == "refuse":
        right = result.status == "refused" or (result.status == "error" and result.kind in errors)
    elif expect == "error":
        right = result.status == "error" and result.kind in errors
        right = right or (result.status == "limit" and "LimitError" in errors)
        right = right or (result.status == "refused" and "PolicyError" in errors)
    elif expect == "safe":
        right = True
    else:
        _, _, kind = expect.partition(":")
        right = result.status == "limit" and kind in ("any", result.kind)
        right = right and (result.kind != "output" or result.truncated)
    return "" if right else f"expected {expect} {errors}, got {got}"


def unsound(result: ToolResult) -> str:
    """What must hold of every answer, whatever the case; "" if it does."""
    if "REACHED" in result.output or "REACHED" in result.message:
        return "the program got hold of something that it should not"
    if len(result.output) + len(result.message) > LONGEST_TEXT:
        return "the answer is too long"
    if "\n" in result.message:
        return "the message is not one line"
    if " at 0x" in result.output or "0x7f" in result.output + result.message:
        return "the answer holds an address"
    (result.output + result.message).encode("utf-8")
    return ""


@pytest.mark.parametrize("case", HERE, ids=[case["id"] for case in HERE])
def test_case_is_answered_as_it_should_be_and_leaves_no_trace(
    case: dict[str, Any], pool: InterpreterPool, capfd: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    result = pool.run(case["code"], INPUTS)
    assert time.monotonic() - start < LONGEST_SECONDS
    problem = wrong(case, result) or unsound(result)
    if case["id"] in KNOWN_SHORTFALLS:
        assert problem, f"{case['id']} is answered well now: take it off the list"
        return
    assert not problem
    following = pool.run(case.get("followup", "print('alive')"), INPUTS)
    if "followup_stdout" in case or "followup" not in case:
        assert following.output == case.get("followup_stdout", "alive\n"), following
    assert capfd.readouterr() == ("", "")


def test_no_case_needed_a_backstop(pool: InterpreterPool) -> None:
    # Runs after the cases: the counters are those of the whole catalogue.
    stats = pool.stats
    assert (stats.kills, stats.crashes, stats.infrastructure_failures) == (0, 0, 0)


@pytest.mark.parametrize("case", DETERMINISTIC, ids=[case["id"] for case in DETERMINISTIC])
def test_deterministic_case_reads_the_same_in_another_process(case: dict[str, Any], pool: InterpreterPool) -> None:
    with InterpreterPool(workers=1) as fresh:
        assert fresh.run(case["code"], INPUTS) == pool.run(case["code"], INPUTS)


def _children() -> set[int]:
    """Processes that this one has started and not yet waited for."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.add(int(entry.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_closed_pool_leaves_no_process_and_no_descriptor() -> None:
    children, descriptors = _children(), set(os.listdir("/proc/self/fd"))
    hostile = [case["code"] for case in HERE if case["category"] in ("hang", "memory", "state")]
    with InterpreterPool(workers=2) as pool:
        assert len(pool.run_batch(hostile, INPUTS)) == len(hostile)
    assert _children() == children
    assert set(os.listdir("/proc/self/fd")) == descriptors
