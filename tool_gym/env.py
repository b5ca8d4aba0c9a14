"""ToolEnv: one episode after another as a Gymnasium environment whose observations and actions are text."""

from __future__ import annotations

import copy
import pickle
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tool_gym import rng
from tool_gym.episodes import DEFAULT_OUTPUT_CHARS, EpisodeRecord, Episodes, EpisodeSpec, Transition
from tool_gym.errors import ConfigError, TaskError
from tool_gym.noise import NOISES, CorrelatedNoise, FaultMix, NoiseModel, named_noise
from tool_gym.noise.correlated import ReferenceMode
from tool_gym.noise.draws import checked_number
from tool_gym.protocol import printable
from tool_gym.registration import DEFAULT_MAX_TURNS, TaskLike, resolve_task
from tool_gym.tasks.base import SPLITS, Problem, Task, draw
from tool_gym.tools import Tool, resolve_tools

if TYPE_CHECKING:
    from tool_gym.interpreter import InterpreterPool

MAX_ACTION_CHARS = 4096
MAX_OBSERVATION_CHARS = 65_536

DEFAULT_MEAN_BURST = 3.0

FaultsLike = FaultMix | Mapping[str, float] | str

# Reference distributions measured in this process, by what they depend on.
_references: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}


class ToolEnv(gymnasium.Env[str, str]):
    """One problem an episode; one assistant turn a step, as text; reward 1 for a right answer, else 0.

    Args:
        task: a Task subclass, an instance of one, or "module:Class".
        tools: names of tools, or Tool objects.
        noise: "none", "iid", "correlated", "burst", or a NoiseModel, of which the environment keeps a copy.
        noise_rate: probability that a call that would have worked is made to fail (iid, correlated, burst).
        correlation: of faults and poor reasoning, in [-1, 1] (correlated). Its reference distribution is
            measured on the task's demonstrations, once in a process.
        reference_mode: "frozen", or "running", which follows the reasoning of the episodes played; a seeded
            reset starts it afresh.
        mean_burst: mean length of an outage in calls (burst); each episode has outages of its own.
        faults: what faults look like: a kind of :data:`tool_gym.noise.KINDS`, the share of each kind, or a FaultMix.
        permanent: share of faults that stay for the rest of the episode, in [0, 1].
        tool_rates: ``noise_rate`` of some tools, by name, in place of the general one.
        difficulty: one of the task's difficulties; None draws one uniformly for each episode.
        split: "train", "validation" or "test".
        max_turns: turns of an episode, the answering one included.
        stateful: the python tool keeps its state within an episode; else each call starts afresh.
        max_output_chars: longest reply of a tool shown, 40 or more; longer ones are cut in the middle, and say so.
        render_mode: None or "ansi": ``render`` returns the transcript, with the faults marked.
        pool: runs the python tool's calls; None is the process's shared pool.
        task_kwargs: settings of the task.

    ``reset(options=...)`` takes ``{"difficulty": d}`` or ``{"problem": Problem(...)}``, for that episode.

    With ``reset(seed=s)`` the problems come from ``np_random`` and the noise from a key of (s, number of the
    episode since), so that the same seed poses the same problems with and without noise. Without any seed
    the noise's is drawn from ``np_random`` at the first reset.

    Raises:
        ConfigError: an argument or option outside of its range, or unknown.
        TaskError: the task broke its contract.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as the base declares it

    def __init__(
        self,
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
        **task_kwargs: Any,
    ) -> None:
        self.render_mode = checked_render_mode(render_mode)
        self.task = resolve_task(task, **task_kwargs)
        self.source = EpisodeSource(self.task, difficulty, split)
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
        self.action_space = text_space(MAX_ACTION_CHARS)
        self.observation_space = text_space(MAX_OBSERVATION_CHARS)
        self._id: int | None = None
        self._problem: Problem | None = None
        self.transcript = Transcript()

    @property
    def problem(self) -> Problem:
        """The problem of the running or last episode. Raises gymnasium.error.ResetNeeded before the first reset."""
        if self._problem is None:
            raise gymnasium.error.ResetNeeded("ToolEnv has no problem before its first reset")
        return self._problem

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.source.check(options)
        if seed is not None:
            self.source.reseed(seed)
            self.noise.load_state(self._first_noise_state)
        self._drop()
        spec = self.source.draw(self.np_random, options)
        (self._id,) = self.episodes.begin([spec])
        observation = prompt(spec.problem)
        self._problem = spec.problem
        self.transcript = Transcript(spec.problem)
        return observation, self.episodes.info(self._id)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one assistant turn.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset, or after the end of an episode.
        """
        if self._id is None:
            raise gymnasium.error.ResetNeeded("ToolEnv.step needs a running episode: call reset first")
        self.episodes.submit([self._id], [action])
        (transition,) = self.episodes.collect()
        self.transcript.add(action, transition)
        if transition.terminated or transition.truncated:
            self._id = None
            observe(self.noise, [transition.record])
        return transition[1:6]

    def render(self) -> str | None:
        """The transcript of the episode so far (mode "ansi")."""
        if self.render_mode is None:
            gymnasium.logger.warn("ToolEnv.render needs a render mode: make the environment with render_mode='ansi'")
            return None
        return str(self.transcript)

    def close(self) -> None:
        """End the running episode. The pool stays open; the environment may be reset again."""
        self._drop()

    def _drop(self) -> None:
        if self._id is not None:
            self.episodes.abandon([self._id])
            self._id = None


