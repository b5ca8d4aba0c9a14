from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import tool_gym
from tests.episode_fakes import Echo, Sums
from tool_gym.env import ToolEnv
from tool_gym.errors import ConfigError
from tool_gym.registration import DEFAULT_MAX_TURNS, register, resolve, tool_environments
from tool_gym.vector import ToolVectorEnv

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    before = dict(gymnasium.registry)
    sys.modules.pop("tests.registered_module", None)  # so that importing it registers again
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def test_a_registered_environment_is_made_with_its_task_tools_and_budget() -> None:
    register("tests/Own-v0", task=Sums, tools=(Echo(),), max_turns=2, kwargs={"offset": 3})
    env = gymnasium.make("tests/Own-v0", difficulty=2).unwrapped
    assert isinstance(env, ToolEnv)
    assert isinstance(env.task, Sums)
    assert env.task.offset == 3
    assert (env.episodes.max_turns, [tool.name for tool in env.episodes.tools]) == (2, ["echo"])
    vector = gymnasium.make_vec("tests/Own-v0", num_envs=2, max_turns=4)
    assert isinstance(vector, ToolVectorEnv)
    assert vector.episodes.max_turns == 4


def test_settings_of_make_are_over_those_of_registration() -> None:
    register("tests/Own-v0", task=Sums, kwargs={"offset": 3})
    assert gymnasium.make("tests/Own-v0", offset=4).unwrapped.task.offset == 4  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="answers"):
        gymnasium.make("tests/Own-v0", answers=4)


def test_an_id_belongs_to_one_class_which_may_be_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    register("tests/Own-v0", task=Sums)
    register("tests/Own-v0", task=Sums, max_turns=3)
    register("tests/Own-v0", task="tests.episode_fakes:Sums")
    assert resolve("tests/Own-v0").max_turns == DEFAULT_MAX_TURNS
    with pytest.raises(ConfigError, match=r"it is that of Arithmetic \(del gymnasium\.registry"):
        register("tool_gym/Arithmetic-v0", task=Sums)
    with pytest.raises(ConfigError, match=r"it is that of gymnasium\.envs\.classic_control"):
        register("CartPole-v1", task=Sums)
    # As where a module that is run as a program is imported, too.
    monkeypatch.setattr(Sums, "__module__", "__main__")
    register("tests/Own-v0", task=Sums)


def test_a_class_that_leaves_out_a_method_is_told_which() -> None:
    class Unfinished(tool_gym.Task):
        def sample(self, rng: Any, difficulty: int) -> tool_gym.Problem:
            return tool_gym.Problem("1", "1")

    with pytest.raises(ConfigError, match="'Unfinished'; allowed: a class that defines demonstrate, reasoning_quality"):
        ToolEnv(Unfinished)


def test_a_parameter_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="maxturns: got 2; allowed: task, tools, max_turns"):
        register("tests/Own-v0", task=Sums, maxturns=2)


