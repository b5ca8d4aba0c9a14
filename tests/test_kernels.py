"""What is compiled: exactness, and that nothing that was kept of it is taken for something else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import pytest

from agents import kernels, vectors
from agents.vectors import LANES, load, store


@numba.njit
def one_by_one(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(len(x)):
        y[i] = kernels._exp(x[i])


@numba.njit
def by_lanes(x: np.ndarray, y: np.ndarray) -> None:
    for i in range(0, len(x), LANES):
        store(y, i, kernels._exp_of_lanes(load(x, i)))


@pytest.mark.parametrize("every", [one_by_one, by_lanes])
def test_exponentials_are_exact_to_two_units_in_the_last_place(every: Callable[[np.ndarray, np.ndarray], None]) -> None:
    x = np.concatenate([np.linspace(-87, 0, 200_000), -np.geomspace(1e-30, 1, 999), [0.0]]).astype(np.float32)
    y = np.empty_like(x)
    every(x, y)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(y - exact) <= 2 * np.spacing(exact.astype(np.float32))).all()
    x = np.array([-87.1, -1e4, -1e38, -np.inf, -np.inf, -88, -1e3, np.nan], dtype=np.float32)
    every(x, y[:8])
    assert not y[:7].any()
    assert np.isnan(y[7])


@pytest.mark.parametrize("width", [0, 1, 7])
def test_heads_of_odd_width_are_refused(width: int) -> None:
    for made in (kernels.attention, kernels.attention_of_rows):
        with pytest.raises(ValueError, match="must be even"):
            made(width)


def imports_and_attends(folder: Path, width: int, **environment: str) -> str:
    """A copy of the kernels, in a process of its own, attends to one position: what it mixes is its value."""
    program = f"""
import numpy as np
from agents import kernels
width = {width}
attend, _ = kernels.attention_of_rows(width)
qkv = np.arange(3 * width, dtype=np.float32).reshape(1, 3, width)
turns = np.zeros((2, 1, width), dtype=np.float32)
mixed, most, sums = (np.zeros((1, size), dtype=np.float32) for size in (width, 1, 1))
attend(qkv, turns, np.array([1]), mixed, most, sums)
assert mixed.tolist() == qkv[:, 2].tolist(), mixed
print(sum(attend.stats.cache_hits.values()))
"""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **environment}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    (folder / "agents").mkdir(parents=True)
    (folder / "agents" / "__init__.py").touch()
    for module in (kernels, vectors):
        shutil.copy(module.__file__, folder / "agents")
    return folder


def test_what_was_compiled_is_kept_by_width_and_source_each_in_files_of_its_own(copy: Path) -> None:
    kept = copy / "agents" / "__pycache__"
    assert imports_and_attends(copy, 2) == "0"
    assert imports_and_attends(copy, 2) == "1"
    first = set(kept.glob("*.nbi"))
    assert imports_and_attends(copy, 4) == "0"
    second = set(kept.glob("*.nbi"))
    assert first < second
    with (copy / "agents" / "vectors.py").open("a") as file:
        file.write("# another revision\n")
    assert imports_and_attends(copy, 2) == "0"
    third = set(kept.glob("*.nbi"))
    assert len(second - first) == len(third - second) == len(first)
    # A process that is killed between the index and its entry leaves an index alone.
    for file in kept.glob("*.nbc"):
        file.unlink()
    assert imports_and_attends(copy, 2) == "0"


def test_where_nothing_can_be_kept_the_kernels_are_compiled_all_the_same(copy: Path) -> None:
    (copy / "agents" / "__pycache__").write_text("a file where the folder would be")
    assert imports_and_attends(copy, 2, HOME="/proc/nonexistent", XDG_CACHE_HOME="/proc/nonexistent") == "0"
