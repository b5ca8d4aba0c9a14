"""A run's folder: what is written there, who holds it, and how it is read back."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from agents import checkpoint as checkpoints
from agents.checkpoint import write_text
from agents.config import Config
from tool_gym.errors import ConfigError

FORMAT = 1
"""Of the files in a run's folder. Raised when an old folder would be read wrongly, and so is refused."""

REFERENCE = "reference.safetensors"
_CONFIG, _SUMMARY = "config.json", "summary.json"


# ---------------------------------------------------------------- configuration


def create(folder: Path, config: Config) -> None:
    """A run's folder with its ``config.json``: the whole configuration, and what wrote it.

    Made aside and renamed, so that a folder which is there can be gone on with, however early a kill came.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    write_text(aside / _CONFIG, json.dumps({"config": config.to_dict(), **_versions()}, indent=1) + "\n")
    os.rename(aside, folder)


def read_config(folder: Path) -> Config:
    """The configuration of a run. Raises ConfigError where the folder holds none, or one of another format."""
    return config_of(folder / _CONFIG, "run", str(folder), "the folder of a run")


def config_of(file: Path, field: str, shown: str, wanted: str) -> Config:
    """The configuration in a ``config.json``.

    Raises ConfigError, with the setting that named it (``field``), its value (``shown``) and what was ``wanted``.
    """
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        written = record.get("format", 0)
        if written != FORMAT:
            by = record.get("versions", {}).get("tool-gym", "an older version")
            revision = (record.get("git") or {}).get("revision")
            raise ConfigError(
                field, shown, f"runs of format {FORMAT}: this is {written}, written by {by}, revision {revision}"
            )
        return Config.from_dict(record["config"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(field, shown, f"{wanted} ({type(error).__name__}: {error})") from error


def has_config(folder: Path) -> bool:
    return (folder / _CONFIG).exists()


def _versions() -> dict[str, Any]:
    def git(*arguments: str) -> str:
        place = Path(__file__).parent
        answer = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, check=False)
        return answer.stdout.strip()

    try:
        revision, changed = git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except FileNotFoundError:
        revision, changed = "", False
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": {"revision": revision or None, "changed": changed},
        "versions": {
            "tool-gym": version("tool-gym"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }


# ---------------------------------------------------------------- results


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """``summary.json``, with a checksum of its own. Written last: a run that has it is finished."""
    record = {**summary, "sha256": _digest(summary)}
    write_text(folder / _SUMMARY, json.dumps(record, indent=1) + "\n")


def read_summary(folder: Path) -> dict[str, Any]:
    """What a finished run came to. Raises ConfigError where it is missing or damaged."""
    file = folder / _SUMMARY
    try:
        summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if summary.pop("sha256", None) != _digest(summary):
            raise ValueError("its checksum does not hold")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError("run", str(file), f"the summary of a finished run ({error})") from error
    return summary


def finished(folder: Path) -> bool:
    return (folder / _SUMMARY).exists()


def _digest(summary: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl, step 0 first. Raises ConfigError where the file is missing or damaged."""
    return read_rows(folder / "metrics.jsonl")


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines that each name their step; a last line that was cut is left out.

    Raises ConfigError, naming file and line, where the file is missing or damaged.
    """
    number = 0
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = []
        for number, line in enumerate(lines, start=1):  # noqa: B007 - named in the error
            if line.endswith("\n"):
                rows.append(json.loads(line))
                if not isinstance(rows[-1]["step"], int):
                    raise TypeError("a step that is no integer")
    except (OSError, ValueError, KeyError, TypeError) as error:
        place = f"{file}, line {number}"
        raise ConfigError("run", place, f"rows of a run ({type(error).__name__}: {error})") from error
    return rows


def read_reference(folder: Path) -> npt.NDArray[np.float64]:
    """The qualities that correlated noise refers to. Raises ConfigError where the file is missing or damaged."""
    reference = checkpoints.load_tensors(folder / REFERENCE).get("reference")
    if reference is None:
        raise ConfigError("checkpoint", str(folder / REFERENCE), "a file with the tensor `reference`")
    return np.asarray(reference.double().numpy())


# ---------------------------------------------------------------- who holds it


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder: two processes in one would mix their lines. Freed when the process ends, however it ends.

    Raises ConfigError if another process holds it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError("run", str(folder), "a run that no other process is working on") from None
        yield
    finally:
        os.close(handle)
