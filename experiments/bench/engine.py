"""The engine part of the benchmark: decoding, updates and whole steps, beside what the machine's matrix products allow.

The ceiling is the fastest matrix product of this process, one thread, measured in turn with each figure. A share is
the work's operations a second, over the ceiling's. The work is what a plain forward and backward pass would do for
the tokens: two operations for each weight and token and, for attention, four for each channel, layer and pair of
positions of which one sees the other; three times that where it is trained on. Padding is no work, nor is anything
that is computed twice, and unembedding is work only where a token is sampled or trained.
"""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from agents.cache import Attention, Cache
from agents.config import AlgoConfig, Config, EnvConfig, NoiseConfig, PolicyConfig, RunConfig
from agents.frozen import FrozenPolicy
from agents.generation import Ints, generate
from agents.grpo import TrainingBatch, UpdateStats, update
from agents.model import Policy
from agents.optimizer import AdamW
from agents.rollout import TrajectoryBatch
from agents.setup import Setup
from agents.tokenizer import BOS, END, PAD
from agents.trainer import Trainer
from experiments.bench.figures import BenchConfig, Ratio, Row, interleaved, paired
from experiments.bench.peer_work import varied_chain, write_chain
from tool_gym import rng
from tool_gym.tasks import Problem

CONTEXTS = (40, 80, 120)
LIVE_ROWS = 256
MANY = 4096
_CEILING = "matrix products"
_VOCABULARY = 111
_PROMPT = 18
_SHORTEST = 38  # mean position at which tokens are sampled after prompts without a preamble
_NEVER = 1_000_000


@dataclass(frozen=True)
class Size:
    """A shape of the policy, and the shares of the ceiling that are asked for.

    Attributes:
        decode: by context.
        update, step: of updates and of whole steps.
    """

    name: str
    policy: PolicyConfig
    decode: dict[int, float]
    update: float
    step: float


SIZES = (
    Size("160 k", PolicyConfig(), {40: 0.35, 120: 0.25}, 0.50, 0.30),
    Size("0.8 M", PolicyConfig(layers=4, width=128), {40: 0.50, 120: 0.35}, 0.65, 0.45),
)


def rows(config: BenchConfig) -> Iterator[Row]:
    """The figures of the engine, in the order of the table; torch has one thread meanwhile, as in a run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for size in SIZES:
            tops: list[float] = []
            yield from _decoding(size, config, tops)
            yield from _updates(size, config, tops)
            yield from _steps(size, config, tops)
            yield Row(f"{size.name}: the ceiling, matrix products", statistics.median(tops) / 1e9, "GFLOP/s")
        yield from _many(config)
    finally:
        torch.set_num_threads(threads)


# ------------------------------------------------------------------ work and ceiling


def operations(config: PolicyConfig, vocabulary: int, tokens: float, pairs: float, outputs: float) -> float:
    """Operations of a forward pass over ``tokens`` that see ``pairs`` of positions in all, with ``outputs`` logits."""
    width = config.width
    return 2 * width * (config.layers * (12 * width * tokens + 2 * pairs) + vocabulary * outputs)


def ceiling(config: PolicyConfig) -> Callable[[int], float]:
    """A measurement: operations a second of the fastest matrix product of the policy's shapes, and of a square."""
    width = config.width
    shapes = [(256, width, 3 * width), (256, width, 4 * width), (256, 4 * width, width), (512, 512, 512)]
    generator = torch.Generator().manual_seed(0)
    products = [
        (torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator), torch.empty(m, n))
        for m, k, n in shapes
    ]

    def measure(_: int) -> float:
        return max(_operations_per_second(*product) for product in products)

    return measure


def _operations_per_second(a: Tensor, b: Tensor, out: Tensor) -> float:
    once = 2 * a.shape[0] * a.shape[1] * b.shape[1]
    times = max(1, int(5e8 / once))
    started = time.perf_counter()
    for _ in range(times):
        torch.mm(a, b, out=out)
    return times * once / (time.perf_counter() - started)


def _beside_ceiling(
    config: PolicyConfig, rounds: int, measure: Callable[[int], tuple[float, float]], tops: list[float]
) -> tuple[Ratio, list[float]]:
    """The share of the ceiling, and seconds, of something that returns its operations and seconds; after a warm-up.

    What the ceiling was meanwhile is added to ``tops``.
    """
    measure(rounds)
    seconds: list[float] = []

    def side(index: int) -> float:
        work, duration = measure(index)
        seconds.append(duration)
        return work / duration

    top = ceiling(config)
    measured = interleaved(rounds, {"work": side, "ceiling": top})
    tops += measured["ceiling"]
    return paired(measured["work"], measured["ceiling"]), seconds


