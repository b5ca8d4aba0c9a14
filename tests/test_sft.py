"""The cold start: what it shows, what it trains on, and that it is shared, cached and reproducible."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import torch

import tool_gym
from agents import coldstart, sft
from agents.coldstart import cold_start
from agents.config import Config, SFTConfig
from agents.rollout import Play
from agents.setup import Setup
from agents.tokenizer import BOS, END
from tests.tiny import tiny_config
from tool_gym import rng
from tool_gym.episodes import EpisodeSpec
from tool_gym.errors import ConfigError, InfrastructureError
from tool_gym.noise import NoNoise
from tool_gym.registration import Resolved
from tool_gym.tasks import Arithmetic
from tool_gym.tasks.demonstrations import play_demonstrations
from tool_gym.tools import Finished, PythonTool, ToolResult


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    opened = Setup.open(tiny_config(tmp_path))
    yield opened
    opened.close()


def test_a_demonstration_trains_its_turns_and_their_ends_and_no_reply(setup: Setup) -> None:
    task, tokenizer = setup.env.task, setup.tokenizer
    problem = setup.problem(rng.key(0, "task"), setup.difficulties, "train")
    for style in task.mixture:
        (played,) = play_demonstrations(setup.episodes(NoNoise()), [problem], [style], rng.key(0, "cold_start", [7]))
        tokens, written = sft.encode_demonstration(tokenizer, played)
        own = [token for token, mine in zip(tokens, written, strict=True) if mine]
        assert own == [token for turn in played.turns for token in [*tokenizer.encode(turn), END]]
        assert own.count(END) == len(played.turns)
        others = [token for token, mine in zip(tokens, written, strict=True) if not mine]
        assert others[0] == BOS
        assert tokenizer.decode(tokens) == problem.prompt + "".join(
            turn + reply for turn, reply in zip(played.turns, played.observations, strict=True)
        )
        assert not set(own) & set(tokenizer.forbidden_ids)


def test_the_loss_falls_and_only_what_is_written_counts(setup: Setup) -> None:
    config = SFTConfig(steps=60, batch=16, demonstrations=128, warmup=5, learning_rate=1e-2)
    examples = sft.demonstrate(setup.env, setup.pool, setup.tokenizer, config, difficulties=(3,), seed=0, context=256)
    policy = setup.new_policy()
    losses = sft.train(policy, examples, config, seed=0)
    assert losses[0] == pytest.approx(np.log(len(setup.tokenizer)), rel=0.15)
    assert losses[-1] < 0.7 * losses[0]
    policy = setup.new_policy()
    scrambled = examples.tokens_MT.copy()
    # What follows a row's last written token is never seen by what is trained.
    scrambled[np.arange(scrambled.shape[1]) >= examples.lengths_M[:, None]] = 5
    assert sft.train(policy, sft.Examples(scrambled, examples.written_MT, examples.lengths_M), config, seed=0) == losses


def test_the_learning_rate_warms_up_and_decays_to_a_tenth() -> None:
    config = SFTConfig(steps=100, warmup=10, learning_rate=1e-3)
    rates = [sft.learning_rate(config, step) for step in range(100)]
    assert rates[0] == pytest.approx(1e-4)
    assert max(rates) == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(1e-4, rel=0.15)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))


def test_a_seed_has_one_cold_start_shared_by_all_its_arms(tmp_path: Path) -> None:
    made = []

    def start(config: Config) -> coldstart.ColdStart:
        setup = Setup.open(config)
        try:
            return cold_start(setup, lambda step, loss: made.append(step))
        finally:
            setup.close()

    base = tiny_config(tmp_path)
    first = start(base)
    assert len(made) == 60
    arms = (("algo.selector", "grpo"), ("noise.kind", "iid"), ("run.steps", 9), ("run.workers", 2), ("algo.epochs", 2))
    for field, value in arms:
        again = start(base.replace(**{field: value}))
        assert len(made) == 60, field
        assert all(torch.equal(first.weights[name], again.weights[name]) for name in first.weights)
        assert np.array_equal(first.reference, again.reference)
    other = start(base.replace(**{"run.seed": 1}))
    assert len(made) == 120
    assert any(not torch.equal(first.weights[name], other.weights[name]) for name in first.weights)


def test_the_same_seed_makes_the_same_cold_start_bytes_and_damage_is_repaired(tmp_path: Path) -> None:
    def start(folder: str, workers: int) -> Path:
        config = tiny_config(tmp_path / folder, **{"run.workers": workers})
        setup = Setup.open(config)
        try:
            cold_start(setup)
        finally:
            setup.close()
        (file,) = (tmp_path / folder / ".cache").glob("*.safetensors")
        return file

    one, two = start("a", 1), start("b", 2)
    content = one.read_bytes()
    assert one.name == two.name
    assert content == two.read_bytes()
    one.write_bytes(content[: len(content) // 2])
    assert start("a", 1).read_bytes() == content
    assert sorted(p.suffix for p in one.parent.iterdir()) == [".lock", ".safetensors"]


def test_the_reference_holds_the_qualities_of_the_first_working_calls_without_noise(setup: Setup) -> None:
    start = cold_start(setup)
    assert len(start.reference) == coldstart.REFERENCE_CALLS
    policy = setup.new_policy()
    policy.load_state_dict(start.weights)
    draws = rng.generator(rng.key(0, "reference", 0, 0))
    levels = draws.choice(setup.difficulties, coldstart.REFERENCE_EPISODES).tolist()
    specs = [EpisodeSpec(problem, 0) for problem in setup.env.task.sample_many(draws, levels, "train")]
    keys = rng.key(0, "reference", 1, 0, np.arange(len(specs)))
    (batch,) = setup.rollout(policy, [Play(setup.episodes(NoNoise()), specs, keys)])
    worked = [call.quality for record in batch.records for call in record.calls if call.result.ok]
    assert start.reference[: len(worked)].tolist() == worked[: len(start.reference)]


def test_demonstrations_that_lost_a_call_or_do_not_fit_are_refused(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SFTConfig(batch=8, demonstrations=64)

    def demonstrate(context: int) -> sft.Examples:
        return sft.demonstrate(
            setup.env, setup.pool, setup.tokenizer, config, difficulties=(3,), seed=0, context=context
        )

    longest = int(demonstrate(224).lengths_M.max())
    demonstrate(longest)
    with pytest.raises(ConfigError, match=rf"policy\.context: got {longest - 1}; allowed: at least {longest}"):
        demonstrate(longest - 1)
    lost = ToolResult("infrastructure", "lost", "worker lost")
    monkeypatch.setattr(PythonTool, "submit", lambda self, bodies, pool: Finished([lost] * len(bodies)))
    with pytest.raises(InfrastructureError, match="demonstration was lost"):
        demonstrate(224)
    with pytest.raises(InfrastructureError, match="reference was measured"):
        coldstart.measure_reference(setup, setup.new_policy())


def test_all_that_a_cold_start_is_made_by_is_part_of_its_identity(tmp_path: Path) -> None:
    used: set[Path] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            used.add(Path(frame.f_code.co_filename))

    opened = Setup.open(tiny_config(tmp_path, **{"sft.steps": 2, "sft.demonstrations": 64}))
    sys.setprofile(look)
    try:
        cold_start(opened)
    finally:
        sys.setprofile(None)
        opened.close()
    ours = [Path(tool_gym.__file__).parent, Path(sft.__file__).parent]
    used = {file for file in used if file.suffix == ".py" and any(place in file.parents for place in ours)}
    # Reads and writes it, holds what is hashed by value, counts, or ends what does not come back.
    aside = {"checkpoint.py", "config.py", "registration.py", "errors.py", "watchdog.py"}
    assert {file.name for file in used - set(coldstart.sources())} <= aside
    assert {"sft.py", "model.py", "episodes.py", "arithmetic.py", "pool.py", "models.py"} <= {f.name for f in used}


def test_what_a_registered_id_stands_for_is_part_of_the_cold_starts_identity(setup: Setup) -> None:
    base = coldstart._identity(setup)
    env = setup.env
    others = (
        Resolved(env.task, env.tools, 2),
        Resolved(Arithmetic(answers=4), env.tools, env.max_turns),
        Resolved(env.task, (*env.tools, env.tools[0]), env.max_turns),
    )
    identities = {coldstart._identity(dataclasses.replace(setup, env=other)) for other in others}
    assert len(identities | {base}) == 4
    assert coldstart._identity(dataclasses.replace(setup)) == base
