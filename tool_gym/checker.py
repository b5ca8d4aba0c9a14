"""The contract of a tool environment, executed: ``check_tool_env(id)`` plays it and says what it breaks and what to do.

Gymnasium's checker knows spaces and signatures. What makes a tool environment fit for training is more: that the oracle
scores 1 and guesses score chance, that no observation gives the answer away, that neither a tool's output nor a forged
tag earns reward, that a seed is an episode, in another process too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import re
import subprocess
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from tool_gym import rng
from tool_gym.env import ToolEnv
from tool_gym.errors import ConfigError, ContractError, TaskError, ToolGymError
from tool_gym.protocol import ERROR, OUTPUT, format_answer, parse, printable
from tool_gym.registration import find
from tool_gym.tasks.base import SPLITS, Problem, demonstrates, split_of
from tool_gym.tasks.demonstrations import sample_styles

STYLES = ("clean", "confused", "slip_then_fix", "slip_then_guess", "guess", "double_answer")
"""Demonstration styles whose outcome is known; a task has some of them, and may have others of its own."""

_RIGHT = frozenset({"clean", "slip_then_fix", "double_answer"})
_TOLERANCE = 4.5  # standard deviations that a share may be off: one false alarm in 150,000
# An observation gives answers away if it mostly holds its own, and another problem's less often by so much. (Where
# answers are digits, three prompts of four may hold theirs by the nature of the problems.)
_MOSTLY, _LEAK = 0.85, 0.2
_NEARLY_ALWAYS = 0.95
# So much oftener than luck and the answers' frequencies say may a text be right that knows nothing of the problem:
# a lenient grade, or one with several right answers, is the task's own affair.
_LENIENCE = 0.2
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_HOSTILE_ANSWERS = ("", " ", "nan", "None", "-0", "1e999", "0x10", "９", "\n", "[", "a" * 10_000, "9" * 10_000)


@dataclass(frozen=True)
class Check:
    """One part of the contract.

    Attributes:
        name: what it is.
        problem: what is wrong and what to do about it; "" where it holds.
        skipped: whether it could not be checked, because of what is told elsewhere.
    """

    name: str
    problem: str
    skipped: bool = False

    @property
    def passed(self) -> bool:
        return not self.problem


@dataclass
class _Played:
    """An episode of a script: what each step returned."""

    observations: list[str]
    rewards: list[float]
    ends: list[tuple[bool, bool]]
    infos: list[dict[str, Any]]

    @property
    def reward(self) -> float:
        return self.rewards[-1]


class _Subject:
    """The environment being checked, and problems to check it on."""

    def __init__(self, make: Callable[[], ToolEnv], count: int, seed: int) -> None:
        self.make = make
        self.env = make()
        self.task = self.env.task
        self.seed = seed
        self.name = type(self.task).__name__
        self.tools = [tool.name for tool in self.env.episodes.tools]
        levels = self.task.difficulties
        generator = rng.generator(rng.key(seed, "task", 0))
        wanted = [levels[number % len(levels)] for number in range(count)]
        self.problems = self.task.sample_many(generator, wanted, "train")

    def play(self, problem: Problem, turns: Sequence[str], seed: int | None = None) -> _Played:
        """Play turns of one problem, until the episode or the script ends; with a seed, under the same faults."""
        if seed is not None:
            self.env.reset(seed=seed)
        observation, info = self.env.reset(options={"problem": problem})
        played = _Played([observation], [], [], [info])
        for turn in turns:
            observation, reward, terminated, truncated, info = self.env.step(turn)
            played.observations.append(observation)
            played.rewards.append(float(reward))
            played.ends.append((terminated, truncated))
            played.infos.append(info)
            if terminated or truncated:
                break
        return played

    def script(self, problem: Problem, style: str, number: int) -> list[str]:
        return self.task.demonstrate(problem, rng.generator(rng.key(self.seed, "task", 1, number)), style)

    def known(self, style: str) -> bool:
        return demonstrates(self.task, self.problems[0], style, rng.generator(rng.key(self.seed, "task", 1, 0)))


# ------------------------------------------------------------------ the parts of the contract
# Each yields what is wrong, in the words of who can mend it. The first is told.


def _gymnasium_checker(subject: _Subject) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = subject.make()
        try:
            # Without a spec, as where an environment was given and not an id, it cannot be made anew to be rendered.
            check_env(env, skip_render_check=env.spec is None)
        except (Exception, Warning) as error:
            said = _COLOURS.sub("", str(error))
            yield f"gymnasium.utils.env_checker.check_env says: {said} (mend what the environment adds to ToolEnv)"


def _problems(subject: _Subject) -> Iterator[str]:
    for problem in subject.problems:
        if problem.difficulty not in subject.task.difficulties:
            yield f"{subject.name}.sample gave difficulty {problem.difficulty!r}: set Problem.difficulty as asked for"
        if printable(problem.prompt) != problem.prompt:
            yield f"the prompt {problem.prompt!r} is not all string.printable: a policy sees the rest as escapes"
    if len({problem.prompt for problem in subject.problems}) < min(len(subject.problems), 8):
        yield f"{subject.name}.sample gives nearly the same problem each time: draw from the generator that it is given"


def _splits(subject: _Subject) -> Iterator[str]:
    generator = rng.generator(rng.key(subject.seed, "task", 2))
    levels = subject.task.difficulties
    for split in SPLITS:
        for problem in subject.task.sample_many(generator, [levels[n % len(levels)] for n in range(32)], split):
            if split_of(problem) != split:
                yield (
                    f"a problem of split {split!r} belongs to {split_of(problem)!r} by the hash of its prompt: "
                    "do not override sample_split or sample_many without keeping to split_of"
                )


def _unwritten(subject: _Subject) -> Iterator[str]:
    """Whether demonstrating and playing leave problems as they were drawn; before they are played by other parts."""
    for number, problem in enumerate(subject.problems[:8]):
        drawn, shown = _frozen(problem), repr(problem.data)
        # What is raised is told by the parts that are about it.
        with contextlib.suppress(ToolGymError):
            for turns in (
                *([f"<{tool}>1</{tool}>"] for tool in subject.tools),
                *(subject.script(problem, style, number) for style in filter(subject.known, subject.task.mixture)),
            ):
                subject.play(problem, turns)
        if _frozen(problem) != drawn:
            yield (
                f"problem.data of {problem.prompt!r} was {_cut(shown)} and became {_cut(repr(problem.data))} when it "
                "was played: the rollouts of a problem share it; keep what a tool must remember in state"
            )


def _frozen(problem: Problem) -> bytes | str:
    """What is different when something in a problem's data is."""
    try:
        return pickle.dumps(problem.data)
    except Exception:  # a task may keep what it likes there
        return repr(problem.data)


