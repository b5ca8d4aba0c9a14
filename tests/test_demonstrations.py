"""Demonstrations: scripts meet real replies, injected faults are retried, and the reference is repeatable."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_gym import rng
from tool_gym.episodes import Episodes, EpisodeSpec
from tool_gym.errors import ConfigError, InfrastructureError, TaskError
from tool_gym.interpreter import InterpreterPool
from tool_gym.noise import IIDNoise, NoiseModel
from tool_gym.tasks import Arithmetic, Problem
from tool_gym.tasks.demonstrations import Demonstration, play_demonstrations, reference_qualities, sample_styles
from tool_gym.tasks.evaluator import trace
from tool_gym.tools import ToolCall, ToolResult

TASK = Arithmetic()
PROBLEM = TASK.problem((3, 4, 2, 1), "+*-")
STYLES = ("clean", "confused", "slip_then_fix", "slip_then_guess", "guess", "double_answer")
TIMEOUT = "<error>timeout: no reply</error>"


class Pending:
    """Results of a batch, handed out at most ``step`` at a time from the end, as tools that race might."""

    def __init__(self, results: list[ToolResult], step: int) -> None:
        self.results, self.step = list(enumerate(results)), step

    @property
    def remaining(self) -> int:
        return len(self.results)

    def take(self, block: bool = False) -> list[tuple[int, ToolResult]]:
        taken = [self.results.pop() for _ in range(min(self.step, len(self.results)))]
        return taken


class LocalPool:
    """Evaluates single expressions in this process."""

    def __init__(self, step: int = 10_000) -> None:
        self.step = step

    def submit(
        self, codes: Sequence[str], *, inputs: None = None, echo: bool = False, sessions: None = None
    ) -> Pending:
        return Pending([self.run(code) for code in codes], self.step)

    def run(self, code: str) -> ToolResult:
        try:
            tree = ast.parse(code, mode="eval")
        except SyntaxError as error:
            return ToolResult("error", "SyntaxError", str(error.msg))
        return ToolResult("ok", output=repr(eval(compile(tree, "", "eval"), {"__builtins__": {}})))


class LosingPool(LocalPool):
    def run(self, code: str) -> ToolResult:
        return ToolResult("infrastructure", "worker", "lost")


class FirstCallsFail(NoiseModel):
    """Strikes the first ``n`` calls of every episode."""

    name, rate = "first", 0.0

    def __init__(self, n: int) -> None:
        self.n = n

    def draw(self, qualities, keys, calls):
        return np.asarray(calls) < self.n

    def fault_probability(self, quality: float) -> float:
        raise NotImplementedError


def play(style: str, noise: NoiseModel | None = None, max_turns: int = 5, problem: Problem = PROBLEM) -> Demonstration:
    episodes = Episodes(TASK, noise=noise, max_turns=max_turns, pool=LocalPool())
    return play_demonstrations(episodes, [problem], [style], [1])[0]


def play_many(n: int, noise: NoiseModel, pool: LocalPool | None = None, seed: int = 0) -> list[Demonstration]:
    problems = TASK.sample_many(np.random.default_rng(seed), [3, 4] * (n // 2), "train")
    styles = [STYLES[i % len(STYLES)] for i in range(n)]
    episodes = Episodes(TASK, noise=noise, pool=pool or LocalPool())
    return play_demonstrations(episodes, problems, styles, rng.key(seed, "cold_start", np.arange(n)))


def transcript(one: Demonstration) -> tuple[list[str], list[str], list[str]]:
    return one.turns, one.observations, [call.fault for call in one.record.calls]


# -- playing


def test_a_demonstration_holds_its_turns_and_their_replies():
    one = play("clean")
    assert one.problem is PROBLEM
    assert one.style == "clean"
    assert one.turns == ["<python>(((3+4)*2)-1)%10</python>", "<answer>3</answer>"]
    assert one.observations == ["<output>3</output>", ""]
    assert one.record.success
    assert one.record.turns == 2


def test_an_error_of_the_policy_s_own_is_shown_and_the_script_goes_on():
    one = play("slip_then_fix")
    assert one.observations[0].startswith("<error>SyntaxError: ")
    assert one.observations[1:] == ["<output>3</output>", ""]
    assert [call.origin for call in one.record.calls] == ["policy", ""]


def test_a_guess_makes_no_call():
    one = play("guess")
    assert len(one.turns) == 1
    assert one.observations == [""]
    assert one.record.calls == []


def test_a_turn_struck_by_a_fault_is_played_again():
    one = play("clean", FirstCallsFail(1))
    call, answer = play("clean").turns
    assert one.turns == [call, call, answer]
    assert one.observations == [TIMEOUT, "<output>3</output>", ""]
    assert one.record.success


def test_a_turn_is_played_again_as_often_as_leaves_room_for_the_rest_of_the_script():
    call, answer = play("clean").turns
    for max_turns in (2, 3, 4, 5):
        one = play("clean", FirstCallsFail(10), max_turns)
        assert one.turns == [call] * (max_turns - 1) + [answer]
        assert one.observations == [TIMEOUT] * (max_turns - 1) + [""]
        assert one.record.success


def test_a_slip_is_not_played_again_but_the_fix_after_it_is():
    slip, fix, answer = play("slip_then_fix").turns
    one = play("slip_then_fix", FirstCallsFail(10))
    assert one.turns == [slip, fix, fix, fix, answer]
    assert [call.origin for call in one.record.calls] == ["policy", "injected", "injected", "injected"]


def test_a_script_longer_than_the_budget_is_cut_off_by_it():
    one = play("slip_then_fix", max_turns=2)
    assert len(one.turns) == len(one.observations) == 2
    assert one.record.answer is None


@pytest.mark.parametrize("style", STYLES)
def test_turns_and_observations_have_one_length(style):
    one = play(style, FirstCallsFail(2))
    assert len(one.turns) == len(one.observations) == one.record.turns


def test_demonstrations_come_in_the_order_of_their_problems():
    played = play_many(60, IIDNoise(0.3), LocalPool(step=1))
    problems = TASK.sample_many(np.random.default_rng(0), [3, 4] * 30, "train")
    assert [one.problem for one in played] == problems
    assert [one.record.problem for one in played] == problems
    assert [one.style for one in played] == [STYLES[i % len(STYLES)] for i in range(60)]


def test_a_demonstration_is_a_function_of_its_problem_style_and_key_alone(monkeypatch):
    expected = [transcript(one) for one in play_many(120, IIDNoise(0.3))]
    assert [transcript(one) for one in play_many(120, IIDNoise(0.3), LocalPool(step=3))] == expected
    assert [transcript(one) for one in play_many(60, IIDNoise(0.3))] == expected[:60]
    monkeypatch.setattr("tool_gym.tasks.demonstrations._BATCH", 7)
    assert [transcript(one) for one in play_many(120, IIDNoise(0.3))] == expected


def test_scripts_differ_between_keys():
    episodes = Episodes(TASK, pool=LocalPool())
    played = play_demonstrations(episodes, [PROBLEM] * 50, ["slip_then_guess"] * 50, np.arange(50))
    assert len({one.turns[0] for one in played}) > 5
    assert len({one.turns[1] for one in played}) > 5


def test_faults_fall_at_their_rate_on_eligible_calls_only():
    calls = [call for one in play_many(3000, IIDNoise(0.3)) for call in one.record.calls]
    eligible = [call for call in calls if call.eligible]
    assert np.mean([call.fault != "" for call in eligible]) == pytest.approx(0.3, abs=0.03)
    assert not any(call.fault for call in calls if not call.eligible)


def test_unequal_lengths_are_refused():
    episodes = Episodes(TASK, pool=LocalPool())
    for problems, styles, keys in [([PROBLEM], [], [1]), ([PROBLEM], ["clean"], [1, 2]), ([PROBLEM], ["clean"], 1)]:
        with pytest.raises(ConfigError, match="equal lengths"):
            play_demonstrations(episodes, problems, styles, keys)


def test_nothing_to_play_is_nothing_played():
    assert play_demonstrations(Episodes(TASK, pool=LocalPool()), [], [], np.zeros(0, np.uint64)) == []


def test_an_unknown_style_is_refused():
    with pytest.raises(ConfigError, match="style"):
        play("sloppy")


def test_busy_episodes_are_refused():
    episodes = Episodes(TASK, pool=LocalPool())
    ids = episodes.begin([EpisodeSpec(PROBLEM, 1)])
    episodes.submit(ids, ["<answer>3</answer>"])
    with pytest.raises(ConfigError, match="in flight"):
        play_demonstrations(episodes, [PROBLEM], ["clean"], [1])


def test_a_script_that_never_answers_is_the_task_s_fault():
    class Speechless(Arithmetic):
        def demonstrate(self, problem, rng, style):
            return super().demonstrate(problem, rng, style)[:1]

    with pytest.raises(TaskError, match=r"Speechless\.demonstrate: .*'clean'"):
        play_demonstrations(Episodes(Speechless(), pool=LocalPool()), [PROBLEM], ["clean"], [1])


# -- styles


def test_styles_follow_their_shares():
    styles = sample_styles(TASK.mixture, rng.uniform(rng.fold(0), np.arange(20_000)))
    for style, share in TASK.mixture.items():
        assert styles.count(style) / 20_000 == pytest.approx(share, abs=0.012)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any), st.floats(0, 1, exclude_max=True))
def test_a_style_without_a_share_is_never_drawn(weights, uniform):
    mixture = {str(i): weight / sum(weights) for i, weight in enumerate(weights)}
    (style,) = sample_styles(mixture, [uniform])
    assert mixture[style] > 0


def test_styles_are_drawn_by_inverse_cdf_in_the_mixture_s_order():
    mixture = {"a": 0.25, "b": 0.0, "c": 0.5, "d": 0.25}
    assert sample_styles(mixture, [0.0, 0.2499, 0.25, 0.7499, 0.75, 1 - 2**-53]) == ["a", "a", "c", "c", "d", "d"]
    assert sample_styles(mixture, []) == []


@pytest.mark.parametrize("mixture", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 0.9, "b": 0.2}, {"a": float("nan")}])
def test_shares_that_are_no_distribution_are_refused(mixture):
    with pytest.raises(ConfigError, match="mixture"):
        sample_styles(mixture, [0.5])


# -- the reference


def test_reference_qualities_are_repeatable_and_a_longer_one_extends_a_shorter():
    long = reference_qualities(TASK, ["python"], LocalPool(), size=1500)
    assert long.shape == (1500,)
    assert reference_qualities(TASK, ["python"], LocalPool(step=5), size=400).tolist() == long[:400].tolist()
    assert reference_qualities(TASK, ["python"], LocalPool(), size=400, seed=1).tolist() != long[:400].tolist()


def test_reference_qualities_are_those_of_the_default_mixture():
    qualities = reference_qualities(TASK, ["python"], LocalPool(), size=3000)
    assert qualities.min() == 0.0
    # Right code is that of clean (.05) and slip_then_fix (.15), confused code .55 of the demonstrations.
    assert np.mean(qualities == 1.0) == pytest.approx(0.2 / 0.75, abs=0.03)


def test_reference_qualities_of_chosen_difficulties_are_multiples_of_their_step():
    qualities = reference_qualities(TASK, ["python"], LocalPool(), size=500, difficulties=(4,))
    assert set(qualities * 4) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_a_mixture_without_calls_has_no_reference():
    class Guesser(Arithmetic):
        mixture = {"guess": 1.0}  # noqa: RUF012

    with pytest.raises(TaskError, match="Guesser: demonstrations made 0 eligible calls; 10 are needed"):
        reference_qualities(Guesser(), ["python"], LocalPool(), size=10)


def test_a_lost_call_spoils_the_reference():
    with pytest.raises(InfrastructureError, match="lost"):
        reference_qualities(TASK, ["python"], LosingPool(), size=10)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 2.5}, {"difficulties": ()}, {"difficulties": (3, 9)}])
def test_bad_sizes_and_difficulties_are_refused(options):
    with pytest.raises(ConfigError) as caught:
        reference_qualities(TASK, ["python"], LocalPool(), **options)
    assert caught.value.field in options


# -- with the real interpreter


@pytest.fixture(scope="module")
def pool():
    with InterpreterPool(workers=1) as pool:
        yield pool


def test_the_real_interpreter_plays_the_same_demonstrations(pool):
    real, local = play_many(120, IIDNoise(0.3), pool), play_many(120, IIDNoise(0.3))
    assert [one.turns for one in real] == [one.turns for one in local]
    # Only the wording of an error may differ.
    for ours, theirs in zip(real, local, strict=True):
        assert [text.split(":")[0] for text in ours.observations] == [
            text.split(":")[0] for text in theirs.observations
        ]
        assert [call.quality for call in ours.record.calls] == [call.quality for call in theirs.record.calls]


def test_every_style_shows_what_it_is_meant_to_with_the_real_interpreter(pool):
    for one in play_many(120, IIDNoise(0.0), pool):
        outcomes = [call.result.kind or "ok" for call in one.record.calls]
        expected = {"clean": ["ok"], "confused": ["ok"], "guess": [], "double_answer": ["ok"]}
        expected |= {"slip_then_fix": ["SyntaxError", "ok"], "slip_then_guess": ["SyntaxError"]}
        assert outcomes == expected[one.style]
        right = one.style in ("clean", "slip_then_fix", "double_answer")
        assert not right or (one.record.success and one.record.calls[-1].quality == 1.0)
        assert all(len(text) <= len("<error></error>") + 24 for text in one.observations)


@pytest.mark.parametrize(
    "code", ["(((3+4)*2)-1", "x = 3 +* 4", " 3+4", "\tprint(3+4)", "3+4\n  5", "(3+4", "1" * 30_000, "__x__ = 3+4"]
)
def test_what_the_real_interpreter_rejects_has_no_quality(pool, code):
    result = pool.run(code, echo=True)
    assert not result.ok
    assert TASK.reasoning_quality(PROBLEM, [(ToolCall("python", code), result)]) == 0.0


@pytest.mark.parametrize(
    "code",
    ["(3+4)*2-1", "x = 3+4\nx *= 2\nx -= 1\nprint(x)", "\n(3+4)*2-1\n", "print((3+4)*2-1, end='')", "x = (3+4)*2; x-1"],
)
def test_the_evaluator_sees_the_value_that_the_real_interpreter_shows(pool, code):
    result = pool.run(code, echo=True)
    traced = trace(code, 10)
    assert traced is not None
    assert result.output.strip() == str(traced.shown)
    assert TASK.reasoning_quality(PROBLEM, [(ToolCall("python", code), result)]) == 1.0
