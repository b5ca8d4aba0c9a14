"""A report of a store: one self-contained page and its pictures, every figure and sentence computed from the runs."""

from __future__ import annotations

import base64
import html
import io
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from agents.checkpoint import atomic_write
from agents.config import Config
from experiments import plots
from experiments.estimands import (
    ACCURACY,
    CONTROL,
    ERRORS,
    ESTIMANDS,
    FINAL_ACCURACY,
    GOOD_FIRST,
    LEAD,
    MODEL,
    NOBODY,
    NOT_TRIED,
    PRIMARY,
    SELECTION,
    SINCE,
    TABLE,
    Claim,
    Contrast,
    Estimate,
    Setting,
    all_estimates,
    arm,
    beside_control,
    by_arm,
    label,
    last_before_switch,
    predicted,
    settings_of,
    uncommon,
)
from experiments.presets import PRESETS, expand
from experiments.statistics import (
    COVERAGE,
    LEAST_PAIRS,
    MARGIN,
    Verdict,
    excludes_zero,
    iqm,
    mean_interval,
    verdict,
)
from experiments.store import Run, identity, read_runs
from tool_gym.registration import resolve

PAGE = "report.html"
_LEAST_REM = 5.2  # of a picture's inch, on the page: letters of 8 pt are then some 9 pixels high

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; padding: 1rem;
  max-width: 62rem; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
