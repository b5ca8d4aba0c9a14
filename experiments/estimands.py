"""The questions asked of a store of runs, and their answers: differences paired by seed, with interval and verdict.

What is claimed is a sign, or that there is no difference to speak of: by the paper (rStar2-Agent, arXiv 2508.20722),
or by the smallest model (experiments/theory.py) for the setting at hand. Where nobody claims anything, the claim that
there is no difference to speak of is tried, wherever the figure has a zone of it. Estimands, signs and the rule for
them were fixed before the runs, in SCIENCE; docs/LOG.md says what came later, and what was known then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from agents.config import Config
from agents.selection import SELECTORS
from experiments import theory
from experiments.statistics import (
    MARGIN,
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
from tool_gym.errors import ConfigError
from tool_gym.registration import resolve

Numbers = npt.NDArray[np.float64]
Setting = tuple[tuple[str, Any], ...]
"""What the runs of a comparison have in common: fields and values, rule and seed aside."""
Settings = Mapping[Setting, Sequence[Run]]

_ARM_FIELDS = frozenset({"algo.selector", "algo.switch_to", "run.seed", "run.stack"})
_SHORT = {
    "env.id": "",
    "env.answers": "answers",
    "noise.correlation": "ρ",
    "noise.reference": "reference",
    "noise.rate": "fault rate",
    "env.max_turns": "turns",
    "run.steps": "updates",
    "algo.overlong_filter": "overlong filter",
    "algo.roc_released_format": "released format penalty",
    "algo.learning_rate": "learning rate",
    "algo.normalisation": "normalisation",
    "algo.refill": "refill",
    "sft.mixture": "cold start",
    "noise.kind": "noise",
    "noise.permanent": "faults that stay",
    "noise.faults": "faults",
    "algo.scale": "scale",
    "algo.minibatches": "minibatches",
    "algo.epochs": "epochs",
    "algo.group_size": "group size",
    "algo.prompts": "prompts",
}
_NEAR = 5  # updates before and after a validation whose rollouts tell how often first calls fail
_FEW_RULES = 2  # beside the control: so many are told by their own questions
_ALWAYS_TOLD = frozenset({"env.id", "env.answers", "noise.correlation", "noise.reference", "noise.rate"})


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


def uncommon(runs: Sequence[Run]) -> Setting:
    """What all runs have in common and the default has not: fields and values, as of a setting.

    Left aside are the number of updates and what the task fills in.
    """
    default, own = flat(Config()), [flat(run.config) for run in runs]
    aside = {"sft.steps", "sft.batch", "run.steps"}
    return tuple(
        (name, _hashable(own[0][name]))
        for name, usual in default.items()
        if name not in _ARM_FIELDS | ASIDE | aside
        and own[0][name] != usual
        and all(fields[name] == own[0][name] for fields in own)
    )


def _rank(value: Any) -> tuple[bool, float, str]:
    """A key to sort by that holds for numbers and for what is none."""
    number = isinstance(value, (int, float))
    return not number, float(value) if number else 0.0, str(value)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.items())
    return tuple(value) if isinstance(value, list) else value


def label(setting: Setting) -> str:
    """A setting for people: ``tool_gym/Retrieval-v0, answers 10, ρ 0.9``.

    What is seldom varied is told where it is not at its default: of settings that differ no two are told alike.
    """
    if not setting:
        return "all runs"
    default = flat(Config())
    told = [_named(*part) for part in setting if part[0] in _ALWAYS_TOLD or part[1] != _hashable(default[part[0]])]
    return ", ".join(told) or "the default"


def _named(name: str, value: Any) -> str:
    return f"{_SHORT.get(name, name)} {_shown(value)}".strip()


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "default"
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return " ".join(f"{key} {part:g}" for key, part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def by_arm(runs: Sequence[Run]) -> dict[str, dict[int, Run]]:
    """Runs of one setting by arm and seed, both in order, so that what is drawn of them is, wherever they were read.

    Raises ConfigError for two of the same arm and seed, such as a run alone and the same run in a stack.
    """
    found: dict[str, dict[int, Run]] = {}
    for run in runs:
        twin = found.setdefault(arm(run), {}).setdefault(run.config.run.seed, run)
        if twin is not run:
            told = f"{arm(run)}, seed {run.config.run.seed}: {twin.identity} and {run.identity}"
            raise ConfigError("store", told, "one run of each arm and seed in a setting; move one of them away")
    return {name: dict(sorted(seeds.items())) for name, seeds in sorted(found.items())}


# ---------------------------------------------------------------- figures of a run, or of a pair

Modelled = Literal["accuracy", "good_first", "recovery"]


@dataclass(frozen=True)
class Figure:
    """A number for each run of a pair; NaN where it is undefined.

    Attributes:
        name: for people.
        of_pair: the number of ours and of theirs.
        margin: half-width of the zone of no practical difference, in the figure's unit; None: none was fixed.
        modelled: what it is called in the smallest model; None where that has no such figure.
        sides: names of the two numbers, where they are not those of two arms.
    """

    name: str
    of_pair: Callable[[Run, Run], tuple[float, float]]
    margin: float | None = MARGIN
    modelled: Modelled | None = None
    sides: tuple[str, str] | None = None


def single(
    name: str, of_run: Callable[[Run], float], margin: float | None = MARGIN, modelled: Modelled | None = None
) -> Figure:
    """A figure that needs only the run itself."""
    return Figure(name, lambda ours, theirs: (of_run(ours), of_run(theirs)), margin, modelled)


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


def _rescaled_area(run: Run) -> float:
    """Area under accuracy on a scale where guessing is 0 and being right is 1, for comparisons across `answers`.

    NaN where the task declares no luck, or is not installed here.
    """
    luck = _luck(run.config.env.id, run.config.env.answers)
    return math.nan if luck is None else rescale_accuracy(run.area("eval/accuracy"), luck)


@lru_cache
def _luck(env_id: str, answers: int | None) -> float | None:
    """How often a guess is right, None where that is not known."""
    if answers is not None:
        return 1 / answers
    try:
        luck = resolve(env_id).task.luck
    except Exception:  # a module of the user's: whatever it raises, the report goes on without it
        return None
    return luck if isinstance(luck, (int, float)) and 0 <= luck < 1 else None


def _recovery(ours: Run, theirs: Run) -> tuple[float, float]:
    """Right answers where the first call met a fault: means over the validations in which both have such rollouts.

    Weighted by how many both have. An area would be undefined where a validation has none, that is where the policy is
    good: the pairs that are left would be chosen by their result. Step 0 is left out, where both arms are the same
    policy and which has more of such rollouts than any later one.
    """
    counts = [np.nan_to_num(run.columns["eval/faulted_first_calls"]) for run in (ours, theirs)]
    weights = theory.common_weights(*counts) * (ours.columns["step"] > 0)
    both = weights > 0
    if not both.any():
        return math.nan, math.nan
    a, b = (float(np.average(run.columns["eval/recovery"][both], weights=weights[both])) for run in (ours, theirs))
    return a, b


def _in_quarter(column: str, quarter: int) -> Callable[[Run], float]:
    """Mean of a column over a quarter of the updates, 1 to 4; NaN where it is undefined there."""

    def of_run(run: Run) -> float:
        updates, values = run.curve(column)
        place = updates / run.config.run.steps * 4
        inside = values[(place > quarter - 1) & (place <= quarter)]
        return float(inside.mean()) if len(inside) else math.nan

    return of_run


def last_before_switch(config: Config) -> int:
    """The update of the last validation before the arms of `switch` part, after a quarter of the updates."""
    every = config.run.eval_every
    return config.run.steps // 4 // every * every


def _at_quarter(run: Run) -> float:
    """Good first calls on validation problems then."""
    updates, values = run.curve("eval/good_first_call")
    then = values[updates == last_before_switch(run.config)]
    return float(then[0]) if len(then) else math.nan


def _since_quarter(run: Run) -> float:
    """How much good first calls on validation problems have gained since then, at the last validation."""
    _, values = run.curve("eval/good_first_call")
    return float(values[-1]) - _at_quarter(run) if len(values) else math.nan


_OWN_FAILURES = "tools/first_call_policy_failure"


def _own_failures(run: Run) -> float:
    """Share of the training's first calls that fail by the policy's own doing, mean over the updates."""
    _, failures = run.curve(_OWN_FAILURES)
    return float(failures.mean()) if len(failures) else math.nan


def _good_of_running(run: Run) -> float:
    """Area under good first calls on validation problems / (1 − first calls that fail by the policy's own doing).

    A call of its own failing is never good, so this is how often those are right that do not so fail, times how often
    there is a call at all: a rollout without one counts as not good. How many fail is taken from the training's
    rollouts of the five updates on either side, as validations do not count it; so a ratio may exceed 1 a little.
    """
    updates, good = run.curve("eval/good_first_call")
    rows, failures = run.curve(_OWN_FAILURES)
    near = [failures[np.abs(rows - update) <= _NEAR] for update in updates]
    if len(updates) < 2 or any(not len(part) for part in near):
        return math.nan
    shares = np.array([part.mean() for part in near])
    return auc(updates, good / (1.0 - shares)) if (shares < 1.0).all() else math.nan


def _extra_response(ours: Run, theirs: Run) -> tuple[float, float]:
    """Response to selection, as breeders reckon it (Lush 1937): of the arm that selects more over the other, and 0.

    How much more the policy's own error rate has fallen, from the first five updates to the last quarter, per unit of
    further cumulative selection differential of quality. NaN unless ours has selected more.
    """

    def selected_and_fallen(run: Run) -> tuple[float, float]:
        column = "tools/policy_failure_frequency"
        _, errors = run.curve(column)
        start = float(errors[:5].mean()) if len(errors) else math.nan
        return float(np.nansum(run.columns["roc/selection_differential"])), start - _in_quarter(column, 4)(run)

    (our_sum, our_fall), (their_sum, their_fall) = selected_and_fallen(ours), selected_and_fallen(theirs)
    extra = our_sum - their_sum
    return ((our_fall - their_fall) / extra, 0.0) if extra > 0 else (math.nan, math.nan)


_ERROR_RATIO = "roc/error_ratio_positives"
_LAST_ERRORS, _ERRORS_BEFORE = _in_quarter(_ERROR_RATIO, 4), _in_quarter(_ERROR_RATIO, 3)

GOOD_FIRST = single("AUC of good first calls", lambda run: run.area("eval/good_first_call"), modelled="good_first")
ACCURACY = single("AUC of accuracy", lambda run: run.area("eval/accuracy"), modelled="accuracy")
ACCURACY_RESCALED = single("AUC of accuracy, 0 where all is guessed", _rescaled_area)
GOOD_FIRST_TOKENS = Figure("AUC of good first calls over generated tokens", _area_over_tokens("eval/good_first_call"))
ACCURACY_TOKENS = Figure("AUC of accuracy over generated tokens", _area_over_tokens("eval/accuracy"))
FINAL_GOOD_FIRST = single("good first calls at the end", lambda run: run.test("good_first_call"))
FINAL_ACCURACY = single("accuracy at the end", lambda run: run.test("accuracy"))
FINAL_HARDER = single("accuracy at the end on harder problems", lambda run: run.test("accuracy_harder"))
ERRORS = single("errors in right rollouts, last quarter", _LAST_ERRORS)
ERRORS_STILL_FALLING = Figure(
    "errors in right rollouts, last quarter less the third",
    lambda ours, _: (_LAST_ERRORS(ours), _ERRORS_BEFORE(ours)),
    sides=("last quarter", "third quarter"),
)
CHANGE_OF_ERRORS = single(
    "errors in right rollouts, last quarter less the third", lambda run: _LAST_ERRORS(run) - _ERRORS_BEFORE(run)
)
RECOVERY = Figure("right after a faulted first call, all validations", _recovery, modelled="recovery")
FINAL_RECOVERY = single("right after a faulted first call, at the end", lambda run: run.test("recovery"))
OWN_FAILURES = single("first calls that fail by the policy's own doing, mean over the updates", _own_failures)
GOOD_OF_RUNNING = single("AUC of good first calls / (1 − first calls that so fail)", _good_of_running)
SELECTION = single(
    "quality of selected right rollouts less that of all, first quarter", _in_quarter("roc/selection_differential", 1)
)
UNANSWERED = single("rollouts without an answer, last quarter", _in_quarter("completions/truncated_ratio", 4))
LENGTH = single("tokens of a rollout at the end", lambda run: run.test("mean_length"), margin=None)
LEAD = single("good first calls at the last validation before the switch", _at_quarter)
SINCE = single("good first calls gained since the last validation before the switch", _since_quarter)
RESPONSE = Figure(
    "extra fall of own errors per unit of extra selection", _extra_response, margin=None, sides=("response", "none")
)
PRIMARY = (GOOD_FIRST, ACCURACY)
AT_THE_END = (FINAL_ACCURACY, FINAL_RECOVERY)
OVER_TOKENS = (GOOD_FIRST_TOKENS, ACCURACY_TOKENS)


# ---------------------------------------------------------------- contrasts

ESTIMANDS = {
    1: "What does the filter gain over the same quotas without it?",
    2: "Does the gain depend on where faults fall?",
    3: "Errors in right rollouts (the paper's Fig. 4)",
    4: "Is it the candidates?",
    5: "Is it only a filter of length?",
    6: "Does it unlearn to recover from faults that were not its doing?",
    7: "Compounding: what becomes of a lead when the rule changes?",
    8: "Without errors of the policy's own in the cold start",
    9: "Against a penalty, true quality, and a count of only the policy's errors",
    10: "Does refilling dropped groups explain anything?",
    11: "Length and accuracy against plain GRPO (the paper's Fig. 9)",
    12: "Does the gain hang on how the policy is updated?",
    13: "The paper's other claims (no tools, overlong rollouts, repeated n-grams, training on), and its code's penalty",
    14: "Every other rule beside the control",
}
"""What is asked, by number (SCIENCE's estimands, the paper's other claims, robustness)."""

NOT_TRIED = "that stages help: shorter and then longer budgets, at last only problems not yet solved each time"
"""The claim of the paper that no arm here is about."""


@dataclass(frozen=True)
class Contrast:
    """A question: is ``figure`` larger under ``ours`` than under ``theirs``?

    Attributes:
        number: of the estimand, a key of ``ESTIMANDS``.
        question: in words.
        ours, theirs: arms. The same one twice: what is compared are the two numbers that the figure has of a run or,
            across settings, the figure there and here.
        figure: what is compared.
        paper: the sign that the paper claims, 0 for no difference to speak of; None if it says nothing.
        across: a field and a value: then the question is by how much ours − theirs, or of one arm the figure, is
            larger where the field has another value, all else being equal.
        about: of which other values; None: of any.
        added: asked when results were known (docs/LOG.md).
    """

    number: int
    question: str
    ours: str
    theirs: str
    figure: Figure
    paper: int | None = None
    across: tuple[str, Any] | None = None
    about: Callable[[Config], bool] | None = None
    added: bool = False

    @property
    def difference(self) -> str:
        """What is estimated, in words."""
        if self.ours == self.theirs:
            return f"{self.ours}: {'' if self.across is None else 'change of '}{self.figure.name}"
        what = f"{self.ours} − {self.theirs}: {self.figure.name}"
        return what if self.across is None else f"change of {what}"

    @property
    def sides(self) -> tuple[str, str]:
        """Names of the two numbers whose difference is estimated."""
        if self.across is not None:
            what = "" if self.ours == self.theirs else "Δ "
            return f"{what}there", f"{what}at {_named(*self.across)}"
        return self.figure.sides or (self.ours, self.theirs)


CONTROL = "stratified"
"""The rule that the filters are compared with: roc's quotas, and right rollouts taken evenly."""


def _filter(number: int, question: str, figure: Figure, paper: int | None = None, **more: Any) -> Contrast:
    """A question about the filter: roc against the same quotas without it."""
    return Contrast(number, question, "roc", "stratified", figure, paper, **more)


def _later(*asked: Contrast) -> Iterator[Contrast]:
    """Questions that were added when results were known."""
    return (replace(each, added=True) for each in asked)


def _usual(field: str) -> tuple[str, Any]:
    """A field and its default."""
    return field, flat(Config())[field]


def _both(number: int, question: str, figure: Figure, paper: int, **more: Any) -> Iterator[Contrast]:
    """A question about plain GRPO and about roc, each by itself."""
    return (Contrast(number, question, rule, rule, figure, paper, **more) for rule in ("grpo", "roc"))


def _one_turn(config: Config) -> bool:
    """Whether no call can be of use: its reply comes after the only turn."""
    return config.env.max_turns == 1


def _in_outages(config: Config) -> bool:
    """Whether faults come in bursts."""
    return config.noise.kind == "burst"


def _longer(config: Config) -> bool:
    """Whether a run goes on after those of the default end."""
    return config.run.steps > Config().run.steps


def _slipless(config: Config) -> bool:
    """Whether no demonstration of the cold start shows an error of the policy's own."""
    mixture = config.sft.mixture
    return mixture is not None and not any(share > 0 for style, share in mixture.items() if style.startswith("slip"))


_OVERLONG_FILTER = _usual("algo.overlong_filter")

CONTRASTS: tuple[Contrast, ...] = (
    _filter(1, "does keeping the cleanest right rollouts teach good reasoning faster?", GOOD_FIRST, 1),
    _filter(1, "does it raise accuracy?", ACCURACY, 1),
    _filter(1, "the same on a scale that does not depend on the number of answers", ACCURACY_RESCALED, 1),
    _filter(1, "the same over generated tokens", GOOD_FIRST_TOKENS, 1),
    _filter(1, "the same over generated tokens", ACCURACY_TOKENS, 1),
    _filter(1, "and at the end, on test problems?", FINAL_ACCURACY, 1),
    *_later(
        _filter(1, "and on problems of the level that the training leaves out?", FINAL_HARDER),
        _filter(1, "do fewer first calls fail by the policy's own doing?", OWN_FAILURES),
        _filter(1, "and are more of those right that do not?", GOOD_OF_RUNNING),
    ),
    *(
        _filter(2, "does the gain grow where faults follow the reasoning?", f, across=("noise.correlation", 0.0))
        for f in PRIMARY
    ),
    *(_filter(2, "does it where faults stay as frequent?", f, across=_usual("noise.reference")) for f in PRIMARY),
    *_later(
        *(
            _filter(2, "is it another where faults come in outages?", f, across=_usual("noise.kind"), about=_in_outages)
            for f in PRIMARY
        ),
        *(_filter(2, "where they stay?", f, across=_usual("noise.permanent")) for f in PRIMARY),
        *(_filter(2, "where they are of other kinds?", f, across=_usual("noise.faults")) for f in PRIMARY),
    ),
    Contrast(3, "are there fewer than under plain GRPO?", "roc", "grpo", ERRORS, -1),
    _filter(3, "and than under the control?", ERRORS, -1),
    *_later(
        Contrast(3, "do they go on falling?", "roc", "roc", ERRORS_STILL_FALLING, -1),
        Contrast(
            3,
            "do they come to rest under plain GRPO, as the paper says?",
            "grpo",
            "grpo",
            ERRORS_STILL_FALLING,
            paper=0,
        ),
        Contrast(3, "do they fall faster than under plain GRPO?", "roc", "grpo", CHANGE_OF_ERRORS, -1),
    ),
    *(Contrast(4, "twice the rollouts, all trained on", "grpo_2g", "grpo", f) for f in PRIMARY),
    *_later(
        *(Contrast(4, "the same over generated tokens", "grpo_2g", "grpo", f) for f in OVER_TOKENS),
        *(
            Contrast(
                4, "twice the rollouts, all trained on, against half of them chosen evenly", "grpo_2g", "stratified", f
            )
            for f in PRIMARY
        ),
        *(
            Contrast(4, "the same candidates: the filter, or all of them trained on?", "roc", "grpo_2g", f)
            for f in (*PRIMARY, FINAL_ACCURACY)
        ),
    ),
    *(Contrast(4, "twice the prompts", "grpo_2p", "grpo", f) for f in PRIMARY),
    *_later(*(Contrast(4, "the same over generated tokens", "grpo_2p", "grpo", f) for f in OVER_TOKENS)),
    *(Contrast(4, "the control", "stratified", "grpo", f) for f in PRIMARY),
    *(Contrast(5, "does it gain over keeping the shortest?", "roc", "shortest", f) for f in PRIMARY),
    *_later(
        _filter(6, "right answers where the first call met a fault", RECOVERY),
        _filter(6, "and at the end, on test problems", FINAL_RECOVERY),
        Contrast(6, "at the end, against training on all candidates", "roc", "grpo_2g", FINAL_RECOVERY),
    ),
    *_later(
        Contrast(7, "the lead at the quarter, before the switch", "roc→stratified", "stratified", LEAD),
        Contrast(7, "what becomes of that lead after it", "roc→stratified", "stratified", SINCE),
    ),
    Contrast(7, "what is left of it at the end", "roc→stratified", "stratified", FINAL_GOOD_FIRST),
    Contrast(7, "what a late start still gains", "stratified→roc", "stratified", FINAL_GOOD_FIRST),
    Contrast(7, "what an early start is worth beside a late one", "roc", "stratified→roc", FINAL_GOOD_FIRST),
    *_later(_filter(7, "do the policy's own errors fall the more, the more is selected?", RESPONSE, 1)),
    *(_filter(8, "is the gain another?", f, across=_usual("sft.mixture"), about=_slipless) for f in PRIMARY),
    *(Contrast(9, "a filter, or a penalty in the reward?", "roc", "penalty", f, 1) for f in PRIMARY),
    *(Contrast(9, "how far from choosing by true quality?", "roc", "oracle", f) for f in PRIMARY),
    *(Contrast(9, "counting only errors that the policy caused", "roc_policy", "roc", f) for f in PRIMARY),
    *_later(*(Contrast(9, "and at the end, on test problems", "roc_policy", "roc", f) for f in AT_THE_END)),
    *(_filter(10, "is the gain another with refill?", f, across=_usual("algo.refill")) for f in PRIMARY),
    Contrast(11, "shorter responses?", "roc", "grpo", LENGTH, -1),
    Contrast(11, "higher accuracy?", "roc", "grpo", FINAL_ACCURACY, 1),
    *_later(
        Contrast(11, "over the whole run?", "roc", "grpo", ACCURACY, 1),
        Contrast(11, "more good first calls?", "roc", "grpo", GOOD_FIRST),
        *(Contrast(11, "the same over generated tokens", "roc", "grpo", f) for f in OVER_TOKENS),
    ),
    *(_filter(12, "at another learning rate", f, across=_usual("algo.learning_rate")) for f in PRIMARY),
    *(_filter(12, "with another normalisation of the loss", f, across=_usual("algo.normalisation")) for f in PRIMARY),
    *_later(
        *(_filter(12, "with advantages divided otherwise", f, across=_usual("algo.scale")) for f in PRIMARY),
        *_both(
            13,
            "without tools: one turn, and a cold start whose demonstrations end there",
            FINAL_ACCURACY,
            -1,
            across=_usual("env.max_turns"),
            about=_one_turn,
        ),
        *(
            Contrast(
                13, "does leaving out what ended without an answer bring nothing?", "roc", "roc", f, 0, _OVERLONG_FILTER
            )
            for f in (*PRIMARY, FINAL_ACCURACY)
        ),
        Contrast(13, "are there more of those then?", "roc", "roc", UNANSWERED, None, _OVERLONG_FILTER),
        *(
            Contrast(13, "does weighing down repeated n-grams hurt?", "roc_ngram", "roc", f, -1)
            for f in (ACCURACY, FINAL_ACCURACY)
        ),
        Contrast(13, "does it unlearn to call again?", "roc_ngram", "roc", RECOVERY),
        *(
            Contrast(
                13, "the format penalty of the released code", "roc", "roc", f, None, _usual("algo.roc_released_format")
            )
            for f in PRIMARY
        ),
        *_both(
            13, "does accuracy collapse in training on?", FINAL_ACCURACY, -1, across=_usual("run.steps"), about=_longer
        ),
        *(
            Contrast(14, "the rule, or the same quotas without a filter?", rule, CONTROL, f)
            for rule in SELECTORS
            if rule not in (CONTROL, "roc", "grpo", "grpo_2g")  # their differences are asked above
            for f in PRIMARY
        ),
    ),
)
"""Every paired question."""


# ---------------------------------------------------------------- what is claimed


@dataclass(frozen=True)
class Claim:
    """Who claims which sign of a difference, 0 for none to speak of."""

    who: str
    sign: int

    @property
    def added(self) -> bool:
        """Whether it was held against runs only when results were known, also where the question was there before."""
        return self.who in (MODEL, NOBODY)


PAPER = "the paper"
MODEL = "the smallest model"
TABLE = "the smallest model (loss per episode)"
"""The smallest model with the loss with which SCIENCE's table was made, and so its first predictions."""
NOBODY = "nobody, tried"
"""Where there is no claim."""

_FIRST_PREDICTIONS = (1, 2, 6, 8)  # estimands that SCIENCE's table was about
_REACH = frozenset(
    {
        *("env.answers", "env.max_turns", "noise.kind", "noise.correlation", "noise.reference"),
        *("sft.mixture", "sft.steps", "sft.batch", "algo.normalisation"),
    }
)
"""Fields that the smallest model has, or that are no matter to it; of any other value than the default of the rest of
environment, cold start, noise and algorithm it says nothing."""
_LOSSES: dict[str, theory.Normalisation] = {"token": "turn", "constant": "episode"}


def claims_of(contrast: Contrast, configs: Sequence[Config]) -> tuple[Claim, ...]:
    """What is claimed of a contrast where runs are configured so; two configurations where it is across settings."""
    found = [] if contrast.paper is None else [Claim(PAPER, contrast.paper)]
    own = _claim(contrast, [predicted(config, contrast.ours, contrast.theirs) for config in configs], MODEL)
    found += own
    if contrast.number in _FIRST_PREDICTIONS:
        cells = [predicted(config, contrast.ours, contrast.theirs, "episode") for config in configs]
        if (tabled := _claim(contrast, cells, TABLE)) and any(
            _LOSSES.get(c.algo.normalisation) != "episode" or c.noise.reference == "running" for c in configs
        ):
            found += tabled
    if not found and contrast.figure.margin is not None:
        found = [Claim(NOBODY, 0)]
    return tuple(found)


def _claim(contrast: Contrast, cells: Sequence[theory.Cell | None], who: str) -> list[Claim]:
    """A sign where the model's difference is larger than the margin, none to speak of where it is smaller."""
    figure = contrast.figure
    if figure.modelled is None or figure.margin is None:
        return []
    gains = [getattr(cell, figure.modelled).mean for cell in cells if cell is not None]
    if len(gains) < len(cells):
        return []
    gain = gains[0] - gains[1] if len(gains) == 2 else gains[0]
    return [Claim(who, 0 if abs(gain) <= figure.margin else 1 if gain > 0 else -1)]


def predicted(
    config: Config, ours: str = "roc", theirs: str = "stratified", loss: theory.Normalisation | None = None
) -> theory.Cell | None:
    """What the smallest model has for the difference of two rules where a run is.

    Args:
        config: of the run.
        ours, theirs: rules.
        loss: how the model's gradient is normalised, and its figures taken under the faults of the training, as in the
            first table; None: as the run's loss is, under the faults of evaluations, which follow the first policy
            also where those of the training follow the current one.

    None where the model does not reach: another rule or kind of noise, negative correlation, no turn for a call, a
    cold start other than its two, a loss that averages within each rollout, or another value than the default of a
    field that the model does not have.
    """
    noise = config.noise
    correlation = {"iid": 0.0, "correlated": noise.correlation}.get(noise.kind)
    if _beyond(config) or correlation is None or correlation < 0:
        return None
    as_evaluated = loss is None
    loss = _LOSSES.get(config.algo.normalisation) if loss is None else loss
    if loss is None or ours == theirs or not {ours, theirs} <= set(theory.RULES):
        return None
    calls = (config.env.max_turns or 5) - 1
    if calls < 1:
        return None
    mixture = config.sft.mixture
    if mixture not in (None, theory.MIXTURE_WITHOUT_SLIPS):
        return None
    mode: theory.Mode = "running" if noise.reference == "running" else "frozen"
    luck = _luck(config.env.id, config.env.answers)
    assert luck is not None, "it is the default family's"
    where = _Modelled(round(1 / luck), calls, correlation, mode, mixture is None, loss, as_evaluated)
    return _simulated_difference(ours, theirs, where)


def _beyond(config: Config) -> bool:
    """Whether a run differs from the default in what the smallest model does not have."""
    default = flat(Config())
    aside = _ARM_FIELDS | ASIDE | _REACH
    groups = ("env.", "sft.", "noise.", "algo.")
    return any(
        value != default[name] for name, value in flat(config).items() if name.startswith(groups) and name not in aside
    )


class _Modelled(NamedTuple):
    """What the smallest model needs to know of a setting."""

    answers: int
    calls: int
    correlation: float
    mode: theory.Mode
    slips: bool
    loss: theory.Normalisation
    as_evaluated: bool


@lru_cache(maxsize=1024)
def _simulated(rule: str, where: _Modelled) -> theory.Curves:
    return theory.simulate(
        rule,
        where.answers,
        where.calls,
        where.correlation,
        where.mode,
        slips=where.slips,
        normalisation=where.loss,
        frozen_evaluation=where.as_evaluated,
    )


@lru_cache(maxsize=1024)
def _simulated_difference(ours: str, theirs: str, where: _Modelled) -> theory.Cell:
    return theory.difference(_simulated(ours, where), _simulated(theirs, where))


# ---------------------------------------------------------------- answers


@dataclass(frozen=True)
class Estimate:
    """The answer in one setting.

    Attributes:
        contrast, setting: what was asked, and where.
        seeds: how many have both arms; ``paired.n`` of them have the figure in both.
        paired: mean difference over seeds, 95 % BCa interval, sign-flip p-value.
        unpaired: the same without pairing, which decays as policies part ways.
        improvement: probability that a run of ours beats one of theirs.
        adjusted: p-value after Holm within the contrast's table; NaN for a single pair.
        verdicts: what becomes of each claim.
        means: of the two sides, each with its interval.
    """

    contrast: Contrast
    setting: Setting
    seeds: int
    paired: PairedDifference
    unpaired: Interval
    improvement: float
    adjusted: float
    verdicts: tuple[tuple[Claim, Verdict], ...]
    means: tuple[Interval, Interval]


@dataclass(frozen=True)
class _Sample:
    """Both sides of a contrast by seed, in one setting, and the configurations that it is about."""

    setting: Setting
    values: dict[int, tuple[float, float]]
    configs: tuple[Config, ...]


def estimate(contrast: Contrast, runs: Sequence[Run]) -> list[Estimate]:
    """The answers in every setting that has both arms (both settings, where it is across them), with Holm's p."""
    return _answers(contrast, settings_of(runs))


def _answers(contrast: Contrast, settings: Settings) -> list[Estimate]:
    if contrast.about is not _one_turn:
        # Where no call can be of use there is nothing to filter by, nor anything that the paper says of it.
        settings = {setting: runs for setting, runs in settings.items() if not _one_turn(runs[0].config)}
    samples = _within(contrast, settings) if contrast.across is None else _across(contrast, settings)
    found = [answer for sample in samples if (answer := _estimate(contrast, sample)) is not None]
    tested = [number for number, answer in enumerate(found) if answer.paired.n > 1]
    if tested:
        adjusted = holm([found[number].paired.p_value for number in tested])
        for number, p_value in zip(tested, adjusted.tolist(), strict=True):
            found[number] = replace(found[number], adjusted=p_value)
    return found


def _within(contrast: Contrast, settings: Settings) -> Iterator[_Sample]:
    for setting, members in settings.items():
        arms = by_arm(members)
        ours, theirs = arms.get(contrast.ours, {}), arms.get(contrast.theirs, {})
        if seeds := sorted(ours.keys() & theirs.keys()):
            values = {seed: contrast.figure.of_pair(ours[seed], theirs[seed]) for seed in seeds}
            yield _Sample(setting, values, (ours[seeds[0]].config,))


def _across(contrast: Contrast, settings: Settings) -> Iterator[_Sample]:
    """Gains in pairs of settings that differ in one field alone: the other value's, and that of the contrast's.

    Of one arm, its figures there.
    """
    assert contrast.across is not None
    field, base = contrast.across
    gain = _of_one if contrast.ours == contrast.theirs else _gain
    samples = {sample.setting: sample for sample in _within(contrast, settings)}
    for setting, sample in samples.items():
        value = dict(setting).get(field, base)
        partner = samples.get(tuple((name, base if name == field else other) for name, other in setting))
        if value == base or partner is None or not (contrast.about is None or contrast.about(sample.configs[0])):
            continue
        seeds = sorted(sample.values.keys() & partner.values.keys())
        gains = {seed: (gain(sample.values[seed]), gain(partner.values[seed])) for seed in seeds}
        told = f"{_shown(value)} less {_shown(base)}"
        where = tuple((name, told if name == field else other) for name, other in setting)
        yield _Sample(where, gains, (sample.configs[0], partner.configs[0]))


def _gain(values: tuple[float, float]) -> float:
    return values[0] - values[1]


def _of_one(values: tuple[float, float]) -> float:
    return values[0]


def _estimate(contrast: Contrast, sample: _Sample) -> Estimate | None:
    """None where no seed has the figure on both sides."""
    values = np.array(list(sample.values.values()), dtype=np.float64).reshape(-1, 2)
    values = values[np.isfinite(values).all(axis=1)]
    if not len(values):
        return None
    a, b = values[:, 0], values[:, 1]
    paired = paired_difference(a, b)
    claims = claims_of(contrast, sample.configs)
    return Estimate(
        contrast,
        sample.setting,
        len(sample.values),
        paired,
        unpaired_difference(a, b),
        probability_of_improvement(a, b),
        math.nan,
        tuple((claim, verdict(paired, claim.sign, contrast.figure.margin)) for claim in claims),
        (mean_interval(a), mean_interval(b)),
    )


def beside_control(runs: Sequence[Run], figure: Figure) -> dict[Setting, list[Estimate]]:
    """A figure of every rule less that of the control, in each setting that has the control and three rules or more."""
    found: dict[Setting, list[Estimate]] = {}
    settings = settings_of(runs)
    for rule in sorted({arm(run) for run in runs} - {CONTROL}):
        for answer in _answers(Contrast(14, "", rule, CONTROL, figure), settings):
            found.setdefault(answer.setting, []).append(answer)
    return {setting: found[setting] for setting in settings if len(found.get(setting, ())) > _FEW_RULES}


def all_estimates(runs: Sequence[Run]) -> list[tuple[Contrast, list[Estimate]]]:
    """Every question that the runs can answer, with its answers."""
    settings = settings_of(runs)
    tables = [(contrast, _answers(contrast, settings)) for contrast in CONTRASTS]
    return [(contrast, answers) for contrast, answers in tables if answers]
