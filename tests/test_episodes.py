from __future__ import annotations

import copy
import math
import pickle
import re
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.episode_fakes import Echo, FakePending, FakePool, ScriptedNoise, Sums
from tool_gym import rng
from tool_gym.episodes import EpisodeRecord, Episodes, EpisodeSpec, Transition
from tool_gym.errors import ConfigError, InfrastructureError, TaskError, ToolGymError
from tool_gym.noise import KINDS, BurstNoise, FaultMix, IIDNoise, NoiseModel
from tool_gym.protocol import tags
from tool_gym.tasks.base import History, Problem
from tool_gym.tools import Finished, Tool, ToolRequest, ToolResult

PROBLEM = Problem("3+4", "7", difficulty=2)
# Faults of every kind, many of them to stay.
MIX = FaultMix(dict.fromkeys(KINDS, 0.2), permanent=0.3)
MIXED = [IIDNoise(0.5, faults=MIX), BurstNoise(0.5, 2.0, faults=MIX)]
INFO_KEYS = {
    "tool_calls",
    "tool_errors",
    "scheduled_faults",
    "injected_faults",
    "retried_faults",
    "recovered_faults",
    "scheduled_kind",
    "fault_kind",
    "fault_permanent",
    "error_origin",
    "error_kind",
    "reasoning_quality",
    "answers",
    "turns",
    "format_violations",
    "success",
    "valid_for_training",
    "difficulty",
}


def build(**settings: Any) -> Episodes:
    task = settings.pop("task", Sums())
    tools = settings.pop("tools", ("python",))
    return Episodes(task, tools, **{"pool": FakePool(), **settings})


def play(episodes: Episodes, turns: Sequence[str], key: int = 0) -> list[Transition]:
    """The transitions of one episode, which must end with the last turn or not at all."""
    (id_,) = episodes.begin([EpisodeSpec(PROBLEM, key)])
    played: list[Transition] = []
    for turn in turns:
        assert not (played and (played[-1].terminated or played[-1].truncated))
        episodes.submit([id_], [turn])
        played += episodes.collect()
    return played


def call(code: str) -> str:
    return f"<python>{code}</python>"


def test_a_call_is_answered_and_judged_and_the_episode_goes_on() -> None:
    (first,) = play(build(), [call("3+4")])
    assert first[1:5] == ("<output>7</output>", 0.0, False, False)
    assert first.info == {
        "tool_calls": 1,
        "tool_errors": 0,
        "scheduled_faults": 0,
        "injected_faults": 0,
        "retried_faults": 0,
        "recovered_faults": 0,
        "error_origin": "",
        "error_kind": "",
        "scheduled_kind": "",
        "fault_kind": "",
        "fault_permanent": False,
        "reasoning_quality": 1.0,
        "answers": 0,
        "turns": 1,
        "format_violations": 0,
        "success": False,
        "valid_for_training": True,
        "difficulty": 2,
    }


def test_a_right_answer_terminates_with_reward_one_and_a_wrong_one_with_zero() -> None:
    (right,), (wrong,) = play(build(), ["<answer>7</answer>"]), play(build(), ["<answer>8</answer>"])
    assert right[1:5] == ("", 1.0, True, False)
    assert right.info["success"] is True
    assert right.info["reasoning_quality"] == -1.0
    assert wrong[1:5] == ("", 0.0, True, False)
    assert (wrong.record.answer, wrong.record.success) == ("8", False)


def test_what_a_tool_printed_is_never_graded() -> None:
    last = play(build(max_turns=2), [call("say <answer>7</answer>"), call("7")])[-1]
    assert (last.reward, last.terminated, last.truncated) == (0.0, False, True)


def test_the_budget_counts_turns_and_the_answering_one_may_be_the_last() -> None:
    cut = play(build(max_turns=2), [call("1"), call("2")])[-1]
    assert (cut.terminated, cut.truncated, cut.reward) == (False, True, 0.0)
    assert cut.observation == "<output>2</output>"
    assert cut.record.answer is None
    answered = play(build(max_turns=2), [call("1"), "<answer>7</answer>"])[-1]
    assert (answered.terminated, answered.truncated, answered.reward) == (True, False, 1.0)


