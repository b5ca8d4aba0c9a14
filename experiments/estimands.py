"""The questions asked of a store of runs, and their answers: differences paired by seed, with interval and verdict.

Every estimand, claim and decision rule was fixed before the runs. What is claimed is a sign: by the paper
(rStar2-Agent, arXiv 2508.20722), or by the smallest model (experiments/theory.py) for the setting at hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.config import Config
from experiments import theory
from experiments.statistics import (
    Interval,
    PairedDifference,
    Verdict,
    auc,
    holm,
    mean_interval,
    paired_difference,
    probability_of_improvement,
    rescale_accuracy,
    unpaired_difference,
    verdict,
)
from experiments.store import ASIDE, Run, differing, flat

Numbers = npt.NDArray[np.float64]
Setting = tuple[tuple[str, Any], ...]
"""What the runs of a comparison have in common: fields and values, rule and seed aside."""

_ARM_FIELDS = frozenset({"algo.selector", "algo.switch_to", "run.seed", "run.stack"})
_SHORT = {
    "env.id": "",
    "env.answers": "answers",
    "noise.correlation": "ρ",
    "noise.reference": "reference",
    "noise.rate": "fault rate",
    "algo.learning_rate": "learning rate",
    "algo.normalisation": "normalisation",
    "algo.refill": "refill",
}


# ---------------------------------------------------------------- runs by setting and arm


def arm(run: Run) -> str:
    """The rule of a run, ``a→b`` where b takes over from a."""
    algo = run.config.algo
    return algo.selector if algo.switch_to is None else f"{algo.selector}→{algo.switch_to}"


def settings_of(runs: Sequence[Run]) -> dict[Setting, list[Run]]:
    """The runs by what they have in common; only fields that differ somewhere are named. In order of their values."""
    own = [flat(run.config) for run in runs]
    varying = differing([run.config for run in runs], _ARM_FIELDS | ASIDE)
    found: dict[Setting, list[Run]] = {}
    for run, fields in zip(runs, own, strict=True):
        found.setdefault(tuple((name, _hashable(fields[name])) for name in varying), []).append(run)
    return dict(sorted(found.items(), key=lambda item: [_rank(value) for _, value in item[0]]))


def _rank(value: Any) -> tuple[bool, float, str]:
    """A key to sort by that holds for numbers and for what is none."""
    number = isinstance(value, (int, float))
    return not number, float(value) if number else 0.0, str(value)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value) if isinstance(value, list) else value


def label(setting: Setting) -> str:
    """A setting for people: ``tool_gym/Retrieval-v0, answers 10, ρ 0.9``."""
    return ", ".join(f"{_SHORT.get(name, name)} {_shown(value)}".strip() for name, value in setting) or "all runs"


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return " ".join(f"{key} {part:g}" for key, part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def by_arm(runs: Sequence[Run]) -> dict[str, dict[int, Run]]:
    """Runs by arm and seed."""
    found: dict[str, dict[int, Run]] = {}
    for run in runs:
        found.setdefault(arm(run), {})[run.config.run.seed] = run
    return found


# ---------------------------------------------------------------- figures of a run, or of a pair


@dataclass(frozen=True)
class Figure:
    """A number for each run of a pair; NaN where it is undefined."""

    name: str
    of_pair: Callable[[Run, Run], tuple[float, float]]


def single(name: str, of_run: Callable[[Run], float]) -> Figure:
    """A figure that needs only the run itself."""
    return Figure(name, lambda ours, theirs: (of_run(ours), of_run(theirs)))


def _area_over_tokens(column: str) -> Callable[[Run, Run], tuple[float, float]]:
    """Area under a curve against generated tokens, up to the smaller total of the two, divided by that."""

    def of_pair(ours: Run, theirs: Run) -> tuple[float, float]:
        total = min(float(np.nanmax(run.columns["num_tokens"])) for run in (ours, theirs))

        def area(run: Run) -> float:
            updates, values = run.curve(column)
            # Step 0 has generated nothing yet; its row has no count.
            tokens = np.nan_to_num(run.columns["num_tokens"])[np.searchsorted(run.columns["step"], updates)]
            if len(updates) < 2 or total <= tokens[0]:
                return math.nan
            inside = tokens < total
            x = np.append(tokens[inside], total)
            return auc(x, np.append(values[inside], np.interp(total, tokens, values)))

        return area(ours), area(theirs)

    return of_pair


def rescaled_area(run: Run) -> float:
    """Area under accuracy on a scale where guessing is 0 and being right is 1, for comparisons across `answers`."""
    return rescale_accuracy(run.area("eval/accuracy"), run.config.env.answers or 10)


GOOD_FIRST = single("AUC of good first calls", lambda run: run.area("eval/good_first_call"))
ACCURACY = single("AUC of accuracy", lambda run: run.area("eval/accuracy"))
ACCURACY_RESCALED = single("AUC of accuracy, rescaled to chance", rescaled_area)
GOOD_FIRST_TOKENS = Figure("AUC of good first calls over generated tokens", _area_over_tokens("eval/good_first_call"))
ACCURACY_TOKENS = Figure("AUC of accuracy over generated tokens", _area_over_tokens("eval/accuracy"))
FINAL_GOOD_FIRST = single("good first calls at the end", lambda run: run.test("good_first_call"))
FINAL_ACCURACY = single("accuracy at the end", lambda run: run.test("accuracy"))
ERRORS = single("errors in right rollouts, last quarter", lambda run: run.late("roc/error_ratio_positives"))
RECOVERY = single("AUC of recovery from a faulted first call", lambda run: run.area("eval/recovery"))
LENGTH = single("tokens of a rollout at the end", lambda run: run.test("mean_length"))
PRIMARY = (GOOD_FIRST, ACCURACY)


# ---------------------------------------------------------------- what is claimed


@dataclass(frozen=True)
class Claim:
    """Who claims which sign of a difference."""

    who: str
    sign: int


Claims = Callable[[Config], tuple[Claim, ...]]

MODELLED = "tool_gym/Arithmetic-v0"
"""The environment that the smallest model is one of: of others it says nothing."""


def paper(sign: int) -> Claims:
    return lambda _: (Claim("the paper", sign),)


def smallest_model(index: int) -> Claims:
    """The sign that the smallest model has for accuracy (0) or good first calls (1) in a run's setting."""

    def claims(config: Config) -> tuple[Claim, ...]:
        gain = predicted(config)
        return () if gain is None else (Claim("the smallest model", 1 if gain[index] > 0 else -1),)

    return claims


