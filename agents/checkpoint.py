"""Checkpoints on disk: safetensors and JSON, checksummed, written aside and renamed. Nothing is unpickled.

What is written is on the disk before its name is: a power loss leaves the old file or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialised
from torch import Tensor

from tool_gym.errors import ConfigError, DivergenceError

_STATE = "state.json"
_CHECKSUM = "sha256"


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on.

    Attributes:
        policy: weights by name.
        optimizer: the optimiser's tensors, named ``<parameter number>.<field>``.
        noise: arrays of the noise model's state, as tensors.
        state: plain values: the step, counters, the best evaluation so far.
    """

    policy: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    noise: dict[str, Tensor]
    state: dict[str, Any]


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all, also where the power fails; text as UTF-8.

    Raises OSError where it cannot be written; what stood there before is left as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write(temporary, content)
        os.replace(temporary, path)
    except OSError:
        # A full disk is no place for half a file that nobody reads.
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(place: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, content: str | bytes) -> None:
    with path.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def step_name(step: int) -> str:
    return f"step_{step:06d}"


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint as ``folder``, whole or not at all; one that is there is replaced."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    digests = {}
    for name in ("policy", "optimizer", "noise"):
        tensors = {key: value.detach().cpu().contiguous() for key, value in getattr(checkpoint, name).items()}
        file, content = temporary / f"{name}.safetensors", serialised(tensors)
        _write(file, content)
        digests[file.name] = hashlib.sha256(content).hexdigest()
    digests[_STATE] = _state_digest(checkpoint.state)
    _write(temporary / _STATE, json.dumps({"state": checkpoint.state, "sha256": digests}, indent=1))
    sync(temporary)
    if folder.exists():
        # A crash between the two renames leaves the old one under the other name, never a mixture.
        # remove_leftovers puts it back.
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(folder, old)
        os.replace(temporary, folder)
        sync(folder.parent)
        shutil.rmtree(old)
    else:
        os.replace(temporary, folder)
        sync(folder.parent)


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint. Raises ConfigError, naming the file, where it is missing, cut or altered."""
    file = folder / _STATE
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        state, digests = record["state"], record["sha256"]
        if _state_digest(state) != digests[_STATE]:
            raise ConfigError("checkpoint", str(file), "a state whose checksum holds: it is damaged")
        parts = {}
        for name in ("policy", "optimizer", "noise"):
            file = folder / f"{name}.safetensors"
            if _digest(file) != digests[file.name]:
                raise ConfigError(
                    "checkpoint", str(file), "a file whose checksum is the one in state.json: it is damaged"
                )
            parts[name] = load_file(file)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ConfigError(
            "checkpoint", str(file), f"a file of an intact checkpoint ({type(error).__name__}: {error})"
        ) from error
    return Checkpoint(state=state, **parts)


def latest(folder: Path) -> Path:
    """The checkpoint of the highest step in a run's ``checkpoints``. Raises ConfigError where there is none."""
    steps = by_step(folder)
    if not steps:
        raise ConfigError("checkpoint", str(folder), "a folder with at least one step_NNNNNN")
    return steps[-1]


def save_tensors(file: Path, tensors: dict[str, Tensor]) -> None:
    """Write one safetensors file that carries its own checksum, whole or not at all."""
    atomic_write(file, serialised(tensors, {_CHECKSUM: _tensors_digest(tensors)}))


def keep_batch(file: Path, error: DivergenceError, told: str) -> DivergenceError:
    """Keep the batch of an error in a file, for inspection; the error that says where it is, and what was ``told``.

    Where it cannot be written, the error says so.
    """
    try:
        save_tensors(file, {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in error.batch.items()})
    except OSError as full:
        return DivergenceError(f"{told}; its batch could not be kept ({full})", error.batch)
    return DivergenceError(f"{told}; its batch is in {file}", error.batch)


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Read a file of ``save_tensors``. Raises ConfigError, naming it, where it is missing, cut or altered.

    One without a checksum, as earlier versions wrote them, is taken as it is.
    """
    try:
        with safe_open(file, framework="pt") as content:
            checksum = (content.metadata() or {}).get(_CHECKSUM)
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError) as error:
        raise ConfigError("checkpoint", str(file), f"an intact file ({type(error).__name__}: {error})") from error
    if checksum not in (None, _tensors_digest(tensors)):
        raise ConfigError("checkpoint", str(file), "a file whose checksum holds: it is damaged")
    return tensors


def by_step(folder: Path) -> list[Path]:
    """The checkpoints in a run's ``checkpoints``, by step; what a killed process left half written is none."""
    named = [path for path in folder.glob("step_*") if path.name.removeprefix("step_").isdecimal()]
    return sorted(named, key=step_of)


def step_of(path: Path) -> int:
    """The step of one of ``by_step``'s."""
    return int(path.name.removeprefix("step_"))


def keep_last(folder: Path, count: int) -> None:
    """Remove the checkpoints of a run but for the ``count`` of the highest steps."""
    for path in by_step(folder)[:-count]:
        shutil.rmtree(path)


def remove_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of a run of later steps than the one that it goes on from.

    It has gone back past them since they are damaged, or the best policy or the rows that belong to them; and they
    would be kept in place of those it makes now.
    """
    for path in by_step(folder):
        if step_of(path) > step:
            shutil.rmtree(path)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left half written in a run's folder, which nobody else may be writing to.

    A checkpoint that was about to be replaced, and was not, is put back.
    """
    for place in (folder, folder / "checkpoints"):
        for old in place.glob(".*.old"):
            replaced = old.with_name(old.name.removeprefix(".").removesuffix(".old"))
            if not replaced.exists():
                os.replace(old, replaced)
        for path in [*place.glob(".*.tmp"), *place.glob(".*.old"), *place.glob(".*.tmp.png")]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _state_digest(state: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _tensors_digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
