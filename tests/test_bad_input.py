"""Whatever is wrong with a setting is one line that names it, status 2, and no file is changed."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tool_gym
import train
from agents.config import Config
from experiments.__main__ import run as run_experiments
from tests.test_train_cli import one_line
from tool_gym.errors import ConfigError, ToolGymError
from tool_gym.tasks.arithmetic import Arithmetic

TEXTS = {
    "env.id": st.sampled_from(["", "nope", "tool_gym/Nope-v0", "CartPole-v1", "no_module:x/Y-v0", ":", "a b:c"]),
    "noise.kind": st.sampled_from(["", "gauss", "IID", "None"]),
    "noise.reference": st.sampled_from(["", "live"]),
    "algo.selector": st.sampled_from(["", "rok", "roc,stratified"]),
    "algo.switch_to": st.sampled_from(["rok", "grpo_2p"]),
    "algo.scale": st.sampled_from(["", "groups"]),
    "algo.normalisation": st.sampled_from(["", "tokens"]),
    "run.device": st.sampled_from(["", "tpu"]),
    "run.name": st.sampled_from(["", ".", "..", "a/b", "a\x00b", "a\nb"]),
    "run.runs_dir": st.sampled_from(["", "a\x00b", "a\nb", "\udcff"]),
    "run.stack": st.sampled_from(["", "a/b", "..", "a b", "a\x00b", "x" * 65]),
}


def _fields() -> list[tuple[str, Any]]:
    found = []
    for group in dataclasses.fields(Config):
        kind = typing.get_type_hints(Config)[group.name]
        found += [(f"{group.name}.{name}", hint) for name, hint in typing.get_type_hints(kind).items()]
    return found


def _bad(name: str, hint: Any) -> st.SearchStrategy[list[str]]:
    """Values that no field of this type takes, as words of a command line."""
    if name in TEXTS:
        return TEXTS[name].map(lambda text: [text])
    numbers = ["nan", "inf", "-inf", "-1e300", "1e300", "-1", "99999999999999999999", "x", "1,2", "True", "[]"]
    shown = str(hint)
    if "bool" in shown:
        return st.sampled_from([["maybe"], ["2"]])
    if "dict" in shown:
        return st.sampled_from([["clean"], ["clean", "x"], ["clean", "-1"], ["clean", "nan"], ["clean", "0.5"]])
    if "tuple" in shown:
        return st.sampled_from([["x"], ["-7"], ["3", "x"], ["999"]])
    return st.sampled_from([[text] for text in numbers])


@st.composite
def bad_settings(draw: st.DrawFn) -> tuple[str, list[str]]:
    name, hint = draw(st.sampled_from(_fields()))
    return name, draw(_bad(name, hint))


def words_of(name: str, values: Sequence[str]) -> list[str]:
    flag = "--" + name.replace("_", "-")
    return [f"{flag}={values[0]}", *values[1:]]


def is_fine(name: str, values: Sequence[str]) -> bool:
    """Some of these are allowed after all, as -1 is a correlation."""
    try:
        parsed = float(values[0])
    except ValueError:
        return False
    return (name, parsed) in {("noise.correlation", -1.0)} or (not math.isfinite(parsed) and name == "none")


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bad=bad_settings())
def test_train_refuses_bad_settings_in_one_line(
    bad: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, values = bad
    if is_fine(name, values):
        return
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").write_text("keep")
    before = files(tmp_path)
    assert train.run(["--run.steps", "0", "--sft.steps", "0", *words_of(name, values)]) == 2, bad
    one_line(*capsys.readouterr())
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("run.runs_dir", ""), ("run.runs_dir", "a\x00b"), ("run.runs_dir", "\udcff"), ("run.runs_dir", 3)]
    + [("run.stack", value) for value in ("", "a/b", "x" * 65, 3)],
)
def test_a_folder_or_stack_that_is_no_name_is_refused_with_what_is_allowed(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: got .*; allowed: .") as caught:
        Config().replace(**{name: value})
    assert (caught.value.field, caught.value.value) == (name, value)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bad=bad_settings())
def test_sweep_refuses_bad_settings_in_one_line(
    bad: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, values = bad
    # A sweep reads Python literals: what is a number or a text there need not be bad.
    if len(values) != 1 or values[0] in ("", "True", "[]", "None", "1,2") or is_fine(name, values):
        return
    monkeypatch.chdir(tmp_path)
    assert run_experiments(["sweep", "quick", "--seeds", "0", "--set", name, values[0], "--dry-run"]) == 2, bad
    one_line(*capsys.readouterr())
    assert files(tmp_path) == {}


@settings(max_examples=60)
@given(
    changed=st.sampled_from(["id", "task", "tools", "max_turns", "stateful", "max_episode_steps", "entry_point"]),
    value=st.sampled_from([None, 0, -1, 1.5, "", "nope", b"x", (), ("nope",), [3], {}, object(), True, math.nan]),
)
def test_register_refuses_bad_arguments_and_registers_nothing(changed: str, value: Any) -> None:
    before = dict(gymnasium.registry)
    arguments: dict[str, Any] = {"id": "tests/Bad-v0", "task": Arithmetic, changed: value}
    said = ""
    try:
        tool_gym.register(**arguments)
    except (ToolGymError, gymnasium.error.Error) as error:
        said = str(error)
        unchanged = dict(gymnasium.registry) == before
    else:
        # It was allowed after all: then it can be made, or that is refused in one line.
        unchanged = True
        try:
            gymnasium.make(arguments["id"], disable_env_checker=True).close()
        except (ToolGymError, gymnasium.error.Error) as error:
            said = str(error)
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(before)
    assert unchanged
    assert "\n" not in said