def both(*sources: Claims) -> Claims:
    return lambda config: tuple(claim for source in sources for claim in source(config))


def shape_of_model(sign: int) -> Claims:
    """A sign that the smallest model has wherever it was run: in the environment that it is a model of."""
    return lambda config: (Claim("the smallest model", sign),) if config.env.id == MODELLED else ()


def nobody(_: Config) -> tuple[Claim, ...]:
    return ()


def predicted(config: Config) -> tuple[float, float] | None:
    """Δ(roc − stratified) of the smallest model where a run is: of the AUC of accuracy, of that of good first calls.

    None where the model does not reach: another environment, negative correlation, another kind of noise.
    """
    noise = config.noise
    correlation = {"iid": 0.0, "correlated": noise.correlation}.get(noise.kind)
    if config.env.id != MODELLED or correlation is None or correlation < 0 or noise.rate != 0.3:
        return None
    calls = (config.env.max_turns or 5) - 1
    mixture = config.sft.mixture
    slips = mixture is None or any(share > 0 for style, share in mixture.items() if style.startswith("slip"))
    return _simulated(config.env.answers or 10, calls, correlation, noise.reference == "running", slips)


@lru_cache(maxsize=256)
def _simulated(answers: int, calls: int, correlation: float, running: bool, slips: bool) -> tuple[float, float]:
    mode: theory.Mode = "running" if running else "frozen"
    arms = [theory.simulate(rule, answers, calls, correlation, mode, slips=slips) for rule in ("roc", "stratified")]
    cell = theory.difference(*arms)
    return cell.accuracy, cell.good_first


# ---------------------------------------------------------------- contrasts


@dataclass(frozen=True)
class Contrast:
    """A question: is ``figure`` larger under ``ours`` than under ``theirs``?

    Attributes:
        number: of the estimand in docs/RESULTS.md.
        question: in words.
        ours, theirs: arms.
        figure: what is compared.
        claims: who says which sign, in a setting.
    """

    number: int
    question: str
    ours: str
    theirs: str
    figure: Figure
    claims: Claims = nobody


