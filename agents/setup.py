"""What a configuration names, made real and checked: environment, tokenizer, device, levels, noise."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from agents.config import REPLY_TAGS, Config, NoiseConfig
from agents.engine import ALONE, Engine
from agents.model import Policy
from agents.rollout import Play, TrajectoryBatch, encode_prompt, rollout
from agents.tokenizer import Tokenizer
from tool_gym import rng
from tool_gym.episodes import Episodes
from tool_gym.errors import ConfigError, TaskError
from tool_gym.interpreter import InterpreterPool
from tool_gym.noise import NoiseModel, named_noise
from tool_gym.registration import Resolved, resolve
from tool_gym.tasks import Problem
from tool_gym.tasks.base import demonstrates, draw
from tool_gym.watchdog import trusted

LEAST_REFERENCE = 256
"""Calls below which a reference distribution is not worth the name; 4,096 are measured where there are as many."""


_MAKING_SECONDS = 600.0  # a module or task may load what it needs


@dataclass(frozen=True)
class Setup:
    """The parts of a run that do not learn.

    Attributes:
        config: the whole configuration, with the task's numbers for what it left to the task.
        env: task, tools and turns.
        tokenizer: of the environment's tools.
        difficulties: levels trained on.
        harder: level that the cold start shows and the training does not, None where there is none.
        device: where the policy computes.
        pool: runs the policy's programs; ``close()`` ends it, unless it is shared.
        engine: does the policy's arithmetic.
        shared: whether others use the pool, too.
    """

    config: Config
    env: Resolved
    tokenizer: Tokenizer
    difficulties: tuple[int, ...]
    harder: int | None
    device: torch.device
    pool: InterpreterPool
    engine: Engine = ALONE
    shared: bool = False

    @staticmethod
    def open(config: Config, engine: Engine = ALONE, pool: InterpreterPool | None = None) -> Setup:
        """The parts of a configuration; with a pool of their own where none is given.

        Raises ConfigError for whatever the configuration asks and the environment or machine does not have, TaskError
        for a task or tool that breaks its contract.

        The pool's processes start at the first call, so that opening and closing only checks.
        """
        torch.set_num_threads(config.run.threads)
        env = _environment(config)
        config = dataclasses.replace(config, sft=config.sft.completed(env.task.cold_start))
        levels = env.task.difficulties
        difficulties = config.env.difficulties or env.task.trained or levels[:2]
        for level in difficulties:
            if level not in levels:
                name = "env.difficulties" if config.env.difficulties else "Task.trained"
                raise ConfigError(name, level, ", ".join(map(str, levels)))
        untrained = [level for level in levels if level not in difficulties]
        harder = config.env.harder
        if harder is None:
            harder = min((level for level in untrained if level > max(difficulties)), default=None)
        elif harder not in untrained:
            raise ConfigError("env.harder", harder, ", ".join(map(str, untrained)) or "none: every level is trained on")
        tokenizer = Tokenizer([tool.name for tool in env.tools])
        for name in config.noise.tool_rates or {}:
            if name not in tokenizer.tool_names:
                raise ConfigError(
                    "noise.tool_rates", name, f"tools of the environment: {', '.join(tokenizer.tool_names)}"
                )
        example = draw(env.task, rng.generator(0), max(difficulties), "train")
        for style in config.sft.mixture or {}:
            if style not in env.task.mixture and not demonstrates(env.task, example, style, rng.generator(1)):
                wanted = f"styles that the task demonstrates: {', '.join(env.task.mixture)}, or another that it knows"
                raise ConfigError("sft.mixture", style, wanted)
        room = config.policy.context - len(encode_prompt(tokenizer, example.prompt))
        if room <= config.policy.max_turn_tokens:
            wanted = f"more than prompt and turn, {config.policy.context - room + config.policy.max_turn_tokens} tokens"
            raise ConfigError("policy.context", config.policy.context, wanted)
        device, own = _device(config.run.device), InterpreterPool(workers=config.run.workers) if pool is None else pool
        return Setup(config, env, tokenizer, difficulties, harder, device, own, engine, shared=pool is not None)

    def close(self) -> None:
        if not self.shared:
            self.pool.close()

    @property
    def shown(self) -> list[int]:
        """The levels that the cold start shows."""
        return sorted({*self.difficulties, *([] if self.harder is None else [self.harder])})

    def new_policy(self) -> Policy:
        """An untrained policy on the device; bf16 activations on CUDA."""
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        policy = Policy(self.config.policy, len(self.tokenizer), self.tokenizer.forbidden_ids, dtype)
        policy.initialise(self.config.run.seed)
        return policy.to(self.device)

    def episodes(self, noise: NoiseModel, max_turns: int | None = None) -> Episodes:
        turns = self.env.max_turns if max_turns is None else max_turns
        # A token for each character, and for each of the two tags.
        shown = self.config.policy.max_reply_tokens - REPLY_TAGS
        return Episodes(
            self.env.task, self.env.tools, noise=noise, max_turns=turns, pool=self.pool, max_output_chars=shown
        )

    def rollout(self, policy: Policy, plays: Sequence[Play]) -> list[TrajectoryBatch]:
        """Play episodes within the configuration's limits; see agents.rollout.rollout."""
        config = self.config
        return rollout(
            policy,
            self.tokenizer,
            plays,
            context=config.policy.context,
            max_turn_tokens=config.policy.max_turn_tokens,
            live_rows=config.run.live_rows,
            engine=self.engine,
        )

    def problem(self, key: rng.UInt64s, difficulties: tuple[int, ...], split: str) -> Problem:
        """One problem of a split, its difficulty drawn evenly, all under one key."""
        generator = rng.generator(key)
        level = difficulties[int(generator.integers(len(difficulties)))]
        return draw(self.env.task, generator, level, split)


