"""Checkpoints: whole or not at all, and damage is found and named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from agents.checkpoint import Checkpoint, atomic_write, latest, load, save
from tool_gym.errors import ConfigError


def make() -> Checkpoint:
    return Checkpoint({"w": torch.arange(6.0).view(2, 3)}, {"0.step": torch.tensor(3.0)}, {}, {"step": 3, "best": 0.25})


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    save(tmp_path / "step_000003", make())
    again = load(tmp_path / "step_000003")
    assert torch.equal(again.policy["w"], make().policy["w"])
    assert torch.equal(again.optimizer["0.step"], torch.tensor(3.0))
    assert again.noise == {}
    assert again.state == {"step": 3, "best": 0.25}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000003"]


def test_saving_again_replaces_the_old_one(tmp_path: Path) -> None:
    save(tmp_path / "best", make())
    changed = Checkpoint({"w": torch.zeros(2, 3)}, {}, {}, {"step": 4})
    save(tmp_path / "best", changed)
    assert load(tmp_path / "best").state == {"step": 4}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best"]


@pytest.mark.parametrize("name", ["policy.safetensors", "optimizer.safetensors", "noise.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found_and_the_file_named(tmp_path: Path, name: str, damage: str) -> None:
    folder = tmp_path / "step_000003"
    save(folder, make())
    file = folder / name
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[0 if name == "state.json" else -1] ^= 0x40
        file.write_bytes(bytes(content))
    elif damage == "cut":
        file.write_bytes(bytes(content[: len(content) // 2]))
    else:
        file.unlink()
    with pytest.raises(ConfigError, match="checkpoint") as caught:
        load(folder)
    assert "step_000003" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_latest_is_the_one_of_the_highest_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one step_NNNNNN"):
        latest(tmp_path)
    for step in (20, 100, 9):
        save(tmp_path / f"step_{step:06d}", make())
    save(tmp_path / "best", make())
    (tmp_path / ".step_000200.1.tmp").mkdir()
    assert latest(tmp_path).name == "step_000100"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    atomic_write(path, "old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        atomic_write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What reaches the disk, in order: ("sync", name of the file or folder) and ("rename", new name)."""
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def logged_fsync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))

    def logged_replace(old: Path, new: Path) -> None:
        replace(old, new)
        done.append(("rename", Path(new).name))

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    return done


@pytest.mark.parametrize("content", ["text\n", b"\x00bytes"])
def test_what_is_written_is_on_the_disk_before_its_name_is(
    content: str | bytes, tmp_path: Path, on_disk: list[tuple[str, str]]
) -> None:
    atomic_write(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == (content.encode() if isinstance(content, str) else content)
    (kind, temporary), *rest = on_disk
    assert (kind, rest) == ("sync", [("rename", "file"), ("sync", tmp_path.name)])
    assert temporary.endswith(".tmp")


def test_a_checkpoint_is_on_the_disk_before_its_name_is(tmp_path: Path, on_disk: list[tuple[str, str]]) -> None:
    save(tmp_path / "step_000003", make())
    renamed = on_disk.index(("rename", "step_000003"))
    parts = [f"{name}.safetensors" for name in ("policy", "optimizer", "noise")]
    assert {("sync", name) for name in (*parts, "state.json")} < set(on_disk[:renamed])
    assert on_disk[renamed - 1][1].endswith(".tmp"), "the folder with their names"
    assert on_disk[renamed + 1 :] == [("sync", tmp_path.name)]
