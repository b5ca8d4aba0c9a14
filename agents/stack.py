"""Several runs at once in one process: the arithmetic of all is done in batched products over a leading axis.

    python -m agents.stack FILE     the runs whose configurations a file of JSON lists (`sweep --stack` writes it)

On a GPU one tiny policy leaves the device waiting for launches; a stack of them fills it. Each run is the ordinary
one, in a thread of its own, up to where it samples or needs a gradient: there it waits until every other does, and
all that wait for the same are served in one batch. What a run comes to depends on whom it is stacked with, in the last
bits: the stack is part of its identity, stops at a common step, and is gone on with as a stack.

Cold starts are made one by one, as for runs alone, and shared with them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agents import checkpoint as checkpoints
from agents import runs, trainer
from agents.coldstart import cold_start
from agents.config import Config
from agents.engine import ALONE, Loss, Sampling
from agents.frozen import FrozenPolicy
from agents.generation import Conversation, Generated, Ints, generate
from agents.model import Policy
from agents.packing import Packed
from agents.setup import Setup
from agents.signals import Stopped, StopSignals
from tool_gym.errors import ConfigError, ToolGymError
from tool_gym.interpreter import InterpreterPool

_ALIKE = ("run.stack", "env.id", "policy", "run.steps", "run.device")


# ---------------------------------------------------------------- joint arithmetic


@dataclass(frozen=True)
class _Gradients:
    policy: Policy
    packed: Packed
    loss: Loss


@dataclass(frozen=True)
class _Vote:
    """Whether a signal asks to stop: the same answer for all, at the same step."""


def joint_logits(policies: Sequence[Policy], batches: Sequence[Packed]) -> list[Tensor]:
    """``engine.packed_logits`` of S policies of the same shape, each for its own batch, in one pass.

    The positions of each policy are filled up to as many as the longest batch has, so that every product is one of
    (S, positions, width) with (S, width, ...). Attention has no weights: it sees the rectangles of all.
    """
    first, count = policies[0], len(policies)
    dtype, device = first.compute_dtype, first.device
    sizes = [sum(part.numel() for part in packed.parts) for packed in batches]
    most, wanted_most = max(sizes), max(len(packed.wanted_K) for packed in batches)
    shapes, tokens, wanted = [], [], torch.zeros(count, wanted_most, dtype=torch.int64, device=device)
    for owner, (packed, size) in enumerate(zip(batches, sizes, strict=True)):
        filler = torch.zeros(most - size, 1, dtype=torch.int64, device=device)
        for part in (*packed.parts, *([filler] if len(filler) else [])):
            shapes.append((part.shape[0], part.shape[1]))
            tokens.append(part.reshape(-1) + owner * first.vocabulary)
        wanted[owner, : len(packed.wanted_K)] = packed.wanted_K
    tokens_S = torch.cat(tokens)
    wanted_S = (wanted + most * torch.arange(count, device=device)[:, None]).flatten()

    def stacked(weight: Callable[[Policy], Tensor]) -> Tensor:
        return torch.stack([weight(policy) for policy in policies]).to(dtype)

    def normed(x: Tensor, gain: Callable[[Policy], Tensor]) -> Tensor:
        y = x.view(count, -1, x.shape[-1])
        return F.layer_norm(y, y.shape[-1:]) * stacked(gain)[:, None]

    embedding = stacked(lambda policy: policy.embedding.weight)
    x = F.embedding(tokens_S, embedding.flatten(0, 1))
    for number in range(first.config.layers):

        def block(policy: Policy, number: int = number) -> Any:
            return policy.blocks[number]

        before = embedding if number == 0 else x
        w_qkv = stacked(lambda policy: block(policy).qkv.weight)
        qkv = torch.bmm(normed(before, lambda policy: block(policy).attention_norm.gain), w_qkv.mT).flatten(0, 1)
        # As for one policy, what the first block projects depends on nothing but the token.
        mixed = first.attend(F.embedding(tokens_S, qkv) if number == 0 else qkv, shapes)
        if number == first.config.layers - 1:
            x, mixed = x.index_select(0, wanted_S), mixed.index_select(0, wanted_S)
        w_out = stacked(lambda policy: block(policy).attention_out.weight)
        x, mixed = x.view(count, -1, x.shape[-1]), mixed.view(count, -1, mixed.shape[-1])
        x = torch.baddbmm(x, mixed, w_out.mT)
        w_in, w_back = stacked(lambda policy: block(policy).mlp_in.weight), stacked(lambda p: block(p).mlp_out.weight)
        hidden = torch.bmm(normed(x, lambda policy: block(policy).mlp_norm.gain), w_in.mT).relu()
        x = torch.baddbmm(x, hidden.square(), w_back.mT).flatten(0, 1)
    last = normed(x, lambda policy: policy.final_norm.gain)
    logits = torch.bmm(last, stacked(lambda policy: policy.unembedding.weight).mT).float() + first.logit_bias
    return [own[: len(packed.wanted_K)] for own, packed in zip(logits, batches, strict=True)]


def joint_backward(wanted: Sequence[_Gradients]) -> None:
    """The gradients of several policies' losses, each added to its own parameters'."""
    every = joint_logits([one.policy for one in wanted], [one.packed for one in wanted])
    total = torch.stack([one.loss(logits) for one, logits in zip(wanted, every, strict=True)]).sum()
    total.backward()  # type: ignore[no-untyped-call]


class _Several:
    """The conversations of several runs as one, whose rows stand one run's after the other's."""

    def __init__(self, conversations: Sequence[Conversation], rows: Sequence[int]) -> None:
        self._conversations = conversations
        self._starts = np.cumsum([0, *rows])

    def _parts(self, rows: Sequence[int]) -> Iterator[tuple[Conversation, int, Ints]]:
        """Each run's conversation, its first row, and which of ``rows`` are its own."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for number, (conversation, start) in enumerate(zip(self._conversations, self._starts, strict=False)):
            own = np.flatnonzero(owners == number)
            if len(own):
                yield conversation, int(start), own

    def submit(self, rows: Sequence[int], turns: Sequence[Ints]) -> None:
        for conversation, start, own in self._parts(rows):
            conversation.submit([rows[place] - start for place in own], [turns[place] for place in own])

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        replies: list[tuple[int, list[int] | None]] = []
        for conversation, start in zip(self._conversations, self._starts, strict=False):
            # One that is waited for is enough: the caller asks again.
            replies += [(row + int(start), reply) for row, reply in conversation.collect(block and not replies)]
        return replies

    def abandon(self, rows: Sequence[int]) -> None:
        for conversation, start, own in self._parts(rows):
            conversation.abandon([rows[place] - start for place in own])


