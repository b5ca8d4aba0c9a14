"""Assignments: luck and answers are exact, splits apart, judgement follows the chain over a session's calls."""

from __future__ import annotations

import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import Config, PolicyConfig, SFTConfig
from agents.setup import Setup
from agents.tokenizer import Tokenizer
from tool_gym import rng
from tool_gym.episodes import Episodes
from tool_gym.errors import ConfigError
from tool_gym.interpreter import InterpreterPool
from tool_gym.noise import IIDNoise, NoNoise
from tool_gym.registration import resolve
from tool_gym.tasks import SPLITS, Assignments, Problem, split_of
from tool_gym.tasks.demonstrations import Demonstration, play_demonstrations
from tool_gym.tools import ToolCall, ToolResult

repeatable = settings(derandomize=True, deadline=None)

TASK = Assignments()
PROBLEM = TASK.problem("a=2*c;b=3;c=4+b")  # 7, 14; from top to bottom 0
LONG = TASK.problem("a=2*d;b=1-e;c=6+b;d=3*c;e=9")  # -8, -2, -6, -12; from top to bottom 0, 1, 7, 21
OK = ToolResult("ok")
STYLES = ("clean", "confused", "slip_then_fix", "slip_then_guess", "guess", "double_answer")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def lucky(problem: Problem, task: Assignments = TASK) -> bool:
    return task.confused_answer(problem) == problem.answer


def quality(*codes: str, problem: Problem = PROBLEM) -> float:
    """Of the last of some calls that all worked."""
    return TASK.reasoning_quality(problem, [(ToolCall("python", code), OK) for code in codes])


def code_of(turn: str) -> str:
    match = re.fullmatch(r"<python>(.*)</python>", turn)
    assert match is not None
    return match[1]


def answer_of(turn: str) -> str:
    match = re.fullmatch(r"<answer>(.*?)</answer>", turn)
    assert match is not None
    return match[1]


def run(codes: list[str]) -> Any:
    """The value of the last expression of some programs that share their names."""
    names: dict[str, Any] = {}
    *statements, expression = ";".join(codes).split(";")
    exec(";".join(statements), names)
    return eval(expression, names)


# -- problems


def test_the_worked_example():
    assert PROBLEM.prompt == "a=2*c;b=3;c=4+b;a%10?"
    assert PROBLEM.answer == "4"
    assert PROBLEM.difficulty == 3
    assert PROBLEM.data == {
        "listed": ("a=2*c", "b=3", "c=4+b"),
        "ordered": ("b=3", "c=4+b", "a=2*c"),
        "partials": (7, 14),
        "confused": 0,
    }


@pytest.mark.parametrize("answers", [2, 7, 10])
def test_prompts_state_the_problem_that_the_data_hold(answers):
    task = Assignments(answers)
    for problem in task.sample_many(generator(), list(task.difficulties) * 100, "train"):
        match = re.fullmatch(r"((?:[a-f]=[1-9](?:[-+*][a-f])?;){3,6})([a-f])%(\d+)\?", problem.prompt)
        assert match is not None
        listed, asked = match[1].split(";")[:-1], match[2]
        assert problem.difficulty == len(listed)
        assert [part[0] for part in listed] == list("abcdef")[: len(listed)]
        assert len({part[2] for part in listed}) == len(listed)
        assert sorted(listed) == sorted(problem.data["ordered"])
        value = run([*problem.data["ordered"], asked])  # raises NameError unless the order is right
        assert (problem.answer, int(match[3])) == (str(value % answers), answers)
        assert problem.data["partials"][-1] == value
        with pytest.raises(NameError):
            exec(";".join(listed), {})
        unset: defaultdict[str, int] = defaultdict(int)
        exec(";".join(listed), {}, unset)
        assert problem.data["confused"] == unset[asked] != value


