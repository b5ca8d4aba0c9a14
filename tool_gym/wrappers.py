"""Wrappers of ToolEnv: a record of every episode that replays byte for byte, and a curriculum of difficulties."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, SupportsFloat, TextIO

import gymnasium
import numpy as np

from tool_gym.env import ToolEnv
from tool_gym.errors import ConfigError, ReplayError
from tool_gym.registration import find
from tool_gym.tasks.base import Problem

FORMAT = 1
_TUPLE = "__tuple__"

# ------------------------------------------------------------------ values as JSON, exactly


def _pack(value: Any, what: str) -> Any:
    """A value as JSON that :func:`_unpack` gives back as it was. Raises ConfigError for what JSON cannot hold."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return {_TUPLE: [_pack(item, what) for item in value]}
    if isinstance(value, list):
        return [_pack(item, what) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value) and _TUPLE not in value:
        return {key: _pack(item, what) for key, item in value.items()}
    raise ConfigError(what, value, "None, numbers, texts, and lists, tuples and dicts of them, to be recorded")


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_TUPLE}:
            return tuple(_unpack(item) for item in value[_TUPLE])
        return {key: _unpack(item) for key, item in value.items()}
    return [_unpack(item) for item in value] if isinstance(value, list) else value


def _tool_env(env: gymnasium.Env[Any, Any]) -> ToolEnv:
    inner = env.unwrapped
    if not isinstance(inner, ToolEnv):
        raise ConfigError("env", type(inner).__name__, "a ToolEnv")
    return inner


# ------------------------------------------------------------------ records


class RecordTrajectories(gymnasium.Wrapper[str, str, str, str]):
    """Writes each episode as a line of JSON: problem, noise key, and every turn with what came of it.

    ``python -m tool_gym replay FILE`` plays the file again and compares it byte for byte, faults included. A line is
    written when its episode ends, is reset, or the environment is closed.

    Args:
        env: made by ``gymnasium.make``, so that it can be made again: with settings that JSON can hold.
        path: the file; lines are added to one that is there.

    Raises ConfigError for an environment that could not be made again, or a problem that JSON cannot hold.
    """

    def __init__(self, env: gymnasium.Env[str, str], path: str | os.PathLike[str]) -> None:
        super().__init__(env)
        self._inner = _tool_env(env)
        if env.spec is None:
            raise ConfigError("env", type(self._inner).__name__, "an environment made by gymnasium.make")
        own = find(env.spec.id).kwargs
        changed = {name: value for name, value in env.spec.kwargs.items() if name not in own or own[name] != value}
        changed.pop("render_mode", None)
        self._settings = {name: _pack(value, name) for name, value in changed.items()}
        self._id = env.spec.id
        self._file: TextIO = Path(path).open("a", encoding="utf-8")  # noqa: SIM115 - open as long as the environment
        self._episode: dict[str, Any] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._write()
        observation, info = self.env.reset(seed=seed, options=options)
        source, problem = self._inner.source, self._inner.problem
        self._episode = {
            "format": FORMAT,
            "env": self._id,
            "settings": self._settings,
            "seed": source.seed,
            "number": source.count - 1,
            "seeded": seed is not None,
            "problem": {
                "prompt": problem.prompt,
                "answer": problem.answer,
                "difficulty": problem.difficulty,
                "data": _pack(dict(problem.data), "problem.data"),
            },
            "observation": observation,
            "info": _pack(info, "info"),
            "steps": [],
        }
        return observation, info

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._episode is not None:
            self._episode["steps"].append(_step(action, observation, reward, terminated, truncated, info))
            if terminated or truncated:
                self._write()
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        self._write()
        self._file.close()
        self.env.close()

    def _write(self) -> None:
        if self._episode is not None:
            self._file.write(json.dumps(self._episode) + "\n")
            self._file.flush()
            self._episode = None


def _step(
    action: str, observation: str, reward: SupportsFloat, terminated: bool, truncated: bool, info: dict[str, Any]
) -> dict[str, Any]:
    return {
        "action": action,
        "observation": observation,
        "reward": float(reward),
        "terminated": terminated,
        "truncated": truncated,
        "info": _pack(info, "info"),
    }


