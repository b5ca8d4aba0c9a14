"""Grids of runs by name: fields of agents.config.Config, each with the values it takes, crossed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.config import Config
from tool_gym.errors import ConfigError

_OWN = ("run.seed", "run.name", "run.runs_dir")


@dataclass(frozen=True)
class Preset:
    """A grid.

    Attributes:
        purpose: what it is for, one line.
        grid: dotted fields and the values they take; the arms are their product.
        seeds: seeds of every arm.
    """

    purpose: str
    grid: Mapping[str, Sequence[Any]]
    seeds: range


PRESETS: dict[str, Preset] = {
    "regime": Preset(
        "does the selection of rollouts matter, and where faults fall? the default regime and three beside it",
        {
            "env.answers": (10, 2),
            "noise.correlation": (0.9, 0.0),
            "algo.selector": ("grpo", "stratified", "roc"),
        },
        range(5),
    ),
    "tune": Preset(
        "choose the learning rate for all arms: on grpo alone, on seeds that no report uses",
        {
            "env.answers": (10,),
            "algo.selector": ("grpo",),
            "algo.learning_rate": (3e-5, 6e-5, 1.2e-4),
        },
        range(1000, 1003),
    ),
    "cold-start": Preset(
        "compare cold starts by the policy that they leave: no update, seeds that no report uses",
        {
            "run.steps": (0,),
            "sft.learning_rate": (2e-3, 3e-3),
            "sft.batch": (64, 128),
            "sft.steps": (225, 450),
        },
        range(1000, 1002),
    ),
}


def expand(grid: Mapping[str, Sequence[Any]], seeds: Sequence[int], base: Config) -> list[tuple[str, Config]]:
    """The runs of a grid, with their names; all arms of a seed stand together, so that pairs finish together.

    Raises ConfigError, before anything is run, for a field or value that is not allowed.
    """
    for name in grid:
        if name in _OWN:
            raise ConfigError("grid", name, "other fields: the sweep sets this one itself (--seeds, --out)")
    for name, values in {"seeds": seeds, **grid}.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(name, list(values), "at least one value, each once")
    runs = []
    for seed in seeds:
        for values in itertools.product(*grid.values()):
            changes = dict(zip(grid, values, strict=True))
            parts = [f"{field.rpartition('.')[2]}={value}" for field, value in changes.items()]
            # The name is a folder's, so without the slash of an environment's id.
            name = ",".join([*parts, f"seed={seed}"]).replace("/", "_")
            runs.append((name, base.replace(**changes, **{"run.seed": seed, "run.name": name})))
    return runs
