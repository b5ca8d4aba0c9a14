"""The arithmetic task: luck and answers are exact, splits are apart, judgement follows the chain."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.tasks import SPLITS, Arithmetic, Problem, split_of
from tool_gym.tools import ToolCall, ToolResult

repeatable = settings(derandomize=True, deadline=None)

TASK = Arithmetic()
PROBLEM = TASK.problem((3, 4, 2, 1), "+*-")  # 7, 14, 13; Python reads it as 10
OK = ToolResult("ok")
STYLES = ("clean", "confused", "slip_then_fix", "slip_then_guess", "guess", "double_answer")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def quality(*codes: str, problem: Problem = PROBLEM, task: Arithmetic = TASK) -> float:
    return task.reasoning_quality(problem, [(ToolCall("python", code), OK) for code in codes])


def code_of(turn: str) -> str:
    match = re.fullmatch(r"<python>(.*)</python>", turn)
    assert match is not None
    return match.group(1)


def answer_of(turn: str) -> str:
    match = re.fullmatch(r"<answer>(.*?)</answer>", turn)
    assert match is not None
    return match.group(1)


def lucky(problem: Problem, answers: int) -> bool:
    return (problem.data["confused"] - problem.data["partials"][-1]) % answers == 0


# -- problems


def test_the_worked_example():
    assert PROBLEM.prompt == "3+4*2-1 mod 10"
    assert PROBLEM.answer == "3"
    assert PROBLEM.difficulty == 3
    assert PROBLEM.data == {"operands": (3, 4, 2, 1), "operators": "+*-", "partials": (7, 14, 13), "confused": 10}


@pytest.mark.parametrize("answers", [2, 4, 10])
def test_prompts_parse_and_state_the_problem_that_the_data_hold(answers):
    task = Arithmetic(answers)
    for problem in task.sample_many(generator(), list(task.difficulties) * 100, "train"):
        match = re.fullmatch(r"([1-9])((?:[-+*][1-9])+) mod (\d+)", problem.prompt)
        assert match is not None
        value, partials = int(match[1]), []
        for operator, operand in re.findall(r"([-+*])([1-9])", match[2]):
            value = eval(f"{value}{operator}{operand}")
            partials.append(value)
        assert problem.data["partials"] == tuple(partials)
        assert problem.data["confused"] == eval(match[1] + match[2]) != value
        assert int(match[3]) == answers
        assert problem.answer == str(value % answers)
        assert problem.difficulty == len(partials)


@pytest.mark.parametrize("answers", [2, 4, 10])
@pytest.mark.parametrize("difficulty", Arithmetic.difficulties)
def test_luck_and_answers_are_exact_at_each_difficulty(answers, difficulty):
    task = Arithmetic(answers)
    problems = task.sample_many(generator(), [difficulty] * 20_000, "train")
    assert np.mean([lucky(problem, answers) for problem in problems]) == pytest.approx(1 / answers, abs=0.01)
    shares = np.bincount([int(problem.answer) for problem in problems], minlength=answers) / len(problems)
    assert shares == pytest.approx(np.full(answers, 1 / answers), abs=0.01)


@pytest.mark.parametrize("answers", [2, 4, 10])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_luck_and_answers_are_exact_within_the_small_splits_too(answers, split):
    # At three operations, where a split holds the fewest problems of each kind.
    problems = Arithmetic(answers).sample_many(generator(), [3] * 10_000, split)
    assert np.mean([lucky(problem, answers) for problem in problems]) == pytest.approx(1 / answers, abs=0.015)
    shares = np.bincount([int(problem.answer) for problem in problems], minlength=answers) / len(problems)
    assert shares == pytest.approx(np.full(answers, 1 / answers), abs=0.015)


def test_luck_is_independent_of_the_answer():
    problems = TASK.sample_many(generator(), [4] * 20_000, "train")
    table = np.zeros((10, 2))
    for problem in problems:
        table[int(problem.answer), int(lucky(problem, 10))] += 1
    assert table[:, 1] / table.sum(axis=1) == pytest.approx(np.full(10, 0.1), abs=0.025)


@pytest.mark.parametrize("answers", [*range(2, 13), 14, 15, 16, 18, 20, 21, 24])
def test_every_kind_of_problem_exists_in_every_split(answers):
    task = Arithmetic(answers)
    for split in SPLITS:
        problems = task.sample_many(generator(), [3] * max(1500, 15 * answers**2), split)
        kinds = {(problem.answer, lucky(problem, answers)) for problem in problems}
        assert len(kinds) == 2 * answers


def test_splits_are_disjoint():
    prompts = {split: {p.prompt for p in TASK.sample_many(generator(), [3, 4] * 1000, split)} for split in SPLITS}
    for split, members in prompts.items():
        assert {split_of(Problem(prompt, "")) for prompt in members} == {split}
        assert len(members) > 1000
    assert len(set().union(*prompts.values())) == sum(map(len, prompts.values()))


@repeatable
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(Arithmetic.difficulties), min_size=1, max_size=30),
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


def test_drawing_goes_on_with_the_generator():
    random = generator()
    one, other = TASK.sample_many(random, [4] * 50, "train"), TASK.sample_many(random, [4] * 50, "train")
    assert len({problem.prompt for problem in one + other}) > 90


def test_sample_split_is_sample_many_of_one():
    assert TASK.sample_split(generator(3), 4, "validation") == TASK.sample_many(generator(3), [4], "validation")[0]


def test_sample_draws_from_all_splits():
    random = generator()
    assert {split_of(TASK.sample(random, 3)) for _ in range(100)} == set(SPLITS)


def test_no_problem_for_no_difficulty():
    assert TASK.sample_many(generator(), [], "train") == []


@pytest.mark.parametrize("difficulty", [0, 2, 7, 3.5, "3"])
def test_an_unknown_difficulty_is_refused(difficulty):
    for draw in (
        lambda: TASK.sample(generator(), difficulty),
        lambda: TASK.sample_split(generator(), difficulty, "train"),
        lambda: TASK.sample_many(generator(), [3, difficulty], "train"),
    ):
        with pytest.raises(ConfigError, match=r"difficulty: got .*; allowed: 3, 4, 5, 6"):
            draw()


def test_an_unknown_split_is_refused():
    with pytest.raises(ConfigError, match="split"):
        TASK.sample_many(generator(), [3], "exam")


@pytest.mark.parametrize("answers", [1, 0, 13, 29, 10**9, 2.0, "4", True, None])
def test_answers_outside_of_their_range_are_refused(answers):
    with pytest.raises(ConfigError, match="answers"):
        Arithmetic(answers)


@pytest.mark.parametrize(
    ("operands", "operators", "field"),
    [((3, 4, 2), "+*-", "operands"), ((3, 4, 2, 0), "+*-", "operands"), ((3, 4, 2, 10), "+*-", "operands"),
     ((3, 4, 2, 1), "+/-", "operators"), ((3, 4), "+", "difficulty")],
)  # fmt: skip
def test_a_chain_that_is_none_of_the_task_s_is_refused(operands, operators, field):
    with pytest.raises(ConfigError) as caught:
        TASK.problem(operands, operators)
    assert caught.value.field == field


def test_task_and_problems_survive_pickle():
    task, problem = pickle.loads(pickle.dumps((Arithmetic(4), PROBLEM)))
    assert task.answers == 4
    assert problem == PROBLEM


# -- grading


@pytest.mark.parametrize("answer", ["3", " 3 ", "\n3\n", "+3", "03"])
def test_the_right_integer_is_right(answer):
    assert TASK.grade(PROBLEM, answer) is True


@pytest.mark.parametrize(
    "answer", ["", "4", "13", "-3", "3.0", "3;", "3 3", "three", "0x3", "1_0", "٣", "³", "3" * 10_000, "--3", "3\x00"]
)
def test_any_other_text_is_wrong(answer):
    assert TASK.grade(PROBLEM, answer) is False


@repeatable
@given(st.text(max_size=40))
def test_grading_raises_for_no_text(answer):
    assert TASK.grade(PROBLEM, answer) in (True, False)


# -- reasoning quality


@pytest.mark.parametrize(
    "code",
    [
        "(((3+4)*2)-1)%10",
        "((3+4)*2)-1",
        "x = 3+4\nx *= 2\nx -= 1\nx % 10",
        "print((3+4)*2-1)",
        "r = ((3+4)*2-1)%10\nprint('r', r)",
        "-1+2*(4+3)",
    ],
)
def test_right_code_has_quality_one(code):
    assert quality(code) == 1.0


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("(3+4*2-1)%10", 0.0),  # Python's precedence
        ("3+4", 1 / 3),
        ("(3+4)*2", 2 / 3),
        ("(3+4)*2-2", 2 / 3),
        ("13", 0.0),  # the right value, computed elsewhere
        ("14-1", 0.0),  # without the results before it
        ("x = ((3+4)*2)-1", 2 / 3),  # shows nothing
        ("((3+4)*2-1)%10 + 0", 2 / 3),  # goes on after the reduction
        ("((3+4)*2-1)*5", 2 / 3),
        ("((3+4)*2-1)%4", 2 / 3),  # reduces by another modulus
        ("print(((3+4)*2-1))\nprint(5)", 2 / 3),
        ("1/0", 0.0),
        ("", 0.0),
        ("(((3+4)*2-1)%10", 0.0),  # malformed
        ("7, 14, 13", 0.0),  # literals are not steps
    ],
)
def test_quality_is_the_prefix_of_the_true_chain_that_a_call_computes(code, expected):
    assert quality(code) == pytest.approx(expected)


def test_a_lucky_confused_call_has_no_quality_although_its_output_is_right():
    task = Arithmetic(2)
    problem = task.problem((3, 4, 2, 1), "+*+")  # 7, 14, 15; confused 12
    other = task.problem((4, 3, 5, 4), "+*+")  # 7, 35, 39; confused 23: equal modulo 2
    assert not lucky(problem, 2)
    assert lucky(other, 2)
    assert quality("(4+3*5+4)%2", problem=other, task=task) == 0.0


def test_a_reduced_value_that_happens_to_equal_the_true_one_is_not_it():
    problem = TASK.problem((2, 3, 4, 7), "+-+")  # 5, 1, 8
    assert quality("((2+3)-4)+7", problem=problem) == 1.0
    assert quality("((2+3)-4)+7; (11+7)%10", problem=problem) == pytest.approx(2 / 3)


def test_a_chain_may_be_spread_over_calls():
    assert [quality(*["3+4", "7*2", "14-1"][:n]) for n in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_a_later_call_does_not_inherit_what_earlier_ones_found():
    right, confused = "(((3+4)*2)-1)%10", "(3+4*2-1)%10"
    assert quality(right, confused) == 0.0
    assert quality(right, "5") == 0.0
    assert quality(right, "3+4") == pytest.approx(1 / 3)


def test_a_repeated_call_scores_what_it_scored():
    for codes in (["(((3+4)*2)-1)%10"], ["(3+4)*2"], ["3+4", "7*2"], ["(3+4*2-1)%10"]):
        assert quality(*codes, codes[-1]) == quality(*codes)


def test_only_code_that_the_interpreter_parsed_is_judged():
    call = ToolCall("python", "(((3+4)*2)-1)%10")
    for result in (
        ToolResult("error", "SyntaxError", "invalid syntax"),
        ToolResult("error", "IndentationError", "unexpected indent"),
        ToolResult("refused", "name", "forbidden"),
        ToolResult("limit", "source", "too long"),
    ):
        assert TASK.reasoning_quality(PROBLEM, [(call, result)]) == 0.0


def test_a_call_that_failed_later_counts_as_far_as_it_came():
    call = ToolCall("python", "x = (3+4)*2\nx - y")
    result = ToolResult("error", "NameError", "name 'y' is not defined")
    assert TASK.reasoning_quality(PROBLEM, [(call, result)]) == pytest.approx(2 / 3)


def test_calls_of_other_tools_count_for_nothing():
    history = [(ToolCall("lookup", "3+4"), OK), (ToolCall("python", "7*2"), OK)]
    assert TASK.reasoning_quality(PROBLEM, history) == 0.0
    assert TASK.reasoning_quality(PROBLEM, [(ToolCall("python", "3+4"), OK), (ToolCall("lookup", "7*2"), OK)]) == 0.0


@repeatable
@given(st.lists(st.text("3421+-*()%x=\n ", max_size=25), min_size=1, max_size=4))
def test_quality_is_a_multiple_of_the_chain_s_share_and_one_only_for_the_true_value(codes):
    score = quality(*codes)
    assert score * 3 == pytest.approx(round(score * 3), abs=1e-12)
    assert 0.0 <= score <= 1.0


# -- demonstrations


@repeatable
@given(st.integers(0, 2**32), st.sampled_from([2, 4, 10]), st.sampled_from(Arithmetic.difficulties))
def test_each_style_demonstrates_what_it_says(seed, answers, difficulty):
    task = Arithmetic(answers)
    random = generator(seed)
    problem = task.sample(random, difficulty)
    scripts = {style: task.demonstrate(problem, random, style) for style in STYLES}

    call, answer = scripts["clean"]
    assert eval(code_of(call)) == int(answer_of(answer)) == int(problem.answer)
    assert quality(code_of(call), problem=problem, task=task) == 1.0

    confused, answer = scripts["confused"]
    assert eval(code_of(confused)) == int(answer_of(answer))
    assert task.grade(problem, answer_of(answer)) == lucky(problem, answers)
    assert quality(code_of(confused), problem=problem, task=task) < 1.0

    slip, *rest = scripts["slip_then_fix"]
    assert rest == scripts["clean"]
    with pytest.raises(SyntaxError):
        compile(code_of(slip), "", "exec")

    slip, guess = scripts["slip_then_guess"]
    with pytest.raises(SyntaxError):
        compile(code_of(slip), "", "exec")
    assert 0 <= int(answer_of(guess)) < answers

    (guess,) = scripts["guess"]
    assert 0 <= int(answer_of(guess)) < answers

    call, twice = scripts["double_answer"]
    assert call == scripts["clean"][0]
    assert twice == scripts["clean"][1] * 2


def test_the_texts_are_those_of_the_documentation():
    assert TASK.demonstrate(PROBLEM, generator(), "clean") == [
        "<python>(((3+4)*2)-1)%10</python>",
        "<answer>3</answer>",
    ]
    assert TASK.demonstrate(PROBLEM, generator(), "confused") == ["<python>(3+4*2-1)%10</python>", "<answer>0</answer>"]
    assert TASK.demonstrate(PROBLEM, generator(), "double_answer")[1] == "<answer>3</answer><answer>3</answer>"


def test_every_slip_is_a_syntax_error_and_slips_are_of_many_kinds():
    random, slips = generator(), set()
    for _ in range(2000):
        slip = code_of(TASK.demonstrate(PROBLEM, random, "slip_then_guess")[0])
        with pytest.raises(SyntaxError):
            compile(slip, "", "exec")
        slips.add(slip)
    right = len(code_of(TASK.demonstrate(PROBLEM, random, "clean")[0]))
    assert {len(slip) - right for slip in slips} == {-1, 1}
    assert len(slips) > 15


def test_guesses_are_uniform_and_so_right_by_chance():
    task, random = Arithmetic(4), generator()
    problem = task.sample(random, 3)
    guesses = [int(answer_of(task.demonstrate(problem, random, "guess")[0])) for _ in range(8000)]
    assert np.bincount(guesses) / 8000 == pytest.approx(np.full(4, 0.25), abs=0.02)


def test_an_unknown_style_is_refused_with_the_known_ones_named():
    with pytest.raises(ConfigError, match=r"style: got 'sloppy'; allowed: .*slip_then_fix"):
        TASK.demonstrate(PROBLEM, generator(), "sloppy")


def test_the_default_mixture_is_complete_and_of_known_styles():
    assert sum(Arithmetic.mixture.values()) == pytest.approx(1.0, abs=1e-12)
    assert set(Arithmetic.mixture) <= set(STYLES)
