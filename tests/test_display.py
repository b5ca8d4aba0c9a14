"""What a run shows: a live table in a terminal, plain lines elsewhere, and nothing read as markup."""

from __future__ import annotations

import contextlib
import io
import threading
from pathlib import Path

import pytest
from rich.console import Console

from agents import curves
from agents.curves import plot_run
from agents.display import LiveDisplay, PlainDisplay, figure, open_display, print_summary
from agents.metrics import METRICS


def row(step: int, **values: float) -> dict[str, float | int | None]:
    return dict.fromkeys(METRICS) | {"step": step} | values


def test_a_pipe_gets_plain_lines_of_evaluations() -> None:
    out = io.StringIO()
    with open_display(Console(file=out)) as display:
        assert isinstance(display, PlainDisplay)
        display.cold_start(50, 100, 1.25)
        display.cold_start(51, 100, 1.25)
        display.step(row(1), 10)
        display.step(row(10, **{"eval/accuracy": 0.5}), 10)
        display.note("[red]not markup[/red]")
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "cold start 50/100  loss 1.250"
    assert lines[1].startswith("step 10/10")
    assert "eval/accuracy 0.500" in lines[1]
    assert lines[2] == "[red]not markup[/red]"


def test_a_terminal_gets_progress_and_the_latest_figures() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with open_display(console) as display:
        assert isinstance(display, LiveDisplay)
        display.cold_start(100, 100, 0.5)
        display.step(row(5, reward=0.25), 10)
        display.step(row(10, **{"eval/accuracy": 0.75}), 10)
        display.note("[red]not markup[/red]")
    text = out.getvalue()
    for part in ("training", "10/10", "reward", "0.250", "accuracy (validation)", "0.750", "[red]not markup[/red]"):
        assert part in text


def test_the_table_at_the_end_has_every_figure_and_undefined_ones_as_a_dash() -> None:
    figures = {name: 0.5 for name in METRICS if name.startswith("eval/")} | {"eval/recovery": None}
    out = io.StringIO()
    summary = {
        "steps": 3,
        "num_tokens": 1234,
        "best_step": 2,
        "validation": {"first": figures},
        "test": {"last": figures, "best": figures},
    }
    print_summary(Console(file=out, width=120), summary)
    text = out.getvalue()
    assert "after 3 updates, 1,234 tokens written" in text
    (recovery,) = [line for line in text.splitlines() if "after a faulted" in line]
    assert recovery.count("–") == 3
    assert figure(None) == "–"


def test_curves_are_drawn_also_where_columns_are_undefined(tmp_path: Path) -> None:
    plot_run([row(0), row(1, **{"eval/accuracy": 0.5})], tmp_path / "curves.png", title="a $title$ with_odd_characters")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_pictures_of_runs_that_end_together_are_drawn_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing, most, both = 0, 0, threading.Barrier(2)

    def draw(rows: object, file: io.BytesIO, title: str) -> None:
        nonlocal drawing, most
        drawing += 1
        most = max(most, drawing)
        # Waits for a second one, which would come at once were it not kept out.
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.1)
        file.write(b"picture")
        drawing -= 1

    monkeypatch.setattr(curves, "_draw", draw)
    threads = [
        threading.Thread(target=curves.plot_run, args=([], tmp_path / f"{number}.png"), kwargs={"title": ""})
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "1.png"]