@dataclass(frozen=True)
class Estimate:
    """The answer in one setting.

    Attributes:
        contrast, setting: what was asked, and where.
        paired: mean difference over seeds, 95 % BCa interval, sign-flip p-value.
        unpaired: the same without pairing, which decays as policies part ways.
        improvement: probability that a run of ours beats one of theirs.
        adjusted: p-value after Holm within the contrast's table; NaN for a single pair.
        verdicts: what becomes of each claim.
        means: of the two arms, each with its interval.
    """

    contrast: Contrast
    setting: Setting
    paired: PairedDifference
    unpaired: Interval
    improvement: float
    adjusted: float
    verdicts: tuple[tuple[Claim, Verdict], ...]
    means: tuple[Interval, Interval]


def _pairs(contrast: Contrast, runs: Sequence[Run]) -> tuple[Numbers, Config] | None:
    """Values (n, 2) of the seeds that have both arms, and where both figures are defined; None for no such pair."""
    arms = by_arm(runs)
    ours, theirs = arms.get(contrast.ours, {}), arms.get(contrast.theirs, {})
    seeds = sorted(ours.keys() & theirs.keys())
    values = np.array([contrast.figure.of_pair(ours[seed], theirs[seed]) for seed in seeds]).reshape(-1, 2)
    values = values[np.isfinite(values).all(axis=1)]
    return (values, ours[seeds[0]].config) if len(values) else None


def estimate(contrast: Contrast, runs: Sequence[Run]) -> list[Estimate]:
    """The answers in every setting that has both arms."""
    found = []
    for setting, members in settings_of(runs).items():
        pairs = _pairs(contrast, members)
        if pairs is not None:
            values, config = pairs
            found.append(_estimate(contrast, setting, values, contrast.claims(config)))
    return _adjusted(found)


def _estimate(contrast: Contrast, setting: Setting, values: Numbers, claims: Sequence[Claim]) -> Estimate:
    a, b = values[:, 0], values[:, 1]
    paired = paired_difference(a, b)
    return Estimate(
        contrast,
        setting,
        paired,
        unpaired_difference(a, b),
        probability_of_improvement(a, b),
        math.nan,
        tuple((claim, verdict(paired, claim.sign)) for claim in claims),
        (mean_interval(a), mean_interval(b)),
    )


def _adjusted(estimates: Sequence[Estimate]) -> list[Estimate]:
    """With Holm's correction over the tests of a table that have two pairs or more."""
    tested = [e for e in estimates if e.paired.n > 1]
    adjusted = dict(zip(map(id, tested), holm([e.paired.p_value for e in tested]) if tested else (), strict=True))
    return [replace(e, adjusted=float(adjusted.get(id(e), math.nan))) for e in estimates]


def interaction(figure: Figure, runs: Sequence[Run], low: float = 0.0, high: float = 0.9) -> list[Estimate]:
    """Estimand 2: Δ(roc − stratified) at ρ = ``high`` less Δ at ρ = ``low``, paired by seed, where all else agrees."""
    question = f"does the gain grow from ρ = {low:g} to ρ = {high:g}?"
    contrast = Contrast(2, question, f"Δ at ρ {high:g}", f"Δ at ρ {low:g}", figure, shape_of_model(1))
    cells: dict[Setting, dict[float, dict[int, float]]] = {}
    configs: dict[Setting, Config] = {}
    for setting, members in settings_of(runs).items():
        fields = dict(setting)
        correlation = fields.pop("noise.correlation", None)
        if correlation not in (low, high):
            continue
        arms = by_arm(members)
        ours, theirs = arms.get("roc", {}), arms.get("stratified", {})
        for seed in ours.keys() & theirs.keys():
            a, b = figure.of_pair(ours[seed], theirs[seed])
            if math.isfinite(a - b):
                configs[tuple(fields.items())] = ours[seed].config
                cells.setdefault(tuple(fields.items()), {}).setdefault(correlation, {})[seed] = a - b
    found = []
    for setting, gains in cells.items():
        seeds = sorted(gains.get(low, {}).keys() & gains.get(high, {}).keys())
        if seeds:
            values = np.array([(gains[high][seed], gains[low][seed]) for seed in seeds])
            found.append(_estimate(contrast, setting, values, contrast.claims(configs[setting])))
    return _adjusted(found)


def at_quarter(column: str) -> Callable[[Run], float]:
    """An evaluation at the last time before the arms of `switch` part, a quarter of the updates."""

    def of_run(run: Run) -> float:
        updates, values = run.curve(column)
        before = updates <= run.config.run.steps / 4
        return float(values[before][-1]) if before.any() else math.nan

    return of_run


