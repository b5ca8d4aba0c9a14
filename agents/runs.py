"""A run's folder: what is written there, who holds it, and how it is read back."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gymnasium
import llvmlite
import numba
import numpy as np
import numpy.typing as npt
import torch

from agents import checkpoint as checkpoints
from agents.checkpoint import atomic_write, sync
from agents.config import Config
from agents.metrics import METRICS, TIMING
from agents.model import Policy
from tool_gym.errors import ConfigError

FORMAT = 1
"""Of the files in a run's folder. Raised when an old folder would be read wrongly, and so is refused."""

REFERENCE = "reference.safetensors"
METRICS_FILE, TRAJECTORIES_FILE = "metrics.jsonl", "trajectories.jsonl"
_CONFIG, _SUMMARY = "config.json", "summary.json"
_METRICS_SUM = "metrics_sha256"


class DamagedError(ConfigError):
    """A file that is not as it was written, cut or altered: what it held can only be made again."""


# ---------------------------------------------------------------- configuration


def create(folder: Path, config: Config) -> None:
    """A run's folder with its ``config.json``: the whole configuration, and what wrote it.

    Made aside and renamed, so that a folder which is there can be gone on with, however early a kill came.
    """
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    values = config.to_dict()
    record = {"config": values, **_versions(), "sha256": _digest(values)}
    atomic_write(aside / _CONFIG, json.dumps(record, indent=1) + "\n")
    try:
        os.rename(aside, folder)
    except OSError:
        # Another process made it meanwhile.
        shutil.rmtree(aside)
        raise
    sync(folder.parent)


def read_config(folder: Path) -> Config:
    """The configuration of a run.

    Raises ConfigError where the folder holds none, or one of another format or version, DamagedError where it was cut
    or changed: what is gone on with under other settings is another run.
    """
    return config_of(folder / _CONFIG, "run", str(folder), "the folder of a run", changed=False)


