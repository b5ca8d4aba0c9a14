"""What all tests share."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from agents import coldstart
from agents.setup import Setup
from tests.tiny import tiny_config

# As in a run, and so that two test processes do not fight for two cores.
torch.set_num_threads(1)

# The same examples each time: a test that fails fails again.
settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")

# Runs of tests measure the reference of their noise on fewer calls: 4,096 would take most of the time.
coldstart.REFERENCE_CALLS = 256
coldstart.REFERENCE_EPISODES = 128


@pytest.fixture(scope="session")
def tiny_cold_starts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Puts the cold starts of tiny_config with seeds 0 and 1 into a folder for runs; they are made once."""
    made = tmp_path_factory.mktemp("cold")
    for seed in (0, 1):
        setup = Setup.open(tiny_config(made, **{"run.seed": seed}))
        try:
            coldstart.cold_start(setup)
        finally:
            setup.close()

    def put(folder: Path) -> Path:
        shutil.copytree(made / ".cache", folder / ".cache")
        return folder

    return put
