"""Retrieval: luck is exact by construction, prompts tell splits apart, judgement follows the hops, slips are errors."""

from __future__ import annotations

import pickle
import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.config import PolicyConfig
from agents.tokenizer import Tokenizer
from tool_gym import rng
from tool_gym.episodes import Episodes
from tool_gym.errors import ConfigError, ToolError
from tool_gym.noise import IIDNoise, NoNoise
from tool_gym.registration import resolve
from tool_gym.tasks import SPLITS, Problem, Retrieval, split_of
from tool_gym.tasks.demonstrations import play_demonstrations, reference_qualities
from tool_gym.tasks.retrieval import ENTITIES, RELATIONS, lookup
from tool_gym.tools import ToolCall, ToolResult

repeatable = settings(derandomize=True, deadline=None)

TASK = Retrieval()
FACTS = {"Ra": "d", "Sd": "c", "Sa": "e", "Re": "b", "Ta": "a"}
PROBLEM = TASK.problem("RSa", FACTS)
STATED = TASK.problem("RSa", FACTS, stated=True)
DEEP = TASK.problem("PQRa", {"Pa": "b", "Qb": "c", "Rc": "d", "Ra": "e", "Qe": "f", "Pf": "d", "Sa": "j"})
STYLES = ("clean", "confused", "slip_then_fix", "slip_then_guess", "guess", "double_answer")
NO_FACT = ToolResult("error", "KeyError", "Rz")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def lucky(problem: Problem) -> bool:
    return TASK.confused_answer(problem) == problem.answer


def quality(*keys: str, problem: Problem = PROBLEM) -> float:
    """Of the last of some lookups, each with the result that the tool gives it."""
    history = []
    for key in keys:
        try:
            result = ToolResult("ok", output=lookup(key, problem))
        except ToolError as error:
            result = ToolResult("error", error.kind, error.message)
        history.append((ToolCall("lookup", key), result))
    return TASK.reasoning_quality(problem, history)


def key_of(turn: str) -> str:
    match = re.fullmatch(r"<lookup>(.*)</lookup>", turn)
    assert match is not None
    return match[1]


def answer_of(turn: str) -> str:
    match = re.fullmatch(r"<answer>(.*?)</answer>", turn)
    assert match is not None
    return match[1]


def follow(facts: dict[str, str], relations: list[str], entity: str) -> str:
    for relation in relations:
        entity = facts[relation + entity]
    return entity


# -- problems


def test_the_worked_example():
    assert (PROBLEM.prompt, PROBLEM.answer, PROBLEM.difficulty) == ("RSa?", "c", 2)
    assert PROBLEM.data == {
        "facts": FACTS,
        "path": ("Ra", "Sd"),
        "confused_path": ("Sa", "Re"),
        "confused": "b",
        "stated": False,
    }
    assert (STATED.prompt, STATED.answer) == ("RSa=c; RSa?", "c")


@pytest.mark.parametrize("answers", [2, 10, 26])
def test_prompts_state_the_problem_that_the_data_hold(answers):
    task = Retrieval(answers)
    for problem in task.sample_many(generator(), list(task.difficulties) * 100, "train"):
        *given, question = problem.prompt.split("; ")
        *relations, entity = question.removesuffix("?")
        facts = problem.data["facts"]
        assert problem.difficulty == len(relations) == len(set(relations))
        assert set(relations) <= set(RELATIONS)
        assert set(facts.values()) | {entity} <= set(ENTITIES[:answers])
        assert follow(facts, relations, entity) == problem.answer
        assert follow(facts, relations[::-1], entity) == problem.data["confused"]
        assert given == ([f"{question[:-1]}={problem.answer}"] if problem.data["stated"] else [])


