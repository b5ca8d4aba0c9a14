"""The tables of docs/RESULTS.md are those of the stores beside them, README's intervals are those of RESULTS."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from experiments import estimands, theory
from experiments.estimands import (
    ACCURACY,
    CONTRASTS,
    ERRORS,
    FINAL_ACCURACY,
    FINAL_GOOD_FIRST,
    GOOD_FIRST,
    LEAD,
    RECOVERY,
    SINCE,
    Estimate,
    Figure,
    beside_control,
    by_arm,
    claims_of,
    estimate,
    label,
    settings_of,
)
from experiments.store import Run, read_runs

ROOT = Path(__file__).parents[1]
RESULTS = (ROOT / "docs" / "RESULTS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
STORES = ROOT / "docs" / "results"


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each Markdown table, row by row, its header first."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|---" not in line]
        for table in found
    ]


def written(estimated: Estimate) -> str:
    """A difference as the page has it: ``+.122 [+.088, +.210]``."""

    def number(value: float) -> str:
        return f"{value:+.3f}".replace("0.", ".").replace("-", "−")

    paired = estimated.paired
    return f"{number(paired.mean)} [{number(paired.low)}, {number(paired.high)}]"


def answers(runs: Sequence[Run], ours: str, theirs: str, figure: Figure) -> Mapping[str, str]:
    """What is written of a contrast, by setting."""
    contrast = next(
        c for c in CONTRASTS if (c.ours, c.theirs) == (ours, theirs) and c.figure == figure and c.across is None
    )
    return {label(found.setting): written(found) for found in estimate(contrast, runs)}


@pytest.fixture(autouse=True)
def unclaimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are of differences: what is claimed of them, for which the smallest model would run, is left out."""
    monkeypatch.setattr(estimands, "claims_of", lambda contrast, configs: ())


@functools.cache
def stored(preset: str) -> list[Run]:
    return read_runs(STORES / preset / "store")


@pytest.fixture(scope="module")
def headline() -> list[Run]:
    return stored("correlated-vs-iid")


def test_the_headline_s_table_is_that_of_its_store(headline: list[Run]) -> None:
    (header, *rows) = next(table for table in tables(RESULTS) if table[0][1].startswith("answers 10"))
    settings, answer = [], ""
    for cell in header[1:]:
        number, _, correlation = cell.rpartition(", ρ ")
        answer = number.removeprefix("answers ") or answer
        settings.append(f"answers {answer}, ρ {float(correlation):g}")
    figures = {"good first calls": GOOD_FIRST, "accuracy": ACCURACY}
    assert len(rows) == 12
    for first, *cells in rows:
        parts = re.fullmatch(r"`(\w+)` − `(\w+)`, (.*)", first)
        assert parts is not None
        found = answers(headline, parts[1], parts[2], figures[parts[3]])
        assert dict(zip(settings, cells, strict=True)) == {name: found.get(name, "") for name in settings}, first


def test_how_many_runs_there_are_is_said_in_both_places(headline: list[Run]) -> None:
    assert f"{len(headline)} runs" in README.partition("What came out")[2][:200]
    assert f"All {len(headline)} runs" in RESULTS


def test_the_table_of_the_running_reference_is_that_of_its_store() -> None:
    runs = stored("running-reference")
    (_, *rows) = next(table for table in tables(RESULTS) if table[0][:2] == ["`roc` − `stratified`", "20 pairs"])
    figures = (GOOD_FIRST, ACCURACY, FINAL_ACCURACY, ERRORS, RECOVERY)
    found = [answers(runs, "roc", "stratified", figure) for figure in figures]
    assert [row[1] for row in rows] == [column["all runs"] for column in found]


def test_the_table_of_the_corner_without_slips_is_that_of_its_store() -> None:
    runs = stored("toy-corner")
    (header, *rows) = next(table for table in tables(RESULTS) if table[0][1].endswith("without slips"))
    assert [cell.partition(",")[0] for cell in header[1:]] == ["ρ 0", "ρ .9"]
    figures = (GOOD_FIRST, ACCURACY, FINAL_ACCURACY, ERRORS, RECOVERY)
    found = [answers(runs, "roc", "stratified", figure) for figure in figures]
    assert [row[1:] for row in rows] == [[column["ρ 0"], column["ρ 0.9"]] for column in found]


def test_the_table_of_leads_is_that_of_its_store() -> None:
    runs = stored("switch")
    (_, *rows) = next(table for table in tables(RESULTS) if table[0][1:] == ["ρ 0", "ρ .9"])
    contrasts = [
        ("roc→stratified", "stratified", LEAD),
        ("roc→stratified", "stratified", SINCE),
        ("roc→stratified", "stratified", FINAL_GOOD_FIRST),
        ("stratified→roc", "stratified", FINAL_GOOD_FIRST),
        ("roc", "stratified→roc", FINAL_GOOD_FIRST),
    ]
    found = [answers(runs, *contrast) for contrast in contrasts]
    assert [row[1:] for row in rows] == [[column["ρ 0"], column["ρ 0.9"]] for column in found]


def test_the_table_of_every_rule_is_that_of_its_store() -> None:
    runs = stored("selectors")
    (_, *rows) = next(table for table in tables(RESULTS) if table[0][0] == "less `stratified`")
    found: dict[str, list[str]] = {}
    figures = [beside_control(runs, figure) for figure in (GOOD_FIRST, ACCURACY)]
    for setting in figures[0]:
        for figure in figures:
            for estimated in figure[setting]:
                found.setdefault(f"`{estimated.contrast.ours}`", []).append(written(estimated))
    assert {first: cells for first, *cells in rows} == found


