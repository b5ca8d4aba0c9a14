"""Finished runs with a known truth, made of formulas: for tests of what is computed from runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from agents.config import Config
from agents.metrics import METRICS
from experiments.store import Run

EVERY = 10


def synthetic_run(config: Config, level: float = 0.5, *, noise: float = 0.0, **columns: Any) -> Run:
    """A run whose evaluations stand at ``level`` (plus noise keyed by its seed), and whose other figures are constant.

    ``columns`` replaces metrics by arrays of ``steps + 1`` values.
    """
    steps = np.arange(config.run.steps + 1, dtype=float)
    draws = np.random.default_rng(config.run.seed)
    value = level + noise * draws.normal()
    found = {}
    for name in METRICS:
        if name.startswith("eval/"):
            found[name] = np.where(steps % EVERY == 0, value, math.nan)
        else:
            found[name] = np.where(steps > 0, 0.1, math.nan)
    found["step"] = steps
    found["num_tokens"] = np.where(steps > 0, 1000.0 * steps, math.nan)
    found |= {name.replace("__", "/"): np.asarray(values, dtype=float) for name, values in columns.items()}
    test = {name: value for name in METRICS if name.startswith("eval/")}
    summary = {
        "steps": config.run.steps,
        "best_step": config.run.steps,
        "num_tokens": 1000 * config.run.steps,
        "steps_without_update": 0,
        "test": {"last": test, "best": test},
    }
    return Run(config, found, summary, "0123456789abcdef")


def arm(selector: str, seed: int, **changes: Any) -> Config:
    """The default with a rule and a seed, twenty updates, and other changes by dotted name with ``__`` for the dot."""
    fields = {name.replace("__", "."): value for name, value in changes.items()}
    return Config().replace(**{"algo.selector": selector, "run.seed": seed, "run.steps": 20, **fields})
