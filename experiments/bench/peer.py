"""``--peer trl``: a whole step of train.py beside one of TRL's GRPOTrainer, on the same model and the same work.

What makes the comparison fair:

- *The model is one function.* TRL trains a twin of our policy, of an architecture of transformers that computes the
  same logits from the same weights; that is checked before anything is timed (peer_trl.py).
- *The text is one distribution.* A Markov chain of tokens is written into embedding and unembedding (peer_work.py). So
  both sides sample freely, without masks or scripts, and each rollout still has the tokens and calls that the work
  asks for; they are about those of a default run.
- *The work is counted.* Rollouts, tokens sampled, tokens trained on and tool calls are compared at the end; where they
  differ nothing is reported.
- *The sides take turns.* Each of TRL's steps is followed by one of ours: one process, one thread, and one interpreter
  pool of one worker for both.
- *TRL is at its best.* Neither bf16 nor gradient checkpointing (its defaults, slower on a CPU), no reference model, no
  logging, no second forward pass for old log-probabilities, the fastest micro-batch. Where all rollouts have the same
  length no straggler keeps other rows stepping, and nothing is padded. Our step keeps all that train.py does beside
  learning: the noise model (at rate 0), the judgement of each call, metrics, a line in metrics.jsonl.
"""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agents.config import AlgoConfig, Config, EnvConfig, NoiseConfig, PolicyConfig, RunConfig
from agents.trainer import Trainer
from experiments.bench.figures import BenchConfig, Row, paired
from experiments.bench.peer_trl import PACKAGES, TRLSide, copy_weights, twin
from experiments.bench.peer_work import (
    Load,
    Tally,
    Work,
    answer_chain,
    call_chain,
    check_same_work,
    varied_chain,
    write_chain,
)
from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.tasks import Problem

__all__ = ["PACKAGES", "SIZES", "WORKS", "Comparison", "OurSide", "Size", "check_installed", "compare", "rows"]

_WARM_UP = 2
_NEVER = 1_000_000


@dataclass(frozen=True)
class Size:
    """A shape of the policy, and how many times TRL's rollouts per second are asked for on multi-turn work."""

    name: str
    policy: PolicyConfig
    bound: float


SIZES = (
    Size("160 k", PolicyConfig(max_turn_tokens=64), 2.0),
    Size("0.8 M", PolicyConfig(layers=4, width=128, max_turn_tokens=64), 1.5),
)
WORKS = (
    Work("one turn", answer_chain(25), 25, 0, ("generate",)),
    Work("one call", call_chain(25), 25, 1, ("rollout_func", "tools"), bounded=True),
    Work("varied", varied_chain(37, leave=0.25, again=0.15), None, None, ("rollout_func",), bounded=True),
)


class OurSide:
    """The steps of train.py, without cold start, evaluations and checkpoints.

    Args:
        policy: its size.
        load: prompts, rollouts and seed.
        folder: where metrics.jsonl is written.

    Attributes:
        trainer: the run; it has an untrained policy.
        tally: what the steps did.
    """

    def __init__(self, policy: PolicyConfig, load: Load, folder: Path) -> None:
        self.load, self.tally = load, Tally()
        # It is the run's display: so it is told of each step's metrics.
        self.trainer = Trainer(_config(policy, load, folder), folder, self)
        # The noise model looks qualities up in its reference; at rate 0 any will do.
        self.trainer._refer_to(np.linspace(0.0, 1.0, 4096))

    def run_step(self) -> float:
        """Seconds of one step."""
        started = time.perf_counter()
        self.trainer._step()
        return time.perf_counter() - started

    def problems(self, steps: int) -> list[Problem]:
        """The problems of the first steps, in order."""
        setup, seed = self.trainer.setup, self.load.seed
        places = [(step, prompt) for step in range(1, steps + 1) for prompt in range(self.load.prompts)]
        return [setup.problem(rng.key(seed, "task", *place), setup.difficulties, "train") for place in places]

    def step(self, row: dict[str, float | int | None], steps: int) -> None:
        def total(name: str, each: int) -> int:
            return round(float(row[name] or 0.0) * each)

        self.tally.rollouts += self.load.rollouts
        self.tally.tokens += total("completions/mean_length", self.load.rollouts)
        self.tally.calls += total("tools/call_frequency", self.load.rollouts)
        self.tally.trained += total("train/tokens", 1)

    def cold_start(self, step: int, steps: int, loss: float) -> None: ...

    def note(self, text: str) -> None: ...


def _config(policy: PolicyConfig, load: Load, folder: Path) -> Config:
    """The default, but for the policy's size: two answers, one of them right; no faults; every rollout trained on."""
    return Config(
        env=EnvConfig(answers=2, difficulties=(3,)),
        noise=NoiseConfig(rate=0.0),
        policy=policy,
        algo=AlgoConfig(selector="grpo", prompts=load.prompts, group_size=load.group),
        run=RunConfig(
            steps=_NEVER,
            seed=load.seed,
            name="peer",
            runs_dir=str(folder),
            device="cpu",
            eval_every=_NEVER,
            checkpoint_every=_NEVER,
        ),
    )


@dataclass(frozen=True)
class Comparison:
    """Seconds of each side's steps, in pairs."""

    ours: list[float]
    theirs: list[float]


def compare(policy: PolicyConfig, work: Work, way: str, load: Load) -> Comparison:
    """Steps of both sides by turns, after a few to warm up.

    Raises ToolGymError where the models compute different functions, or the sides did different work.
    """
    ours: list[float] = []
    steps = _WARM_UP + load.rounds
    with tempfile.TemporaryDirectory() as name:
        side = OurSide(policy, load, Path(name))
        setup = side.trainer.setup
        try:
            # Checked with its first weights: once the chain is written, the blocks would not show.
            other = twin(side.trainer.policy)
            write_chain(side.trainer.policy, setup.tokenizer, work.chain)
            copy_weights(side.trainer.policy, other)
            peer = TRLSide(other, setup, side.problems(steps), steps, load, way, Path(name))
            peer.train(lambda: ours.append(side.run_step()))
        finally:
            setup.close()
    check_same_work(work, side.tally, peer.tally())
    return Comparison(ours[_WARM_UP:], peer.seconds[_WARM_UP:])


def rows(config: BenchConfig) -> Iterator[Row]:
    """Rollouts per second of whole steps, of both sides."""
    load = Load(rounds=config.rounds, seed=config.seed)
    for size in SIZES:
        for work in WORKS:
            for way in work.ways:
                found = compare(size.policy, work, way, load)
                ours, theirs = (load.rollouts / statistics.median(side) for side in (found.ours, found.theirs))
                name, bound = f"{size.name}, {work.name}, {way}", size.bound if work.bounded else None
                ratio = paired(found.theirs, found.ours)
                yield Row(f"{name}: TRL", theirs, "rollouts/s")
                yield Row(f"{name}: ours", ours, "rollouts/s", ratio, "TRL's", bound, at_least=True)


def check_installed() -> None:
    """Raises ConfigError where a package of the extra ``bench`` is missing."""
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        wanted = f"a peer that is installed: {', '.join(missing)} missing, pip install -c constraints.txt -e '.[bench]'"
        raise ConfigError("peer", "trl", wanted)
