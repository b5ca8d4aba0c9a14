"""Runs trained together: their arithmetic agrees with that of runs alone, and a stack resumes to the same bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from agents import checkpoint as checkpoints
from agents import frozen, runs, sft
from agents import stack as stacks
from agents.config import AlgoConfig, Config, PolicyConfig
from agents.engine import ALONE, Sampling, packed_logits
from agents.grpo import TrainingBatch, UpdateStats, token_logprobs, update
from agents.model import Policy
from agents.packing import pack, rectangles
from agents.runs import read_metrics
from agents.signals import Stopped, StopSignals
from agents.stack import Stack, _Gradients, joint_backward, joint_sample, train_stack
from agents.trainer import Trainer, train
from experiments import executors
from tests.tiny import DEVICES, Silent, rows, tiny_config
from tool_gym import rng
from tool_gym.errors import ConfigError, DivergenceError, TaskError
from tool_gym.interpreter import InterpreterPool

VOCABULARY, END = 12, 2
SIZES = PolicyConfig(layers=2, width=32, heads=2, context=96, max_turn_tokens=12)


def policies(count: int, device: str = "cpu") -> list[Policy]:
    made = [Policy(SIZES, VOCABULARY, (0, 1, 11)) for _ in range(count)]
    for seed, policy in enumerate(made):
        policy.initialise(seed)
    return [policy.to(device) for policy in made]


def batch(rows: int, seed: int) -> TrainingBatch:
    draws = np.random.default_rng(seed)
    lengths = draws.integers(8, 60, rows)
    tokens = draws.integers(3, 11, (rows, 60), dtype=np.int32)
    sampled = (np.arange(60) > 4) & (np.arange(60) % 7 < 4) & (np.arange(60) < lengths[:, None])
    logprobs = np.where(sampled, -np.log(9), 0.0).astype(np.float32)
    return TrainingBatch(tokens, sampled, logprobs, lengths, draws.normal(size=rows), np.arange(rows) // 4)


class Echo:
    """Answers each row's turns, all but its third, with as many tokens as its number says, some turns later."""

    def __init__(self, delay: int = 0) -> None:
        self.turns: dict[int, int] = {}
        self.waiting: list[tuple[int, int]] = []
        self.delay = delay

    def submit(self, rows: Sequence[int], turns: Sequence[Any]) -> None:
        self.waiting += [(row, self.delay * (row % 3)) for row in rows]

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        ready = [row for row, left in self.waiting if left <= 0 or block]
        self.waiting = [(row, left - 1) for row, left in self.waiting if row not in ready]
        for row in ready:
            self.turns[row] = self.turns.get(row, 0) + 1
        return [(row, [11] * (row % 14 + 1) if self.turns[row] < 3 else None) for row in ready]

    def abandon(self, rows: Sequence[int]) -> None: ...