# ------------------------------------------------------------------ decoding


class _Clocked:
    """A decoder that notes when it began to decode."""

    def __init__(self, frozen: FrozenPolicy) -> None:
        self.frozen, self.device = frozen, frozen.device
        self.block_rows, self.block_cost = frozen.block_rows, frozen.block_cost
        self.started: float | None = None

    def new_cache(self, rows: int, positions: int) -> Cache:
        return self.frozen.new_cache(rows, positions)

    def prefill(self, tokens_NQ: Tensor, cache: Cache, owners_N: Ints) -> None:
        self.frozen.prefill(tokens_NQ, cache, owners_N)

    def extend(self, tokens_NQ: Tensor, starts_N: Tensor, cache: Cache, rows_N: Tensor, owners_N: Ints) -> None:
        self.frozen.extend(tokens_NQ, starts_N, cache, rows_N, owners_N)

    def decode(self, tokens_R: Tensor, positions_R: Tensor, cache: Attention, owners_R: Ints) -> Tensor:
        if self.started is None:
            self.started = time.perf_counter()
        return self.frozen.decode(tokens_R, positions_R, cache, owners_R)


class _OneTurn:
    """A conversation that is over after one turn, and notes when the last one came."""

    def __init__(self) -> None:
        self.over: list[int] = []
        self.ended = 0.0

    def submit(self, rows: Sequence[int], turns: Sequence[Ints]) -> None:
        self.over += rows
        self.ended = time.perf_counter()

    def collect(self, block: bool) -> list[tuple[int, list[int] | None]]:
        over, self.over = self.over, []
        return [(row, None) for row in over]

    def abandon(self, rows: Sequence[int]) -> None: ...


