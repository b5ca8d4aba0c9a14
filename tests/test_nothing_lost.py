"""Damaged files, full disks, signals, numbers that go wrong, workers that are lost: what a run does about them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import agents
from agents import checkpoint as checkpoints
from agents import runs, sft, trainer
from agents.alarms import Alarms
from agents.coldstart import cold_start, measure_reference
from agents.config import Config
from agents.rollout import TrajectoryBatch
from agents.setup import Setup
from agents.signals import Stopped, StopSignals
from agents.trainer import Trainer
from tests.tiny import Silent, rows, tiny_config
from tool_gym.errors import ConfigError, DivergenceError
from tool_gym.interpreter import InterpreterPool, Limits
from tool_gym.noise import NoNoise

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    """The folder of a finished run of six steps; do not write into it."""
    return trainer.train(tiny_config(tiny_cold_starts(tmp_path_factory.mktemp("runs")), **{"run.steps": 6}), Silent())


@pytest.fixture
def cache(tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    return tiny_cold_starts(tmp_path)


def same(one: Path, other: Path) -> bool:
    files = ("summary.json", "trajectories.jsonl", "checkpoints/step_000006/policy.safetensors")
    return rows(one) == rows(other) and all((one / f).read_bytes() == (other / f).read_bytes() for f in files)


def damage(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    if how == "flip":
        content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content) if how == "flip" else bytes(content[: len(content) // 2]))


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("part", ["policy.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    part: str, how: str, finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    damage(folder / "checkpoints" / "step_000006" / part, how)
    display = Silent()
    trainer.resume(folder, display)
    assert any("step_000006" in note and part in note for note in display.notes)
    assert "resumed after step 4" in display.notes
    assert same(folder, finished)


def test_a_damaged_checkpoint_is_not_kept_in_place_of_good_ones_that_the_run_makes_later(
    interrupted: Path, finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    kept = folder / "checkpoints"
    shutil.copytree(kept / "step_000004", kept / "step_000100")
    damage(kept / "step_000100" / "policy.safetensors", "cut")
    trainer.resume(folder, Silent())
    names = [f"step_{step:06d}" for step in (2, 4, 6)]
    assert [path.name for path in checkpoints.by_step(kept)] == names
    assert same(folder, finished)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> Path:
    """The run as it stood after its fourth step; do not write into it."""
    folder = Path(shutil.copytree(finished, tmp_path_factory.mktemp("runs") / "run"))
    shutil.rmtree(folder / "checkpoints" / "step_000006")
    (folder / "summary.json").unlink()
    return folder


@pytest.mark.parametrize("name", ["metrics.jsonl", "trajectories.jsonl"])
@pytest.mark.parametrize("how", ["flip", "cut"])
def test_rows_that_are_damaged_or_gone_are_made_again_from_a_checkpoint_before_them(
    how: str, name: str, interrupted: Path, finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    file = folder / name
    if how == "cut":
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(line for line in lines if json.loads(line)["step"] < 4))
    else:
        file.write_bytes(file.read_bytes().replace(b'"step": 4, ', b'"step": 4,  '))
    display = Silent()
    trainer.resume(folder, display)
    assert any("step_000004" in note and name in note for note in display.notes)
    assert "resumed after step 2" in display.notes
    assert same(folder, finished)


def test_rows_after_the_checkpoint_may_be_damaged(interrupted: Path, finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    file = folder / "metrics.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"step": 5, ', b'"step"\xff 5, '))
    display = Silent()
    trainer.resume(folder, display)
    assert "resumed after step 4" in display.notes
    assert same(folder, finished)


@pytest.mark.parametrize("name", ["config.json", "reference.safetensors"])
def test_a_run_is_not_gone_on_with_under_changed_settings_or_reference(
    name: str, interrupted: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    file = folder / name
    if name == "config.json":
        file.write_text(file.read_text().replace('"rate": 0.3', '"rate": 0.2'))
    else:
        damage(file, "flip")
    with pytest.raises(ConfigError, match=name if name != "config.json" else "config.json was changed"):
        trainer.resume(folder, Silent())


def test_a_damaged_cold_start_is_made_again(cache: Path) -> None:
    setup = Setup.open(tiny_config(cache))
    try:
        whole = cold_start(setup)
        # Copied: what was loaded is mapped from the file.
        weights = {name: value.clone() for name, value in whole.weights.items()}
        for file in (cache / ".cache").glob("*.safetensors"):
            damage(file, "flip")
        again = cold_start(setup)
    finally:
        setup.close()
    assert all(torch.equal(again.weights[name], value) for name, value in weights.items())
    assert np.array_equal(again.reference, whole.reference)


def test_the_best_checkpoint_is_gone_on_from_where_it_alone_is_left(
    interrupted: Path, finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    for path in checkpoints.by_step(folder / "checkpoints"):
        damage(path / "policy.safetensors", "cut")
    best = checkpoints.load(folder / "checkpoints" / "best").state["step"]
    trainer.resume(folder, Silent())
    assert same(folder, finished)
    later = [path for path in checkpoints.by_step(folder / "checkpoints") if checkpoints.step_of(path) >= best]
    assert later
    for path in later:
        checkpoints.load(path)


def test_a_best_checkpoint_that_was_about_to_be_replaced_comes_back(
    interrupted: Path, finished: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    kept = folder / "checkpoints"
    (kept / "best").rename(kept / ".best.old")
    trainer.resume(folder, Silent())
    assert same(folder, finished)


def test_the_best_policys_checkpoint_is_never_newer_than_the_latest_to_go_on_from(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: dict[str, int] = {}

    def save(folder: Path, checkpoint: checkpoints.Checkpoint) -> None:
        steps[folder.name] = checkpoint.state["step"]
        latest = max(step for name, step in steps.items() if name != "best")
        assert steps.get("best", 0) <= latest
        original(folder, checkpoint)

    original = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", save)
    trainer.train(tiny_config(cache, **{"run.checkpoint_every": 100}), Silent())
    assert steps["best"] <= 4 == max(steps.values())


def test_the_rows_that_lead_to_a_checkpoint_are_on_the_disk_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    original = checkpoints.save
    monkeypatch.setattr(runs, "sync", lambda place: done.append(place.name))
    monkeypatch.setattr(checkpoints, "save", lambda folder, saved: (done.append(folder.name), original(folder, saved)))
    opened = Trainer(tiny_config(tmp_path), tmp_path / "run", Silent())
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    opened.noise = NoNoise()
    for log in (opened.metrics, opened.trajectories):
        log.write(b"")
    opened._save()
    opened.setup.close()
    assert done == ["metrics.jsonl", "trajectories.jsonl", "step_000000"]


def test_results_whose_metrics_were_altered_are_refused(finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    rows_, _ = runs.read_results(folder)
    content = (folder / "metrics.jsonl").read_text()
    accuracy = json.dumps(rows_[2]["eval/accuracy"])
    (folder / "metrics.jsonl").write_text(content.replace(f'"eval/accuracy": {accuracy}', '"eval/accuracy": 1.0', 1))
    with pytest.raises(ConfigError, match=r"metrics\.jsonl"):
        runs.read_results(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows[:2] + rows[3:],
        lambda rows: [{"step": 0}],
        lambda rows: [*rows[:1], {**rows[1], "entropy": "x"}],
    ],
)
def test_metrics_with_a_hole_or_of_other_columns_are_refused_by_line(
    spoil: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], finished: Path, tmp_path: Path
) -> None:
    spoilt = spoil(runs.read_metrics(finished))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in spoilt))
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, line"):
        runs.read_metrics(tmp_path)


def test_metrics_and_checkpoints_of_another_version_are_refused_with_what_wrote_them(
    interrupted: Path, cache: Path
) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    for path in (folder / "checkpoints").iterdir():
        saved = checkpoints.load(path)
        saved.state["patience"] = 3
        checkpoints.save(path, saved)
    with pytest.raises(ConfigError, match=r"patience.*written by 0\.1\.0, revision"):
        trainer.resume(folder, Silent())
    (folder / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(ConfigError, match=r"metrics\.jsonl, line 1.*written by 0\.1\.0, revision"):
        runs.read_metrics(folder)


def test_a_runs_revision_says_whether_tracked_files_were_changed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "code.py").write_text("1\n")
    git("add", ".")
    git("commit", "-m", "one")
    (tmp_path / "notes").write_text("of mine\n")
    state = runs.git_state(tmp_path)
    assert state["changed"] is False
    (tmp_path / "code.py").write_text("2\n")
    assert runs.git_state(tmp_path) == {**state, "changed": True}
    for git_record, told in ((state, state["revision"]), ({**state, "changed": True}, f"{state['revision']}+changed")):
        (tmp_path / "config.json").write_text(json.dumps({"git": git_record}))
        assert runs.revision(tmp_path) == told


def test_code_is_the_same_where_no_module_of_the_packages_was_changed_since_a_revision(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init")
    inner = tmp_path / "agents" / "inner"
    inner.mkdir(parents=True)
    (inner / "code.py").write_text("1\n")
    (tmp_path / "notes.md").write_text("one\n")
    git("add", ".")
    git("commit", "-m", "one")
    first = git("rev-parse", "HEAD")
    (tmp_path / "notes.md").write_text("two\n")
    git("commit", "-am", "two")
    assert runs.same_code(tmp_path, first, ("agents",))
    # Of changed files nobody knows what they were; nor of a revision that is not here, or where there is no checkout.
    for unknown in ("", f"{first}+changed", "0" * 40):
        assert not runs.same_code(tmp_path, unknown, ("agents",))
    (inner / "code.py").write_text("2\n")
    assert not runs.same_code(tmp_path, first, ("agents",))
    assert not runs.same_code(Path("/"), first, ("agents",))


@pytest.mark.parametrize("same", [True, False])
def test_a_run_that_other_code_goes_on_with_says_so(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.create(tmp_path / "run", Config())
    file = tmp_path / "run" / "config.json"
    begun = "0123456789abcdef"
    record = json.loads(file.read_text())
    file.write_text(json.dumps({**record, "git": {"revision": begun, "changed": False}}))
    monkeypatch.setattr(runs, "same_code", lambda place, by, packages: same)
    assert runs.note_other_code(tmp_path / "run") == ("" if same else begun)
    assert runs.revision(tmp_path / "run") == (begun if same else f"{begun}+changed")
    assert runs.read_config(tmp_path / "run") == Config()
    assert runs.note_other_code(tmp_path / "run") == "", "it is said once"


def test_a_run_is_told_that_other_code_began_it_when_it_is_gone_on_with(
    finished: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    file = folder / "config.json"
    begun = {"revision": "0123456789abcdef", "changed": False}
    file.write_text(json.dumps({**json.loads(file.read_text()), "git": begun}))
    monkeypatch.setattr(runs, "same_code", lambda place, by, packages: False)
    display = Silent()
    trainer.resume(folder, display)
    assert any("begun by revision 0123456789abcdef" in note for note in display.notes)
    assert runs.revision(folder) == "0123456789abcdef+changed"


def test_a_checkout_that_is_not_installed_makes_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(runs, "version", version)
    runs.create(tmp_path / "run", tiny_config(tmp_path))
    assert runs.writer(tmp_path / "run").startswith("written by a checkout that is not installed, revision ")


def test_a_run_with_a_setting_of_another_version_is_refused_with_what_wrote_it(finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    record = json.loads((folder / "config.json").read_text())
    record["config"]["run"]["patience"] = 3
    del record["sha256"]
    (folder / "config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"written by 0\.1\.0, revision .*run\.patience"):
        trainer.resume(folder, Silent())


def test_a_run_written_before_there_were_these_checksums_loads(interrupted: Path, finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(interrupted, cache / "run"))
    record = json.loads((folder / "config.json").read_text())
    del record["sha256"]
    (folder / "config.json").write_text(json.dumps(record))
    save_file(load_file(folder / "reference.safetensors"), folder / "reference.safetensors")
    for path in (folder / "checkpoints").iterdir():
        saved = checkpoints.load(path)
        del saved.state["logs"]
        checkpoints.save(path, saved)
    trainer.resume(folder, Silent())
    assert same(folder, finished)


def test_weights_of_another_policy_are_refused_by_name(finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    place = folder / "checkpoints" / "best"
    saved = checkpoints.load(place)
    saved.policy.popitem()
    checkpoints.save(place, saved)
    with pytest.raises(ConfigError, match=r"best.*one of this run's configuration"):
        agents.load(folder, "best")


def test_a_damaged_best_checkpoint_is_made_again_from_where_that_is_possible(finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    damage(folder / "checkpoints" / "best" / "policy.safetensors", "flip")
    states = [checkpoints.load(path).state for path in checkpoints.by_step(folder / "checkpoints")]
    possible = any(state["best_step"] == state["step"] for state in states)
    if possible:
        trainer.resume(folder, Silent())
        assert same(folder, finished)
        assert checkpoints.load(folder / "checkpoints" / "best").state["step"] == runs.read_summary(folder)["best_step"]
    else:
        with pytest.raises(ConfigError, match="best"):
            trainer.resume(folder, Silent())


def test_the_last_checkpoints_are_kept_and_the_best(cache: Path) -> None:
    folder = trainer.train(tiny_config(cache, **{"run.steps": 6, "run.keep_checkpoints": 2}), Silent())
    assert {p.name for p in (folder / "checkpoints").iterdir()} == {"step_000004", "step_000006", "best"}


def test_a_summary_that_was_altered_is_refused(finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    record = json.loads((folder / "summary.json").read_text())
    record["test"]["last"]["eval/accuracy"] = 1.0
    (folder / "summary.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match="checksum"):
        runs.read_summary(folder)


def test_a_run_of_another_format_is_refused_with_what_wrote_it(finished: Path, cache: Path) -> None:
    folder = Path(shutil.copytree(finished, cache / "run"))
    record = json.loads((folder / "config.json").read_text())
    del record["format"]
    (folder / "config.json").write_text(json.dumps(record))
    with pytest.raises(ConfigError, match=r"runs of format 1: this is 0, written by 0\.1\.0, revision"):
        trainer.resume(folder, Silent())


def train(*words: str, cwd: Path, **settings: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *words], cwd=cwd, env=environment, text=True, **pipes, **settings
    )


def test_a_runs_config_alone_repeats_it(finished: Path, cache: Path) -> None:
    words = ("--config", str(finished / "config.json"), "--runs-dir", str(cache), "--name", "again")
    process = train(*words, cwd=cache)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert same(cache / "again", finished)


def test_the_settings_of_a_config_that_is_none_are_refused(cache: Path) -> None:
    process = train("--config", str(cache / "none.json"), cwd=cache)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("error: config: got")


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own that is soon full; skips where none may be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_stops_the_run_in_one_line_and_what_was_saved_goes_on_elsewhere(
    finished: Path, cache: Path, tmp_path: Path
) -> None:
    size = sum(file.stat().st_size for file in (finished / "checkpoints" / "step_000002").iterdir())
    starts = sum(file.stat().st_size for file in (cache / ".cache").iterdir())
    with small_disk(tmp_path / "disk", (starts + int(3.5 * size)) // 1024 + 40) as disk:
        shutil.copytree(cache / ".cache", disk / ".cache")
        config = tiny_config(disk, **{"run.steps": 6})
        process = train(*config.arguments(), cwd=tmp_path)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 1
        assert errors.count("\n") == 1
        assert errors.startswith("error: ")
        assert "No space left on device" in errors
        folder = Path(shutil.copytree(disk / "run", cache / "run"))
    trainer.resume(folder, Silent())
    assert same(folder, finished)


def _no_file_over(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_file_that_cannot_be_written_stops_the_run_in_one_line(finished: Path, cache: Path, tmp_path: Path) -> None:
    size = (finished / "checkpoints" / "step_000002" / "policy.safetensors").stat().st_size
    config = tiny_config(cache, **{"run.steps": 6})
    process = train(*config.arguments(), cwd=tmp_path, preexec_fn=lambda: _no_file_over(size + 1000))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.count("\n") == 1
    assert errors.startswith("error: ")
    trainer.resume(cache / "run", Silent())
    assert same(cache / "run", finished)


# ---------------------------------------------------------------- signals


def wait_for(file: Path, line: str, process: subprocess.Popen[str]) -> None:
    for _ in range(6000):
        if file.exists() and line in file.read_text():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError(f"{line} never came")


def descendants(process: subprocess.Popen[str]) -> set[int]:
    """The processes that a process has started, and those that they have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process.pid}


