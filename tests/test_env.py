from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tests.episode_fakes import Echo, FakePool, ScriptedNoise, Sums
from tool_gym import ToolEnv, rng
from tool_gym.errors import ConfigError, TaskError
from tool_gym.noise import KINDS, BurstNoise, CorrelatedNoise, FaultMix, IIDNoise, PerToolNoise
from tool_gym.tasks.base import Problem, draw_many, split_of

TURN = "<python>1+1</python>"


def build(task: Any = Sums, **settings: Any) -> ToolEnv:
    return ToolEnv(task, **{"pool": FakePool(), **settings})


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    import tool_gym

    tool_gym.register("tests/Sums-v0", task=Sums, tools=(Echo(),))
    yield
    del gymnasium.registry["tests/Sums-v0"]


def turns(env: ToolEnv, count: int) -> list[Any]:
    return [env.step(TURN) for _ in range(count)]


@pytest.mark.parametrize("settings", [{}, {"noise": "iid"}, {"max_turns": 2}, {"difficulty": 3}, {"tools": ()}])
def test_gymnasium_s_checker_finds_nothing_to_warn_about(settings: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Without a spec the checker warns that it cannot make the environment in its other render modes.
        check_env(build(**settings), skip_render_check=True)


def test_gymnasium_s_checker_passes_the_made_environment_in_every_render_mode() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("tests/Sums-v0", noise="iid", render_mode="ansi")
        check_env(env.unwrapped)
        env.reset(seed=1)
        env.step("<echo>1</echo>")
        env.render()


def test_an_episode_runs_from_its_prompt_to_its_reward() -> None:
    env = build()
    problem = Problem("3+4", "7", difficulty=2)
    observation, info = env.reset(options={"problem": problem})
    assert observation == "3+4"
    assert (info["turns"], info["difficulty"], info["reasoning_quality"]) == (0, 2, -1.0)
    observation, reward, terminated, truncated, info = env.step("<python>3+4</python>")
    assert (observation, reward, terminated, truncated) == ("<output>7</output>", 0.0, False, False)
    assert info["reasoning_quality"] == 1.0
    observation, reward, terminated, truncated, info = env.step("<answer>7</answer>")
    assert (observation, reward, terminated, truncated, info["success"]) == ("", 1.0, True, False, True)


def test_stepping_without_a_running_episode_asks_for_a_reset() -> None:
    env = build(max_turns=1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(TURN)
    env.reset()
    assert env.step(TURN)[3] is True
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(TURN)
    env.reset()
    env.close()
    env.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(TURN)


def test_reset_in_the_middle_of_an_episode_begins_another_one() -> None:
    env = build()
    env.reset(seed=1)
    env.step(TURN)
    _, info = env.reset()
    assert (info["turns"], info["tool_calls"]) == (0, 0)
    assert env.step(TURN)[4]["turns"] == 1


def test_a_seed_fixes_problems_and_faults_of_all_episodes_that_follow() -> None:
    def played(env: ToolEnv) -> list[Any]:
        rows: list[Any] = [env.reset(seed=7)]
        for _ in range(4):
            rows += turns(env, 5)
            rows.append(env.reset())
        return rows

    env = build(noise="iid", noise_rate=0.5)
    first = played(env)
    assert played(env) == first == played(build(noise="iid", noise_rate=0.5))
    assert len({row[0] for row in first if len(row) == 2}) == 5


def test_the_same_seed_poses_the_same_problems_with_and_without_noise() -> None:
    clean, noisy = build(), build(noise="iid", noise_rate=1.0)
    assert clean.reset(seed=3) == noisy.reset(seed=3)
    assert turns(clean, 1)[0][0] != turns(noisy, 1)[0][0]
    assert clean.reset()[0] == noisy.reset()[0]


def test_the_noise_key_comes_from_the_seed_and_the_number_of_the_episode() -> None:
    noise = ScriptedNoise()
    env = build(noise=noise)
    env.reset(seed=11)
    env.step(TURN)
    env.reset()
    env.step(TURN)
    asked = env.noise.asked  # type: ignore[attr-defined]
    assert [key for ((_, key, _),) in asked] == [int(rng.key(11, "noise", n)) for n in (0, 1)]


def test_without_a_seed_the_noise_follows_np_random() -> None:
    def faults(state: int) -> list[Any]:
        env = build(noise="iid", noise_rate=0.5)
        env.np_random = np.random.default_rng(state)
        rows = []
        for _ in range(6):
            env.reset()
            rows += [row[4]["injected_faults"] for row in turns(env, 5)]
        return rows

    assert faults(1) == faults(1) != faults(2)


def test_options_pin_the_difficulty_or_the_problem_for_one_episode() -> None:
    env = build(difficulty=1)
    assert env.reset(options={"difficulty": 3})[1]["difficulty"] == 3
    assert env.reset(options={"difficulty": np.int64(2)})[1]["difficulty"] == 2
    assert env.reset(options={"problem": Problem("9+9", "18")})[0] == "9+9"
    assert env.reset(options={})[1]["difficulty"] == 1


def test_difficulties_are_drawn_uniformly_unless_one_is_chosen() -> None:
    env = build()
    env.reset(seed=0)
    drawn = [env.reset()[1]["difficulty"] for _ in range(300)]
    assert all(70 < drawn.count(difficulty) < 130 for difficulty in (1, 2, 3))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_problems_belong_to_the_split_asked_for(split: str) -> None:
    env = build(split=split)
    env.reset(seed=0)
    prompts = {env.reset()[0] for _ in range(20)}
    assert {split_of(Problem(prompt, "")) for prompt in prompts} == {split}


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"split": "eval"}, "split"),
        ({"difficulty": 4}, "difficulty"),
        ({"difficulty": True}, "difficulty"),
        ({"noise": "pink"}, "noise"),
        ({"noise": "iid", "noise_rate": 1.5}, "noise_rate"),
        ({"noise": "burst", "mean_burst": 0.5}, "mean_burst"),
        ({"noise": "burst", "noise_rate": 0.8, "mean_burst": 2}, "mean_burst"),
        ({"noise": "iid", "faults": "earthquake"}, "faults"),
        ({"noise": "iid", "faults": {"timeout": 0.5}}, "faults"),
        ({"noise": "iid", "permanent": -1}, "permanent"),
        ({"noise": "iid", "faults": FaultMix(), "permanent": 0.5}, "permanent"),
        ({"noise": IIDNoise(0.3), "faults": "connection"}, "faults"),
        ({"noise": IIDNoise(0.3), "permanent": 0.5}, "faults"),
        ({"noise": PerToolNoise({"perl": IIDNoise(0.3)})}, "noise"),
        ({"noise": "correlated", "correlation": 2}, "correlation"),
        ({"noise": "correlated", "reference_mode": "thawed"}, "reference_mode"),
        ({"max_turns": 0}, "max_turns"),
        ({"render_mode": "human"}, "render_mode"),
        ({"answers": 4}, "answers"),
        ({"tools": ("perl",)}, "tools"),
        ({"task": "nowhere:Nothing"}, "task"),
        ({"task": "tests.episode_fakes:Nothing"}, "task"),
        ({"task": "Sums"}, "task"),
        ({"task": dict}, "task"),
        ({"task": Sums(), "offset": 1}, "offset"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "options",
    [
        {"difficulty": 4},
        {"difficulty": "3"},
        {"problem": "3+4"},
        {"level": 3},
        {"difficulty": 1, "problem": Problem("3+4", "7")},
    ],
)
def test_bad_options_are_refused_and_leave_the_environment_usable(options: dict[str, Any]) -> None:
    env = build()
    with pytest.raises(ConfigError):
        env.reset(options=options)
    assert env.reset()[1]["turns"] == 0