@pytest.mark.parametrize("answers", [2, 10, 26])
@pytest.mark.parametrize("difficulty", Retrieval.difficulties)
def test_luck_and_answers_are_exact_at_each_difficulty(answers, difficulty):
    task = Retrieval(answers)
    problems = task.sample_many(generator(), [difficulty] * 9000, "train")
    assert task.luck == 1 / answers
    assert np.mean([lucky(problem) for problem in problems]) == pytest.approx(1 / answers, abs=0.01)
    shares = np.bincount([ENTITIES.index(problem.answer) for problem in problems], minlength=answers) / len(problems)
    assert shares == pytest.approx(np.full(answers, 1 / answers), abs=0.01)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_luck_and_answers_are_exact_within_the_small_splits_too(split):
    problems = TASK.sample_many(generator(), [2] * 6000, split)
    assert np.mean([lucky(problem) for problem in problems]) == pytest.approx(0.1, abs=0.015)
    shares = np.bincount([ENTITIES.index(problem.answer) for problem in problems], minlength=10) / len(problems)
    assert shares == pytest.approx(np.full(10, 0.1), abs=0.015)


def test_luck_depends_neither_on_the_answer_nor_on_the_question():
    problems = TASK.sample_many(generator(), [2] * 12_000, "train")
    for feature in (lambda p: p.answer, lambda p: p.prompt[0], lambda p: p.data["stated"]):
        table: dict[Any, list[bool]] = {}
        for problem in problems:
            table.setdefault(feature(problem), []).append(lucky(problem))
        assert all(np.mean(values) == pytest.approx(0.1, abs=0.03) for values in table.values())


def test_the_share_of_questions_that_need_no_tool_is_as_asked():
    for share in (0.0, 0.1, 0.5, 1.0):
        problems = Retrieval(no_tool=share).sample_many(generator(), [2, 3] * 1500, "train")
        assert np.mean([problem.data["stated"] for problem in problems]) == pytest.approx(share, abs=0.02)


def test_the_two_readings_look_up_different_facts():
    for answers in (2, 10):
        for problem in Retrieval(answers).sample_many(generator(), [2, 3, 4, 5] * 300, "train"):
            assert not set(problem.data["path"]) & set(problem.data["confused_path"])


def test_of_the_facts_beside_the_two_readings_half_exist():
    shares = []
    for problem in TASK.sample_many(generator(), [3] * 500, "train"):
        beside = len(problem.data["facts"]) - 6
        shares.append(beside / (len(RELATIONS) * 10 - 6))
    assert np.mean(shares) == pytest.approx(0.5, abs=0.01)


def test_a_question_says_nothing_about_its_answer():
    # The same question over many knowledge bases: each entity is the answer as often.
    answers: dict[str, list[str]] = {}
    for problem in Retrieval(answers=2, no_tool=0).sample_many(generator(), [2] * 8000, "train"):
        answers.setdefault(problem.prompt, []).append(problem.answer)
    assert all(np.mean([x == "a" for x in given]) == pytest.approx(0.5, abs=0.2) for given in answers.values())
    assert np.mean([len(set(given)) for given in answers.values()]) == 2


def test_splits_are_disjoint():
    prompts = {split: {p.prompt for p in TASK.sample_many(generator(), [2, 3] * 1500, split)} for split in SPLITS}
    for split, members in prompts.items():
        assert {split_of(Problem(prompt, "")) for prompt in members} == {split}
        assert len(members) > 100
    assert len(set().union(*prompts.values())) == sum(map(len, prompts.values()))


@pytest.mark.parametrize("answers", [2, 3, 26])
@pytest.mark.parametrize("no_tool", [0, 1])
def test_every_answer_can_be_that_of_a_question_in_every_split(answers, no_tool):
    for split in SPLITS:
        problems = Retrieval(answers, no_tool).sample_many(generator(), [2] * 20 * answers, split)
        assert len({problem.answer for problem in problems}) == answers


@repeatable
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(Retrieval.difficulties), min_size=1, max_size=30),
    st.integers(1, 30),
    st.sampled_from(list(SPLITS)),
)
def test_the_first_problems_of_many_are_those_that_fewer_would_have_given(seed, difficulties, fewer, split):
    many = TASK.sample_many(rng.generator(seed), difficulties, split)
    assert many[:fewer] == TASK.sample_many(rng.generator(seed), difficulties[:fewer], split)
    assert [problem.difficulty for problem in many] == difficulties


def test_sample_draws_from_all_splits():
    random = generator()
    assert {split_of(TASK.sample(random, 3)) for _ in range(100)} == set(SPLITS)


