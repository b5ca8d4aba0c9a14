"""What one call may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of one call. All but ``wall_seconds`` and ``memory_bytes`` are deterministic."""

    steps: int = 1_000_000
    """Loop iterations, function calls and comprehension steps, with extra charges for costly operations."""
    integer_bits: int = 2**18
    """Largest integer that arithmetic may produce."""
    items: int = 1_000_000
    """Largest length of a list, tuple, set or dict."""
    characters: int = 2**27
    """Largest length of a string. Every 256 characters made cost a step, so that the step budget binds first."""
    output_chars: int = 10_000
    """Output kept of a call; head and tail are kept, the cut is marked and flagged."""
    source_chars: int = 20_000
    """Longest program."""
    memory_bytes: int = 1 << 30
    """Address space that a call may add to a worker (RLIMIT_AS): a backstop."""
    wall_seconds: float = 5.0
    """A call that runs longer is killed from outside: a backstop behind the step budget."""
