"""What a run shows while it goes on: a live table in a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

Row = dict[str, Any]

_SHOWN = (
    ("reward", "reward"),
    ("errors in right rollouts", "roc/error_ratio_positives"),
    ("  in those trained on", "roc/error_ratio_selected"),
    ("lucky among right rollouts", "roc/lucky_positives"),
    ("faults / working calls", "noise/landed"),
    ("accuracy (validation)", "eval/accuracy"),
    ("first call well reasoned", "eval/good_first_call"),
    ("right after a faulted first call", "eval/recovery"),
)

_FINAL = (
    ("accuracy", "eval/accuracy"),
    ("accuracy without faults", "eval/accuracy_clean"),
    ("accuracy with one call", "eval/accuracy_one_call"),
    ("accuracy, harder level", "eval/accuracy_harder"),
    ("first call well reasoned", "eval/good_first_call"),
    ("right after a faulted first call", "eval/recovery"),
    ("errors / calls", "eval/error_ratio"),
    ("tokens per rollout", "eval/mean_length"),
)


def figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


class PlainDisplay:
    """Lines of text: one an evaluation, and a few of the cold start."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def cold_start(self, step: int, steps: int, loss: float) -> None:
        if step == steps or step % 50 == 0:
            self.note(f"cold start {step}/{steps}  loss {loss:.3f}")

    def step(self, row: Row, steps: int) -> None:
        if row["eval/accuracy"] is not None:
            shown = "  ".join(f"{column} {figure(row[column])}" for _, column in _SHOWN)
            self.note(f"step {row['step']}/{steps}  {shown}")

    def note(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveDisplay:
    """A progress bar with the time left, over a table of the latest figures."""

    def __init__(self, console: Console, live: Live) -> None:
        self.console, self.live = console, live
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self.tasks: dict[str, Any] = {}
        self.latest: Row = {}
        self.shown = 0.0

    def _advance(self, name: str, step: int, steps: int) -> None:
        if name not in self.tasks:
            # The rate counts from where this process took over, also where a run is resumed.
            self.tasks[name] = self.progress.add_task(name, total=steps, completed=step)
        self.progress.update(self.tasks[name], completed=step)

    def cold_start(self, step: int, steps: int, loss: float) -> None:
        self._advance("cold start", step, steps)
        self.latest["cold start loss"] = loss
        self._refresh(step == steps)

    def step(self, row: Row, steps: int) -> None:
        self._advance("training", row["step"], steps)
        self.latest |= {column: value for column, value in row.items() if value is not None}
        self._refresh(row["step"] == steps)

    def _refresh(self, now: bool) -> None:
        if now or time.monotonic() - self.shown > 0.2:
            self.shown = time.monotonic()
            table = Table.grid(padding=(0, 3))
            for label, column in (("cold start loss", "cold start loss"), *_SHOWN):
                if column in self.latest:
                    table.add_row(label, figure(self.latest[column]))
            self.live.update(Group(self.progress, table))

    def note(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)


@contextmanager
def open_display(console: Console) -> Iterator[PlainDisplay | LiveDisplay]:
    """A live display in a terminal, plain lines where the output is piped."""
    if not console.is_terminal:
        yield PlainDisplay(console)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield LiveDisplay(console, live)


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """The table at the end: validation before training, test of the last and of the best policy."""
    best = f"best ({summary['best_step']})"
    title = f"after {summary['steps']} updates, {summary['num_tokens']:,} tokens written"
    table = Table(title=title, caption="step 0 on validation problems; last and best (step) on test problems")
    for name in ("", "step 0", "last", best):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    columns = (summary["validation"]["first"], summary["test"]["last"], summary["test"]["best"])
    for row in evaluation_rows(columns):
        table.add_row(*row)
    console.print(table)


def evaluation_rows(columns: Sequence[Mapping[str, float | None]]) -> list[list[str]]:
    """A row for each figure of some evaluations: what it is, and a cell for each of them."""
    rows = []
    for label, key in _FINAL:
        # An environment of one difficulty has no harder one.
        cells = [figure(column.get(key)) for column in columns]
        if key == "eval/recovery":
            # Of how many: where faults have faded it is a share of next to nothing.
            cells = [
                f"{cell} ({column['eval/faulted_first_calls']:.0f})"
                for cell, column in zip(cells, columns, strict=True)
            ]
        rows.append([label, *cells])
    return rows
