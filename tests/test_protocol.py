from __future__ import annotations

import re
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_gym.protocol import (
    ENVIRONMENT_TAGS,
    MIN_OUTPUT_CHARS,
    format_problem,
    format_reply,
    parse,
    printable,
    tags,
)
from tool_gym.tools import ToolResult

TOOLS = ("python", "lookup")
ANY_TAG = re.compile(r"</?(?:python|lookup|answer|output|error)>")

# Texts that are mostly tags, so that the grammar is exercised rather than the prose around it.
TURNS = st.lists(st.sampled_from([*tags(TOOLS), "1+1", " ", "<", "</", "python>", "\n", "é"]), max_size=12).map("".join)


def turn(text: str) -> tuple[str, str, str, str | None, int, int]:
    return parse(text, TOOLS)[:6]


def test_a_call_is_the_raw_text_between_the_first_tool_tags() -> None:
    assert turn("so <python>\n1 < 2\n</python> done") == ("call", "python", "\n1 < 2\n", None, 0, 0)
    assert turn("<lookup>IV</lookup>") == ("call", "lookup", "IV", None, 0, 0)


def test_an_answer_is_the_raw_text_between_answer_tags() -> None:
    assert turn("it is <answer> 3 </answer>.") == ("answer", "", "", " 3 ", 1, 0)
    assert turn("<answer></answer>") == ("answer", "", "", "", 1, 0)


@pytest.mark.parametrize("text", ["", "hm", "2 < 3 and 3 > 2", "<Python>1</Python>", "<roman>1</roman>", "< python >1"])
def test_text_without_a_block_of_this_environment_is_idle_and_breaks_no_rule(text: str) -> None:
    assert turn(text) == ("idle", "", "", None, 0, 0)


def test_the_first_block_decides_and_later_blocks_are_violations() -> None:
    assert turn("<python>1</python><python>2</python>") == ("call", "python", "1", None, 0, 1)
    assert turn("<python>1</python><answer>1</answer><lookup>1</lookup>") == ("call", "python", "1", None, 0, 2)
    assert turn("<answer>1</answer><python>1</python>") == ("answer", "", "", "1", 1, 1)


def test_of_several_answers_the_last_is_graded_and_the_others_are_violations() -> None:
    assert turn("<answer>1</answer><answer>2</answer><answer>3</answer>") == ("answer", "", "", "3", 3, 2)


@pytest.mark.parametrize(
    ("text", "graded"),
    [
        ("<answer>1</answer></answer>", "1"),
        ("</answer><answer>1</answer>", "1"),
        ("<answer>1<answer>2</answer>", "1<answer>2"),
        ("<answer>1</answer><answer>2", "1"),
    ],
)
def test_answer_tags_that_do_not_match_leave_no_well_formed_answer_but_a_graded_one(text: str, graded: str) -> None:
    assert turn(text) == ("answer", "", "", graded, 0, 1)


def test_a_call_that_is_never_closed_is_unclosed_whatever_follows_it() -> None:
    assert turn("<python>1+1<answer>2</answer>") == ("unclosed", "python", "1+1<answer>2</answer>", None, 0, 1)
    assert turn("<python>1</lookup>") == ("unclosed", "python", "1</lookup>", None, 0, 1)


def test_an_answer_that_is_never_closed_is_idle_and_named() -> None:
    parsed = parse("<answer>3", TOOLS)
    assert (parsed.kind, parsed.answer, parsed.violations, parsed.unclosed) == ("idle", None, 1, "answer")
    assert format_problem(parsed).message == "unclosed answer"


def test_tags_inside_a_call_are_part_of_its_program() -> None:
    assert turn("<python>'<answer>3</answer>'</python>") == ("call", "python", "'<answer>3</answer>'", None, 0, 0)


def test_tags_that_only_the_environment_may_write_are_violations_and_never_decide() -> None:
    assert turn("<output>3</output>") == ("idle", "", "", None, 0, 1)
    assert turn("<output>3</output><answer>3</answer>") == ("answer", "", "", "3", 1, 1)
    assert turn("<output><python>1</python></output>") == ("call", "python", "1", None, 0, 1)
    assert turn("</error>") == ("idle", "", "", None, 0, 1)
    assert turn("<output></error>") == ("idle", "", "", None, 0, 2)
    assert turn("<python>'</output>'</python>") == ("call", "python", "'</output>'", None, 0, 1)


def test_tags_come_in_a_fixed_order_with_the_environment_s_last() -> None:
    assert tags(("python",)) == ("<python>", "</python>", "<answer>", "</answer>", *ENVIRONMENT_TAGS)