def test_the_table_of_the_other_families_is_that_of_their_store() -> None:
    runs = stored("families")
    (header, *rows) = next(
        table for table in tables(RESULTS) if table[0][:2] == ["`roc` − `stratified`", "good first calls"]
    )
    figures = (GOOD_FIRST, ACCURACY, FINAL_ACCURACY, ERRORS)
    assert len(header) == 1 + len(figures)
    found = [answers(runs, "roc", "stratified", figure) for figure in figures]
    for first, *cells in rows:
        family, _, correlation = first.partition(", ρ ")
        setting = f"tool_gym/{family}-v0, ρ {float(correlation):g}"
        assert cells == [column[setting] for column in found], first


def test_the_table_of_other_updates_is_that_of_its_store() -> None:
    runs = stored("robustness")
    (header, *rows) = next(table for table in tables(RESULTS) if table[1][0].startswith("learning rate"))
    assert len(header) == 7
    found = [answers(runs, "roc", "stratified", figure) for figure in (GOOD_FIRST, ACCURACY, FINAL_ACCURACY)]
    assert {row[0]: row[1:] for row in rows} == {
        name: [column[f"ρ {correlation}, {name}"] for correlation in ("0", "0.9") for column in found]
        for name in {setting.partition(", ")[2] for setting in found[0]}
    }


def test_the_table_of_fault_rates_is_that_of_its_store() -> None:
    runs = stored("noise-map")
    (header, *rows) = next(table for table in tables(RESULTS) if "fault rate" in table[1][0])
    assert header[1] == "pairs"
    figures = (GOOD_FIRST, ACCURACY, FINAL_ACCURACY)
    contrasts = [next(c for c in CONTRASTS if c.number == 1 and c.figure == figure) for figure in figures]
    found = [{label(each.setting): each for each in estimate(contrast, runs)} for contrast in contrasts]
    assert [row[0] for row in rows] == list(found[0])
    for name, pairs, *cells in rows:
        assert int(pairs) == found[0][name].paired.n
        assert cells == [written(column[name]) for column in found]


def test_the_table_of_the_paper_s_other_claims_is_that_of_its_store() -> None:
    (_, *rows) = next(table for table in tables(RESULTS) if table[1][0].startswith("overlong filter"))
    found: dict[str, dict[Figure, str]] = {}
    for contrast in CONTRASTS:
        if contrast.number == 13 and contrast.theirs == "roc":
            for each in estimate(contrast, stored("paper")):
                name = label(each.setting) if contrast.across else f"`{contrast.ours}` − `{contrast.theirs}`"
                if each.paired.n == 8:
                    found.setdefault(name, {})[contrast.figure] = written(each)
    figures = (GOOD_FIRST, ACCURACY, FINAL_ACCURACY)
    assert {row[0]: row[1:] for row in rows} == {
        name: [cells.get(figure, "") for figure in figures] for name, cells in found.items()
    }


def test_intervals_in_the_readme_are_those_of_the_results() -> None:
    found = re.findall(r"[+−][.]\d{3} \[[^]]*\]", README)
    assert len(found) >= 3
    assert [interval for interval in found if interval not in RESULTS] == []


@pytest.mark.parametrize("preset", sorted(path.parent.name for path in STORES.glob("*/report")))
def test_what_is_claimed_can_be_told_where_runs_were_made(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = theory.Cell(*(theory.Gain(0.05, 0.0) for _ in range(3)))
    monkeypatch.setattr(estimands, "_simulated_difference", lambda ours, theirs, where: cell)
    configs = [runs[0].config for runs in settings_of(stored(preset)).values()]
    claims = {claim for config in configs for asked in CONTRASTS for claim in claims_of(asked, [config])}
    assert all(claim.sign in (-1, 0, 1) for claim in claims)
    beyond = preset in ("families", "selectors")  # other tasks, and a cold start with an error that the model lacks
    assert (estimands.MODEL in {claim.who for claim in claims}) != beyond


@pytest.mark.parametrize("preset", sorted(path.parent.name for path in STORES.glob("*/report")))
def test_committed_pages_answer_what_their_stores_can_be_asked(preset: str) -> None:
    page = (STORES / preset / "report" / "report.html").read_text(encoding="utf-8")
    made = re.search(r"python -m experiments report ([^<]*)</code>", page)
    assert made is not None
    stores = [ROOT / name for name in made[1].split()]
    assert stores[0] == STORES / preset / "store"
    count = sum(len(list(store.glob("*.json.gz"))) for store in stores)
    assert f"<p>{count} of the " in page
    missing = []
    runs = {run.identity: run for store in stores for run in stored(store.parent.name)}  # some are in both
    settings = [by_arm(each) for each in settings_of([*runs.values()]).values() if each[0].config.env.max_turns != 1]
    for asked in CONTRASTS:
        if asked.across is not None:
            continue
        both = [(arms.get(asked.ours, {}), arms.get(asked.theirs, {})) for arms in settings]
        pairs = [(ours[seed], theirs[seed]) for ours, theirs in both for seed in ours.keys() & theirs.keys()]
        if f" — {html.escape(asked.difference)}</p>" not in page and any(
            np.isfinite(asked.figure.of_pair(*pair)).all() for pair in pairs
        ):
            missing.append(asked.difference)
    assert missing == []