@pytest.mark.parametrize("difficulty", [0, 1, 6, 2.5, "3"])
def test_an_unknown_difficulty_is_refused(difficulty):
    for draw in (
        lambda: TASK.sample(generator(), difficulty),
        lambda: TASK.sample_split(generator(), difficulty, "train"),
        lambda: TASK.sample_many(generator(), [3, difficulty], "train"),
    ):
        with pytest.raises(ConfigError, match=r"difficulty: got .*; allowed: 2, 3, 4, 5"):
            draw()


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"answers": value}, "answers") for value in (1, 0, 27, 2.0, "4", True, None)]
    + [({"no_tool": value}, "no_tool") for value in (-0.1, 1.1, float("nan"), "0", True, None)],
)
def test_settings_outside_of_their_range_are_refused(settings, field):
    with pytest.raises(ConfigError) as caught:
        Retrieval(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("question", "facts", "field"),
    [
        ("Ra", FACTS, "difficulty"),
        ("RRa", FACTS, "question"),
        ("R X a", FACTS, "question"),
        ("RSz", FACTS, "facts"),
        ("RSa", {**FACTS, "Sd": "z"}, "facts"),
        ("RSa", {**FACTS, "Sd": "ab"}, "facts"),
        ("RSa", {**FACTS, "S d": "a"}, "facts"),
        ("RSa", {key: FACTS[key] for key in ("Ra", "Sd")}, "facts"),
    ],
)
def test_a_pinned_question_without_an_answer_is_refused(question, facts, field):
    with pytest.raises(ConfigError) as caught:
        TASK.problem(question, facts)
    assert caught.value.field == field


def test_task_problems_and_tool_survive_pickle():
    task, problem, tool = pickle.loads(pickle.dumps((Retrieval(4, no_tool=0.5), PROBLEM, lookup)))
    assert (task.answers, task.no_tool, problem) == (4, 0.5, PROBLEM)
    assert tool is lookup


# -- the tool


def test_a_lookup_follows_one_relation_from_one_entity():
    assert lookup("Ra", PROBLEM) == "d"
    assert lookup(" Sd\n", PROBLEM) == "c"


@pytest.mark.parametrize("key", ["", "R", "a", "R a", "aR", "RSa", "Rz", "ra", "Ra;", "Pa"])
def test_any_other_lookup_is_an_error_of_the_policy_s(key):
    with pytest.raises(ToolError) as caught:
        lookup(key, PROBLEM)
    assert (caught.value.kind, caught.value.message) == ("KeyError", key)


# -- grading


@pytest.mark.parametrize(("answer", "right"), [("c", True), (" c\n", True), ("C", False), ("", False), ("cc", False)])
def test_the_entity_that_the_question_leads_to_is_right(answer, right):
    assert TASK.grade(PROBLEM, answer) is right


@repeatable
@given(st.text(max_size=40))
def test_grading_raises_for_no_text(answer):
    assert TASK.grade(PROBLEM, answer) in (True, False)


# -- reasoning quality


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["Ra"], 1.0),
        (["Ra", "Sd"], 1.0),
        ([" Ra ", "Sd"], 1.0),
        (["Ra", "Ra"], 1.0),  # a step again, as after a fault
        (["Ra", "Sd", "Ra"], 1.0),
        (["Sa"], 0.0),
        (["Sa", "Re"], 0.0),
        (["Sd"], 0.0),  # the right fact, and no reason to ask for it
        (["Sa", "Ra"], 1.0),  # thinks again
        (["Ra", "Sa"], 1 / 2),
        (["Ra", "Re"], 1 / 2),
        (["Ra", "Sd", "Ta"], 1 / 2),
        (["Ra", "S"], 0.0),
        (["Rz"], 0.0),
    ],
)
def test_a_step_is_right_and_what_strays_scores_what_stands_behind_it(keys, expected):
    assert quality(*keys) == expected


def test_deeper_questions_are_judged_by_their_share():
    assert [quality(*("Pa", "Qb", "Rc")[:n], problem=DEEP) for n in (1, 2, 3)] == [1.0] * 3
    assert [quality(*("Ra", "Qe", "Pf")[:n], problem=DEEP) for n in (1, 2, 3)] == [0.0] * 3
    assert quality("Pa", "Qb", "Sa", problem=DEEP) == pytest.approx(2 / 3)
    assert quality("Pa", "Ra", problem=DEEP) == pytest.approx(1 / 3)
    assert quality("Pa", "Rc", problem=DEEP) == pytest.approx(1 / 3)


