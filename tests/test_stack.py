"""Runs trained together: their arithmetic agrees with that of runs alone, and a stack resumes to the same bytes."""

from __future__ import annotations

import json
import os
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

from agents import frozen
from agents import stack as stacks
from agents.config import AlgoConfig, Config, PolicyConfig
from agents.engine import ALONE, Sampling
from agents.grpo import TrainingBatch, UpdateStats, update
from agents.model import Policy
from agents.runs import read_metrics
from agents.signals import StopSignals
from agents.stack import Stack, joint_sample, train_stack
from agents.trainer import train
from tests.tiny import Silent, rows, tiny_config
from tool_gym import rng
from tool_gym.errors import ConfigError, DivergenceError

VOCABULARY, END = 12, 2
SIZES = PolicyConfig(layers=2, width=32, heads=2, context=96, max_turn_tokens=12)


def policies(count: int) -> list[Policy]:
    made = [Policy(SIZES, VOCABULARY, (0, 1, 11)) for _ in range(count)]
    for seed, policy in enumerate(made):
        policy.initialise(seed)
    return made


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
        failure = None
        try:
            results[number] = work(number, stacks._Member(stack, number))
        except BaseException as error:
            results[number] = failure = error
        stack.leave(number, failure)

    threads = [threading.Thread(target=member, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_an_update_in_a_stack_agrees_with_the_separate_one() -> None:
    # Unlike in size, so that positions, trained tokens and micro-batches are filled up.
    batches = [batch(12, 0), batch(28, 1), batch(4, 2)]

    def work(number: int, engine: Any, made: list[Policy]) -> UpdateStats:
        optimizer = torch.optim.AdamW(made[number].parameters(), lr=1e-3)
        return update(made[number], optimizer, batches[number], AlgoConfig(minibatches=number + 1), 96, engine)

    alone, together = policies(3), policies(3)
    separate = [work(number, ALONE, alone) for number in range(3)]
    joint = in_threads(3, lambda number, engine: work(number, engine, together))
    for number in range(3):
        for name, value in vars(separate[number]).items():
            assert vars(joint[number])[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
        for (name, one), other in zip(alone[number].named_parameters(), together[number].parameters(), strict=True):
            assert torch.allclose(one.grad, other.grad, atol=1e-5), (number, name)  # type: ignore[arg-type]
            assert torch.allclose(one, other, atol=1e-5), (number, name)


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


def test_batched_products_decode_as_one_policy_after_another_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made = policies(3)
    in_turn = joint_sample([wanted(policy, number) for number, policy in enumerate(made)])
    monkeypatch.setattr(frozen, "_WeightsInTurn", frozen._StackedWeights)
    batched = joint_sample([wanted(policy, number) for number, policy in enumerate(made)])
    for one, other in zip(in_turn, batched, strict=True):
        for name in ("tokens_NT", "sampled_NT", "lengths_N", "clipped_N"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert np.abs(one.logprobs_NT - other.logprobs_NT).max() < 1e-5


def test_when_one_run_fails_none_waits_for_it() -> None:
    def work(number: int, engine: Any) -> None:
        if number == 1:
            raise DivergenceError("the loss is nan")
        engine.sample(None)

    first, second, third = in_threads(3, work)
    assert isinstance(second, DivergenceError)
    for other in (first, third):
        assert isinstance(other, RuntimeError)
        assert "another run of the stack" in str(other)


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
    for change in ({"policy.width": 64}, {"run.steps": 9}, {"run.stack": "other"}, {"env.id": "tool_gym/Retrieval-v0"}):
        with pytest.raises(ConfigError, match="the same for all runs of a stack"):
            train_stack([good[0], good[1].replace(**change)], StopSignals())
    with pytest.raises(ConfigError, match="sweep --stack"):
        train(good[0], Silent())
    assert not any(tmp_path.iterdir())


_ROOT = Path(__file__).parents[1]
