"""The report: from runs to a page and pictures."""

from __future__ import annotations

import io
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from agents.selection import SELECTORS
from experiments import __main__ as experiments_command
from experiments import plots, store
from experiments import report as report_module
from experiments.report import ReportConfig, report
from experiments.sweep import SweepConfig, plan
from tests.synthetic_runs import arm, synthetic_run
from tool_gym.errors import ConfigError


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep") / "store"
    for seed in range(3):
        for correlation in (0.0, 0.9):
            for rule, level in (("roc", 0.6), ("stratified", 0.5), ("grpo", 0.45)):
                run = synthetic_run(arm(rule, seed, noise__correlation=correlation), level, noise=0.02)
                store.put(folder, store.pack(run), run.config)
    return folder


def write(folder: Path, out: Path) -> str:
    return report(ReportConfig((folder,), out), Console(file=io.StringIO())).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report with its pictures."""
    folder = tmp_path_factory.mktemp("drawn")
    write(kept, folder)
    return folder


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are made and none of them is drawn, which takes most of the time of a page."""
    monkeypatch.setattr(report_module, "_png", lambda figure: b"not drawn")


@pytest.fixture
def drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn small and without a layout: whether they can be, not how they look."""

    def draft(figure: Figure) -> bytes:
        figure.set_layout_engine("none")
        figure.savefig(file := io.BytesIO(), format="png", dpi=20)
        return file.getvalue()

    monkeypatch.setattr(report_module, "_png", draft)


def test_a_page_stands_alone_and_its_figures_come_from_the_runs(drawn: Path) -> None:
    page = (drawn / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "18 runs of 3 arms (roc, stratified, grpo) over 3 seeds" in page
    assert "+0.100" in page  # roc − stratified, as made
    assert "supported" in page
    # Nothing is fetched from elsewhere, and every picture on the page is also a file.
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    pictures = {path.name for path in drawn.glob("*.png")}
    assert len(pictures) == page.count("<img ")
    assert {"gain_accuracy.png", "accuracy_updates.png", "accuracy_tokens.png", "theory.png", "length.png"} <= pictures


def test_the_same_runs_give_the_same_bytes(kept: Path, drawn: Path, tmp_path: Path) -> None:
    write(kept, tmp_path)
    files = sorted(path.name for path in drawn.iterdir())
    assert [(tmp_path / name).read_bytes() for name in files] == [(drawn / name).read_bytes() for name in files]


def test_runs_shorter_than_the_window_of_a_mean_have_a_page(tmp_path: Path) -> None:
    run = synthetic_run(arm("roc", 0, run__steps=2))
    store.put(tmp_path / "store", store.pack(run), run.config)
    assert "1 runs of 1 arms" in write(tmp_path / "store", tmp_path / "report")


@pytest.mark.usefixtures("undrawn")
def test_runs_without_a_harder_level_have_a_page_without_figures_of_it(tmp_path: Path) -> None:
    for rule in ("roc", "stratified"):
        for seed in range(2):
            run = synthetic_run(arm(rule, seed))
            test = {
                name: value for name, value in run.summary["test"]["last"].items() if name != "eval/accuracy_harder"
            }
            run = replace(run, summary={**run.summary, "test": {"last": test, "best": test}})
            store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    assert "accuracy at the end on harder problems" not in page
    (row,) = re.findall(r"<tr><td class=\"\">all runs</td><td class=\"\">roc</td>(?:(?!</tr>).)*</tr>", page)[1:2]
    assert row.count(">–<") == 1


def test_bands_are_drawn_where_they_can_be_told_apart() -> None:
    for count in (6, 7):
        runs = [synthetic_run(arm(rule, seed)) for rule in list(SELECTORS)[:count] for seed in range(2)]
        figure = plots.curves({(): runs}, "eval/accuracy", "accuracy")
        assert plots.with_bands({(): runs}) == (count == 6)
        assert len(figure.axes[0].collections) == (count if count == 6 else 0)


@pytest.mark.usefixtures("undrawn")
def test_text_from_a_run_cannot_become_markup(tmp_path: Path) -> None:
    run = synthetic_run(arm("roc", 0))
    run = replace(run, revision="<script>x</script>")
    store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    assert "<script" not in page
    assert "&lt;script" in page


@pytest.mark.usefixtures("drafted")
def test_a_page_of_the_paper_s_other_claims_is_made_of_runs_of_unlike_length_and_without_calls(tmp_path: Path) -> None:
    for number, (_, config) in enumerate(plan(SweepConfig(out=tmp_path, preset="paper"))):
        steps = config.run.steps + 1
        never = {"roc__error_ratio_positives": np.full(steps, math.nan)} if config.env.max_turns == 1 else {}
        run = synthetic_run(config, 0.5 + 0.001 * (number % 7), **never)
        store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    for told in ("Without tools", "updates 400 less 100", "overlong filter on less off", "roc_ngram − roc"):
        assert told in page
    assert "that stages help" in page


@pytest.mark.usefixtures("undrawn")
def test_a_page_says_how_many_of_a_preset_s_runs_it_has(tmp_path: Path) -> None:
    planned = [run for _, run in plan(SweepConfig(out=tmp_path, dry_run=True))]
    folder = tmp_path / "quick" / "store"
    for config in planned[:3]:
        store.put(folder, store.pack(synthetic_run(config)), config)
    assert "3 of the 12 planned runs of quick of" in write(folder, tmp_path / "one")
    other = synthetic_run(arm("roc", 99))
    store.put(folder, store.pack(other), other.config)
    assert "4 runs, among them 3 of the 12 planned runs of quick, of" in write(folder, tmp_path / "two")
    # A planned run is that wherever it was made.
    elsewhere = planned[3].replace(**{"run.device": "cuda", "run.stack": "0123456789ab"})
    store.put(folder, store.pack(synthetic_run(elsewhere)), elsewhere)
    assert "5 runs, among them 4 of the 12 planned runs of quick, of" in write(folder, tmp_path / "three")


@pytest.mark.usefixtures("undrawn")
def test_a_page_says_where_arms_of_a_seed_do_not_share_their_cold_start(tmp_path: Path) -> None:
    for seed in range(3):
        for rule in ("roc", "stratified"):
            run = synthetic_run(arm(rule, seed))
            if rule == "roc" and seed > 0:
                run = replace(run, revision="another")
            if rule == "roc" and seed > 1:
                columns = {**run.columns, "eval/accuracy": run.columns["eval/accuracy"] + 0.01}
                run = replace(run, columns=columns)
            store.put(tmp_path / "store", store.pack(run), run.config)
    told = "in 2 of 3 settings and seeds the arms are of more than one, in 1 of these with cold starts"
    assert told in write(tmp_path / "store", tmp_path / "report")


@pytest.mark.usefixtures("drafted")
def test_the_map_is_drawn_where_both_its_fields_differ(tmp_path: Path) -> None:
    for rate in (0.1, 0.3):
        for rule in ("roc", "stratified"):
            run = synthetic_run(arm(rule, 0, noise__rate=rate))
            store.put(tmp_path / "store", store.pack(run), run.config)
    write(tmp_path / "store", tmp_path / "one")
    assert not (tmp_path / "one" / "map_accuracy.png").exists()
    for rule in ("roc", "stratified"):
        run = synthetic_run(arm(rule, 0, noise__correlation=0.0))
        store.put(tmp_path / "store", store.pack(run), run.config)
    write(tmp_path / "store", tmp_path / "two")
    assert (tmp_path / "two" / "map_accuracy.png").exists()


@pytest.mark.usefixtures("drafted")
def test_every_rule_stands_beside_the_control_where_there_are_several(tmp_path: Path) -> None:
    levels = {"roc": 0.6, "stratified": 0.5, "grpo": 0.45, "oracle": 0.75}
    for seed in range(6):
        for rule, level in levels.items():
            run = synthetic_run(arm(rule, seed), level, noise=0.02)
            store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    section = page.partition("<h2>Every rule beside the control</h2>")[2].partition("<h2>")[0]
    rows = re.findall(r"<tr><td[^>]*>all runs</td><td[^>]*>(\w+)</td><td[^>]*>6</td><td[^>]*>([+-][.\d]+)", section)
    assert dict(rows) == {"roc": "+0.100", "grpo": "-0.050", "oracle": "+0.250"}
    assert (tmp_path / "report" / "rules_good_first.png").exists()
    assert (tmp_path / "report" / "rules_accuracy.png").exists()


@pytest.mark.usefixtures("undrawn")
def test_two_rules_beside_the_control_need_no_section_of_their_own(kept: Path, tmp_path: Path) -> None:
    assert "Every rule beside the control" not in write(kept, tmp_path / "report")


@pytest.mark.usefixtures("drafted")
def test_a_page_of_several_stores_has_each_run_once_and_says_what_becomes_of_a_lead(tmp_path: Path) -> None:
    steps = np.arange(21)

    def curve(at_quarter: float, last: float) -> np.ndarray:
        return np.where(steps % 5 == 0, np.interp(steps, [0, 5, 20], [0.1, at_quarter, last]), math.nan)

    for seed in range(6):
        wobble = 0.001 * seed
        arms = {"switch": ("stratified", curve(0.5 + wobble, 0.9)), "plain": (None, curve(0.3, 0.6 + wobble))}
        for name, (switch_to, good_first) in arms.items():
            rule = "stratified" if switch_to is None else "roc"
            config = arm(rule, seed, algo__switch_to=switch_to, run__eval_every=5)
            run = synthetic_run(config, eval__good_first_call=good_first)
            store.put(tmp_path / name, store.pack(run), config)
            if seed == 0:
                store.put(tmp_path / "switch", store.pack(run), config)
    page = report(
        ReportConfig((tmp_path / "switch", tmp_path / "plain"), tmp_path / "out"), Console(file=io.StringIO())
    ).read_text(encoding="utf-8")
    assert "12 runs of 2 arms" in page
    told = r"after 5 updates under roc the lead .* is \+0\.20.*, and under stratified after update 5, it changes"
    assert re.search(told + r" by \+0\.09.*: it grows\.", page)
    # The same run with other results in two stores is no one's to choose between.
    config = arm("stratified", 0, run__eval_every=5)
    store.put(tmp_path / "plain", store.pack(synthetic_run(config, 0.9)), config)
    with pytest.raises(ConfigError, match="the same results of a run"):
        report(ReportConfig((tmp_path / "switch", tmp_path / "plain"), tmp_path / "out"), Console(file=io.StringIO()))


@pytest.mark.parametrize("command", ["report", "compare"])
def test_without_a_folder_there_is_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert experiments_command.run([command]) == 2
    assert capsys.readouterr().err.startswith("error: folder")


def test_a_store_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="finished runs"):
        write(tmp_path, tmp_path / "report")


def test_an_environment_that_the_smallest_model_does_not_reach_has_a_page_without_it(tmp_path: Path) -> None:
    for seed in range(2):
        for rule, level in (("roc", 0.6), ("stratified", 0.5)):
            run = synthetic_run(arm(rule, seed, env__id="tool_gym/Retrieval-v0"), level, noise=0.02)
            store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    assert "Claims of the smallest model" not in page
    assert (tmp_path / "report" / "gain_accuracy.png").exists()
    assert not (tmp_path / "report" / "theory.png").exists()


@pytest.mark.parametrize("length", [5, 40, 200])
@pytest.mark.parametrize("panels", [1, 3])
def test_a_legend_lies_within_its_picture_however_long_its_texts(length: int, panels: int) -> None:
    figure, axes = plots._panels(panels)
    for number in range(9):
        axes[0].plot([0, 1], [0, number], label=(f"{number} of the settings, " * 20)[:length])
    plots._legend(figure, axes)
    figure.canvas.draw()
    (legend,) = figure.legends
    found, room = legend.get_window_extent(), figure.bbox
    assert found.x0 >= room.x0
    assert found.x1 <= room.x1
    assert len(legend.get_texts()) == 9


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_in_short_what_the_filter_gains_and_that_few_pairs_are_a_first_look(tmp_path: Path) -> None:
    for seeds in (3, 6):
        folder = tmp_path / str(seeds) / "store"
        for seed in range(seeds):
            for correlation, gain in ((0.0, 0.1), (0.9, 0.2)):
                for rule, level in (("roc", 0.5 + gain), ("stratified", 0.5)):
                    run = synthetic_run(arm(rule, seed, noise__correlation=correlation), level)
                    store.put(folder, store.pack(run), run.config)
        page = report(ReportConfig((folder,)), Console(file=io.StringIO())).read_text()
        (short,) = re.findall(r"<h2>In short</h2><p>(.*?)</p>", page)
        assert "AUC of accuracy +0.100 to +0.200 (of 2 intervals 2 above 0, 0 below)" in short
        assert ("first look" in short) == (seeds < 6)


@pytest.mark.usefixtures("undrawn")
def test_a_page_of_a_folder_of_runs_goes_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [synthetic_run(arm("roc", 0)), synthetic_run(arm("stratified", 0))]
    monkeypatch.setattr(report_module, "read_runs", lambda *folders: runs)
    (tmp_path / "runs").mkdir()
    page = report(ReportConfig((tmp_path / "runs",)), Console(file=io.StringIO()))
    assert page == tmp_path / "runs" / "report" / "report.html"
