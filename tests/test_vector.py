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
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.episode_fakes import Echo, FakePool, Sums
from tool_gym import ToolEnv, ToolVectorEnv
from tool_gym.checker import STYLES
from tool_gym.errors import ConfigError, ToolGymError
from tool_gym.noise import KINDS, BurstNoise, CorrelatedNoise, FaultMix, IIDNoise, NoiseModel, NoNoise, PerToolNoise
from tool_gym.tasks.base import Problem
from tool_gym.tasks.retrieval import lookup

MODES = list(AutoresetMode)
MIX = FaultMix({"timeout": 0.4, "malformed": 0.2, "truncated": 0.1, "wrong_value": 0.3}, permanent=0.3)
NOISES = {
    "none": "none",
    "iid": "iid",
    "burst": "burst",
    "correlated": CorrelatedNoise(0.5, 0.9, np.array([0.0, 0.5, 0.5, 1.0])),
    "mixture": IIDNoise(0.5, faults=MIX),
    "per tool": PerToolNoise({"python": BurstNoise(0.5, 2.0, faults=MIX)}),
}
ACTIONS = [
    "<python>1+1</python>",
    "<python>((</python>",
    "<python>3",
    "hm",
    "<answer>1</answer>",
    "<answer>1</answer><answer>{answer}</answer>",
    "<answer>{answer}</answer>",
    "<python>{prompt}</python>",
]


def build(num_envs: int = 4, task: Any = Sums, **settings: Any) -> ToolVectorEnv:
    return ToolVectorEnv(num_envs, task, **{"pool": FakePool(), **settings})