def replay(path: str | os.PathLike[str]) -> int:
    """Play recorded episodes again, in their order, and compare; returns how many there were.

    Raises ConfigError for a file that holds no records, and ReplayError, with line, step and field, where an episode
    does not come out as it was recorded.
    """
    envs: dict[str, ToolEnv] = {}
    count = 0
    with contextlib.ExitStack() as stack:
        for number, record in enumerate(_records(Path(path)), start=1):
            key = json.dumps([record["env"], record["settings"]], sort_keys=True)
            if key not in envs:
                envs[key] = stack.enter_context(contextlib.closing(_make(record)))
            _replay(envs[key], record, f"{path}, line {number}")
            count = number
    if not count:
        raise ConfigError("file", str(path), "a file with at least one recorded episode")
    return count


def _records(path: Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):  # noqa: B007 - named in the error
                record = json.loads(line)
                if record["format"] != FORMAT:
                    raise ValueError(f"format {record['format']}, not {FORMAT}")
                yield record
    except (OSError, ValueError, KeyError, TypeError) as error:
        place = f"{path}, line {number}"
        raise ConfigError("file", place, f"records of RecordTrajectories ({type(error).__name__}: {error})") from error


def _make(record: dict[str, Any]) -> ToolEnv:
    settings = {name: _unpack(value) for name, value in record["settings"].items()}
    return _tool_env(gymnasium.make(find(record["env"]), disable_env_checker=True, **settings))


def _replay(env: ToolEnv, record: dict[str, Any], place: str) -> None:
    told = record["problem"]
    problem = Problem(told["prompt"], told["answer"], told["difficulty"], _unpack(told["data"]))
    if record["seeded"]:
        env.reset(seed=record["seed"])  # noise that learns starts afresh, as it did
    env.source.reseed(record["seed"])
    env.source.count = record["number"]
    observation, info = env.reset(options={"problem": problem})
    _compare(f"{place}, reset", record, {"observation": observation, "info": _pack(info, "info")})
    for index, step in enumerate(record["steps"], start=1):
        _compare(f"{place}, step {index}", step, _step(step["action"], *env.step(step["action"])))


def _compare(place: str, recorded: dict[str, Any], now: dict[str, Any]) -> None:
    """As the file has it: to Python 1, 1.0 and True are equal."""
    for name, value in now.items():
        if json.dumps(recorded[name]) != json.dumps(value):
            raise ReplayError(f"{place}: {name} was {recorded[name]!r} and is {value!r} now")


# ------------------------------------------------------------------ curriculum


class DifficultyCurriculum(gymnasium.Wrapper[str, str, str, str]):
    """Poses the easiest difficulty first, and the next when the last ``window`` episodes were right often enough.

    Options given to ``reset`` come before the curriculum. Episodes lost to the infrastructure do not count.

    Args:
        env: a ToolEnv.
        threshold: share of right episodes that opens the next difficulty, above 0 and at most 1.
        window: how many of the latest episodes at a difficulty are looked at.

    Attributes:
        difficulty: what is posed now.
    """

    def __init__(self, env: gymnasium.Env[str, str], threshold: float = 0.8, window: int = 64) -> None:
        super().__init__(env)
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0.0 < threshold <= 1.0:
            raise ConfigError("threshold", threshold, "a share above 0, at most 1")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise ConfigError("window", window, "an integer of at least 1")
        self._levels = _tool_env(env).task.difficulties
        self._threshold = float(threshold)
        self._level = 0
        self._results: deque[bool] = deque(maxlen=window)

    @property
    def difficulty(self) -> int:
        return self._levels[self._level]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return self.env.reset(seed=seed, options={"difficulty": self.difficulty} if options is None else options)

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if (terminated or truncated) and info["valid_for_training"] and info["difficulty"] == self.difficulty:
            self._results.append(bool(info["success"]))
            full = len(self._results) == self._results.maxlen
            if full and sum(self._results) >= self._threshold * len(self._results):
                self._level = min(self._level + 1, len(self._levels) - 1)
                self._results.clear()
        return observation, reward, terminated, truncated, info