def _decoding(size: Size, config: BenchConfig, tops: list[float]) -> Iterator[Row]:
    """16 prompts of 16 rows each, sampled for 16 tokens around the context; bookkeeping included, prompts not."""
    policy = _policy(size.policy, never=(PAD, BOS, END))
    turn = 16
    for context in CONTEXTS:
        length = context - turn // 2
        draws = rng.generator(rng.key(config.seed, "task", context))
        prompts = draws.integers(END + 1, _VOCABULARY, (16, length)).tolist()

        def measure(index: int, prompts: list[list[int]] = prompts, length: int = length) -> tuple[float, float]:
            decoder, conversation = _Clocked(FrozenPolicy(policy)), _OneTurn()
            generate(
                decoder,
                prompts,
                np.repeat(np.arange(16), LIVE_ROWS // 16),
                rng.key(config.seed, "sampling", index, np.arange(LIVE_ROWS)),
                conversation,
                context=size.policy.context,
                end=END,
                max_turn_tokens=turn,
                live_rows=LIVE_ROWS,
            )
            assert decoder.started is not None
            tokens = LIVE_ROWS * turn
            seen = LIVE_ROWS * sum(range(length, length + turn))
            work = operations(size.policy, _VOCABULARY, tokens, seen, tokens)
            return work, conversation.ended - decoder.started

        share, seconds = _beside_ceiling(size.policy, 3 * config.rounds, measure, tops)
        speed = LIVE_ROWS / statistics.median(seconds)
        name, bound = f"{size.name}: decode, context {context}", size.decode.get(context)
        yield Row(name, speed * turn, "tokens/s", share, _CEILING, bound, at_least=True)
        yield Row(name, speed, f"rollouts of {turn} tokens/s")


def _policy(config: PolicyConfig, never: Sequence[int]) -> Policy:
    policy = Policy(config, _VOCABULARY, never)
    policy.initialise(0)
    return policy


# ------------------------------------------------------------------ updates


def _updates(size: Size, config: BenchConfig, tops: list[float]) -> Iterator[Row]:
    """128 rollouts whose positions see as many as the context on average: prompts, turns of 20 tokens, replies of 4."""
    algo = AlgoConfig()
    for context in CONTEXTS:
        policy = _policy(dataclasses.replace(size.policy, context=320), never=(PAD, BOS))
        optimizer = AdamW((policy.parameters(), 0.0), learning_rate=1e-6)
        batch = _training_batch(config.seed, context)
        lengths = batch.lengths_N
        trained = int(batch.sampled_NT.sum())
        pairs = float((lengths * (lengths + 1) / 2).sum())
        work = 3 * operations(size.policy, _VOCABULARY, float(lengths.sum()), pairs, trained)

        def measure(
            _: int,
            policy: Policy = policy,
            optimizer: AdamW = optimizer,
            batch: TrainingBatch = batch,
            work: float = work,
        ) -> tuple[float, float]:
            started = time.perf_counter()
            update(policy, optimizer, batch, algo, size.policy.context)
            return work, time.perf_counter() - started

        share, seconds = _beside_ceiling(size.policy, config.rounds, measure, tops)
        name, duration = f"{size.name}: update, context {context}", statistics.median(seconds)
        bound = size.update if context == CONTEXTS[0] else None
        yield Row(name, float(lengths.sum()) / duration, "tokens/s", share, _CEILING, bound, at_least=True)
        yield Row(name, len(lengths) / duration, "rollouts/s")


def _training_batch(seed: int, context: int) -> TrainingBatch:
    count, turn = 128, (20, 4)
    draws = rng.generator(rng.key(seed, "selection", context))
    lengths = draws.integers(round(1.5 * context), round(2.5 * context), count, dtype=np.int64)
    places = np.arange(lengths.max())
    tokens = draws.integers(END + 1, _VOCABULARY, (count, len(places)), dtype=np.int32)
    sampled = (places >= _PROMPT) & ((places - _PROMPT) % sum(turn) < turn[0]) & (places < lengths[:, None])
    logprobs = np.where(sampled, -np.log(_VOCABULARY), 0.0).astype(np.float32)
    return TrainingBatch(tokens, sampled, logprobs, lengths, draws.normal(size=count), np.arange(count) // 8)


# ------------------------------------------------------------------ whole steps


@dataclass(frozen=True)
class _LongPrompts(Setup):
    """Poses problems with a preamble of so many characters."""

    preamble: int = 0

    def problem(self, key: rng.UInt64s, difficulties: tuple[int, ...], split: str) -> Problem:
        problem = super().problem(key, difficulties, split)
        text = "".join(rng.generator(key).choice(list("abcdefghij"), self.preamble))
        return dataclasses.replace(problem, prompt=text + problem.prompt)


class _Steps(Trainer):
    """Steps of train.py by a policy that writes as a cold-started one does, and what they did.

    Attributes:
        work: operations of the step so far.
        done: tokens sampled, rollouts, and tool calls of each step.
    """

    work: float
    done: list[tuple[int, int, int]]

    def __init__(self, policy: PolicyConfig, prompts: int, preamble: int, seed: int, folder: Path) -> None:
        config = Config(
            # Two answers, so that both are frequent, and every group has something to learn from.
            env=EnvConfig(answers=2, difficulties=(3,)),
            # About what a default run meets on average.
            noise=NoiseConfig(rate=0.15),
            policy=dataclasses.replace(policy, max_turn_tokens=64, context=policy.context + 96),
            algo=AlgoConfig(prompts=prompts),
            run=RunConfig(
                steps=_NEVER,
                seed=seed,
                name="bench",
                runs_dir=str(folder),
                device="cpu",
                live_rows=LIVE_ROWS,
                eval_every=_NEVER,
                checkpoint_every=_NEVER,
            ),
        )
        super().__init__(config, folder, self)
        self.work, self.done = 0.0, []
        parts = {field.name: getattr(self.setup, field.name) for field in dataclasses.fields(Setup)}
        self.setup = _LongPrompts(**parts, preamble=preamble)
        # All of its programs are as bad as its reference's, so that the rate of faults is the one asked for.
        self._refer_to(np.zeros(4096))
        # After a fault it calls again.
        chain = varied_chain(37, leave=0.25, again=0.15) | {"</error>": {"<python>": 1.0}}
        write_chain(self.policy, self.setup.tokenizer, chain)

    def sample(self, step: int) -> TrajectoryBatch:
        batch = super().sample(step)
        self.done.append((int(batch.sampled_NT.sum()), len(batch), int(batch.calls_N.sum())))
        prompts = batch.sampled_NT.argmax(axis=1)
        prompt = prompts[np.unique(batch.group_N, return_index=True)[1]]
        # Prompts once, and what was decoded after them.
        tokens = prompt.sum() + (batch.lengths_N - prompts).sum()
        pairs = _pairs(prompt).sum() + (_pairs(batch.lengths_N) - _pairs(prompts)).sum()
        self.work += self._operations(float(tokens), float(pairs), int(batch.sampled_NT.sum()))
        return batch

    def _update(self, chosen: TrainingBatch, step: int) -> UpdateStats:
        lengths, trained = chosen.lengths_N, int(chosen.sampled_NT.sum())
        self.work += 3 * self._operations(float(lengths.sum()), float(_pairs(lengths).sum()), trained)
        return super()._update(chosen, step)

    def _operations(self, tokens: float, pairs: float, outputs: int) -> float:
        return operations(self.config.policy, len(self.setup.tokenizer), tokens, pairs, outputs)

    def measure(self, _: int) -> tuple[float, float]:
        """Operations and seconds of a step."""
        self.work = 0.0
        started = time.perf_counter()
        self._step()
        return self.work, time.perf_counter() - started

    def cold_start(self, step: int, steps: int, loss: float) -> None: ...

    def step(self, row: dict[str, float | int | None], steps: int) -> None: ...

    def note(self, text: str) -> None: ...


def _pairs(lengths: Ints) -> Ints:
    return lengths * (lengths + 1) // 2


def _steps(size: Size, config: BenchConfig, tops: list[float]) -> Iterator[Row]:
    """The default's steps, with prompts so long that what is sampled sees as many positions as the context."""
    for context in CONTEXTS:
        with tempfile.TemporaryDirectory() as folder:
            trainer = _Steps(size.policy, 16, context - _SHORTEST, config.seed, Path(folder))
            try:
                share, seconds = _beside_ceiling(size.policy, config.rounds, trainer.measure, tops)
            finally:
                trainer.setup.close()
        name, bound = f"{size.name}: whole step, context {context}", size.step if context == CONTEXTS[0] else None
        # The first step was to warm up.
        tokens, rollouts, calls = (sum(column[1:]) / sum(seconds) for column in zip(*trainer.done, strict=True))
        yield Row(name, tokens, "sampled tokens/s", share, _CEILING, bound, at_least=True)
        yield Row(name, rollouts, "rollouts/s")
        yield Row(name, calls, "tool calls/s")


# ------------------------------------------------------------------ many rollouts a step


def _many(config: BenchConfig) -> Iterator[Row]:
    """What a rollout costs, and the memory that a process takes, at 16 times as many rollouts a step as live rows."""
    size = SIZES[0]
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_Steps(size.policy, n // 16, 0, config.seed, Path(folder)) for n in (LIVE_ROWS, MANY))
        try:
            few.measure(0), many.measure(0)
            # As many rollouts on either side.
            sides = {
                "few": lambda index: sum(few.measure(index)[1] for _ in range(MANY // LIVE_ROWS)),
                "many": lambda index: many.measure(index)[1],
            }
            rounds = interleaved(max(2, config.rounds // 3), sides)
        finally:
            few.setup.close()
            many.setup.close()
    each = [seconds / MANY for seconds in rounds["many"]]
    ratio = paired(each, [seconds / MANY for seconds in rounds["few"]])
    name = f"{size.name}: a rollout of {MANY} a step"
    yield Row(name, 1e6 * statistics.median(each), "us", ratio, f"of {LIVE_ROWS} a step", 1.1)
    memory = {count: _peak_memory(count, config.seed) for count in (LIVE_ROWS, MANY)}
    name = f"{size.name}: memory, {MANY} rollouts a step"
    yield Row(name, memory[MANY], "MB", paired([memory[MANY]], [memory[LIVE_ROWS]]), f"{LIVE_ROWS} a step", 1.1)


_MEMORY_PROGRAM = r"""
import re, sys, tempfile
from pathlib import Path
import torch
from experiments.bench.engine import SIZES, _Steps
torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    trainer = _Steps(SIZES[0].policy, int(sys.argv[1]) // 16, 0, int(sys.argv[2]), Path(folder))
    try:
        for step in range(2):
            trainer.measure(step)
    finally:
        trainer.setup.close()
print(int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def _peak_memory(rollouts: int, seed: int) -> float:
    """Megabytes that a process takes at most, in two steps."""
    words = [sys.executable, "-c", _MEMORY_PROGRAM, str(rollouts), str(seed)]
    place = Path(__file__).parents[2]
    return float(subprocess.run(words, cwd=place, capture_output=True, text=True, check=True).stdout)
