"""Faults: what each kind looks like, wrong values that are never right, and mixtures drawn by key."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tool_gym import rng
from tool_gym.errors import ConfigError, ToolGymError
from tool_gym.noise import FAULTS, KINDS, FaultMix, apply_fault
from tool_gym.noise.draws import DRAWS_PER_CALL, FAULT, KIND, PERMANENCE, TIE
from tool_gym.noise.wrong_values import wrong_value
from tool_gym.protocol import format_reply, parse, tags
from tool_gym.tools import ToolResult

ERRORS = [kind for kind in KINDS if kind != "wrong_value"]
EVERY = st.sampled_from(KINDS)
KEYS = st.integers(0, 2**64 - 1)
# What tools say: anything, and the values that programs end with.
VALUES = st.one_of(
    st.integers(),
    st.integers(-20, 20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.fractions(),
    st.booleans(),
    st.lists(st.integers(0, 9), max_size=6),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 99)),
)
OUTPUTS = st.one_of(st.text(max_size=60), VALUES.map(str), st.lists(VALUES.map(str), max_size=4).map("\n".join))


def seen(kind: str, output: str, key: int = 0) -> ToolResult:
    return apply_fault(kind, ToolResult("ok", output=output, steps=3), key)


# -- what is seen


@pytest.mark.parametrize("kind", ERRORS)
def test_a_fault_is_an_error_of_its_kind_and_hides_what_the_call_returned(kind: str) -> None:
    result = seen(kind, "4711")
    assert (result.status, result.kind, result.output) == ("error", kind, "")
    assert "4711" not in result.message


def test_every_kind_looks_like_what_it_is() -> None:
    assert seen("timeout", "3") == ToolResult("error", "timeout", "no reply")
    assert seen("connection", "3") == ToolResult("error", "connection", "reset")
    assert re.fullmatch(r"[^\w\s<>/]{8}", seen("malformed", "3").message)
    assert seen("truncated", "123456\n").message == "123..."
    assert seen("truncated", "3\n").message == seen("truncated", "").message == "..."
    assert seen("truncated", "ab\ncdefgh").message == "ab..."
    assert seen("truncated", "x" * 100).message == "x" * 8 + "..."
    assert seen("wrong_value", "47\n").ok


@given(st.sampled_from(["timeout", "connection", "malformed"]), OUTPUTS, OUTPUTS, KEYS)
def test_faults_that_show_nothing_do_not_depend_on_the_true_output(kind: str, one: str, other: str, key: int) -> None:
    assert seen(kind, one, key).message == seen(kind, other, key).message


@given(EVERY, OUTPUTS, KEYS)
@example("truncated", "<output>1</output>" * 3, 0)
@example("wrong_value", "<answer>", 0)
def test_what_is_seen_is_short_printable_and_holds_no_tag(kind: str, output: str, key: int) -> None:
    names = ("python", "lookup")
    reply = format_reply(seen(kind, output, key), names, max_output_chars=1000, max_error_chars=24)
    tag, inside, end = re.fullmatch(r"(<\w+>)(.*)(</\w+>)", reply, re.DOTALL).groups()  # type: ignore[union-attr]
    assert (tag, end) == (("<output>", "</output>") if kind == "wrong_value" else ("<error>", "</error>"))
    assert not any(tag in inside for tag in tags(names))
    assert re.fullmatch(r"[\t-\r -~]*", inside)
    assert parse(inside, names).kind == "idle"
    if kind != "wrong_value":
        uncut = format_reply(seen(kind, output, key), names, max_output_chars=1000)
        assert inside.startswith(kind)
        assert output.isprintable() is False or "<" in output or uncut == reply


@given(EVERY, OUTPUTS, KEYS)
def test_what_is_seen_is_a_function_of_kind_result_and_key(kind: str, output: str, key: int) -> None:
    assert seen(kind, output, key) == seen(kind, output, key)


def test_garbage_and_wrong_values_vary_with_the_key() -> None:
    assert len({seen("malformed", "3", key).message for key in range(50)}) > 40
    assert {seen("wrong_value", "5", key).output for key in range(200)} == set("0123467")


def test_an_unknown_fault_is_refused_with_the_known_ones_named() -> None:
    with pytest.raises(ToolGymError, match=r"fault: got 'earthquake'; allowed: .*timeout"):
        apply_fault("earthquake", ToolResult("ok"))


# -- wrong values


@given(OUTPUTS, KEYS)
@example("", 0)
@example("None\n", 0)
@example("0\n1", 0)
@example("a b c d e f g h i j k l m n o p q r s t u v w x y z", 0)
@example("9" * 5000, 0)
@example("10e4 1e5", 0)
def test_a_wrong_output_is_never_the_true_one(output: str, key: int) -> None:
    wrong = wrong_value(output, key)
    assert wrong != output
    assert wrong.strip() != output.strip()


@given(VALUES, KEYS)
def test_a_wrong_value_is_a_value_of_the_same_type_and_never_equal_to_the_true_one(value: Any, key: int) -> None:
    wrong = wrong_value(str(value), key)
    number, slash, denominator = wrong.partition("/")
    if slash:
        assert int(number) * value.denominator != int(denominator) * value.numerator
        return
    read = ast.literal_eval(wrong)
    if value in ([], {}):
        assert type(read) is int  # there is nothing in it that could be another
        return
    assert type(read) in (type(value), int if hasattr(value, "numerator") else type(value))
    assert read != value
    if isinstance(value, list):
        assert len(read) == len(value)
        assert not set(read) & set(value)
    if isinstance(value, dict):
        assert read.keys() == value.keys()
        assert not set(read.values()) & set(value.values())


@given(st.integers(2, 64).filter(lambda answers: answers & (answers - 1) == 0) | st.just(10), st.data(), KEYS)
def test_a_wrong_value_is_in_range_where_the_range_is_a_power_of_two_or_the_digits(
    answers: int, data: st.DataObject, key: int
) -> None:
    value = data.draw(st.integers(0, answers - 1))
    assert int(wrong_value(str(value), key)) in set(range(answers)) - {value}


def test_every_other_value_below_the_next_power_of_two_is_as_likely() -> None:
    counts = np.bincount([int(wrong_value("12", key)) for key in range(15_000)], minlength=16)
    assert counts[12] == 0
    assert np.abs(np.delete(counts, 12) - 1000).max() < 150


@pytest.mark.parametrize(
    ("output", "form"),
    [
        ("3 apples and 3 pears", r"(\d+) apples and \1 pears"),
        ('{"ok": true, "n": "x"}', r'\{"ok": false, "n": "x"\}'),
        ("-7", "-[1-6]"),
        ("-0.5", r"-[1-9]+\.5"),
        ("2.50", r"[013]\.50"),
        ("3e+20", r"[012]e\+20"),
        ("3/4", r"[012]/4"),
        ("007", "00[0-6]"),
        ("True", "False"),
        ("Paris", "[A-Z][a-z]{4}"),
        ("a1", "[b-z]1"),
        ("[]", r"\d"),
        ("None", r"\d"),
        ("1" + "0" * 30, r"1000000000000000\d{15}"),
    ],
)
def test_the_form_of_an_output_stays(output: str, form: str) -> None:
    for key in range(30):
        assert re.fullmatch(form, wrong_value(output, key)), wrong_value(output, key)


def test_a_long_output_of_numbers_is_altered_in_a_moment() -> None:
    # 30 ms here; a quadratic pass would take minutes.
    output = " ".join(map(str, range(20_000)))
    wrong = wrong_value(output, 1)
    assert not set(wrong.split()) & set(output.split())


# -- mixtures


def test_the_draws_of_a_call_are_its_own_and_their_places_never_change() -> None:
    assert (DRAWS_PER_CALL, TIE, FAULT, KIND, PERMANENCE) == (4, 0, 1, 2, 3)


def drawn(mix: FaultMix, n: int = 40_000, seed: int = 0) -> list[Any]:
    return mix.draw(rng.key(seed, "noise", np.arange(n)), np.arange(n) % 4)


def test_kinds_come_in_their_shares_and_stay_in_theirs() -> None:
    shares = {"connection": 0.5, "timeout": 0.2, "wrong_value": 0.3}
    faults = drawn(FaultMix(shares, permanent=0.25))
    for kind in KINDS:
        assert np.mean([fault.kind == kind for fault in faults]) == pytest.approx(shares.get(kind, 0), abs=0.01)
        if kind in shares:
            staying = np.mean([fault.permanent for fault in faults if fault.kind == kind])
            assert staying == pytest.approx(0.25, abs=0.015)


def test_the_order_in_which_shares_are_given_means_nothing() -> None:
    one, other = FaultMix({"timeout": 0.4, "truncated": 0.6}), FaultMix({"truncated": 0.6, "timeout": 0.4})
    assert (one, hash(one), repr(one)) == (other, hash(other), repr(other))
    assert drawn(one, 500) == drawn(other, 500)


@given(st.lists(st.tuples(KEYS, st.integers(0, 99)), min_size=1, max_size=20), st.randoms())
def test_a_fault_is_a_function_of_its_episode_s_key_and_the_call_s_number(calls: list[Any], random: Any) -> None:
    mix = FaultMix(dict.fromkeys(KINDS, 0.2), permanent=0.5)

    def faults(order: list[Any]) -> dict[Any, Any]:
        keys = np.array([key for key, _ in order], dtype=np.uint64)
        numbers = np.array([number for _, number in order], dtype=np.int64)
        return dict(zip(order, mix.draw(keys, numbers), strict=True))

    shuffled = random.sample(calls, len(calls))
    assert faults(calls) == faults(shuffled)
    assert faults(calls)[calls[0]] == faults(calls[:1])[calls[0]]


def test_a_share_of_nothing_never_comes_and_one_of_all_always() -> None:
    assert {fault.kind for fault in drawn(FaultMix({"timeout": 0.0, "malformed": 1.0}), 1000)} == {"malformed"}
    assert FaultMix({"timeout": 0.0, "malformed": 1.0}) == FaultMix("malformed")
    assert not any(fault.permanent for fault in drawn(FaultMix(), 1000))
    assert all(fault.permanent for fault in drawn(FaultMix(permanent=1.0), 1000))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda mix: pickle.loads(pickle.dumps(mix))])
def test_a_mixture_survives_pickle_and_deepcopy(duplicate: Any) -> None:
    mix = FaultMix({"timeout": 0.4, "truncated": 0.6}, permanent=0.5)
    assert duplicate(mix) == mix
    assert drawn(duplicate(mix), 100) == drawn(mix, 100)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("earthquake",), "faults"),
        (({},), "faults"),
        ((None,), "faults"),
        ((["timeout"],), "faults"),
        (({"timeout": 0.5},), "faults"),
        (({"timeout": 0.5, "earthquake": 0.5},), "faults"),
        (({"timeout": 1.5, "connection": -0.5},), "faults.timeout"),
        (({"timeout": float("nan")},), "faults.timeout"),
        (({"timeout": "all"},), "faults.timeout"),
        (("timeout", -0.1), "permanent"),
        (("timeout", 1.1), "permanent"),
        (("timeout", None), "permanent"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused_in_one_line(arguments: Any, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FaultMix(*arguments)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_the_kinds_are_those_of_the_mapping_in_its_order() -> None:
    assert tuple(FAULTS) == KINDS == ("timeout", "connection", "malformed", "truncated", "wrong_value")
