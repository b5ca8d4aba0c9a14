"""A wrong value in place of a right one: the output of a call as if some bits of it had flipped on the way."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import numpy as np

from tool_gym import rng

# Group 1 is what changes: the integer part. Group 2 stays: decimals, exponent, a denominator. So a ratio, a decimal
# and a power differ from the true one as surely as an integer does.
_NUMBER = re.compile(r"(?<![\w.])(\d+)((?:\.\d*)?(?:[eE][+-]?\d+)?(?: ?/ ?\d+)?)", re.ASCII)
_BOOLEAN = re.compile(r"\b(?:True|False|true|false)\b")
_WORD = re.compile(r"[A-Za-z]+")
_NOTHING = ("", "None", "null")
_OPPOSITE = {"True": "False", "False": "True", "true": "false", "false": "true"}
# Of a longer number only so many of the last digits change: converting a very long one is slow, or refused.
_DIGITS = 15
_TRIES = 8
_FEW = 16
_BLOCK = 32


def wrong_value(output: str, key: int) -> str:
    """A plausible output that is not the true one, the same for the same ``output`` and ``key`` (64 bits).

    Each number becomes another one below the next power of two, of no more digits, and none that stands in the
    true output; equal numbers stay equal. Without a number, truth values turn round; without these, each letter
    becomes another of the same case; where there is no letter either, and for None, the output is a digit. Text
    around the values stays, so that a list, an object of JSON or a sentence keeps its form.
    """
    uniforms = _uniforms(key)
    if _NUMBER.search(output):
        return _NUMBER.sub(_numbers(output, uniforms), output)
    if _BOOLEAN.search(output):
        return _BOOLEAN.sub(lambda value: _OPPOSITE[value.group()], output)
    if _WORD.search(output) and output.strip() not in _NOTHING:
        return _WORD.sub(_words(output, uniforms), output)
    return str(int(next(uniforms) * 10))


def _uniforms(key: int) -> Iterator[float]:
    for start in itertools.count(0, _BLOCK):
        yield from rng.uniform(key, np.arange(start, start + _BLOCK)).tolist()


def _numbers(output: str, uniforms: Iterator[float]) -> Callable[[re.Match[str]], str]:
    """What each number of ``output`` becomes."""
    found = list(_NUMBER.finditer(output))
    avoided = {_value(number) for number in found}
    if any(output[number.start() - 1 : number.start()] == "-" for number in found):
        avoided.add(0)  # there is no -0 among the integers
    others: dict[int, int] = {}

    def other(number: re.Match[str]) -> str:
        value, digits = _value(number), number[1]
        if value not in others:
            others[value] = _other(value, avoided, uniforms)
        kept, width = digits[:-_DIGITS], min(len(digits), _DIGITS)
        padded = width if digits[0] == "0" or kept else 0
        return f"{kept}{others[value]:0{padded}d}{number[2]}"

    return other


def _value(number: re.Match[str]) -> int:
    return int(number[1][-_DIGITS:])


def _other(value: int, avoided: set[int], uniforms: Iterator[float]) -> int:
    """An integer that is not avoided: near ``value`` in size, so that it is in range wherever ranges are."""
    limit = min(1 << max(1, value.bit_length()), 10 ** len(str(value)))
    while True:
        if limit <= _FEW:
            free = [number for number in range(limit) if number not in avoided]
            if free:
                return free[int(next(uniforms) * len(free))]
        else:
            for drawn in itertools.islice(uniforms, _TRIES):
                if int(drawn * limit) not in avoided:
                    return int(drawn * limit)
        limit *= 2


def _words(output: str, uniforms: Iterator[float]) -> Callable[[re.Match[str]], str]:
    """What each word of ``output`` becomes; none that stands there, as far as there are others."""
    avoided = set(_WORD.findall(output))
    others: dict[str, str] = {}

    def other(word: re.Match[str]) -> str:
        if word[0] not in others:
            for _ in range(_TRIES):
                others[word[0]] = "".join(_other_letter(letter, next(uniforms)) for letter in word[0])
                if others[word[0]] not in avoided:
                    break
        return others[word[0]]

    return other


def _other_letter(letter: str, uniform: float) -> str:
    first = ord("a" if letter.islower() else "A")
    return chr(first + (ord(letter) - first + 1 + int(uniform * 25)) % 26)