def test_an_idle_turn_gets_an_error_and_is_no_call() -> None:
    (idle,) = play(build(), ["hm"])
    assert idle.observation == "<error>FormatError: no block</error>"
    assert (idle.record.idle_turns, idle.info["tool_calls"], idle.info["tool_errors"]) == (1, 0, 0)
    assert (idle.info["error_origin"], idle.info["error_kind"]) == ("policy", "FormatError")


def test_an_unclosed_call_is_a_call_and_an_error_of_quality_zero_that_never_runs() -> None:
    pool = FakePool()
    (unclosed,) = play(build(pool=pool), ["<python>3+4"])
    assert unclosed.observation == "<error>FormatError: unclosed python</error>"
    assert (unclosed.info["tool_calls"], unclosed.info["tool_errors"], unclosed.record.idle_turns) == (1, 1, 0)
    assert unclosed.info["reasoning_quality"] == 0.0
    assert pool.batches == []
    (record,) = unclosed.record.calls
    assert (record.call.body, record.eligible, record.origin, record.turn) == ("3+4", False, "policy", 1)


@pytest.mark.parametrize(
    ("code", "kind", "shown"),
    [
        ("((", "SyntaxError", "SyntaxError: line 1: invalid syntax"),
        ("loop", "steps", "steps: step budget spent"),
        ("escape", "policy", "policy: not allowed"),
    ],
)
def test_a_call_that_fails_by_itself_is_the_policy_s_error(code: str, kind: str, shown: str) -> None:
    (failed,) = play(build(), [call(code)])
    assert failed.observation == f"<error>{shown}</error>"
    assert (failed.info["error_origin"], failed.info["error_kind"]) == ("policy", kind)
    assert (failed.info["tool_errors"], failed.info["injected_faults"]) == (1, 0)


def test_error_texts_are_cut_to_what_the_task_allows() -> None:
    class Terse(Sums):
        max_error_chars = 15

    (failed,) = play(build(task=Terse()), [call("((")])
    assert failed.observation == "<error>SyntaxError: li</error>"


def test_a_fault_replaces_the_result_and_is_told_apart_in_info_only() -> None:
    (struck,) = play(build(noise=IIDNoise(1.0)), [call("3+4")])
    (record,) = struck.record.calls
    assert struck.observation == f"<error>{record.delivered.kind}: {record.delivered.message}</error>"
    assert (record.result.output, record.delivered.ok, record.fault) == ("7", False, "timeout")
    assert (struck.info["error_origin"], struck.info["error_kind"]) == ("injected", "timeout")
    assert (struck.info["tool_errors"], struck.info["injected_faults"]) == (1, 1)
    assert struck.info["reasoning_quality"] == 1.0


def test_only_a_call_that_worked_can_be_struck_but_every_draw_is_recorded() -> None:
    played = play(build(noise=IIDNoise(1.0)), [call("(("), "<python>1", call("1")])
    records = played[-1].record.calls
    assert [record.scheduled for record in records] == [True, True, True]
    assert [record.eligible for record in records] == [False, False, True]
    assert [record.fault for record in records] == ["", "", "timeout"]
    assert [record.origin for record in records] == ["policy", "policy", "injected"]


def test_a_silent_fault_counts_as_injected_but_not_as_an_error() -> None:
    (struck,) = play(build(noise=IIDNoise(1.0, faults=FaultMix("wrong_value"))), [call("3+4")])
    assert re.fullmatch("<output>[0-689]</output>", struck.observation)
    assert (struck.info["injected_faults"], struck.info["tool_errors"], struck.info["error_origin"]) == (1, 0, "")
    assert (struck.info["fault_kind"], struck.info["error_kind"]) == ("wrong_value", "")
    (record,) = struck.record.calls
    assert (record.fault, record.origin, record.result.output, record.quality) == ("wrong_value", "", "7", 1.0)


def test_draws_are_keyed_by_the_episode_and_the_number_of_its_call() -> None:
    noise = ScriptedNoise()
    key = 2**63 + 0b101
    played = play(build(noise=noise), [call("3+4"), "hm", call("1"), "<python>", call("3+4")], key)
    assert [asked for batch in noise.asked for asked in batch] == [
        (1.0, key, 0),
        (0.0, key, 1),
        (0.0, key, 2),
        (1.0, key, 3),
    ]
    assert [record.fault for record in played[-1].record.calls] == ["timeout", "", "", ""]
    assert [record.turn for record in played[-1].record.calls] == [1, 3, 4, 5]