def config_of(file: Path, field: str, shown: str, wanted: str, *, changed: bool = True) -> Config:
    """The configuration in a ``config.json``.

    Raises ConfigError, with the setting that named it (``field``), its value (``shown``) and what was ``wanted``; where
    it is not as it was written, which is looked at with ``changed=False``, or not whole, it is a DamagedError.
    """
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        written, values = record.get("format", 0), record["config"]
        writer, checksum = _writer(record), record.get("sha256")
    except OSError as error:
        raise ConfigError(field, shown, f"{wanted} ({type(error).__name__}: {error})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(field, shown, f"{wanted} ({type(error).__name__}: {error})") from error
    if written != FORMAT:
        raise ConfigError(field, shown, f"runs of format {FORMAT}: this is {written}, {writer}")
    if not changed and checksum not in (None, _digest(values)):
        raise DamagedError(field, shown, f"{wanted}: {file.name} was changed after it was written")
    try:
        return Config.from_dict(values)
    except ConfigError as error:
        raise ConfigError(field, shown, f"{wanted} ({file.name}, {writer}: {error})") from error


def _writer(record: Mapping[str, Any]) -> str:
    by = record.get("versions", {}).get("tool-gym", "an older version")
    return f"written by {by}, revision {(record.get('git') or {}).get('revision')}"


def writer(folder: Path) -> str:
    """What wrote a run's folder, as far as its ``config.json`` tells."""
    try:
        return _writer(json.loads((folder / _CONFIG).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, AttributeError):
        return "written by an unknown version"


def revision(folder: Path) -> str:
    """The code's revision that wrote a run's folder: a hash, with ``+changed`` where files differed from it, be it only
    when the run was gone on with.

    "" where it is not known. Raises ConfigError where the folder's ``config.json`` does not tell.
    """
    try:
        git = json.loads((folder / _CONFIG).read_text(encoding="utf-8")).get("git") or {}
        return told_revision(git)
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError("run", str(folder), f"the folder of a run ({type(error).__name__}: {error})") from error


def note_other_code(folder: Path) -> str:
    """Keep in a run's folder that other code than began it goes on with it; that code's revision, "" if it is the same.

    Nor is anything kept where what began it is not known, or had changed files.
    """
    begun = revision(folder)
    if not begun or "+" in begun or same_code(Path(__file__).parent.parent, begun, ("agents", "tool_gym")):
        return ""
    record = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    record["git"]["changed"] = True
    atomic_write(folder / _CONFIG, json.dumps(record, indent=1) + "\n")
    return begun


def told_revision(git: Mapping[str, Any]) -> str:
    """What ``git_state`` gives, as one text."""
    head = git.get("revision") or ""
    return f"{head}+changed" if head and git.get("changed") else str(head)


def has_config(folder: Path) -> bool:
    return (folder / _CONFIG).exists()


def diverged(folder: Path) -> bool:
    """Whether a run ended in a DivergenceError, whose batch is kept in its folder."""
    return any(folder.glob("diverged_*.safetensors"))


def git_state(place: Path) -> dict[str, Any]:
    """Revision of the checkout that a folder is in, None where it is in none, and whether tracked files differ."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(["git", *arguments], cwd=place, capture_output=True, text=True, check=False)
        return answer.stdout.strip()

    try:
        head, status = git("rev-parse", "HEAD"), git("status", "--porcelain", "--untracked-files=all")
        # Of files that are not tracked only modules count: runs and notes decide nothing.
        changed = any(not line.startswith("??") or line.rstrip('"').endswith(".py") for line in status.splitlines())
    except FileNotFoundError:
        head, changed = "", False
    return {"revision": head or None, "changed": changed}


def same_code(place: Path, revision: str, packages: Sequence[str]) -> bool:
    """Whether the modules of a checkout's packages are those of a revision; False, too, where that cannot be told.

    Args:
        place: the root of the checkout.
        revision: as ``told_revision`` gives it; files that are not tracked are not looked at.
        packages: folders below ``place``.
    """
    if not revision or "+" in revision:
        return False
    modules = [f"{package}/*.py" for package in packages]
    try:
        # Of a revision that this checkout does not have, git says so by another status than 0.
        answer = subprocess.run(
            ["git", "diff", "--quiet", revision, "--", *modules], cwd=place, capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return answer.returncode == 0


def _version() -> str:
    try:
        return version("tool-gym")
    except PackageNotFoundError:
        return "a checkout that is not installed"


def _versions() -> dict[str, Any]:
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state(Path(__file__).parent),
        "versions": {
            "tool-gym": _version(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "numba": numba.__version__,
            "llvmlite": llvmlite.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }


# ---------------------------------------------------------------- results


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """``summary.json``, with checksums of its own and of the metrics. Written last: a run that has it is finished."""
    record = {**summary, _METRICS_SUM: _metrics_digest(read_metrics(folder))}
    atomic_write(folder / _SUMMARY, json.dumps({**record, "sha256": _digest(record)}, indent=1) + "\n")


def read_summary(folder: Path) -> dict[str, Any]:
    """What a finished run came to. Raises ConfigError where it is missing or damaged."""
    summary, _ = _read_summary(folder)
    return summary


def read_results(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Metrics and summary of a finished run. Raises ConfigError where either is missing or damaged."""
    rows, (summary, checksum) = read_metrics(folder), _read_summary(folder)
    if checksum not in (None, _metrics_digest(rows)):
        raise ConfigError("run", str(folder / METRICS_FILE), "the metrics that the summary has the checksum of")
    return rows, summary


def _read_summary(folder: Path) -> tuple[dict[str, Any], str | None]:
    """The summary, and the checksum of the metrics: None of an earlier version, which had none."""
    file = folder / _SUMMARY
    try:
        summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if summary.pop("sha256", None) != _digest(summary):
            raise ValueError("its checksum does not hold")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError("run", str(file), f"the summary of a finished run ({error})") from error
    return summary, summary.pop(_METRICS_SUM, None)


def finished(folder: Path) -> bool:
    return (folder / _SUMMARY).exists()


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _metrics_digest(rows: list[dict[str, Any]]) -> str:
    """A checksum of what depends neither on the clock nor on accidents, so that the same run has the same summary."""
    lasting = [name for name in METRICS if name not in TIMING and not name.startswith("infrastructure/")]
    return _digest([[row.get(name) for name in lasting] for row in rows])


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl, one for each step from 0 on.

    Raises ConfigError where the file is missing or damaged, or of a version with other metrics.
    """
    file = folder / METRICS_FILE
    rows = read_rows(file)
    for number, row in enumerate(rows):
        place = f"{file}, line {number + 1}"
        if row["step"] != number:
            raise ConfigError("run", place, f"the row of step {number}, not of {row['step']}")
        if missing := [name for name in METRICS if not isinstance(row.get(name, ""), int | float | None)]:
            raise ConfigError("run", place, f"a number or null as {missing[0]}; this run was {writer(folder)}")
    return rows


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines that each name their step; a last line that was cut is left out.

    Raises ConfigError, naming file and line, where the file is missing or damaged.
    """
    number = 0
    try:
        rows = []
        for number, line in enumerate(_lines(file), start=1):  # noqa: B007 - named in the error
            rows.append(json.loads(line))
            _step(rows[-1])
    except (OSError, ValueError, KeyError, TypeError) as error:
        place = f"{file}, line {number}"
        raise ConfigError("run", place, f"rows of a run ({type(error).__name__}: {error})") from error
    return rows


def _lines(file: Path) -> list[bytes]:
    """The lines of a file, but for a last one that was cut."""
    return [line for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _step(row: Any) -> int:
    if type(row["step"]) is not int:
        raise TypeError("a step that is no integer")
    step: int = row["step"]
    return step


class Log:
    """A file of JSON lines that each name their step, which only grows; and the checksum of all of it.

    A checkpoint keeps the checksum, so that a run which goes back to it knows whether what led there is still there.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._sum = hashlib.sha256()

    @property
    def checksum(self) -> str:
        return self._sum.hexdigest()

    def write(self, content: bytes) -> None:
        """Begin the file anew."""
        atomic_write(self.file, content)
        self._sum = hashlib.sha256(content)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        with self.file.open("ab") as file:
            file.write(content)
        self._sum.update(content)

    def sync(self) -> None:
        """Wait until all lines are on the disk: a checkpoint is of no use without those that lead to it."""
        sync(self.file)

    def until(self, step: int, checksum: str | None) -> bytes:
        """The lines up to a step.

        Raises ConfigError, naming the file, where they are not those of the checksum; None: there is none, of a
        checkpoint of an earlier version, and what can be read is taken as it is.
        """
        lines, place, trouble, number = list[bytes](), str(self.file), "", 0
        try:
            for number, line in enumerate(_lines(self.file), start=1):  # noqa: B007 - named in the error
                if _step(json.loads(line)) > step:
                    break
                lines.append(line)
        except (OSError, ValueError, KeyError, TypeError) as error:
            # What is damaged after that step is made again; whether it is before, the checksum tells.
            place, trouble = f"{self.file}, line {number}", f" ({type(error).__name__}: {error})"
        kept = b"".join(lines)
        if (checksum is None and trouble) or checksum not in (None, hashlib.sha256(kept).hexdigest()):
            raise ConfigError("run", place, f"the rows up to step {step}, some of which are damaged or gone{trouble}")
        return kept


def read_reference(folder: Path) -> npt.NDArray[np.float64]:
    """The qualities that correlated noise refers to. Raises ConfigError where the file is missing or damaged."""
    reference = checkpoints.load_tensors(folder / REFERENCE).get("reference")
    if reference is None:
        raise ConfigError("checkpoint", str(folder / REFERENCE), "a file with the tensor `reference`")
    return np.asarray(reference.double().numpy())


def load_weights(folder: Path, which: str, policy: Policy) -> None:
    """Give a policy the weights of a run: of its ``last`` checkpoint, the ``best``, or one by folder name.

    Raises ConfigError where there is none, it is damaged, or it is of a policy of another shape.
    """
    kept = folder / "checkpoints"
    place = checkpoints.latest(kept) if which == "last" else kept / which
    weights = checkpoints.load(place).policy
    try:
        policy.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ConfigError("checkpoint", str(place), f"one of this run's configuration ({reason[:300]})") from error


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
