"""The training loop: sample groups, select, update, evaluate, and keep everything in the run's folder.

Each step:
    1. sample a group of rollouts for each problem            (agents.rollout)
    2. choose which of them to train on                       (agents.selection)
    3. advantages over the chosen, clipped loss, one update   (agents.grpo)

Every draw is keyed by (seed, purpose, step, problem, rollout): arms that share a seed meet the same cold start,
problems, noise and uniforms, and a resumed run is the run that was never interrupted.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from agents import checkpoint as checkpoints
from agents.checkpoint import Checkpoint, write_text
from agents.coldstart import cold_start
from agents.config import AlgoConfig, Config
from agents.curves import plot_run
from agents.evaluation import Evaluator
from agents.grpo import TrainingBatch, UpdateStats, group_advantages, update
from agents.metrics import (
    METRICS,
    Selection,
    eligible_calls,
    noise_metrics,
    rollout_metrics,
    selection_metrics,
)
from agents.model import Policy
from agents.rollout import Play, TrajectoryBatch, check_valid, concatenate
from agents.selection import SELECTORS, rollout_penalties, select, shape_rewards
from agents.setup import Setup, make_noise
from tool_gym import rng
from tool_gym.episodes import EpisodeSpec
from tool_gym.errors import ConfigError, ToolGymError

_BETAS = (0.9, 0.95)
_REFILL_WAVES = 4
_BEST = "best"
REFERENCE = "reference.safetensors"

Row = dict[str, float | int | None]


class Display(Protocol):
    """Shows a run's progress; see agents.display."""

    def cold_start(self, step: int, steps: int, loss: float) -> None: ...
    def step(self, row: Row, steps: int) -> None: ...
    def note(self, text: str) -> None: ...


# ---------------------------------------------------------------- one step, without files


def select_rollouts(batch: TrajectoryBatch, config: AlgoConfig, *, seed: int, step: int) -> Selection:
    """Choose the rows to train on, group by group; at most ``prompts`` groups (the rule's) are trained on.

    Dropped and counted are groups with too few valid rollouts, those whose rewards are all equal, and
    those whose chosen rollouts' rewards are: none of them has a gradient.
    """
    rule = SELECTORS[config.selector]
    counts = {
        "calls": batch.calls_N,
        "errors": batch.errors_N,
        "policy_errors": batch.policy_errors_N,
        "answers": batch.answers_N,
        "turns": batch.turns_N,
    }
    sorted_by = rollout_penalties(config.selector, **counts, released_format=config.roc_released_format)
    full = rollout_penalties("roc", **counts, released_format=config.roc_released_format)
    keep, most = rule.keep(config.group_size), rule.prompts(config.prompts)
    chosen: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    trainable = np.zeros(len(batch), dtype=np.bool_)
    invalid = 0
    groups = np.unique(batch.group_N)
    for group in groups:
        rows = np.flatnonzero((batch.group_N == group) & batch.valid_N)
        if len(rows) < keep:
            invalid += 1
            continue
        if len(chosen) == most or np.ptp(batch.rewards_N[rows]) == 0:
            continue
        picked = select(
            config.selector,
            batch.rewards_N[rows],
            sorted_by[rows],
            keep,
            rng.generator(rng.key(seed, "selection", step, int(group))),
            lengths=batch.sampled_tokens_N[rows],
            qualities=batch.quality_N[rows],
            void=batch.void_N[rows],
            min_positive=config.min_positive,
            min_negative=config.min_negative,
        )
        if np.ptp(batch.rewards_N[rows[picked]]) == 0:
            continue
        chosen.append(rows[picked])
        trainable[rows] = True
    rows = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)
    shaped = shape_rewards(config.selector, batch.rewards_N[rows], sorted_by[rows], config.penalty_weight)
    return Selection(rows, np.asarray(shaped), trainable, sorted_by, full, len(groups), len(chosen), invalid)


def training_batch(batch: TrajectoryBatch, selection: Selection, scale: str) -> TrainingBatch:
    """The chosen rows, with advantages over them."""
    rows = selection.chosen_K
    whole = TrainingBatch(
        tokens_NT=batch.tokens_NT[rows],
        sampled_NT=batch.sampled_NT[rows],
        logprobs_NT=batch.logprobs_NT[rows],
        lengths_N=batch.lengths_N[rows],
        advantages_N=group_advantages(selection.rewards_K, batch.group_N[rows], scale=scale),
        group_N=batch.group_N[rows],
    )
    return whole.rows(np.arange(len(rows)))


