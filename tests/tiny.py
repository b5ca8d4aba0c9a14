"""A run small enough for a test: a few seconds, every link of the chain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.config import AlgoConfig, Config, EnvConfig, PolicyConfig, RunConfig, SFTConfig

DEVICES = (
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
)
"""For tests that are to hold on either."""


def tiny_config(runs_dir: Path, **changes: Any) -> Config:
    """Two answers, so that luck gives both classes; an evaluation and a checkpoint every two steps."""
    config = Config(
        env=EnvConfig(answers=2),
        policy=PolicyConfig(layers=1, width=32, heads=2, context=224),
        sft=SFTConfig(steps=60, batch=16, demonstrations=512, warmup=10, learning_rate=1e-2),
        algo=AlgoConfig(prompts=4, group_size=4, min_positive=1, min_negative=1, learning_rate=1e-3),
        run=RunConfig(
            steps=4,
            name="run",
            runs_dir=str(runs_dir),
            eval_every=2,
            eval_problems=8,
            test_problems=8,
            checkpoint_every=2,
        ),
    )
    return config.replace(**changes)


class Silent:
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def cold_start(self, step: int, steps: int, loss: float) -> None: ...

    def step(self, row: dict[str, Any], steps: int) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def rows(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what depends on the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    keep = [
        {k: v for k, v in json.loads(line).items() if k != "step_time" and not k.startswith("time/")} for line in lines
    ]
    return keep
