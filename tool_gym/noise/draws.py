"""What noise models share: types of arrays, which draw of a call is for what, and the check of a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tool_gym.errors import ConfigError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]

# Each call owns four consecutive draws of its episode's key: the tie within the rank, whether a fault is
# scheduled, of which kind, and whether it stays. The numbers are part of what a seed means.
DRAWS_PER_CALL = 4
TIE, FAULT, KIND, PERMANENCE = range(DRAWS_PER_CALL)


def checked_number(field: str, value: Any, lowest: float, highest: float) -> float:
    """``value`` as a float. Raises ConfigError unless it is a number in [lowest, highest]."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan
    if not lowest <= number <= highest:
        raise ConfigError(field, value, f"a number in [{lowest:g}, {highest:g}]")
    return number