@pytest.mark.parametrize("answers", [3, 10])
@pytest.mark.parametrize("difficulty", Assignments.difficulties)
def test_luck_and_answers_are_exact_at_each_difficulty(answers, difficulty):
    task = Assignments(answers)
    problems = task.sample_many(generator(1), [difficulty] * 12_000, "train")
    assert task.luck == 1 / answers
    assert np.mean([lucky(problem, task) for problem in problems]) == pytest.approx(1 / answers, abs=0.01)
    shares = np.bincount([int(problem.answer) for problem in problems], minlength=answers) / len(problems)
    assert shares == pytest.approx(np.full(answers, 1 / answers), abs=0.01)


@pytest.mark.parametrize("answers", [2, 10])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_luck_and_answers_are_exact_within_the_small_splits_too(answers, split):
    task = Assignments(answers)
    problems = task.sample_many(generator(), [3] * 6000, split)
    assert np.mean([lucky(problem, task) for problem in problems]) == pytest.approx(1 / answers, abs=0.02)
    shares = np.bincount([int(problem.answer) for problem in problems], minlength=answers) / len(problems)
    assert shares == pytest.approx(np.full(answers, 1 / answers), abs=0.02)


def test_luck_is_independent_of_the_answer():
    table = np.zeros((10, 2))
    for problem in TASK.sample_many(generator(), [4] * 12_000, "train"):
        table[int(problem.answer), int(lucky(problem))] += 1
    assert table[:, 1] / table.sum(axis=1) == pytest.approx(np.full(10, 0.1), abs=0.03)


@pytest.mark.parametrize("answers", range(2, 11))
def test_every_kind_of_problem_exists_in_every_split(answers):
    task = Assignments(answers)
    for split in SPLITS:
        problems = task.sample_many(generator(), [3] * max(300, 12 * answers**2), split)
        assert len({(problem.answer, lucky(problem, task)) for problem in problems}) == 2 * answers


def test_each_program_of_the_confused_reading_computes_something_wrong():
    for problem in TASK.sample_many(generator(), [3, 4, 5, 6] * 200, "train"):
        calls = [code_of(turn) for turn in TASK.demonstrate(problem, generator(), "confused")[:-1]]
        assert all(quality(*calls[: n + 1], problem=problem) < 1 for n in range(len(calls)))


def test_the_order_of_the_list_does_not_tell_that_of_the_chain():
    chains = Counter(
        "".join(part[0] for part in problem.data["ordered"])
        for problem in TASK.sample_many(generator(), [3] * 6000, "train")
    )
    assert set(chains) == {"acb", "bac", "bca", "cab", "cba"}  # all but that in which the confused reading is right
    assert min(chains.values()) > 600


def test_splits_are_disjoint():
    prompts = {split: {p.prompt for p in TASK.sample_many(generator(), [3, 4] * 1000, split)} for split in SPLITS}
    for split, members in prompts.items():
        assert {split_of(Problem(prompt, "")) for prompt in members} == {split}
        assert len(members) > 1000
    assert len(set().union(*prompts.values())) == sum(map(len, prompts.values()))


@repeatable
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(Assignments.difficulties), min_size=1, max_size=30),
    st.integers(1, 30),
    st.sampled_from(list(SPLITS)),
)
def test_the_first_problems_of_many_are_those_that_fewer_would_have_given(seed, difficulties, fewer, split):
    many = TASK.sample_many(rng.generator(seed), difficulties, split)
    assert many[:fewer] == TASK.sample_many(rng.generator(seed), difficulties[:fewer], split)
    assert [problem.difficulty for problem in many] == difficulties


def test_problems_do_not_depend_on_the_size_of_the_blocks(monkeypatch):
    difficulties = [3, 5, 4] * 40
    expected = TASK.sample_many(generator(), difficulties, "test")
    monkeypatch.setattr("tool_gym.tasks.family._BLOCK_SIZES", (7, 50))
    assert TASK.sample_many(generator(), difficulties, "test") == expected