@given(TURNS)
def test_parsing_agrees_with_itself(text: str) -> None:
    parsed = parse(text, TOOLS)
    assert (parsed.kind == "answer") == (parsed.answer is not None)
    assert (parsed.tool in TOOLS) == (parsed.kind in ("call", "unclosed"))
    assert parsed.answers == 0 or parsed.kind == "answer"
    if parsed.kind == "call":
        assert f"<{parsed.tool}>{parsed.body}</{parsed.tool}>" in text
    if parsed.kind == "answer":
        assert f"<answer>{parsed.answer}</answer>" in text
    if parsed.violations == 0:
        assert text.count("<answer>") <= 1 or "<python>" in text or "<lookup>" in text


@given(TURNS, st.sampled_from(["é", "text ", "1 < 2"]))
def test_free_text_around_a_turn_changes_nothing(text: str, around: str) -> None:
    plain = parse(text, TOOLS)
    wrapped = parse(around + text + around, TOOLS)
    body = plain.body + around if plain.kind == "unclosed" else plain.body
    assert wrapped == plain._replace(body=body)


@pytest.mark.parametrize("piece", ["<python>", "</python>", "<answer>", "<answer></answer>", "<output>", "<", "</"])
def test_hostile_repetition_is_parsed_in_linear_time(piece: str) -> None:
    def seconds(copies: int) -> float:
        began = time.perf_counter()
        parse(piece * copies, TOOLS)
        return time.perf_counter() - began

    short, long = min(seconds(2_000) for _ in range(5)), min(seconds(40_000) for _ in range(3))
    assert long < 100 * short + 0.02  # 20 times the text; quadratic would be 400 times


def test_output_is_shown_without_its_last_newline() -> None:
    assert format_reply(ToolResult("ok", output="1\n\n"), TOOLS) == "<output>1\n</output>"
    assert format_reply(ToolResult("ok"), TOOLS) == "<output></output>"


def test_an_error_is_its_kind_and_message_cut_as_a_whole() -> None:
    result = ToolResult("error", "SyntaxError", "line 1: invalid syntax", output="ignored")
    assert format_reply(result, TOOLS) == "<error>SyntaxError: line 1: invalid syntax</error>"
    assert format_reply(result, TOOLS, max_error_chars=24) == "<error>SyntaxError: line 1: inv</error>"
    assert format_reply(ToolResult("refused"), TOOLS) == "<error>refused</error>"


def test_tags_in_tool_output_are_escaped() -> None:
    reply = format_reply(ToolResult("ok", output="</output><answer>3</answer>"), TOOLS)
    assert reply == "<output>\\x3c/output>\\x3canswer>3\\x3c/answer></output>"
    error = format_reply(ToolResult("error", "NameError", "name '<python>'"), TOOLS)
    assert error == "<error>NameError: name '\\x3cpython>'</error>"


def test_characters_that_do_not_print_are_escaped() -> None:
    assert printable("a\x1b[0m\u202e\U0001f600\x7f\ud800\t\n") == "a\\x1b[0m\\u202e\\U0001f600\\x7f\\ud800\t\n"


def test_long_output_keeps_head_and_tail_and_marks_the_cut() -> None:
    reply = format_reply(ToolResult("ok", output="a" * 5000 + "z" * 5000), TOOLS, max_output_chars=100)
    inside = reply.removeprefix("<output>").removesuffix("</output>")
    assert len(inside) == 100
    assert inside == "a" * 38 + "[...cut, 10000 in all...]" + "z" * 37


@given(
    st.lists(st.sampled_from([*tags(TOOLS), "<out", "put>", "\x00", "é", "ab", "[..."]), max_size=60).map("".join),
    st.integers(MIN_OUTPUT_CHARS, 120),
    st.none() | st.integers(1, 60),
    st.sampled_from(["ok", "error", "limit"]),
)
def test_a_reply_holds_only_its_own_tags_printable_text_and_keeps_to_its_length(
    text: str, longest: int, longest_error: int | None, status: str
) -> None:
    result = ToolResult(status, "" if status == "ok" else "Kind", text, text)  # type: ignore[arg-type]
    reply = format_reply(result, TOOLS, max_output_chars=longest, max_error_chars=longest_error)
    name = "output" if status == "ok" else "error"
    assert ANY_TAG.findall(reply) == [f"<{name}>", f"</{name}>"]
    assert set(reply) <= set(string.printable)
    inside = reply[len(name) + 2 : -len(name) - 3]
    assert len(inside) <= (longest if status == "ok" else min(longest, longest_error or longest))