def joint_sample(wanted: Sequence[Sampling]) -> list[Generated]:
    """What ``engine.Alone.sample`` gives for each of several policies of the same shape, decoded together."""
    first = wanted[0]
    rows = [len(one.prompt_of_row) for one in wanted]
    prompts = [len(one.prompts) for one in wanted]
    offsets = np.cumsum([0, *prompts])
    generated = generate(
        FrozenPolicy(*(one.policy for one in wanted)),
        [prompt for one in wanted for prompt in one.prompts],
        np.concatenate([one.prompt_of_row + offset for one, offset in zip(wanted, offsets, strict=False)]),
        np.concatenate([one.keys_N for one in wanted]),
        _Several([one.conversation for one in wanted], rows),
        context=first.context,
        end=first.end,
        max_turn_tokens=first.max_turn_tokens,
        live_rows=sum(one.live_rows for one in wanted),
        owner_of_prompt=np.repeat(np.arange(len(wanted)), prompts),
    )
    ends = np.cumsum(rows)
    parts = []
    for start, end in zip(ends - rows, ends, strict=True):
        lengths = generated.lengths_N[start:end]
        own = slice(0, int(lengths.max(initial=0)))
        parts.append(
            Generated(
                generated.tokens_NT[start:end, own],
                generated.sampled_NT[start:end, own],
                generated.logprobs_NT[start:end, own],
                lengths,
                generated.clipped_N[start:end],
            )
        )
    return parts


