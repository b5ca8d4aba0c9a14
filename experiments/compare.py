"""Finished runs as tables: arms with intervals, and paired differences between rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console

from experiments.estimands import arm, by_arm, label, settings_of
from experiments.statistics import mean_interval, paired_difference
from experiments.store import Run, read_runs
from tool_gym.errors import ConfigError
from tool_gym.protocol import printable


@dataclass(frozen=True)
class CompareConfig:
    """Print finished runs as Markdown tables."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Finished runs, such as runs/NAME, or folders or stores of them, such as sweeps/quick."""
    baseline: str | None = None
    """The rule that the others are compared with, pair by pair of runs that differ in nothing else. None: stratified
    where there is such a run, else the first."""


Figure = tuple[str, Callable[[Run], float]]

FIGURES: tuple[Figure, ...] = (
    ("AUC good first call", lambda run: run.area("eval/good_first_call")),
    ("AUC accuracy", lambda run: run.area("eval/accuracy")),
    ("good first call, test", lambda run: run.test("good_first_call")),
    ("accuracy, test", lambda run: run.test("accuracy")),
    ("recovery, test", lambda run: run.test("recovery")),
    ("errors in positives, last quarter", lambda run: run.late("roc/error_ratio_positives")),
    ("own errors in positives, last quarter", lambda run: run.late("roc/policy_error_ratio_positives")),
    ("tokens per rollout, test", lambda run: run.test("mean_length")),
)


def compare(config: CompareConfig, console: Console) -> None:
    """Print a table of arms for every setting of the fields that vary beside the rule, and the paired differences.

    Raises ConfigError where no run is of the baseline.
    """
    runs = read_runs(*config.folders)
    arms = list(dict.fromkeys(arm(run) for run in runs))
    baseline = config.baseline or ("stratified" if "stratified" in arms else arms[0])
    if baseline not in arms:
        raise ConfigError("baseline", baseline, f"a rule of these runs: {', '.join(sorted(arms))}")
    revisions = sorted({run.revision or "unknown" for run in runs})
    if len(revisions) > 1:
        told = f"these runs are of different revisions of the code: {', '.join(revisions)}"
        console.print(printable(told), markup=False, highlight=False)
    for setting, members in settings_of(runs).items():
        told = printable(label(setting).replace("ρ", "rho"))
        console.print(f"\n### {told}\n", markup=False, highlight=False)
        for line in _tables(by_arm(members), baseline):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _tables(arms: Mapping[str, Mapping[int, Run]], baseline: str) -> list[str]:
    header = ["figure", *(f"{name} (n = {len(by_seed)})" for name, by_seed in arms.items())]
    others = [name for name in arms if name != baseline and baseline in arms]
    header += [f"{name} − {baseline}" for name in others]
    lines = [_row(header), _row(["---"] * len(header))]
    for title, figure in FIGURES:
        values = {name: {seed: figure(run) for seed, run in by_seed.items()} for name, by_seed in arms.items()}
        cells = [_mean_cell(list(by_seed.values())) for by_seed in values.values()]
        cells += [_difference_cell(values[name], values[baseline]) for name in others]
        lines.append(_row([title, *cells]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _mean_cell(values: Sequence[float]) -> str:
    """Mean and interval over the runs where the figure is defined; how many, where it is not all."""
    defined = np.array([value for value in values if not np.isnan(value)])
    if not len(defined):
        return "–"
    few = f" (n = {len(defined)})" if len(defined) < len(values) else ""
    interval = mean_interval(defined)
    if len(defined) == 1:
        return f"{interval.mean:.3f}{few}"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]{few}"


def _difference_cell(arm: dict[int, float], baseline: dict[int, float]) -> str:
    """Mean paired difference and interval over the seeds where both are defined; how many, where it is not all."""
    seeds = sorted(arm.keys() & baseline.keys())
    pairs = np.array([(arm[seed], baseline[seed]) for seed in seeds if not np.isnan(arm[seed] + baseline[seed])])
    few = f" (n = {len(pairs)})" if len(pairs) < len(seeds) or len(pairs) < 2 else ""
    if len(pairs) < 2:
        return f"–{few}"
    d = paired_difference(pairs[:, 0], pairs[:, 1])
    return f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]{few}"