img { width: 100%; height: auto; display: block; margin: .5rem 0; }
figure { margin: 1rem 0; } figcaption { font-size: .9rem; color: #444; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
td.text { white-space: normal; min-width: 14rem; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
.supported { color: #005f45; font-weight: 600; } .not-supported { color: #8f3a00; font-weight: 600; }
.undecided, .too-few-pairs { color: #555; }
code { background: #f3f3f3; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
@media print {
  body { max-width: none; font-size: 10pt; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; }
  img { min-width: 0 !important; } table { font-size: 7pt; } th, td { white-space: normal; padding: .2rem .3rem; }
}
"""


@dataclass(frozen=True)
class ReportConfig:
    """Write a report of one store of runs, or of several together."""

    stores: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Stores, or folders of finished runs, such as sweeps/quick/store. What asks for two settings may need two."""
    out: Path | None = None
    """Folder of the page and its pictures. None: `report` beside the first store, or in the first folder of runs."""


def _png(figure: Figure) -> bytes:
    """A picture in a palette of 256 colours, a third of the size, without a date: the same runs give the same bytes."""
    drawn, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png")
    Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(reduced, "png", optimize=True)
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
        # On a phone a picture is scrolled rather than drawn so small that its letters cannot be read.
        least = round(figure.get_size_inches()[0] * _LEAST_REM)
        self.parts.append(
            f'<figure><div class="wide"><img alt="{words}" style="min-width: {least}rem" '
            f'src="data:image/png;base64,{source}"></div>'
            f"<figcaption>{words}</figcaption></figure>"
        )

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], kinds: Sequence[str]) -> None:
        """A table whose columns are of a kind each: "", "text" (may wrap), "number" or "verdict"."""

        def cell(kind: str, text: str) -> str:
            own = text.replace(" ", "-") if kind == "verdict" else kind
            return f'<td class="{own}">{html.escape(text)}</td>'

        head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
        body = "".join(f"<tr>{''.join(map(cell, kinds, row))}</tr>" for row in rows)
        self.parts.append(f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>')

    def whole(self, title: str) -> str:
        head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        return (
            f'<!doctype html><html lang="en"><head>{head}<title>{html.escape(title)}</title>'
            f"<style>{_STYLE}</style></head><body>{''.join(self.parts)}</body></html>\n"
        )


def report(config: ReportConfig, console: Console) -> Path:
    """Write ``report.html`` and its pictures; returns the page.

    Raises ConfigError where a store has no runs, or where two runs of a setting have the same arm and seed.
    """
    runs = read_runs(*config.stores)
    page = _Page()
    title = "Which rollouts should a policy learn from when tools fail?"
    page.add("h1", title)
    _introduction(page, runs, config.stores)
    tables = all_estimates(runs)
    _in_short(page, tables)
    _verdicts(page, tables)
    _gains(page, tables, runs)
    _rules(page, runs)
    _curves(page, runs)
    _filters(page, runs)
    _compounding(page, tables, runs)
    _arms(page, runs)
    _conditions(page, runs)
    _details(page, tables)
    first = config.stores[0]
    out = (first.parent if any(first.glob("*.json.gz")) else first) / "report" if config.out is None else config.out
    out.mkdir(parents=True, exist_ok=True)
    for name, content in page.pictures.items():
        atomic_write(out / name, content)
    atomic_write(out / PAGE, page.whole(title))
    console.print(f"report of {len(runs)} runs: {out / PAGE}", markup=False, highlight=False, soft_wrap=True)
    return out / PAGE


def _introduction(page: _Page, runs: Sequence[Run], stores: Sequence[Path]) -> None:
    seeds = {run.config.run.seed for run in runs}
    arms = sorted({arm(run) for run in runs}, key=plots.arm_order)
    updates = sorted({run.config.run.steps for run in runs})
    settings = settings_of(runs)
    common = uncommon(runs)
    page.add(
        "p",
        f"{_planned(runs, stores)} of {len(arms)} arms ({', '.join(arms)}) over {len(seeds)} seeds, "
        f"{' or '.join(map(str, updates))} updates each, in {len(settings)} settings"
        + (f", all with {label(common)}. " if common else ". ")
        + "All arms of a seed share cold start, problems and noise draws; differences are means over seeds paired so, "
        "with 95 % BCa bootstrap intervals. " + _revisions(runs),
    )
    covered = ", ".join(f"{share:.2f} with {n}" for n, share in COVERAGE.items())
    page.add(
        "p",
        "Decision rule: supported, if the interval excludes 0 on the claimed side; not "
        f"supported, if it excludes 0 on the other side or lies within ± {MARGIN}; undecided otherwise. A claim that "
        f"there is no difference to speak of is supported by an interval within ± {MARGIN}, and not by one outside; an "
        "effect that is there but small may so support both. "
        f"Below {LEAST_PAIRS} pairs there is no verdict. Intervals of few pairs are too narrow: of normal values they "
        f"cover {covered} pairs. Verdicts are not "
        "adjusted for their number; p is, by Holm over the settings of each difference. Where nobody claims "
        f"anything, the claim is “{NOBODY}”. Estimands, signs and this rule were fixed before any run, but for "
        "what is marked †, in questions and in claims, which was added when results were known, as were claims of no "
        f"difference and the {LEAST_PAIRS} pairs (docs/LOG.md tells what was known). The default learning rate was "
        "chosen on plain GRPO and other seeds, and the default regime sought where an effect is possible.",
    )
    words = html.escape(" ".join(map(str, stores)))
    page.parts.append(f"<p>Made by <code>python -m experiments report {words}</code>.</p>")


def _planned(runs: Sequence[Run], stores: Sequence[Path]) -> str:
    """How many runs there are, and of how many where the stores' folders are named after presets."""
    names = [store.resolve().parent.name for store in stores]
    if not all(name in PRESETS for name in names):
        return f"{len(runs)} runs"
    planned = {
        _apart_from_place(replace(run, sft=run.sft.completed(resolve(run.env.id).task.cold_start)))
        for name in names
        for _, run in expand(PRESETS[name], Config().replace(**PRESETS[name].settings))
    }
    done = planned & {_apart_from_place(run.config) for run in runs}
    if not done:
        return f"{len(runs)} runs"  # a preset with other settings
    told = f"{len(done)} of the {len(planned)} planned runs of {' and '.join(names)}"
    return told if len(done) == len(runs) else f"{len(runs)} runs, among them {told},"


def _apart_from_place(config: Config) -> str:
    """What a run is, wherever it was made: on which device, and in which stack."""
    return identity(config.replace(**{"run.device": Config().run.device, "run.stack": None}))


def _revisions(runs: Sequence[Run]) -> str:
    """Of which revisions of the code the runs are, and how many comparisons go across them."""
    counts = Counter(_short_revision(run.revision) for run in runs)
    told = "Code revision " + ", ".join(
        revision if len(counts) == 1 else f"{revision} ({count} runs)" for revision, count in counts.most_common()
    )
    groups: dict[tuple[Setting, int], list[Run]] = {}
    for setting, members in settings_of(runs).items():
        for run in members:
            groups.setdefault((setting, run.config.run.seed), []).append(run)
    mixed = [members for members in groups.values() if len({run.revision for run in members}) > 1]
    if mixed:
        apart = sum(len({_first_policy(run) for run in members}) > 1 for members in mixed)
        told += (
            f"; in {len(mixed)} of {len(groups)} settings and seeds the arms are of more than one, "
            f"in {apart} of these with cold starts of the same recipe that are not the same policy"
        )
    return told + "."


def _first_policy(run: Run) -> tuple[str, ...]:
    """What the validation found of the policy before the first update: the same wherever the cold start is."""
    columns = ("eval/accuracy", "eval/accuracy_clean", "eval/good_first_call")
    return tuple(str(run.columns[column][0]) for column in columns)


def _short_revision(revision: str) -> str:
    """Ten digits of a commit, and whether files were changed."""
    digits, plus, changed = revision.partition("+")
    return digits[:10] + plus + changed or "unknown"


def _difference(found: Estimate) -> str:
    return _interval(found.paired.mean, found.paired.low, found.paired.high, "+")


def _interval(mean: float, low: float, high: float, sign: str = "") -> str:
    """A mean and its interval, which a single value does not have."""
    if not math.isfinite(low):
        return f"{mean:{sign}.3f}"
    return f"{mean:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def _pairs(found: Estimate) -> str:
    """How many pairs there are, and of how many where the figure is undefined in some."""
    return str(found.paired.n) if found.paired.n == found.seeds else f"{found.paired.n} of {found.seeds}"


def _p(found: Estimate) -> str:
    if not math.isfinite(found.adjusted):
        return "–"
    return f"{found.adjusted:.4f}" if found.adjusted >= 5e-5 else "< 0.0001"


_SIGNS = {1: "more", -1: "less", 0: f"within ± {MARGIN}"}


def _in_short(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]]) -> None:
    """The filter's two primary differences over all settings, in a sentence, and what may be made of them."""
    told = []
    for figure in PRIMARY:
        if estimates := _first(tables, figure):
            means = sorted(found.paired.mean for found in estimates)
            above = sum(found.paired.low > 0 for found in estimates)
            below = sum(found.paired.high < 0 for found in estimates)
            means_told = " to ".join(dict.fromkeys(f"{mean:+.3f}" for mean in (means[0], means[-1])))
            told.append(f"{figure.name} {means_told} (of {len(estimates)} intervals {above} above 0, {below} below)")
    if not told:
        return
    page.add("h2", "In short")
    fewest = min(found.paired.n for figure in PRIMARY for found in _first(tables, figure))
    page.add(
        "p",
        f"Over the settings, roc, which keeps the cleanest right rollouts, less {CONTROL}, which keeps as many of any "
        "kind: "
        + "; ".join(told)
        + (f". This is a first look: below {LEAST_PAIRS} pairs no verdict is passed." if fewest < LEAST_PAIRS else "."),
    )


def _verdicts(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]]) -> None:
    page.add("h2", "What was claimed, and what was found")
    header = ("difference", "setting", "claim", "found", "pairs", "p (Holm)", "verdict")
    kinds = ("text", "", "text", "number", "number", "number", "verdict")
    for number, group in itertools.groupby(tables, key=lambda table: table[0].number):
        rows = [
            [
                contrast.difference + (" †" if contrast.added else ""),
                label(found.setting),
                f"{', '.join(who)}: {_SIGNS[sign]}",
                _difference(found),
                _pairs(found),
                _p(found),
                judged,
            ]
            for contrast, estimates in group
            for found in estimates
            for sign, judged, who in _by_sign(found.verdicts)
        ]
        if rows:
            page.add("h3", f"({number}) {ESTIMANDS[number]}")
            page.table(header, rows, kinds)
    if not any(found.verdicts for _, estimates in tables for found in estimates):
        page.add("p", "These runs have no pair of arms that a claim is about.")
    if any(contrast.number == 1 for contrast, _ in tables):
        page.add(
            "p",
            "The paper itself compares roc with plain GRPO (11); that its filter gains over the same quotas without "
            "it (1) is how it explains that gain, and is tried here under its name.",
        )
    if {MODEL, TABLE} & {claim.who for _, estimates in tables for found in estimates for claim, _ in found.verdicts}:
        page.add(
            "p",
            f"Claims of {MODEL} (python -m experiments theory --normalisation turn --frozen-evaluation) are with its "
            "loss normalised as the runs' is and under the faults of evaluations; those with a loss per episode are "
            "its first predictions (python -m experiments theory).",
        )
    page.add("p", f"Of the paper's claims no arm here is about this one: {NOT_TRIED}.")


