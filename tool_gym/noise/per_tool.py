"""Another noise for each tool."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tool_gym import rng
from tool_gym.errors import ConfigError
from tool_gym.noise.draws import Bools, Floats, Ints
from tool_gym.noise.faults import Fault
from tool_gym.noise.models import Calls, NoiseModel, NoNoise

_OTHERS = "*"


class PerToolNoise(NoiseModel):
    """A noise model for each of some tools, and one for the others.

        PerToolNoise({"search": IIDNoise(0.5), "python": BurstNoise(0.1, 4)})

    A tool with a model of its own has outages of its own, and, with a running reference, a reference of its own.

    Args:
        models: by the name of the tool, one at least.
        default: of tools that are not named; None: they never fail.

    Where the tool is not known (``draw``, ``fault_probability``, ``rate``, ``observe``) it is the default that answers.

    Raises ConfigError for anything else; an environment refuses one that names a tool which it does not have.
    """

    name = "per_tool"

    def __init__(self, models: Mapping[str, NoiseModel], default: NoiseModel | None = None) -> None:
        default = NoNoise() if default is None else default
        given = dict(models) if isinstance(models, Mapping) else {}
        if not given or not all(isinstance(model, NoiseModel) for model in given.values()):
            raise ConfigError("models", models, "a NoiseModel for each of some tools, by name")
        if not isinstance(default, NoiseModel):
            raise ConfigError("default", default, "a NoiseModel")
        self.models = given
        self.default = default
        self.rate, self.faults = default.rate, default.faults

    def draw(self, qualities: Floats, keys: rng.UInt64s, calls: Ints) -> Bools:
        return self.default.draw(qualities, keys, calls)

    def fault_probability(self, quality: float) -> float:
        return self.default.fault_probability(quality)

    def strike(self, calls: Calls) -> list[Fault | None]:
        faults: list[Fault | None] = [None] * len(calls)
        for name, rows in self._by_tool(calls.tools):
            part = self._part(calls, name, rows)
            for row, fault in zip(rows.tolist(), self._model(name).strike(part), strict=True):
                faults[row] = fault
        return faults

    def observe(self, qualities: npt.ArrayLike) -> None:
        self.default.observe(qualities)

    def observe_calls(self, qualities: npt.ArrayLike, tools: Sequence[str]) -> None:
        qualities = np.asarray(qualities)
        for name, rows in self._by_tool(tools):
            self._model(name).observe_calls(qualities[rows], [tools[row] for row in rows])

    def check_tools(self, names: Sequence[str]) -> None:
        for name, model in self.models.items():
            if name not in names:
                raise ConfigError(
                    "noise", f"a model for the tool {name}", f"models for {', '.join(names) or 'no tool'}"
                )
            model.check_tools(names)
        self.default.check_tools(names)

    def state(self) -> dict[str, npt.NDArray[np.float64]]:
        return {
            f"{name}/{key}": value
            for name in (*self.models, _OTHERS)
            for key, value in self._model(name).state().items()
        }

    def load_state(self, state: Mapping[str, npt.ArrayLike]) -> None:
        names = (*self.models, _OTHERS)
        parts: dict[str, dict[str, npt.ArrayLike]] = {name: {} for name in names}
        for key, value in state.items():
            name, slash, rest = key.partition("/")
            if not slash or name not in parts:
                raise ConfigError("noise state", key, f"that of one of {', '.join(names)}")
            parts[name][rest] = value
        # Into copies, so that a state of which one part is refused changes nothing.
        loaded = {name: copy.deepcopy(self._model(name)) for name in names}
        for name, model in loaded.items():
            model.load_state(parts[name])
        self.default = loaded.pop(_OTHERS)
        self.models = loaded

    def _model(self, name: str) -> NoiseModel:
        return self.models.get(name, self.default)

    def _by_tool(self, tools: Sequence[str]) -> list[tuple[str, npt.NDArray[np.int64]]]:
        """The rows of each tool that has a model of its own, and those of the others."""
        rows: dict[str, list[int]] = {}
        for row, tool in enumerate(tools):
            rows.setdefault(tool if tool in self.models else _OTHERS, []).append(row)
        return [(name, np.array(own, dtype=np.int64)) for name, own in rows.items()]

    def _part(self, calls: Calls, name: str, rows: npt.NDArray[np.int64]) -> Calls:
        outages = calls.outage_keys[rows]
        if name != _OTHERS:
            outages = rng.fold(outages, zlib.crc32(name.encode()))
        tools = [calls.tools[row] for row in rows.tolist()]
        return Calls(calls.qualities[rows], calls.keys[rows], calls.numbers[rows], outages, tools)

    def __repr__(self) -> str:
        return f"PerToolNoise({self.models}, default={self.default})"