class Scripted(ScriptedNoise):
    """Strikes as the bits of the episode's key say, with faults of a mixture."""

    def __init__(self, faults: FaultMix) -> None:
        super().__init__()
        self.faults = faults


@pytest.mark.parametrize("kind", KINDS)
def test_a_permanent_fault_stays_for_its_tool_and_its_episode(kind: str) -> None:
    noise = Scripted(FaultMix(kind, permanent=1.0))
    episodes = build(noise=noise, tools=("python", Echo()), max_turns=9)
    turns = [call("1+1"), call("3+4"), "<echo>5</echo>", call("(("), call("3+4"), call("1+1")]
    records = play(episodes, turns, key=0b10)[-1].record.calls
    assert [record.fault for record in records] == ["", kind, "", "", kind, kind]
    assert [record.scheduled_kind for record in records] == ["", kind, "", "", "", ""]
    assert [record.permanent for record in records] == [False, True, False, False, True, True]
    assert [record.standing for record in records] == [False, False, False, False, True, True]
    # The same call gets the same answer again, so that asking twice does not give a lie away.
    assert records[4].delivered == records[1].delivered != records[4].result
    (fresh,) = play(episodes, [call("3+4")])
    assert fresh.observation == "<output>7</output>"


def test_a_permanent_fault_that_did_not_land_does_not_stay() -> None:
    noise = Scripted(FaultMix("connection", permanent=1.0))
    played = play(build(noise=noise), [call("(("), "<python>1", call("1")], key=0b11)
    assert [record.scheduled_kind for record in played[-1].record.calls] == ["connection", "connection", ""]
    assert [record.fault for record in played[-1].record.calls] == ["", "", ""]


def test_a_standing_fault_is_stronger_than_a_new_one() -> None:
    shares = dict.fromkeys(KINDS, 0.2)
    for key in range(40):
        played = play(build(noise=IIDNoise(1.0, faults=FaultMix(shares, 0.5))), [call("3+4")] * 4, key)
        records = played[-1].record.calls
        first = next((i for i, record in enumerate(records) if record.permanent), 4)
        assert all(record.fault == record.scheduled_kind for record in records[: first + 1])
        assert all(record.fault == records[first].fault and record.standing for record in records[first + 1 :])
        assert all(record.delivered == records[first].delivered for record in records[first + 1 :])


def test_transient_faults_of_one_call_are_drawn_anew_each_time() -> None:
    lies = set()
    for key in range(30):
        played = play(build(noise=IIDNoise(1.0, faults=FaultMix("wrong_value"))), [call("1000+1")] * 4, key)
        lies |= {tuple(step.observation for step in played)}
    assert all(len(set(lie)) > 1 for lie in lies)
    assert not any("<output>1001</output>" in lie for lie in lies)


def test_the_share_of_faults_with_permanence_is_that_of_the_closed_form() -> None:
    rate, permanent, count = 0.3, 0.4, 3000
    episodes = build(noise=IIDNoise(rate, faults=FaultMix(permanent=permanent)))
    ids = episodes.begin([EpisodeSpec(PROBLEM, int(key)) for key in rng.key(0, "noise", np.arange(count))])
    for number in range(4):
        episodes.submit(ids, [call("3+4")] * count)
        faults = [step.info["fault_kind"] != "" for step in episodes.collect()]
        # Each of the calls before began a fault that stays with probability rate · permanent.
        expected = 1 - (1 - rate) * (1 - rate * permanent) ** number
        assert np.mean(faults) == pytest.approx(expected, abs=0.03)


