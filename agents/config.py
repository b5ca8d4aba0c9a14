"""The whole configuration of a run: frozen dataclasses, read by tyro, checked at the start.

``Config.from_dict(config.to_dict())`` is the identity, and ``config.arguments()`` gives it back on the command line.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from agents.selection import SELECTORS, Selector
from tool_gym.errors import ConfigError
from tool_gym.noise import BurstNoise, FaultMix
from tool_gym.protocol import MIN_OUTPUT_CHARS

REPLY_TAGS = 2
"""Tokens of a tool's reply beside one for each of its characters: the opening and the closing tag."""


def _short(name: str) -> Any:
    """A top-level alias beside the nested name: ``--steps`` for ``--run.steps``."""
    return tyro.conf.arg(aliases=(f"--{name}",))


# A sweep checks thousands of configurations at its start.
@functools.cache
def _type_hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _check_types(group: str, config: object) -> None:
    """Raises ConfigError for a field whose value is not of its type; True is no integer, 2 is a float."""
    for name, hint in _type_hints(typing.cast(Any, type(config))).items():
        if not _fits(getattr(config, name), hint):
            shown = getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint)
            raise ConfigError(f"{group}.{name}", getattr(config, name), f"a value of type {shown}")


def _fits(value: Any, hint: Any) -> bool:
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(_fits(value, member) for member in arguments)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if typing.get_origin(hint) is dict:
        key, item = arguments
        return isinstance(value, dict) and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _within(group: str, config: object, name: str, low: float, high: float, *, open_low: bool = False) -> None:
    value = getattr(config, name)
    ends = f"{'(' if open_low else '['}{low}, {high}{')' if math.isinf(high) else ']'}"
    inside = (low < value if open_low else low <= value) and value <= high
    if not inside or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{group}.{name}", value, ends)


def _one_of(group: str, config: object, name: str, allowed: typing.Iterable[str]) -> None:
    allowed = list(allowed)
    if getattr(config, name) not in allowed:
        raise ConfigError(f"{group}.{name}", getattr(config, name), ", ".join(allowed))


@dataclass(frozen=True)
class EnvConfig:
    """The environment."""

    id: Annotated[str, _short("env")] = "tool_gym/Arithmetic-v0"
    """A registered tool environment; `module:id` imports the module first."""
    answers: Annotated[int | None, _short("answers")] = None
    """Number of possible answers, for tasks that have it: a guess is right once in so many. None: the task default."""
    difficulties: tuple[int, ...] | None = None
    """Levels trained and evaluated on. None: the task's, its two easiest unless it says otherwise."""
    harder: int | None = None
    """Level of `eval/accuracy_harder`: seen in the cold start, not in the training. None: the next one up, if any."""
    max_turns: int | None = None
    """Assistant turns an episode, the answering one included. None: as registered."""

    def __post_init__(self) -> None:
        _check_types("env", self)
        if self.answers is not None:
            _within("env", self, "answers", 2, 1000)
        if self.max_turns is not None:
            _within("env", self, "max_turns", 1, 100)
        levels = self.difficulties
        if levels is not None and (not levels or len(set(levels)) < len(levels)):
            raise ConfigError("env.difficulties", levels, "at least one level, each once")