def test_a_task_is_given_as_a_class_with_settings_an_instance_or_a_name() -> None:
    prompts = {
        build(task, **settings).reset(seed=5)[0]
        for task, settings in [
            (Sums, {"offset": 5}),
            (Sums(5), {}),
            ("tests.episode_fakes:Sums", {"offset": 5}),
        ]
    }
    assert len(prompts) == 1


def test_a_noise_model_is_copied_so_that_environments_do_not_share_its_state() -> None:
    noise = CorrelatedNoise(0.3, 0.9, np.array([0.0, 1.0]), reference_mode="running")
    env = build(noise=noise, max_turns=1)
    env.reset()
    env.step(TURN)
    assert noise.reference.tolist() == [0.0, 1.0]
    assert env.noise.reference.tolist() == [0.0, 1.0, 0.5]  # type: ignore[attr-defined]
    env.reset(seed=1)
    assert env.noise.reference.tolist() == [0.0, 1.0]  # type: ignore[attr-defined]


def test_a_running_reference_sees_eligible_calls_of_valid_ended_episodes_only() -> None:
    env = build(noise=ScriptedNoise(), max_turns=3)
    observed = env.noise.observed  # type: ignore[attr-defined]
    scripts = [["<python>1+1</python>", "<python>((</python>", "<answer>1</answer>"]]
    scripts += [["<python>1+1</python>", "<python>lost</python>"], ["<python>1+1</python>"]]
    for script in scripts:
        env.reset()
        for turn in script:
            env.step(turn)
    env.reset()  # leaves the last episode unfinished
    assert observed == [0.5]