def _by_sign(verdicts: Iterable[tuple[Claim, Verdict]]) -> list[tuple[int, Verdict, list[str]]]:
    """Each sign that is claimed, what becomes of it, and who claims it."""
    found: dict[int, tuple[int, Verdict, list[str]]] = {}
    for claim, judged in verdicts:
        found.setdefault(claim.sign, (claim.sign, judged, []))[2].append(claim.who + (" †" if claim.added else ""))
    return list(found.values())


def _first(tables: Sequence[tuple[Contrast, list[Estimate]]], figure: object) -> list[Estimate]:
    """Δ(roc − stratified) of a primary figure."""
    for contrast, estimates in tables:
        if contrast.number == 1 and contrast.figure == figure:
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
        excluding = [found for found in estimates if excludes_zero(found.paired)]
        words = "; ".join(f"{label(found.setting)}: {_difference(found)}" for found in excluding) or "none"
        page.picture(
            name,
            plots.forest(estimates, title),
            f"roc − stratified, {title}: mean difference over paired seeds and 95 % interval; the band is ± {MARGIN}. "
            f"Intervals of {LEAST_PAIRS} pairs or more that exclude 0, filled: {words}.",
        )
    configs = {setting: members[0] for setting, members in settings_of(runs).items()}
    if any(predicted(configs[found.setting].config) for found in accuracy):
        page.picture(
            "theory",
            plots.theory_beside(accuracy, good_first, configs),
            "The same differences beside those of the smallest model, a softmax over behaviours: filled with the "
            "loss of the runs, added when results were known; hollow, where that is another, with a loss per episode "
            "and the training's faults, as first predicted. On the dashed line both agree.",
        )
    if all({"noise.rate", "noise.correlation"} <= dict(found.setting).keys() for found in accuracy):
        for name, estimates, title in (
            ("map_accuracy", accuracy, "Δ AUC of accuracy"),
            ("map_good_first", good_first, "Δ AUC of good first calls"),
        ):
            picture = plots.map_of(estimates, "noise.rate", "noise.correlation", title, lambda found: found.paired.mean)
            page.picture(
                name, picture, f"{title}, roc − stratified, by fault rate and ρ; * where the interval excludes 0."
            )


