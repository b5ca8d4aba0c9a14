"""Pictures of a store of runs. Colours are Okabe and Ito's, told apart by the colour-blind; dashes differ too."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from experiments.estimands import Estimate, Setting, by_arm, label, predicted
from experiments.statistics import MARGIN, excludes_zero
from experiments.store import Run

matplotlib.use("Agg")

Numbers = npt.NDArray[np.float64]

Dash = str | tuple[int, tuple[int, ...]]

_STYLES: dict[str, tuple[str, Dash]] = {
    "roc": ("#D55E00", "-"),
    "stratified": ("#0072B2", "-"),
    "grpo": ("#000000", "--"),
    "grpo_2g": ("#56B4E9", "--"),
    "shortest": ("#009E73", "-."),
    "roc_policy": ("#CC79A7", "-."),
}
_SPARE_COLOURS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#0072B2", "#999999")
_SPARE = [(colour, dash) for dash in (":", (0, (5, 1, 1, 1, 1, 1))) for colour in _SPARE_COLOURS]
_MARKS = [(mark, colour) for mark in "osD^" for colour in ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#000000")]
_POINTS = 41  # of a curve against tokens
_MOST_BANDS = 6  # arms of a panel whose bands can still be told apart
_DPI = 140
# Of a legend: its columns, and what a letter, and all that stands beside a text, take of the width, in inches.
_MOST_COLUMNS, _OF_LETTER, _OF_HANDLE = 6, 0.065, 0.5


def style(arm: str, arms: Sequence[str]) -> tuple[str, Dash]:
    """Colour and dash of an arm: its own, or a spare one, of twelve, by its place among those without."""
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


def _wrapped(text: str) -> str:
    """As wide as a panel, in lines."""
    return textwrap.fill(text, 44)


def _band(lines: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """Mean over the runs that have a value, and half of the 95 % t interval of it; NaN for fewer than two."""
    stacked = np.stack(lines)
    count = (~np.isnan(stacked)).sum(axis=0)
    mean = np.divide(np.nansum(stacked, axis=0), count, out=np.full(stacked.shape[1], math.nan), where=count > 0)
    squares = np.nansum((stacked - mean) ** 2, axis=0)
    error = np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1))
    return mean, np.where(count > 1, error * stats.t.ppf(0.975, np.maximum(count - 1, 1)), math.nan)


def with_bands(settings: Mapping[Setting, Sequence[Run]]) -> bool:
    """Whether there are few enough arms for a band each."""
    return max(len(by_arm(runs)) for runs in settings.values()) <= _MOST_BANDS


def _over_tokens(run: Run, column: str, grid: Numbers) -> Numbers:
    updates, values = run.curve(column)
    return np.interp(grid, _tokens_at(run, updates), values)


def _tokens_at(run: Run, updates: Numbers) -> Numbers:
    """Tokens written up to some updates; step 0 has written nothing yet, and its row has no count."""
    tokens: Numbers = np.nan_to_num(run.columns["num_tokens"])[np.searchsorted(run.columns["step"], updates)]
    return tokens


def curves(settings: Mapping[Setting, Sequence[Run]], column: str, name: str, *, tokens: bool = False) -> Figure:
    """A panel for each setting: means of arms over seeds, of few arms with 95 % bands, against updates or tokens.

    Against tokens a curve ends where the first of its runs does: what follows would be a mean over other runs. Bands
    of what lies between 0 and 1 end there, too.
    """
    figure, axes = _panels(len(settings))
    every = sorted({arm for runs in settings.values() for arm in by_arm(runs)}, key=arm_order)
    bands = with_bands(settings)
    for axis, (setting, runs) in zip(axes, settings.items(), strict=True):
        for arm, seeds in arms_in_order(runs):
            members = [run for run in seeds.values() if len(run.curve(column)[0])]
            if not members:
                continue
            if tokens:
                least = min(float(_tokens_at(run, run.curve(column)[0][-1:])[0]) for run in members)
                x = np.linspace(0.0, least, _POINTS)
                lines = [_over_tokens(run, column, x) for run in members]
                x = x / 1e6
            else:
                stacked = np.stack([run.columns[column] for run in members])
                measured = ~np.isnan(stacked).all(axis=0)
                x = members[0].columns["step"][measured]
                lines = list(stacked[:, measured])
            _draw(axis, x, lines, *style(arm, every), f"{arm} (n = {len(members)})", band=bands)
        axis.set_title(_wrapped(label(setting)), fontsize=9)
        axis.set_xlabel("million tokens written" if tokens else "updates", fontsize=8)
    for axis in axes[:: min(len(axes), 3)]:
        axis.set_ylabel(textwrap.fill(name, 32), fontsize=8)
    _legend(figure, axes)
    return figure


def _draw(
    axis: Axes, x: Numbers, lines: Sequence[Numbers], colour: str, dash: Dash, text: str, *, band: bool = True
) -> None:
    """A mean, and its band if it is to have one."""
    mean, half = _band(lines)
    low, high = mean - half, mean + half
    if all(np.nanmin(line) >= 0 and np.nanmax(line) <= 1 for line in lines if not np.isnan(line).all()):
        low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    axis.plot(x, mean, color=colour, linestyle=dash, linewidth=1.4, label=text)
    if band:
        axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def arms_in_order(runs: Sequence[Run]) -> list[tuple[str, dict[int, Run]]]:
    """The arms of a setting, with their runs by seed, as legends and tables name them."""
    return sorted(by_arm(runs).items(), key=lambda item: arm_order(item[0]))


def arm_order(arm: str) -> tuple[int, str]:
    names = list(_STYLES)
    return (names.index(arm) if arm in names else len(names), arm)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below them, in as many columns as fit into the figure's width."""
    found: dict[str, Artist] = {}
    room = figure.get_size_inches()[0]
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for handle, text in zip(handles, labels, strict=True):
            words = textwrap.fill(text.partition(" (n")[0], int((room - _OF_HANDLE) / _OF_LETTER))
            found.setdefault(words, handle)
    longest = max((len(line) for text in found for line in text.splitlines()), default=0)
    fit = int(room / (_OF_HANDLE + longest * _OF_LETTER))
    figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower center",
        ncols=max(1, min(len(found), fit, _MOST_COLUMNS)),
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
            _draw(axis, members[0].columns["step"], [_smooth(line) for line in lines], colour, dash, text)
        axis.set_title(_wrapped(f"{arm}: {label(setting)}"), fontsize=9)
        axis.set_xlabel("updates", fontsize=8)
    axes[0].set_ylabel(textwrap.fill(name, 32), fontsize=8)
    _legend(figure, axes)
    return figure


