from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.episode_fakes import Echo, Sums
from tool_gym.__main__ import as_turn, describe, main
from tool_gym.registration import register

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    before = dict(gymnasium.registry)
    sys.modules.pop("tests.registered_module", None)  # so that importing it registers again
    register("tests/Sums-v0", task=Sums, tools=(Echo(),), max_turns=3)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def play(monkeypatch: pytest.MonkeyPatch, typed: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return main(["play", "tests/Sums-v0", *arguments])


def test_list_shows_task_difficulties_tools_and_turns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["environment", "task", "difficulties", "tools", "turns"]
    assert ["tests/Sums-v0", "Sums", "1,", "2,", "3", "echo", "3"] in [row.split() for row in rows]
    assert any(row.startswith("tool_gym/Arithmetic-v0 ") for row in rows)


def test_list_imports_modules_that_register_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "tests.registered_module"]) == 0
    assert "tests/Imported-v0" in capsys.readouterr().out
    assert main(["list", "no_such_module"]) == 2


def test_list_shows_an_environment_whose_task_needs_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    class Needy(Sums):
        def __init__(self, offset: int) -> None:
            super().__init__(offset)

    register("tests/Needy-v0", task=Needy)
    assert main(["list"]) == 0
    assert "Needy needs it" in capsys.readouterr().out


def test_an_episode_is_played_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "1+1\n\nso: <answer>1</answer>\nnever read\n", "--seed", "1", "--difficulty", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("(difficulty 2, 3 turns)")
    assert lines[1:] == [
        "[1] <echo>1+1</echo>",
        "    <output>1+1</output>",
        "    (quality 0.50)",
        "[2] so: <answer>1</answer>",
        "    answered: reward 0",
    ]


def test_a_player_sees_the_faults_that_a_policy_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "1\n1\n1\n", "--noise", "iid", "--noise-rate", "1") == 0
    out = capsys.readouterr().out
    assert out.count("(quality 0.00, injected fault: timeout)") == 3
    assert out.endswith("cut off: reward 0\n")


def test_kinds_permanence_and_bursts_of_faults_can_be_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    always = ["--noise-rate", "1", "--permanent", "1"]
    assert play(monkeypatch, "1\n1\n1\n", "--noise", "burst", *always, "--faults", "connection") == 0
    out = capsys.readouterr().out
    assert out.count("(quality 0.00, injected fault: connection, to stay)") == 3
    shares = "timeout=.5,wrong_value=.5"
    played = ["--noise", "iid", "--noise-rate", "1", "--faults", shares, "--seed", "1", "--max-turns", "20"]
    assert play(monkeypatch, "1\n" * 20, *played) == 0
    out = capsys.readouterr().out
    assert out.count("injected fault: timeout") + out.count("injected fault: silent wrong_value") == 20
    assert "injected fault: timeout" in out
    assert "silent" in out


def test_the_end_of_the_input_ends_the_play(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play(monkeypatch, "", "--seed", "1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["play", "tool_gym/Nothing-v0"], "tool_gym/Arithmetic-v0"),
        (["play", "tests/Sums-v0", "--difficulty", "9"], "difficulty: got 9"),
        (["play", "tests/Sums-v0", "--answers", "4"], "answers: got 4"),
        (["play", "tests/Sums-v0", "--noise", "iid", "--noise-rate", "2"], "noise_rate: got 2"),
        (["play", "tests/Sums-v0", "--noise", "burst", "--mean-burst", "0.5"], "mean_burst: got 0.5"),
        (["play", "tests/Sums-v0", "--faults", "earthquake"], "faults: got 'earthquake'"),
        (["play", "tests/Sums-v0", "--faults", "timeout=.5,connection=.4"], "shares that sum to 1"),
        (["play", "tests/Sums-v0", "--permanent", "2"], "permanent: got 2"),
    ],
)
def test_a_bad_setting_is_one_line_on_stderr_and_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert said in captured.err


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["play"], ["play", "x", "--noise", "pink"], ["play", "x", "--faults", "timeout=most"]]
)
def test_a_bad_command_line_is_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("line", "turn"),
    [
        ("1 + 1", "<python>1 + 1</python>"),
        ("x = 3", "<python>x = 3</python>"),
        ("= 3", "<answer>3</answer>"),
        ("  =3 ", "<answer>3</answer>"),
        ("thus <answer>3</answer>", "thus <answer>3</answer>"),
        ("<lookup>3", "<lookup>3"),
    ],
)
def test_a_line_is_a_call_an_answer_or_a_literal_turn(line: str, turn: str) -> None:
    assert as_turn(line, ("python", "lookup")) == turn


def test_without_tools_a_line_is_free_text() -> None:
    assert as_turn("1+1", ()) == "1+1"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"tool_calls": 2, "reasoning_quality": 1.0, "injected_faults": 2, "error_origin": "injected"}
            | {"error_kind": "connection", "fault_kind": "connection", "fault_permanent": True},
            "quality 1.00, injected fault: connection, to stay",
        ),
        ({"error_origin": "policy", "error_kind": "FormatError"}, "policy error: FormatError"),
        (
            {"tool_calls": 2, "reasoning_quality": 0.25, "error_origin": "policy", "error_kind": "steps"},
            "quality 0.25, policy error: steps",
        ),
        (
            {"tool_calls": 2, "reasoning_quality": 1.0, "injected_faults": 2, "fault_kind": "wrong_value"},
            "quality 1.00, injected fault: silent wrong_value",
        ),
        (
            {"tool_calls": 2, "error_origin": "infrastructure", "error_kind": "worker"},
            "not judged, infrastructure error: worker",
        ),
        ({}, ""),
    ],
)
def test_what_happened_in_a_step_is_told(changes: dict[str, Any], said: str) -> None:
    info = {"tool_calls": 1, "injected_faults": 1, "error_origin": "", "error_kind": "", "reasoning_quality": -1.0}
    info |= {"fault_kind": "", "fault_permanent": False}
    assert describe({**info, **changes}, 1, 1) == said


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tool_gym", "list"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_module_runs_as_a_command() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tool_gym", "play", "tool_gym/Arithmetic-v0", "--seed", "3"]
    done = subprocess.run(command, input="= 3\n", env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "answered: reward" in done.stdout


@pytest.mark.parametrize("command", [["check"], ["play"], ["list"]])
@pytest.mark.parametrize("content", ["import package_that_is_missing\n", "1 / 0\n", "def\n"])
def test_a_module_that_fails_to_import_is_one_line_that_names_it(
    content: str,
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "broken_environments.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command, "broken_environments" if command == ["list"] else "broken_environments:X/Y-v0"]) == 1
    output, error = capsys.readouterr()
    assert (output, error.count("\n")) == ("", 1)
    assert "the import of broken_environments raised" in error


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["play", ":"], "dotted name of a module"),
        (["list", ""], "dotted name of a module"),
        (["list", ".x"], "dotted name of a module"),
        (["play", "tool_gym/Arithmetic-v0", "--seed", "-1"], "seed: got -1"),
        (["play", "tool_gym/Arithmetic-v0", "--noise-rate", "5"], "noise_rate: got 5.0"),
    ],
)
def test_odd_settings_end_in_one_line_and_status_2(
    arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1
