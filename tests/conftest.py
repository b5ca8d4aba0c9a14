"""What all tests share."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

from agents import coldstart

# As in a run, and so that two test processes do not fight for two cores.
torch.set_num_threads(1)

# The same examples each time: a test that fails fails again.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")


@pytest.fixture(autouse=True, scope="session")
def _small_reference() -> None:
    """Runs of tests measure the reference of their noise on fewer calls: 4,096 would take most of the time."""
    coldstart.REFERENCE_CALLS = 256
    coldstart.REFERENCE_EPISODES = 128
