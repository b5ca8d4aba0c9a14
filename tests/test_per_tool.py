"""Another noise for each tool: its rate, its faults, its reference, its outages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.episode_fakes import Echo, FakePool, Sums
from tool_gym import ToolEnv, rng
from tool_gym.episodes import Episodes
from tool_gym.errors import ConfigError
from tool_gym.noise import BurstNoise, Calls, CorrelatedNoise, FaultMix, IIDNoise, NoNoise, PerToolNoise

TOOLS = ["python", "search", "echo"]
N = 30_000


def calls(n: int = N, *, tools: list[str] | None = None) -> Calls:
    keys = rng.key(0, "noise", np.arange(n))
    names = [TOOLS[i % 3] for i in range(n)] if tools is None else tools
    return Calls(np.linspace(0, 1, n), keys, np.arange(n) % 4, keys, names)


def test_each_tool_fails_at_its_rate_and_in_its_way() -> None:
    noise = PerToolNoise({"python": IIDNoise(0.5), "search": IIDNoise(0.1, faults=FaultMix("connection"))})
    faults = noise.strike(calls())
    python, search, echo = ([fault for fault in faults[place::3] if fault is not None] for place in range(3))
    assert len(python) / (N / 3) == pytest.approx(0.5, abs=0.02)
    assert len(search) / (N / 3) == pytest.approx(0.1, abs=0.02)
    assert echo == []
    assert {fault.kind for fault in python} == {"timeout"}
    assert {fault.kind for fault in search} == {"connection"}


def test_an_environment_takes_rates_by_the_names_of_its_tools() -> None:
    env = ToolEnv(Sums, tools=(Echo(),), noise="iid", noise_rate=0.1, tool_rates={"echo": 1.0}, faults="connection")
    env.reset(seed=0)
    assert env.step("<echo>1</echo>")[4]["fault_kind"] == "connection"
    assert isinstance(env.noise, PerToolNoise)
    assert env.noise.rate == 0.1
    refused = (
        ({"search": 0.5}, "tool_rates: got 'search'; allowed: tools of the environment: echo"),
        ({"echo": 1.5}, r"tool_rates\['echo'\]: got 1.5"),
        (0.5, "a rate for each of some tools, by name"),
    )
    for rates, told in refused:
        with pytest.raises(ConfigError, match=told):
            ToolEnv(Sums, tools=(Echo(),), noise="iid", tool_rates=rates)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nothing where `noise` is a NoiseModel"):
        ToolEnv(Sums, tools=(Echo(),), noise=IIDNoise(0.5), tool_rates={"echo": 0.5})


def test_a_tool_s_faults_are_those_of_its_model_alone() -> None:
    noise = PerToolNoise({"python": IIDNoise(0.5)}, default=CorrelatedNoise(0.3, 0.9, [0.0, 0.5, 1.0]))
    mixed, alone = noise.strike(calls(600)), IIDNoise(0.5).strike(calls(600))
    assert mixed[::3] == alone[::3]
    assert mixed[1::3] == noise.default.strike(calls(600))[1::3]


def test_tools_with_models_of_their_own_have_outages_of_their_own() -> None:
    burst = BurstNoise(0.5, 50.0)
    noise = PerToolNoise({"python": burst, "search": burst}, default=burst)
    struck = [[f is not None for f in noise.strike(calls(900, tools=[tool] * 900))] for tool in TOOLS]
    assert np.abs(np.corrcoef(struck) - np.eye(3)).max() < 0.15
    # The default's are those of the model without the others.
    assert struck[2] == burst.schedule(calls(900)).tolist()


def test_each_running_reference_learns_from_its_own_tool() -> None:
    def running() -> CorrelatedNoise:
        return CorrelatedNoise(0.3, 0.9, [0.5], reference_mode="running")

    noise = PerToolNoise({"python": running(), "search": running()}, default=running())
    noise.observe_calls(np.array([0.1, 0.2, 0.3, 0.4]), ["python", "search", "python", "echo"])
    references = {name: value.tolist() for name, value in noise.state().items()}
    assert references == {
        "python/reference": [0.5, 0.1, 0.3],
        "search/reference": [0.5, 0.2],
        "*/reference": [0.5, 0.4],
    }
    noise.observe_calls(np.zeros(0), [])
    twin = PerToolNoise({"python": running(), "search": running()}, default=running())
    twin.load_state(noise.state())
    assert {name: value.tolist() for name, value in twin.state().items()} == references
    assert twin.strike(calls(600)) == noise.strike(calls(600))


def test_a_state_of_which_a_part_is_refused_changes_nothing() -> None:
    noise = PerToolNoise({"python": CorrelatedNoise(0.3, 0.9, [0.5])}, default=IIDNoise(0.1))
    for state in (
        {"python/reference": np.array([0.1]), "*/reference": np.array([0.1])},
        {"python/reference": np.array([2.0])},
        {"search/reference": np.array([0.1])},
        {"reference": np.array([0.1])},
        {},
    ):
        with pytest.raises(ConfigError):
            noise.load_state(state)
        assert noise.state()["python/reference"].tolist() == [0.5]


def test_without_a_tool_the_default_answers() -> None:
    default = CorrelatedNoise(0.3, 0.9, [0.0, 0.5, 1.0], reference_mode="running")
    noise = PerToolNoise({"python": IIDNoise(0.9)}, default)
    assert noise.rate == 0.3
    assert noise.fault_probability(0.5) == default.fault_probability(0.5)
    c = calls(300)
    drawn = noise.draw(c.qualities, c.keys, c.numbers)
    assert drawn.tolist() == default.draw(c.qualities, c.keys, c.numbers).tolist()
    noise.observe([0.25])
    assert default.reference.tolist() == [0.0, 0.5, 1.0, 0.25]


@pytest.mark.parametrize("models", [{}, None, {"python": 0.3}, IIDNoise(0.3)])
def test_what_is_no_model_for_a_tool_is_refused(models: Any) -> None:
    with pytest.raises(ConfigError, match="models"):
        PerToolNoise(models)
    with pytest.raises(ConfigError, match="default"):
        PerToolNoise({"python": NoNoise()}, default="iid")  # type: ignore[arg-type]


def test_a_model_for_a_tool_that_is_not_there_is_refused_before_any_episode() -> None:
    noise = PerToolNoise({"pyhton": IIDNoise(0.3)})
    with pytest.raises(ConfigError, match=r"pyhton.*python, echo"):
        Episodes(Sums(), ("python", Echo()), noise=noise, pool=FakePool())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pyhton"):
        ToolEnv(Sums, noise=PerToolNoise({"python": NoNoise()}, default=noise))


def test_in_an_environment_each_tool_meets_its_own_faults() -> None:
    noise = PerToolNoise({"echo": IIDNoise(1.0, faults=FaultMix("connection"))})
    env = ToolEnv(Sums, ("python", Echo()), noise=noise, pool=FakePool())  # type: ignore[arg-type]
    env.reset(seed=0)
    assert env.step("<python>3</python>")[0] == "<output>3</output>"
    assert env.step("<echo>3</echo>")[0] == "<error>connection: reset</error>"