@pytest.mark.parametrize("difficulty", [0, 2, 7, 3.5, "3"])
def test_an_unknown_difficulty_is_refused(difficulty):
    for draw in (
        lambda: TASK.sample(generator(), difficulty),
        lambda: TASK.sample_split(generator(), difficulty, "train"),
        lambda: TASK.sample_many(generator(), [3, difficulty], "train"),
    ):
        with pytest.raises(ConfigError, match=r"difficulty: got .*; allowed: 3, 4, 5, 6"):
            draw()


@pytest.mark.parametrize("answers", [1, 0, 11, 12, 29, 10**9, 2.0, "4", True, None])
def test_answers_for_which_luck_cannot_be_exact_are_refused(answers):
    with pytest.raises(ConfigError, match="answers"):
        Assignments(answers)


@pytest.mark.parametrize(
    "text",
    [
        "a=2*c;b=3;c=4+a",  # a circle beside the digit
        "a=2*b;b=3;c=4+b",  # two that use one name: no chain
        "a=3;b=1+a;a=2+b",  # a name set twice
        "a=2*c;b=3;c=5",  # two digits
        "a=2*c;b=0;c=4+b",
        "a=2*c;b=3;c=4/b",
        "a=2*c;b=3;c=14+b",
        "a=c*2;b=3;c=b+4",
        "a=2*c;b=3;c",
    ],
)
def test_a_list_that_is_no_chain_is_refused(text):
    with pytest.raises(ConfigError, match="text: got "):
        TASK.problem(text)


def test_a_list_of_no_difficulty_is_refused():
    with pytest.raises(ConfigError, match="difficulty: got 2"):
        TASK.problem("a=2*b;b=3")


def test_task_and_problems_survive_pickle():
    task, problem = pickle.loads(pickle.dumps((Assignments(4), PROBLEM)))
    assert (task.answers, task.luck, problem) == (4, 0.25, PROBLEM)


# -- grading


@pytest.mark.parametrize("answer", ["4", " 4 ", "\n4\n", "+4", "04"])
def test_the_right_integer_is_right(answer):
    assert TASK.grade(PROBLEM, answer) is True


@pytest.mark.parametrize("answer", ["", "14", "0", "-4", "4.0", "4;", "4 4", "four", "0x4", "1_0", "٤", "4" * 10_000])
def test_any_other_text_is_wrong(answer):
    assert TASK.grade(PROBLEM, answer) is False


@repeatable
@given(st.text(max_size=40))
def test_grading_raises_for_no_text(answer):
    assert TASK.grade(PROBLEM, answer) in (True, False)


# -- reasoning quality


@pytest.mark.parametrize(
    "calls",
    [
        ["b=3;c=4+b;a=2*c;a%10"],
        ["b=3;c=4+b;a=2*c;a"],
        ["(3+4)*2%10"],
        ["b=3\nc=4+b\nprint(c)\nprint(2*c)"],
        ["b=3;c=4+b", "a=2*c;a%10"],
        ["b=3;c=4+b;c", "a=2*c", "a%10"],
        ["3+4", "7*2"],
        ["b=3;c=4+b", "b=3;c=4+b", "b=3;c=4+b;a=2*c;a%10"],  # a step again
        ["b=3;c=4+b;a=2*c", "c", "a"],  # looks at what was found
    ],
)
def test_each_call_in_the_order_of_dependence_is_right(calls):
    assert [quality(*calls[: n + 1]) for n in range(len(calls))] == [1.0] * len(calls)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (["a=0*2;b=3;c=4+b;a%10"], 1 / 2),  # from top to bottom: c is right, but not the first to be computed
        (["c=0+4;b=3;a=2*c;a%10"], 0.0),
        (["b=3;c=4+b;a=3*c;a%10"], 1 / 2),
        (["b=3;c=4+b;c%10"], 1 / 2),  # answers too early
        (["b=3;c=4+b;r=c%10;r"], 1.0),  # shows 7, which is c
        (["a=7*2;a%10"], 0.0),  # without the result before it
        (["14"], 0.0),
        (["b=3"], 0.0),  # computes nothing yet
        (["b=3;c=4+b", "b"], 0.0),
        (["b=3;c=4+b;a=2*c", "a%10", "a=0*2;b=3;c=4+b;a%10"], 1 / 2),  # inherits nothing
        (["b=3;c=4+b;a=2*c", "a=5;a%10"], 0.0),
        (["b=3;c=4+b", "c=0;a=2*c;a%10"], 0.0),
        (["a=2*c;a%10"], 0.0),
        (["b=3;c=4+b;a=2*c;d"], 1 / 2),  # fails
        (["b=3;c=4+/b"], 0.0),
        ([""], 0.0),
    ],
)
def test_any_other_call_scores_how_far_it_gets(calls, expected):
    assert quality(*calls) == pytest.approx(expected)


