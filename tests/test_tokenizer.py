"""Text and tokens: exact in both directions, a tag is one token, and what the policy may never write."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tokenizer import BOS, END, PAD, Tokenizer
from tool_gym.protocol import ENVIRONMENT_TAGS, tags

TOKENIZER = Tokenizer(["python", "lookup"])
PIECES = st.lists(st.one_of(st.sampled_from(tags(["python", "lookup"])), st.text(string.printable, max_size=8)))


@given(PIECES)
def test_decoding_gives_back_every_printable_text(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.lists(st.integers(END + 1, len(TOKENIZER) - 1), max_size=60))
def test_ids_come_back_unless_characters_spell_a_tag(ids: list[int]) -> None:
    text = TOKENIZER.decode(ids)
    again = TOKENIZER.encode(text)
    assert TOKENIZER.decode(again) == text
    spelled = any(text.count(tag) != ids.count(TOKENIZER.encode(tag)[0]) for tag in tags(["python", "lookup"]))
    assert (again == ids) != spelled


def test_a_tag_is_one_token_and_every_token_is_distinct() -> None:
    for tag in tags(["python", "lookup"]):
        assert len(TOKENIZER.encode(tag)) == 1
    assert len(set(TOKENIZER.pieces)) == len(TOKENIZER)
    assert set(string.printable) <= set(TOKENIZER.pieces)


def test_a_text_cannot_bring_in_control_tokens() -> None:
    assert not {PAD, BOS, END} & set(TOKENIZER.encode("<|end|><|pad|><|bos|>"))


def test_only_the_environments_tags_and_padding_are_forbidden() -> None:
    spelled = {TOKENIZER.pieces[number] for number in TOKENIZER.forbidden_ids}
    assert spelled == {"<|pad|>", "<|bos|>", *ENVIRONMENT_TAGS}
    assert END not in TOKENIZER.forbidden_ids


def test_an_unprintable_character_is_named() -> None:
    with pytest.raises(ValueError, match="é"):
        TOKENIZER.encode("caf\u00e9")