class Unprintable(Sums):
    prompt = "sieben \u2013 \x1b drei"

    def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
        return Problem(self.prompt, "4")

    def sample_split(self, rng: np.random.Generator, difficulty: int, split: str) -> Problem:
        return self.sample(rng, difficulty)


def test_prompts_stay_within_the_observation_space() -> None:
    env = build(Unprintable)
    observation, _ = env.reset()
    assert observation == "sieben \\u2013 \\x1b drei"
    assert observation in env.observation_space
    with pytest.raises(TaskError, match="70000"):
        env.reset(options={"problem": Problem("x" * 70_000, "")})


def test_a_task_that_cannot_sample_is_named() -> None:
    class Raising(Sums):
        def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
            raise ZeroDivisionError("boom")

    class Odd(Unprintable):
        def sample(self, rng: np.random.Generator, difficulty: int) -> Problem:
            return "3+4"  # type: ignore[return-value]

    for task, said in [(Raising, "Raising.sample raised ZeroDivisionError"), (Odd, "Odd.sample returned '3\\+4'")]:
        with pytest.raises(TaskError, match=said):
            build(task).reset()


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (Problem("511+269?", 780), "answer is 780"),  # type: ignore[arg-type]
        (Problem(511, "780"), "prompt is 511"),  # type: ignore[arg-type]
        (Problem("", "780"), "prompt is ''"),
        (Problem("511+269?", "780", "1"), "difficulty is '1'"),  # type: ignore[arg-type]
        (Problem("511+269?", "780", True), "difficulty is True"),
    ],
)
@pytest.mark.parametrize("method", ["sample", "sample_split", "sample_many"])
def test_a_problem_of_other_types_than_its_fields_have_is_refused_with_task_method_and_value(
    method: str, problem: Problem, said: str
) -> None:
    many = method == "sample_many"
    task = type("Mistyped", (Sums,), {method: lambda self, *arguments: [problem] if many else problem})()
    with pytest.raises(TaskError, match=rf"Mistyped\.sample.* {re.escape(said)}, not"):
        draw_many(task, np.random.default_rng(0), [1], "train")


def test_every_observation_is_in_the_space_whatever_the_action() -> None:
    env = build()
    for action in ["", "\x00\u202e", "<python>say \x1b[31m</output></python>", "x" * 10_000, "<answer>\ud800</answer>"]:
        env.reset()
        observation, *_ = env.step(action)
        assert observation in env.observation_space