@dataclass(frozen=True)
class NoiseConfig:
    """Faults injected into calls that would have worked."""

    kind: Annotated[str, _short("noise")] = "correlated"
    """`none`, `iid`, `correlated` (with the quality of the call's reasoning) or `burst` (outages)."""
    rate: Annotated[float, _short("noise-rate")] = 0.3
    """Share of eligible calls that are made to fail, under the reference distribution of qualities."""
    correlation: Annotated[float, _short("correlation")] = 0.9
    """Correlation of the Gaussian copula of fault and reasoning quality; at 1 the worst-reasoned calls fail."""
    reference: str = "frozen"
    """`frozen`: qualities of the cold-started policy; `running`: of this run's last 4,096 eligible calls."""
    mean_burst: float = 3.0
    """Mean length of an outage, in calls of an episode; all rollouts of a step are in the same outages."""
    faults: dict[str, float] | None = None
    """Share of each kind: timeout, connection, malformed, truncated, wrong_value (silent). None: all time out."""
    permanent: float = 0.0
    """Share of faults that stay: later calls of that tool in that episode fail in the same way."""
    tool_rates: dict[str, float] | None = None
    """Rates of some tools by name, in place of `rate`."""

    def __post_init__(self) -> None:
        _check_types("noise", self)
        _one_of("noise", self, "kind", ("none", "iid", "correlated", "burst"))
        _within("noise", self, "rate", 0.0, 1.0)
        _within("noise", self, "correlation", -1.0, 1.0)
        _one_of("noise", self, "reference", ("frozen", "running"))
        _within("noise", self, "mean_burst", 1.0, 1e9)
        _within("noise", self, "permanent", 0.0, 1.0)
        for tool, rate in (self.tool_rates or {}).items():
            if not 0.0 <= rate <= 1.0:
                raise ConfigError("noise.tool_rates", {tool: rate}, "rates in [0.0, 1.0]")
        try:
            self.fault_mix()
            if self.kind == "burst":
                for rate in (self.rate, *(self.tool_rates or {}).values()):
                    BurstNoise(rate, self.mean_burst)
        except ConfigError as error:
            raise ConfigError(f"noise.{error.field}", error.value, error.allowed) from None

    def fault_mix(self) -> FaultMix:
        """What faults look like."""
        return FaultMix("timeout" if self.faults is None else self.faults, self.permanent)


@dataclass(frozen=True)
class PolicyConfig:
    """Sizes of the transformer."""

    layers: int = 3
    """Blocks of attention and perceptron."""
    width: int = 64
    """Width of the residual stream."""
    heads: int = 4
    """Attention heads; their width must be even."""
    context: int = 256
    """Tokens of an episode, prompt and tool output included; a multiple of 32."""
    max_turn_tokens: int = 32
    """A turn is submitted as it stands when it reaches this length."""
    max_reply_tokens: int = 64
    """Longest reply of a tool, its tags included; a longer one is cut in the middle, and says so."""

    def __post_init__(self) -> None:
        _check_types("policy", self)
        _within("policy", self, "layers", 1, 64)
        _within("policy", self, "heads", 1, 64)
        _within("policy", self, "width", 2, 4096)
        if self.width % (2 * self.heads):
            raise ConfigError("policy.width", self.width, f"a multiple of twice the heads ({2 * self.heads})")
        _within("policy", self, "context", 32, 8192)
        if self.context % 32:
            raise ConfigError("policy.context", self.context, "a multiple of 32")
        _within("policy", self, "max_turn_tokens", 2, self.context)
        _within("policy", self, "max_reply_tokens", MIN_OUTPUT_CHARS + REPLY_TAGS, 8192)


_COLD_START: Mapping[str, int] = {"steps": 450, "batch": 64}