# ---------------------------------------------------------------- runs in lock-step


class Stack:
    """Where the threads of some runs meet.

    A thread that asks for something waits until every one that is still running asks. Then gradients are computed
    for all that want them; if none does, conversations sampled; if all vote, the vote is counted. So what is done
    together depends on the runs alone and not on how threads are scheduled.

    Args:
        count: runs.
        stop: what has been asked for by signals.
    """

    def __init__(self, count: int, stop: StopSignals) -> None:
        self._stop = stop
        self._running = set(range(count))
        self._asked: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def ask(self, number: int, wanted: Any) -> Any:
        """Wait for the answer to what run ``number`` asks. Raises RuntimeError where another run has failed."""
        with self._changed:
            self._asked[number] = wanted
            self._serve()
            self._changed.wait_for(lambda: number in self._answers or self._failure is not None)
            if self._failure is not None:
                raise RuntimeError("another run of the stack failed") from self._failure
            return self._answers.pop(number)

    def leave(self, number: int, failure: BaseException | None = None) -> None:
        """Run ``number`` is over; with a failure, the others are, too."""
        with self._changed:
            self._running.discard(number)
            self._failure = self._failure or failure
            self._serve()
            self._changed.notify_all()

    def _serve(self) -> None:
        if self._failure is not None or not self._asked or self._asked.keys() != self._running:
            return
        kind = next(kind for kind in (_Gradients, Sampling, _Vote) if self._numbers(kind))
        numbers = self._numbers(kind)
        wanted = [self._asked.pop(number) for number in numbers]
        try:
            self._answers.update(zip(numbers, self._together(kind, wanted), strict=True))
        except BaseException as error:
            self._failure = error
        self._changed.notify_all()

    def _numbers(self, kind: type) -> list[int]:
        return sorted(number for number, wanted in self._asked.items() if isinstance(wanted, kind))

    def _together(self, kind: type, wanted: Sequence[Any]) -> Sequence[Any]:
        if kind is Sampling:
            return joint_sample(wanted) if len(wanted) > 1 else [ALONE.sample(wanted[0])]
        if kind is _Gradients:
            joint_backward(wanted) if len(wanted) > 1 else ALONE.backward(*vars(wanted[0]).values())
            return [None] * len(wanted)
        return [self._stop.number] * len(wanted)


class _Member(StopSignals):
    """One run's engine, and its view of the signals: all runs of a stack stop at the same step."""

    def __init__(self, stack: Stack, number: int) -> None:
        super().__init__()
        self._stack, self._place = stack, number

    def sample(self, wanted: Sampling) -> Generated:
        generated: Generated = self._stack.ask(self._place, wanted)
        return generated

    def backward(self, policy: Policy, packed: Packed, loss: Loss) -> None:
        self._stack.ask(self._place, _Gradients(policy, packed, loss))

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        yield

    @property
    def number(self) -> int | None:
        number: int | None = self._stack.ask(self._place, _Vote())
        return number


class _Notes:
    """Shows a run's notes and evaluations, a line each."""

    def __init__(self, name: str) -> None:
        self.name = name

    def cold_start(self, step: int, steps: int, loss: float) -> None: ...

    def step(self, row: dict[str, float | int | None], steps: int) -> None:
        if row["eval/accuracy"] is not None:
            shown = f"accuracy {row['eval/accuracy']:.3f}  good first calls {row['eval/good_first_call']:.3f}"
            self.note(f"step {row['step']}/{steps}  {shown}")

    def note(self, text: str) -> None:
        print(f"{self.name}: {text}", flush=True)


