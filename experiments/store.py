"""Finished runs as one small file each, and all of them as one table.

A *store* is a folder of ``<identity>.json.gz``. The identity is a hash of all that a run's results depend on, so a
store can be carried to another machine, merged by copying, and gone on with: what is there is not run again.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import parquet

from agents import runs
from agents.checkpoint import atomic_write
from agents.config import Config
from agents.metrics import METRICS
from experiments.statistics import auc
from tool_gym.errors import ConfigError

Numbers = npt.NDArray[np.float64]

FORMAT = 1
DIGITS = 6
"""Significant digits kept of a figure: far below what a seed changes, and a third of the size."""

ASIDE = frozenset(
    {
        *("run.name", "run.runs_dir", "run.workers", "run.live_rows"),
        *("run.checkpoint_every", "run.keep_checkpoints", "run.trajectories"),
    }
)
"""Fields that no result depends on."""

_ADDED = {"run.stack": None, "algo.overlong_filter": False}
"""Fields that came later, left out where they are at their default: the runs of older stores keep their identity."""

_ADDED_METRICS = frozenset({"completions/truncated_ratio"})
"""Columns that came later: undefined in the runs of older stores."""


def flat(config: Config) -> dict[str, Any]:
    """Every field of a configuration by its dotted name."""
    return {f"{group}.{name}": value for group, part in config.to_dict().items() for name, value in part.items()}


def differing(found: Sequence[Config], aside: frozenset[str]) -> list[str]:
    """The dotted fields, but for those aside, in which configurations differ.

    What differs only from one environment to another, as the length of the cold start may, goes without saying: the
    environment is named.
    """
    own = [flat(config) for config in found]
    envs: dict[str, list[dict[str, Any]]] = {}
    for fields in own:
        envs.setdefault(fields["env.id"], []).append(fields)

    def differs(name: str, among: Sequence[Mapping[str, Any]]) -> bool:
        return len({repr(fields[name]) for fields in among}) > 1

    names = [name for name in (own[0] if own else ()) if name not in aside]
    return [
        name
        for name in names
        if (name == "env.id" and differs(name, own)) or any(differs(name, group) for group in envs.values())
    ]


def identity(config: Config) -> str:
    """16 hexadecimal digits of a hash of what the run's results depend on."""
    fields = {
        name: value
        for name, value in flat(config).items()
        if name not in ASIDE and not (name in _ADDED and value == _ADDED[name])
    }
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- one run


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        config: its configuration.
        columns: each metric's values, step 0 first; NaN where it is undefined.
        summary: its evaluations on test problems, and counters; see docs/METRICS.md.
        revision: of the code, with ``+changed`` where files differed from it; "" where it is not known.
    """

    config: Config
    columns: Mapping[str, Numbers]
    summary: Mapping[str, Any]
    revision: str = ""
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "identity", identity(self.config))

    def curve(self, column: str) -> tuple[Numbers, Numbers]:
        """Updates and values where the column is defined."""
        values = self.columns[column]
        defined = ~np.isnan(values)
        return self.columns["step"][defined], values[defined]

    def area(self, column: str) -> float:
        """Area under an evaluation's curve divided by the range of updates.

        NaN where the figure is undefined at an evaluation: arms would be compared over different ranges.
        """
        updates, values = self.curve(column)
        evaluations, _ = self.curve("eval/accuracy")
        return auc(updates, values) if len(updates) == len(evaluations) > 1 else math.nan

    def test(self, name: str, policy: Literal["last", "best"] = "last") -> float:
        """A figure on the test problems of the last policy or of the best on validation; NaN where it is undefined.

        Raises KeyError for a name that no metric has.
        """
        if (column := f"eval/{name}") not in METRICS:
            raise KeyError(column)
        # Without a harder level there is no figure of it.
        value = self.summary["test"][policy].get(column)
        return math.nan if value is None else float(value)

    def late(self, column: str) -> float:
        """Mean over the last quarter of the updates; NaN where it is undefined there."""
        updates, values = self.curve(column)
        late = values[updates > 0.75 * self.config.run.steps]
        return float(late.mean()) if len(late) else math.nan


def read_folder(folder: Path) -> Run:
    """A finished run from its own folder. Raises ConfigError, naming it, where a file is damaged or missing."""
    config, (rows, summary) = runs.read_config(folder), runs.read_results(folder)
    revision = runs.revision(folder)
    try:
        # As short as a store has them, so that what is reckoned of a run does not hang on where it was read from.
        columns = {name: np.array([_short(row[name]) for row in rows], dtype=np.float64) for name in METRICS}
        return Run(config, columns, summary, revision)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError("run", str(folder), f"a finished run ({type(error).__name__}: {error})") from error


# ---------------------------------------------------------------- files


def path_of(store: Path, config: Config) -> Path:
    return store / f"{identity(config)}.json.gz"


def pack(run: Run) -> bytes:
    """A run as a store keeps it: the same bytes for the same results."""
    record = {
        "format": FORMAT,
        "revision": run.revision,
        "config": run.config.to_dict(),
        "metrics": {name: [_short(value) for value in values.tolist()] for name, values in run.columns.items()},
        "summary": run.summary,
    }
    return gzip.compress(json.dumps(record).encode(), mtime=0)


def _short(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(f"{value:.{DIGITS}g}")


def put(store: Path, packed: bytes, config: Config) -> Path:
    """Write a run's file, whole or not at all."""
    store.mkdir(parents=True, exist_ok=True)
    path = path_of(store, config)
    atomic_write(path, packed)
    return path