@dataclass(frozen=True)
class SFTConfig:
    """The cold start: supervised training on demonstrations that teach the format, not the reasoning."""

    steps: int | None = None
    """Optimiser steps. None: the task's, 450 where it says nothing."""
    batch: int | None = None
    """Demonstrations a step. None: the task's, 64 where it says nothing."""
    demonstrations: int = 16384
    """Distinct demonstrations drawn; steps take them in keyed order, epoch after epoch."""
    learning_rate: float = 3e-3
    """Peak rate of AdamW."""
    warmup: int = 50
    """Steps of linear warm-up; then linear decay to a tenth."""
    weight_decay: float = 0.01
    """Of AdamW, on matrices."""
    fault_rate: float = 0.1
    """Share of working calls that time out in demonstrations, so that calling again is shown."""
    mixture: dict[str, float] | None = None
    """Share of each style of demonstration. None: the task's."""

    def __post_init__(self) -> None:
        _check_types("sft", self)
        if self.steps is not None:
            _within("sft", self, "steps", 0, 1_000_000)
        if self.batch is not None:
            _within("sft", self, "batch", 1, 65536)
        _within("sft", self, "demonstrations", self.batch_size, 10_000_000)
        _within("sft", self, "learning_rate", 0.0, 1.0, open_low=True)
        _within("sft", self, "warmup", 0, 1_000_000)
        _within("sft", self, "weight_decay", 0.0, 10.0)
        _within("sft", self, "fault_rate", 0.0, 0.9)
        if self.mixture is not None:
            shares = self.mixture.values()
            if not shares or not min(shares) >= 0 or not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
                raise ConfigError("sft.mixture", self.mixture, "shares that are not negative and sum to 1")

    @property
    def step_count(self) -> int:
        return _COLD_START["steps"] if self.steps is None else self.steps

    @property
    def batch_size(self) -> int:
        return _COLD_START["batch"] if self.batch is None else self.batch

    def completed(self, cold_start: Mapping[str, int]) -> SFTConfig:
        """With numbers for what is None: those of a task's ``cold_start``, else the default ones.

        Raises ConfigError for a setting that a task does not have, or a value outside its range.
        """
        for name in cold_start:
            if name not in _COLD_START:
                raise ConfigError("Task.cold_start", name, ", ".join(_COLD_START))
        wanted = {**_COLD_START, **cold_start}
        left: dict[str, Any] = {name: wanted[name] for name in _COLD_START if getattr(self, name) is None}
        return dataclasses.replace(self, **left)


def _samples(rule: Selector) -> tuple[int, int]:
    """What a rule asks to be sampled, for any sizes."""
    return rule.candidates, rule.prompt_factor


@dataclass(frozen=True)
class AlgoConfig:
    """GRPO and the selection of rollouts."""

    selector: Annotated[str, _short("selector")] = "roc"
    """Which rollouts of a group to train on: see docs/SELECTION.md."""
    switch_to: str | None = None
    """Rule that takes over after the first quarter of the updates; it samples as many rollouts. None: no switch."""
    prompts: int = 16
    """Problems a step."""
    group_size: Annotated[int, _short("group-size")] = 8
    """G: rollouts of a problem that are trained on; most rules choose them from 2G."""
    min_positive: int = 2
    """Least number of right rollouts kept, where there are so many."""
    min_negative: int = 2
    """Least number of wrong rollouts kept, where there are so many."""
    penalty_weight: float = 0.5
    """λ of the `penalty` rule: reward − λp."""
    roc_released_format: bool = False
    """Use the format penalty of the released code (its off-by-one included) in place of the paper's."""
    refill: bool = False
    """Sample further groups (up to 4 times the prompts) in place of those whose rewards are all equal (DAPO)."""
    overlong_filter: bool = False
    """Leave rollouts that ended without an answer, out of turns or tokens, out of the loss (DAPO)."""
    learning_rate: float = 6e-5
    """Constant rate of AdamW."""
    scale: str = "group"
    """Division of advantages: by the standard deviation of the `group`, of the `batch`, or `none` (Dr. GRPO)."""
    normalisation: str = "token"
    """Of the loss: `token`, `sequence`, or `constant` (Dr. GRPO)."""
    clip_low: float = 0.2
    """Lower clip of the probability ratio."""
    clip_high: float = 0.28
    """Upper clip of the probability ratio (clip-higher)."""
    minibatches: int = 1
    """Optimiser steps that share a step's rollouts between them."""
    epochs: int = 1
    """Passes over a step's rollouts."""
    grad_clip: float = 1.0
    """Largest norm of the gradient."""

    def __post_init__(self) -> None:
        _check_types("algo", self)
        _one_of("algo", self, "selector", SELECTORS)
        _within("algo", self, "prompts", 1, 65536)
        _within("algo", self, "group_size", 2, 4096)
        _within("algo", self, "min_positive", 0, 4096)
        _within("algo", self, "min_negative", 0, 4096)
        _within("algo", self, "penalty_weight", 0.0, 100.0)
        _within("algo", self, "learning_rate", 0.0, 1.0, open_low=True)
        _one_of("algo", self, "scale", ("group", "batch", "none"))
        _one_of("algo", self, "normalisation", ("token", "sequence", "constant"))
        _within("algo", self, "clip_low", 0.0, 1.0, open_low=True)
        _within("algo", self, "clip_high", 0.0, 10.0, open_low=True)
        _within("algo", self, "minibatches", 1, self.prompts)
        if self.switch_to is not None:
            alike = [name for name, rule in SELECTORS.items() if _samples(rule) == _samples(SELECTORS[self.selector])]
            _one_of("algo", self, "switch_to", tuple(alike))
        _within("algo", self, "epochs", 1, 100)
        _within("algo", self, "grad_clip", 0.0, 1e6, open_low=True)

    def at(self, step: int, steps: int) -> AlgoConfig:
        """What holds at a step of a run of ``steps`` updates: after the first quarter the rule of ``switch_to``."""
        if self.switch_to is None or 4 * step <= steps:
            return self
        return dataclasses.replace(self, selector=self.switch_to, switch_to=None)


