"""``python -m experiments bench``: how fast this machine runs what the laboratory is made of.

A part is a function that takes a BenchConfig and yields Rows (``figures.py``), and so is a peer. Each gets a table; the
last line printed is JSON with all figures, the bounds that were missed, and a description of the machine.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from experiments.bench import peer
from experiments.bench.engine import rows as engine_rows
from experiments.bench.figures import BenchConfig, Part, Row
from experiments.bench.runs import rows as run_rows
from experiments.bench.tools import rows as tool_rows
from tool_gym.errors import ConfigError

__all__ = ["PARTS", "BenchConfig", "bench", "describe_machine", "table"]

_WIDTH = 160

PARTS: Mapping[str, Part] = {"tools": tool_rows, "engine": engine_rows, "runs": run_rows}
PEERS: Mapping[str, Part] = {"trl": peer.rows}


def bench(config: BenchConfig, console: Console) -> dict[str, Any]:
    """Print the tables and the line of JSON; returns what the line holds.

    Raises ConfigError, before anything is measured, for a part or peer that does not exist, a peer that is not
    installed, or a number out of range.
    """
    _check(config)
    if not console.is_terminal:
        # Nobody looks at a file through a window of 80 columns.
        console.width = max(console.width, _WIDTH)
    machine = describe_machine(() if config.peer is None else peer.PACKAGES)
    chosen = {part: PARTS[part] for part in config.parts}
    if config.peer is not None:
        chosen[f"peer {config.peer}"] = PEERS[config.peer]
    measured: dict[str, list[Row]] = {}
    for part, measure in chosen.items():
        with console.status(part) as status:
            rows = measured[part] = []
            for row in measure(config):
                rows.append(row)
                status.update(f"{part}: {row.name}")
        console.print(table(part, rows))
    result = {
        "bench": {part: [_to_dict(row) for row in rows] for part, rows in measured.items()},
        "missed": [f"{part}: {row.name}" for part, rows in measured.items() for row in rows if row.holds is False],
        "settings": dataclasses.asdict(config),
        "machine": machine,
    }
    console.print(json.dumps(result), markup=False, highlight=False, soft_wrap=True)
    return result


def _check(config: BenchConfig) -> None:
    unknown = [part for part in config.parts if part not in PARTS]
    if unknown or not (config.parts or config.peer):
        raise ConfigError("parts", unknown[0] if unknown else (), ", ".join(PARTS))
    if config.peer is not None:
        if config.peer not in PEERS:
            raise ConfigError("peer", config.peer, ", ".join(PEERS))
        peer.check_installed()
    for field, least in (("calls", 100), ("burst", 1), ("workers", 1), ("rounds", 1), ("seed", 0)):
        if getattr(config, field) < least:
            raise ConfigError(field, getattr(config, field), f"an integer of at least {least}")
    if config.calls < 100 * config.rounds:
        raise ConfigError("rounds", config.rounds, f"at most {config.calls // 100} for {config.calls} calls")


def table(part: str, rows: Sequence[Row]) -> Table:
    """The rows of a part, to be printed."""
    result = Table(title=part, title_justify="left")
    for name in ("figure", "value", "unit", "ratio [quartiles]", "to", "bound", ""):
        result.add_column(name, justify="right" if name in ("value", "bound") else "left", overflow="fold")
    for row in rows:
        ratio, bound, verdict = "", "", ""
        if row.ratio is not None:
            ratio = f"{row.ratio.median:.2f} [{row.ratio.low:.2f}, {row.ratio.high:.2f}]"
        if row.bound is not None:
            bound = f"{'≥' if row.at_least else '≤'} {row.bound:.3g}"
            verdict = "[green]holds[/green]" if row.holds else "[bold red]MISSED[/bold red]"
        result.add_row(row.name, _shown(row.figure), row.unit, ratio, row.against, bound, verdict)
    return result


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"


def _to_dict(row: Row) -> dict[str, Any]:
    """A row as JSON, without what it does not have."""
    entries = {name: value for name, value in dataclasses.asdict(row).items() if value not in (None, "", False)}
    return entries | ({} if row.holds is None else {"holds": row.holds})


def describe_machine(packages: Sequence[str] = ()) -> dict[str, Any]:
    """Processor, cores, load at the start, versions (also of ``packages``): without them a figure means nothing."""
    names = ("RestrictedPython", "numpy", "torch", "numba", "llvmlite", *packages)
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
