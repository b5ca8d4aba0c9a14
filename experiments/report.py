"""A report of a store: one self-contained page and its pictures, every figure and sentence computed from the runs."""

from __future__ import annotations

import base64
import html
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from agents.checkpoint import write_text
from experiments import plots
from experiments.estimands import (
    ACCURACY,
    GOOD_FIRST,
    Contrast,
    Estimate,
    Setting,
    all_estimates,
    arm,
    by_arm,
    label,
    predicted,
    settings_of,
)
from experiments.statistics import iqm, mean_interval
from experiments.store import Run, read_runs

PAGE = "report.html"

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; padding: 1rem;
  max-width: 62rem; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
img { max-width: 100%; height: auto; display: block; margin: .5rem 0; }
figure { margin: 1rem 0; } figcaption { font-size: .9rem; color: #444; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
td.text { white-space: normal; min-width: 14rem; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.supported { color: #005f45; font-weight: 600; } .not { color: #8f3a00; font-weight: 600; } .undecided { color: #555; }
code { background: #f3f3f3; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
@media print {
  body { max-width: none; font-size: 10pt; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; }
}
"""


@dataclass(frozen=True)
class ReportConfig:
    """Write a report of a store of runs."""

    store: Annotated[Path, tyro.conf.Positional]
    """A store, or a folder of finished runs, such as sweeps/quick/store."""
    out: Path | None = None
    """Folder of the page and its pictures. None: `report` beside the store."""


def _png(figure: Figure) -> bytes:
    """A picture in a palette of 128 colours, a third of the size, without a date: the same runs give the same bytes."""
    drawn, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(reduced, "png", optimize=True)
    return reduced.getvalue()


@dataclass
class _Page:
    """The page as it grows, and the pictures that go beside it."""

    parts: list[str] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)

    def add(self, tag: str, text: str) -> None:
        self.parts.append(f"<{tag}>{html.escape(text)}</{tag}>")

    def picture(self, name: str, figure: Figure, caption: str) -> None:
        data = _png(figure)
        self.pictures[f"{name}.png"] = data
        source = base64.b64encode(data).decode()
        words = html.escape(caption)
        self.parts.append(
            f'<figure><img alt="{words}" src="data:image/png;base64,{source}"><figcaption>{words}</figcaption></figure>'
        )

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], classes: Sequence[str] = ()) -> None:
        kinds = list(classes) or [""] * len(header)
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(
            "<tr>"
            + "".join(f'<td class="{kind}">{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
            + "</tr>"
            for row in rows
        )
        self.parts.append(f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')

    def whole(self, title: str) -> str:
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        return (
            f'<!doctype html><html lang="en"><head>{head}<title>{html.escape(title)}</title>'
            f"<style>{_STYLE}</style></head><body>{''.join(self.parts)}</body></html>\n"
        )


def _cell(text: str) -> str:
    """A cell; a verdict in its colour."""
    for verdict, kind in (("not supported", "not"), ("supported", "supported"), ("undecided", "undecided")):
        if text == verdict:
            return f'<span class="{kind}">{verdict}</span>'
    return html.escape(text)


def report(config: ReportConfig, console: Console) -> Path:
    """Write ``report.html`` and its pictures; returns the page. Raises ConfigError where the store has no runs."""
    runs = read_runs(config.store)
    page = _Page()
    title = "Which rollouts should a policy learn from when tools fail?"
    page.add("h1", title)
    _introduction(page, runs, config.store)
    tables = all_estimates(runs)
    _verdicts(page, tables)
    _gains(page, tables, runs)
    _curves(page, runs)
    _filters(page, runs)
    _arms(page, runs)
    _details(page, tables)
    out = config.store.parent / "report" if config.out is None else config.out
    out.mkdir(parents=True, exist_ok=True)
    for name, content in page.pictures.items():
        temporary = out / f".{name}.{os.getpid()}.tmp"
        temporary.write_bytes(content)
        os.replace(temporary, out / name)
    write_text(out / PAGE, page.whole(title))
    console.print(f"report of {len(runs)} runs: {out / PAGE}", markup=False, highlight=False, soft_wrap=True)
    return out / PAGE


def _introduction(page: _Page, runs: Sequence[Run], store: Path) -> None:
    seeds = {run.config.run.seed for run in runs}
    arms = sorted({arm(run) for run in runs}, key=plots.arm_order)
    updates = sorted({run.config.run.steps for run in runs})
    revisions = sorted({run.revision[:10] or "unknown" for run in runs})
    page.add(
        "p",
        f"{len(runs)} runs of {len(arms)} arms ({', '.join(arms)}) over {len(seeds)} seeds, "
        f"{' or '.join(map(str, updates))} updates each, in {len(settings_of(runs))} settings. "
        f"Code revision {', '.join(revisions)}. All arms of a seed share cold start, problems and noise draws; "
        "differences are means over seeds paired so, with 95 % BCa bootstrap intervals.",
    )
    page.add(
        "p",
        "Decision rule, fixed before the runs: supported, if the interval excludes 0 on the claimed side; not "
        "supported, if it excludes 0 on the other side or lies within ± 0.02; undecided otherwise.",
    )
    page.parts.append(f"<p>Made by <code>python -m experiments report {html.escape(str(store))}</code>.</p>")


def _difference(found: Estimate) -> str:
    paired = found.paired
    if not math.isfinite(paired.low):
        return f"{paired.mean:+.3f}"
    return f"{paired.mean:+.3f} [{paired.low:+.3f}, {paired.high:+.3f}]"


def _verdicts(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]]) -> None:
    page.add("h2", "What was claimed, and what was found")
    rows = []
    for contrast, estimates in tables:
        for found in estimates:
            for claim, verdict in found.verdicts:
                sign = "more" if claim.sign > 0 else "less"
                rows.append(
                    [
                        f"{contrast.ours} − {contrast.theirs}: {contrast.figure.name}",
                        label(found.setting),
                        f"{claim.who}: {sign}",
                        _difference(found),
                        str(found.paired.n),
                        verdict,
                    ]
                )
    if rows:
        header = ("difference", "setting", "claim", "found", "pairs", "verdict")
        page.table(header, rows, ("text", "", "", "number", "number", ""))
    else:
        page.add("p", "These runs have no pair of arms that a claim is about.")


def _first(tables: Sequence[tuple[Contrast, list[Estimate]]], figure: object) -> list[Estimate]:
    """Δ(roc − stratified) of a primary figure."""
    for contrast, estimates in tables:
        if contrast.number == 1 and contrast.figure is figure:
            return estimates
    return []


def _gains(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]], runs: Sequence[Run]) -> None:
    good_first, accuracy = _first(tables, GOOD_FIRST), _first(tables, ACCURACY)
    if not accuracy:
        return
    page.add("h2", "What the quality filter gains over the same quotas without it")
    for name, estimates, title in (
        ("gain_accuracy", accuracy, "AUC of accuracy"),
        ("gain_good_first", good_first, "AUC of good first calls"),
    ):
        excluding = [found for found in estimates if found.paired.low > 0 or found.paired.high < 0]
        words = "; ".join(f"{label(found.setting)}: {_difference(found)}" for found in excluding) or "none"
        page.picture(
            name,
            plots.forest(estimates, title),
            f"roc − stratified, {title}: mean difference over paired seeds and 95 % interval; the band is ± 0.02. "
            f"Intervals that exclude 0: {words}.",
        )
    configs = {setting: members[0] for setting, members in settings_of(runs).items()}
    if any(predicted(configs[found.setting].config) for found in accuracy):
        page.picture(
            "theory",
            plots.theory_beside(accuracy, good_first, configs),
            "The same differences beside those of the smallest model, a softmax over behaviours; on the dashed line "
            "both agree.",
        )
    if any(name == "noise.rate" for found in accuracy for name, _ in found.setting):
        for name, estimates, title in (
            ("map_accuracy", accuracy, "Δ AUC of accuracy"),
            ("map_good_first", good_first, "Δ AUC of good first calls"),
        ):
            picture = plots.map_of(estimates, "noise.rate", "noise.correlation", title, lambda found: found.paired.mean)
            page.picture(
                name, picture, f"{title}, roc − stratified, by fault rate and ρ; * where the interval excludes 0."
            )


def _curves(page: _Page, runs: Sequence[Run]) -> None:
    settings = settings_of(runs)
    page.add("h2", "Learning")
    band = "Mean over seeds with a 95 % t interval."
    for column, name, key in (
        ("eval/accuracy", "accuracy (validation)", "accuracy"),
        ("eval/good_first_call", "good first calls (validation)", "good_first"),
    ):
        for tokens in (False, True):
            against = "tokens" if tokens else "updates"
            figure = plots.curves(settings, column, name, tokens=tokens)
            page.picture(f"{key}_{against}", figure, f"{_capital(name)} against {against}. {band}")
    page.add("h2", "Errors within right rollouts, recovery and length")
    for column, name, key in (
        ("roc/error_ratio_positives", "errors / calls in right rollouts", "errors_in_positives"),
        (
            "roc/policy_error_ratio_positives",
            "the policy's own errors / calls in right rollouts",
            "own_errors_in_positives",
        ),
        ("eval/recovery", "right after a faulted first call", "recovery"),
        ("eval/mean_length", "tokens of a rollout", "length"),
    ):
        page.picture(key, plots.curves(settings, column, name), f"{_capital(name)}. {band}")


def _filters(page: _Page, runs: Sequence[Run]) -> None:
    settings: dict[Setting, list[Run]] = {s: list(m) for s, m in settings_of(runs).items() if "roc" in by_arm(m)}
    if not settings:
        return
    page.add("h2", "What the filter keeps")
    for figure_name, name in (
        ("error_ratio", "errors / calls"),
        ("lucky", "lucky: right without a right call that arrived"),
        ("recovered", "recovered: right after a fault"),
        ("length", "tokens written"),
    ):
        figure = plots.selected_against_all(settings, figure_name, name, "roc")
        caption = f"{_capital(name)}: of all right rollouts under roc, and of those it trains on (five-update means)."
        page.picture(f"selected_{figure_name}", figure, caption)
    page.picture(
        "selection_differential",
        plots.curves(settings_of(runs), "roc/selection_differential", "selection differential of quality"),
        "Mean reasoning quality of the right rollouts that were trained on, less that of all right rollouts.",
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _arms(page: _Page, runs: Sequence[Run]) -> None:
    page.add("h2", "All arms")
    rows = []
    for setting, members in settings_of(runs).items():
        for name, seeds in sorted(by_arm(members).items(), key=lambda item: plots.arm_order(item[0])):
            cells = [label(setting), name, str(len(seeds))]
            for figure in ("good_first_call", "accuracy", "recovery", "error_ratio", "mean_length"):
                values = [value for run in seeds.values() if math.isfinite(value := run.test(figure))]
                cells.append(_mean(values))
            areas = [value for run in seeds.values() if math.isfinite(value := run.area("eval/accuracy"))]
            cells += [_mean(areas), f"{iqm(areas):.3f}" if areas else "–"]
            rows.append(cells)
    header = ("setting", "arm", "runs", "good first calls", "accuracy", "recovery", "errors / calls", "tokens")
    page.table((*header, "AUC accuracy", "IQM of it"), rows, ("", "", "number", *["number"] * 7))
    page.add(
        "p", "At the end of training on test problems, mean over seeds with 95 % BCa interval; AUC over validation."
    )


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    interval = mean_interval(values)
    if not math.isfinite(interval.low):
        return f"{interval.mean:.3f}"
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _details(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]]) -> None:
    page.add("h2", "Every difference in full")
    for contrast, estimates in tables:
        page.add(
            "h3", f"({contrast.number}) {contrast.question} {contrast.ours} − {contrast.theirs}: {contrast.figure.name}"
        )
        rows = [
            [
                label(found.setting),
                f"{found.means[0].mean:.3f}",
                f"{found.means[1].mean:.3f}",
                _difference(found),
                str(found.paired.n),
                f"{found.unpaired.mean:+.3f} [{found.unpaired.low:+.3f}, {found.unpaired.high:+.3f}]",
                f"{found.adjusted:.4f}" if math.isfinite(found.adjusted) else "–",
                f"{found.improvement:.2f}",
            ]
            for found in estimates
        ]
        header = (
            "setting",
            contrast.ours,
            contrast.theirs,
            "paired difference",
            "pairs",
            "unpaired",
            "p (Holm)",
            "P(ours better)",
        )
        page.table(header, rows, ("", *["number"] * 7))
