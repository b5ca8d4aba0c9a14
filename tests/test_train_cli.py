"""The command: bad input is one line that names field, value and what is allowed, status 2, and nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest

import tool_gym
import train as train_command
from agents import runs, trainer
from agents.command import complain
from agents.config import Config
from tests.tiny import Silent, tiny_config
from tool_gym.errors import ConfigError, TaskError

ROOT = Path(__file__).resolve().parent.parent


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def train(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return command(str(ROOT / "train.py"), *words, cwd=cwd)


def refused(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    one_line(result.stdout, result.stderr, *parts)


def one_line(output: str, errors: str, *parts: str) -> None:
    """Nothing was said but one line that names field, value and what is allowed."""
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.startswith("error: ")
    for part in parts:
        assert part in errors


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("--selector rocc", ("algo.selector", "'rocc'", "stratified")),
        ("--noise-rate 1.3", ("noise.rate", "1.3", "[0.0, 1.0]")),
        ("--correlation 2", ("noise.correlation", "2.0", "[-1.0, 1.0]")),
        ("--group-size 1", ("algo.group_size", "1", "[2, 4096]")),
        ("--env tool_gym/Arithmetics-v0", ("env", "tool_gym/Arithmetics-v0", "tool_gym/Arithmetic-v0")),
        ("--env no_such_module:x/Y-v0", ("env", "no_such_module")),
        ("--env CartPole-v1", ("env", "CartPole-v1")),
        ("--env.difficulties 3 99", ("env.difficulties", "99", "3, 4, 5, 6")),
        ("--answers 13", ("answers", "13", "2 to 12")),
        ("--sft.mixture cleen 1.0", ("sft.mixture", "cleen", "clean", "that the task demonstrates")),
        ("--policy.context 32", ("policy.context", "32")),
        ("--resume nowhere", ("run", "nowhere", "the folder of a run")),
        ("--resume nowhere --steps 5", ("resume", "--run.steps 5", "a run goes on with its own")),
        ("--env.harder 3", ("env.harder", "3", "5, 6")),
        ("--runs-dir /proc/nowhere", ("run.runs_dir", "/proc/nowhere", "can be written")),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_is_written(
    words: str,
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train_command.run(words.split()) == 2
    one_line(*capsys.readouterr(), *parts)
    assert list(tmp_path.iterdir()) == []


def test_the_command_itself_says_it_on_stderr_with_status_2(tmp_path: Path) -> None:
    refused(train("--selector", "rocc", cwd=tmp_path), "algo.selector", "'rocc'", "stratified")
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("keep")
    refused(train("--name", "mine", cwd=tmp_path), "run.name", "'mine'", "--resume")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]
    assert (folder / "notes.txt").read_text() == "keep"


def test_a_task_that_cannot_be_pickled_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    tool_gym.register("tests/NotPicklable-v0", task="tests.broken_tasks:NotPicklable")
    try:
        with pytest.raises(TaskError, match=r"NotPicklable cannot be pickled .*lambda"):
            trainer.train(tiny_config(tmp_path, **{"env.id": "tests/NotPicklable-v0", "env.answers": None}), Silent())
    finally:
        del gymnasium.registry["tests/NotPicklable-v0"]
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_the_cold_start_refuses_leaves_the_name_free(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    short = tiny_config(tmp_path, **{"policy.context": 96})
    result = train(*short.arguments(), cwd=tmp_path)
    refused_lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert result.returncode == 2
    assert len(refused_lines) == 1
    assert "policy.context" in refused_lines[0]
    assert not (tmp_path / "run").exists()


def test_a_policy_that_makes_no_working_call_trains_without_noise_and_not_with_correlated(tmp_path: Path) -> None:
    changes = {"sft.steps": 0, "run.steps": 0, "policy.max_turn_tokens": 4, "env.max_turns": 2}
    quiet = tiny_config(tmp_path, **changes, **{"noise.kind": "none"})
    assert (trainer.train(quiet, Silent()) / "summary.json").exists()
    with pytest.raises(TaskError, match=r"made only \d+ working calls, and correlated noise needs 256"):
        trainer.train(tiny_config(tmp_path, **changes, **{"run.name": "other"}), Silent())
    assert not (tmp_path / "other").exists()


def test_a_run_whose_checkpoints_are_all_corrupt_is_refused_and_nothing_is_overwritten(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    config = tiny_config(tiny_cold_starts(tmp_path), **{"run.steps": 2})
    folder = trainer.train(config, Silent())
    for name in ("best", "step_000000", "step_000002"):
        file = folder / "checkpoints" / name / "policy.safetensors"
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(bytes(content))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    result = train("--resume", str(folder), cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert str(file) in result.stderr
    with runs.locked(folder):
        refused(train("--resume", str(folder), cwd=tmp_path), "run", str(folder), "no other process")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_command_trains_and_prints_plain_lines_where_it_is_piped(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    config = tiny_config(tiny_cold_starts(tmp_path / "runs"), **{"run.steps": 2})
    result = train(*config.arguments(), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "step 0/2" in result.stdout
    assert "step 2/2" in result.stdout
    assert "\x1b" not in result.stdout
    folder = tmp_path / "runs" / "run"
    assert (folder / "summary.json").exists()
    assert runs.read_config(folder) == config
    help_text = train("--help", cwd=tmp_path).stdout
    for group, fields in Config().to_dict().items():
        for name in fields:
            assert f"--{group}.{name.replace('_', '-')}" in help_text


def test_what_an_error_quotes_reaches_the_terminal_as_one_line_of_printable_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert complain(TaskError("tool said \x1b[2J\x1b]0;owned\x07 and\nmore \u202e")) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors == "error: tool said \\x1b[2J\\x1b]0;owned\\x07 and more \\u202e\n"
    assert complain(ConfigError("x", "a\nb", "c")) == 2