class EpisodeSource:
    """Draws the episodes of one environment: problems from its ``np_random``, noise keys from its seed.

    Raises ConfigError for a difficulty that the task does not have, or an unknown split.
    """

    def __init__(self, task: Task, difficulty: int | None, split: str) -> None:
        if not isinstance(split, str) or split not in SPLITS:
            raise ConfigError("split", split, ", ".join(SPLITS))
        self.task = task
        self.split = split
        self.difficulty = None if difficulty is None else self._checked_difficulty(difficulty)
        self.seed: int | None = None
        self.count = 0

    def reseed(self, seed: int) -> None:
        self.seed, self.count = int(seed), 0

    def draw(self, np_random: np.random.Generator, options: Mapping[str, Any] | None) -> EpisodeSpec:
        """The next episode. Raises ConfigError for bad options, TaskError if the task does not return a Problem."""
        if self.seed is None:
            self.reseed(int(np_random.integers(2**63)))
        assert self.seed is not None
        key = int(rng.key(self.seed, "noise", self.count))
        problem = self._problem(np_random, options or {})
        self.count += 1
        return EpisodeSpec(problem, key)

    def check(self, options: Mapping[str, Any] | None) -> None:
        """Raises ConfigError for options of ``reset`` that name nothing, too much, or what the task does not have."""
        if options is None:
            return
        if not isinstance(options, Mapping):
            raise ConfigError("options", options, "None or a dict")
        unknown = sorted(str(name) for name in options.keys() - {"difficulty", "problem"})
        if unknown or len(options) > 1:
            raise ConfigError("options", unknown or sorted(options), "one of difficulty, problem")
        if "problem" in options and not isinstance(options["problem"], Problem):
            raise ConfigError("options['problem']", options["problem"], "a Problem")
        if "difficulty" in options:
            self._checked_difficulty(options["difficulty"])

    def _problem(self, np_random: np.random.Generator, options: Mapping[str, Any]) -> Problem:
        self.check(options)
        if "problem" in options:
            problem: Problem = options["problem"]
            return problem
        difficulty = self.difficulty
        if "difficulty" in options:
            difficulty = self._checked_difficulty(options["difficulty"])
        if difficulty is None:
            difficulty = self.task.difficulties[int(np_random.integers(len(self.task.difficulties)))]
        return draw(self.task, np_random, difficulty, self.split)

    def _checked_difficulty(self, difficulty: Any) -> int:
        whole = isinstance(difficulty, int | np.integer) and not isinstance(difficulty, bool)
        if not whole or difficulty not in self.task.difficulties:
            raise ConfigError("difficulty", difficulty, ", ".join(map(str, self.task.difficulties)))
        return int(difficulty)


class Transcript:
    """An episode for people to read: the turns, the replies, and which of them were injected faults or silent ones."""

    def __init__(self, problem: Problem | None = None) -> None:
        self.lines = [] if problem is None else [f"{prompt(problem)}   (difficulty {problem.difficulty})"]

    def add(self, action: str, transition: Transition) -> None:
        origin, fault = transition.info["error_origin"], transition.info["fault_kind"]
        self.lines.append(f"[{transition.record.turns}] {printable(action)}")
        if transition.observation:
            what = f"silent {fault}" if fault and not origin else f"{origin} fault"
            note = f"   ({what})" if fault or origin == "infrastructure" else ""
            self.lines.append(f"    {transition.observation}{note}")
        if transition.terminated or transition.truncated:
            how = "answered" if transition.terminated else "cut off"
            self.lines.append(f"    {how}: reward {transition.reward:g}")

    def __str__(self) -> str:
        return "\n".join(self.lines)


def text_space(max_length: int) -> spaces.Text:
    return spaces.Text(max_length, min_length=0, charset=string.printable)