def _rules(page: _Page, runs: Sequence[Run]) -> None:
    """Every rule beside the control, where there are several."""
    named = (
        ("rules_good_first", GOOD_FIRST, "AUC of good first calls"),
        ("rules_accuracy", ACCURACY, "AUC of accuracy"),
        ("", FINAL_ACCURACY, "accuracy at the end"),
        ("", ERRORS, "errors in right rollouts"),
        ("", SELECTION, "selection differential"),
    )
    found = {title: beside_control(runs, figure) for _, figure, title in named}
    settings = found[named[0][2]]
    if not settings:
        return
    page.add("h2", "Every rule beside the control")
    for name, _, title in named:
        if name:
            caption = (
                f"{title}, each rule less {CONTROL}: mean difference over paired seeds and 95 % interval, filled where "
                f"one of {LEAST_PAIRS} pairs or more excludes 0; the band is ± {MARGIN}."
            )
            page.picture(name, plots.rules_beside(found[title], title), caption)
    rows = []
    for setting, members in settings.items():
        cells = {title: {each.contrast.ours: each for each in found[title].get(setting, ())} for _, _, title in named}
        for each in sorted(members, key=lambda one: plots.arm_order(one.contrast.ours)):
            rule = each.contrast.ours
            answers = [cells[title].get(rule) for _, _, title in named]
            told = ["–" if answer is None else _difference(answer) for answer in answers]
            rows.append([label(setting), rule, str(each.paired.n), *told])
    header = ("setting", "rule", "pairs", *(title for _, _, title in named))
    page.table(header, rows, ("", "", *["number"] * (len(header) - 2)))
    page.add(
        "p",
        f"Each rule less {CONTROL}, paired by seed, with 95 % BCa intervals. Areas over validations; accuracy at the "
        "end on test problems; errors / calls in right rollouts over the last quarter of the training; selection "
        "differential: by how much the reasoning quality of the right rollouts that are trained on stands above that "
        "of all, over the first quarter. Intervals are of one difference each: of a hundred whose truth is 0, five or "
        "more exclude it.",
    )