def unpack(packed: bytes, name: str) -> Run:
    """The run in a store's file.

    Raises DamagedError, naming the file, where it is cut or altered, ConfigError where it is of another version.
    """
    try:
        record = json.loads(gzip.decompress(packed))
        written = record["format"]
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        wanted = f"the file of a finished run ({type(error).__name__}: {error})"
        raise runs.DamagedError("store", name, wanted) from error
    writer = f"written by revision {record.get('revision') or 'unknown'}"
    if written != FORMAT:
        raise ConfigError("store", name, f"a run of format {FORMAT}, not {written}, {writer}")
    try:
        metrics = record["metrics"]
        missing = [column for column in METRICS if column not in metrics]
        if older := [column for column in missing if column not in _ADDED_METRICS]:
            raise ValueError(f"without {older[0]}")
        metrics |= {column: [None] * len(metrics["step"]) for column in missing}
        columns = {column: np.array(metrics[column], dtype=np.float64) for column in METRICS}
        return Run(Config.from_dict(record["config"]), columns, record["summary"], record["revision"])
    except (ConfigError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("store", name, f"a run of this version ({error}); this one was {writer}") from error


def read_store(store: Path) -> list[Run]:
    """All runs of a store, by identity. Raises ConfigError for a damaged file, or where there is none."""
    paths = sorted(store.glob("*.json.gz"))
    if not paths:
        raise ConfigError("store", str(store), "a folder that holds finished runs")
    return [unpack(path.read_bytes(), str(path)) for path in paths]


def read_runs(*folders: Path) -> list[Run]:
    """The finished runs of stores, of folders of runs' folders, or of runs' own folders.

    A run that several of them hold is read once. Raises ConfigError where there is none, for two runs of a folder that
    differ in nothing that their results depend on, and where two folders have other results of the same run.
    """
    found: dict[str, tuple[Run, Path]] = {}
    for folder in folders:
        for run in _read(folder):
            twin, other = found.setdefault(run.identity, (run, folder))
            if twin is not run and pack(twin) != pack(run):
                told = f"{run.config.run.name} in {other} and in {folder}"
                raise ConfigError("folder", told, "the same results of a run; leave one of them out")
    if not found:
        raise ConfigError("folder", "none", "finished runs: a store, a folder of runs, or a run")
    return [run for run, _ in found.values()]


def _read(folder: Path) -> list[Run]:
    if (folder / "summary.json").exists():
        return [read_folder(folder)]
    return read_store(folder) if any(folder.glob("*.json.gz")) else _read_folders(folder)


def _read_folders(folder: Path) -> list[Run]:
    found = [read_folder(path.parent) for path in sorted(folder.glob("*/summary.json"))]
    if not found:
        raise ConfigError("folder", str(folder), "a folder that holds finished runs")
    seen: dict[str, Run] = {}
    for run in found:
        twin = seen.setdefault(run.identity, run)
        if twin is not run:
            names = f"{twin.config.run.name} and {run.config.run.name}"
            raise ConfigError("folder", str(folder), f"runs that differ: {names} do not")
    return found


# ---------------------------------------------------------------- the table


def rows_of(run: Run) -> Iterable[dict[str, Any]]:
    """A row per evaluation: on validation problems at their steps, on test problems of the last and the best policy.

    Figures of the training (all but ``eval/``) are means over the steps since the evaluation before.
    """
    own = {"identity": run.identity, **{f"config.{name}": _cell(value) for name, value in flat(run.config).items()}}
    steps = run.columns["step"].astype(int)
    before = -1
    for step in run.curve("eval/accuracy")[0].astype(int).tolist():
        since = (steps > before) & (steps <= step)
        at = int(np.flatnonzero(steps == step)[0])
        figures = {
            name: float(values[at]) if name.startswith("eval/") else _mean(values[since])
            for name, values in run.columns.items()
        }
        yield {**own, **figures, "split": "validation", "policy": "current", "step": step}
        before = step
    for policy, evaluation in run.summary["test"].items():
        figures = {name: math.nan if value is None else float(value) for name, value in evaluation.items()}
        step = run.summary["steps"] if policy == "last" else run.summary["best_step"]
        yield {**own, **figures, "split": "test", "policy": policy, "step": step}


def _mean(values: Numbers) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else math.nan


def _cell(value: Any) -> str | int | float | bool | None:
    """A setting as a table's cell: what is no plain value as JSON."""
    return value if value is None or isinstance(value, (str, int, float, bool)) else json.dumps(value)


def write_table(found: Sequence[Run], file: Path) -> None:
    """One Parquet file with a row per run and evaluation, sorted by run, for pandas, polars or duckdb.

    Columns: ``identity``, each field of the configuration as ``config.…`` (those that no result depends on left out),
    ``split``, ``policy``, ``step``, and every metric.
    """
    rows = [row for run in sorted(found, key=lambda run: run.identity) for row in rows_of(run)]
    names = ["identity", *(f"config.{name}" for name in flat(Config()) if name not in ASIDE), "split", "policy", "step"]
    texts = {"identity", "split", "policy"}
    arrays: dict[str, pa.Array] = {}
    for name in [*names, *(column for column in METRICS if column not in names)]:
        cells = [row.get(name) for row in rows]
        if name.startswith("config."):
            kinds = {type(cell) for cell in cells if cell is not None}
            # One type a column: settings that are sometimes a number and sometimes not are text.
            if not kinds <= {bool} and not kinds <= {int, float}:
                cells = [None if cell is None else str(cell) for cell in cells]
            elif kinds == {int, float}:
                cells = [None if cell is None else float(cell) for cell in cells]
            arrays[name] = pa.array(cells)
        elif name in texts:
            arrays[name] = pa.array(cells, pa.string())
        elif name == "step":
            arrays[name] = pa.array(cells, pa.int64())
        else:
            arrays[name] = pa.array([None if c is None or math.isnan(c) else c for c in cells], pa.float64())
    content = io.BytesIO()
    parquet.write_table(pa.table(arrays), content, compression="zstd")
    atomic_write(file, content.getvalue())