def checked_render_mode(render_mode: str | None) -> str | None:
    """Raises ConfigError for a mode that ToolEnv does not have."""
    if render_mode not in (None, *ToolEnv.metadata["render_modes"]):
        raise ConfigError("render_mode", render_mode, f"None, {', '.join(ToolEnv.metadata['render_modes'])}")
    return render_mode


def prompt(problem: Problem) -> str:
    """The first observation of an episode. Raises TaskError if it does not fit the observation space."""
    text = printable(problem.prompt)
    if len(text) > MAX_OBSERVATION_CHARS:
        raise TaskError(f"a prompt of {len(text)} characters: at most {MAX_OBSERVATION_CHARS} are allowed")
    return text


def observe(noise: NoiseModel, records: Sequence[EpisodeRecord]) -> None:
    """Tell a noise model of the eligible calls of ended episodes, leaving invalid ones out."""
    calls = [call for record in records if record.valid for call in record.calls if call.eligible]
    noise.observe_calls(np.array([call.quality for call in calls]), [call.call.tool for call in calls])


class NoiseSettings(NamedTuple):
    """The arguments of an environment that say what a noise given by name is like: see :class:`ToolEnv`."""

    rate: float
    correlation: float
    reference_mode: ReferenceMode
    mean_burst: float
    faults: FaultsLike
    permanent: float
    tool_rates: Mapping[str, float] | None

    def mix(self) -> FaultMix:
        """What faults look like. Raises ConfigError for kinds, shares or a permanence that cannot be."""
        if not isinstance(self.faults, FaultMix):
            return FaultMix(self.faults, self.permanent)
        if self.permanent != 0.0:
            raise ConfigError("permanent", self.permanent, "0.0 where `faults` is a FaultMix, which has its own")
        return self.faults


def build_noise(
    noise: str | NoiseModel,
    settings: NoiseSettings,
    task: Task,
    tools: Sequence[str | Tool],
    pool: InterpreterPool | None,
) -> NoiseModel:
    """The noise model that an environment's arguments stand for; a model that is given is copied.

    Raises:
        ConfigError: an unknown noise, or a setting outside of its range.
    """
    faults = settings.mix()
    if isinstance(noise, NoiseModel):
        if faults != FaultMix():
            raise ConfigError("faults", faults, "nothing where `noise` is a NoiseModel, which has its own")
        if settings.tool_rates:
            raise ConfigError("tool_rates", settings.tool_rates, "nothing where `noise` is a NoiseModel: PerToolNoise")
        return copy.deepcopy(noise)
    mode = settings.reference_mode
    rates = _checked_tool_rates(settings.tool_rates, tools)
    # Built before it is asked which one is wanted: a bad number costs no time, and is refused also where it has no use.
    CorrelatedNoise(settings.rate, settings.correlation, np.zeros(1), reference_mode=mode)
    checked_number("mean_burst", settings.mean_burst, 1.0, 1e9)
    if noise not in NOISES:
        raise ConfigError("noise", noise, f"{', '.join(NOISES)}, or a NoiseModel")
    return named_noise(
        noise,
        settings.rate,
        rates,
        correlation=settings.correlation,
        reference=lambda: measured_reference(task, tools, pool),
        reference_mode=mode,
        mean_burst=settings.mean_burst,
        faults=faults,
    )


def _checked_tool_rates(rates: Mapping[str, float] | None, tools: Sequence[str | Tool]) -> dict[str, float]:
    """Raises ConfigError for anything but rates by the name of a tool that is there."""
    if rates is None:
        return {}
    if not isinstance(rates, Mapping):
        raise ConfigError("tool_rates", rates, "a rate for each of some tools, by name")
    names = [tool.name for tool in resolve_tools(tools)]
    for name, rate in rates.items():
        if name not in names:
            raise ConfigError("tool_rates", name, f"tools of the environment: {', '.join(names)}")
        checked_number(f"tool_rates[{name!r}]", rate, 0.0, 1.0)
    return dict(rates)


def measured_reference(
    task: Task, tools: Sequence[str | Tool], pool: InterpreterPool | None
) -> npt.NDArray[np.float64]:
    """Qualities of the eligible calls of the task's demonstrations, measured once in a process for each task."""
    from tool_gym.tasks.demonstrations import reference_qualities  # here, for it is not always needed

    resolved = resolve_tools(tools)
    # With the classes themselves, for a class that is defined anew in a notebook pickles like the old one.
    depends_on = (type(task), *map(type, resolved), pickle.dumps((task, resolved)))
    if depends_on not in _references:
        _references[depends_on] = reference_qualities(task, resolved, pool)
    return _references[depends_on]
