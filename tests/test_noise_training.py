"""Faults of every kind in a run: the noise of a configuration, outages of a step, runs that are resumed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from agents import trainer
from agents.config import Config, NoiseConfig
from agents.setup import Setup, make_noise
from agents.trainer import Trainer
from tests.tiny import Silent, rows, tiny_config
from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise import KINDS, BurstNoise, CorrelatedNoise, FaultMix, IIDNoise, NoNoise, PerToolNoise

REFERENCE = np.tile([0.0, 0.5, 1.0], 100)
BURSTS = {
    "noise.kind": "burst",
    "noise.rate": 0.5,
    "noise.mean_burst": 2.5,
    "noise.faults": {"timeout": 0.4, "malformed": 0.3, "wrong_value": 0.3},
    "noise.permanent": 0.2,
}


@pytest.fixture
def cache(tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    """A folder for runs that has their cold starts."""
    return tiny_cold_starts(tmp_path)


def start(config: Config) -> Trainer:
    """A trainer after the cold start, before its first step."""
    opened = Trainer(config, Path(config.run.runs_dir) / "none", Silent())
    opened.prepare()
    return opened


def test_each_kind_of_a_configuration_is_its_model_with_its_faults() -> None:
    mix, config = FaultMix({"timeout": 0.5, "connection": 0.5}, 0.1), {"timeout": 0.5, "connection": 0.5}
    built = {
        kind: make_noise(NoiseConfig(kind=kind, faults=config, permanent=0.1), REFERENCE)
        for kind in ("none", "iid", "correlated", "burst")
    }
    assert {kind: type(noise) for kind, noise in built.items()} == {
        "none": NoNoise,
        "iid": IIDNoise,
        "correlated": CorrelatedNoise,
        "burst": BurstNoise,
    }
    assert all(noise.faults == mix for kind, noise in built.items() if kind != "none")
    assert make_noise(NoiseConfig(), REFERENCE).faults == FaultMix("timeout")


def test_a_tool_may_have_a_rate_of_its_own() -> None:
    config = NoiseConfig(kind="correlated", rate=0.3, reference="running", tool_rates={"python": 0.1, "search": 0.0})
    noise = make_noise(config, REFERENCE)
    assert isinstance(noise, PerToolNoise)
    assert noise.rate == 0.3
    assert {tool: model.rate for tool, model in noise.models.items()} == {"python": 0.1, "search": 0.0}
    modes = [model.reference_mode for model in noise.models.values() if isinstance(model, CorrelatedNoise)]
    assert modes == ["running"] * 2
    frozen = make_noise(config, REFERENCE, frozen=True)
    frozen.observe_calls(np.array([0.25]), ["python"])
    assert frozen.state()["python/reference"].tolist() == REFERENCE.tolist()


def test_a_rate_for_a_tool_that_the_environment_does_not_have_is_refused_before_any_work(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **{"noise.tool_rates": {"search": 0.5}})
    with pytest.raises(
        ConfigError, match=r"noise\.tool_rates: got 'search'; allowed: tools of the environment: python"
    ):
        Setup.open(config)
    assert list(tmp_path.iterdir()) == []


def test_all_rollouts_of_a_step_are_in_the_same_outages_and_each_step_in_its_own(cache: Path) -> None:
    config = tiny_config(cache, **{"noise.kind": "burst", "noise.rate": 0.5, "noise.mean_burst": 2.5})
    opened = start(config)
    batches = [opened.sample(step) for step in range(1, 9)]
    opened.setup.close()
    noise = BurstNoise(0.5, 2.5)
    first = []
    for step, batch in enumerate(batches, start=1):
        numbers = batch.calls.number_C
        down = noise.draw(np.zeros(8), np.full(8, rng.key(0, "noise", step)), np.arange(8))
        assert np.array_equal(batch.calls.scheduled_C, down[numbers])
        assert np.array_equal(batch.calls.landed_C, down[numbers] & batch.calls.eligible_C)
        assert len(numbers) > 20
        first.append(bool(down[0]))
    assert 0 < sum(first) < 8


def test_in_an_evaluation_each_problem_has_outages_of_its_own(cache: Path) -> None:
    config = tiny_config(cache, **{"noise.kind": "burst", "noise.rate": 0.5, "run.eval_problems": 64})
    opened = start(config)
    batch = opened.evaluator.play(opened.policy, "validation", ["noisy"])["noisy"]
    opened.setup.close()
    first = batch.calls.number_C == 0
    assert 0.25 < batch.calls.scheduled_C[first].mean() < 0.75


def test_a_run_under_bursts_of_every_kind_of_fault_is_the_same_however_it_is_run_and_resumed(cache: Path) -> None:
    folder = trainer.train(tiny_config(cache, **BURSTS), Silent())
    whole = rows(folder)
    for kind in ("timeout", "malformed", "wrong_value"):
        assert sum(row[f"noise/scheduled_{kind}"] or 0 for row in whole) > 0
    assert sum(row["noise/landed"] or 0 for row in whole) > 0
    assert all(row["noise/scheduled_connection"] == 0 for row in whole[1:])
    assert {name for name in whole[0] if name.startswith("noise/")} >= {f"noise/recovered_{kind}" for kind in KINDS}
    trajectories = (folder / "trajectories.jsonl").read_bytes()
    # After a kill between the checkpoints of steps 2 and 4.
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    trainer.resume(folder, Silent())
    assert rows(folder) == whole
    assert (folder / "trajectories.jsonl").read_bytes() == trajectories
    other = tiny_config(cache, **BURSTS, **{"run.name": "other", "run.workers": 2, "run.live_rows": 24})
    assert rows(trainer.train(other, Silent())) == whole


def test_the_references_of_several_tools_are_kept_in_checkpoints(cache: Path) -> None:
    changes = {"noise.reference": "running", "noise.tool_rates": {"python": 0.5}, "run.name": "tools"}
    folder = trainer.train(tiny_config(cache, **changes), Silent())
    whole = rows(folder)
    first, last = (load_file(folder / f"checkpoints/step_00000{step}/noise.safetensors") for step in (0, 4))
    assert set(first) == set(last) == {"python/reference", "*/reference"}
    assert first["python/reference"].tolist() != last["python/reference"].tolist()
    assert first["*/reference"].tolist() == last["*/reference"].tolist()
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "checkpoints" / "step_000004")
    trainer.resume(folder, Silent())
    assert rows(folder) == whole