def test_the_accounts_of_an_episode_say_what_became_of_each_kind_of_fault() -> None:
    noise = Scripted(FaultMix("connection"))
    turns = [call("3+4"), call("(("), call("3+4"), call("3+4"), call("1"), "<answer>7</answer>"]
    played = play(build(noise=noise, max_turns=9), turns, key=0b11111)
    last = played[-1]
    calls = last.record.calls
    assert [record.retry_of for record in calls] == [-1, -1, 0, 2, -1]
    counts = last.record.fault_counts()
    assert tuple(counts) == KINDS
    assert counts["connection"] == (5, 4, 2, 4)
    assert all(counts[kind] == (0, 0, 0, 0) for kind in KINDS if kind != "connection")
    assert [step.info["retried_faults"] for step in played] == [0, 0, 1, 2, 2, 2]
    assert [step.info["scheduled_faults"] for step in played] == [1, 2, 3, 4, 5, 5]
    # Drawn for a call that failed by itself, too, where it does not land.
    assert [step.info["scheduled_kind"] for step in played] == ["connection"] * 5 + [""]
    assert [step.info["fault_kind"] for step in played].count("connection") == 4
    assert [step.info["recovered_faults"] for step in played] == [0, 0, 0, 0, 0, 4]
    wrong = play(build(noise=noise), [call("3+4"), "<answer>1</answer>"], key=1)[-1]
    assert (wrong.record.fault_counts()["connection"], wrong.info["recovered_faults"]) == ((1, 1, 0, 0), 0)


def test_an_error_of_the_policy_s_own_is_retried_too_but_is_no_fault() -> None:
    played = play(build(max_turns=9), [call("(("), call("(("), "<python>1", "<python>1", call("((")])
    assert [record.retry_of for record in played[-1].record.calls] == [-1, 0, -1, -1, 1]
    assert played[-1].info["retried_faults"] == 0


def test_a_call_that_worked_is_not_made_again_but_made() -> None:
    played = play(build(), [call("3+4"), call("3+4")])
    assert [record.retry_of for record in played[-1].record.calls] == [-1, -1]


def test_episodes_of_one_outage_key_meet_the_same_outages_whatever_their_own() -> None:
    def states(outages: list[int | None]) -> list[list[bool]]:
        episodes = build(noise=BurstNoise(0.5, 2.0))
        keys = rng.key(3, "noise", np.arange(len(outages)))
        ids = episodes.begin([EpisodeSpec(PROBLEM, int(key), out) for key, out in zip(keys, outages, strict=True)])
        rows = []
        for _ in range(4):
            episodes.submit(ids, [call("3+4")] * len(ids))
            rows.append([step.info["fault_kind"] != "" for step in episodes.collect()])
        return [list(column) for column in zip(*rows, strict=True)]

    together = [states([step] * 8) for step in range(8)]
    assert all(len({tuple(state) for state in step}) == 1 for step in together)
    assert len({tuple(step[0]) for step in together}) > 3
    alone = states([None] * 40)
    assert len({tuple(state) for state in alone}) > 6
    mixed = states([5, None, 5, None])
    assert mixed[0] == mixed[2] == together[5][0]
    assert mixed[1::2] == alone[1:4:2]


def test_an_infrastructure_failure_truncates_without_reward_and_makes_the_episode_invalid() -> None:
    (lost,) = play(build(noise=IIDNoise(1.0)), [call("lost")])
    assert (lost.reward, lost.terminated, lost.truncated) == (0.0, False, True)
    assert lost.info["valid_for_training"] is False
    assert lost.record.valid is False
    assert (lost.info["error_origin"], lost.info["error_kind"]) == ("infrastructure", "worker")
    assert (lost.info["tool_calls"], lost.info["tool_errors"], lost.info["injected_faults"]) == (1, 0, 0)
    assert lost.info["reasoning_quality"] == -1.0


def test_a_pool_that_cannot_start_makes_episodes_invalid_instead_of_raising() -> None:
    class Broken(FakePool):
        def submit(
            self, codes: Sequence[str], *, inputs: Any = None, echo: bool = False, sessions: None = None
        ) -> FakePending:
            raise InfrastructureError("no worker starts")

    (lost,) = play(build(pool=Broken()), [call("1")])
    assert lost.truncated
    assert lost.record.valid is False
    assert lost.observation == "<error>unavailable: no worker starts</error>"


def test_answers_are_those_of_the_answering_turn_and_zero_where_its_tags_do_not_match() -> None:
    double = play(build(), [call("7") + "<answer>1</answer>", "<answer>1</answer><answer>7</answer>"])[-1]
    assert (double.record.answers, double.record.turns, double.reward) == (2, 2, 1.0)
    assert double.info["format_violations"] == 2
    mismatched = play(build(), ["<answer>7</answer></answer>"])[-1]
    assert (mismatched.record.answers, mismatched.reward) == (0, 1.0)
    assert play(build(max_turns=1), ["<answer>7"])[-1].record.answers == 0