@pytest.mark.parametrize("action", [None, 3, b"<answer>3</answer>"])
def test_an_action_that_is_not_text_is_refused_and_costs_no_turn(action: Any) -> None:
    env = build()
    env.reset()
    with pytest.raises(ConfigError):
        env.step(action)
    assert env.step(TURN)[4]["turns"] == 1


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_where_the_environment_was(duplicate: Any) -> None:
    # The tool runs in the caller, so that the copy needs no pool.
    env = build(noise="iid", noise_rate=0.5, tools=(Echo(),))
    env.reset(seed=9)
    env.step("<echo>1</echo>")
    twin = duplicate(env)
    for _ in range(3):
        assert [env.step("<echo>2</echo>") for _ in range(4)] == [twin.step("<echo>2</echo>") for _ in range(4)]
        assert env.reset() == twin.reset()
        env.step("hm")
        twin.step("hm")
        assert env.transcript.lines == twin.transcript.lines


def test_the_rendered_transcript_shows_turns_replies_faults_and_the_end() -> None:
    env = build(noise=IIDNoise(1.0), render_mode="ansi")
    env.reset(options={"problem": Problem("3+4", "7")})
    env.step("<python>3+4</python>")
    env.step("<answer>7</answer>")
    assert env.render() == (
        "3+4   (difficulty 1)\n"
        "[1] <python>3+4</python>\n"
        "    <error>timeout: no reply</error>   (injected fault)\n"
        "[2] <answer>7</answer>\n"
        "    answered: reward 1"
    )


def test_the_transcript_shows_silent_faults_too() -> None:
    env = build(noise=IIDNoise(1.0, faults=FaultMix("wrong_value")))
    env.reset(options={"problem": Problem("3+4", "7")})
    observation = env.step("<python>3+4</python>")[0]
    assert str(env.transcript).endswith(f"    {observation}   (silent wrong_value)")


@pytest.mark.parametrize("faults", [*KINDS, dict.fromkeys(KINDS, 0.2), FaultMix("connection")])
@pytest.mark.parametrize("noise", ["iid", "correlated", "burst"])
def test_faults_of_each_kind_can_be_asked_for_by_name(noise: str, faults: Any) -> None:
    env = build(noise=noise, noise_rate=1.0, faults=faults)
    env.reset(seed=0)
    met = {row[4]["fault_kind"] for row in turns(env, 5)}
    assert met <= ({faults} if isinstance(faults, str) else set(KINDS) if isinstance(faults, dict) else {"connection"})
    assert "" not in met


def test_a_burst_by_name_has_the_length_asked_for() -> None:
    env = build(noise="burst", noise_rate=0.25, mean_burst=7, permanent=0.5)
    assert isinstance(env.noise, BurstNoise)
    assert (env.noise.rate, env.noise.mean_burst, env.noise.faults) == (0.25, 7.0, FaultMix(permanent=0.5))


def test_a_running_reference_of_a_tool_learns_from_that_tool_only() -> None:
    running = CorrelatedNoise(0.0, 0.9, np.array([0.0, 1.0]), reference_mode="running")
    env = build(noise=PerToolNoise({"echo": running}), tools=("python", Echo()), max_turns=2)
    env.reset(seed=0)
    env.step("<echo>1+1</echo>")
    env.step("<python>1</python>")
    assert env.noise.state()["echo/reference"].tolist() == [0.0, 1.0, 0.5]
    env.reset(seed=0)
    assert env.noise.state()["echo/reference"].tolist() == [0.0, 1.0]


def test_rendering_without_a_render_mode_warns_and_shows_nothing() -> None:
    env = build()
    env.reset()
    with pytest.warns(UserWarning, match="render_mode='ansi'"):
        assert env.render() is None


def test_the_correlated_reference_is_measured_once_for_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    import tool_gym.tasks.demonstrations as demonstrations

    measured = []

    def fake(task: Any, tools: Any, pool: Any) -> Any:
        measured.append(task.offset)
        return np.array([0.0, 0.5, 1.0])

    monkeypatch.setattr(demonstrations, "reference_qualities", fake)
    monkeypatch.setattr("tool_gym.env._references", {})
    for offset in (0, 0, 1, 0):
        env = build(noise="correlated", offset=offset)
        assert env.noise.reference.tolist() == [0.0, 0.5, 1.0]  # type: ignore[attr-defined]
    assert measured == [0, 1]


