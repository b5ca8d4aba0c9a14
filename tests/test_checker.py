"""``check_tool_env``: it passes what is sound, and names what is broken and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

import tool_gym
from tests import broken_tasks
from tool_gym import ToolEnv
from tool_gym.checker import Check, check_tool_env, run_checks
from tool_gym.errors import ConfigError, ContractError

ROOT = Path(__file__).parents[1]
SPLITS, GRADING = "splits are disjoint", "grade answers every text"
CHANCE, GYMNASIUM, ORACLE = "random answers are right", "Gymnasium's own checker passes", "the oracle scores 1"
QUALITY, STYLES, LUCK = "wrong calls have lower quality", "demonstrations parse and score", "luck is as declared"
REWARDS, LEAKS, FORGERY = "rewards are 0 or 1", "no observation gives the answer away", "tool output and forged tags"
DESCRIBED, WRITTEN = "tools say what they do", "playing leaves problems as they were drawn"
INFO, SEEDS, ELSEWHERE = "info has constant keys", "the same seed is the same episode", "it works in another process"


def assert_names(checks: list[Check], part: str, said: str, also: tuple[str, ...] = ()) -> None:
    """The first part that does not hold is this one; of the others none but those that the same mistake breaks."""
    first, *others = [check for check in checks if not check.passed]
    assert first.name.startswith(part)
    assert said in first.problem
    unforeseen = [check for check in others if not check.problem.startswith("not checked, because of ")]
    assert [check.name for check in unforeseen if not check.name.startswith(also)] == []


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
    ("task", "part", "said", "also"),
    [
        ("AnySplit", SPLITS, "split_of", ()),
        ("HalfGrade", GRADING, "HalfGrade.grade returned 0.5 for the answer ' ': return True or False", ()),
        ("ImpatientGrade", GRADING, "a policy may write anything; return False", ()),
        ("GenerousGrade", CHANCE, "the answer '' is right in 100% of the problems, where chance", (LUCK,)),
        ("AnyNumberGrade", CHANCE, "must tell the right answer, problem.answer, from others", (LUCK,)),
        ("ParityGrade", CHANCE, "the answer of another problem is right in", (LUCK,)),
        ("NotFarGrade", CHANCE, "the answer 'nan' is right in 100%", ()),
        ("HedgedGrade", CHANCE, "an answer that lists those of all problems is right in 100%", ()),
        ("AlwaysTheSame", CHANCE, "let sample draw problems with different answers", ()),
        ("WrongOracle", ORACLE, "mend demonstrate or grade", (STYLES,)),
        ("GrudgingQuality", ORACLE, "is 1 for a call that gets it right", ()),
        ("LateQuality", ORACLE, "a call of the oracle has reasoning quality 0 on", ()),
        ("BadQuality", REWARDS, "returned 1.5, not a number from 0 to 1", ()),
        ("ConstantQuality", QUALITY, "judge lower what does not get it right", ()),
        ("BlindQuality", QUALITY, "judge it lower", ()),
        ("WrongShares", STYLES, "shares of at least 0 that sum to 1", ()),
        ("NoSuchStyle", STYLES, "or raises KeyError for a style that it does not know", (ORACLE, REWARDS)),
        ("Rambling", STYLES, "has neither an answer nor a call of the tools registered with tools=: python", ()),
        ("OftenLuck", LUCK, "OftenLuck.luck is 'often': a probability, from 0 to 1, or None", ()),
        ("BoastingLuck", LUCK, "or declare luck = None", ()),
        ("LeakingPrompt", LEAKS, "must be earned", ()),
        ("Unseeded", SEEDS, "draw only from the generator", (GYMNASIUM,)),
        ("NotPicklable", ELSEWHERE, "top level of an importable module", ()),
        ("OfItsProcess", ELSEWHERE, "depend on nothing but the generator", ()),
    ],
)
def test_the_whole_check_names_what_is_broken_in_a_task_and_what_to_do(
    task: str, part: str, said: str, also: tuple[str, ...], registered: str
) -> None:
    tool_gym.register(registered, task=getattr(broken_tasks, task))
    with pytest.raises(ContractError) as caught:
        check_tool_env(registered, problems=16)
    lines = [line.partition(": ") for line in str(caught.value).splitlines()]
    assert_names([Check(name, problem) for name, _, problem in lines], part, said, also)


@pytest.mark.parametrize(
    ("env", "part", "said", "also"),
    [
        ("HalfReward", REWARDS, "a step was rewarded 0.5: outcome rewards are 0 or 1", (ORACLE, STYLES)),
        ("RewardsCalls", REWARDS, "only a graded answer earns reward", (FORGERY,)),
        ("GradesOutput", FORGERY, "only the policy's answer block may be", ()),
        ("GrowingInfo", INFO, "they must be constant", ()),
        ("ShowsProblem", INFO, "scalars and texts only", ()),
    ],
)
def test_the_whole_check_names_what_is_broken_in_an_environment(
    env: str, part: str, said: str, also: tuple[str, ...]
) -> None:
    made: ToolEnv = getattr(broken_tasks, env)("tool_gym.tasks.arithmetic:Arithmetic")
    assert_names(run_checks(made, problems=16), part, said, also)


def test_a_tool_that_replies_in_two_ways_to_the_same_turns_is_named() -> None:
    made = ToolEnv(broken_tasks.Echoed, tools=(broken_tasks.counting,))
    assert_names(run_checks(made, problems=16), SEEDS, "had two different replies: a tool's result depends on")


def test_a_tool_that_writes_into_the_problem_is_named_with_what_it_wrote() -> None:
    made = ToolEnv(broken_tasks.Written, tools=(broken_tasks.writing,))
    assert_names(run_checks(made, problems=16), WRITTEN, "was {'calls': 0} and became {'calls': 2} when it")


def test_a_tool_without_a_description_is_named() -> None:
    made = ToolEnv("tool_gym.tasks.arithmetic:Arithmetic", tools=("python", broken_tasks.undescribed))
    assert_names(run_checks(made, problems=16), DESCRIBED, "the tool undescribed has no description")


def test_faults_are_no_replies_that_differ_and_a_right_call_may_tell() -> None:
    noisy = ToolEnv("tool_gym.tasks.arithmetic:Arithmetic", noise="iid", noise_rate=0.5)
    assert not next(check.problem for check in run_checks(noisy, problems=16) if check.name.startswith(SEEDS))
    made = ToolEnv(broken_tasks.Looked, tools=(broken_tasks.look,))
    assert [check for check in run_checks(made, problems=16) if not check.passed] == []


def test_a_part_that_another_failure_stops_is_skipped_and_not_broken(registered: str) -> None:
    tool_gym.register(registered, task=broken_tasks.BadQuality)
    checks = run_checks(registered, problems=16)
    assert sum(not check.passed and not check.skipped for check in checks) == 1
    assert all("see above" in check.problem for check in checks if check.skipped)


def test_a_reply_that_tells_most_answers_to_any_call_is_a_leak() -> None:
    made = broken_tasks.LeaksToCalls("tool_gym.tasks.arithmetic:Arithmetic")
    checks = run_checks(made, problems=200)
    assert_names(checks, LEAKS, "call of python holds the answer in 9")


def test_what_is_raised_is_told_with_its_place() -> None:
    made = broken_tasks.Raising("tool_gym.tasks.arithmetic:Arithmetic")
    said = [check.problem for check in run_checks(made, problems=16)]
    assert any(f"KeyError: 'unlucky' ({broken_tasks.__file__}, line " in problem for problem in said)


def test_an_environment_that_was_made_without_an_id_is_checked_too() -> None:
    checks = run_checks(ToolEnv("tool_gym.tasks.arithmetic:Arithmetic"), problems=16)
    assert [check for check in checks if not check.passed] == []


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


def test_the_command_prints_a_line_for_each_part_and_its_status(tmp_path: Path) -> None:
    """In a process of its own, as a user gives it."""
    (tmp_path / "generous.py").write_text(
        "import tool_gym\n"
        "from tests.broken_tasks import GenerousGrade\n"
        "tool_gym.register('tests/Generous-v0', task=GenerousGrade)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}

    def check(*words: str) -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "tool_gym", "check", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    status, lines = check("generous:tests/Generous-v0", "--problems", "16")
    assert status == 1
    broken = lines.index("BROKEN  random answers are right by chance only")
    assert "GenerousGrade.grade must tell the right answer" in lines[broken + 1]
    assert "ok      splits are disjoint" in lines[:broken]
    status, lines = check("tool_gym/Arithmetic-v0", "--problems", "16", "--answers", "4")
    assert status == 0
    assert len(lines) == 17
    assert all(line.startswith("ok      ") for line in lines)
