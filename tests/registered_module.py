"""Registers an environment on import, as a user's own module does; used through the "module:id" form."""

import tool_gym
from tests.episode_fakes import Echo, Sums

tool_gym.register("tests/Imported-v0", task=Sums, tools=(Echo(),), max_turns=3, kwargs={"offset": 2, "noise": "iid"})