def test_further_parameters_go_to_gymnasium() -> None:
    register("tests/Own-v0", task=Sums, reward_threshold=0.9, order_enforce=False)
    spec = gymnasium.spec("tests/Own-v0")
    assert (spec.reward_threshold, spec.order_enforce) == (0.9, False)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"task": dict}, "task"),
        ({"task": 7}, "task"),
        ({"task": Sums, "tools": ("perl",)}, "tools"),
        ({"task": Sums, "tools": "python"}, "tools"),
        ({"task": Sums, "max_turns": 0}, "max_turns"),
        ({"task": Sums, "max_episode_steps": 5}, "max_episode_steps"),
        ({"task": Sums, "entry_point": "a:B"}, "entry_point"),
    ],
)
def test_a_bad_registration_is_refused_and_registers_nothing(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        register("tests/Bad-v0", **settings)
    assert caught.value.field == field
    assert "tests/Bad-v0" not in gymnasium.registry


def test_resolve_gives_what_a_trainer_needs() -> None:
    register("tests/Own-v0", task=Sums, tools=("python", Echo()), max_turns=3, kwargs={"offset": 3, "noise": "iid"})
    resolved = resolve("tests/Own-v0")
    assert isinstance(resolved.task, Sums)
    assert (resolved.task.offset, resolved.max_turns) == (3, 3)
    assert [tool.name for tool in resolved.tools] == ["python", "echo"]
    other = resolve("tests/Own-v0", offset=9).task
    assert isinstance(other, Sums)
    assert other.offset == 9


def test_resolve_imports_the_module_of_the_module_id_form() -> None:
    resolved = resolve("tests.registered_module:tests/Imported-v0")
    assert isinstance(resolved.task, Sums)
    assert (resolved.task.offset, resolved.max_turns) == (2, 3)
    assert gymnasium.make("tests.registered_module:tests/Imported-v0").unwrapped.task.offset == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "env_id",
    ["tool_gym/Nothing-v0", "CartPole-v1", "no_such_module:tests/Own-v0", "tests.registered_module:Nope-v0", ""],
)
def test_an_id_that_is_no_tool_environment_is_refused_with_those_that_are(env_id: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(env_id)
    assert caught.value.field == "env"
    assert "tool_gym/Arithmetic-v0" in str(caught.value) or "no_such_module" in str(caught.value)


def test_a_module_that_exists_but_fails_to_import_raises_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_environments.py").write_text("import package_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="package_that_is_missing"):
        resolve("broken_environments:tests/Own-v0")


def test_a_setting_that_the_task_needs_is_asked_for() -> None:
    class Needy(Sums):
        def __init__(self, offset: int) -> None:
            super().__init__(offset)

    register("tests/Needy-v0", task=Needy)
    with pytest.raises(ConfigError, match="offset"):
        resolve("tests/Needy-v0")
    assert isinstance(resolve("tests/Needy-v0", offset=1).task, Needy)


def test_arithmetic_is_registered_and_its_spec_can_be_written_as_json() -> None:
    spec = gymnasium.spec("tool_gym/Arithmetic-v0")
    assert gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()).kwargs["max_turns"] == 5
    resolved = resolve("tool_gym/Arithmetic-v0", answers=4)
    assert resolved.task.answers == 4  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="answers"):
        resolve("tool_gym/Arithmetic-v0", answers=1)


def test_only_tool_environments_are_listed_in_order() -> None:
    register("tests/B-v0", task=Sums)
    register("tests/A-v0", task=Sums)
    listed = list(tool_environments())
    assert listed == sorted(listed)
    assert {"tests/A-v0", "tests/B-v0", "tool_gym/Arithmetic-v0"} <= set(listed)
    assert "CartPole-v1" not in listed


def test_importing_the_package_is_light() -> None:
    script = (
        "import sys, tool_gym\n"
        "heavy = {'torch', 'scipy', 'matplotlib', 'agents', 'experiments'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_package_exports_what_it_says() -> None:
    assert all(hasattr(tool_gym, name) for name in tool_gym.__all__)
    assert sorted(tool_gym.__all__) == tool_gym.__all__


def test_gymnasium_s_async_vector_env_finds_the_environment_in_its_workers() -> None:
    env = gymnasium.make_vec(
        "tests.registered_module:tests/Imported-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
    )
    try:
        expected = gymnasium.make_vec("tests.registered_module:tests/Imported-v0", num_envs=2)
        assert env.reset(seed=3)[0] == expected.reset(seed=3)[0]
        turns = ("<echo>1</echo>", "hm")
        assert env.step(turns)[0] == expected.step(turns)[0]
    finally:
        env.close()


def test_a_registered_environment_may_keep_the_state_of_its_python_tool() -> None:
    register("tests/Own-v0", task=Sums, stateful=True)
    assert [tool.stateful for tool in resolve("tests/Own-v0").tools] == [True]  # type: ignore[attr-defined]
    for settings, kept in (({}, True), ({"stateful": False}, False)):
        env = gymnasium.make("tests/Own-v0", **settings).unwrapped
        assert [tool.stateful for tool in env.episodes.tools] == [kept]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="stateful"):
        register("tests/Other-v0", task=Sums, tools=(Echo(),), stateful=True)
