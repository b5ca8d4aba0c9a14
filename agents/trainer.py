"""The training loop: sample groups, select, update, evaluate, and keep everything in the run's folder.

Each step:
    1. sample a group of rollouts for each problem            (agents.rollout)
    2. choose which of them to train on                       (agents.selection)
    3. advantages over the chosen, clipped loss, one update   (agents.grpo)

Every draw is keyed by (seed, purpose, step, problem, rollout): arms that share a seed meet the same cold start,
problems, noise and uniforms, and a resumed run is the run that was never interrupted.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from agents import checkpoint as checkpoints
from agents import runs
from agents.alarms import Alarms
from agents.checkpoint import Checkpoint
from agents.coldstart import cache_of, cold_start
from agents.config import AlgoConfig, Config
from agents.curves import plot_run
from agents.engine import ALONE, Engine
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
from agents.optimizer import AdamW
from agents.rollout import Play, TrajectoryBatch, check_finite, check_valid, concatenate
from agents.runs import METRICS_FILE, REFERENCE, TRAJECTORIES_FILE, read_metrics
from agents.selection import SELECTORS, repeated_ngrams, rollout_penalties, select, shape_rewards
from agents.setup import Setup, make_noise
from agents.signals import Stopped, StopSignals
from tool_gym import rng
from tool_gym.episodes import EpisodeSpec
from tool_gym.errors import ConfigError, DivergenceError, ToolGymError
from tool_gym.interpreter import InterpreterPool, PoolStats

_REFILL_WAVES = 4
_BEST = "best"

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
    those whose chosen rollouts' rewards are, or of which none is chosen: none of them has a gradient.
    """
    rule = SELECTORS[config.selector]
    counts = {
        "calls": batch.calls_N,
        "errors": batch.errors_N,
        "policy_errors": batch.policy_errors_N,
        "answers": batch.answers_N,
        "turns": batch.turns_N,
    }
    ngrams = repeated_ngrams(batch.tokens_NT, batch.sampled_NT) if rule.penalty == "p+p_ngram" else None
    sorted_by = rollout_penalties(config.selector, **counts, ngrams=ngrams, released_format=config.roc_released_format)
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
        # `void_turn` can choose none.
        if not len(picked) or np.ptp(batch.rewards_N[rows[picked]]) == 0:
            continue
        chosen.append(rows[picked])
        trainable[rows] = True
    rows = np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)
    shaped = shape_rewards(config.selector, batch.rewards_N[rows], sorted_by[rows], config.penalty_weight)
    in_loss = ~batch.truncated_N[rows] if config.overlong_filter else np.ones(len(rows), dtype=np.bool_)
    return Selection(rows, np.asarray(shaped), in_loss, trainable, sorted_by, full, len(groups), len(chosen), invalid)


def training_batch(batch: TrajectoryBatch, selection: Selection, scale: str) -> TrainingBatch:
    """The rows that are trained on, with advantages over all that were chosen."""
    rows = selection.chosen_K
    whole = TrainingBatch(
        tokens_NT=batch.tokens_NT[rows],
        sampled_NT=batch.sampled_NT[rows],
        logprobs_NT=batch.logprobs_NT[rows],
        lengths_N=batch.lengths_N[rows],
        advantages_N=group_advantages(selection.rewards_K, batch.group_N[rows], scale=scale),
        group_N=batch.group_N[rows],
    )
    return whole.rows(np.flatnonzero(selection.in_loss_K))


# ---------------------------------------------------------------- the loop


@dataclass
class _State:
    """Counters that go into a checkpoint beside the tensors."""

    step: int = 0
    num_tokens: int = 0
    skipped: int = 0
    best_step: int = 0
    best_accuracy: float = -1.0
    logs: dict[str, str] = field(default_factory=dict)
    """Checksums of the run's growing files at this step, by name."""