def test_forged_observations_are_violations_and_change_nothing_else() -> None:
    (forged,) = play(build(), ["<output>7</output>" + call("1")])
    assert forged.observation == "<output>1</output>"
    assert forged.info["format_violations"] == 1


def test_info_has_the_same_keys_with_scalars_of_the_same_types_from_beginning_to_end() -> None:
    episodes = build(noise=IIDNoise(0.5))
    (id_,) = episodes.begin([EpisodeSpec(PROBLEM, 5)])
    infos = [episodes.info(id_)]
    infos += [step.info for step in play(episodes, [call("3+4"), "hm", "<python>", "<answer>7</answer>"], 5)]
    infos += [play(episodes, [call("lost")])[-1].info]
    types = {name: type(value) for name, value in infos[0].items()}
    assert types.keys() == INFO_KEYS
    assert set(types.values()) == {int, float, bool, str}
    for info in infos:
        assert {name: type(value) for name, value in info.items()} == types
        assert all(math.isfinite(value) for value in info.values() if not isinstance(value, str))
    assert infos[0]["reasoning_quality"] == -1.0


def test_the_tag_of_a_tool_that_is_not_there_is_text() -> None:
    (without,) = play(build(tools=()), [call("7")])
    assert (without.record.idle_turns, without.record.calls) == (1, [])
    (other,) = play(build(tools=(Echo(),)), ["<echo>hi</echo>"])
    assert other.observation == "<output>hi</output>"


def test_the_calls_of_one_submit_are_one_batch_for_each_tool() -> None:
    pool = FakePool()
    episodes = build(tools=("python", Echo()), pool=pool)
    ids = episodes.begin([EpisodeSpec(PROBLEM, key) for key in range(4)])
    episodes.submit(ids, [call("1"), "<echo>x</echo>", call("2"), "<answer>7</answer>"])
    assert pool.batches == [["1", "2"]]
    observations: dict[int, str] = {}
    while episodes.outstanding:
        observations |= {step.id: step.observation for step in episodes.collect()}
    assert [observations[id_] for id_ in ids] == ["<output>1</output>", "<output>x</output>", "<output>2</output>", ""]


def test_collect_hands_out_what_is_there_and_waits_only_if_asked_to() -> None:
    episodes = build(pool=FakePool(lambda n: [[], [1], [], [0]]))
    ids = episodes.begin([EpisodeSpec(PROBLEM, key) for key in range(3)])
    episodes.submit(ids[:2], [call("1"), call("2")])
    assert (episodes.outstanding, episodes.collect(block=False)) == (2, [])
    episodes.submit(ids[2:], ["<answer>7</answer>"])
    assert [step.id for step in episodes.collect()] == [ids[1], ids[2]]
    assert [step.id for step in episodes.collect()] == [ids[0]]
    assert (episodes.outstanding, episodes.collect()) == (0, [])


def test_a_batch_that_hangs_does_not_hold_up_another() -> None:
    hangs = FakePool(lambda n: [[]] * 50 + [[0]] if len(hangs.batches) == 1 else [[], [0]])
    episodes = build(pool=hangs)
    slow, quick = episodes.begin([EpisodeSpec(PROBLEM, key) for key in range(2)])
    episodes.submit([slow], [call("1")])
    episodes.submit([quick], [call("2")])
    assert [step.id for step in episodes.collect()] == [quick]
    assert [step.id for step in episodes.collect()] == [slow]


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_order_in_which_tools_answer_changes_no_episode(data: st.DataObject) -> None:
    pieces = [call("3+4"), call("(("), call("1+1"), "hm", "<python>1", "<answer>7</answer>", "<answer>1</answer>"]
    scripts = data.draw(st.lists(st.lists(st.sampled_from(pieces), min_size=5, max_size=5), min_size=1, max_size=6))

    noise = data.draw(st.sampled_from([IIDNoise(0.5), *MIXED]))

    def records(shuffled: bool) -> list[EpisodeRecord]:
        def schedule(n: int) -> list[list[int]]:
            if not shuffled:
                return [list(range(n))]
            order = data.draw(st.permutations(range(n)))
            return [[], *([index] for index in order)]

        episodes = build(noise=noise, pool=FakePool(schedule))
        ids = episodes.begin([EpisodeSpec(PROBLEM, 100 + index, index % 2) for index in range(len(scripts))])
        left = {id_: list(script) for id_, script in zip(ids, scripts, strict=True)}
        done: dict[int, EpisodeRecord] = {}
        due = list(ids)
        while len(done) < len(ids):
            episodes.submit(due, [left[id_].pop(0) for id_ in due])
            due = []
            for step in episodes.collect():
                if step.terminated or step.truncated:
                    done[step.id] = step.record
                else:
                    due.append(step.id)
        return [done[id_] for id_ in ids]

    assert records(shuffled=True) == records(shuffled=False)


