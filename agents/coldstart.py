"""The cold start as a cached artefact: trained policy and the reference distribution of its reasoning quality."""

from __future__ import annotations

import fcntl
import hashlib
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import tool_gym
from agents import sft
from agents.checkpoint import keep_batch, load_tensors, save_tensors
from agents.config import Config
from agents.model import Policy
from agents.rollout import Play, check_finite
from agents.setup import Setup, source_of
from tool_gym import rng
from tool_gym.episodes import EpisodeSpec
from tool_gym.errors import ConfigError, DivergenceError, InfrastructureError
from tool_gym.noise import NoNoise
from tool_gym.tasks.base import draw_many

REFERENCE_CALLS = 4096
REFERENCE_EPISODES = 1024
_REFERENCE_ROUNDS = 8
_SOURCES = (
    *("tool_gym/tasks", "tool_gym/tools", "tool_gym/noise", "tool_gym/interpreter"),
    *("tool_gym/episodes.py", "tool_gym/protocol.py", "tool_gym/rng.py"),
    *("agents/coldstart.py", "agents/sft.py", "agents/setup.py", "agents/rollout.py", "agents/tokenizer.py"),
    *("agents/model.py", "agents/packing.py", "agents/generation.py", "agents/frozen.py", "agents/cache.py"),
    *("agents/kernels.py", "agents/vectors.py", "agents/engine.py", "agents/optimizer.py"),
)
"""What decides the bytes of a cold start, by its path: a change there is another one, a new module elsewhere is not."""


@dataclass(frozen=True)
class ColdStart:
    """Weights of the cold-started policy, and the qualities of 4,096 eligible calls that it made without noise."""

    weights: dict[str, Tensor]
    reference: npt.NDArray[np.float64]


def cold_start(
    setup: Setup,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
    on_wait: Callable[[], None] = lambda: None,
) -> ColdStart:
    """The cold start of a configuration, from the cache or made and put there.

    The cache is locked, so that several runs that start together make it once. Its key is a hash of
    everything that the cold start depends on: configuration, seed, device, torch's version and the sources.
    A damaged file is made again. ``on_step`` is told of steps done and the loss, ``on_wait`` that another
    process is making it.

    Raises DivergenceError where its numbers go wrong: the batch at which they did is kept beside the cold starts.
    """
    cache = cache_of(setup.config)
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{_identity(setup)}.safetensors"
    with _locked(path.with_suffix(".lock"), on_wait):
        tensors: dict[str, Tensor] = {}
        if path.exists():
            try:
                tensors = load_tensors(path)
            except ConfigError:
                path.unlink()
        if tensors.keys() != {"reference", *setup.new_policy().state_dict()}:
            try:
                tensors = _make(setup, on_step)
            except DivergenceError as error:
                raise keep_batch(cache / f"diverged_{path.name}", error, str(error)) from error
            save_tensors(path, tensors)
    reference = tensors.pop("reference").double().numpy()
    return ColdStart(tensors, reference)


def cache_of(config: Config) -> Path:
    """The folder of the cold starts that a run shares with others."""
    return Path(config.run.runs_dir) / ".cache"


def _make(setup: Setup, on_step: Callable[[int, float], None]) -> dict[str, Tensor]:
    config = setup.config
    policy = setup.new_policy()
    if config.sft.step_count:
        examples = sft.demonstrate(
            setup.env,
            setup.pool,
            setup.tokenizer,
            config.sft,
            difficulties=setup.shown,
            seed=config.run.seed,
            context=config.policy.context,
        )
        sft.train(policy, examples, config.sft, seed=config.run.seed, on_step=on_step)
    tensors = {name: value.detach().cpu().contiguous() for name, value in policy.state_dict().items()}
    return tensors | {"reference": torch.from_numpy(measure_reference(setup, policy))}


def measure_reference(setup: Setup, policy: Policy) -> npt.NDArray[np.float64]:
    """Qualities of the policy's first 4,096 eligible calls on training problems without noise.

    Fewer, where it does not make as many in 8,192 episodes: only correlated noise needs them (setup.make_noise).
    Raises InfrastructureError if the machinery lost a call, DivergenceError if a log-probability is not finite.
    """
    config = setup.config
    episodes = setup.episodes(NoNoise())
    found = np.zeros(0)
    for part in range(_REFERENCE_ROUNDS):
        draws = rng.generator(rng.key(config.run.seed, "reference", 0, part))
        levels = draws.choice(setup.difficulties, REFERENCE_EPISODES).tolist()
        specs = [EpisodeSpec(problem, 0) for problem in draw_many(setup.env.task, draws, levels, "train")]
        sampling_keys = rng.key(config.run.seed, "reference", 1, part, np.arange(REFERENCE_EPISODES))
        play = Play(episodes, specs, sampling_keys)
        (batch,) = setup.rollout(policy, [play])
        if not batch.valid_N.all():
            raise InfrastructureError("a tool call was lost while the noise's reference was measured")
        check_finite(batch, "cold start, the policy that it leaves: ")
        found = np.concatenate((found, batch.calls.quality_C[batch.calls.eligible_C]))
        if len(found) >= REFERENCE_CALLS:
            break
    return found[:REFERENCE_CALLS]


def sources() -> list[Path]:
    """The files that decide the bytes of a cold start, a task from elsewhere aside."""
    packages = {"tool_gym": Path(str(tool_gym.__file__)).parent, "agents": Path(__file__).parent}
    found: list[Path] = []
    for source in _SOURCES:
        package, _, name = source.partition("/")
        place = packages[package] / name
        found += [place] if place.is_file() else sorted(place.rglob("*.py"))
    return found


def _identity(setup: Setup) -> str:
    """A hash of all that a cold start is made from, sources included: a changed task is another cold start."""
    config, env = setup.config.to_dict(), setup.env
    digest = hashlib.sha256()
    for file in sources():
        digest.update(file.read_bytes())
    for part in (env.task, *env.tools):
        digest.update(pickle.dumps(part) + source_of(part).encode())
    parts = {
        "levels": (setup.difficulties, setup.shown),
        "tools": [tool.name for tool in env.tools],
        "max_turns": env.max_turns,
        "policy": config["policy"],
        "sft": config["sft"],
        "seed": config["run"]["seed"],
        "threads": config["run"]["threads"],
        "device": str(setup.device),
        "versions": (torch.__version__, np.__version__, numba.__version__),
    }
    digest.update(json.dumps(parts, sort_keys=True).encode())
    return digest.hexdigest()[:24]


@contextmanager
def _locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on a file; it is freed when the process ends, however it ends."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