def _cut(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _described(subject: _Subject) -> Iterator[str]:
    for tool in subject.env.episodes.tools:
        if not isinstance(tool.description, str) or not tool.description.strip():
            yield (
                f"the tool {tool.name} has no description, which is what prompts of language models show of it: write "
                "the function's docstring, or set description in a class of your own"
            )


def _rewards(subject: _Subject) -> Iterator[str]:
    for number, problem in enumerate(subject.problems[:32]):
        for style in filter(subject.known, STYLES):
            played = subject.play(problem, subject.script(problem, style, number))
            odd = [reward for reward in played.rewards if reward not in (0.0, 1.0)]
            if odd:
                yield f"a step was rewarded {odd[0]!r}: outcome rewards are 0 or 1, and only for a graded answer"
            early = [r for r, (terminated, _) in zip(played.rewards, played.ends, strict=True) if r and not terminated]
            if early:
                yield "a step was rewarded before the answer: only a graded answer earns reward"
            if any(terminated and truncated for terminated, truncated in played.ends):
                yield "a step was terminated and truncated at once: answered is terminated, out of turns truncated"


def _oracle(subject: _Subject) -> Iterator[str]:
    if not subject.known("clean"):
        yield f"{subject.name}.demonstrate has no style 'clean': the right calls and the answer, for the oracle"
        return
    for number, problem in enumerate(subject.problems):
        turns = subject.script(problem, "clean", number)
        played = subject.play(problem, turns)
        if played.reward != 1.0 or not played.ends[-1][0]:
            yield (
                f"the oracle (style 'clean') scored {played.reward:g} on {problem.prompt!r} with {turns!r}: "
                "mend demonstrate or grade, or allow more turns (max_turns)"
            )
        qualities = [info["reasoning_quality"] for info in played.infos if info["reasoning_quality"] >= 0.0]
        if qualities and min(qualities) < 1.0:
            yield (
                f"a call of the oracle has reasoning quality {min(qualities):g} on {problem.prompt!r}: "
                "reasoning_quality is 1 for a call that gets it right, as far as one call can"
            )


def _confused(subject: _Subject) -> Iterator[str]:
    for number, problem in enumerate(subject.problems if subject.known("confused") else []):
        played = subject.play(problem, subject.script(problem, "confused", number))
        qualities = [info["reasoning_quality"] for info in played.infos if info["reasoning_quality"] >= 0.0]
        if qualities and max(qualities) >= 1.0:
            yield (
                f"a call of the confused style has reasoning quality 1 on {problem.prompt!r}: "
                "correlated faults could not tell it from a right one; judge it lower, or do not pose such problems"
            )
    yield from _constant_quality(subject)


def _constant_quality(subject: _Subject) -> Iterator[str]:
    """Whether every call is judged 1: empty ones, nonsense, and those that solve another problem."""
    qualities = []
    problems = subject.problems[:16]
    for number, problem in enumerate(problems):
        turns = [f"<{tool}>{body}</{tool}>" for tool in subject.tools for body in ("", "1")]
        if subject.known("clean"):
            turns += subject.script(problems[number - 1], "clean", number)[:-1]
        qualities += [subject.play(problem, [turn]).infos[-1]["reasoning_quality"] for turn in turns]
    judged = [quality for quality in qualities if quality >= 0.0]
    if judged and min(judged) >= 1.0:
        yield (
            f"{subject.name}.reasoning_quality is 1 whatever is called, also for an empty call: faults that follow the "
            "reasoning would follow nothing; judge lower what does not get it right, at least a call that fails "
            "(not history[-1][1].ok)"
        )


def _styles(subject: _Subject) -> Iterator[str]:
    sample_styles(subject.task.mixture, np.zeros(0))
    unknown = [style for style in subject.task.mixture if not subject.known(style)]
    if unknown:
        yield f"{subject.name}.mixture names the style {unknown[0]!r}, which demonstrate does not know"
    for style in filter(subject.known, (*STYLES, *(s for s in subject.task.mixture if s not in STYLES))):
        for number, problem in enumerate(subject.problems[:48]):
            turns = subject.script(problem, style, number)
            wrong = _broken_script(subject, style, turns)
            if wrong:
                yield f"style {style!r} on {problem.prompt!r}: {wrong}"
                continue
            played = subject.play(problem, turns)
            if not any(played.ends[-1]):
                yield f"style {style!r} on {problem.prompt!r}: the script ends before its episode; end with an answer"
            if style in _RIGHT and played.reward != 1.0:
                yield f"style {style!r} on {problem.prompt!r} scored {played.reward:g}: its answer must be right"
            if style.startswith("slip") and played.infos[1]["error_origin"] != "policy":
                yield f"style {style!r} on {problem.prompt!r}: its first call must fail by the policy's own doing"


def _broken_script(subject: _Subject, style: str, turns: Sequence[str]) -> str:
    """What is wrong with the form of a script, "" if nothing is."""
    if isinstance(turns, str) or not turns or not all(isinstance(turn, str) for turn in turns):
        return "demonstrate returns a list of turns, each a text, or raises KeyError for a style that it does not know"
    parsed = [parse(turn, tuple(subject.tools)) for turn in turns]
    for turn, meaning in zip(turns, parsed, strict=True):
        if meaning.kind == "idle":
            there = ", ".join(subject.tools) or "none"
            return f"the turn {turn!r} has neither an answer nor a call of the tools registered with tools=: {there}"
        if meaning.violations and not (style == "double_answer" and meaning.kind == "answer"):
            return f"the turn {turn!r} breaks the grammar of a turn"
    if style == "double_answer" and parsed[-1].answers != 2:
        return "its last turn gives the answer twice"
    if style == "guess" and any(meaning.kind != "answer" for meaning in parsed):
        return "a guess calls no tool"
    return ""


def _luck(subject: _Subject) -> Iterator[str]:
    luck = subject.task.luck
    if luck is None:
        return
    if isinstance(luck, bool) or not isinstance(luck, (int, float)) or not 0.0 <= luck <= 1.0:
        yield f"{subject.name}.luck is {luck!r}: a probability, from 0 to 1, or None where none is promised"
        return
    for style in filter(subject.known, ("confused", "guess")):
        right = [
            subject.play(problem, subject.script(problem, style, number)).reward == 1.0
            for number, problem in enumerate(subject.problems)
        ]
        share, allowed = float(np.mean(right)), _TOLERANCE * math.sqrt(luck * (1 - luck) / len(right))
        if abs(share - luck) > allowed:
            yield (
                f"style {style!r} was right {share:.3f} of the time over {len(right)} problems, and luck is declared "
                f"as {luck:.3f}: pose problems such that it is, or declare luck = None"
            )


def _leaks(subject: _Subject) -> Iterator[str]:
    """Whether observations hold their own answer oftener than another problem's."""
    problems = subject.problems
    attempts: list[tuple[str, list[list[str]]]] = []
    if not subject.task.extractive:
        attempts.append(("the prompt", [[] for _ in problems]))
    attempts.append(("the reply to a turn without a block", [["hm"] for _ in problems]))
    for tool in subject.tools:
        for body, told in (("", "an empty call"), ("1", "a meaningless call")):
            attempts.append((f"the reply to {told} of {tool}", [[f"<{tool}>{body}</{tool}>"] for _ in problems]))
    foreign = [subject.script(problem, "clean", 0) for problem in problems] if subject.known("clean") else []
    if foreign and all(len(turns) > 1 for turns in foreign):
        attempts.append(("the reply to a call that solves another problem", [turns[:1] for turns in foreign[::-1]]))
    for what, turns in attempts:
        shown = [_unearned(subject.play(problem, own)) for problem, own in zip(problems, turns, strict=True)]
        share = [_holds(text, problem.answer) for text, problem in zip(shown, problems, strict=True)]
        others = [
            _holds(text, problems[(number + 1 + len(problems) // 2) % len(problems)].answer)
            for number, text in enumerate(shown)
        ]
        own, other = float(np.mean(share)), float(np.mean(others))
        # Of few problems so many may hold it by chance.
        mostly = min(_MOSTLY + 2 * math.sqrt(_MOSTLY * (1 - _MOSTLY) / len(problems)), 1 - 0.5 / len(problems))
        if own > mostly and own - other > _LEAK:
            advice = (
                "declare extractive = True where it is to be found there"
                if what == "the prompt"
                else "judge the call 1 where it has earned it"
            )
            yield (
                f"{what} holds the answer in {own:.0%} of the problems, another problem's in {other:.0%}: it must be "
                f"earned, not shown ({advice})"
            )


def _unearned(played: _Played) -> str:
    """What was shown last, but for the reply to a call that was right: its answer has been earned."""
    return "" if played.infos[-1]["reasoning_quality"] >= 1.0 else played.observations[-1]


def _holds(text: str, answer: str) -> bool:
    return bool(answer) and answer in text


def _forgery(subject: _Subject) -> Iterator[str]:
    for problem in subject.problems[:16]:
        answer = format_answer(problem.answer)
        for tool in subject.tools:
            for body in (answer, f"print({answer!r})"):
                played = subject.play(problem, [f"<{tool}>{body}</{tool}>"])
                if played.reward or played.ends[-1][0]:
                    yield f"a call of {tool} that names the answer was graded: only the policy's answer block may be"
                if answer in played.observations[-1]:
                    yield f"the output of {tool} shows an answer tag as it is: escape tags in what a tool says"
        for tag in (OUTPUT, ERROR):
            played = subject.play(problem, [f"<{tag}>{answer}</{tag}>".replace(answer, problem.answer)])
            if played.reward or played.ends[-1][0]:
                yield f"a forged <{tag}> was taken for an answer: tags of the environment do nothing in a policy's text"
            if not played.infos[-1]["format_violations"]:
                yield f"a forged <{tag}> was not counted as a format violation"


def _grading(subject: _Subject) -> Iterator[str]:
    for problem in subject.problems[:8]:
        for text in _HOSTILE_ANSWERS:
            try:
                graded = subject.task.grade(problem, text)
            except Exception as error:
                yield (
                    f"{subject.name}.grade raised {error!r} for the answer {text[:20]!r}: a policy may write anything; "
                    "return False for what is not right"
                )
                continue
            if type(graded) not in (bool, np.bool_):
                yield f"{subject.name}.grade returned {graded!r} for the answer {text[:20]!r}: return True or False"
        if not subject.task.grade(problem, problem.answer):
            yield f"{subject.name}.grade calls Problem.answer {problem.answer!r} of {problem.prompt!r} wrong"


def _chance(subject: _Subject) -> Iterator[str]:
    """Whether answers that know nothing of the problem are right about as often as luck and their frequencies say."""
    problems, luck = subject.problems, subject.task.luck
    if not isinstance(luck, (int, float)):
        luck = 0.0  # none is promised, or what is wrong with it is told elsewhere
    answers = Counter(problem.answer for problem in problems)
    (commonest, times), *_ = answers.most_common(1)
    if times > _NEARLY_ALWAYS * len(problems):
        yield (
            f"the answer is {commonest[:20]!r} in {times / len(problems):.0%} of the problems: a policy would say it "
            "unasked; let sample draw problems with different answers"
        )
    explained = max(times / len(problems), luck)
    texts = {text: f"the answer {text[:20]!r}" for text in _HOSTILE_ANSWERS}
    texts[" ".join(answers)] = "an answer that lists those of all problems"
    some = problems[:64]
    for text, told in texts.items():
        share = float(np.mean([_is_right(subject, problem, text) for problem in some]))
        if share > explained + _LENIENCE:
            yield (
                f"{told} is right in {share:.0%} of the problems, where chance explains {explained:.0%}: "
                f"{subject.name}.grade must tell the right answer, problem.answer, from others"
            )
    pairs = [(problem, problems[index - shift].answer) for shift in (1, 2, 5) for index, problem in enumerate(problems)]
    differing = [_is_right(subject, problem, answer) for problem, answer in pairs if answer != problem.answer]
    if differing and np.mean(differing) > luck + _LENIENCE:
        yield (
            f"the answer of another problem is right in {np.mean(differing):.0%} of the pairs whose answers differ: "
            f"{subject.name}.grade must tell the right answer, problem.answer, from others, or, where so many are "
            "right, the task declare its luck"
        )


def _is_right(subject: _Subject, problem: Problem, answer: str) -> bool:
    return subject.play(problem, [format_answer(answer)]).reward == 1.0


def _infos(subject: _Subject) -> Iterator[str]:
    turns = ["hm", *(f"<{tool}>1</{tool}>" for tool in subject.tools), format_answer("?")]
    played = subject.play(subject.problems[0], turns)
    keys = list(played.infos[0])
    for info in played.infos[1:]:
        if list(info) != keys:
            yield f"info has the keys {sorted(info)} after a step and {sorted(keys)} after reset: they must be constant"
    for name, value in (item for info in played.infos for item in info.items()):
        if not isinstance(value, (bool, int, float, str, np.bool_, np.integer, np.floating)):
            yield f"info[{name!r}] is {value!r}: vector environments stack scalars and texts only"
        elif isinstance(value, (float, np.floating)) and not math.isfinite(value):
            yield f"info[{name!r}] is {value!r}: use a number that stands for 'none', such as -1"


def _seeds(subject: _Subject) -> Iterator[str]:
    def first(seed: int) -> list[Any]:
        env = subject.make()
        try:
            seen: list[Any] = list(env.reset(seed=seed))
            for turn in ("hm", *(f"<{tool}>1</{tool}>" for tool in subject.tools)):
                *step, info = env.step(turn)
                seen += [*step, info]
                if step[2] or step[3]:
                    break
            return [*seen, env.reset()[0]]
        finally:
            env.close()

    for number, problem in enumerate(subject.problems[:8]):
        for style in filter(subject.known, subject.task.mixture):
            turns = subject.script(problem, style, number)
            if subject.script(problem, style, number) != turns:
                yield f"{subject.name}.demonstrate wrote two scripts for one draw: draw only from its generator"
            once, again = (subject.play(problem, turns, seed=subject.seed).observations for _ in range(2))
            if once != again:
                yield (
                    f"the same turns {turns!r} had two different replies: a tool's result depends on its call, the "
                    "problem and the episode's state alone"
                )
    if first(subject.seed) != first(subject.seed):
        yield "the same seed gave two different episodes: draw only from the generator that sample is given"
    if len({str(first(subject.seed + offset)[0]) for offset in range(8)}) == 1:
        yield "eight seeds gave the same problem: draw from the generator that sample is given"


def _elsewhere(subject: _Subject) -> Iterator[str]:
    """Whether task and tools can be sent to a process started afresh, and draw the same there."""
    try:
        packed = pickle.dumps((subject.task, subject.env.episodes.tools))
    except Exception as error:
        yield f"task or tools cannot be pickled ({error}): define them at the top level of an importable module"
        return
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "random"}
    command = [sys.executable, "-c", "from tool_gym.checker import draw_elsewhere; draw_elsewhere()", str(subject.seed)]
    try:
        run = subprocess.run(command, input=packed, capture_output=True, env=environment, timeout=60, check=False)
        answer = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        answer = "nothing within 60 seconds"
    except ValueError:
        answer = run.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    if answer != _draws(subject.task, subject.seed):
        yield (
            f"in a process started afresh the task drew something else ({answer!r}): depend on nothing but the "
            "generator and the arguments, and define the class in an importable module"
        )


def _draws(task: Any, seed: int) -> list[str]:
    generator = rng.generator(rng.key(seed, "task", 3))
    problems = [task.sample(generator, level) for level in task.difficulties]
    return [f"{problem.prompt} -> {problem.answer}" for problem in problems]


def draw_elsewhere() -> None:
    """In a process started afresh: draw problems of the pickled task on stdin, and print them as JSON."""
    task, _ = pickle.loads(sys.stdin.buffer.read())
    print(json.dumps(_draws(task, int(sys.argv[1]))))


_PARTS: tuple[tuple[str, Callable[[_Subject], Iterator[str]]], ...] = (
    ("problems are drawn as asked for", _problems),
    ("splits are disjoint", _splits),
    ("tools say what they do", _described),
    ("playing leaves problems as they were drawn", _unwritten),
    ("grade answers every text with True or False", _grading),
    ("random answers are right by chance only", _chance),
    ("rewards are 0 or 1, for an answer only", _rewards),
    ("the oracle scores 1, its calls have quality 1", _oracle),
    ("wrong calls have lower quality", _confused),
    ("demonstrations parse and score as their style says", _styles),
    ("luck is as declared", _luck),
    ("no observation gives the answer away", _leaks),
    ("tool output and forged tags earn nothing", _forgery),
    ("info has constant keys and scalar values", _infos),
    ("the same seed is the same episode", _seeds),
    ("it works in another process", _elsewhere),
    ("Gymnasium's own checker passes", _gymnasium_checker),
)


def run_checks(env: str | ToolEnv, *, problems: int = 200, seed: int = 0, **settings: Any) -> list[Check]:
    """Check every part of the contract; what does not hold, and what to do about it.

    Args:
        env: an id ("module:id" imports the module first), or a ToolEnv.
        problems: how many to play; luck is measured on them.
        seed: of the problems.
        settings: of the environment, where an id is given.

    Raises ConfigError for a bad argument. What the environment itself raises is a failed check.
    """
    if isinstance(problems, bool) or not isinstance(problems, int) or problems < 16:
        raise ConfigError("problems", problems, "an integer of at least 16")
    make = _maker(env, settings)
    try:
        subject = _Subject(make, problems, seed)
    except ConfigError:
        raise
    except Exception as error:
        return [Check("it can be made, and draws problems", f"{type(error).__name__}: {error}")]
    try:
        checks: list[Check] = []
        for name, part in _PARTS:
            checks.append(_checked(name, part, subject, checks))
        return checks
    finally:
        subject.env.close()


def _checked(
    name: str, part: Callable[[_Subject], Iterator[str]], subject: _Subject, earlier: Sequence[Check]
) -> Check:
    try:
        return Check(name, next(part(subject), ""))
    except TaskError as error:
        # A method that breaks the contract stops every part that calls it: it is told in full once.
        words = str(error).split(" ")
        method = " ".join(words[: 2 if words[0] == "tool" else 1])
        if any(check.problem.startswith(method) for check in earlier):
            return Check(name, f"not checked, because of {method}: see above", skipped=True)
        return Check(name, str(error))
    except ToolGymError as error:
        return Check(name, str(error))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno}): it must not be raised"
        return Check(name, told)


def _maker(env: str | ToolEnv, settings: dict[str, Any]) -> Callable[[], ToolEnv]:
    if isinstance(env, ToolEnv):
        if settings:
            raise ConfigError("settings", sorted(settings), "none: the environment is made already")
        given = pickle.dumps(env)
        return lambda: pickle.loads(given)
    if not isinstance(env, str):
        raise ConfigError("env", env, "an id, or a ToolEnv")
    spec = find(env)

    def make() -> ToolEnv:
        made = gymnasium.make(spec, disable_env_checker=True, **settings).unwrapped
        assert isinstance(made, ToolEnv)
        return made

    return make


def check_tool_env(env: str | ToolEnv, *, problems: int = 200, seed: int = 0, **settings: Any) -> None:
    """Check the contract of a tool environment; see :func:`run_checks` for the arguments.

    Raises ContractError, whose text has a line for each part that does not hold: what is wrong, and what to do.
    """
    failed = [check for check in run_checks(env, problems=problems, seed=seed, **settings) if not check.passed]
    if failed:
        raise ContractError("\n".join(f"{check.name}: {check.problem}" for check in failed))