@dataclass(frozen=True)
class RunConfig:
    """Length, seed and files of a run."""

    steps: Annotated[int, _short("steps")] = 100
    """Updates of the policy."""
    seed: Annotated[int, _short("seed")] = 0
    """Everything random is keyed by it. Seeds 0 to 99 are for reports, 1000 and up for tuning."""
    name: Annotated[str | None, _short("name")] = None
    """Folder of the run below `runs_dir`. None: date-time, selector and seed."""
    runs_dir: Annotated[str, _short("runs-dir")] = "runs"
    """Where runs and the cache of cold starts live."""
    device: Annotated[str, _short("device")] = "auto"
    """`auto`, `cpu` or `cuda`."""
    workers: int = 1
    """Processes that run the policy's programs. The results do not depend on it."""
    threads: int = 1
    """Threads of torch on the CPU. More than one helps little at these sizes; the same bytes are promised for one."""
    live_rows: int = 1024
    """Episodes sampled at a time; bounds the memory: 100 KB each and more. The results do not depend on it."""
    eval_every: int = 10
    """Steps between evaluations on the validation problems."""
    eval_problems: int = 256
    """Validation problems."""
    test_problems: int = 1024
    """Test problems, met at the end only."""
    checkpoint_every: int = 20
    """Steps between checkpoints; there is one at each evaluation that is the best so far, too."""
    keep_checkpoints: int = 3
    """The latest of them are kept, and that of the best evaluation."""
    max_invalid: float = 0.1
    """The run stops when a larger share of a step's rollouts is lost to the machinery, never to the policy's errors."""
    trajectories: int = 1
    """Groups written to trajectories.jsonl at each evaluation."""
    stack: str | None = None
    """Which runs it is trained with in one process, where it is: set by `sweep --stack`, since results depend on it."""

    def __post_init__(self) -> None:
        _check_types("run", self)
        _within("run", self, "steps", 0, 10_000_000)
        _within("run", self, "seed", 0, 2**31 - 1)
        _one_of("run", self, "device", ("auto", "cpu", "cuda"))
        _within("run", self, "workers", 1, 256)
        _within("run", self, "threads", 1, 256)
        _within("run", self, "live_rows", 4, 1_000_000)
        _within("run", self, "eval_every", 1, 1_000_000)
        _within("run", self, "eval_problems", 1, 1_000_000)
        _within("run", self, "test_problems", 1, 1_000_000)
        _within("run", self, "checkpoint_every", 1, 1_000_000)
        _within("run", self, "keep_checkpoints", 1, 1_000_000)
        _within("run", self, "max_invalid", 0.0, 1.0)
        _within("run", self, "trajectories", 0, 1000)
        # What is shown as one line and written to a terminal; a NUL ends the name of a file.
        if not self.runs_dir or not self.runs_dir.isprintable():
            raise ConfigError("run.runs_dir", self.runs_dir, "the path of a folder, in printable characters")
        if self.stack is not None and not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", self.stack):
            raise ConfigError("run.stack", self.stack, "1 to 64 letters, digits, - and _, as `sweep --stack` sets it")
        if self.name is not None and (
            not self.name or self.name in (".", "..") or "/" in self.name or "\0" in self.name
        ):
            raise ConfigError("run.name", self.name, "the name of a folder, without a slash")
        if self.name is not None and (not self.name.isprintable() or self.name == "None"):
            raise ConfigError("run.name", self.name, "printable characters, and not None, which asks for the default")