# ---------------------------------------------------------------- the loop


@dataclass
class _State:
    """Counters that go into a checkpoint beside the tensors."""

    step: int = 0
    num_tokens: int = 0
    skipped: int = 0
    best_step: int = 0
    best_accuracy: float = -1.0


class Trainer:
    """One run: everything from the cold start to the summary.

    Args:
        config: the whole configuration.
        folder: the run's folder, which exists.
        display: is told of progress.
    """

    def __init__(self, config: Config, folder: Path, display: Display) -> None:
        self.config, self.folder, self.display = config, folder, display
        self.setup = Setup.open(config)
        self.state = _State()
        self.policy: Policy = self.setup.new_policy()
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=config.algo.learning_rate, betas=_BETAS, weight_decay=0.0
        )

    def run(self, *, resume: bool) -> dict[str, Any]:
        """Train to the end, from the latest checkpoint with ``resume``; returns the summary."""
        try:
            if resume:
                self._restore(checkpoints.latest(self.folder / "checkpoints"))
            else:
                self.prepare()
                self.begin()
            while self.state.step < self.config.run.steps:
                self._step()
            return self._finish()
        finally:
            self.setup.close()

    def prepare(self) -> None:
        """The cold start, and what depends on its reference."""
        start = cold_start(
            self.setup,
            lambda step, loss: self.display.cold_start(step, self.config.sft.steps, loss),
            lambda: self.display.note("another run is making the same cold start: waiting for it"),
        )
        self.policy.load_state_dict(start.weights)
        self._refer_to(start.reference)

    def _refer_to(self, reference: npt.NDArray[np.float64]) -> None:
        self.reference = reference
        self.noise = make_noise(self.config.noise, reference)
        self.evaluator = Evaluator(self.setup, reference)

    def sample(self, step: int) -> TrajectoryBatch:
        """The candidates of a step, invalid ones too; with ``refill`` until enough groups are trainable."""
        algo = self.config.algo
        prompts = SELECTORS[algo.selector].prompts(algo.prompts)
        batch = self._sample_groups(step, range(prompts))
        for wave in range(1, _REFILL_WAVES if algo.refill else 1):
            if select_rollouts(batch, algo, seed=self.config.run.seed, step=step).groups_trained >= prompts:
                break
            more = self._sample_groups(step, range(wave * prompts, (wave + 1) * prompts))
            batch = concatenate([batch, more])
        return batch

    def _sample_groups(self, step: int, problems: range) -> TrajectoryBatch:
        run = self.config.run
        size = SELECTORS[self.config.algo.selector].rollouts(self.config.algo.group_size)
        posed = [
            self.setup.problem(rng.key(run.seed, "task", step, p), self.setup.difficulties, "train") for p in problems
        ]
        group = np.repeat(np.arange(problems.start, problems.stop), size)
        number = np.tile(np.arange(size), len(problems))
        noise_keys = rng.key(run.seed, "noise", step, group, number)
        specs = [EpisodeSpec(posed[g - problems.start], int(key)) for g, key in zip(group, noise_keys, strict=True)]
        play = Play(self.setup.episodes(self.noise), specs, rng.key(run.seed, "sampling", step, group, number), group)
        return self.setup.rollout(self.policy, [play])[0]

    def _step(self) -> None:
        started = time.perf_counter()
        step, config = self.state.step + 1, self.config
        batch = self.sample(step)
        check_valid(batch)
        sampled = time.perf_counter()
        selection = select_rollouts(batch, config.algo, seed=config.run.seed, step=step)
        stats = None
        if len(selection.chosen_K):
            chosen = training_batch(batch, selection, config.algo.scale)
            stats = update(self.policy, self.optimizer, chosen, config.algo, config.policy.context)
        else:
            self.state.skipped += 1
        self.noise.observe(batch.calls.quality_C[eligible_calls(batch)])
        updated = time.perf_counter()
        self.state.step = step
        self.state.num_tokens += int(batch.sampled_NT[batch.valid_N].sum())
        figures = rollout_metrics(batch) | noise_metrics(batch) | selection_metrics(batch, selection)
        figures |= _update_metrics(stats) | {"num_tokens": self.state.num_tokens}
        if step % config.run.eval_every == 0 or step == config.run.steps:
            figures |= self._evaluate()
            self._write_trajectories(batch, selection)
        ended = time.perf_counter()
        figures |= {
            "step_time": ended - started,
            "time/rollout": sampled - started,
            "time/update": updated - sampled,
            "time/evaluation": ended - updated,
        }
        self._record(figures)
        if step % config.run.checkpoint_every == 0 or step == config.run.steps:
            self._save()

    def begin(self) -> None:
        """Step 0: the cold-started policy, evaluated and kept, and the reference that the run's noise refers to."""
        (self.folder / "checkpoints").mkdir(exist_ok=True)
        checkpoints.save_tensors(self.folder / REFERENCE, {"reference": torch.from_numpy(self.reference)})
        for name in ("metrics.jsonl", "trajectories.jsonl"):
            write_text(self.folder / name, "")
        self._record(self._evaluate())
        self._save()

    def _evaluate(self) -> dict[str, float]:
        figures = self.evaluator(self.policy, "validation")
        if figures["eval/accuracy"] > self.state.best_accuracy:
            self.state.best_accuracy, self.state.best_step = figures["eval/accuracy"], self.state.step
            self._save(_BEST)
        return figures

    # ------------------------------------------------------------ files

    def _record(self, figures: dict[str, float]) -> None:
        unknown = figures.keys() - set(METRICS)
        assert not unknown, f"metrics without a column: {sorted(unknown)}"
        row: Row = {name: _plain(figures.get(name)) for name in METRICS}
        row["step"] = self.state.step
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self.display.step(row, self.config.run.steps)

    def _write_trajectories(self, batch: TrajectoryBatch, selection: Selection) -> None:
        """A sample of groups, each rollout as policy, environment and selection saw it."""
        groups = np.unique(batch.group_N)[: self.config.run.trajectories]
        rows = np.flatnonzero(np.isin(batch.group_N, groups))
        chosen = set(selection.chosen_K.tolist())
        lines = []
        for row in rows.tolist():
            record = batch.records[row]
            text = self.setup.tokenizer.decode(batch.tokens_NT[row, : batch.lengths_N[row]].tolist())
            calls = [
                {
                    "tool": call.call.tool,
                    "body": call.call.body,
                    "status": call.result.status,
                    "kind": call.delivered.kind,
                    "origin": call.origin,
                    "fault": call.fault,
                    "quality": call.quality,
                }
                for call in record.calls
            ]
            lines.append(
                {
                    "step": self.state.step,
                    "group": int(batch.group_N[row]),
                    "prompt": record.problem.prompt,
                    "difficulty": record.problem.difficulty,
                    "text": text,
                    "calls": calls,
                    "reward": batch.rewards_N[row],
                    "valid": bool(batch.valid_N[row]),
                    "lucky": bool(batch.lucky_N[row]),
                    "quality": batch.quality_N[row],
                    "penalty": selection.penalty_N[row],
                    "trainable": bool(selection.trainable_N[row]),
                    "selected": row in chosen,
                }
            )
        with (self.folder / "trajectories.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def _save(self, name: str | None = None) -> None:
        folder = self.folder / "checkpoints" / (name or checkpoints.step_name(self.state.step))
        noise = {key: torch.from_numpy(np.array(value)) for key, value in self.noise.state().items()}
        weights = dict(self.policy.state_dict())
        tensors = checkpoints.optimizer_tensors(self.optimizer)
        checkpoints.save(folder, Checkpoint(weights, tensors, noise, vars(self.state)))

    def _restore(self, folder: Path) -> None:
        """Go back to a checkpoint, and the run's files with it."""
        saved = checkpoints.load(folder)
        checkpoints.remove_leftovers(self.folder)
        self._refer_to(read_reference(self.folder))
        try:
            self.policy.load_state_dict(saved.policy)
            checkpoints.restore_optimizer(self.optimizer, saved.optimizer)
            self.noise.load_state({key: value.numpy() for key, value in saved.noise.items()})
            self.state = _State(**saved.state)
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError("checkpoint", str(folder), f"one of this run's configuration ({reason})") from error
        files = [self.folder / name for name in ("metrics.jsonl", "trajectories.jsonl")]
        for file, rows in [(file, read_rows(file)) for file in files]:
            kept = [json.dumps(row) + "\n" for row in rows if row["step"] <= self.state.step]
            write_text(file, "".join(kept))
        self.display.note(f"resumed after step {self.state.step}")

    def _finish(self) -> dict[str, Any]:
        """Test the last and the best policy, draw the curves, write the summary."""
        figures = {"last": self.evaluator(self.policy, "test")}
        figures["best"] = figures["last"]
        if self.state.best_step != self.state.step:
            best = checkpoints.load(self.folder / "checkpoints" / _BEST)
            if best.state["step"] != self.state.best_step:
                place = str(self.folder / "checkpoints" / _BEST)
                raise ConfigError("checkpoint", place, f"the policy of step {self.state.best_step}")
            self.policy.load_state_dict(best.policy)
            figures["best"] = self.evaluator(self.policy, "test")
        test = {name: {key: _plain(value) for key, value in part.items()} for name, part in figures.items()}
        summary = {
            "steps": self.state.step,
            "best_step": self.state.best_step,
            "num_tokens": self.state.num_tokens,
            "steps_without_update": self.state.skipped,
            "validation": _evaluations(self.folder),
            "test": test,
        }
        plot_run(read_metrics(self.folder), self.folder / "curves.png", title=self.folder.name)
        # Last, since a run that has it is finished.
        write_text(self.folder / "summary.json", json.dumps(summary, indent=1) + "\n")
        return summary


def _plain(value: float | None) -> float | int | None:
    return None if value is None or not math.isfinite(value) else value


def _update_metrics(stats: UpdateStats | None) -> dict[str, float]:
    if stats is None:
        return {}
    return {
        "loss": stats.loss,
        "entropy": stats.entropy,
        "clip_ratio/region_mean": stats.clip_ratio,
        "grad_norm": stats.grad_norm,
        "train/update_norm": stats.update_norm,
    }


def _evaluations(folder: Path) -> dict[str, dict[str, Any]]:
    """First and last evaluation on the validation problems."""
    rows = [row for row in read_metrics(folder) if row["eval/accuracy"] is not None]
    return {
        name: {key: value for key, value in row.items() if key.startswith("eval/")}
        for name, row in (("first", rows[0]), ("last", rows[-1]))
    }


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


# ---------------------------------------------------------------- runs by folder


def train(config: Config, display: Display) -> Path:
    """Start a run in a new folder; returns the folder.

    Raises ConfigError for a name that is taken or a place where no folder can be made, before anything is written.
    """
    run = config.run
    name = run.name or f"{datetime.now().astimezone():%Y%m%d-%H%M%S-%f}-{config.algo.selector}-seed{run.seed}"
    folder = Path(run.runs_dir) / name
    if folder.exists():
        raise ConfigError("run.name", name, f"a name that is not taken in {run.runs_dir} (--resume {folder} goes on)")
    trainer = Trainer(config, folder, display)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        trainer.setup.close()
        raise ConfigError("run.runs_dir", run.runs_dir, f"a folder that can be written ({error.strerror})") from error
    display.note(f"run folder: {folder}, on {trainer.setup.device}")
    with locked(folder):
        write_text(folder / "config.json", json.dumps({"config": config.to_dict(), **_versions()}, indent=1) + "\n")
        try:
            trainer.run(resume=False)
        except ToolGymError:
            if not has_checkpoint(folder):
                # Refused before there was anything to go on with: the name is free again.
                shutil.rmtree(folder)
            raise
    return folder


def resume(folder: Path, display: Display) -> Path:
    """Go on with a run after its latest checkpoint, or from its start where it has none yet; returns the folder.

    Raises ConfigError where the folder is not a run's, its checkpoint is damaged, or the run is going on.
    """
    # The folder may have moved; the cache of cold starts lies beside it.
    config = read_config(folder).replace(**{"run.runs_dir": str(folder.resolve().parent)})
    with locked(folder):
        started = has_checkpoint(folder)
        if started:
            checkpoints.load(checkpoints.latest(folder / "checkpoints"))
            checkpoints.load(folder / "checkpoints" / _BEST)
        Trainer(config, folder, display).run(resume=started)
    return folder


def has_checkpoint(folder: Path) -> bool:
    """Whether a run got so far that it can be gone on with."""
    return bool(checkpoints.by_step(folder / "checkpoints"))


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


def read_reference(folder: Path) -> npt.NDArray[np.float64]:
    """The qualities that correlated noise refers to. Raises ConfigError where the file is missing or damaged."""
    reference = checkpoints.load_tensors(folder / REFERENCE).get("reference")
    if reference is None:
        raise ConfigError("checkpoint", str(folder / REFERENCE), "a file with the tensor `reference`")
    return np.asarray(reference.double().numpy())


def read_config(folder: Path) -> Config:
    """The configuration of a run. Raises ConfigError where the folder holds none."""
    try:
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return Config.from_dict(record["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("run", str(folder), f"the folder of a run ({type(error).__name__}: {error})") from error


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
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": {"revision": revision or None, "changed": changed},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "gymnasium": gymnasium.__version__,
        },
    }
