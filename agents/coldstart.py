"""The cold start as a cached artefact: trained policy and the reference distribution of its reasoning quality."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from agents import sft
from agents.model import Policy
from agents.rollout import Play
from agents.setup import Setup, source_of
from tool_gym import protocol, rng
from tool_gym.episodes import EpisodeSpec
from tool_gym.errors import TaskError
from tool_gym.noise import NoNoise
from tool_gym.tasks import base, demonstrations

REFERENCE_CALLS = 4096
REFERENCE_EPISODES = 1024
_REFERENCE_ROUNDS = 8


@dataclass(frozen=True)
class ColdStart:
    """Weights of the cold-started policy, and the qualities of 4,096 eligible calls that it made without noise."""

    weights: dict[str, Tensor]
    reference: npt.NDArray[np.float64]


def cold_start(setup: Setup, on_step: Callable[[int, float], None] = lambda step, loss: None) -> ColdStart:
    """The cold start of a configuration, from the cache or made and put there.

    The cache is locked, so that several runs that start together make it once. Its key is a hash of
    everything that the cold start depends on: configuration, seed, device, torch's version and the sources.
    A damaged file is made again.
    """
    cache = Path(setup.config.run.runs_dir) / ".cache"
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{_identity(setup)}.safetensors"
    with _locked(path.with_suffix(".lock")):
        try:
            tensors = load_file(path)
        except FileNotFoundError:
            tensors = {}
        except (SafetensorError, OSError):
            path.unlink(missing_ok=True)
            tensors = {}
        if not tensors:
            tensors = _make(setup, on_step)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            save_file(tensors, temporary)
            os.replace(temporary, path)
    reference = tensors.pop("reference").double().numpy()
    return ColdStart(tensors, reference)


def _make(setup: Setup, on_step: Callable[[int, float], None]) -> dict[str, Tensor]:
    config = setup.config
    policy = setup.new_policy()
    if config.sft.steps:
        examples = sft.demonstrate(
            setup.env,
            setup.pool,
            setup.tokenizer,
            config.sft,
            difficulties=sorted({*setup.difficulties, setup.harder}),
            seed=config.run.seed,
            context=config.policy.context,
        )
        sft.train(policy, examples, config.sft, seed=config.run.seed, on_step=on_step)
    tensors = {name: value.detach().cpu().contiguous() for name, value in policy.state_dict().items()}
    return tensors | {"reference": torch.from_numpy(measure_reference(setup, policy))}


def measure_reference(setup: Setup, policy: Policy) -> npt.NDArray[np.float64]:
    """Qualities of the policy's first 4,096 eligible calls on training problems without noise.

    Raises TaskError if the policy hardly ever makes a call that works: then nothing can be made to fail.
    """
    config = setup.config
    episodes = setup.episodes(NoNoise())
    found = np.zeros(0)
    for part in range(_REFERENCE_ROUNDS):
        index = np.arange(part * REFERENCE_EPISODES, (part + 1) * REFERENCE_EPISODES)
        problem_keys = rng.key(config.run.seed, "reference", 0, index)
        problems = [setup.problem(key, setup.difficulties, "train") for key in problem_keys]
        specs = [EpisodeSpec(problem, 0) for problem in problems]
        play = Play(episodes, specs, rng.key(config.run.seed, "reference", 1, index))
        (batch,) = setup.rollout(policy, [play])
        found = np.concatenate((found, batch.calls.quality_C[batch.calls.eligible_C]))
        if len(found) >= REFERENCE_CALLS:
            return found[:REFERENCE_CALLS]
    if len(found):
        return found
    raise TaskError(
        f"the cold-started policy made no working call in {_REFERENCE_ROUNDS * REFERENCE_EPISODES} episodes: "
        "train it longer (--sft.steps) or check the task's demonstrations"
    )


def _identity(setup: Setup) -> str:
    config = setup.config.to_dict()
    modules = (sft, base, demonstrations, protocol)
    sources = "".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in modules)
    parts = {
        "env": config["env"],
        "policy": config["policy"],
        "sft": config["sft"],
        "seed": config["run"]["seed"],
        "threads": config["run"]["threads"],
        "device": str(setup.device),
        "torch": torch.__version__,
        "sources": sources + source_of(setup.env.task) + source_of(Policy(setup.config.policy, 4)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; it is freed when the process ends, however it ends."""
    with path.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.2)
        yield