def test_calls_of_other_tools_and_lost_facts_count_for_nothing():
    right = (ToolCall("lookup", "Ra"), ToolResult("ok", output="d"))
    assert TASK.reasoning_quality(PROBLEM, [(ToolCall("python", "Ra"), ToolResult("ok"))]) == 0.0
    assert TASK.reasoning_quality(PROBLEM, [right, (ToolCall("python", "Sd"), ToolResult("ok"))]) == 0.0
    assert TASK.reasoning_quality(PROBLEM, [(ToolCall("lookup", "Ra"), NO_FACT)]) == 0.0


@repeatable
@given(st.lists(st.sampled_from([*FACTS, "Rz", "S", "aR", "RSa", ""]), min_size=1, max_size=6))
def test_quality_is_one_or_a_share_of_the_hops_below(keys):
    assert quality(*keys) in (0.0, 1 / 2, 1.0)


# -- demonstrations


@repeatable
@given(st.integers(0, 2**32), st.sampled_from([2, 10, 26]), st.sampled_from(Retrieval.difficulties))
def test_each_style_demonstrates_what_it_says(seed, answers, difficulty):
    task = Retrieval(answers, no_tool=0.3)
    random = generator(seed)
    problem = task.sample(random, difficulty)
    stated = problem.data["stated"]
    scripts = {style: task.demonstrate(problem, random, style) for style in STYLES}

    *calls, answer = scripts["clean"]
    assert len(calls) == (0 if stated else difficulty)
    assert stated or lookup(key_of(calls[-1]), problem) == answer_of(answer)
    assert answer_of(answer) == problem.answer
    keys = [key_of(call) for call in calls]
    assert all(quality(*keys[: n + 1], problem=problem) == 1.0 for n in range(len(keys)))

    *calls, answer = scripts["confused"]
    assert len(calls) == difficulty
    assert lookup(key_of(calls[-1]), problem) == answer_of(answer)
    assert task.grade(problem, answer_of(answer)) == lucky(problem)
    keys = [key_of(call) for call in calls]
    assert all(quality(*keys[: n + 1], problem=problem) == 0.0 for n in range(len(keys)))

    slip, *rest = scripts["slip_then_fix"]
    assert rest == scripts["clean"]
    for turn in (slip, scripts["slip_then_guess"][0]):
        with pytest.raises(ToolError):
            lookup(key_of(turn), problem)

    for guess in (scripts["slip_then_guess"][-1], *scripts["guess"]):
        assert answer_of(guess) in ENTITIES[:answers]
    *calls, twice = scripts["double_answer"]
    assert calls == scripts["clean"][:-1]
    assert twice == scripts["clean"][-1] * 2


def test_the_texts_are_those_of_the_documentation():
    assert TASK.demonstrate(PROBLEM, generator(), "clean") == [
        "<lookup>Ra</lookup>",
        "<lookup>Sd</lookup>",
        "<answer>c</answer>",
    ]
    assert TASK.demonstrate(PROBLEM, generator(), "confused") == [
        "<lookup>Sa</lookup>",
        "<lookup>Re</lookup>",
        "<answer>b</answer>",
    ]
    assert TASK.demonstrate(STATED, generator(), "clean") == ["<answer>c</answer>"]


def test_slips_are_of_many_kinds():
    slips = {key_of(TASK.demonstrate(PROBLEM, generator(i), "slip_then_guess")[0]) for i in range(100)}
    assert len(slips) >= 4


def test_guesses_are_uniform_and_so_right_by_chance():
    guesses = [answer_of(TASK.demonstrate(PROBLEM, generator(i), "guess")[0]) for i in range(5000)]
    shares = [guesses.count(entity) / 5000 for entity in ENTITIES[:10]]
    assert shares == pytest.approx([0.1] * 10, abs=0.02)