def test_an_abandoned_episode_is_truncated_and_what_was_in_flight_is_dropped() -> None:
    episodes = build(pool=FakePool(lambda n: [[], list(range(n))]))
    abandoned, kept = episodes.begin([EpisodeSpec(PROBLEM, key) for key in range(2)])
    episodes.submit([abandoned, kept], [call("1"), call("2")])
    (last,) = episodes.abandon([abandoned])
    assert (last.id, last.reward, last.terminated, last.truncated) == (abandoned, 0.0, False, True)
    assert (last.record.valid, last.record.turns, last.record.calls) == (True, 1, [])
    assert episodes.outstanding == 1
    assert [step.id for step in episodes.collect()] == [kept]
    assert episodes.collect() == []
    with pytest.raises(ConfigError, match="running episodes"):
        episodes.submit([abandoned], ["hm"])


def test_abandoning_an_answer_that_is_not_collected_drops_it() -> None:
    episodes = build()
    (id_,) = episodes.begin([EpisodeSpec(PROBLEM, 0)])
    episodes.submit([id_], ["<answer>7</answer>"])
    (last,) = episodes.abandon([id_])
    assert (last.reward, last.truncated, episodes.outstanding, episodes.collect()) == (0.0, True, 0, [])


def test_a_bad_submission_is_refused_as_a_whole() -> None:
    pool = FakePool()
    episodes = build(pool=pool)
    one, two = episodes.begin([EpisodeSpec(PROBLEM, key) for key in range(2)])
    episodes.submit([one], ["hm"])
    bad: list[tuple[list[int], list[Any]]] = [
        ([two], []),
        ([two, two], [call("1")] * 2),
        ([two, one], [call("1")] * 2),  # one is in flight
        ([two, 99], [call("1")] * 2),
        ([two], [7]),
    ]
    for ids, turns in bad:
        with pytest.raises(ConfigError):
            episodes.submit(ids, turns)
    for ids in ([99], [two, two]):
        with pytest.raises(ConfigError):
            episodes.abandon(ids)
    assert (pool.batches, episodes.outstanding) == ([], 1)
    episodes.submit([two], [call("1")])
    assert len(episodes.collect()) == 2


class Faulty(Sums):
    """Breaks its contract in the way it is told to."""

    def __init__(self, method: str, value: Any) -> None:
        super().__init__()
        self.method, self.value = method, value

    def _misbehave(self, method: str, otherwise: Any) -> Any:
        if method != self.method:
            return otherwise
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    def grade(self, problem: Problem, answer: str) -> bool:
        return self._misbehave("grade", True)  # type: ignore[no-any-return]

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        return self._misbehave("reasoning_quality", 0.5)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("grade", ValueError("boom")),
        ("grade", "yes"),
        ("grade", None),
        ("grade", 1),
        ("reasoning_quality", KeyError("boom")),
        ("reasoning_quality", float("nan")),
        ("reasoning_quality", 1.5),
        ("reasoning_quality", -0.1),
        ("reasoning_quality", None),
        ("reasoning_quality", "0.5"),
        ("reasoning_quality", True),
        ("reasoning_quality", np.bool_(True)),
        ("reasoning_quality", 0.5 + 0j),
    ],
)
def test_a_task_that_breaks_its_contract_is_named_with_method_and_value(method: str, value: Any) -> None:
    with pytest.raises(TaskError) as caught:
        play(build(task=Faulty(method, value)), [call("1"), "<answer>3</answer>"])
    message = str(caught.value)
    assert f"Faulty.{method}" in message
    assert "3+4" in message
    if not isinstance(value, Exception) and value is not None:
        assert repr(value) in message