class Trainer:
    """One run: everything from the cold start to the summary.

    Args:
        config: the whole configuration.
        folder: the run's folder, which exists.
        display: is told of progress.
        stop: ends the run after the step in which a signal came; None: signals are not looked at.
        engine, pool: see Setup.open.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        display: Display,
        stop: StopSignals | None = None,
        engine: Engine = ALONE,
        pool: InterpreterPool | None = None,
    ) -> None:
        self.folder, self.display = folder, display
        self.stop = StopSignals() if stop is None else stop
        self.alarms = Alarms()
        self.metrics, self.trajectories = (runs.Log(folder / name) for name in (METRICS_FILE, TRAJECTORIES_FILE))
        self.setup = Setup.open(config, engine, pool)
        self.config = self.setup.config
        self.state = _State()
        self.policy: Policy = self.setup.new_policy()
        self.optimizer = AdamW((self.policy.parameters(), 0.0), learning_rate=config.algo.learning_rate)

    def run(self, *, resume: bool) -> dict[str, Any]:
        """Train to the end, from the latest checkpoint with ``resume``; returns the summary."""
        try:
            if resume:
                self._restore()
            else:
                self.prepare()
            # Between here and the end a signal waits for a step's end; before and after, nothing would be lost.
            with self.stop.deferred():
                if not resume:
                    self.begin()
                while self.state.step < self.config.run.steps:
                    if self.stop.requested:
                        self._save()
                        self.stop.check()
                    self._step()
                self.stop.check()
            return self._finish()
        finally:
            self.setup.close()

    def prepare(self) -> None:
        """The cold start, and what depends on its reference."""
        # Alone in a stack, too: runs that share it wait for the one that makes it, and could not meet it there.
        try:
            start = cold_start(
                replace(self.setup, engine=ALONE),
                lambda step, loss: self.display.cold_start(step, self.config.sft.step_count, loss),
                lambda: self.display.note("another run is making the same cold start: waiting for it"),
            )
        except Stopped as stopped:
            raise Stopped(stopped.number, " in the cold start, of which nothing is kept") from None
        self.policy.load_state_dict(start.weights)
        self._refer_to(start.reference)

    def _refer_to(self, reference: npt.NDArray[np.float64]) -> None:
        self.reference = reference
        self.noise = make_noise(self.config.noise, reference)
        self.evaluator = Evaluator(self.setup, reference)

    def sample(self, step: int) -> TrajectoryBatch:
        """The candidates of a step, invalid ones too; with ``refill`` until enough groups are trainable."""
        algo = self.config.algo.at(step, self.config.run.steps)
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
        # Shared by the step's episodes, as a tool that is down is down for all of them.
        outage = int(rng.key(run.seed, "noise", step))
        specs = [
            EpisodeSpec(posed[g - problems.start], int(key), outage) for g, key in zip(group, noise_keys, strict=True)
        ]
        play = Play(self.setup.episodes(self.noise), specs, rng.key(run.seed, "sampling", step, group, number), group)
        return self.setup.rollout(self.policy, [play])[0]

    def _step(self) -> None:
        started = time.perf_counter()
        step, config = self.state.step + 1, self.config
        before = self.setup.pool.stats
        batch = self.sample(step)
        check_valid(batch, config.run.max_invalid)
        with self._kept_if_it_diverges(step):
            check_finite(batch)
        sampling_ended = time.perf_counter()
        algo = config.algo.at(step, config.run.steps)
        selection = select_rollouts(batch, algo, seed=config.run.seed, step=step)
        stats = None
        if len(selection.chosen_K):
            stats = self._update(training_batch(batch, selection, config.algo.scale), step)
        else:
            self.state.skipped += 1
        eligible = eligible_calls(batch)
        self.noise.observe_calls(batch.calls.quality_C[eligible], batch.calls.tool_C[eligible].tolist())
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
            "time/rollout": sampling_ended - started,
            "time/update": updated - sampling_ended,
            "time/evaluation": ended - updated,
        }
        figures |= self._infrastructure(before)
        self._record(figures)
        for text in self.alarms.check(step, figures):
            self.display.note(text)
        self._keep()

    def _update(self, chosen: TrainingBatch, step: int) -> UpdateStats:
        config = self.config
        with self._kept_if_it_diverges(step):
            return update(self.policy, self.optimizer, chosen, config.algo, config.policy.context, self.setup.engine)

    @contextlib.contextmanager
    def _kept_if_it_diverges(self, step: int) -> Iterator[None]:
        """Where the block's numbers go wrong its batch is kept for inspection, and the step is named.

        A run that has no checkpoint yet leaves no folder, so that its batch is kept beside the cold start.
        """
        try:
            yield
        except DivergenceError as error:
            name, told = f"diverged_{checkpoints.step_name(step)}.safetensors", f"step {step}: {error}"
            if checkpoints.by_step(self.folder / "checkpoints"):
                file, told = self.folder / name, f"{told}; the latest checkpoint is kept"
            else:
                file = cache_of(self.config) / f"{self.folder.name}_{name}"
            raise checkpoints.keep_batch(file, error, told) from error

    def _infrastructure(self, before: PoolStats) -> dict[str, float]:
        """What happened to the workers in this step; all zero but for accidents."""
        now = self.setup.pool.stats
        return {
            "infrastructure/failures": float(now.infrastructure_failures - before.infrastructure_failures),
            "infrastructure/kills": float(now.kills - before.kills),
            "infrastructure/crashes": float(now.crashes - before.crashes),
        }

    def begin(self) -> None:
        """Step 0: the cold-started policy, evaluated and kept, and the reference that the run's noise refers to."""
        (self.folder / "checkpoints").mkdir(exist_ok=True)
        checkpoints.save_tensors(self.folder / REFERENCE, {"reference": torch.from_numpy(self.reference)})
        self.metrics.write(b"")
        self.trajectories.write(b"")
        self._record(self._evaluate())
        self._keep()

    def _evaluate(self) -> dict[str, float]:
        with self._kept_if_it_diverges(self.state.step):
            figures = self.evaluator(self.policy, "validation")
        if figures["eval/accuracy"] > self.state.best_accuracy:
            self.state.best_accuracy, self.state.best_step = figures["eval/accuracy"], self.state.step
        return figures

    # ------------------------------------------------------------ files

    def _record(self, figures: dict[str, float]) -> None:
        unknown = figures.keys() - set(METRICS)
        assert not unknown, f"metrics without a column: {sorted(unknown)}"
        row: Row = {name: _plain(figures.get(name)) for name in METRICS}
        row["step"] = self.state.step
        self.metrics.append([row])
        self.display.step(row, self.config.run.steps)

    def _write_trajectories(self, batch: TrajectoryBatch, selection: Selection) -> None:
        """A sample of groups, each rollout as policy, environment and selection saw it."""
        groups = np.unique(batch.group_N)[: self.config.run.trajectories]
        rows = np.flatnonzero(np.isin(batch.group_N, groups))
        chosen, trained = set(selection.chosen_K.tolist()), set(selection.trained.tolist())
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
                    "scheduled": call.scheduled_kind,
                    "fault": call.fault,
                    "permanent": call.permanent,
                    "standing": call.standing,
                    # What the policy saw is in the text; where a fault took its place, this is what it would have seen.
                    "output": call.result.output if call.fault else "",
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
                    "in_loss": row in trained,
                }
            )
        self.trajectories.append(lines)

    def _keep(self) -> None:
        """The checkpoints that are due after a step, once all that the step writes is written.

        The best policy's comes second, in a stack only when all runs have the step's, so that no kill leaves it newer
        than the latest to go on from: on another machine the run might not come to that policy again.
        """
        step, run = self.state.step, self.config.run
        best = step == self.state.best_step
        if best or step % run.checkpoint_every == 0 or step == run.steps:
            self._save()
        self.setup.engine.meet()
        if best:
            self._save(_BEST)

    def _save(self, name: str | None = None) -> None:
        folder = self.folder / "checkpoints" / (name or checkpoints.step_name(self.state.step))
        noise = {key: torch.from_numpy(np.array(value)) for key, value in self.noise.state().items()}
        weights = dict(self.policy.state_dict())
        self.state.logs = {log.file.name: log.checksum for log in (self.metrics, self.trajectories)}
        for log in (self.metrics, self.trajectories):
            log.sync()
        checkpoints.save(folder, Checkpoint(weights, self.optimizer.tensors(), noise, vars(self.state)))
        if name is None:
            checkpoints.keep_last(self.folder / "checkpoints", self.config.run.keep_checkpoints)

    def _intact(self) -> tuple[Path, Checkpoint]:
        """The latest checkpoint that is whole, to which the run's other files lead, and from which the best policy
        can be had too; at last that of the best policy itself.

        Raises ConfigError, with what is wrong with the latest, where there is none.
        """
        kept = self.folder / "checkpoints"
        best: Checkpoint | None = None
        try:
            best = checkpoints.load(kept / _BEST)
        except ConfigError as error:
            self.display.note(f"damaged: {error}")
        first_error: ConfigError | None = None
        for folder in [*reversed(checkpoints.by_step(kept)), kept / _BEST]:
            try:
                saved, is_best = _leading_on(self.folder, folder, best)
                if is_best:
                    checkpoints.save(kept / _BEST, saved)
                return folder, saved
            except ConfigError as error:
                first_error = first_error or ConfigError("checkpoint", str(folder), f"an intact one ({error})")
                self.display.note(f"{folder.name} cannot be gone on with, an earlier one is tried: {error}")
        assert first_error is not None, "there is always one to try"
        raise first_error

    def _restore(self) -> None:
        """Go back to a checkpoint, and the run's files with it."""
        folder, saved = self._intact()
        self._refer_to(runs.read_reference(self.folder))
        try:
            self.policy.load_state_dict(saved.policy)
            self.optimizer.restore(saved.optimizer)
            self.noise.load_state({key: value.numpy() for key, value in saved.noise.items()})
            self.state = _state_of(self.folder, folder, saved)
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise ConfigError("checkpoint", str(folder), f"one of this run's configuration ({reason})") from error
        for log in (self.metrics, self.trajectories):
            log.write(log.until(self.state.step, self.state.logs.get(log.file.name)))
        kept = self.folder / "checkpoints"
        checkpoints.remove_after(kept, self.state.step)
        if folder.name == _BEST:
            # In place of the damaged one of its step, or of none: the latest is always one to go on from.
            checkpoints.save(kept / checkpoints.step_name(self.state.step), saved)
        self.display.note(f"resumed after step {self.state.step}")

    def _finish(self) -> dict[str, Any]:
        """Test the last and the best policy, draw the curves, write the summary."""
        with self._kept_if_it_diverges(self.state.step):
            figures = {"last": self.evaluator(self.policy, "test")}
        figures["best"] = figures["last"]
        if self.state.best_step != self.state.step:
            best = checkpoints.load(self.folder / "checkpoints" / _BEST)
            if best.state["step"] != self.state.best_step:
                place = str(self.folder / "checkpoints" / _BEST)
                raise ConfigError("checkpoint", place, f"the policy of step {self.state.best_step}")
            self.policy.load_state_dict(best.policy)
            with self._kept_if_it_diverges(self.state.best_step):
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
        runs.write_summary(self.folder, summary)
        return summary