def assert_ended(pids: set[int]) -> None:
    deadline = time.monotonic() + 20
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)


HINT = "--resume RUN_DIR goes on from the latest checkpoint, else from the start"
LONG = {"run.steps": 30, "run.checkpoint_every": 30, "run.eval_every": 30}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, tiny_cold_starts: Callable[[Path], Path]) -> Path:
    return trainer.train(tiny_config(tiny_cold_starts(tmp_path_factory.mktemp("runs")), **LONG), Silent())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(
    number: signal.Signals, uninterrupted: Path, cache: Path, tmp_path: Path
) -> None:
    config = tiny_config(cache, **LONG)
    process = train(*config.arguments(), cwd=tmp_path)
    wait_for(cache / "run" / "metrics.jsonl", '"step": 3', process)
    started = descendants(process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"{number.name}: ends after this step" in output
    assert errors == f"stopped by {number.name}; {HINT}\n"
    assert len(started) >= 2, "a zygote and a worker"
    assert_ended(started)
    last = checkpoints.by_step(cache / "run" / "checkpoints")[-1]
    assert 3 <= checkpoints.load(last).state["step"] == rows(cache / "run")[-1]["step"] < 30
    trainer.resume(cache / "run", Silent())
    assert rows(cache / "run") == rows(uninterrupted)


def test_a_second_signal_ends_the_run_within_its_step_and_leaves_no_process(cache: Path, tmp_path: Path) -> None:
    # Steps of many seconds, so that the second signal comes within the first one's, however loaded the machine is.
    process = train(*tiny_config(cache, **{"algo.prompts": 4096}).arguments(), cwd=tmp_path)
    assert process.stdout is not None
    wait_for(cache / "run" / "metrics.jsonl", '"step": 0', process)
    started = descendants(process)
    process.send_signal(signal.SIGINT)
    while "SIGINT: ends after this step" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, f"stopped by SIGINT; {HINT}\n")
    assert len(rows(cache / "run")) == 1
    assert len(started) >= 2
    assert_ended(started)


