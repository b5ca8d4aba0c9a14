"""The trace of a group: what selection did to whom and why, and text that stays text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from agents.config import Config
from agents.selection import SELECTORS
from agents.trainer import train
from experiments.trace import Told, TraceConfig, _why, page, trace
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
    assert ("cleanest first" in right) == (rule in ("roc", "roc_error", "roc_format", "roc_policy"))
    assert ("at random" in right) == (
        rule in ("roc_paper", "stratified", "penalty", "random", "max_variance", "void_turn")
    )
    assert ("this is 1st by penalty" in right) == rule.startswith("roc")