@pytest.mark.parametrize("value", [0, 1, 0.25, np.float32(0.5), np.float64(1.0)])
def test_a_quality_may_be_any_real_number_type(value: Any) -> None:
    (step,) = play(build(task=Faulty("reasoning_quality", value)), [call("1")])
    assert step.info["reasoning_quality"] == float(value)
    assert type(step.info["reasoning_quality"]) is float


def test_the_task_judges_a_call_with_the_true_results_of_those_before_it() -> None:
    seen: list[list[tuple[str, str]]] = []

    class Watching(Sums):
        def reasoning_quality(self, problem: Problem, history: History) -> float:
            seen.append([(made.body, result.status) for made, result in history])
            return 0.0

    play(build(task=Watching(), noise=IIDNoise(1.0)), [call("1"), "<python>2", call("(("), call("lost")])
    assert seen == [[("1", "ok")], [("1", "ok"), ("((", "error")]]


class Misbehaving(Tool):
    name = "odd"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def submit(self, requests: Sequence[Any], pool: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return Finished(self.answer)


@pytest.mark.parametrize(("answer", "said"), [(ValueError("boom"), "boom"), (["7"], "'7'"), ([], "fewer results")])
def test_a_tool_that_breaks_its_contract_is_a_task_error(answer: Any, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        play(build(tools=(Misbehaving(answer),)), ["<odd></odd>"])


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"task": Sums}, "task"),
        ({"tools": "python"}, "tools"),
        ({"tools": ("perl",)}, "tools"),
        ({"tools": ("python", "python")}, "tools"),
        ({"tools": (7,)}, "tools"),
        ({"noise": "iid"}, "noise"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": True}, "max_turns"),
        ({"max_turns": 2.0}, "max_turns"),
        ({"max_output_chars": 39}, "max_output_chars"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["answer", "output", "error", "Py", "1a", "a-b", "", "a>"])
def test_a_tool_name_that_cannot_be_a_tag_of_its_own_is_refused(name: str) -> None:
    tool = Echo()
    tool.name = name
    with pytest.raises(ConfigError) as caught:
        build(tools=(tool,))
    assert caught.value.field == "tool name"


def test_specs_are_checked_before_any_episode_begins() -> None:
    episodes = build()
    bad: list[Any] = ["3+4", EpisodeSpec("3+4", 0), *(EpisodeSpec(PROBLEM, key) for key in (-1, 2**64, 0.5))]  # type: ignore[arg-type]
    bad += [EpisodeSpec(PROBLEM, 0, key) for key in (-1, 2**64, 0.5)]  # type: ignore[arg-type]
    for spec in bad:
        with pytest.raises(ConfigError):
            episodes.begin([EpisodeSpec(PROBLEM, 0), spec])
    assert episodes.begin([EpisodeSpec(PROBLEM, 0)]) == [0]


def test_closing_drops_episodes_and_closes_twice_but_begins_no_more() -> None:
    with build() as episodes:
        (id_,) = episodes.begin([EpisodeSpec(PROBLEM, 0)])
        episodes.submit([id_], [call("1")])
    episodes.close()
    assert (episodes.outstanding, episodes.collect()) == (0, [])
    with pytest.raises(ToolGymError, match="closed"):
        episodes.begin([])


def test_long_output_is_cut_to_the_limit_given() -> None:
    (step,) = play(build(max_output_chars=50), [call("say " + "x" * 500)])
    assert step.observation.startswith("<output>xxx")
    assert len(step.observation) == 50 + len("<output></output>")


def test_running_episodes_survive_pickling_and_copying_but_not_in_flight() -> None:
    episodes = build()
    (id_,) = episodes.begin([EpisodeSpec(PROBLEM, 3)])
    twin = copy.deepcopy(episodes)
    thawed = pickle.loads(pickle.dumps(episodes))
    for one in (episodes, twin, thawed):
        one.submit([id_], ["<answer>7</answer>"])
        assert one.collect()[0].reward == 1.0
    twin.submit(twin.begin([EpisodeSpec(PROBLEM, 3)]), [call("1")])  # the copy runs on the same pool
    with pytest.raises(ToolGymError, match="in flight"):
        copy.deepcopy(twin)


def test_the_work_of_a_turn_stays_small() -> None:
    episodes = build(noise=IIDNoise(0.3))
    count = 400

    def seconds_a_turn() -> float:
        ids = episodes.begin([EpisodeSpec(PROBLEM, key) for key in range(count)])
        began = time.perf_counter()
        episodes.submit(ids, [call("3+4")] * count)
        assert len(episodes.collect()) == count
        took = time.perf_counter() - began
        episodes.abandon(ids)
        return took / count

    # About 20 µs here, the fake pool and task included; the bound allows for a busy machine.
    assert min(seconds_a_turn() for _ in range(5)) < 2e-4


@given(
    st.lists(st.lists(st.sampled_from([*tags(("python",)), "1", "hm", "7"]), max_size=8).map("".join), max_size=5),
    st.sampled_from(MIXED),
)
def test_whatever_a_policy_writes_an_episode_keeps_its_accounts(turns: list[str], noise: NoiseModel) -> None:
    episodes = build(noise=noise, max_turns=5)
    (id_,) = episodes.begin([EpisodeSpec(PROBLEM, 1)])
    for number, turn in enumerate(turns, start=1):
        episodes.submit([id_], [turn])
        (step,) = episodes.collect()
        info, record = step.info, step.record
        assert record.turns == info["turns"] == number
        assert info["tool_calls"] == len(record.calls) <= number
        silent = sum(made.fault == "wrong_value" for made in record.calls)
        assert info["injected_faults"] - silent <= info["tool_errors"] <= info["tool_calls"] - silent
        counts = [sum(column) for column in zip(*record.fault_counts().values(), strict=True)]
        named = ("scheduled_faults", "injected_faults", "retried_faults", "recovered_faults")
        assert counts == [info[name] for name in named]
        assert info["retried_faults"] <= info["injected_faults"] <= info["tool_calls"]
        assert all(made.fault == "" or made.eligible for made in record.calls)
        assert all((made.delivered == made.result) == (made.fault == "") for made in record.calls)
        assert record.idle_turns + len(record.calls) + step.terminated == number
        assert not (step.terminated and step.truncated)
        assert step.reward == float(step.terminated and (record.answer or "").strip() == "7")
        if step.terminated or step.truncated:
            break


class Tally(Tool):
    """Counts its calls in an episode, and knows its problem."""

    name = "tally"

    def submit(self, requests: Sequence[ToolRequest], pool: Any) -> Any:
        for request in requests:
            request.state["count"] = request.state.get("count", 0) + 1
        return Finished([ToolResult("ok", output=f"{r.problem.prompt} {r.state['count']}") for r in requests])


def test_a_tool_knows_the_problem_and_keeps_a_state_of_its_own_in_each_episode() -> None:
    episodes = build(tools=(Tally(),))
    ids = episodes.begin([EpisodeSpec(PROBLEM, 1), EpisodeSpec(PROBLEM, 2)])
    for count in (1, 2):
        episodes.submit(ids, ["<tally></tally>"] * 2)
        seen = [transition.observation for transition in episodes.collect()]
        assert seen == [f"<output>{PROBLEM.prompt} {count}</output>"] * 2
    twin = copy.deepcopy(episodes)
    for one in (episodes, twin):
        one.submit(ids[:1], ["<tally></tally>"])
        assert one.collect()[0].observation == f"<output>{PROBLEM.prompt} 3</output>"


class Dawdling(Sums):
    """Hangs where it is told to."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def _maybe_hang(self, method: str) -> None:
        while self.method == method:
            pass

    def grade(self, problem: Problem, answer: str) -> bool:
        self._maybe_hang("grade")
        return super().grade(problem, answer)

    def reasoning_quality(self, problem: Problem, history: History) -> float:
        self._maybe_hang("reasoning_quality")
        return super().reasoning_quality(problem, history)


@pytest.mark.parametrize(
    ("method", "turn"), [("grade", "<answer>7</answer>"), ("reasoning_quality", "<python>1</python>")]
)
def test_a_task_that_hangs_is_ended_and_named(method: str, turn: str) -> None:
    episodes = build(task=Dawdling(method), task_seconds=0.2)
    episodes.submit(episodes.begin([EpisodeSpec(PROBLEM, 1)]), [turn])
    with pytest.raises(TaskError, match=rf"Dawdling\.{method} \('3\+4'\) has not returned for"):
        episodes.collect()