def _state_of(run: Path, place: Path, saved: Checkpoint) -> _State:
    """A checkpoint's counters. Raises ConfigError, with what wrote the run, where they are those of another version."""
    try:
        return _State(**saved.state)
    except TypeError as error:
        wanted = f"a checkpoint of this version ({error}); this run was {runs.writer(run)}"
        raise ConfigError("checkpoint", str(place), wanted) from error


def _leading_on(run: Path, place: Path, best: Checkpoint | None) -> tuple[Checkpoint, bool]:
    """A checkpoint that a run can go on from, and whether it is to be kept as that of the best policy, too.

    Args:
        run: the run's folder.
        place: the checkpoint's.
        best: what is kept of the best policy; None: it is damaged or gone.

    Raises ConfigError where it is damaged or of another version, the run's other files do not lead to it, or the best
    policy cannot be had from there.
    """
    saved = checkpoints.load(place)
    state = _state_of(run, place, saved)
    for name in (METRICS_FILE, TRAJECTORIES_FILE):
        runs.Log(run / name).until(state.step, state.logs.get(name))
    if best is not None and best.state["step"] >= state.best_step:
        return saved, False
    if state.best_step != state.step:
        wanted = f"the policy of step {state.best_step}, which is damaged or gone"
        raise ConfigError("checkpoint", str(run / "checkpoints" / _BEST), wanted)
    return saved, True


