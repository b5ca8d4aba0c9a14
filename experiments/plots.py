"""Pictures of a store of runs. Colours are Okabe and Ito's, told apart by the colour-blind; dashes differ too."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from experiments.estimands import Estimate, Setting, by_arm, label, predicted
from experiments.store import Run

matplotlib.use("Agg")

Numbers = npt.NDArray[np.float64]

_STYLES: dict[str, tuple[str, str]] = {
    "roc": ("#D55E00", "-"),
    "stratified": ("#0072B2", "-"),
    "grpo": ("#000000", "--"),
    "grpo_2g": ("#56B4E9", "--"),
    "shortest": ("#009E73", "-."),
    "roc_policy": ("#CC79A7", "-."),
}
_SPARE = (("#E69F00", "-"), ("#F0E442", "-."), ("#009E73", ":"), ("#CC79A7", ":"), ("#999999", "-"), ("#56B4E9", ":"))
_MARKS = [(mark, colour) for mark in "osD^" for colour in ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000")]
_POINTS = 41  # of a curve against tokens
_DPI = 140


def style(arm: str, arms: Sequence[str]) -> tuple[str, str]:
    """Colour and dash of an arm: its own, or a spare one by its place among those without."""
    if arm in _STYLES:
        return _STYLES[arm]
    others = [name for name in arms if name not in _STYLES]
    return _SPARE[others.index(arm) % len(_SPARE)]


def _panels(count: int, *, wide: float = 3.4, high: float = 2.6) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(wide * columns + 0.3, high * rows + 0.7), dpi=_DPI, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
    for spare in axes[count:]:
        spare.set_visible(False)
    for axis in axes:
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes[:count]


def _band(curves: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """Mean over runs, and half of the 95 % t interval of it; of a single run no width."""
    stacked = np.stack(curves)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # Where no run has the figure there is nothing to draw, and nothing to warn of.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(stacked, axis=0)
        count = np.maximum((~np.isnan(stacked)).sum(axis=0), 1)
        if len(stacked) == 1:
            return mean, np.zeros_like(mean)
        error = np.nanstd(stacked, axis=0, ddof=1) / np.sqrt(count)
    return mean, np.nan_to_num(error) * stats.t.ppf(0.975, np.maximum(count - 1, 1))


def _over_tokens(run: Run, column: str, grid: Numbers) -> Numbers:
    updates, values = run.curve(column)
    tokens = np.nan_to_num(run.columns["num_tokens"])[np.searchsorted(run.columns["step"], updates)]
    inside: Numbers = np.where(grid <= tokens[-1], np.interp(grid, tokens, values), np.nan)
    return inside


def curves(settings: Mapping[Setting, Sequence[Run]], column: str, name: str, *, tokens: bool = False) -> Figure:
    """A panel for each setting: mean of each arm over its seeds with a 95 % band, against updates or tokens."""
    figure, axes = _panels(len(settings))
    every = sorted({arm for runs in settings.values() for arm in by_arm(runs)}, key=arm_order)
    for axis, (setting, runs) in zip(axes, settings.items(), strict=True):
        for arm, seeds in sorted(by_arm(runs).items(), key=lambda item: arm_order(item[0])):
            members = [run for run in seeds.values() if len(run.curve(column)[0])]
            if not members:
                continue
            if tokens:
                most = max(float(np.nanmax(run.columns["num_tokens"])) for run in members)
                x = np.linspace(0.0, most, _POINTS)
                lines = [_over_tokens(run, column, x) for run in members]
                x = x / 1e6
            else:
                x = members[0].curve(column)[0]
                lines = [np.interp(x, *run.curve(column)) for run in members]
            mean, half = _band(lines)
            colour, dash = style(arm, every)
            axis.plot(x, mean, color=colour, linestyle=dash, linewidth=1.4, label=f"{arm} (n = {len(members)})")
            axis.fill_between(x, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
        axis.set_title(label(setting), fontsize=9)
        axis.set_xlabel("million tokens written" if tokens else "updates", fontsize=8)
    for axis in axes[:: min(len(axes), 3)]:
        axis.set_ylabel(textwrap.fill(name, 32), fontsize=8)
    _legend(figure, axes)
    return figure


def arm_order(arm: str) -> tuple[int, str]:
    names = list(_STYLES)
    return (names.index(arm) if arm in names else len(names), arm)


def _legend(figure: Figure, axes: Sequence[Axes], columns: int = 6) -> None:
    """One legend for all panels, below them."""
    found: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, text in zip(handles, labels, strict=True):
            found.setdefault(text.partition(" (n")[0], handle)
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        ncols=min(len(found), columns),
        fontsize=8,
        frameon=False,
    )


def selected_against_all(settings: Mapping[Setting, Sequence[Run]], figure_name: str, name: str, arm: str) -> Figure:
    """A figure of the right rollouts of an arm: of all of them, and of those that were trained on."""
    figure, axes = _panels(len(settings))
    for axis, (setting, runs) in zip(axes, settings.items(), strict=True):
        members = list(by_arm(runs).get(arm, {}).values())
        for rows, colour, dash, text in (
            ("positives", "#0072B2", "--", "all right rollouts"),
            ("selected", "#D55E00", "-", "those trained on"),
        ):
            column = f"roc/{figure_name}_{rows}"
            lines = [run.columns[column] for run in members]
            if not lines or np.isnan(np.stack(lines)).all():
                continue
            mean, half = _band([_smooth(line) for line in lines])
            x = members[0].columns["step"]
            axis.plot(x, mean, color=colour, linestyle=dash, linewidth=1.4, label=text)
            axis.fill_between(x, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
        axis.set_title(f"{arm}: {label(setting)}", fontsize=9)
        axis.set_xlabel("updates", fontsize=8)
    axes[0].set_ylabel(textwrap.fill(name, 32), fontsize=8)
    _legend(figure, axes)
    return figure


def _smooth(values: Numbers, width: int = 5) -> Numbers:
    """Mean over ``width`` updates around each, of those where the figure is defined."""
    kernel = np.ones(width)
    known = ~np.isnan(values)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(float), kernel, mode="same")
    smooth: Numbers = np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0)
    return smooth


def forest(estimates: Sequence[Estimate], title: str) -> Figure:
    """Differences with their 95 % intervals, a line for each setting; filled where the interval excludes 0."""
    figure = Figure(figsize=(7.0, 0.45 * len(estimates) + 1.3), dpi=_DPI, layout="constrained")
    axis = figure.subplots()
    axis.axvline(0.0, color="#999999", linewidth=1.0)
    axis.axvspan(-0.02, 0.02, color="#999999", alpha=0.12, linewidth=0)
    for row, found in enumerate(reversed(list(estimates))):
        paired = found.paired
        excludes = paired.low > 0 or paired.high < 0
        colour = "#D55E00" if excludes and paired.mean > 0 else "#0072B2" if excludes else "#666666"
        if math.isfinite(paired.low):
            axis.plot([paired.low, paired.high], [row, row], color=colour, linewidth=2.0, solid_capstyle="butt")
        axis.plot(paired.mean, row, "o", color=colour, markerfacecolor=colour if excludes else "white", markersize=6)
    axis.set_yticks(
        range(len(estimates)),
        [f"{label(found.setting)} (n = {found.paired.n})" for found in reversed(list(estimates))],
        fontsize=8,
    )
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_ylim(-0.7, len(estimates) - 0.3)
    axis.set_xlabel(f"{estimates[0].contrast.ours} − {estimates[0].contrast.theirs}: {title}", fontsize=8)
    return figure


def theory_beside(
    accuracy: Sequence[Estimate], good_first: Sequence[Estimate], configs: Mapping[Setting, Run]
) -> Figure:
    """Δ(roc − stratified) measured, with its interval, against what the smallest model predicts for the setting."""
    figure = Figure(figsize=(7.4, 3.9), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, 2)
    marks = {setting: _MARKS[number % len(_MARKS)] for number, setting in enumerate(configs)}
    for axis, estimates, index, name in zip(
        panels, (accuracy, good_first), (0, 1), ("accuracy", "good first calls"), strict=True
    ):
        reach = 0.05
        for found in estimates:
            gain, paired = predicted(configs[found.setting].config), found.paired
            if gain is None:
                continue
            spread = [[paired.mean - paired.low], [paired.high - paired.mean]] if math.isfinite(paired.low) else None
            mark, colour = marks[found.setting]
            text = label(found.setting)
            axis.errorbar(
                gain[index], paired.mean, yerr=spread, fmt=mark, color=colour, markersize=5, linewidth=1.2, label=text
            )
            reach = max(reach, abs(gain[index]), abs(paired.mean))
        bounds = [-1.15 * reach, 1.15 * reach]
        axis.plot(bounds, bounds, color="#999999", linewidth=0.8, linestyle="--")
        axis.axhline(0.0, color="#999999", linewidth=0.8)
        axis.axvline(0.0, color="#999999", linewidth=0.8)
        axis.set_title(f"Δ AUC of {name}", fontsize=9)
        axis.set_xlabel("the smallest model", fontsize=8)
        axis.set_ylabel("this transformer", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    _legend(figure, list(panels), columns=4)
    return figure


def map_of(estimates: Sequence[Estimate], x: str, y: str, title: str, of: Callable[[Estimate], float]) -> Figure:
    """A number for each pair of values of two fields; cells whose interval excludes 0 are marked with a star."""
    groups: dict[Setting, list[Estimate]] = {}
    for found in estimates:
        groups.setdefault(tuple(part for part in found.setting if part[0] not in (x, y)), []).append(found)
    figure, axes = _panels(len(groups), wide=3.6, high=2.2)
    largest = max((abs(of(found)) for found in estimates), default=1.0) or 1.0
    for axis, (setting, members) in zip(axes, groups.items(), strict=True):
        xs, ys = (sorted({dict(found.setting)[name] for found in members}) for name in (x, y))
        grid = np.full((len(ys), len(xs)), np.nan)
        axis.grid(visible=False)
        for found in members:
            column, row = xs.index(dict(found.setting)[x]), ys.index(dict(found.setting)[y])
            grid[row, column] = of(found)
            star = "*" if found.paired.low > 0 or found.paired.high < 0 else ""
            axis.text(column, row, f"{of(found):+.3f}{star}", ha="center", va="center", fontsize=8)
        axis.imshow(grid, cmap="PuOr_r", vmin=-largest, vmax=largest, aspect="auto", alpha=0.8)
        axis.set_xticks(range(len(xs)), [f"{value:g}" for value in xs])
        axis.set_yticks(range(len(ys)), [f"{value:g}" for value in ys])
        axis.set_xlabel(label(((x, ""),)).strip(), fontsize=8)
        axis.set_title(f"{label(setting)}: {title}" if setting else title, fontsize=9)
    axes[0].set_ylabel(label(((y, ""),)).strip(), fontsize=8)
    return figure
