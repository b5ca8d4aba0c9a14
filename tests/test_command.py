"""Command lines that cannot be read end with one line that says what is wrong."""

from __future__ import annotations

import pytest

from agents.command import UsageError, parse
from agents.config import Config
from experiments.sweep import SweepConfig


@pytest.mark.parametrize(
    ("kind", "words", "told"),
    [
        (SweepConfig, "quick --set run.steps", "Error parsing --set: Failed to parse key-value pairs"),
        (SweepConfig, "quick --seeds x", "--seeds: Could not find valid parse for arguments: ['x']"),
        (SweepConfig, "quick --executor", "Missing value for argument '--executor'"),
        (SweepConfig, "quick --stack 1.5", "Error parsing --stack: invalid literal"),
        (Config, "--stepss 4", "Unrecognized options: --stepss, 4; Perhaps you meant: --steps"),
        (Config, "--run.steps four", "--run.steps"),
    ],
)
def test_the_line_says_which_word_is_wrong_and_why(kind: type, words: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(kind, words.split())
    line = str(error.value)
    assert told in line
    assert "\n" not in line
    assert "full helptext" not in line