def _smooth(values: Numbers, width: int = 5) -> Numbers:
    """Mean over ``width`` updates around each, of those where the figure is defined."""
    known = ~np.isnan(values)

    def around(numbers: Numbers) -> Numbers:
        # Not mode="same", which of a run shorter than the window returns the window's length.
        return np.convolve(numbers, np.ones(width))[width // 2 :][: len(values)]

    total, count = around(np.where(known, values, 0.0)), around(known.astype(float))
    smooth: Numbers = np.divide(total, count, out=np.full_like(total, math.nan), where=count > 0)
    return smooth


def forest(estimates: Sequence[Estimate], title: str) -> Figure:
    """Differences with their 95 % intervals, a line for each setting; filled where an interval of enough excludes 0."""
    figure = Figure(figsize=(7.0, 0.45 * len(estimates) + 1.3), dpi=_DPI, layout="constrained")
    axis = figure.subplots()
    _intervals(axis, estimates, [_wrapped(f"{label(found.setting)} (n = {found.paired.n})") for found in estimates])
    axis.set_xlabel(f"{estimates[0].contrast.ours} − {estimates[0].contrast.theirs}: {title}", fontsize=8)
    return figure


def rules_beside(settings: Mapping[Setting, Sequence[Estimate]], title: str) -> Figure:
    """A panel for each setting: every rule less the control, as :func:`forest` has it, a line for each rule."""
    rules = sorted({found.contrast.ours for members in settings.values() for found in members}, key=arm_order)
    columns = min(len(settings), 3)
    rows = -(-len(settings) // columns)
    figure = Figure(figsize=(3.2 * columns + 1.4, (0.23 * len(rules) + 0.7) * rows), dpi=_DPI, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[len(settings) :]:
        spare.set_visible(False)
    for axis, (setting, members) in zip(axes, settings.items(), strict=False):
        ordered = sorted(members, key=lambda found: arm_order(found.contrast.ours))
        _intervals(axis, ordered, [found.contrast.ours for found in ordered])
        axis.set_title(_wrapped(label(setting)), fontsize=9)
        axis.set_xlabel(title, fontsize=8)
    shown = axes[: len(settings)]
    bounds = [min(axis.get_xlim()[0] for axis in shown), max(axis.get_xlim()[1] for axis in shown)]
    for axis in shown:
        axis.set_xlim(*bounds)
    return figure


def _intervals(axis: Axes, estimates: Sequence[Estimate], names: Sequence[str]) -> None:
    """Differences with their intervals, the first on top."""
    axis.axvline(0.0, color="#999999", linewidth=1.0)
    axis.axvspan(-MARGIN, MARGIN, color="#999999", alpha=0.12, linewidth=0)
    for row, found in enumerate(reversed(estimates)):
        paired = found.paired
        excludes = excludes_zero(paired)
        colour = "#D55E00" if excludes and paired.mean > 0 else "#0072B2" if excludes else "#666666"
        if math.isfinite(paired.low):
            axis.plot([paired.low, paired.high], [row, row], color=colour, linewidth=2.0, solid_capstyle="butt")
        axis.plot(paired.mean, row, "o", color=colour, markerfacecolor=colour if excludes else "white", markersize=6)
    axis.set_yticks(range(len(estimates)), list(reversed(names)), fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_ylim(-0.7, len(estimates) - 0.3)


def theory_beside(
    accuracy: Sequence[Estimate], good_first: Sequence[Estimate], configs: Mapping[Setting, Run]
) -> Figure:
    """Δ(roc − stratified) measured, with its interval, against what the smallest model predicts for the setting.

    Filled with the loss of the runs; hollow with a loss per episode, as first predicted, where that is another.
    """
    figure = Figure(figsize=(7.4, 3.9), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, 2)
    marks = {setting: _MARKS[number % len(_MARKS)] for number, setting in enumerate(configs)}
    for axis, estimates, modelled, name in (
        (panels[0], accuracy, "accuracy", "accuracy"),
        (panels[1], good_first, "good_first", "good first calls"),
    ):
        reach = 0.05
        for found in estimates:
            config, paired = configs[found.setting].config, found.paired
            spread = [[paired.mean - paired.low], [paired.high - paired.mean]] if math.isfinite(paired.low) else None
            mark, colour = marks[found.setting]
            cells = (predicted(config, loss="episode"), predicted(config))
            gains = [None if cell is None else getattr(cell, modelled).mean for cell in cells]
            for gain, hollow in zip(gains, (True, False), strict=True):
                if gain is None or (hollow and gain == gains[1]):
                    continue
                axis.errorbar(
                    gain,
                    paired.mean,
                    yerr=spread,
                    fmt=mark,
                    color=colour,
                    markerfacecolor="white" if hollow else colour,
                    markersize=5,
                    linewidth=0.6 if hollow else 1.2,
                    label=label(found.setting) if not hollow or gains[1] is None else None,
                )
                reach = max(reach, abs(gain), abs(paired.mean))
        bounds = [-1.15 * reach, 1.15 * reach]
        axis.plot(bounds, bounds, color="#999999", linewidth=0.8, linestyle="--")
        axis.axhline(0.0, color="#999999", linewidth=0.8)
        axis.axvline(0.0, color="#999999", linewidth=0.8)
        axis.set_title(f"Δ AUC of {name}", fontsize=9)
        axis.set_xlabel("the smallest model", fontsize=8)
        axis.set_ylabel("this transformer", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    _legend(figure, list(panels))
    return figure


def map_of(estimates: Sequence[Estimate], x: str, y: str, title: str, of: Callable[[Estimate], float]) -> Figure:
    """A number for each pair of values of two fields; a star where an interval of enough pairs excludes 0."""
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
            star = "*" if excludes_zero(found.paired) else ""
            axis.text(column, row, f"{of(found):+.3f}{star}", ha="center", va="center", fontsize=8)
        axis.imshow(grid, cmap="PuOr_r", vmin=-largest, vmax=largest, aspect="auto", alpha=0.8)
        axis.set_xticks(range(len(xs)), [f"{value:g}" for value in xs])
        axis.set_yticks(range(len(ys)), [f"{value:g}" for value in ys])
        axis.set_xlabel(label(((x, ""),)).strip(), fontsize=8)
        axis.set_title(_wrapped(f"{label(setting)}: {title}") if setting else title, fontsize=9)
    axes[0].set_ylabel(label(((y, ""),)).strip(), fontsize=8)
    return figure