def make_noise(config: NoiseConfig, reference: npt.NDArray[np.float64], *, frozen: bool = False) -> NoiseModel:
    """The noise model of a configuration; ``frozen`` (evaluation) overrides a running reference.

    Raises TaskError where faults are to follow the reasoning and the reference is too small to rank it by.
    """

    def ranked_by() -> npt.NDArray[np.float64]:
        if len(reference) < LEAST_REFERENCE:
            raise TaskError(
                f"the cold-started policy made only {len(reference)} working calls, and correlated noise needs "
                f"{LEAST_REFERENCE}: train it longer (--sft.steps), check the demonstrations, or choose --noise iid"
            )
        return reference

    return named_noise(
        config.kind,
        config.rate,
        config.tool_rates,
        correlation=config.correlation,
        reference=ranked_by,
        reference_mode="running" if config.reference == "running" and not frozen else "frozen",
        mean_burst=config.mean_burst,
        faults=config.fault_mix(),
    )


def _environment(config: Config) -> Resolved:
    arguments = {} if config.env.answers is None else {"answers": config.env.answers}
    with trusted(f"the making of {config.env.id}", seconds=_MAKING_SECONDS):
        env = resolve(config.env.id, **arguments)
    for part in (env.task, *env.tools):
        _check_picklable(part)
    if config.env.max_turns is not None:
        env = Resolved(env.task, env.tools, config.env.max_turns)
    return env


def _check_picklable(part: object) -> None:
    """Raises TaskError for a task or tool that cannot be sent to another process, as the contract has it."""
    try:
        pickle.dumps(part)
    except Exception as error:
        told = f"{type(part).__name__} cannot be pickled ({error})"
        raise TaskError(f"{told}: keep no lambda, inner function or open file in it") from error


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("run.device", name, "cpu (no CUDA device is available here)")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def source_of(task: object) -> str:
    """Source text of a task's module, "" where there is none: a changed task is another cold start."""
    try:
        return inspect.getsource(inspect.getmodule(type(task)) or type(task))
    except (OSError, TypeError):
        return ""
