"""The picture of one run."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

# Not pyplot, which takes as long to import again, and keeps figures.
from matplotlib.figure import Figure

from agents.checkpoint import atomic_write

# Okabe and Ito's palette: told apart by the colour-blind, and in print with the line styles.
BLUE, ORANGE, GREEN, VERMILION, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"

_drawing = threading.Lock()  # Matplotlib is not for several threads, and the runs of a stack end together.

Series = tuple[str, str, str, str]  # column, label, colour, line style

# Title, what is drawn, whether all of it is a share, and where curves seldom are: there the legend stands.
_PANELS: tuple[tuple[str, tuple[Series, ...], bool, str], ...] = (
    (
        "Accuracy on validation problems",
        (
            ("eval/accuracy", "with faults", BLUE, "-"),
            ("eval/accuracy_clean", "without faults", GREEN, "--"),
            ("eval/accuracy_one_call", "one call only", ORANGE, ":"),
            ("eval/accuracy_harder", "harder level", GREY, "-."),
        ),
        True,
        "lower right",
    ),
    (
        "First call and recovery",
        (
            ("eval/good_first_call", "first call well reasoned", BLUE, "-"),
            ("eval/recovery", "right after a faulted first call", VERMILION, "x"),
        ),
        True,
        "lower right",
    ),
    (
        "Tool errors / calls in right rollouts",
        (
            ("roc/error_ratio_positives", "all right ones", GREY, "-"),
            ("roc/error_ratio_selected", "those trained on", VERMILION, "--"),
        ),
        False,
        "upper right",
    ),
    (
        "Lucky share of right rollouts",
        (
            ("roc/lucky_positives", "all right ones", GREY, "-"),
            ("roc/lucky_selected", "those trained on", VERMILION, "--"),
        ),
        False,
        "upper right",
    ),
    (
        "Tokens written per rollout",
        (
            ("completions/mean_length", "all", BLUE, "-"),
            ("roc/length_selected", "right, trained on", VERMILION, "--"),
        ),
        False,
        "lower right",
    ),
    (
        "Faults landed / working calls",
        (
            ("noise/landed", "faults", GREY, "-"),
            ("tools/policy_failure_frequency", "the policy's own errors / calls", BLUE, "--"),
        ),
        False,
        "upper right",
    ),
)


def plot_run(rows: Sequence[dict[str, Any]], path: Path, *, title: str) -> None:
    """Draw a run's curves against updates to a PNG, written whole or not at all.

    Args:
        rows: of metrics.jsonl.
        path: the picture.
        title: named above the panels.
    """
    picture = io.BytesIO()
    with _drawing:
        _draw(rows, picture, title)
    atomic_write(path, picture.getvalue())


def _draw(rows: Sequence[dict[str, Any]], file: BinaryIO, title: str) -> None:
    figure = Figure(figsize=(13, 6.6))
    # Margins that are fixed: a layout that is computed, as a place for the legend, draws everything twice.
    axes = figure.subplots(
        2, 3, gridspec_kw={"left": 0.05, "right": 0.985, "top": 0.89, "bottom": 0.07, "hspace": 0.32, "wspace": 0.19}
    )
    figure.suptitle(title, fontsize=12, parse_math=False)
    for axis, (name, series, share, place) in zip(axes.flat, _PANELS, strict=True):
        for column, label, colour, style in series:
            points = [(row["step"], row[column]) for row in rows if row[column] is not None]
            if points:
                axis.plot(*zip(*points, strict=True), style, color=colour, label=label, linewidth=1.6)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("updates")
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0, top=1.02 if share else None)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=8, loc=place)
    figure.savefig(file, dpi=110, format="png")
