"""docs/CUSTOM.md, followed: its code is run from a package outside of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny import tiny_config

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "CUSTOM.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(?:python)?\n(.*?)```", PAGE, re.DOTALL)
ENV = "my_lab.mirror:my_lab/Mirror-v0"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the tutorial."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "my_lab").mkdir()
    (folder / "my_lab" / "mirror.py").write_text(BLOCKS[0])
    return folder


def run(lab: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(lab), str(ROOT)))}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=lab, env=environment, input=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_environment_keeps_the_contract(lab: Path) -> None:
    (command,) = (block for block in BLOCKS if "tool_gym check" in block)
    assert command.split()[1:] == ["-m", "tool_gym", "check", ENV]
    checked = run(lab, *command.split()[1:])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "BROKEN" not in checked.stdout


def test_it_is_played_and_sees_faults(lab: Path) -> None:
    (command,) = (block for block in BLOCKS if "tool_gym play" in block)
    played = run(
        lab, *command.split()[1:], "--seed", "0", stdin='<times>{"a": 2, "b": 3}</times>\n<times>x</times>\n= 4\n'
    )
    assert played.returncode == 0, played.stderr
    assert "ArgumentError: not JSON" in played.stdout


def test_it_is_made_for_gymnasium_too(lab: Path) -> None:
    made = run(lab, "-c", f"{BLOCKS[-1]}\nprint(env.reset(seed=0)[0], vector.reset(seed=0)[0][:2])")
    assert made.returncode == 0, made.stderr
    assert "?" in made.stdout


def test_it_is_trained_on(lab: Path) -> None:
    (command,) = (block for block in BLOCKS if "train.py" in block)
    assert command.split()[1:] == ["train.py", "--env", ENV, "--name", "mirror"]
    small = tiny_config(lab / "runs", **{"env.answers": None, "run.steps": 2, "run.name": "mirror"}).arguments()
    trained = run(lab, str(ROOT / "train.py"), "--env", ENV, *small)
    assert trained.returncode == 0, trained.stderr
    assert (lab / "runs" / "mirror" / "curves.png").exists()


def test_the_noise_is_swept_on_it(lab: Path) -> None:
    (block,) = (block for block in BLOCKS if "experiments sweep" in block)
    sweep, report = (line.split()[1:] for line in block.splitlines())
    planned = run(lab, *sweep, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "12 runs, 0 finished" in planned.stdout
    assert report[-1] == "sweeps/mirror/quick/store"


def test_a_new_environment_with_its_own_tool_is_under_twenty_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) < 20