def sync(num_envs: int = 4, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **settings: Any) -> SyncVectorEnv:
    settings = {"pool": FakePool(), **settings}
    return SyncVectorEnv([lambda: ToolEnv(Sums, **settings)] * num_envs, autoreset_mode=mode)


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal in structure, types, dtypes and values."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for name in ours:
            assert_same(ours[name], theirs[name])
    elif isinstance(ours, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def scripted_actions(prompts: list[str], rng: np.random.Generator) -> tuple[str, ...]:
    """Turns of every kind, some of them right."""
    chosen = []
    for prompt in prompts:
        a, _, b = prompt.partition("+")
        action = ACTIONS[rng.integers(len(ACTIONS))]
        chosen.append(action.format(prompt=prompt, answer=int(a) + int(b)))
    return tuple(chosen)


@pytest.mark.parametrize("noise", list(NOISES.values()), ids=list(NOISES))
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("seed", [5, [3, None, 3, 9]], ids=["int", "list"])
def test_it_equals_gymnasium_s_sync_vector_env_step_by_step(mode: AutoresetMode, noise: Any, seed: Any) -> None:
    settings = {"noise": noise, "noise_rate": 0.4, "max_turns": 3}
    ours, theirs = build(autoreset_mode=mode, **settings), sync(mode=mode, **settings)
    assert_same(ours.metadata, theirs.metadata)
    if isinstance(seed, list):
        # The sub-environment without a seed draws from a generator of its own: give both the same.
        ours._generators[1] = np.random.default_rng(1)
        theirs.envs[1].unwrapped.np_random = np.random.default_rng(1)
    begun = ours.reset(seed=seed)
    assert_same(begun, theirs.reset(seed=seed))
    prompts = list(begun[0])
    rng = np.random.default_rng(0)
    ends = successes = faults = 0
    for _ in range(40):
        actions = scripted_actions(prompts, rng)
        mine = ours.step(actions)
        assert_same(mine, theirs.step(actions))
        ended = mine[2] | mine[3]
        ends, successes = ends + int(ended.sum()), successes + int(mine[1].sum())
        faults += sum(kind in KINDS for kind in mine[4]["fault_kind"])
        if mode is AutoresetMode.DISABLED and ended.any():
            reset = ours.reset(options={"reset_mask": ended})
            assert_same(reset, theirs.reset(options={"reset_mask": ended}))
            mine = (reset[0], *mine[1:])
        prompts = [text if re.fullmatch(r"\d+\+\d+", text) else old for text, old in zip(mine[0], prompts, strict=True)]
    assert ends > 20
    assert successes > 5
    assert (faults > 5) == (noise != "none")
    assert_same(ours.reset(), theirs.reset())


def test_the_tool_calls_of_a_step_are_one_batch() -> None:
    pool = FakePool()
    env = build(3, pool=pool)
    env.reset(seed=0)
    env.step(["<python>1</python>", "hm", "<python>2</python>"])
    assert pool.batches == [["1", "2"]]


def test_results_that_come_in_out_of_order_are_put_where_they_belong() -> None:
    env = build(3, pool=FakePool(lambda n: [[2], [], [0], [1]]))
    env.reset(seed=0)
    observations = env.step(["<python>1</python>", "<python>2</python>", "<python>3</python>"])[0]
    assert observations == ("<output>1</output>", "<output>2</output>", "<output>3</output>")


def test_the_last_observation_and_info_of_an_episode_survive_a_reset_in_the_same_step() -> None:
    env = build(2, max_turns=1, autoreset_mode="SameStep")
    env.reset(seed=0)
    observations, _, _, truncated, infos = env.step(["<python>1</python>", "<answer>x</answer>"])
    assert truncated.tolist() == [True, False]
    assert infos["final_obs"].tolist() == ["<output>1</output>", ""]
    assert infos["final_info"]["turns"].tolist() == [1, 1]
    assert infos["turns"].tolist() == [0, 0]
    assert all("+" in observation for observation in observations)


def test_an_ended_episode_that_nobody_reset_refuses_a_step_and_runs_no_tool() -> None:
    pool = FakePool()
    env = build(2, pool=pool, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(["<python>1</python>"] * 2)
    env.reset(seed=0)
    env.step(["<answer>1</answer>", "hm"])
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(["<python>1</python>"] * 2)
    assert pool.batches == []
    env.reset(options={"reset_mask": np.array([True, False])})
    assert env.step(["<python>1</python>"] * 2)[4]["turns"].tolist() == [1, 2]


def test_options_hold_for_every_sub_environment() -> None:
    env = build(2)
    assert env.reset(options={"problem": Problem("9+9", "18")})[0] == ("9+9", "9+9")
    options = {"reset_mask": np.array([False, True]), "difficulty": 3}
    observations, infos = env.reset(options=options)
    assert observations[0] == "9+9"
    assert infos["difficulty"].tolist() == [0, 3]
    assert infos["_difficulty"].tolist() == [False, True]
    assert set(options) == {"reset_mask", "difficulty"}


@pytest.mark.parametrize(
    "mask",
    [[True, False], np.array([True]), np.array([1, 0]), np.array([False, False])],
)
def test_a_bad_reset_mask_is_refused(mask: Any) -> None:
    env = build(2)
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="reset_mask"):
        env.reset(options={"reset_mask": mask})


def test_the_wrong_number_of_seeds_or_actions_is_refused() -> None:
    env = build(2)
    with pytest.raises(ConfigError, match="seed"):
        env.reset(seed=[1])
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="actions"):
        env.step(["hm"])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"num_envs": 0}, "num_envs"),
        ({"num_envs": 2.0}, "num_envs"),
        ({"autoreset_mode": "sometimes"}, "autoreset_mode"),
        ({"render_mode": "human"}, "render_mode"),
        ({"split": "eval"}, "split"),
        ({"answers": 4}, "answers"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    assert caught.value.field == field


def test_a_running_reference_is_shared_and_a_seeded_reset_starts_it_afresh() -> None:
    noise = CorrelatedNoise(0.0, 0.9, np.array([0.0, 1.0]), reference_mode="running")
    env = build(2, noise=noise, max_turns=1)
    env.reset(seed=0)
    env.step(["<python>1</python>", "<python>1+1</python>"])
    assert env.noise.reference.tolist() == [0.0, 1.0, 0.0, 0.5]  # type: ignore[attr-defined]
    env.reset()
    assert len(env.noise.reference) == 4  # type: ignore[attr-defined]
    env.reset(seed=0)
    assert env.noise.reference.tolist() == [0.0, 1.0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_where_the_environment_was(duplicate: Any) -> None:
    env = build(2, tools=(Echo(),), noise="iid", max_turns=2)
    env.reset(seed=4)
    env.step(["<echo>1</echo>", "<answer>1</answer>"])
    twin = duplicate(env)
    for _ in range(6):
        assert_same(env.step(["<echo>2</echo>"] * 2), twin.step(["<echo>2</echo>"] * 2))


def test_it_renders_the_transcript_of_each_sub_environment() -> None:
    env = build(2, render_mode="ansi")
    env.reset(options={"problem": Problem("3+4", "7")})
    env.step(["hm", "<answer>7</answer>"])
    first, second = env.render() or ()
    assert first.endswith("[1] hm\n    <error>FormatError: no block</error>")
    assert second.endswith("[1] <answer>7</answer>\n    answered: reward 1")
    assert build(1).render() is None


def test_observations_and_samples_are_in_the_batched_spaces() -> None:
    env = build(3)
    observations, _ = env.reset(seed=0)
    assert observations in env.observation_space
    actions = env.action_space.sample()
    assert env.step(actions)[0] in env.observation_space


def test_seeds_and_generators_of_the_sub_environments_can_be_read() -> None:
    env = build(2)
    assert all(isinstance(seed, int) for seed in env.np_random_seed)
    env.reset(seed=8)
    assert env.np_random_seed == (8, 9)
    assert len(env.np_random) == 2


def test_closing_leaves_nothing_to_step() -> None:
    env = build(1)
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ToolGymError, match="closed"):
        env.reset()


@pytest.fixture
def registered() -> Iterator[str]:
    import tool_gym

    tool_gym.register("tests/VectorSums-v0", task=Sums, tools=(Echo(),), max_turns=2)
    yield "tests/VectorSums-v0"
    del gymnasium.registry["tests/VectorSums-v0"]


def test_make_vec_gives_it_without_a_warning_and_takes_the_autoreset_mode(registered: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make_vec(registered, num_envs=3, autoreset_mode=AutoresetMode.SAME_STEP, noise="iid", offset=2)
        assert isinstance(env, ToolVectorEnv)
        assert (env.num_envs, env.metadata["autoreset_mode"]) == (3, AutoresetMode.SAME_STEP)
        env.reset(seed=1)
        env.step(("<echo>1</echo>",) * 3)
        sync = gymnasium.make_vec(registered, num_envs=3, vectorization_mode="sync", noise="iid", offset=2)
        mine = gymnasium.make_vec(registered, num_envs=3, noise="iid", offset=2)
    assert_same(mine.reset(seed=1), sync.reset(seed=1))
    for _ in range(5):
        assert_same(mine.step(("<echo>1</echo>",) * 3), sync.step(("<echo>1</echo>",) * 3))


def test_gymnasium_s_vector_wrappers_work_on_it(registered: str) -> None:
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec(registered, num_envs=2))
    env.reset(seed=0)
    env.step(["<echo>1</echo>", "hm"])
    infos = env.step(["<echo>1</echo>", "hm"])[4]
    assert infos["episode"]["l"].tolist() == [2, 2]
    listed: Any = gymnasium.wrappers.vector.DictInfoToList(gymnasium.make_vec(registered, num_envs=2)).reset(seed=0)[1]
    assert [info["turns"] for info in listed] == [0, 0]


FAMILIES = {"Arithmetic": "python", "Assignments": "python", "Retrieval": "lookup"}


def family_noise(kind: str, tool: str) -> NoiseModel:
    """A noise of each kind; references are given, for measuring them would be most of the work."""
    if kind == "correlated":
        return CorrelatedNoise(0.5, 0.9, np.array([0.0, 0.5, 0.5, 1.0]))
    if kind == "per tool":
        return PerToolNoise({tool: BurstNoise(0.5, 2.0), "echo": IIDNoise(0.5, faults=MIX)})
    return {"none": NoNoise(), "iid": IIDNoise(0.5), "burst": BurstNoise(0.5, 2.0), "mixture": NOISES["mixture"]}[kind]


class Demonstrated:
    """Plays demonstrations of every style in each sub-environment, and now and then a turn of another kind."""

    def __init__(self, single: SyncVectorEnv) -> None:
        self.envs: list[Any] = [env.unwrapped for env in single.envs]
        self.rng = np.random.default_rng(0)
        self.problems: list[Any] = [None] * len(self.envs)
        self.turns: list[list[str]] = [[] for _ in self.envs]

    def actions(self) -> tuple[str, ...]:
        return tuple(self._action(index) for index in range(len(self.envs)))

    def _action(self, index: int) -> str:
        task, problem = self.envs[index].task, self.envs[index].problem
        if problem is not self.problems[index]:
            self.problems[index] = problem
            self.turns[index] = task.demonstrate(problem, self.rng, STYLES[self.rng.integers(len(STYLES))])
        if self.rng.random() < 0.2 or not self.turns[index]:
            return ("hm", "<echo>12</echo>", "<echo>", "<answer>?</answer>")[self.rng.integers(4)]
        return self.turns[index].pop(0)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("kind", ["none", "iid", "correlated", "burst", "mixture", "per tool"])
@pytest.mark.parametrize(("family", "tool"), FAMILIES.items(), ids=list(FAMILIES))
def test_every_family_equals_single_environments_step_by_step(
    family: str, tool: str, kind: str, mode: AutoresetMode
) -> None:
    """With the real interpreter: the pool that all environments of a process share."""
    tools = ("python" if tool == "python" else lookup, Echo())
    settings: dict[str, Any] = {"noise": family_noise(kind, tool), "tools": tools}
    env_id = f"tool_gym/{family}-v0"
    ours = gymnasium.make_vec(env_id, num_envs=3, autoreset_mode=mode, **settings)
    single = [lambda: gymnasium.make(env_id, disable_env_checker=True, **settings).unwrapped] * 3
    theirs = SyncVectorEnv(single, autoreset_mode=mode)
    assert_same(ours.reset(seed=2), theirs.reset(seed=2))
    player = Demonstrated(theirs)
    ends = successes = faults = 0
    for _ in range(20):
        actions = player.actions()
        mine = ours.step(actions)
        assert_same(mine, theirs.step(actions))
        ended = mine[2] | mine[3]
        ends, successes = ends + int(ended.sum()), successes + int(mine[1].sum())
        faults += sum(fault in KINDS for fault in mine[4]["fault_kind"])
        if mode is AutoresetMode.DISABLED and ended.any():
            options = {"reset_mask": ended}
            assert_same(ours.reset(options=options), theirs.reset(options=options))
    assert ends > 5
    assert successes > 0
    assert (faults > 0) == (kind != "none")
    ours.close()
    theirs.close()