def _curves(page: _Page, runs: Sequence[Run]) -> None:
    settings = settings_of(runs)
    page.add("h2", "Learning")
    band = (
        "Mean over seeds; of two or more with a 95 % t interval of each arm by itself, wider than that of a difference "
        "paired by seed."
        if plots.with_bands(settings)
        else "Mean over seeds; intervals of so many arms could not be told apart."
    )
    for column, name, key in (
        ("eval/accuracy", "accuracy (validation)", "accuracy"),
        ("eval/good_first_call", "good first calls (validation)", "good_first"),
    ):
        for tokens in (False, True):
            against = "tokens" if tokens else "updates"
            figure = plots.curves(settings, column, name, tokens=tokens)
            words = f"{_capital(name)} against {against}. {band}"
            if tokens:
                words += " Each curve ends where the first of its runs does."
            page.picture(f"{key}_{against}", figure, words)
    page.add("h2", "Errors within right rollouts, recovery and length")
    for column, name, key in (
        ("roc/error_ratio_positives", "errors / calls in right rollouts", "errors_in_positives"),
        (
            "roc/policy_error_ratio_positives",
            "the policy's own errors / calls in right rollouts",
            "own_errors_in_positives",
        ),
        ("tools/first_call_policy_failure", "first calls that fail by the policy's own doing", "own_first_failures"),
        ("eval/recovery", "right after a faulted first call", "recovery"),
        ("eval/mean_length", "tokens of a rollout", "length"),
    ):
        words = f"{_capital(name)}. {band}"
        if column == "eval/recovery":
            words += (
                " At each validation of the runs that have such a call there: late in a run these are few, and others."
            )
        page.picture(key, plots.curves(settings, column, name), words)


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


def _compounding(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]], runs: Sequence[Run]) -> None:
    """What becomes of the lead of the arm that switches back, in words."""
    leads, changes = (
        {found.setting: found for contrast, estimates in tables if contrast.figure == figure for found in estimates}
        for figure in (LEAD, SINCE)
    )
    if not changes:
        return
    page.add("h2", ESTIMANDS[7])
    configs = {setting: members[0].config for setting, members in settings_of(runs).items()}
    for setting, answer in changes.items():
        seen, switch = last_before_switch(configs[setting]), configs[setting].run.steps // 4
        late = f", its first {switch - seen} updates still under roc" if switch > seen else ""
        told = (
            f"{label(setting)}: after {seen} updates under roc the lead in good first calls is "
            f"{_difference(leads[setting])}; from there to the last validation{late}, and under stratified after "
            f"update {switch}, it changes by {_difference(answer)}"
        )
        page.add("p", f"{told}: {_fate(leads[setting], answer)}.")


def _fate(lead: Estimate, change: Estimate) -> str:
    """What becomes of a lead."""
    if change.paired.n < LEAST_PAIRS:
        return "of so few pairs nothing can be said"
    if not excludes_zero(lead.paired):
        none = verdict(lead.paired, 0) == "supported"
        return "there is no lead to speak of" if none else "whether there is a lead is undecided"
    if verdict(change.paired, 0) == "supported":
        return f"it persists within ± {MARGIN}"
    if not excludes_zero(change.paired):
        return "undecided"
    return "it grows" if change.paired.mean * lead.paired.mean > 0 else "it decays"