def test_longer_chains_are_judged_by_their_share():
    assert quality("e=9;b=1-e;c=6+b", problem=LONG) == 1.0
    assert quality("e=9;b=1-e;c=6+b", "d=2*c", problem=LONG) == 0.0
    assert quality("e=9;b=1-e;c=6+b;d=2*c", problem=LONG) == pytest.approx(2 / 4)
    assert quality("a=2*0;b=1-0;c=6+b", "d=3*c;e=9;a%10", problem=LONG) == 0.0


def test_what_an_error_leaves_is_known_and_what_a_limit_loses_is_not():
    name_error = ToolResult("error", "NameError", "name 'z' is not defined")

    def last(first: str, result: ToolResult, *then: str) -> float:
        calls = [(ToolCall("python", first), result), *((ToolCall("python", code), OK) for code in then)]
        return TASK.reasoning_quality(PROBLEM, calls)

    assert last("b=3;z", name_error, "c=4+b") == 1.0
    assert last("b=3;b=z", name_error, "c=4+b") == 0.0  # which b that is, is not followed
    assert last("b=3;[b for b in z]", name_error, "c=4+b") == 0.0
    assert last("b=3;c=(", ToolResult("error", "SyntaxError", "invalid syntax"), "c=4+b") == 0.0
    assert last("b=3;x=9**9**9", ToolResult("limit", "steps"), "c=4+b") == 0.0
    assert last("b=3;print('x')", ToolResult("limit", "output"), "c=4+b") == 1.0


def test_calls_of_other_tools_count_for_nothing():
    history = [(ToolCall("lookup", "3+4"), OK), (ToolCall("python", "7*2"), OK)]
    assert TASK.reasoning_quality(PROBLEM, history) == 0.0
    assert TASK.reasoning_quality(PROBLEM, history[::-1]) == 0.0


@repeatable
@given(st.lists(st.text("abc=3421+-*()%;0\n ", max_size=25), min_size=1, max_size=4))
def test_quality_is_one_or_a_multiple_of_the_chain_s_share_below(codes):
    assert quality(*codes) in (0.0, 1 / 2, 1.0)


# -- demonstrations