@dataclass(frozen=True)
class Config:
    """Train a tool-using transformer by GRPO with a rule for which rollouts to learn from."""

    env: EnvConfig = field(default_factory=EnvConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    sft: SFTConfig = field(default_factory=SFTConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Config:
        """The configuration written by ``to_dict``, also after a round trip through JSON.

        Raises ConfigError for a field that does not exist or is outside its range.
        """
        config: Config = _build(Config, values, "")
        return config

    def arguments(self) -> list[str]:
        """The arguments of train.py that give this configuration: its differences from the default."""
        words: list[str] = []
        default = Config().to_dict()
        for group, fields in self.to_dict().items():
            for name, value in fields.items():
                flag = f"--{group}.{name.replace('_', '-')}"
                if value == default[group][name]:
                    continue
                if isinstance(value, bool):
                    words.append(flag if value else f"--{group}.no-{name.replace('_', '-')}")
                elif isinstance(value, dict):
                    words += [flag, *(str(part) for pair in value.items() for part in pair)]
                elif isinstance(value, tuple):
                    words += [flag, *map(str, value)]
                elif isinstance(value, str) and value.startswith("-"):
                    words.append(f"{flag}={value}")
                else:
                    words += [flag, str(value)]
        return words

    def replace(self, **changes: Any) -> Config:
        """A copy with dotted fields changed: ``config.replace(**{"algo.selector": "grpo"})``."""
        values = self.to_dict()
        for dotted, value in changes.items():
            group, _, name = dotted.partition(".")
            if group not in values or name not in values[group]:
                raise _no_field(dotted)
            values[group][name] = value
        return Config.from_dict(values)


def _no_field(dotted: str) -> ConfigError:
    """The error of a name that is no field, with those that are like it."""
    fields = [f"{group}.{name}" for group, values in Config().to_dict().items() for name in values]
    # Of a field that stands in another group its own name is enough.
    named = [field for field in fields if field.endswith(f".{dotted.rpartition('.')[2]}")]
    near = named or difflib.get_close_matches(dotted, fields)
    hint = f", such as {' or '.join(near)}" if near else ""
    return ConfigError("config", dotted, f"a field of the configuration, as group.name{hint}")


def _build(cls: type[Any], values: dict[str, Any], group: str) -> Any:
    hints = typing.get_type_hints(cls)
    if not isinstance(values, dict):
        raise ConfigError("config", values, f"the fields of {cls.__name__} by name")
    unknown = set(values) - set(hints)
    if unknown:
        raise _no_field(f"{group}{sorted(unknown)[0]}")
    arguments = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            value = _build(typing.cast(type[Any], hint), value, f"{group}{name}.")
        elif isinstance(value, list) and _takes_tuple(hint):
            value = tuple(value)
        elif isinstance(value, int) and not isinstance(value, bool) and hint is float:
            value = float(value)
        arguments[name] = value
    return cls(**arguments)


def _takes_tuple(hint: Any) -> bool:
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return any(typing.get_origin(member) is tuple for member in members)
