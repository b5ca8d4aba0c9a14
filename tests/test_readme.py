"""The README tells the truth: its loop runs, every file has its line, every column its meaning."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from agents.metrics import METRICS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_loop_on_the_environment_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "reward" in printed
    assert "<output>" in printed


def tree() -> set[str]:
    """The paths that the README's tree names: folders at the margin, their files below or beside them."""
    named, folder = set(), ""
    for line in README.split("## Where things are")[1].split("```")[1].splitlines():
        words = line.split()
        if not words:
            continue
        if not line.startswith(" "):
            folder = words[0] if words[0].endswith("/") else ""
        named |= {folder + word.rstrip(",;") for word in words} | ({words[0]} if not folder else set())
    return named


def test_every_file_has_its_line_in_the_tree() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    kept = tuple(name for name in tree() if name.endswith("/results/"))  # what runs left is named as a whole
    missing = [name for name in listed if not name.startswith(("tests/test_", *kept)) and name not in tree()]
    assert missing == []
    stale = [name for name in tree() if re.search(r"\w\.(py|md|toml|txt)$", name) and not (ROOT / name).exists()]
    assert [name for name in stale if name != "tests/test_*.py"] == []


def test_every_column_of_the_metrics_is_explained() -> None:
    page = (ROOT / "docs" / "METRICS.md").read_text(encoding="utf-8")
    for name in METRICS:
        group, _, short = name.rpartition("/")
        family = re.sub(r"_(positives|selected)$", "_*", name)
        shown = (name, family, f"_{short.rpartition('_')[2]}", f"{group}/*")
        assert name == "step" or any(f"`{word}`" in page or word in page for word in shown), name


def test_the_pages_and_pictures_that_are_linked_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
