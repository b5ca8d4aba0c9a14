"""ToolVectorEnv: a fixed number of episodes in lockstep, whose tool calls run as one batch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tool_gym.env import (
    DEFAULT_MEAN_BURST,
    MAX_ACTION_CHARS,
    MAX_OBSERVATION_CHARS,
    EpisodeSource,
    FaultsLike,
    NoiseSettings,
    ToolEnv,
    Transcript,
    build_noise,
    checked_render_mode,
    observe,
    prompt,
    text_space,
)
from tool_gym.episodes import DEFAULT_OUTPUT_CHARS, Episodes, Transition
from tool_gym.errors import ConfigError
from tool_gym.noise import NoiseModel
from tool_gym.noise.correlated import ReferenceMode
from tool_gym.registration import DEFAULT_MAX_TURNS, TaskLike, resolve_task
from tool_gym.tools import Tool, resolve_tools

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool

Observations = tuple[str, ...]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class ToolVectorEnv(VectorEnv[Observations, Sequence[str], npt.NDArray[Any]]):
    """``num_envs`` ToolEnvs in lockstep: one batch of tool calls a step.

    Given the same seeds it equals ``gymnasium.vector.SyncVectorEnv`` over ToolEnvs step by step: observations,
    rewards, flags and infos with their ``_key`` masks. (Not with ``reference_mode="running"``: here all
    sub-environments share one window of reasoning, told of ended episodes after each step in their order.)

    Args:
        num_envs: number of sub-environments N.
        autoreset_mode: NEXT_STEP (the step after an episode's end resets it and ignores its action), SAME_STEP
            (the last observation and info are in ``infos["final_obs"]`` and ``infos["final_info"]``) or
            DISABLED (the caller resets with ``options={"reset_mask": bool array (N,)}``).
        Others: as for :class:`tool_gym.ToolEnv`.

    Observations are tuples of N strings; actions sequences of N strings; rewards and flags arrays of shape (N,).

    Raises:
        ConfigError: an argument or option outside of its range, or unknown.
        TaskError: the task broke its contract.
    """

    def __init__(
        self,
        num_envs: int,
        task: TaskLike,
        tools: Sequence[str | Tool] = ("python",),
        *,
        noise: str | NoiseModel = "none",
        noise_rate: float = 0.3,
        correlation: float = 0.9,
        reference_mode: ReferenceMode = "frozen",
        mean_burst: float = DEFAULT_MEAN_BURST,
        faults: FaultsLike = "timeout",
        permanent: float = 0.0,
        tool_rates: Mapping[str, float] | None = None,
        difficulty: int | None = None,
        split: str = "train",
        max_turns: int = DEFAULT_MAX_TURNS,
        stateful: bool = False,
        max_output_chars: int = DEFAULT_OUTPUT_CHARS,
        render_mode: str | None = None,
        pool: InterpreterPool | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **task_kwargs: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
            raise ConfigError("num_envs", num_envs, "an integer of at least 1")
        self.num_envs = int(num_envs)
        self.autoreset_mode = _checked_autoreset_mode(autoreset_mode)
        self.render_mode = checked_render_mode(render_mode)
        self.metadata = {**ToolEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.task = resolve_task(task, **task_kwargs)
        self.sources = [EpisodeSource(self.task, difficulty, split) for _ in range(self.num_envs)]
        tools = resolve_tools(tools, stateful)
        self.noise = build_noise(
            noise,
            NoiseSettings(noise_rate, correlation, reference_mode, mean_burst, faults, permanent, tool_rates),
            self.task,
            tools,
            pool,
        )
        self._first_noise_state = copy.deepcopy(self.noise.state())
        self.episodes = Episodes(
            self.task, tools, noise=self.noise, max_turns=max_turns, pool=pool, max_output_chars=max_output_chars
        )
        self.single_action_space = text_space(MAX_ACTION_CHARS)
        self.single_observation_space = text_space(MAX_OBSERVATION_CHARS)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._generators: list[np.random.Generator | None] = [None] * self.num_envs
        self._seeds: list[int | None] = [None] * self.num_envs
        self._ids: list[int | None] = [None] * self.num_envs
        self._observations = [""] * self.num_envs
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)
        self.transcripts = [Transcript() for _ in range(self.num_envs)]

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random number generator of each sub-environment."""
        return tuple(self._generator(index) for index in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seed of each sub-environment's generator."""
        self.np_random  # noqa: B018 - draws the seeds of generators that have not been used yet
        return tuple(self._seeds)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Reset every sub-environment, or those of ``options["reset_mask"]``.

        Args:
            seed: None; an int s, which seeds sub-environment i with s + i; or N ints and Nones.
            options: as for ToolEnv, the same for every sub-environment, and ``reset_mask``: bool array (N,).

        Raises:
            ConfigError: seeds of another number; a mask of another shape or type, or without a True.
        """
        seeds = self._checked_seeds(seed)
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError("options", options, "None or a dict")
        options = dict(options or {})
        chosen = (
            _checked_mask(options.pop("reset_mask"), self.num_envs) if "reset_mask" in options else range(self.num_envs)
        )
        # Before any episode is dropped: a refused reset leaves all as it was.
        for index in chosen:
            self.sources[index].check(options)
        if len(chosen) == self.num_envs and None not in seeds:
            self.noise.load_state(self._first_noise_state)
        infos: dict[str, Any] = {}
        for index in chosen:
            own_seed = seeds[index]
            if own_seed is not None:
                self._generators[index], self._seeds[index] = seeding.np_random(own_seed)
                self.sources[index].reseed(own_seed)
            infos = self._add_info(infos, self._begin(index, options), index)
        return tuple(self._observations), infos

    def step(self, actions: Sequence[str]) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
        """Take one turn in every sub-environment.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or where an ended episode was not reset
                although autoreset is disabled.
            ConfigError: not N actions.
        """
        if len(actions) != self.num_envs:
            raise ConfigError("actions", len(actions), f"as many as there are sub-environments ({self.num_envs})")
        resetting = self._ended if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._ended)
        stepping = [index for index in range(self.num_envs) if not resetting[index]]
        taken = self._turns(stepping, actions)
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        for index in range(self.num_envs):
            if resetting[index]:
                infos = self._add_info(infos, self._begin(index, None), index)
                continue
            transition = taken[index]
            self._observations[index], info = transition.observation, transition.info
            rewards[index], terminated[index], truncated[index] = transition[2:5]
            if self._ids[index] is None and self.autoreset_mode is AutoresetMode.SAME_STEP:
                infos = self._add_info(infos, {"final_obs": transition.observation, "final_info": info}, index)
                info = self._begin(index, None)
            infos = self._add_info(infos, info, index)
        self._ended = terminated | truncated
        return tuple(self._observations), rewards, terminated, truncated, infos

    def render(self) -> tuple[str, ...] | None:
        """The transcript of each sub-environment's episode so far (mode "ansi")."""
        if self.render_mode is None:
            return None
        return tuple(str(transcript) for transcript in self.transcripts)

    def close_extras(self, **kwargs: Any) -> None:
        """End every episode. The pool stays open."""
        self.episodes.close()

    def _turns(self, stepping: list[int], actions: Sequence[str]) -> dict[int, Transition]:
        """The transitions of the sub-environments that take a turn, whose calls go out as one batch."""
        ids = [self._ids[index] for index in stepping]
        running = [id_ for id_ in ids if id_ is not None]
        if len(running) < len(ids):
            raise gymnasium.error.ResetNeeded("ToolVectorEnv.step needs running episodes: call reset first")
        self.episodes.submit(running, [actions[index] for index in stepping])
        by_id: dict[int, Transition] = {}
        while len(by_id) < len(running):
            by_id.update((transition.id, transition) for transition in self.episodes.collect())
        taken = {index: by_id[id_] for index, id_ in zip(stepping, running, strict=True)}
        for index, transition in taken.items():
            self.transcripts[index].add(actions[index], transition)
            if transition.terminated or transition.truncated:
                self._ids[index] = None
        observe(self.noise, [taken[index].record for index in stepping if self._ids[index] is None])
        return taken

    def _begin(self, index: int, options: dict[str, Any] | None) -> dict[str, Any]:
        """Begin a new episode in a sub-environment; its info."""
        running = self._ids[index]
        if running is not None:
            self.episodes.abandon([running])
            self._ids[index] = None
        spec = self.sources[index].draw(self._generator(index), options)
        (id_,) = self.episodes.begin([spec])
        self._ids[index] = id_
        self._ended[index] = False
        self._observations[index] = prompt(spec.problem)
        self.transcripts[index] = Transcript(spec.problem)
        return self.episodes.info(id_)

    def _generator(self, index: int) -> np.random.Generator:
        generator = self._generators[index]
        if generator is None:
            generator, self._seeds[index] = seeding.np_random()
            self._generators[index] = generator
        return generator

    def _checked_seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ConfigError("seed", list(seed), f"an int, or one for each of the {self.num_envs} sub-environments")
        return list(seed)


def _checked_autoreset_mode(mode: str | AutoresetMode) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        allowed = ", ".join(f"AutoresetMode.{mode.name}" for mode in AutoresetMode)
        raise ConfigError("autoreset_mode", mode, allowed) from None


def _checked_mask(mask: Any, num_envs: int) -> list[int]:
    """Indices of the sub-environments to reset."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,) or not mask.any():
        raise ConfigError("options['reset_mask']", mask, f"a bool array of shape ({num_envs},) with at least one True")
    return [int(index) for index in np.flatnonzero(mask)]
