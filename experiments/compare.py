"""Finished runs as tables: arms with intervals, and paired differences between rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console

from agents.config import Config
from agents.runs import read_config, read_metrics, read_summary
from experiments.statistics import auc, mean_interval, paired_difference
from tool_gym.errors import ConfigError

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CompareConfig:
    """Print the runs of a sweep as Markdown tables."""

    folder: Annotated[Path, tyro.conf.Positional]
    """A folder of finished runs, such as sweeps/regime."""
    baseline: str = "stratified"
    """The rule that the others are compared with, pair by pair of runs that differ in nothing else."""


@dataclass(frozen=True)
class Run:
    """A finished run: its configuration, its rows of metrics, its summary, and the revision of the code."""

    config: Config
    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    revision: str = ""

    def curve(self, column: str) -> tuple[Numbers, Numbers]:
        """Updates and values where the column is defined."""
        points = [(row["step"], row[column]) for row in self.rows if row[column] is not None]
        return np.array([s for s, _ in points], dtype=float), np.array([v for _, v in points], dtype=float)

    def area(self, column: str) -> float:
        """Area under an evaluation's curve divided by the range of updates.

        NaN where the figure is undefined at an evaluation: arms would be compared over different ranges.
        """
        updates, values = self.curve(column)
        evaluations, _ = self.curve("eval/accuracy")
        return auc(updates, values) if len(updates) == len(evaluations) > 1 else float("nan")

    def test(self, name: str) -> float:
        """A figure of the last policy on the test problems; NaN where it is undefined."""
        value = self.summary["test"]["last"][f"eval/{name}"]
        return float("nan") if value is None else float(value)

    def late(self, column: str) -> float:
        """Mean over the last quarter of the updates; NaN where it is undefined there."""
        updates, values = self.curve(column)
        late = values[updates > 0.75 * self.config.run.steps]
        return float(late.mean()) if len(late) else float("nan")


Figure = tuple[str, Callable[[Run], float]]

FIGURES: tuple[Figure, ...] = (
    ("AUC good first call", lambda run: run.area("eval/good_first_call")),
    ("AUC accuracy", lambda run: run.area("eval/accuracy")),
    ("good first call, test", lambda run: run.test("good_first_call")),
    ("accuracy, test", lambda run: run.test("accuracy")),
    ("AUC recovery", lambda run: run.area("eval/recovery")),
    ("recovery, test", lambda run: run.test("recovery")),
    ("errors in positives, last quarter", lambda run: run.late("roc/error_ratio_positives")),
    ("own errors in positives, last quarter", lambda run: run.late("roc/policy_error_ratio_positives")),
    ("tokens per rollout, test", lambda run: run.test("mean_length")),
)


def read_runs(folder: Path) -> list[Run]:
    """The finished runs below a folder.

    Raises ConfigError where there is none, and for two runs that differ in nothing but their name.
    """
    runs = [_read_run(path.parent) for path in sorted(folder.glob("*/summary.json"))]
    if not runs:
        raise ConfigError("folder", str(folder), "a folder that holds finished runs")
    seen: dict[str, str] = {}
    for run in runs:
        same = repr(
            {field: value for field, value in _flat(run.config).items() if field not in ("run.name", "run.runs_dir")}
        )
        if same in seen:
            raise ConfigError("folder", str(folder), f"runs that differ: {seen[same]} and {run.config.run.name} do not")
        seen[same] = str(run.config.run.name)
    return runs


def _read_run(folder: Path) -> Run:
    """One finished run. Raises ConfigError, naming the folder, where a file of it is damaged or of another version."""
    config, rows = read_config(folder), read_metrics(folder)
    try:
        summary = read_summary(folder)
        revision = json.loads((folder / "config.json").read_text(encoding="utf-8"))["git"]["revision"]
        run = Run(config, rows, summary, str(revision))
        # Every figure is asked for once, so that what is missing is missed here and not in the middle of a table.
        for _, figure in FIGURES:
            figure(run)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("run", str(folder), f"a finished run ({type(error).__name__}: {error})") from error
    return run


def varying(runs: Sequence[Run]) -> list[str]:
    """The dotted fields in which the runs differ, seed, name and folder aside."""
    flat = [_flat(run.config) for run in runs]
    aside = {"run.seed", "run.name", "run.runs_dir"}
    return [field for field in flat[0] if field not in aside and len({repr(f[field]) for f in flat}) > 1]


def _flat(config: Config) -> dict[str, Any]:
    return {f"{group}.{name}": value for group, part in config.to_dict().items() for name, value in part.items()}


def compare(config: CompareConfig, console: Console) -> None:
    """Print a table of arms for every setting of the fields that vary beside the rule, and the paired differences."""
    runs = read_runs(config.folder)
    revisions = sorted({run.revision for run in runs})
    if len(revisions) > 1:
        console.print(f"these runs are of different revisions of the code: {', '.join(revisions)}", highlight=False)
    fields = [field for field in varying(runs) if field != "algo.selector"]
    settings: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        flat = _flat(run.config)
        settings.setdefault(tuple(flat[field] for field in fields), []).append(run)
    for setting, members in settings.items():
        named = ", ".join(f"{f.rpartition('.')[2]} {v}" for f, v in zip(fields, setting, strict=True)) or "all runs"
        console.print(f"\n### {named}\n", markup=False, highlight=False)
        for line in _tables(members, config.baseline):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _tables(runs: Sequence[Run], baseline: str) -> list[str]:
    arms: dict[str, dict[int, Run]] = {}
    for run in runs:
        arms.setdefault(run.config.algo.selector, {})[run.config.run.seed] = run
    header = ["figure", *(f"{arm} (n = {len(by_seed)})" for arm, by_seed in arms.items())]
    others = [arm for arm in arms if arm != baseline and baseline in arms]
    header += [f"{arm} − {baseline}" for arm in others]
    lines = [_row(header), _row(["---"] * len(header))]
    for name, figure in FIGURES:
        values = {arm: {seed: figure(run) for seed, run in by_seed.items()} for arm, by_seed in arms.items()}
        cells = [_mean_cell(list(by_seed.values())) for by_seed in values.values()]
        cells += [_difference_cell(values[arm], values[baseline]) for arm in others]
        lines.append(_row([name, *cells]))
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
