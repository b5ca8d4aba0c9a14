"""Records that replay byte for byte, and the curriculum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tool_gym import ToolEnv
from tool_gym.__main__ import main
from tool_gym.errors import ConfigError, ReplayError
from tool_gym.noise import IIDNoise
from tool_gym.wrappers import DifficultyCurriculum, RecordTrajectories, replay

NOISES: list[dict[str, Any]] = [
    {"noise": "none"},
    {"noise": "iid", "noise_rate": 0.5, "faults": {"timeout": 0.5, "wrong_value": 0.5}},
    {"noise": "correlated", "noise_rate": 0.5, "correlation": 0.9, "reference_mode": "running"},
    {"noise": "burst", "noise_rate": 0.5, "mean_burst": 2.0, "permanent": 0.2},
]


def turns(env: gymnasium.Env[str, str]) -> list[str]:
    problem = env.unwrapped.problem  # type: ignore[attr-defined]
    tool = env.unwrapped.episodes.tools[0].name  # type: ignore[attr-defined]
    call = problem.data["path"][0] if tool == "lookup" else "1 + 1"
    return [f"<{tool}>{call}</{tool}>", f"<{tool}>{call}</{tool}>", "hm", f"<answer>{problem.answer}</answer>"]


def record(path: Path, env_id: str, episodes: int = 6, **settings: Any) -> None:
    env = RecordTrajectories(gymnasium.make(env_id, **settings), path)
    for number in range(episodes):
        env.reset(seed=7 if number in (0, 4) else None)
        for turn in turns(env)[: 1 + number % 4]:
            env.step(turn)
    env.close()


@pytest.mark.parametrize("env", ["Arithmetic", "Assignments", "Retrieval"])
@pytest.mark.parametrize("settings", NOISES, ids=lambda settings: str(settings["noise"]))
def test_a_record_replays_byte_for_byte_with_its_faults(env: str, settings: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    record(file, f"tool_gym/{env}-v0", **settings)
    assert replay(file) == 6
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    if settings["noise"] in ("iid", "burst"):
        assert any(step["info"]["injected_faults"] for line in lines for step in line["steps"])


def test_what_comes_out_otherwise_is_named_by_line_step_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "episodes.jsonl"
    record(file, "tool_gym/Arithmetic-v0")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1]["steps"][1]["observation"] = "<output>other</output>"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ReplayError, match=r"line 2, step 2: observation was '<output>other</output>' and is"):
        replay(file)
    assert main(["replay", str(file)]) == 1
    assert "line 2, step 2" in capsys.readouterr().err


def test_the_command_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "episodes.jsonl"
    record(file, "tool_gym/Arithmetic-v0", episodes=2, answers=4)
    assert main(["replay", str(file)]) == 0
    assert "2 episodes came out as they were recorded" in capsys.readouterr().out
    assert main(["replay", str(tmp_path / "none")]) == 2
    (tmp_path / "odd").write_text("{}\n")
    assert main(["replay", str(tmp_path / "odd")]) == 2
    (tmp_path / "empty").write_text("")
    assert main(["replay", str(tmp_path / "empty")]) == 2


def test_an_environment_that_could_not_be_made_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gymnasium\.make"):
        RecordTrajectories(ToolEnv("tool_gym.tasks.arithmetic:Arithmetic"), tmp_path / "x")
    with pytest.raises(ConfigError, match="noise"):
        RecordTrajectories(gymnasium.make("tool_gym/Arithmetic-v0", noise=IIDNoise(0.3)), tmp_path / "x")


def test_the_curriculum_opens_the_next_difficulty_after_enough_right_episodes() -> None:
    env = DifficultyCurriculum(gymnasium.make("tool_gym/Arithmetic-v0"), threshold=0.75, window=4)
    levels = env.unwrapped.task.difficulties  # type: ignore[attr-defined]
    seen = []
    for number in range(12):
        _, info = env.reset(seed=number)
        seen.append(info["difficulty"])
        right = env.unwrapped.problem.answer  # type: ignore[attr-defined]
        env.step(f"<answer>{'x' if number == 1 else right}</answer>")
    assert seen == [levels[0]] * 4 + [levels[1]] * 4 + [levels[2]] * 4
    _, info = env.reset(options={"difficulty": levels[0]})
    assert info["difficulty"] == levels[0]
    for bad in ({"threshold": 0.0}, {"threshold": "a"}, {"window": 0}):
        with pytest.raises(ConfigError):
            DifficultyCurriculum(env, **bad)  # type: ignore[arg-type]
