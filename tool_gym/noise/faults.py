"""Faults: their kinds, what the policy sees of each, and mixtures of kinds.

A fault takes the place of the true result of a call that worked. What is seen fits into 24 characters, kind
included, for policies that read a character at a time; a wrong value is about as long as the true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise.draws import DRAWS_PER_CALL, KIND, PERMANENCE, Ints, checked_number
from tool_gym.noise.wrong_values import wrong_value
from tool_gym.tools.base import ToolResult

# Neither digits, letters, brackets nor slashes: garbage cannot be taken for a value or make up a tag.
_GARBAGE = "!#$%&*+=?@^~|;:"
_SHOWN = 8
# Sub-stream of an episode's key: what faults look like.
_TEXT = 0x7E87


def _timeout(result: ToolResult, key: int) -> ToolResult:
    return ToolResult("error", "timeout", "no reply")


def _connection(result: ToolResult, key: int) -> ToolResult:
    return ToolResult("error", "connection", "reset")


def _malformed(result: ToolResult, key: int) -> ToolResult:
    drawn = rng.uniform(key, np.arange(_SHOWN)) * len(_GARBAGE)
    return ToolResult("error", "malformed", "".join(_GARBAGE[int(place)] for place in drawn))


def _truncated(result: ToolResult, key: int) -> ToolResult:
    text = result.output.strip()
    head = text[: min(len(text) // 2, _SHOWN)].partition("\n")[0]
    return ToolResult("error", "truncated", f"{head}...")


def _wrong_value(result: ToolResult, key: int) -> ToolResult:
    return replace(result, output=wrong_value(result.output, key))


FAULTS: Mapping[str, Callable[[ToolResult, int], ToolResult]] = {
    "timeout": _timeout,
    "connection": _connection,
    "malformed": _malformed,
    "truncated": _truncated,
    "wrong_value": _wrong_value,
}
"""Kinds of faults: each maps the true result of a call, and a 64-bit key of draws, to the one delivered."""

KINDS: tuple[str, ...] = tuple(FAULTS)
"""Their names, in a fixed order."""


def apply_fault(kind: str, result: ToolResult, key: int = 0) -> ToolResult:
    """The result that the policy sees when a fault of this kind replaces ``result``; the same for the same key.

    ``timeout``, ``connection`` and ``malformed`` (garbage) say nothing of the true output; ``truncated`` shows at most
    half of its first line, and 8 characters; all four are errors. ``wrong_value`` is silent: the status is ok, and
    the output is another one (:func:`tool_gym.noise.wrong_values.wrong_value`).

    Raises ConfigError for a kind that is not in :data:`FAULTS`.
    """
    if kind not in FAULTS:
        raise ConfigError("fault", kind, ", ".join(FAULTS))
    return FAULTS[kind](result, key)


class Fault(NamedTuple):
    """A fault scheduled for one call.

    Attributes:
        kind: one of KINDS.
        permanent: whether it stays once it has landed: later calls of that tool in that episode that would have
            worked fail in the same way.
        key: 64-bit key of what is seen; a fault that stays keeps it, and so tells the same lie about the same output.
    """

    kind: str
    permanent: bool
    key: int

    def apply(self, result: ToolResult) -> ToolResult:
        """The result that the policy sees in place of the true one."""
        return apply_fault(self.kind, result, self.key)


class FaultMix:
    """What faults look like: a mixture of kinds, and how many of them stay.

        FaultMix("connection")
        FaultMix({"timeout": 0.7, "wrong_value": 0.3}, permanent=0.1)

    Args:
        shares: share of each kind; at least 0, sum 1. A kind alone has all.
        permanent: share of faults, in [0, 1], that stay for the rest of their episode.

    Raises ConfigError, naming the field, for anything else.
    """

    def __init__(self, shares: Mapping[str, float] | str = "timeout", permanent: float = 0.0) -> None:
        self.shares = _checked_shares({shares: 1.0} if isinstance(shares, str) else shares)
        self.permanent = checked_number("permanent", permanent, 0.0, 1.0)
        self._kinds = list(self.shares)
        self._bounds = np.cumsum(list(self.shares.values()))

    def draw(self, keys: rng.UInt64s, calls: Ints) -> list[Fault]:
        """The faults of N struck calls, from their episodes' keys and their numbers there, both of shape (N,)."""
        calls = np.asarray(calls)
        first = DRAWS_PER_CALL * calls
        # Rounding may leave the last bound below 1.
        kinds = np.searchsorted(self._bounds[:-1], rng.uniform(keys, first + KIND), side="right").tolist()
        stays = (rng.uniform(keys, first + PERMANENCE) < self.permanent).tolist()
        texts = rng.fold(keys, _TEXT, calls).tolist()
        return [Fault(self._kinds[k], stay, text) for k, stay, text in zip(kinds, stays, texts, strict=True)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FaultMix) and (self.shares, self.permanent) == (other.shares, other.permanent)

    def __hash__(self) -> int:
        return hash((*self.shares.items(), self.permanent))

    def __repr__(self) -> str:
        shares = repr(self._kinds[0] if len(self._kinds) == 1 else self.shares)
        return f"FaultMix({shares}, permanent={self.permanent})" if self.permanent else f"FaultMix({shares})"


def _checked_shares(shares: Any) -> dict[str, float]:
    """Shares in the order of KINDS, without those that are 0."""
    if not isinstance(shares, Mapping) or not shares:
        raise ConfigError("faults", shares, f"a kind ({', '.join(KINDS)}), or the share of each kind")
    for kind in shares:
        if kind not in FAULTS:
            raise ConfigError("faults", kind, ", ".join(KINDS))
    checked = {kind: checked_number(f"faults.{kind}", shares[kind], 0.0, 1.0) for kind in KINDS if kind in shares}
    if not math.isclose(sum(checked.values()), 1.0, abs_tol=1e-9):
        raise ConfigError("faults", dict(shares), "shares that sum to 1")
    return {kind: share for kind, share in checked.items() if share > 0.0}


TIMEOUTS = FaultMix()
"""What faults look like where nothing else is asked for."""


def checked_mix(faults: Any) -> FaultMix:
    """Raises ConfigError for what is no FaultMix."""
    if not isinstance(faults, FaultMix):
        raise ConfigError("faults", faults, "a FaultMix")
    return faults