def test_a_signal_in_the_cold_start_ends_it_in_one_line_and_leaves_no_process(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, **{"sft.steps": 1_000_000, "sft.demonstrations": 64})
    process = train(*config.arguments(), cwd=tmp_path)
    assert process.stdout is not None
    while "cold start 50/" not in process.stdout.readline():
        assert process.poll() is None
    started = descendants(process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    told = f"stopped by SIGINT in the cold start, of which nothing is kept; {HINT}\n"
    assert (process.returncode, errors) == (130, told)
    assert len(started) >= 2
    assert_ended(started)


def test_ctrl_c_while_the_command_still_imports_torch_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import time\nopen('importing', 'w').write('now')\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, str(ROOT / "train.py")]
    pipe = subprocess.PIPE
    settings: dict[str, Any] = {"cwd": tmp_path, "env": environment, "text": True, "stdout": pipe, "stderr": pipe}
    # Tests that were started in a shell's background hand on that the signal is ignored.
    settings["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, **settings) as process:
        wait_for(tmp_path / "importing", "now", process)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "interrupted\n")
        assert process.returncode == 130


def test_a_signal_may_come_while_the_display_prints() -> None:
    said: list[str] = []
    printing = threading.Lock()  # as a stream's: whoever holds it must not ask for it again

    def note(text: str) -> None:
        with printing:
            said.append(text)

    stop = StopSignals(note)
    with stop.installed(), stop.deferred():
        with printing:
            signal.raise_signal(signal.SIGTERM)
            assert stop.requested
        assert_comes_true(lambda: said == ["SIGTERM: ends after this step (again: at once)"])


