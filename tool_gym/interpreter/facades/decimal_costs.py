"""What operations on decimal numbers cost, and how long the numbers may be.

Costs are in steps of 0.1 µs and were measured on libmpdec, whose words hold 19 digits. Products of w words take
w²/16 below some thousand digits and 16·w beyond, square roots 2·w², and the series behind exp, ln and powers w³.
A number has at most as many digits as the longest integer.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable

from ..meter import METER
from ..values import BIG, LEAST

DIGITS_PER_WORD = 19
_STATIC_WORDS = 4  # those that every number has room for
_BASE_SIZE = decimal.Decimal(1).__sizeof__()
_LONG = 400  # words beyond which divisions take more than two products
_LONGEST_EXPONENT = 40  # bits of an exponent to which raising can neither overflow nor be exact


def words_of(number: decimal.Decimal) -> int:
    """An upper bound on the words of a number's digits, from the memory that it has."""
    return max(_STATIC_WORDS, (number.__sizeof__() - _BASE_SIZE) >> 3)


def _most_digits() -> int:
    """Digits that a number may have: those of the longest integer."""
    return int(METER.integer_bits * math.log10(2)) + 1


def check_digits(count: int) -> None:
    if count > _most_digits():
        METER.too_big(f"a decimal number of {count} digits (at most {_most_digits()})")


def product(a: int, b: int) -> int:
    return min(a * b >> 4, (a + b) << 3)


def linear(words: list[int], precision: int) -> int:
    return 6 + ((sum(words) + precision) >> 5)


def multiplying(words: list[int], precision: int) -> int:
    return 6 + product(words[0], words[-1]) + (sum(words) >> 5)


def dividing(words: list[int], precision: int) -> int:
    longest = max(max(words), precision)
    return 6 + (product(longest, words[-1]) << (1 if longest < _LONG else 2))


def rooting(words: list[int], precision: int) -> int:
    longest = max(words[0], precision)
    return 20 + 2 * longest**2


def in_series(words: list[int], precision: int) -> int:
    longest = max(words[0], precision)
    return 220 + (5 * longest**3 >> 2)


def adding_and_multiplying(words: list[int], precision: int) -> int:
    return multiplying(words[:2], precision) + linear(words, precision)


Cost = Callable[[list[int], int], int]


def charge_power(base: decimal.Decimal, exponent: decimal.Decimal, precision: int) -> None:
    """Before ``base ** exponent``: squarings for an integral exponent, else a logarithm and an exponential.

    Squares of a short number are short until they reach the precision, which is given in words.
    """
    if not base.is_finite() or not exponent.is_finite():
        METER.charge(10)
        return
    words = words_of(base)
    size = min(max(exponent.adjusted() + 1, 0), (words + precision) * DIGITS_PER_WORD + _LONGEST_EXPONENT)
    longest = precision + size // DIGITS_PER_WORD + 1
    if exponent == exponent.to_integral_value():
        digits = len(base.as_tuple().digits) if words == _STATIC_WORDS else words * DIGITS_PER_WORD
        growing = (longest * DIGITS_PER_WORD // digits).bit_length()
        bits = int(exponent).bit_length() if size < _LONGEST_EXPONENT else (size * 10 // 3) + 1
        rounds = 2 * max(0, bits - growing) + 3
        METER.charge(20 + rounds * (1 + product(longest, longest) + (words_of(exponent) >> 3)))
    else:
        longest = max(longest, words, words_of(exponent))
        METER.charge(600 + (3 * longest**3 >> 1))


def charge_modular_power(base: decimal.Decimal, exponent: decimal.Decimal, modulus: decimal.Decimal) -> None:
    """Before ``base ** exponent % modulus``: all three are written out as integers."""
    for number in (base, exponent, modulus):
        if not number.is_finite():
            METER.charge(10)
            return
        digits = max(number.adjusted(), 0) + 1
        check_digits(digits)
        METER.charge(8 + (digits >> 2))
    words = max(words_of(modulus), max(modulus.adjusted(), 0) // DIGITS_PER_WORD + 1)
    METER.charge((max(exponent.adjusted(), 0) * 10 // 3 + 4) * (4 + 4 * product(words, words)))


def charge_integer(value: int) -> None:
    """Before an integer becomes decimal digits: quadratic."""
    if not LEAST < value < BIG:
        METER.charge((value.bit_length() >> 6) ** 2 >> 4)


def check_written(number: decimal.Decimal) -> None:
    """Before a number is written out as an integer: its size, and a quadratic conversion."""
    if number.is_finite() and number:
        digits = max(number.adjusted(), 0) + 1
        bits = digits * 10 // 3 + 1
        METER.check_bits(bits)
        METER.charge(2 + ((bits >> 6) ** 2 >> 3) + (words_of(number) >> 5))


def check_ratio(number: decimal.Decimal) -> None:
    """Before numerator and denominator are written out."""
    if not number.is_finite():
        return
    METER.charge(words_of(number) << 1)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    bits = (abs(exponent) + words_of(number) * DIGITS_PER_WORD) * 10 // 3
    METER.check_bits(bits if bits > 1 << 14 else 0)
    METER.charge(6 + ((bits >> 6) ** 2 >> 1))


def places_of(precision: int) -> int:
    return precision // DIGITS_PER_WORD + 1