def usable_steps(run: Path) -> set[int]:
    """The steps of the checkpoints that a run can go on from; none where it has no folder yet."""
    kept, steps = run / "checkpoints", set()
    best: Checkpoint | None = None
    with contextlib.suppress(ConfigError):
        best = checkpoints.load(kept / _BEST)
    for place in checkpoints.by_step(kept):
        with contextlib.suppress(ConfigError):
            _leading_on(run, place, best)
            steps.add(checkpoints.step_of(place))
    return steps


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


# ---------------------------------------------------------------- runs by folder


def train(
    config: Config,
    display: Display,
    stop: StopSignals | None = None,
    engine: Engine = ALONE,
    pool: InterpreterPool | None = None,
) -> Path:
    """Start a run in a new folder; returns the folder. ``engine`` and ``pool``: see Setup.open.

    Raises ConfigError for a name that is taken or a place where no folder can be made, before anything is written.
    """
    run = config.run
    name = run.name or f"{datetime.now().astimezone():%Y%m%d-%H%M%S-%f}-{config.algo.selector}-seed{run.seed}"
    folder = Path(run.runs_dir) / name
    if folder.exists():
        raise ConfigError("run.name", name, f"a name that is not taken in {run.runs_dir} (--resume {folder} goes on)")
    _check_stack(config, engine)
    trainer = Trainer(config, folder, display, stop, engine, pool)
    try:
        runs.create(folder, trainer.config)
    except OSError as error:
        trainer.setup.close()
        raise ConfigError("run.runs_dir", run.runs_dir, f"a folder that can be written ({error.strerror})") from error
    display.note(f"run folder: {folder}, on {trainer.setup.device}")
    with runs.locked(folder):
        try:
            trainer.run(resume=False)
        except ToolGymError:
            if not checkpoints.by_step(folder / "checkpoints"):
                # Refused before there was anything to go on with: the name is free again.
                shutil.rmtree(folder)
            raise
    return folder


def _check_stack(config: Config, engine: Engine) -> None:
    if config.run.stack is not None and engine is ALONE:
        wanted = "None: runs of a stack are trained together (python -m experiments sweep --stack)"
        raise ConfigError("run.stack", config.run.stack, wanted)


def resume(
    folder: Path,
    display: Display,
    stop: StopSignals | None = None,
    engine: Engine = ALONE,
    pool: InterpreterPool | None = None,
) -> Path:
    """Go on with a run after its latest intact checkpoint, or from its start where it has none yet.

    Returns the folder. Raises ConfigError where it is not a run's, no checkpoint is intact, or the run is going on.
    """
    # The folder may have moved; the cache of cold starts lies beside it.
    config = runs.read_config(folder).replace(**{"run.runs_dir": str(folder.resolve().parent)})
    _check_stack(config, engine)
    with runs.locked(folder):
        checkpoints.remove_leftovers(folder)
        kept = folder / "checkpoints"
        started = bool(checkpoints.by_step(kept)) or (kept / _BEST).exists()
        if begun := runs.note_other_code(folder):
            display.note(f"begun by revision {begun}, whose code was another: what is made now may differ from it")
        Trainer(config, folder, display, stop, engine, pool).run(resume=started)
    return folder
