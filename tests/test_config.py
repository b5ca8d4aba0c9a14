"""The configuration: ranges, round trips, and the command line that gives it."""

from __future__ import annotations

import json

import pytest
import tyro

from agents.config import AlgoConfig, Config, EnvConfig, NoiseConfig, PolicyConfig, RunConfig, SFTConfig
from agents.model import Policy, parameter_count
from agents.tokenizer import Tokenizer
from tool_gym.errors import ConfigError

CHANGED = Config(
    env=EnvConfig(answers=4, difficulties=(3, 4), max_turns=3),
    noise=NoiseConfig(
        kind="burst",
        rate=0.1,
        reference="running",
        mean_burst=2.5,
        faults={"timeout": 0.5, "wrong_value": 0.5},
        permanent=0.1,
        tool_rates={"python": 0.2},
    ),
    sft=SFTConfig(mixture={"clean": 0.5, "guess": 0.5}),
    algo=AlgoConfig(selector="stratified", refill=True, learning_rate=3e-5),
    run=RunConfig(name="x", seed=7),
)


def test_a_configuration_survives_json() -> None:
    for config in (Config(), CHANGED):
        assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_its_arguments_give_it_back_on_the_command_line() -> None:
    for config in (Config(), CHANGED):
        assert tyro.cli(Config, args=config.arguments()) == config


def test_short_flags_are_aliases_of_fields() -> None:
    words = "--steps 5 --seed 3 --selector grpo --noise iid --noise-rate 0.2 --correlation 0.5 --env a/B-v0"
    words += " --name n --runs-dir d --device cpu --answers 4 --group-size 6"
    config = tyro.cli(Config, args=words.split())
    assert (config.run.steps, config.run.seed, config.run.name, config.run.runs_dir) == (5, 3, "n", "d")
    assert (config.noise.kind, config.noise.rate, config.noise.correlation) == ("iid", 0.2, 0.5)
    assert (config.env.id, config.env.answers, config.algo.selector, config.algo.group_size) == ("a/B-v0", 4, "grpo", 6)
    assert config == tyro.cli(Config, args=config.arguments())


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("algo.selector", "rock", "roc"),
        ("algo.group_size", 1, r"\[2, 4096\]"),
        ("algo.learning_rate", 0.0, r"\(0.0, 1.0\]"),
        ("algo.minibatches", 99, r"\[1, 16\]"),
        ("noise.rate", 1.3, r"\[0.0, 1.0\]"),
        ("noise.rate", float("nan"), r"\[0.0, 1.0\]"),
        ("noise.correlation", 2, r"\[-1.0, 1.0\]"),
        ("noise.kind", "bursty", "none, iid, correlated, burst"),
        ("noise.mean_burst", 0.9, r"\[1.0, "),
        ("noise.permanent", 1.5, r"\[0.0, 1.0\]"),
        ("noise.faults", {"timeout": 0.5}, "sum to 1"),
        ("noise.faults", {}, "the share of each kind"),
        ("noise.faults", "timeout", "type dict"),
        ("noise.tool_rates", {"python": 2.0}, r"rates in \[0.0, 1.0\]"),
        ("policy.width", 63, "multiple"),
        ("policy.context", 100, "multiple of 32"),
        ("sft.mixture", {"clean": 0.5}, "sum to 1"),
        ("run.name", "a/b", "without a slash"),
        ("run.seed", -1, r"\[0, "),
        ("run.steps", 2.5, "type int"),
        ("run.steps", True, "type int"),
        ("run.name", 7, "type str"),
        ("algo.refill", "no", "type bool"),
        ("algo.learning_rate", float("inf"), r"\(0.0, 1.0\]"),
        ("env.difficulties", 3, "type tuple"),
        ("env.difficulties", (3, 3), "each once"),
        ("sft.mixture", {"clean": "1"}, "type dict"),
    ],
)
def test_a_bad_value_is_refused_with_field_value_and_what_is_allowed(field: str, value: object, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed) as caught:
        Config().replace(**{field: value})
    assert field in str(caught.value)
    assert repr(value)[:20] in str(caught.value)


def test_outages_too_short_for_a_rate_are_refused_where_they_are_asked_for() -> None:
    changes = {"noise.rate": 0.9, "noise.mean_burst": 3.0}
    Config().replace(**changes)
    for rates in ({"noise.rate": 0.9}, {"noise.rate": 0.3, "noise.tool_rates": {"python": 0.9}}):
        with pytest.raises(ConfigError, match=r"noise\.mean_burst: got 3\.0; allowed: 9 or more at a rate of 0\.9"):
            Config().replace(**{"noise.kind": "burst", **rates})


def test_fields_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algo\.sellector.*such as algo\.selector"):
        Config().replace(**{"algo.sellector": "roc"})
    # A field that stands in another group.
    with pytest.raises(ConfigError, match=r"'algo\.correlation'.*such as noise\.correlation$"):
        Config().replace(**{"algo.correlation": 0.5})
    with pytest.raises(ConfigError, match=r"algo\.old"):
        Config.from_dict({"algo": {"old": 1}})


def test_the_default_policy_has_about_160_thousand_parameters() -> None:
    tokenizer = Tokenizer(["python"])
    assert 150_000 < parameter_count(Policy(PolicyConfig(), len(tokenizer))) < 170_000


def test_a_task_s_cold_start_fills_what_was_left_to_it_and_nothing_else() -> None:
    assert SFTConfig().completed({}) == SFTConfig(steps=450, batch=64)
    wanted = {"steps": 900, "batch": 32}
    assert SFTConfig().completed(wanted) == SFTConfig(steps=900, batch=32)
    assert SFTConfig(steps=0, learning_rate=1e-3).completed(wanted) == SFTConfig(steps=0, batch=32, learning_rate=1e-3)
    complete = SFTConfig(steps=7, batch=8)
    assert complete.completed(wanted) == complete
    for bad, field in (({"step": 900}, "Task.cold_start: got 'step'"), ({"batch": 0}, "sft.batch: got 0")):
        with pytest.raises(ConfigError, match=field):
            SFTConfig().completed(bad)
