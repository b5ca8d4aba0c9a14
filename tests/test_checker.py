"""``check_tool_env``: it passes what is sound, and names what is broken and what to do."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import pytest

import tool_gym
from tests import broken_tasks
from tool_gym import ToolEnv, checker
from tool_gym.__main__ import main
from tool_gym.checker import check_tool_env, run_checks
from tool_gym.errors import ConfigError, ContractError

PARTS = dict(checker._PARTS)


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(checker, "_PARTS", tuple((name, PARTS[name]) for name in names))


@pytest.fixture
def registered() -> Iterator[str]:
    """An id to register a broken task under."""
    before = dict(gymnasium.registry)
    yield "tests/Broken-v0"
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


@pytest.mark.parametrize("env", ["Arithmetic", "Assignments", "Retrieval"])
def test_every_family_keeps_the_contract(env: str) -> None:
    check_tool_env(f"tool_gym/{env}-v0", problems=96)


@pytest.mark.parametrize(
    ("task", "part", "said"),
    [
        ("LeakingPrompt", "no observation gives the answer away", "must be earned"),
        ("HalfGrade", "grade answers every text with True or False", "returned 0.5"),
        ("ImpatientGrade", "grade answers every text with True or False", "ValueError"),
        ("NotPicklable", "it works in another process", "top level of an importable module"),
        ("OfItsProcess", "it works in another process", "depend on nothing but the generator"),
        ("Unseeded", "the same seed is the same episode", "draw only from the generator"),
        ("BoastingLuck", "luck is as declared", "or declare luck = None"),
        ("WrongOracle", "the oracle scores 1, its calls have quality 1", "mend demonstrate or grade"),
        ("GrudgingQuality", "the oracle scores 1, its calls have quality 1", "is 1 for a call that gets it right"),
        ("BadQuality", "the oracle scores 1, its calls have quality 1", "returned 1.5, not a number from 0 to 1"),
        ("BlindQuality", "confused calls have lower quality", "judge it lower"),
        ("AnySplit", "splits are disjoint", "split_of"),
        (
            "Rambling",
            "demonstrations parse and score as their style says",
            "has neither a call of python nor an answer",
        ),
    ],
)
def test_a_broken_task_is_named_with_what_to_do(
    task: str, part: str, said: str, registered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool_gym.register(registered, task=getattr(broken_tasks, task))
    only(monkeypatch, part)
    with pytest.raises(ContractError) as caught:
        check_tool_env(registered, problems=64)
    assert str(caught.value).startswith(f"{part}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "part", "said"),
    [
        ("HalfReward", "rewards are 0 or 1, for an answer only", "was rewarded 0.5"),
        ("GradesOutput", "tool output and forged tags earn nothing", "only the policy's answer block may be"),
        ("GrowingInfo", "info has constant keys and scalar values", "they must be constant"),
        ("ShowsProblem", "info has constant keys and scalar values", "scalars and texts only"),
    ],
)
def test_a_broken_environment_is_named_with_what_to_do(
    env: str, part: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, part)
    made: ToolEnv = getattr(broken_tasks, env)("tool_gym.tasks.arithmetic:Arithmetic")
    (check,) = run_checks(made, problems=32)
    assert not check.passed
    assert said in check.problem


def test_what_cannot_even_draw_a_problem_is_one_failed_check(registered: str) -> None:
    tool_gym.register(registered, task=broken_tasks.CannotSample)
    (check,) = run_checks(registered)
    assert "problems.json" in check.problem


def test_bad_arguments_are_refused() -> None:
    for arguments in ({"env": "nope/Nope-v0"}, {"env": 3}, {"env": "tool_gym/Arithmetic-v0", "problems": 3}):
        with pytest.raises(ConfigError):
            check_tool_env(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="settings"):
        run_checks(ToolEnv("tool_gym.tasks.arithmetic:Arithmetic"), answers=3)


def test_the_command_prints_a_line_for_each_part_and_its_status(
    registered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only(monkeypatch, "luck is as declared", "splits are disjoint")
    tool_gym.register(registered, task=broken_tasks.BoastingLuck)
    assert main(["check", registered, "--problems", "64"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "BROKEN  luck is as declared"
    assert "declared as 0.600" in lines[1]
    assert lines[2] == "ok      splits are disjoint"
    assert main(["check", "tool_gym/Arithmetic-v0", "--problems", "32", "--answers", "4"]) == 0
