"""A trained policy on test problems of its own environment, or of another, under other noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agents.display import evaluation_rows
from agents.evaluation import Evaluator
from agents.runs import load_weights, read_config, read_reference
from agents.setup import Setup
from tool_gym.errors import ConfigError
from tool_gym.protocol import printable
from tool_gym.registration import resolve


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluate a run's policy on test problems."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    checkpoint: str = "last"
    """`last`, `best`, or a folder name such as step_000100."""
    env: str | None = None
    """Environment. None: the run's."""
    answers: int | None = None
    """Number of possible answers. None: the run's."""
    noise: str | None = None
    """`none`, `iid`, `correlated` or `burst`. None: the run's."""
    noise_rate: float | None = None
    """Share of eligible calls made to fail. None: the run's."""
    correlation: float | None = None
    """Correlation of faults with reasoning. None: the run's."""
    problems: int | None = None
    """Number of test problems. None: the run's."""


def evaluate(config: EvaluateConfig, console: Console) -> dict[str, float]:
    """Print and return the figures under ``eval/``; correlated noise keeps the run's reference.

    Raises ConfigError for what is out of range, a folder that is no run, a damaged checkpoint, or an
    environment with other tools than the policy's.
    """
    own = read_config(config.run)
    wanted = {
        "env.id": config.env,
        "env.answers": config.answers,
        "noise.kind": config.noise,
        "noise.rate": config.noise_rate,
        "noise.correlation": config.correlation,
        "run.test_problems": config.problems,
    }
    other = own.replace(**{field: value for field, value in wanted.items() if value is not None})
    reference = read_reference(config.run)
    tools = tuple(tool.name for tool in resolve(own.env.id).tools)
    setup = Setup.open(other)
    try:
        if setup.tokenizer.tool_names != tools:
            raise ConfigError("env", other.env.id, f"environments with the tools {', '.join(tools)}")
        policy = setup.new_policy()
        load_weights(config.run, config.checkpoint, policy)
        figures = Evaluator(setup, reference)(policy, "test")
    finally:
        setup.close()
    title = f"{config.run.name}, {config.checkpoint} checkpoint, {other.run.test_problems} test problems"
    table = Table(title=Text(printable(title)))
    table.add_column("figure")
    table.add_column("value", justify="right")
    defined = {name: None if math.isnan(value) else value for name, value in figures.items()}
    for row in evaluation_rows([defined]):
        table.add_row(*row)
    console.print(table)
    return figures
