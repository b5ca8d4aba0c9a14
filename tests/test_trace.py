"""The trace of a group: what selection did to whom and why, and text that stays text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from agents.config import Config
from agents.selection import SELECTORS, Selector, _positives_by
from agents.trainer import train
from experiments.trace import Told, TraceConfig, _call, _why, page, trace
from tests.tiny import Silent, tiny_config
from tool_gym.errors import ConfigError


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    return train(tiny_config(tiny_cold_starts(tmp_path_factory.mktemp("runs")), **{"run.trajectories": 4}), Silent())


def said(config: TraceConfig) -> str:
    out = io.StringIO()
    trace(config, Console(file=out, width=200))
    return out.getvalue()


def test_every_rollout_of_a_group_is_shown_with_what_became_of_it(finished: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (finished / "trajectories.jsonl").read_text().splitlines()]
    trainable = next(row for row in rows if row["trainable"])
    text = said(TraceConfig(finished, trainable["step"], trainable["group"], html=tmp_path / "trace.html"))
    group = [row for row in rows if (row["step"], row["group"]) == (trainable["step"], trainable["group"])]
    assert text.count(": kept\n") == sum(row["selected"] for row in group)
    assert text.count(": dropped\n") == sum(not row["selected"] for row in group)
    assert "rule roc" in text
    assert "by penalty" in text
    assert text.count("call 1:") == sum(bool(row["calls"]) for row in group)
    written = (tmp_path / "trace.html").read_text()
    assert written.count("<section") == len(group)


def test_what_is_left_out_of_the_loss_is_told_apart_from_what_is_kept_and_dropped(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    changes = {"run.trajectories": 4, "run.steps": 2, "env.max_turns": 2, "algo.overlong_filter": True}
    run = train(tiny_config(tiny_cold_starts(tmp_path), **changes), Silent())
    rows = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    left_out = next(row for row in rows if row["selected"] and not row["in_loss"])
    assert "<answer>" not in left_out["text"]
    assert left_out["reward"] == 0
    group = [row for row in rows if row["group"] == left_out["group"]]
    text = said(TraceConfig(run, 2, left_out["group"]))
    assert text.count(": kept\n") == sum(row["in_loss"] for row in group)
    assert text.count(": left out of the loss\n") == sum(row["selected"] and not row["in_loss"] for row in group)


def test_the_last_sample_is_shown_and_one_that_is_not_there_is_refused(finished: Path) -> None:
    assert "step 4" in said(TraceConfig(finished))
    with pytest.raises(ConfigError, match="step: got 3; allowed: 2, 4"):
        said(TraceConfig(finished, 3))
    with pytest.raises(ConfigError, match="group: got 99"):
        said(TraceConfig(finished, group=99))


def test_what_a_policy_wrote_is_text_on_the_page() -> None:
    hostile = "<script>alert(1)</script>"
    written = page(hostile, [Told(hostile, hostile, (hostile,), True, hostile)])
    assert "<script" not in written
    assert written.count("&lt;script&gt;") == 6


CALL = {
    **{"status": "ok", "origin": "", "scheduled": "", "fault": "", "permanent": False, "standing": False},
    **{"output": "", "quality": 0.5},
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "call 1: ok; reasoning quality 0.50"),
        ({"status": "error", "origin": "policy"}, "call 1: error by the policy; reasoning quality 0.50"),
        (
            {"status": "error", "origin": "policy", "scheduled": "timeout"},
            "call 1: error by the policy (a timeout fault was drawn for it, with no working call to strike); ",
        ),
        (
            {"origin": "injected", "scheduled": "timeout", "fault": "timeout", "output": "14\n"},
            "call 1: ok ('14\\n'), then struck by a timeout fault; reasoning",
        ),
        (
            {"origin": "injected", "fault": "connection", "permanent": True, "output": "14"},
            "call 1: ok ('14'), then struck by a connection fault, one that stays; ",
        ),
        (
            {"origin": "injected", "fault": "connection", "permanent": True, "standing": True, "output": "14"},
            "call 1: ok ('14'), then struck by an earlier connection fault; ",
        ),
        ({"origin": "injected", "fault": "timeout", "output": None}, "call 1: ok, then struck by a timeout fault; "),
        ({"fault": "wrong_value", "output": "14"}, "call 1: ok ('14'), then silently altered by a wrong_value fault; "),
        ({"status": "infrastructure", "origin": "infrastructure", "quality": -1.0}, "call 1: lost to the machinery"),
    ],
)
def test_a_call_is_told_with_its_own_result_and_what_was_made_of_it(changes: dict[str, object], told: str) -> None:
    # Earlier revisions wrote no output.
    line = _call(1, {name: value for name, value in (CALL | changes).items() if value is not None})
    assert line.startswith(told)
    assert ("quality" in line) == (changes.get("status") != "infrastructure")


def test_a_group_that_is_not_trained_on_has_the_reason_that_holds() -> None:
    config = Config()

    def why(rewards: list[float], invalid: int = 0, refill: bool = False) -> str:
        rows = [{"step": 1, "valid": True, "trainable": False, "reward": reward} for reward in rewards]
        rows += [{"step": 1, "valid": False, "trainable": False, "reward": 0.0}] * invalid
        return _why(0, rows, config.replace(**{"algo.refill": refill}))

    assert "rewards that are all equal give no gradient" in why([0.0] * 16)
    assert "7 rollouts are left, and roc keeps 8" in why([0.0] * 6 + [1.0], invalid=9)
    assert "those that roc keeps have equal rewards, which" in why([0.0] * 15 + [1.0])
    assert "enough groups before it had a gradient" in why([0.0] * 8 + [1.0] * 8, refill=True)


def test_a_rule_that_somebody_added_is_trained_by_and_traced(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As docs/SELECTION.md has it.
    longest = Selector(_positives_by(lambda group, rng: -group.lengths))
    monkeypatch.setitem(SELECTORS, "longest", longest)
    run = train(tiny_config(tiny_cold_starts(tmp_path), **{"algo.selector": "longest"}), Silent())
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["roc/length_selected"] >= last["roc/length_positives"]
    assert "rule longest" in said(TraceConfig(run))


@pytest.mark.parametrize("rule", list(SELECTORS))
def test_what_selection_did_has_a_reason_of_its_own_for_every_rule(rule: str) -> None:
    config = Config().replace(**{"algo.selector": rule})
    made = {"step": 1, "valid": True, "trainable": True}
    group = [
        {**made, "reward": float(number < 3), "selected": number % 2 == 0, "penalty": 0.1 * number, "quality": 0.5}
        for number in range(6)
    ]
    right, dropped, wrong = (_why(number, group, config) for number in (0, 1, 4))
    assert right.startswith(f"kept: one of 2 of 3 right rollouts that {rule} keeps, ")
    assert dropped.startswith(f"dropped: {rule} keeps 2 of 3 right rollouts, ")
    assert wrong.startswith(f"kept: one of 1 of 3 wrong rollouts that {rule} keeps, ")
    # Only the rules that sort by cleanness say so; `roc_paper` samples.
    assert ("cleanest first" in right) == (rule in ("roc", "roc_error", "roc_format", "roc_policy", "roc_ngram"))
    assert ("at random" in right) == (
        rule in ("roc_paper", "stratified", "penalty", "random", "max_variance", "void_turn")
    )
    assert ("this is 1st by penalty" in right) == rule.startswith("roc")
    unanswered = _why(4, [*group[:4], {**group[4], "in_loss": False}, group[5]], config)
    assert unanswered == f"{wrong}; but left out of the loss, since it ended without an answer (--algo.overlong-filter)"
