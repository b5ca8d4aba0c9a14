"""The report: from runs to a page and pictures."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from experiments import store
from experiments.report import ReportConfig, report
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


def test_a_page_stands_alone_and_its_figures_come_from_the_runs(kept: Path, tmp_path: Path) -> None:
    page = write(kept, tmp_path / "report")
    assert page.startswith("<!doctype html>")
    assert "18 runs of 3 arms (roc, stratified, grpo) over 3 seeds" in page
    assert "+0.100" in page  # roc − stratified, as made
    assert "supported" in page
    # Nothing is fetched from elsewhere, and every picture on the page is also a file.
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    pictures = {path.name for path in (tmp_path / "report").glob("*.png")}
    assert len(pictures) == page.count("<img ")
    assert {"gain_accuracy.png", "accuracy_updates.png", "accuracy_tokens.png", "theory.png", "length.png"} <= pictures


def test_the_same_runs_give_the_same_bytes(kept: Path, tmp_path: Path) -> None:
    first, second = (write(kept, tmp_path / name) for name in ("one", "two"))
    assert first == second


def test_runs_shorter_than_the_window_of_a_mean_have_a_page(tmp_path: Path) -> None:
    run = synthetic_run(arm("roc", 0, run__steps=2))
    store.put(tmp_path / "store", store.pack(run), run.config)
    assert "1 runs of 1 arms" in write(tmp_path / "store", tmp_path / "report")


def test_text_from_a_run_cannot_become_markup(tmp_path: Path) -> None:
    run = synthetic_run(arm("roc", 0))
    run = replace(run, revision="<script>x</script>")
    store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    assert "<script" not in page
    assert "&lt;script" in page


def test_a_store_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="finished runs"):
        write(tmp_path, tmp_path / "report")


def test_an_environment_that_the_smallest_model_does_not_reach_has_a_page_without_it(tmp_path: Path) -> None:
    for seed in range(2):
        for rule, level in (("roc", 0.6), ("stratified", 0.5)):
            run = synthetic_run(arm(rule, seed, env__id="tool_gym/Retrieval-v0"), level, noise=0.02)
            store.put(tmp_path / "store", store.pack(run), run.config)
    page = write(tmp_path / "store", tmp_path / "report")
    assert "the smallest model" not in page
    assert (tmp_path / "report" / "gain_accuracy.png").exists()
    assert not (tmp_path / "report" / "theory.png").exists()