def assert_comes_true(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_first_signal_waits_the_second_does_not() -> None:
    said: list[str] = []
    stop = StopSignals(said.append)
    with stop.installed():
        with stop.deferred():
            signal.raise_signal(signal.SIGTERM)
            assert stop.requested
            assert_comes_true(lambda: said == ["SIGTERM: ends after this step (again: at once)"])
            with pytest.raises(Stopped, match="SIGINT"):
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(Stopped, match="SIGTERM"):
                stop.check()
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


# ---------------------------------------------------------------- numbers


def started(config: Any) -> Trainer:
    opened = Trainer(config, Path(config.run.runs_dir) / "run", Silent())
    opened.folder.mkdir()
    opened.prepare()
    opened.begin()
    return opened


def test_a_gradient_that_is_not_finite_names_the_step_and_keeps_the_batch(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = started(tiny_config(cache))
    monkeypatch.setattr(trainer, "shape_rewards", lambda rule, rewards, penalties, weight: rewards * 1e300)
    monkeypatch.setattr(trainer, "group_advantages", lambda rewards, groups, scale: np.full(len(rewards), np.inf))
    with pytest.raises(DivergenceError, match=r"step 1: .*gradient.* its batch is in .*diverged_step_000001"):
        opened._step()
    opened.setup.close()
    kept = load_file(opened.folder / "diverged_step_000001.safetensors")
    assert kept["tokens_NT"].shape == kept["sampled_NT"].shape
    assert not np.isfinite(kept["advantages_N"].numpy()).any()
    assert [path.name for path in checkpoints.by_step(opened.folder / "checkpoints")] == ["step_000000"]


def test_a_log_probability_that_is_not_finite_names_the_step(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = started(tiny_config(cache))
    original = opened.sample

    def broken(step: int) -> TrajectoryBatch:
        batch = original(step)
        batch.logprobs_NT[0, np.flatnonzero(batch.sampled_NT[0])[0]] = np.nan
        return batch

    monkeypatch.setattr(opened, "sample", broken)
    with pytest.raises(DivergenceError, match=r"step 1: a log-probability is not finite.*diverged_step_000001"):
        opened._step()
    opened.setup.close()
    kept = load_file(opened.folder / "diverged_step_000001.safetensors")
    assert not np.isfinite(kept["logprobs_NT"][kept["sampled_NT"]].numpy()).all()


@pytest.mark.parametrize(("step", "told"), [(3, "step 4: the loss is nan"), (6, "step 6: a weight is not finite")])
def test_a_cold_start_that_diverges_names_the_step_keeps_the_batch_and_is_not_cached(
    step: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The weights are spoilt by this step: the next one's loss shows it, and after the last there is none.
    monkeypatch.setattr(sft, "learning_rate", lambda config, at: math.nan if at + 1 == step else 1e-3)
    config = tiny_config(tmp_path, **{"sft.steps": 6, "sft.demonstrations": 64})
    with pytest.raises(DivergenceError, match=f"cold start, {told}.* its batch is in .*diverged_"):
        trainer.train(config, Silent())
    (kept,) = (tmp_path / ".cache").glob("*.safetensors")
    batch = load_file(kept)
    assert kept.name.startswith("diverged_")
    assert batch["tokens_NT"].shape == batch["written_NT"].shape == (16, batch["tokens_NT"].shape[1])
    assert not (tmp_path / "run").exists()


def broken_logprobs(original: Any) -> Any:
    def rollout(*arguments: Any) -> list[TrajectoryBatch]:
        batches: list[TrajectoryBatch] = original(*arguments)
        batch = batches[-1]
        batch.logprobs_NT[0, np.flatnonzero(batch.sampled_NT[0])[0]] = np.inf
        return batches

    return rollout


def test_an_evaluation_and_a_reference_whose_log_probabilities_are_not_finite_are_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = Setup.open(tiny_config(cache))
    monkeypatch.setattr(Setup, "rollout", broken_logprobs(Setup.rollout))
    try:
        with pytest.raises(DivergenceError, match="the policy that it leaves: a log-probability is not finite"):
            measure_reference(setup, setup.new_policy())
    finally:
        setup.close()
    # At step 0 there is no checkpoint and the folder goes: the batch stays.
    with pytest.raises(
        DivergenceError, match=r"step 0: evaluation \(validation, \w+\): a log-probability .* its batch"
    ):
        trainer.train(tiny_config(cache), Silent())
    assert not (cache / "run").exists()
    kept = load_file(cache / ".cache" / "run_diverged_step_000000.safetensors")
    assert not np.isfinite(kept["logprobs_NT"].numpy()).all()


def test_alarms_are_said_once_with_what_to_do() -> None:
    alarms = Alarms()
    nothing = {"reward": 0.0, "entropy": None, "train/groups_trained": 0.0}
    (said,) = alarms.check(1, nothing)
    assert said.startswith("warning, step 1: no rollout was right")
    assert alarms.check(2, nothing) == []
    (said,) = alarms.check(3, {"reward": 0.5, "entropy": 0.001, "train/groups_trained": 0.0})[:1]
    assert "--algo.refill" in said
    assert alarms.check(4, {"reward": 0.5, "entropy": 0.001, "train/groups_trained": 3.0}) == []
    assert Alarms().check(1, {"reward": 0.99, "entropy": 0.001, "train/groups_trained": 3.0}) == []


# ---------------------------------------------------------------- machinery


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools that wait for two seconds where others wait for twenty."""
    monkeypatch.setattr("tool_gym.interpreter.pool._START_SECONDS", 5.0)

    def open_pool(workers: int) -> InterpreterPool:
        return InterpreterPool(workers, Limits(wall_seconds=0.5))

    monkeypatch.setattr("agents.setup.InterpreterPool", open_pool)


def alive(pid: int) -> bool:
    """Whether there is such a process, other than a dead one that nobody has asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("struck", [("worker",), ("zygote",), ("worker", "zygote")])
def test_a_worker_or_zygote_that_is_killed_or_wedged_is_retried_and_counted_and_changes_nothing(
    struck: tuple[str, ...],
    number: signal.Signals,
    finished: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
) -> None:
    opened = started(tiny_config(cache, **{"run.steps": 6}))
    pool = opened.setup.pool
    original, hit = pool.submit, list[int]()

    def strike(*arguments: Any, **names: Any) -> Any:
        # They stand still until it is decided who is struck, or a quick one would have answered by then.
        standing = [] if hit else [worker.pid for worker in pool._workers.values() if worker.pid]
        for pid in standing:
            os.kill(pid, signal.SIGSTOP)
        pending = original(*arguments, **names)
        busy = [worker for worker in pool._workers.values() if worker.pid in standing and len(worker.calls) > 2]
        if busy:
            assert pool._zygote is not None
            victims = {"worker": busy[0].pid, "zygote": pool._zygote._process.pid}
            hit.extend(victims[name] for name in struck)
            for pid in hit:
                os.kill(pid, number)
        for pid in standing:
            if pid not in hit:
                os.kill(pid, signal.SIGCONT)
        return pending

    monkeypatch.setattr(pool, "submit", strike)
    for _ in range(6):
        opened._step()
    opened.setup.close()
    assert hit
    ours, theirs = rows(opened.folder), rows(finished)
    failures = [sum(row.pop("infrastructure/failures") or 0 for row in each) for each in (ours, theirs)]
    # A zygote that stands still is noticed when it is needed: at the end, where it lost nothing.
    assert failures == [0 if struck == ("zygote",) and number == signal.SIGSTOP else 1, 0]
    assert ours == theirs
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in hit):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.05)