def _arms(page: _Page, runs: Sequence[Run]) -> None:
    page.add("h2", "All arms")
    rows = []
    for setting, members in settings_of(runs).items():
        for name, seeds in plots.arms_in_order(members):
            cells = [label(setting), name, str(len(seeds))]
            for figure in ("good_first_call", "accuracy", "recovery", "error_ratio", "mean_length"):
                cells.append(_mean([run.test(figure) for run in seeds.values()]))
            cells.append(_mean([run.late("roc/error_ratio_positives") for run in seeds.values()]))
            cells.append(_mean([run.test("accuracy", "best") for run in seeds.values()]))
            for column in ("eval/good_first_call", "eval/accuracy"):
                areas = [run.area(column) for run in seeds.values()]
                defined = [area for area in areas if math.isfinite(area)]
                cells += [_mean(areas), f"{iqm(defined):.3f}" if defined else "–"]
            rows.append(cells)
    figures = ("good first calls", "accuracy", "recovery", "errors / calls", "tokens", "errors in right rollouts")
    areas_of = ("AUC good first calls", "IQM of it", "AUC accuracy", "IQM of it")
    header = ("setting", "arm", "runs", *figures, "accuracy, best", *areas_of)
    page.table(header, rows, ("", "", "number", *["number"] * (len(header) - 3)))
    page.add(
        "p",
        "At the end of training on test problems, mean over seeds with 95 % BCa interval; errors / calls in right "
        "rollouts over the last quarter of the training; “best” is the policy that was best on validation problems, on "
        "test problems; AUC over validation. In brackets in how many runs a figure is defined, where it is not in all.",
    )


def _conditions(page: _Page, runs: Sequence[Run]) -> None:
    page.add("h3", "The last policy under other conditions")
    conditions = ("accuracy", "accuracy_clean", "accuracy_one_call", "accuracy_harder")
    rows = [
        [label(setting), name, str(len(seeds))]
        + [_mean([run.test(condition) for run in seeds.values()]) for condition in conditions]
        for setting, members in settings_of(runs).items()
        for name, seeds in plots.arms_in_order(members)
    ]
    header = ("setting", "arm", "runs", "accuracy", "without faults", "with one call", "on harder problems")
    page.table(header, rows, ("", "", *["number"] * (len(header) - 2)))
    page.add(
        "p",
        "On test problems, mean over seeds with 95 % BCa interval. Harder problems are those of the level that the "
        "training leaves out and the cold start's demonstrations had.",
    )


def _mean(values: Sequence[float]) -> str:
    """Mean and interval of the values that are defined."""
    defined = [value for value in values if math.isfinite(value)]
    if not defined:
        return "–"
    interval = mean_interval(defined)
    few = f" ({len(defined)})" if len(defined) < len(values) else ""
    return _interval(interval.mean, interval.low, interval.high) + few


def _details(page: _Page, tables: Sequence[tuple[Contrast, list[Estimate]]]) -> None:
    page.add("h2", "Every difference in full")
    for number, group in itertools.groupby(tables, key=lambda table: table[0].number):
        page.add("h3", f"({number}) {ESTIMANDS[number]}")
        for contrast, estimates in group:
            page.add("p", f"{_capital(contrast.question)} — {contrast.difference}")
            rows = [
                [
                    label(found.setting),
                    f"{found.means[0].mean:.3f}",
                    f"{found.means[1].mean:.3f}",
                    _difference(found),
                    _pairs(found),
                    _interval(found.unpaired.mean, found.unpaired.low, found.unpaired.high, "+"),
                    _p(found),
                    f"{found.improvement:.2f}",
                ]
                for found in estimates
            ]
            header = ("setting", *contrast.sides, "paired difference", "pairs", "unpaired", "p (Holm)", "P(larger)")
            page.table(header, rows, ("", *["number"] * 7))