@repeatable
@given(st.integers(0, 2**32), st.sampled_from([2, 4, 10]), st.sampled_from(Assignments.difficulties))
def test_each_style_demonstrates_what_it_says(seed, answers, difficulty):
    task = Assignments(answers)
    random = generator(seed)
    problem = task.sample(random, difficulty)
    scripts = {style: task.demonstrate(problem, random, style) for style in STYLES}

    *calls, answer = scripts["clean"]
    assert len(calls) == -(-difficulty // 2)
    assert run([code_of(call) for call in calls]) == int(answer_of(answer)) == int(problem.answer)

    *calls, answer = scripts["confused"]
    assert len(calls) == -(-difficulty // 2)
    assert run([code_of(call) for call in calls]) == int(answer_of(answer))
    assert task.grade(problem, answer_of(answer)) == lucky(problem, task)

    slip, *rest = scripts["slip_then_fix"]
    assert rest == scripts["clean"]
    with pytest.raises((SyntaxError, NameError)):
        exec(code_of(slip), {})

    slip, guess = scripts["slip_then_guess"]
    with pytest.raises((SyntaxError, NameError)):
        exec(code_of(slip), {})
    assert 0 <= int(answer_of(guess)) < answers
    (guess,) = scripts["guess"]
    assert 0 <= int(answer_of(guess)) < answers

    *calls, twice = scripts["double_answer"]
    assert calls == scripts["clean"][:-1]
    assert twice == scripts["clean"][-1] * 2


def test_the_texts_are_those_of_the_documentation():
    assert TASK.demonstrate(PROBLEM, generator(), "clean") == [
        "<python>b=3;c=4+b</python>",
        "<python>a=2*c;a%10</python>",
        "<answer>4</answer>",
    ]
    assert TASK.demonstrate(PROBLEM, generator(), "confused") == [
        "<python>a=2*0;b=3</python>",
        "<python>c=4+b;a%10</python>",
        "<answer>0</answer>",
    ]
    assert TASK.demonstrate(LONG, generator(), "clean")[:3] == [
        "<python>e=9;b=1-e</python>",
        "<python>c=6+b;d=3*c</python>",
        "<python>a=2*d;a%10</python>",
    ]


def test_half_of_the_slips_are_the_list_as_it_stands():
    slips = [code_of(TASK.demonstrate(PROBLEM, generator(i), "slip_then_guess")[0]) for i in range(1000)]
    assert slips.count("a=2*c;b=3") == pytest.approx(500, abs=50)
    assert len(set(slips)) == 4  # beside it, after the operator, a lost name or one of two strays


def test_a_list_that_is_in_order_has_only_slips_of_the_pen():
    problem = TASK.problem("a=3;b=4+a;c=2*b;d=1-c")
    for i in range(100):
        with pytest.raises(SyntaxError):
            compile(code_of(TASK.demonstrate(problem, generator(i), "slip_then_guess")[0]), "", "exec")


def test_every_turn_fits_into_the_policy_s():
    tokenizer, room = Tokenizer(["python"]), PolicyConfig().max_turn_tokens
    for problem in TASK.sample_many(generator(), [3, 4, 5, 6] * 50, "train"):
        for style in STYLES:
            turns = TASK.demonstrate(problem, generator(), style)
            assert max(len(tokenizer.encode(turn)) + 1 for turn in turns) <= room


def test_guesses_are_uniform_and_so_right_by_chance():
    guesses = [int(answer_of(TASK.demonstrate(PROBLEM, generator(i), "guess")[0])) for i in range(5000)]
    assert np.bincount(guesses) / 5000 == pytest.approx(np.full(10, 0.1), abs=0.02)


def test_an_unknown_style_is_refused_with_the_known_ones_named():
    with pytest.raises(ConfigError, match=r"style: got 'sloppy'; allowed: .*slip_then_fix"):
        TASK.demonstrate(PROBLEM, generator(), "sloppy")


def test_the_default_mixture_is_complete_and_of_known_styles():
    assert sum(Assignments.mixture.values()) == pytest.approx(1.0, abs=1e-12)
    assert set(Assignments.mixture) <= set(STYLES)


def test_training_is_on_its_own_levels_and_the_cold_start_shows_one_more(monkeypatch):
    config = Config().replace(**{"env.id": "tool_gym/Assignments-v0"})
    setup = Setup.open(config)
    setup.close()
    assert (setup.difficulties, setup.harder, setup.shown) == ((3,), 4, [3, 4])
    monkeypatch.setattr(Assignments, "trained", (7,))
    with pytest.raises(ConfigError, match=r"Task\.trained: got 7; allowed: 3, 4, 5, 6"):
        Setup.open(config)


def test_its_cold_start_is_one_that_can_be_run():
    complete = SFTConfig().completed(Assignments.cold_start)
    assert set(Assignments.trained) < set(Assignments.difficulties)
    assert (complete.steps, complete.batch) == (Assignments.cold_start["steps"], Assignments.cold_start["batch"])


# -- with the real interpreter


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=1) as shared:
        yield shared


def play(pool: InterpreterPool, styles: list[str], rate: float = 0.0, levels: tuple[int, ...] = (3, 4, 5, 6)):
    env = resolve("tool_gym/Assignments-v0")
    noise = IIDNoise(rate) if rate else NoNoise()
    episodes = Episodes(env.task, env.tools, noise=noise, max_turns=env.max_turns, pool=pool)
    problems = env.task.sample_many(generator(), [levels[i % len(levels)] for i in range(len(styles))], "train")
    return play_demonstrations(episodes, problems, styles, rng.key(0, "cold_start", np.arange(len(styles))))


def outcomes(one: Demonstration) -> list[str]:
    return [call.result.kind or "ok" for call in one.record.calls]


def test_every_style_scores_as_it_says_in_a_session_of_the_real_interpreter(pool):
    for one in play(pool, list(STYLES) * 60):
        calls = -(-one.problem.difficulty // 2)
        worked = {"clean": calls, "confused": calls, "slip_then_fix": calls, "double_answer": calls}.get(one.style, 0)
        slipped = one.style.startswith("slip")
        assert outcomes(one)[slipped:] == ["ok"] * worked
        assert not slipped or outcomes(one)[0] in ("SyntaxError", "NameError")
        qualities = [call.quality for call in one.record.calls]
        if one.style == "confused":
            assert one.record.success == lucky(one.problem)
            assert max(qualities) < 1
        elif worked:
            assert one.record.success
            assert qualities[slipped:] == [1.0] * calls
        assert max(qualities[:1] if slipped else [0]) < 1
        assert all(len(text) <= len("<error></error>") + 27 for text in one.observations)


def test_a_step_whose_reply_a_fault_hides_is_played_again_and_as_good(pool):
    played = play(pool, ["clean"] * 200, rate=0.3)
    assert any(call.fault for one in played for call in one.record.calls)
    assert all(call.quality == 1.0 for one in played for call in one.record.calls)


def test_what_the_judge_believes_of_a_session_is_what_the_session_holds(pool):
    """Programs that hold on to, overwrite and lose names: a step is right exactly if the interpreter shows it."""
    from tool_gym.interpreter import InterpreterSession

    beginnings = ["b=3", "b=3;z", "b=z", "b=3;b=z", "b=(", "b=3\nfor c in range(2): pass", "b=3;del b", "b=3;c=b/0"]
    for first in beginnings:
        session = InterpreterSession()
        history = [(ToolCall("python", first), pool.run(first, echo=True, session=session))]
        step = "c=4+b;c"
        result = pool.run(step, echo=True, session=session)
        score = TASK.reasoning_quality(PROBLEM, [*history, (ToolCall("python", step), result)])
        assert score == 0.0 or result.output == "7", first


def test_the_environment_is_solved_step_by_step():
    env = gymnasium.make("tool_gym/Assignments-v0")
    prompt, _ = env.reset(seed=0, options={"problem": LONG})
    assert prompt == "a=2*d;b=1-e;c=6+b;d=3*c;e=9;a%10?"
    reply, *_, info = env.step("<python>a=2*d;b=1-e</python>")
    assert reply == "<error>NameError: line 1: name 'd'</error>"
    assert info["error_origin"] == "policy"
    for turn, expected in (("e=9;b=1-e", ""), ("c=6+b;c", "-2"), ("d=3*c;a=2*d;a%10", "8")):
        reply, *_, info = env.step(f"<python>{turn}</python>")
        assert (reply, info["reasoning_quality"]) == (f"<output>{expected}</output>", 1.0)
    assert env.step("<answer>8</answer>")[1:4] == (1.0, True, False)
    env.close()


def test_the_same_seed_gives_the_same_episode():
    def episode() -> list[Any]:
        env = gymnasium.make("tool_gym/Assignments-v0", noise="iid")
        seen = [env.reset(seed=5)]
        seen += [env.step(f"<python>x={i};x+1</python>") for i in range(3)]
        env.close()
        return seen

    assert episode() == episode()