def train_stack(configs: Sequence[Config], stop: StopSignals) -> list[Path]:
    """Train runs together, from their start or, where their folders are there, from their last common checkpoint.

    Args:
        configs: at least two, with the same ``run.stack``, policy, environment and number of steps, and with names.
        stop: handles the signals; all runs stop after the same step.

    Returns the folders. Raises ConfigError where they cannot be stacked, and what the first run to fail raised.
    """
    _check(configs)
    configs = [_keeping_enough(config) for config in configs]
    folders = [Path(config.run.runs_dir) / str(config.run.name) for config in configs]
    with InterpreterPool(workers=configs[0].run.workers) as pool:
        _cold_starts(configs, pool)
        _to_common_step(folders)
        stack = Stack(len(configs), stop)
        failures: list[BaseException] = []

        def member(number: int) -> None:
            own, config, folder = _Member(stack, number), configs[number], folders[number]
            notes, failure = _Notes(str(config.run.name)), None
            try:
                if runs.has_config(folder):
                    trainer.resume(folder, notes, own, own, pool)
                else:
                    trainer.train(config, notes, own, own, pool)
            except BaseException as error:
                failure = error
                failures.append(error)
            stack.leave(number, None if isinstance(failure, Stopped) else failure)

        # Threads do not outlive a second signal, which ends the process from here.
        threads = [threading.Thread(target=member, args=(n,), daemon=True) for n in range(len(configs))]
        with stop.deferred():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    if failures:
        raise failures[0]
    return folders


def _check(configs: Sequence[Config]) -> None:
    """Raises ConfigError for runs whose arithmetic cannot be done together."""
    first = configs[0]
    if len(configs) < 2:
        raise ConfigError("stack", len(configs), "at least two runs")
    for config in configs[1:]:
        for name, own, common in zip(_ALIKE, _alike(config), _alike(first), strict=True):
            if own != common:
                raise ConfigError(name, own, f"the same for all runs of a stack: {common}")


def _keeping_enough(config: Config) -> Config:
    """Keep so many checkpoints that a kill between two runs' saves leaves a step of which all have one.

    Each run saves at the same steps and, in between, where an evaluation is its best.
    """
    run = config.run
    between = 1 + run.checkpoint_every // run.eval_every
    return config.replace(**{"run.keep_checkpoints": max(run.keep_checkpoints, 2 * between)})


def _alike(config: Config) -> tuple[Any, ...]:
    """The settings of _ALIKE."""
    return config.run.stack, config.env.id, config.policy, config.run.steps, config.run.device


def _cold_starts(configs: Sequence[Config], pool: InterpreterPool) -> None:
    """Make those that are not there, so that no run waits within the stack for one that another is making."""
    for config in configs:
        setup = Setup.open(config, pool=pool)
        try:
            cold_start(setup)
        finally:
            setup.close()


def _to_common_step(folders: Sequence[Path]) -> None:
    """Take back every run to the last step of which all have an intact checkpoint; without one, to its start."""
    if not any(runs.has_config(folder) for folder in folders):
        return
    whole = [{path.name for path in checkpoints.by_step(folder / "checkpoints") if _intact(path)} for folder in folders]
    common = set.intersection(*whole)
    last = max((int(name.removeprefix("step_")) for name in common), default=-1)
    for folder in folders:
        for path in checkpoints.by_step(folder / "checkpoints"):
            if int(path.name.removeprefix("step_")) > last:
                shutil.rmtree(path)
        if last < 0:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / "summary.json").unlink(missing_ok=True)


def _intact(path: Path) -> bool:
    try:
        checkpoints.load(path)
    except ConfigError:
        return False
    return True


def main(words: list[str]) -> int:
    """Train the runs of a file; returns the exit status, errors on purpose being one line on stderr."""
    stop = StopSignals(lambda text: print(text, flush=True))
    try:
        if len(words) != 1:
            raise ConfigError("arguments", words, "one file, which lists configurations")
        configs = [Config.from_dict(values) for values in json.loads(Path(words[0]).read_text(encoding="utf-8"))]
        with stop.installed():
            train_stack(configs, stop)
        return 0
    except (ToolGymError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except Stopped as stopped:
        print(f"{stopped}; the same command goes on from the last common checkpoint", file=sys.stderr)
        return 128 + stopped.number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
