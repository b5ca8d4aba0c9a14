"""Grids of runs by name: fields of agents.config.Config, each with the values it takes, crossed."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.config import Config
from experiments.theory import MIXTURE_WITHOUT_SLIPS
from tool_gym.errors import ConfigError

_LONGEST_NAME = 200  # bytes; a log adds a few, and file systems take 255
_OWN = ("run.seed", "run.name", "run.runs_dir", "run.stack")

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Part:
    """A grid and its seeds: the arms are the product of the fields' values."""

    grid: Grid
    seeds: range


@dataclass(frozen=True)
class Preset:
    """What a sweep runs.

    Attributes:
        purpose: what it is for, one line.
        parts: grids, each with its seeds; a run that stands in two is run once.
        settings: changes to the default configuration, the same in all arms.
    """

    purpose: str
    parts: tuple[Part, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


_RULES = ("stratified", "roc", "grpo", "grpo_2g", "shortest", "roc_policy")
_PAIR = ("stratified", "roc")
_TUNING = range(1000, 1003)

# The default mixture with one demonstration in twenty that says two answers, which is what the format penalty is for.
_DOUBLE_ANSWERS = {
    "clean": 0.05,
    "confused": 0.50,
    "slip_then_fix": 0.15,
    "slip_then_guess": 0.05,
    "guess": 0.20,
    "double_answer": 0.05,
}


def _frozen(answers: int, rules: Sequence[str], correlations: Sequence[float], seeds: range) -> Part:
    grid = {"env.answers": (answers,), "noise.correlation": tuple(correlations), "algo.selector": tuple(rules)}
    return Part(grid, seeds)


PRESETS: dict[str, Preset] = {
    "quick": Preset(
        "the question in a quarter of an hour: does roc's filter help, where faults follow the reasoning or not?",
        (_frozen(10, _PAIR, (0.0, 0.9), range(3)),),
    ),
    "correlated-vs-iid": Preset(
        "the headline: correlated against independent faults, every control, much luck and little",
        (
            _frozen(10, _RULES, (0.0, 0.9), range(20)),
            _frozen(10, _PAIR, (0.5,), range(20)),
            _frozen(2, _RULES, (0.0, 0.9), range(10)),
            _frozen(2, _PAIR, (0.5,), range(10)),
        ),
    ),
    "families": Preset(
        "the same question in the other two families of problems, five pairs",
        tuple(
            Part(
                {"env.id": (family,), "noise.correlation": (0.0, 0.9), "algo.selector": _PAIR},
                range(5),
            )
            for family in ("tool_gym/Assignments-v0", "tool_gym/Retrieval-v0")
        ),
    ),
    "running-reference": Preset(
        "faults that stay as frequent while the reasoning improves",
        (
            Part(
                {
                    "env.answers": (10,),
                    "noise.reference": ("running",),
                    "noise.correlation": (0.9,),
                    "algo.selector": _PAIR,
                },
                range(20),
            ),
        ),
    ),
    "toy-corner": Preset(
        "a policy that makes no errors of its own: the corner in which a toy found nothing",
        (_frozen(10, _PAIR, (0.0, 0.9), range(8)),),
        {"sft.mixture": MIXTURE_WITHOUT_SLIPS},
    ),
    "selectors": Preset(
        "all rules side by side, one demonstration in twenty with two answers",
        (
            _frozen(
                10,
                (
                    *("stratified", "roc", "roc_paper", "roc_error", "roc_format", "roc_policy", "roc_ngram", "grpo"),
                    *("grpo_2g", "grpo_2p", "random", "max_variance", "shortest", "void_turn", "penalty", "anti_roc"),
                    "oracle",
                ),
                (0.0, 0.9),
                range(8),
            ),
        ),
        # The weight of `penalty` is the one that tune-penalty came to (docs/LOG.md).
        {"sft.mixture": _DOUBLE_ANSWERS, "algo.penalty_weight": 0.1},
    ),
    "switch": Preset(
        "compounding: does the lead of a quarter under one rule persist, grow or decay under the other?",
        (
            Part(
                {
                    "env.answers": (10,),
                    "noise.correlation": (0.0, 0.9),
                    "algo.selector": _PAIR,
                    "algo.switch_to": (None, *_PAIR),
                },
                range(20),
            ),
        ),
    ),
    "robustness": Preset(
        "half and twice the learning rate, other normalisations of the loss, refill of dropped groups",
        tuple(
            Part(
                {"env.answers": (10,), "noise.correlation": (0.0, 0.9), "algo.selector": _PAIR, name: values},
                range(8),
            )
            for name, values in (
                ("algo.learning_rate", (3e-5, 1.2e-4)),
                ("algo.normalisation", ("sequence", "constant")),
                ("algo.refill", (True,)),
            )
        ),
    ),
    "noise-map": Preset(
        "where on the map of fault rates and correlations does selection matter?",
        (
            Part(
                {
                    "env.answers": (10, 2),
                    "noise.rate": (0.1, 0.3, 0.5),
                    "noise.correlation": (0.0, 0.9),
                    "algo.selector": _PAIR,
                },
                range(8),
            ),
        ),
    ),
    "faults": Preset(
        "other faults at the same rate: outages, faults that stay, silent wrong values, the best-reasoned calls struck",
        tuple(
            Part({"env.answers": (10,), "algo.selector": _PAIR, **more}, range(8))
            for more in (
                {"noise.correlation": (0.0,), "noise.kind": ("burst",)},
                {"noise.correlation": (0.0, 0.9), "noise.permanent": (1.0,)},
                {"noise.correlation": (0.0, 0.9), "noise.faults": ({"wrong_value": 1.0},)},
                {"noise.correlation": (-0.9,)},
            )
        ),
    ),
    "optimisation": Preset(
        "other updates: advantages not divided, or by the batch; rollouts used twice in four minibatches; other groups",
        tuple(
            Part({"env.answers": (10,), "noise.correlation": (0.0, 0.9), "algo.selector": _PAIR, **more}, range(8))
            for more in (
                {"algo.scale": ("batch", "none")},
                {"algo.minibatches": (4,), "algo.epochs": (2,)},
                # As many rollouts a step as by default, of fewer or of more problems.
                {"algo.group_size": (4,), "algo.prompts": (32,)},
                {"algo.group_size": (16,), "algo.prompts": (8,)},
            )
        ),
    ),
    "paper": Preset(
        "the paper's other claims: no tools, overlong rollouts, repeated n-grams, training on after the peak",
        tuple(
            Part({"env.answers": (10,), "algo.selector": rules, **more}, range(8))
            for rules, more in (
                (("grpo", "roc", "roc_ngram"), {}),
                (("grpo", "roc"), {"env.max_turns": (1,)}),
                (("roc",), {"algo.overlong_filter": (True,)}),
                (("roc",), {"algo.roc_released_format": (True,)}),
                (("grpo", "roc"), {"run.steps": (400,)}),
            )
        ),
    ),
    "tune": Preset(
        "choose the learning rate for all arms: on grpo alone, on seeds that no report uses",
        (
            Part(
                {"env.answers": (10,), "algo.selector": ("grpo",), "algo.learning_rate": (3e-5, 6e-5, 1.2e-4)}, _TUNING
            ),
        ),
    ),
    "tune-penalty": Preset(
        "choose the weight of the `penalty` rule, on seeds that no report uses",
        (
            Part(
                {
                    "env.answers": (10,),
                    "noise.correlation": (0.0, 0.9),
                    "algo.selector": ("penalty",),
                    "algo.penalty_weight": (0.1, 0.25, 0.5, 1.0),
                },
                _TUNING,
            ),
        ),
    ),
    "cold-start": Preset(
        "compare cold starts by the policy that they leave: no update, seeds that no report uses",
        (
            Part(
                {
                    "run.steps": (0,),
                    "sft.learning_rate": (2e-3, 3e-3),
                    "sft.batch": (64, 128),
                    "sft.steps": (225, 450),
                },
                range(1000, 1002),
            ),
        ),
    ),
}


def expand(
    preset: Preset, base: Config, *, grid: Grid | None = None, seeds: Sequence[int] = ()
) -> list[tuple[str, Config]]:
    """The runs of a preset, with their names; all arms of a seed stand together, so that pairs finish together.

    Args:
        preset: what to run.
        base: the configuration that everything else changes.
        grid: fields that replace or extend those of every part.
        seeds: in place of the parts'.

    Raises ConfigError, before anything is run, for a field or value that is not allowed, and for two runs that would
    bear the same name.
    """
    found: dict[tuple[int, int], list[tuple[str, Config]]] = {}
    named: dict[str, Config] = {}
    for number, part in enumerate(preset.parts):
        fields = {**part.grid, **(grid or {})}
        _check(fields, seeds or part.seeds)
        for order, seed in enumerate(seeds or part.seeds):
            for values in itertools.product(*fields.values()):
                changes = dict(zip(fields, values, strict=True))
                if changes.get("algo.switch_to") == changes.get("algo.selector", base.algo.selector):
                    continue  # a switch to the rule itself is no switch
                name = _name(changes, seed)
                run = base.replace(**changes, **{"run.seed": seed, "run.name": name})
                if named.setdefault(name, run) != run:
                    raise ConfigError("grid", name, "fields whose names, without their group, differ")
                if named[name] is run:  # parts may have runs in common
                    found.setdefault((order, number), []).append((name, run))
    return [run for key in sorted(found) for run in found[key]]


def _check(fields: Grid, seeds: Sequence[int]) -> None:
    for name in fields:
        if name in _OWN:
            raise ConfigError("grid", name, "other fields: the sweep sets this one itself (--seeds, --out)")
    for name, values in {"seeds": seeds, **fields}.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise ConfigError(name, list(values), "at least one value, each once")


def _name(changes: Mapping[str, Any], seed: int) -> str:
    """A folder's name, so without the slash of an environment's id, and no longer than a file system takes."""
    parts = [f"{name.rpartition('.')[2]}={value}" for name, value in changes.items() if value is not None]
    name = ",".join([*parts, f"seed={seed}"]).replace("/", "_")
    if len(encoded := name.encode()) > _LONGEST_NAME:
        short = encoded[: _LONGEST_NAME - 50].decode(errors="ignore")
        name = f"{short}…{hashlib.sha256(encoded).hexdigest()[:12]},seed={seed}"
    return name
