"""Demonstrations: a task's scripted turns, played through real episodes so that they meet real replies and faults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tool_gym import rng as keyed
from tool_gym.episodes import EpisodeRecord, Episodes, EpisodeSpec, Transition
from tool_gym.errors import ConfigError, InfrastructureError, TaskError
from tool_gym.noise import NoNoise
from tool_gym.tasks.base import Problem, Task, draw_many
from tool_gym.tools import Tool
from tool_gym.watchdog import trusted

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool

Floats = npt.NDArray[np.float64]

# Episodes in flight at once: enough for full batches of calls, few enough to keep memory flat.
_BATCH = 1024
# Sub-streams of a demonstration's key, and of the reference's.
_SCRIPT, _NOISE = range(2)
_PROBLEMS, _DIFFICULTIES, _STYLES, _PLAY = range(4)
# A mixture in which fewer calls than one in so many demonstrations are eligible is a mistake.
_DEMONSTRATIONS_PER_CALL = 64


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One demonstration as it was played.

    Attributes:
        problem: the problem posed.
        style: the style of its script.
        turns: the assistant turns, repeated calls after injected faults included.
        observations: the reply to each turn, of the same length; "" after an answer.
        record: the episode's record; not ``valid`` after an infrastructure failure, and then not to be learnt from.
    """

    problem: Problem
    style: str
    turns: list[str]
    observations: list[str]
    record: EpisodeRecord


def sample_styles(mixture: Mapping[str, float], uniforms: npt.ArrayLike) -> list[str]:
    """The style that each of N uniform draws in [0, 1) falls on, by inverse CDF in the mixture's order.

    Raises ConfigError unless the shares are at least 0 and sum to 1 (within 1e-9).
    """
    shares = list(mixture.values())
    if not shares or not all(share >= 0.0 for share in shares) or not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
        raise ConfigError("mixture", dict(mixture), "shares of at least 0 that sum to 1")
    # Styles without a share are left out, so that rounding at the end cannot choose one.
    styles = [style for style, share in mixture.items() if share > 0.0]
    bounds = np.cumsum([mixture[style] for style in styles])
    indices = np.minimum(np.searchsorted(bounds, uniforms, side="right"), len(styles) - 1)
    return [styles[index] for index in indices.tolist()]


def play_demonstrations(
    episodes: Episodes, problems: Sequence[Problem], styles: Sequence[str], keys: npt.ArrayLike
) -> list[Demonstration]:
    """Play one demonstration for each of N problems.

    A turn whose call was struck by an injected fault is played again where the turn budget allows, so
    that demonstrations show how to recover; otherwise the script goes on.

    Args:
        episodes: runs the episodes, with its own task, tools, noise and turn budget; nothing else may be
            in flight in it.
        problems: N problems of the episodes' task.
        styles: N styles that the task knows.
        keys: (N,) 64-bit keys, from which each script's and each episode's noise draws are made: a
            demonstration is a function of its problem, style and key alone.

    Raises ConfigError for unequal lengths, an unknown style, or episodes that are busy; TaskError where a
    script ends before its episode does.
    """
    keys_N = np.asarray(keys, dtype=np.uint64)
    if not len(problems) == len(styles) == keys_N.size or keys_N.ndim != 1:
        raise ConfigError("problems, styles, keys", (len(problems), len(styles), keys_N.shape), "equal lengths")
    if episodes.outstanding:
        raise ConfigError("episodes", f"{episodes.outstanding} turns in flight", "none in flight")
    script_keys, noise_keys = keyed.fold(keys_N, _SCRIPT), keyed.fold(keys_N, _NOISE)
    played: list[Demonstration] = []
    for start in range(0, len(problems), _BATCH):
        batch = slice(start, start + _BATCH)
        scripts = []
        with trusted(f"{type(episodes.task).__name__}.demonstrate") as call:
            for problem, style, key in zip(problems[batch], styles[batch], script_keys[batch].tolist(), strict=True):
                call.at(call.what, problem.prompt)
                turns = episodes.task.demonstrate(problem, keyed.generator(key), style)
                if not isinstance(turns, list | tuple) or not all(isinstance(turn, str) for turn in turns):
                    raise TaskError(f"{call} returned {turns!r} for style {style!r}, not a list of turns")
                scripts.append(_Script(problem, style, turns))
        played += _play(episodes, scripts, noise_keys[batch].tolist())
    return played


