"""docs/CUSTOM.md, followed: its code is run from a package outside of the project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "CUSTOM.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
CODE = [text for kind, text in BLOCKS if kind == "python"]
COMMANDS = [text for kind, text in BLOCKS if kind == ""]
ENV = "my_lab.mirror:my_lab/Mirror-v0"
# What makes a run of the tutorial small; everything else is as the page has it.
SMALL = {
    "run.steps": "4",
    "run.eval_every": "4",
    "run.eval_problems": "8",
    "run.test_problems": "8",
    "sft.steps": "60",
    "sft.batch": "16",
    "sft.demonstrations": "512",
    "sft.warmup": "10",
    "sft.learning_rate": "0.01",
    "policy.layers": "1",
    "policy.width": "32",
    "policy.heads": "2",
    "algo.prompts": "4",
    "algo.group_size": "4",
    "algo.min_positive": "1",
    "algo.min_negative": "1",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the tutorial, in which its commands are given; of the project only train.py."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "train.py").symlink_to(ROOT / "train.py")
    (folder / "my_lab").mkdir()
    (folder / "my_lab" / "mirror.py").write_text(CODE[0])
    return folder


def run(lab: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(lab), str(ROOT)))}
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=lab, env=environment, input=stdin, capture_output=True, text=True, timeout=900, check=False
    )


def test_the_environment_keeps_the_contract(lab: Path) -> None:
    (command,) = (block for block in COMMANDS if "tool_gym check" in block)
    assert command.split()[1:] == ["-m", "tool_gym", "check", ENV]
    checked = run(lab, *command.split()[1:])
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "BROKEN" not in checked.stdout


def test_it_is_played_as_the_page_shows(lab: Path) -> None:
    (command,) = (block for block in COMMANDS if "tool_gym play" in block)
    (shown,) = (text for kind, text in BLOCKS if kind == "text")
    typed = re.sub(r"<answer>(.*)</answer>", r"= \1", "".join(re.findall(r"^\[\d\] (.*\n)", shown, re.MULTILINE)))
    played = run(lab, *command.split()[1:], stdin=typed)
    assert played.returncode == 0, played.stderr
    assert played.stdout == shown


def test_it_is_made_for_gymnasium_too(lab: Path) -> None:
    made = run(lab, "-c", f"{CODE[-1]}\nprint(env.reset(seed=0)[0], vector.reset(seed=0)[0][:2])")
    assert made.returncode == 0, made.stderr
    assert "?" in made.stdout


def test_it_is_recorded_and_replayed_as_the_page_says(lab: Path) -> None:
    (wrapper,) = re.findall(r"`(tool_gym\.wrappers\.RecordTrajectories\(.*?\))`", PAGE)
    (command,) = re.findall(r"`python (-m tool_gym replay .*?)`", PAGE)
    played = 'env.reset(seed=0)\nfor _ in range(5):\n    env.step(\'<times>{"a": 48, "b": 7}</times>\')\nenv.close()'
    # As on the page: `tool_gym` alone is imported there.
    recorded = run(lab, "-c", f"import tool_gym\n{CODE[-1]}\nenv = {wrapper}\n{played}")
    assert recorded.returncode == 0, recorded.stderr
    replayed = run(lab, *command.split())
    assert replayed.returncode == 0, replayed.stderr
    assert "1 episodes came out as they were recorded" in replayed.stdout


def test_it_is_trained_on(lab: Path) -> None:
    (command,) = (block for block in COMMANDS if "train.py" in block)
    assert command.split()[1:] == ["train.py", "--env", ENV, "--name", "mirror"]
    small = (word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", value))
    trained = run(lab, *command.split()[1:], *small)
    assert trained.returncode == 0, trained.stderr
    assert (lab / "runs" / "mirror" / "curves.png").exists()


def test_the_noise_is_swept_on_it_and_the_page_is_written(lab: Path) -> None:
    (block,) = (block for block in COMMANDS if "experiments sweep" in block)
    sweep, report = (line.split()[1:] for line in block.splitlines())
    # The settings go to the others that are set; one seed of three.
    place = sweep.index("--set") + 1
    small = [word for setting in SMALL.items() for word in setting]
    swept = run(lab, *sweep[:place], *small, *sweep[place:], "--seeds", "0")
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert "4 runs, 0 finished, in sweeps/mirror/quick/store" in swept.stdout
    assert "[4/4] done" in swept.stdout
    reported = run(lab, *report)
    assert reported.returncode == 0, reported.stderr
    (page,) = (lab / "sweeps" / "mirror" / "quick").glob("**/*.html")
    assert f"2 arms (roc, stratified) over 1 seeds, 4 updates each, in 2 settings, all with {ENV}" in page.read_text()


def test_a_new_environment_with_its_own_tool_is_under_twenty_lines() -> None:
    assert len([line for line in CODE[0].splitlines() if line.strip()]) < 20