def test_gymnasium_s_checker_passes_arithmetic_with_bursts_of_faults_of_every_kind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        faults = dict.fromkeys(KINDS, 0.2)
        check_env(gymnasium.make("tool_gym/Arithmetic-v0", noise="burst", faults=faults, permanent=0.2).unwrapped)


def test_gymnasium_s_checker_passes_arithmetic_with_correlated_noise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("tool_gym/Arithmetic-v0", noise="correlated", answers=4).unwrapped)


def test_arithmetic_is_solved_by_code_that_runs_in_the_real_interpreter() -> None:
    env = gymnasium.make("tool_gym/Arithmetic-v0")
    prompt, _ = env.reset(seed=2, options={"difficulty": 3})
    chain, _, answers = prompt.partition(" mod ")
    value = f"((({chain[:3]}){chain[3:5]}){chain[5:7]})"
    reply, _, _, _, info = env.step("<python>while True: pass</python>")
    assert reply.startswith("<error>")
    assert info["error_origin"] == "policy"
    reply, _, _, _, info = env.step(f"<python>\nprint({value})\n{value} % {answers}</python>")
    first, _, last = reply.removeprefix("<output>").removesuffix("</output>").partition("\n")
    assert (int(first) % int(answers), info["reasoning_quality"]) == (int(last), 1.0)
    assert env.step(f"<answer>{last}</answer>")[1:4] == (1.0, True, False)


@pytest.mark.parametrize(
    "options", [["difficulty"], "difficulty", 3, [], {"difficulty": np.array([3, 4])}, {"difficulty": 99}, {"x": 1}]
)
@pytest.mark.parametrize("vector", [False, True])
def test_a_reset_that_is_refused_leaves_the_running_episode_alone(options: object, vector: bool) -> None:
    name = "tool_gym/Arithmetic-v0"
    env = gymnasium.make_vec(name, num_envs=2) if vector else gymnasium.make(name).unwrapped
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"options|difficulty"):
        env.reset(options=options)
    turn = "<answer>x</answer>"
    terminated = env.step([turn, turn] if vector else turn)[2]
    assert np.all(terminated)
    env.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("split", ["train"]),
        ("task", ":"),
        ("noise_rate", 7),
        ("correlation", 9),
        ("reference_mode", "x"),
        ("mean_burst", 0),
        ("faults", "x"),
        ("permanent", 2),
    ],
)
def test_settings_are_checked_also_where_the_noise_has_no_use_for_them(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        gymnasium.make("tool_gym/Arithmetic-v0", **{name: value})


def test_a_stateful_environment_keeps_names_within_an_episode_and_not_beyond() -> None:
    env = ToolEnv(Sums, stateful=True)
    env.reset(seed=0)
    assert env.step("<python>x = 3</python>")[0] == "<output></output>"
    twin = copy.deepcopy(env)
    assert env.step("<python>x += 1\nx</python>")[0] == "<output>4</output>"
    assert twin.step("<python>x</python>")[0] == "<output>3</output>"
    env.reset()
    assert "NameError" in env.step("<python>x</python>")[0]


def test_a_stateless_environment_starts_each_call_afresh() -> None:
    env = ToolEnv(Sums)
    env.reset(seed=0)
    env.step("<python>x = 3</python>")
    assert "NameError" in env.step("<python>x</python>")[0]


def test_stateful_without_a_python_tool_is_refused() -> None:
    with pytest.raises(ConfigError, match="stateful"):
        ToolEnv(Sums, tools=(), stateful=True)
    with pytest.raises(ConfigError, match="stateful"):
        ToolEnv(Sums, stateful="yes")  # type: ignore[arg-type]


def test_long_output_is_cut_in_the_middle_and_says_so() -> None:
    env = ToolEnv(Sums, max_output_chars=60)
    env.reset(seed=0)
    observation = env.step("<python>print('a' * 500 + 'z')</python>")[0]
    assert observation == "<output>" + "a" * 19 + "[...cut, 501 in all...]" + "a" * 17 + "z</output>"
    with pytest.raises(ConfigError, match="max_output_chars"):
        ToolEnv(Sums, max_output_chars=10)
