"""Several runs at once in one process: the arithmetic of all is done in batched products over a leading axis.

    python -m agents.stack FILE     the runs whose configurations a file of JSON lists (`sweep --stack` writes it)

On a GPU one tiny policy leaves the device waiting for launches; a stack of them fills it. Each run is the ordinary
one, in a thread of its own, up to where it samples or needs a gradient: there it waits until every other does, and
all that wait for the same are served in one batch. What a run comes to depends on whom it is stacked with, in the last
bits: the stack is part of its identity, stops at a common step, and is gone on with as a stack. The same bytes each
time are promised on the CPU alone: on a GPU they also depend on which rows are decoded together, so on how soon tools
answer. A run that diverges, as it does each time, leaves its stack, and the others go on without it; any other failure
ends all, for what the others come to would depend on when it struck.

Cold starts are made one by one, as for runs alone, and shared with them.
"""

from __future__ import annotations

import contextlib
import json
import math
import operator
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
from agents.command import exit_status
from agents.config import Config
from agents.engine import ALONE, Loss, Sampling
from agents.frozen import FrozenPolicy
from agents.generation import Conversation, Generated, Ints, generate
from agents.model import Policy
from agents.packing import Packed
from agents.setup import Setup
from agents.signals import Stopped, StopSignals
from tool_gym.errors import ConfigError, DivergenceError
from tool_gym.interpreter import InterpreterPool

_ALIKE = (
    *("env.id", "policy", "run.steps", "run.device", "run.threads"),
    *("run.eval_every", "run.checkpoint_every"),
)


# ---------------------------------------------------------------- joint arithmetic


@dataclass(frozen=True)
class _Gradients:
    policy: Policy
    packed: Packed
    loss: Loss


@dataclass(frozen=True)
class _Meeting:
    """All have come as far. The answer is the signal that asks to stop, None without one: the same for all."""


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
    for all that want them; if none does, conversations sampled; if all only want to meet, they have met. So what is
    done together depends on the runs alone and not on how threads are scheduled.

    Args:
        count: runs.
        stop: what has been asked for by signals.

    Attributes:
        failure: what ended all runs, None as long as nothing has.
    """

    def __init__(self, count: int, stop: StopSignals) -> None:
        self._stop = stop
        self._running = set(range(count))
        self._asked: dict[int, Any] = {}
        self._answers: dict[int, Any] = {}
        self.failure: BaseException | None = None
        self._changed = threading.Condition()

    def ask(self, number: int, wanted: Any) -> Any:
        """Wait for the answer to what run ``number`` asks. Raises RuntimeError where the stack has failed."""
        with self._changed:
            self._asked[number] = wanted
            self._serve()
            self._changed.wait_for(lambda: number in self._answers or self.failure is not None)
            if self.failure is not None:
                raise RuntimeError("another run of the stack failed, or what they did together") from self.failure
            return self._answers.pop(number)

    def leave(self, number: int) -> None:
        """Run ``number`` is over: the others go on without it."""
        with self._changed:
            self._running.discard(number)
            self._serve()
            self._changed.notify_all()

    def fail(self, failure: BaseException) -> None:
        """End all runs where they next ask, and at once: whoever serves may hold the lock for as long as that takes."""
        self.failure = self.failure or failure

    def _serve(self) -> None:
        if self.failure is not None or not self._asked or self._asked.keys() != self._running:
            return
        kind = next(kind for kind in (_Gradients, Sampling, _Meeting) if self._numbers(kind))
        numbers = self._numbers(kind)
        wanted = [self._asked.pop(number) for number in numbers]
        try:
            self._answers.update(zip(numbers, self._together(kind, wanted), strict=True))
        except BaseException as error:
            self.failure = error
        self._changed.notify_all()

    def _numbers(self, kind: type) -> list[int]:
        return sorted(number for number, wanted in self._asked.items() if isinstance(wanted, kind))

    def _together(self, kind: type, wanted: Sequence[Any]) -> Sequence[Any]:
        if kind is Sampling:
            return joint_sample(wanted) if len(wanted) > 1 else [ALONE.sample(wanted[0])]
        if kind is _Gradients:
            if len(wanted) > 1:
                joint_backward(wanted)
            else:
                ALONE.backward(wanted[0].policy, wanted[0].packed, wanted[0].loss)
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

    def meet(self) -> None:
        self._stack.ask(self._place, _Meeting())

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        yield

    @property
    def number(self) -> int | None:
        number: int | None = self._stack.ask(self._place, _Meeting())
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
        configs: at least two, with the same ``run.stack`` and alike in what ``alike`` gives, in folders of their own.
        stop: handles the signals; all runs stop after the same step.

    Returns the folders. Raises ConfigError where they cannot be stacked, what the first run to fail raised, and, when
    the others are over, the DivergenceError of one that diverged.
    """
    _check(configs)
    configs = [_keeping_enough(config) for config in configs]
    folders = [Path(config.run.runs_dir) / str(config.run.name) for config in configs]
    # A run that is there goes on with its own settings.
    for folder in filter(runs.has_config, folders):
        _check_alike(runs.read_config(folder), configs[0])
    with InterpreterPool(workers=max(config.run.workers for config in configs)) as pool:
        if not _to_common_step(folders):
            _cold_starts(configs, pool)
        stack = Stack(len(configs), stop)
        stopped: list[Stopped] = []
        diverged: list[DivergenceError] = []

        def member(number: int) -> None:
            own, config, folder = _Member(stack, number), configs[number], folders[number]
            notes = _Notes(str(config.run.name))
            try:
                if runs.has_config(folder):
                    trainer.resume(folder, notes, own, own, pool)
                else:
                    trainer.train(config, notes, own, own, pool)
            except Stopped as error:
                stopped.append(error)
            except BaseException as error:
                if stack.failure is None:
                    notes.note(f"failed: {error}")
                    if isinstance(error, DivergenceError):
                        diverged.append(error)
                    else:
                        stack.fail(error)
            stack.leave(number)

        # Threads do not outlive a second signal, which ends the process from here.
        threads = [threading.Thread(target=member, args=(n,), daemon=True) for n in range(len(configs))]
        try:
            with stop.deferred():
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        except BaseException as error:
            # Before the pool is closed: no run is to take for a result what that makes of its calls.
            stack.fail(error)
            raise
    if stack.failure is not None:
        raise stack.failure
    for ending in (*stopped, *diverged):
        raise ending
    return folders