def response(run: Run) -> float:
    """Realised response to selection: change of the policy's own error rate per unit of cumulative differential.

    Slope, by least squares through the origin, of the fall of ``tools/policy_failure_frequency`` since step 1 on the
    cumulative ``roc/selection_differential`` (the breeder's equation's heritability, Lush 1937). NaN without spread.
    """
    differential = np.nan_to_num(run.columns["roc/selection_differential"][1:])
    errors = run.columns["tools/policy_failure_frequency"][1:]
    x, y = np.cumsum(differential), errors[:1] - errors
    defined = np.isfinite(y)
    x, y = x[defined], y[defined]
    spread = float((x * x).sum())
    return float((x * y).sum() / spread) if spread > 0 else math.nan


CONTRASTS: tuple[Contrast, ...] = (
    Contrast(
        1,
        "does keeping the cleanest right rollouts teach good reasoning faster?",
        "roc",
        "stratified",
        GOOD_FIRST,
        both(paper(1), smallest_model(1)),
    ),
    Contrast(1, "does it raise accuracy?", "roc", "stratified", ACCURACY, both(paper(1), smallest_model(0))),
    Contrast(1, "the same over generated tokens", "roc", "stratified", GOOD_FIRST_TOKENS, paper(1)),
    Contrast(1, "the same over generated tokens", "roc", "stratified", ACCURACY_TOKENS, paper(1)),
    Contrast(1, "and at the end, on test problems?", "roc", "stratified", FINAL_ACCURACY, paper(1)),
    Contrast(3, "are there fewer errors in right rollouts than under plain GRPO?", "roc", "grpo", ERRORS, paper(-1)),
    Contrast(3, "and than under the control?", "roc", "stratified", ERRORS, paper(-1)),
    *(Contrast(4, "is it the candidates? twice the rollouts, all trained on", "grpo_2g", "grpo", f) for f in PRIMARY),
    *(Contrast(4, "is it the candidates? twice the prompts", "grpo_2p", "grpo", f) for f in PRIMARY),
    *(Contrast(4, "is it the candidates? the control", "stratified", "grpo", f) for f in PRIMARY),
    *(Contrast(5, "is it only a filter of length?", "roc", "shortest", f, paper(1)) for f in PRIMARY),
    Contrast(
        6,
        "does it unlearn to recover from faults that were not its doing?",
        "roc",
        "stratified",
        RECOVERY,
        shape_of_model(-1),
    ),
    Contrast(
        7,
        "compounding: the lead at the quarter, before the switch",
        "roc→stratified",
        "stratified",
        single("good first calls at the quarter", at_quarter("eval/good_first_call")),
    ),
    Contrast(7, "compounding: what is left of that lead at the end", "roc→stratified", "stratified", FINAL_GOOD_FIRST),
    Contrast(7, "compounding: what a late start still gains", "stratified→roc", "stratified", FINAL_GOOD_FIRST),
    Contrast(
        7,
        "compounding: the response of the policy's errors to the selection differential",
        "roc",
        "stratified",
        single("fall of own errors per unit of cumulative differential", response),
    ),
    *(Contrast(9, "a filter, or a penalty in the reward?", "roc", "penalty", f, paper(1)) for f in PRIMARY),
    *(Contrast(9, "how far from choosing by true quality?", "roc", "oracle", f) for f in PRIMARY),
    *(Contrast(9, "only errors that the policy caused: better?", "roc_policy", "roc", f) for f in PRIMARY),
    Contrast(11, "the paper's Fig. 9: shorter responses than plain GRPO", "roc", "grpo", LENGTH, paper(-1)),
    Contrast(11, "the paper's Fig. 9: higher accuracy than plain GRPO", "roc", "grpo", FINAL_ACCURACY, paper(1)),
)
"""Every paired question. Estimands 8 (a policy without errors of its own) and 10 (refill) are settings of the first."""


def all_estimates(runs: Sequence[Run]) -> list[tuple[Contrast, list[Estimate]]]:
    """Every question that the runs can answer, with its answers."""
    tables = [(contrast, estimate(contrast, runs)) for contrast in CONTRASTS]
    for figure in PRIMARY:
        if found := interaction(figure, runs):
            tables.append((found[0].contrast, found))
    return sorted(((c, e) for c, e in tables if e), key=lambda table: table[0].number)


def totals(runs: Sequence[Run]) -> Mapping[str, int]:
    """How many runs there are of each arm."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[arm(run)] = counts.get(arm(run), 0) + 1
    return counts
