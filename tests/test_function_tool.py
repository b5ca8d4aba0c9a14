"""``@tool``: functions as tools."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.episode_fakes import FakePool, Sums
from tool_gym import ToolEnv, tool
from tool_gym.errors import ConfigError, TaskError, ToolError
from tool_gym.tasks.base import Problem
from tool_gym.tools import FunctionTool, ToolRequest, ToolResult, resolve_tools

PROBLEM = Problem("3+4", "7")


@tool
def shout(text: str) -> str:
    """Say it louder.

    Much.
    """
    return text.upper()


@tool(name="area")
def rectangle(width: float, height: float = 1.0, unit: str | None = None) -> Any:
    """Area of a rectangle."""
    return {"area": width * height, "unit": unit} if unit else width * height


@tool
def remember(word: str, state: dict[str, Any], problem: Problem) -> str:
    state.setdefault("words", []).append(word)
    return f"{problem.prompt}: {' '.join(state['words'])}"


@tool
def total(numbers: list[int]) -> int:
    return sum(numbers)


def run(function: FunctionTool, body: str, state: dict[str, Any] | None = None) -> ToolResult:
    request = ToolRequest(body, PROBLEM, {} if state is None else state)
    ((_, result),) = function.submit([request], lambda: pytest.fail("no pool is needed")).take()
    return result


def test_the_schema_is_the_signature_and_the_description_the_docstring() -> None:
    assert (shout.name, shout.description) == ("shout", "Say it louder.\n\nMuch.")
    assert shout.parameters["properties"] == {"text": {"type": "string"}}
    assert rectangle.name == "area"
    assert rectangle.parameters["required"] == ["width"]
    assert rectangle.parameters["properties"] == {
        "width": {"type": "number"},
        "height": {"type": "number"},
        "unit": {"type": "string"},
    }
    assert list(remember.parameters["properties"]) == ["word"]  # state and problem are the environment's to give
    assert total.parameters["properties"] == {"numbers": {"type": "array", "items": {"type": "integer"}}}


def test_the_args_section_of_the_docstring_describes_the_parameters() -> None:
    @tool
    def book(seat: int, name: str = "", note: str | None = None, state: dict[str, Any] | None = None) -> str:
        """Book a seat.

        Never two.

        Args:
            seat (int): its number: 1 to 40,
                or 0 for any.
            name: of the guest.

            state: what the booking keeps.

        Returns:
            The ticket: a text.
        """
        return f"{seat} {name} {note}"

    assert book.description == "Book a seat.\n\nNever two.\n\nReturns:\n    The ticket: a text."
    assert book.parameters["properties"] == {
        "seat": {"type": "integer", "description": "its number: 1 to 40, or 0 for any."},
        "name": {"type": "string", "description": "of the guest."},
        "note": {"type": "string"},
    }
    assert book.__doc__ is not None
    assert "Args:" in book.__doc__


def test_an_args_section_that_names_no_parameter_is_refused() -> None:
    def shout(text: str) -> str:
        """Say it.

        Args:
            txt: what to say.
        """
        return text

    with pytest.raises(ConfigError, match="tool shout, docstring: got 'txt'; allowed: parameters in Args: text"):
        FunctionTool(shout)


@pytest.mark.parametrize("docstring", ["Args:", "Say.\n\nArgs:\n", "Args:\n\n  Of no form."])
def test_an_args_section_of_another_form_is_no_mistake(docstring: str) -> None:
    def odd(text: str) -> str:
        return text

    odd.__doc__ = docstring
    assert FunctionTool(odd).parameters["properties"] == {"text": {"type": "string"}}


def test_one_string_parameter_takes_the_body_as_it_is_and_others_a_json_object() -> None:
    assert run(shout, ' {"a" }').output == ' {"A" }'
    assert run(rectangle, '{"width": 2, "height": 1.5}').output == "3.0"
    assert run(rectangle, '{"width": 2, "unit": "m"}').output == '{"area": 2.0, "unit": "m"}'
    assert run(total, '{"numbers": [1, 2]}').output == "3"


@pytest.mark.parametrize(
    ("function", "body", "said"),
    [
        (rectangle, "2", "not a JSON object"),
        (rectangle, "{", "not JSON"),
        (rectangle, "[" * 100_000, "not JSON"),
        (rectangle, "", "width is missing"),
        (rectangle, '{"width": "2"}', "width must be number"),
        (rectangle, '{"width": true}', "width must be number"),
        (rectangle, '{"width": NaN}', "width must be number"),
        (rectangle, '{"width": 1, "depth": 2}', "no parameter depth"),
        (rectangle, '{"width": 1, "state": {}}', "no parameter state"),
        (total, '{"numbers": [1, "2"]}', "numbers must be array"),
    ],
)
def test_a_body_that_does_not_fit_is_an_error_to_the_policy(function: FunctionTool, body: str, said: str) -> None:
    result = run(function, body)
    assert (result.status, result.kind, result.message) == ("error", "ArgumentError", said)


def test_problem_and_a_state_for_the_episode_are_given() -> None:
    state: dict[str, Any] = {}
    assert run(remember, "a", state).output == "3+4: a"
    assert run(remember, "b", state).output == "3+4: a b"
    assert run(remember, "c").output == "3+4: c"


def returning(value: Any) -> FunctionTool:
    def odd(text: str) -> Any:
        if isinstance(value, Exception):
            raise value
        return value

    return FunctionTool(odd)


def test_a_tool_error_is_told_to_the_policy() -> None:
    result = run(returning(ToolError("no such page", kind="NotFound")), "x")
    assert (result.status, result.kind, result.message) == ("error", "NotFound", "no such page")


@pytest.mark.parametrize(
    ("value", "output"),
    [(None, ""), (True, "True"), (3, "3"), ([1, "a"], '[1, "a"]'), (ToolResult("ok", output="t"), "t")],
)
def test_what_a_function_may_return(value: Any, output: str) -> None:
    assert run(returning(value), "x") == ToolResult("ok", output=output)


@pytest.mark.parametrize("value", [object(), b"x", {1j}, [object()], {"a": math.nan}])
def test_another_return_value_stops_the_program_and_is_named(value: Any) -> None:
    with pytest.raises(TaskError, match=r"tool 'odd' returned .* for the call 'x'"):
        run(returning(value), "x")


def test_another_exception_stops_the_program_and_is_named() -> None:
    env = ToolEnv(Sums, tools=(returning(KeyError("k")),), pool=FakePool())  # type: ignore[arg-type]
    env.reset(seed=0)
    with pytest.raises(TaskError, match=r"tool 'odd' raised KeyError\('k'\) for the call 'x'"):
        env.step("<odd>x</odd>")


@pytest.mark.parametrize("function", [lambda text: text, lambda *texts: "", lambda **names: ""])
def test_parameters_need_annotations_and_names(function: Callable[..., Any]) -> None:
    function.__name__ = "odd"
    with pytest.raises(ConfigError, match="tool odd, parameter"):
        FunctionTool(function)


def test_a_decorated_function_is_still_a_function_and_copies_by_name() -> None:
    assert shout("a") == "A"
    assert copy.deepcopy(shout) is shout
    assert pickle.loads(pickle.dumps(shout)) is shout


def test_an_environment_plays_it() -> None:
    env = ToolEnv(Sums, tools=("python", rectangle), pool=FakePool())  # type: ignore[arg-type]
    env.reset(seed=0)
    assert env.step('<area>{"width": 2}</area>')[0] == "<output>2.0</output>"
    observation, _, _, _, info = env.step("<area>2</area>")
    assert observation == "<error>ArgumentError: not a JSON object</error>"
    assert info["error_origin"] == "policy"


def test_a_tool_of_a_module_can_be_named() -> None:
    named, python = resolve_tools(["tests.test_function_tool:shout", "python"])
    assert (named.name, python.name) == (shout.name, "python")
    env = ToolEnv(Sums, tools=("tests.test_function_tool:shout",))
    env.reset(seed=0)
    assert env.step(f"<{shout.name}>a</{shout.name}>")[0] == "<output>A</output>"


@pytest.mark.parametrize(
    "name",
    ["tests.test_function_tool:nothing", "tests.test_function_tool:Sums", "no_such_module:shout", ":shout", "a:"],
)
def test_a_name_of_no_tool_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"tools: got '.*module"):
        resolve_tools([name])