def test_an_unknown_style_is_refused_with_the_known_ones_named():
    with pytest.raises(ConfigError, match=r"style: got 'sloppy'; allowed: .*slip_then_fix"):
        TASK.demonstrate(PROBLEM, generator(), "sloppy")


def test_the_default_mixture_is_complete_and_of_known_styles():
    assert sum(Retrieval.mixture.values()) == pytest.approx(1.0, abs=1e-12)
    assert set(Retrieval.mixture) <= set(STYLES)


# -- episodes


def test_every_style_scores_as_it_says_in_real_episodes():
    env = resolve("tool_gym/Retrieval-v0")
    for rate in (0.0, 0.3):
        noise = IIDNoise(rate) if rate else NoNoise()
        episodes = Episodes(env.task, env.tools, noise=noise, max_turns=env.max_turns)
        problems = env.task.sample_many(generator(), [2, 3, 4, 5] * 150, "train")
        styles = [STYLES[i % len(STYLES)] for i in range(600)]
        for one in play_demonstrations(episodes, problems, styles, rng.key(0, "cold_start", np.arange(600))):
            qualities = [call.quality for call in one.record.calls]
            errors = [call.result.kind for call in one.record.calls if not call.result.ok]
            assert errors == ["KeyError"] * one.style.startswith("slip")
            if one.style in ("clean", "slip_then_fix", "double_answer"):
                assert one.record.success
                assert set(qualities[one.style.startswith("slip") :]) <= {1.0}
            elif one.style == "confused":
                assert one.record.success == lucky(one.problem)
                assert set(qualities) == {0.0}
            assert all(len(text) <= len("<error></error>") + 24 for text in one.observations)


def test_faults_that_follow_the_reasoning_have_a_reference():
    qualities = reference_qualities(Retrieval(), [lookup], size=1000)
    assert set(qualities) == {0.0, 1.0}
    assert 0.1 < qualities.mean() < 0.5


def test_every_turn_fits_into_the_policy_s():
    tokenizer, room = Tokenizer(["lookup"]), PolicyConfig().max_turn_tokens
    for problem in TASK.sample_many(generator(), [2, 3, 4, 5] * 50, "train"):
        for style in STYLES:
            turns = TASK.demonstrate(problem, generator(), style)
            assert max(len(tokenizer.encode(turn)) + 1 for turn in turns) <= room


def test_the_environment_answers_questions_hop_by_hop():
    env = gymnasium.make("tool_gym/Retrieval-v0")
    prompt, _ = env.reset(seed=0, options={"problem": PROBLEM})
    assert prompt == "RSa?"
    reply, *_, info = env.step("<lookup>RSa</lookup>")
    assert (reply, info["error_origin"]) == ("<error>KeyError: RSa</error>", "policy")
    for key, entity in (("Ra", "d"), ("Sd", "c")):
        reply, *_, info = env.step(f"<lookup>{key}</lookup>")
        assert (reply, info["reasoning_quality"]) == (f"<output>{entity}</output>", 1.0)
    assert env.step("<answer>c</answer>")[1:4] == (1.0, True, False)
    prompt, _ = env.reset(options={"problem": STATED})
    assert env.step("<answer>c</answer>")[1:4] == (1.0, True, False)
    env.close()


def test_python_is_no_tool_here():
    env = gymnasium.make("tool_gym/Retrieval-v0")
    env.reset(seed=0)
    reply, *_, info = env.step("<python>1+1</python>")
    assert "FormatError" in reply
    assert info["tool_calls"] == 0
    env.close()


def test_its_spec_can_be_written_as_json():
    spec = gymnasium.spec("tool_gym/Retrieval-v0")
    assert gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()).kwargs["max_turns"] == 8
    assert [tool.name for tool in resolve("tool_gym/Retrieval-v0", answers=3, no_tool=0.0).tools] == ["lookup"]


def test_the_same_seed_gives_the_same_episode():
    def episode() -> list[Any]:
        env = gymnasium.make("tool_gym/Retrieval-v0", noise="iid")
        seen = [env.reset(seed=5)]
        seen += [env.step(f"<lookup>{relation}a</lookup>") for relation in RELATIONS]
        env.close()
        return seen

    assert episode() == episode()