def alike(config: Config) -> tuple[Any, ...]:
    """The settings in which all runs of a stack agree: those of _ALIKE."""
    settings: tuple[Any, ...] = operator.attrgetter(*_ALIKE)(config)
    return settings


def _check(configs: Sequence[Config]) -> None:
    """Raises ConfigError for runs whose arithmetic cannot be done together."""
    first = configs[0]
    if len(configs) < 2:
        raise ConfigError("stack", len(configs), "at least two runs")
    if first.run.stack is None:
        raise ConfigError("run.stack", None, "the stack that the run is in: it is part of what the run is")
    for config in configs:
        _check_alike(config, first)
    names = [config.run.name for config in configs]
    for name in names:
        if name is None or names.count(name) > 1:
            raise ConfigError("run.name", name, "a name of its own for each run of a stack")


def _check_alike(config: Config, first: Config) -> None:
    own, wanted = ((one.run.stack, *alike(one)) for one in (config, first))
    for name, value, common in zip(("run.stack", *_ALIKE), own, wanted, strict=True):
        if value != common:
            raise ConfigError(name, value, f"the same for all runs of a stack: {common}")


def _keeping_enough(config: Config) -> Config:
    """Checkpoints at the same steps in all runs, and so many that a kill between two saves leaves one that all have.

    A run alone also has one where an evaluation is its best; here there is one at each evaluation. No run is a step
    ahead of another, so that two are enough.
    """
    run = config.run
    every = math.gcd(run.checkpoint_every, run.eval_every)
    return config.replace(
        **{"run.checkpoint_every": every, "run.keep_checkpoints": max(run.keep_checkpoints, 2)},
    )


def _cold_starts(configs: Sequence[Config], pool: InterpreterPool) -> None:
    """Make those that are not there, with nothing else to do meanwhile."""
    for config in configs:
        cold_start(Setup.open(config, pool=pool))


def _to_common_step(folders: Sequence[Path]) -> bool:
    """Take back every run to the last step that all can go on from; False: to its start.

    To its start where one has not begun, or where one diverged so early that the others have kept no such step.
    Raises ConfigError where all have begun and there is else no such step, or another process works on one.
    """
    there = [folder for folder in folders if runs.has_config(folder)]
    with contextlib.ExitStack() as held:
        for folder in there:
            held.enter_context(runs.locked(folder))
            checkpoints.remove_leftovers(folder)
        begun = len(there) == len(folders) and all(checkpoints.by_step(folder / "checkpoints") for folder in folders)
        common = set.intersection(*map(trainer.usable_steps, folders)) if begun else set()
        if begun and not common:
            if not any(runs.diverged(folder) for folder in folders):
                wanted = "a checkpoint of the same step as the other runs of the stack: some are damaged or gone"
                raise ConfigError("run", str(folders[0]), wanted)
            print("a run diverged where the others have no checkpoint any more: all begin again", flush=True)
            begun = False
        for folder in there:
            # Without it the run is not finished, whatever becomes of its checkpoints.
            (folder / "summary.json").unlink(missing_ok=True)
            kept = folder / "checkpoints"
            if begun:
                late = [path for path in checkpoints.by_step(kept) if checkpoints.step_of(path) > max(common)]
            else:
                late = [kept] if kept.exists() else []
            for path in late:
                shutil.rmtree(path)
    return begun


def _read(words: Sequence[str]) -> list[Config]:
    """The configurations in the file that the command line names. Raises ConfigError where there are none."""
    if len(words) != 1:
        raise ConfigError("arguments", list(words), "one file, which lists configurations")
    try:
        listed = json.loads(Path(words[0]).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError("file", words[0], f"a list of configurations as JSON ({error})") from error
    if not isinstance(listed, list) or not listed:
        raise ConfigError("file", words[0], "a list of configurations as JSON")
    return [Config.from_dict(values) for values in listed]


def main(words: list[str]) -> int:
    """Train the runs of a file; returns the exit status, errors on purpose being one line on stderr."""
    stop = StopSignals(lambda text: print(text, flush=True))

    def work() -> None:
        with stop.installed():
            train_stack(_read(words), stop)

    return exit_status(work, "the same command goes on from the last common checkpoint")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