def in_threads(count: int, work: Any) -> list[Any]:
    """What ``work(number, engine)`` gives in each thread of a stack."""
    stack = Stack(count, StopSignals())
    results: list[Any] = [None] * count

    def member(number: int) -> None:
        try:
            results[number] = work(number, stacks._Member(stack, number))
        except BaseException as error:
            results[number] = error
        stack.leave(number)

    threads = [threading.Thread(target=member, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.parametrize("device", DEVICES)
def test_an_update_in_a_stack_agrees_with_the_separate_one(device: str) -> None:
    # Unlike in size, so that positions, trained tokens and micro-batches are filled up.
    batches = [batch(12, 0), batch(28, 1), batch(4, 2)]

    def work(number: int, engine: Any, made: list[Policy]) -> UpdateStats:
        optimizer = torch.optim.AdamW(made[number].parameters(), lr=1e-3)
        return update(made[number], optimizer, batches[number], AlgoConfig(minibatches=number + 1), 96, engine)

    alone, together = policies(3, device), policies(3, device)
    separate = [work(number, ALONE, alone) for number in range(3)]
    joint = in_threads(3, lambda number, engine: work(number, engine, together))
    for number in range(3):
        for name, value in vars(separate[number]).items():
            assert vars(joint[number])[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
        for (name, one), other in zip(alone[number].named_parameters(), together[number].parameters(), strict=True):
            assert torch.allclose(one.grad, other.grad, atol=1e-5), (number, name)  # type: ignore[arg-type]
            # The first steps of AdamW make of a gradient near nought what its rounding says.
            told = one.grad.abs() > 1e-4  # type: ignore[union-attr]
            assert torch.allclose(one[told], other[told], atol=1e-5), (number, name)
            assert device == "cuda" or torch.allclose(one, other, atol=1e-5), (number, name)


def test_a_run_that_diverged_leaves_the_gradients_of_the_others_alone() -> None:
    made = policies(3)
    with torch.no_grad():
        for parameter in made[1].parameters():
            parameter.fill_(torch.nan)
    batches = [batch(8, 0), batch(8, 1), batch(8, 2)]
    packed = [
        pack(part.tokens_NT, part.sampled_NT, part.lengths_N, rectangles(part.lengths_N, 16), torch.device("cpu"))
        for part in batches
    ]
    for order in ([0, 1, 2], [1, 0, 2], [2, 1, 0]):
        for policy in made:
            policy.zero_grad()
        joint_backward([_Gradients(made[n], packed[n], lambda logits: logits[:, 2:10].sum()) for n in order])
        for number, policy in enumerate(made):
            for parameter in policy.parameters():
                assert parameter.grad is not None
                assert bool(parameter.grad.isfinite().all()) == (number != 1), (order, number)


def wanted(policy: Policy, number: int, delay: int = 0) -> Sampling:
    prompts = [[1, 4, 5, 6, END], [1, 7, END], [1, *range(3, 11), *range(3, 11), END]]
    count = 3 + 20 * number
    keys = rng.key(number, "sampling", np.arange(count) // 2 * 2 + np.arange(count) % 3 // 2)
    return Sampling(policy, prompts, np.arange(count) // 2 % 3, keys, Echo(delay), 96, END, 12, 16)


def test_conversations_sampled_in_a_stack_are_those_of_each_policy_alone() -> None:
    made = policies(3)
    for delay in (0, 2):
        together = in_threads(3, lambda number, engine, delay=delay: engine.sample(wanted(made[number], number, delay)))
        for number in range(3):
            alone = ALONE.sample(wanted(made[number], number))
            for name in ("tokens_NT", "sampled_NT", "logprobs_NT", "lengths_N", "clipped_N"):
                assert np.array_equal(getattr(together[number], name), getattr(alone, name)), (number, name)
    assert not np.array_equal(together[1].tokens_NT[:3, :5], together[0].tokens_NT[:, :5])


@pytest.mark.parametrize("device", DEVICES)
def test_conversations_sampled_in_a_stack_have_the_log_probabilities_of_a_forward_pass(device: str) -> None:
    made = policies(3, device)
    for policy, found in zip(made, joint_sample([wanted(policy, n) for n, policy in enumerate(made)]), strict=True):
        groups = rectangles(found.lengths_N, 16)
        packed = pack(found.tokens_NT, found.sampled_NT, found.lengths_N, groups, policy.device)
        with torch.no_grad():
            again, _ = token_logprobs(packed_logits(policy, packed), packed.targets_K)
        assert np.abs(again.cpu().numpy() - found.logprobs_NT[packed.where]).max() < 1e-4


def test_batched_products_decode_as_one_policy_after_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = policies(3)
    in_turn = joint_sample([wanted(policy, number) for number, policy in enumerate(made)])
    monkeypatch.setattr(frozen, "_WeightsInTurn", frozen._StackedWeights)
    batched = joint_sample([wanted(policy, number) for number, policy in enumerate(made)])
    for one, other in zip(in_turn, batched, strict=True):
        for name in ("tokens_NT", "sampled_NT", "lengths_N", "clipped_N"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert np.abs(one.logprobs_NT - other.logprobs_NT).max() < 1e-5


def test_when_one_run_fails_the_others_go_on_without_it() -> None:
    made = policies(3)

    def work(number: int, engine: Any) -> Any:
        first = engine.sample(wanted(made[number], number))
        if number == 1:
            raise DivergenceError("the loss is nan")
        return first, engine.sample(wanted(made[number], number))

    first, second, third = in_threads(3, work)
    assert isinstance(second, DivergenceError)
    for before, after in (first, third):
        assert np.array_equal(before.tokens_NT, after.tokens_NT)


def members(place: Path, **changes: Any) -> list[Config]:
    """Two arms of one seed, and one of another."""
    base = tiny_config(place, **{"run.stack": "abc", **changes})
    arms = (("roc", 0), ("grpo", 0), ("roc", 1))
    return [
        base.replace(**{"algo.selector": rule, "run.seed": seed, "run.name": f"{rule}-{seed}"}) for rule, seed in arms
    ]


def results(folders: Sequence[Path]) -> list[Any]:
    return [
        (rows(folder), (folder / "summary.json").read_bytes(), (folder / "trajectories.jsonl").read_bytes())
        for folder in folders
    ]


def test_a_stack_learns_what_its_runs_learn_alone(tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]) -> None:
    together, alone_place = (tiny_cold_starts(tmp_path / name) for name in ("together", "alone"))
    folders = train_stack(members(together), StopSignals())
    for folder, config in zip(folders, members(alone_place, **{"run.stack": None}), strict=True):
        alone = read_metrics(train(config, Silent()))
        own = read_metrics(folder)
        assert len(own) == len(alone) == 5
        assert own[0]["eval/accuracy"] == alone[0]["eval/accuracy"]
        # The first update is of the same rollouts; later ones may part in the last bits.
        for name in ("reward", "loss", "grad_norm", "num_tokens", "entropy", "train/update_norm"):
            assert own[1][name] == pytest.approx(alone[1][name], rel=1e-4, abs=1e-5), name


def test_a_stack_that_is_killed_or_stopped_goes_on_to_the_same_bytes(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    changes = {"run.steps": 6}
    whole = results(train_stack(members(tiny_cold_starts(tmp_path / "whole"), **changes), StopSignals()))
    configs = members(tiny_cold_starts(tmp_path / "broken"), **changes)
    file = tmp_path / "stack.json"
    file.write_text(json.dumps([config.to_dict() for config in configs]))
    folders = [tmp_path / "broken" / str(config.run.name) for config in configs]
    command = [sys.executable, "-m", "agents.stack", str(file)]
    for number, step in ((signal.SIGKILL, 3), (signal.SIGTERM, 5)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=_ROOT) as process:
            while process.poll() is None:
                file_1 = folders[1] / "metrics.jsonl"
                if file_1.exists() and file_1.read_text().count("\n") > step:
                    os.kill(process.pid, number)
                    break
                time.sleep(0.02)
            process.communicate()
            assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGTERM)
        if number == signal.SIGTERM:
            reached = {len((folder / "metrics.jsonl").read_text().splitlines()) for folder in folders}
            assert len(reached) == 1, "all runs stop at the same step"
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert results(folders) == whole


def test_runs_that_cannot_be_stacked_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = members(tmp_path)
    with pytest.raises(ConfigError, match="at least two runs"):
        train_stack(good[:1], StopSignals())
    with pytest.raises(ConfigError, match="part of what the run is"):
        train_stack([config.replace(**{"run.stack": None}) for config in good], StopSignals())
    for name in (None, good[0].run.name):
        with pytest.raises(ConfigError, match="a name of its own"):
            train_stack([good[0], good[1].replace(**{"run.name": name})], StopSignals())
    for change in (
        *({"policy.width": 64}, {"run.steps": 9}, {"run.stack": "other"}, {"env.id": "tool_gym/Retrieval-v0"}),
        {"run.threads": 2},
    ):
        with pytest.raises(ConfigError, match="the same for all runs of a stack"):
            train_stack([good[0], good[1].replace(**change)], StopSignals())
    with pytest.raises(ConfigError, match="sweep --stack"):
        train(good[0], Silent())
    assert not any(tmp_path.iterdir())


def test_a_run_that_is_there_with_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    configs = members(tmp_path)
    runs.create(tmp_path / str(configs[1].run.name), configs[1].replace(**{"policy.width": 64}))
    with pytest.raises(ConfigError, match=r"policy.*the same for all runs of a stack"):
        train_stack(configs, StopSignals())


def test_what_fails_in_the_joint_arithmetic_is_what_the_stack_fails_with(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(wanted: Sequence[Sampling]) -> None:
        raise TaskError("Arithmetic.grade raised")

    monkeypatch.setattr(stacks, "joint_sample", broken)
    with pytest.raises(TaskError, match=r"Arithmetic\.grade raised"):
        train_stack(members(tiny_cold_starts(tmp_path)), StopSignals())


def test_a_run_that_diverges_leaves_the_others_to_finish_and_is_what_the_stack_ends_with(
    tmp_path: Path,
    tiny_cold_starts: Callable[[Path], Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configs = members(tiny_cold_starts(tmp_path), **{"run.steps": 6, "run.keep_checkpoints": 2})
    folders = [tmp_path / str(config.run.name) for config in configs]
    learn = Trainer._update

    def diverging(trainer: Trainer, chosen: TrainingBatch, step: int) -> UpdateStats:
        if step == 3 and trainer.config.algo.selector == "grpo":
            with trainer._kept_if_it_diverges(step):
                raise DivergenceError("the loss is nan", {"tokens_NT": chosen.tokens_NT})
        return learn(trainer, chosen, step)

    made = []
    with monkeypatch.context() as broken:
        broken.setattr(Trainer, "_update", diverging)
        for again in (False, True):
            # The second time the others have kept no step to which the failed one has come: all begin again.
            with pytest.raises(DivergenceError, match="step 3: the loss is nan"):
                train_stack(configs, StopSignals())
            assert [runs.finished(folder) for folder in folders] == [True, False, True]
            made.append(results([folders[0], folders[2]]))
            assert ("all begin again" in capsys.readouterr().out) == again
    assert made[0] == made[1]
    assert all(runs.finished(folder) for folder in train_stack(configs, StopSignals()))


def test_any_other_failure_of_a_run_ends_its_stack(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    learn = Trainer._update

    def failing(trainer: Trainer, chosen: TrainingBatch, step: int) -> UpdateStats:
        if step == 3 and trainer.config.algo.selector == "grpo":
            raise OSError("the disk is full")
        return learn(trainer, chosen, step)

    monkeypatch.setattr(Trainer, "_update", failing)
    configs = members(tiny_cold_starts(tmp_path))
    with pytest.raises(OSError, match="the disk is full"):
        train_stack(configs, StopSignals())
    assert not any(runs.finished(tmp_path / str(config.run.name)) for config in configs)


def test_of_a_stack_that_failed_a_sweep_keeps_the_runs_that_finished(
    tmp_path: Path, trained: Callable[[Path], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = trained(tmp_path)
    (folders[1] / "summary.json").unlink()
    place = {"run.runs_dir": str(tmp_path)}
    jobs = [executors.Job(folder.name, runs.read_config(folder).replace(**place)) for folder in folders]

    def failed(unit: Any) -> Any:
        return subprocess.Popen(["false"]), tmp_path / "log"

    monkeypatch.setattr(executors, "_start_unit", failed)
    outcomes: list[executors.Outcome] = []
    executors.run_local(jobs, outcomes.append, processes=1)
    assert [(one.job, one.packed is not None) for one in outcomes] == list(zip(jobs, [True, False, True], strict=True))


def test_after_a_second_signal_no_run_is_answered_any_more() -> None:
    stack = Stack(1, StopSignals())
    stack.fail(KeyboardInterrupt())
    with pytest.raises(RuntimeError, match="failed"):
        stack.ask(0, stacks._Meeting())


def test_a_second_signal_ends_the_runs_before_it_takes_the_workers_from_them(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    before, fail, close = threading.enumerate(), Stack.fail, InterpreterPool.close

    def struck(thread: threading.Thread) -> None:
        raise Stopped(signal.SIGINT)

    def failing(stack: Stack, failure: BaseException) -> None:
        order.append("runs")
        fail(stack, failure)

    def closing(pool: InterpreterPool) -> None:
        order.append("workers")
        close(pool)

    monkeypatch.setattr(Stack, "fail", failing)
    monkeypatch.setattr(InterpreterPool, "close", closing)
    configs = members(tiny_cold_starts(tmp_path))
    with monkeypatch.context() as waiting:
        waiting.setattr(threading.Thread, "join", struck)
        with pytest.raises(Stopped):
            train_stack(configs, StopSignals())
    assert order == ["runs", "workers"]
    for thread in set(threading.enumerate()) - set(before):
        if "watchdog" not in thread.name:
            thread.join(30)
            assert not thread.is_alive(), "a run goes on without being able to meet the others"


def test_a_cold_start_made_in_a_stack_does_not_wait_for_the_others(tmp_path: Path) -> None:
    class Refusing:
        def sample(self, wanted: Any) -> Any:
            raise AssertionError("asked the stack while holding the lock that another run of it may wait for")

        def backward(self, *wanted: Any) -> None:
            self.sample(wanted)

        def meet(self) -> None:
            self.sample(None)

    trainer = Trainer(
        tiny_config(tmp_path, **{"sft.steps": 2, "noise.kind": "iid"}), tmp_path / "run", Silent(), engine=Refusing()
    )
    try:
        trainer.prepare()
    finally:
        trainer.setup.close()
    assert list((tmp_path / ".cache").glob("*.safetensors"))


def test_a_cold_start_that_diverges_is_not_kept_for_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([1.0, 1.0, float("nan")])
    monkeypatch.setattr(sft, "_accumulate", lambda policy, examples, chosen: next(losses))
    with pytest.raises(DivergenceError, match="cold start, step 3: the loss is nan"):
        train_stack(members(tmp_path), StopSignals())
    assert [path.name.partition("_")[0] for path in (tmp_path / ".cache").glob("*.safetensors")] == ["diverged"]


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_cold_starts: Callable[[Path], Path]
) -> Callable[[Path], list[Path]]:
    """Copies the folders of a stack, trained once, to a place."""
    place = tiny_cold_starts(tmp_path_factory.mktemp("trained") / "stack")
    folders = train_stack(members(place), StopSignals())

    def put(to: Path) -> list[Path]:
        return [Path(shutil.copytree(folder, to / folder.name)) for folder in folders]

    return put


def latest(folders: Sequence[Path]) -> list[str]:
    return [checkpoints.latest(folder / "checkpoints").name for folder in folders]


def test_a_checkpoint_that_a_kill_left_under_its_other_name_counts(
    tmp_path: Path, trained: Callable[[Path], list[Path]]
) -> None:
    folders = trained(tmp_path)
    kept = folders[1] / "checkpoints"
    (kept / "step_000004").rename(kept / ".step_000004.old")
    assert stacks._to_common_step(folders)
    assert latest(folders) == ["step_000004"] * 3
    assert not any(runs.finished(folder) for folder in folders)


def test_a_stack_goes_back_to_a_step_to_which_the_logs_of_all_lead(
    tmp_path: Path, trained: Callable[[Path], list[Path]]
) -> None:
    folders = trained(tmp_path)
    metrics = folders[2] / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join([*lines[:3], lines[4]]))
    assert stacks._to_common_step(folders)
    assert latest(folders) == ["step_000002"] * 3


def test_nothing_is_taken_back_where_a_run_is_worked_on_or_no_step_is_common(
    tmp_path: Path, trained: Callable[[Path], list[Path]]
) -> None:
    folders = trained(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with runs.locked(folders[1]), pytest.raises(ConfigError, match="no other process"):
        stacks._to_common_step(folders)
    (folders[0] / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(ConfigError, match="the same step as the other runs"):
        stacks._to_common_step(folders)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stack_of_which_a_run_has_not_begun_begins_again(
    tmp_path: Path, trained: Callable[[Path], list[Path]]
) -> None:
    folders = trained(tmp_path)
    shutil.rmtree(folders[0])
    assert not stacks._to_common_step(folders)
    assert not any((folder / "checkpoints").exists() for folder in folders)


def test_no_best_policy_is_kept_before_all_runs_can_go_on_from_its_step(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[tuple[str, str, int]] = []
    save = checkpoints.save

    def noted(folder: Path, checkpoint: checkpoints.Checkpoint) -> None:
        save(folder, checkpoint)
        saved.append((folder.parent.parent.name, folder.name, checkpoint.state["step"]))

    monkeypatch.setattr(checkpoints, "save", noted)
    # Checkpoints less often than evaluations, of which one may be the best.
    changes = {"run.steps": 3, "run.eval_every": 1, "run.checkpoint_every": 3, "run.keep_checkpoints": 1}
    folders = train_stack(members(tiny_cold_starts(tmp_path), **changes), StopSignals())
    assert any(name == "best" for _, name, _ in saved)
    for at, (_, name, step) in enumerate(saved):
        if name == "best":
            there = {run for run, kept, _ in saved[:at] if kept == checkpoints.step_name(step)}
            assert there == {folder.name for folder in folders}
    for folder in folders:
        assert [path.name for path in checkpoints.by_step(folder / "checkpoints")] == ["step_000002", "step_000003"]


def test_a_file_without_configurations_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "stack.json"
    for text in ("{", "[]", "3"):
        file.write_text(text)
        assert stacks.main([str(file)]) == 2
    assert stacks.main([str(tmp_path / "none")]) == 2
    assert stacks.main([]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    assert all(line.startswith("error: ") for line in lines)


_ROOT = Path(__file__).parents[1]
