"""The engine part of the benchmark: what counts as work, and that each figure comes out."""

from __future__ import annotations

import numpy as np
import pytest

from agents.config import PolicyConfig
from agents.model import Policy
from experiments.bench import BenchConfig, engine
from experiments.bench.engine import Size, operations


def test_work_is_two_operations_a_weight_and_four_a_channel_layer_and_pair() -> None:
    config = PolicyConfig(layers=2, width=24, heads=2)
    policy = Policy(config, 13)
    weights = sum(p.numel() for name, p in policy.named_parameters() if p.dim() > 1 and name != "embedding.weight")
    assert operations(config, 13, tokens=1, pairs=0, outputs=1) == 2 * weights
    assert operations(config, 13, tokens=0, pairs=5, outputs=0) == 5 * 4 * 2 * 24
    assert operations(config, 13, tokens=7, pairs=0, outputs=0) == 7 * operations(config, 13, 1, 0, 0)


def test_updates_are_of_rows_that_see_the_context_on_average() -> None:
    for context in engine.CONTEXTS:
        batch = engine._training_batch(0, context)
        seen = engine._pairs(batch.lengths_N).sum() / batch.lengths_N.sum()
        assert seen == pytest.approx(context, rel=0.1)
        assert not batch.sampled_NT[:, : engine._PROMPT].any()
        assert not batch.sampled_NT[np.arange(batch.tokens_NT.shape[1]) >= batch.lengths_N[:, None]].any()


def test_decoding_updates_and_steps_are_measured_as_shares_of_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    size = Size("tiny", PolicyConfig(layers=1), {40: 0.99}, 0.99, 0.99)
    monkeypatch.setattr(engine, "SIZES", (size,))
    monkeypatch.setattr(engine, "CONTEXTS", (40,))
    monkeypatch.setattr(engine, "_many", lambda config: iter(()))
    found = list(engine.rows(BenchConfig(rounds=1)))
    kinds = [(row.name.partition(": ")[2], row.unit) for row in found]
    assert kinds == [
        ("decode, context 40", "tokens/s"),
        ("decode, context 40", "rollouts of 16 tokens/s"),
        ("update, context 40", "tokens/s"),
        ("update, context 40", "rollouts/s"),
        ("whole step, context 40", "sampled tokens/s"),
        ("whole step, context 40", "rollouts/s"),
        ("whole step, context 40", "tool calls/s"),
        ("the ceiling, matrix products", "GFLOP/s"),
    ]
    assert all(row.figure > 0 for row in found)
    shares = [row.ratio.median for row in found if row.ratio is not None]
    assert len(shares) == 3
    assert all(0 < share < 1 for share in shares)
    assert all(row.holds is False for row in found if row.ratio is not None)


def test_steps_with_longer_prompts_sample_at_later_positions() -> None:
    means = {}
    for preamble in (0, 40):
        trainer = engine._Steps(PolicyConfig(layers=1), 2, preamble, 0, engine.Path("unused"))
        try:
            batch = trainer.sample(1)
        finally:
            trainer.setup.close()
        assert len(batch) == 32
        means[preamble] = np.nonzero(batch.sampled_NT)[1].mean()
    assert means[40] - means[0] == pytest.approx(40, abs=8)
    assert means[0] == pytest.approx(engine._SHORTEST, abs=8)