class _Script:
    """A demonstration being played: the turns still to play, last first, and what was played."""

    __slots__ = ("left", "observations", "problem", "style", "turns")

    def __init__(self, problem: Problem, style: str, turns: Sequence[str]) -> None:
        self.problem, self.style = problem, style
        self.left = list(turns[::-1])
        self.turns: list[str] = []
        self.observations: list[str] = []

    def next_turn(self, task: Task) -> str:
        if not self.left:
            raise TaskError(
                f"{type(task).__name__}.demonstrate: the script of style {self.style!r} ends before its episode "
                f"(problem {self.problem.prompt!r})"
            )
        self.turns.append(self.left.pop())
        return self.turns[-1]


def _play(episodes: Episodes, scripts: Sequence[_Script], noise_keys: Sequence[int]) -> list[Demonstration]:
    """Play scripts in lockstep, so that the calls of each turn are one batch."""
    specs = [EpisodeSpec(script.problem, key) for script, key in zip(scripts, noise_keys, strict=True)]
    running = dict(zip(episodes.begin(specs), scripts, strict=True))
    played: dict[_Script, Demonstration] = {}
    while running:
        episodes.submit(list(running), [script.next_turn(episodes.task) for script in running.values()])
        while episodes.outstanding:
            for transition in episodes.collect():
                script = running[transition.id]
                script.observations.append(transition.observation)
                if transition.terminated or transition.truncated:
                    del running[transition.id]
                    played[script] = Demonstration(
                        script.problem, script.style, script.turns, script.observations, transition.record
                    )
                elif _may_repeat(transition, len(script.left), episodes.max_turns):
                    script.left.append(script.turns[-1])
    return [played[script] for script in scripts]


def _may_repeat(transition: Transition, turns_to_play: int, max_turns: int) -> bool:
    """Whether the turn met an injected fault, and one more turn leaves room for the rest of the script."""
    injected = transition.info["error_origin"] == "injected"
    return injected and max_turns - transition.record.turns >= turns_to_play + 1


def reference_qualities(
    task: Task,
    tools: Sequence[str | Tool] = ("python",),
    pool: InterpreterPool | None = None,
    *,
    size: int = 4096,
    seed: int = 0,
    difficulties: Sequence[int] | None = None,
) -> Floats:
    """Qualities of the first ``size`` eligible calls of demonstrations in the task's default mixture, no noise.

    The reference of :class:`tool_gym.noise.CorrelatedNoise` where no policy's calls were measured.

    Args:
        task, tools, pool: as for :class:`tool_gym.episodes.Episodes`.
        size: positive.
        seed: of the problems, styles and scripts (stream ``reference``).
        difficulties: drawn from uniformly, all of the task's if None.

    Returns (size,) values in [0, 1], in the order of demonstrations and their calls.

    Raises ConfigError for a bad argument, TaskError where the demonstrations make hardly any eligible calls,
    InfrastructureError where a call was lost: the reference is exact or not at all.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError("size", size, "a positive integer")
    levels = tuple(task.difficulties if difficulties is None else difficulties)
    if not levels or not set(levels) <= set(task.difficulties):
        raise ConfigError("difficulties", levels, f"some of {', '.join(map(str, task.difficulties))}")
    episodes = Episodes(task, tools, noise=NoNoise(), pool=pool)
    qualities: list[float] = []
    try:
        for batch in _reference_batches(episodes, levels, size, seed):
            if not all(one.record.valid for one in batch):
                raise InfrastructureError("a tool call was lost while the reference qualities were measured")
            qualities += [call.quality for one in batch for call in one.record.calls if call.eligible]
            if len(qualities) >= size:
                return np.array(qualities[:size])
    finally:
        episodes.close()
    raise TaskError(f"{type(task).__name__}: demonstrations made {len(qualities)} eligible calls; {size} are needed")


def _reference_batches(
    episodes: Episodes, levels: Sequence[int], size: int, seed: int
) -> Iterator[list[Demonstration]]:
    """Batches of demonstrations, each a function of (seed, its number), until eligible calls should not be missing."""
    task = episodes.task
    for number in range(max(2, math.ceil(size * _DEMONSTRATIONS_PER_CALL / _BATCH))):
        key = keyed.key(seed, "reference", number)
        positions = np.arange(_BATCH)
        choices = (keyed.uniform(keyed.fold(key, _DIFFICULTIES), positions) * len(levels)).astype(np.int64)
        problems = draw_many(
            task, keyed.generator(keyed.fold(key, _PROBLEMS)), [levels[choice] for choice in choices.tolist()], "train"
        )
        styles = sample_styles(task.mixture, keyed.uniform(keyed.fold(key, _STYLES), positions))
        yield play_demonstrations(episodes, problems, styles, keyed.fold(keyed.fold(key, _PLAY), positions))
