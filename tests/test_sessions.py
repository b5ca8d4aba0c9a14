"""Sessions of the interpreter: what stays from call to call, wherever the calls run."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import time
from collections.abc import Iterator

import pytest

from tool_gym.errors import ConfigError, InfrastructureError
from tool_gym.interpreter import InterpreterPool, InterpreterSession, Limits


@pytest.fixture(scope="module")
def pool() -> Iterator[InterpreterPool]:
    with InterpreterPool(workers=2, limits=Limits(steps=100_000)) as shared:
        yield shared


def kill_workers(pool: InterpreterPool) -> None:
    """From outside, and as seen by the pool's next look."""
    for worker in pool._workers.values():
        if worker.pid:
            os.kill(worker.pid, signal.SIGKILL)
    time.sleep(0.05)


def test_names_functions_and_generators_stay(pool: InterpreterPool) -> None:
    session = InterpreterSession()
    functions = "def f(n):\n    return n * len(x)\ndef count():\n    yield from range(9)\n"
    assert pool.run(f"import math\nx = [1]\n{functions}g = count()\nnext(g)", session=session).ok
    assert pool.run("x.append(2)\nclass A:\n    n = 7", session=session).ok
    assert pool.run("f(5), next(g), A().n, math.floor(2.5)", echo=True, session=session).output == "(10, 1, 7, 2)"


def test_sessions_see_neither_each_other_nor_calls_without_one(pool: InterpreterPool) -> None:
    sessions = [InterpreterSession() for _ in range(20)]
    for turn in range(3):
        code = ["n = 0" if turn == 0 else f"n += {index}" for index in range(20)]
        assert all(result.ok for result in pool.run_batch(code, sessions=sessions))
    results = pool.run_batch(["n"] * 21, echo=True, sessions=[*sessions, None])
    assert [result.output for result in results[:20]] == [str(2 * index) for index in range(20)]
    assert results[20].kind == "NameError"


def test_an_exception_keeps_what_was_done_before_it(pool: InterpreterPool) -> None:
    session = InterpreterSession()
    assert pool.run("x = 1\n1 / 0\nx = 2", session=session).kind == "ZeroDivisionError"
    assert pool.run("x = (", session=session).kind == "SyntaxError"
    assert pool.run("x.__class__", session=session).status == "refused"
    assert pool.run("x", echo=True, session=session).output == "1"


@pytest.mark.parametrize("code", ["while True: x += 1", "f()", "x = 2 ** (2 ** 40)"])
def test_a_limit_ends_the_state(pool: InterpreterPool, code: str) -> None:
    session = InterpreterSession()
    pool.run("x = 1\ndef f(): return f()", session=session)
    assert pool.run(code, session=session).status == "limit"
    assert pool.run("x", session=session).kind == "NameError"


def test_cut_output_and_refused_sources_keep_the_state(pool: InterpreterPool) -> None:
    session = InterpreterSession()
    assert pool.run("x = 5\nprint('a' * 20000)", session=session).kind == "output"
    assert pool.run("x = 6 #" + "a" * 20000, session=session).kind == "source"
    assert pool.run("x = " + "(" * 300 + ")" * 300, session=session).status in ("limit", "error")
    assert pool.run("x", echo=True, session=session).output == "5"


def test_a_lost_worker_changes_no_answer(pool: InterpreterPool) -> None:
    session = InterpreterSession()
    program = ["import random\nd = {}", "d['k'] = random.random()", "1 / 0", "e = [random.random() for _ in range(3)]"]
    for code in program:
        pool.run(code, session=session)
        kill_workers(pool)
    assert pool.run("print(d, e, random.random())", session=session) == undisturbed(
        [*program, "print(d, e, random.random())"]
    )


def undisturbed(codes: list[str]) -> object:
    with InterpreterPool(workers=1) as other:
        session = InterpreterSession()
        return [other.run(code, session=session) for code in codes][-1]


def test_random_numbers_go_on_within_a_session_and_start_alike_in_each(pool: InterpreterPool) -> None:
    one, two = InterpreterSession(), InterpreterSession()
    draws = [pool.run("random.random()", echo=True, session=s).output for s in (one, one, two)]
    assert draws[0] == draws[2] != draws[1]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_goes_on_from_the_same_state_on_its_own(pool: InterpreterPool, duplicate: object) -> None:
    session = InterpreterSession()
    pool.run("x = [1]", session=session)
    twin = duplicate(session)  # type: ignore[operator]
    pool.run("x.append(2)", session=session)
    assert pool.run("x", echo=True, session=twin).output == "[1]"
    pool.run("x.append(3)", session=twin)
    assert pool.run("x", echo=True, session=session).output == "[1, 2]"


def test_inputs_of_a_call_stay_in_scope_and_may_be_named_like_a_withheld_builtin(pool: InterpreterPool) -> None:
    session = InterpreterSession()
    assert pool.run("input + 1", {"input": 3}, echo=True, session=session).output == "4"
    assert pool.run("input", echo=True, session=session).output == "3"
    assert pool.run("input").status == "refused"
    pool.run("def open(): return 'mine'", session=session)
    kill_workers(pool)
    assert pool.run("open()", echo=True, session=session).output == "'mine'"


@pytest.mark.parametrize("name", ["__builtins__", "__import__", "__name__.x", "eval"])
def test_no_call_of_a_session_may_use_what_a_program_may_not(pool: InterpreterPool, name: str) -> None:
    session = InterpreterSession()
    assert pool.run("x = 1", session=session).ok
    assert pool.run(f"x = {name}", session=session).status in ("refused", "error")
    assert pool.run("x", echo=True, session=session).output == "1"


def test_the_state_of_a_session_that_is_gone_is_dropped(pool: InterpreterPool) -> None:
    sessions = [InterpreterSession() for _ in range(10)]
    pool.run_batch(["x = 1"] * 10, sessions=sessions)
    assert len(pool._homes) >= 10
    before = len(pool._homes)
    del sessions
    pool.run("1")
    assert len(pool._homes) <= before - 10


def test_one_call_at_a_time_one_pool_and_one_session_for_each_program(pool: InterpreterPool) -> None:
    session, idle = InterpreterSession(), InterpreterSession()
    with pytest.raises(ConfigError, match="sessions"):
        pool.submit(["1", "2", "3"], sessions=[idle, session, session])
    pending = pool.submit(["1"], sessions=[session])
    with pytest.raises(ConfigError, match="whose last result has come"):
        pool.submit(["1"], sessions=[session])
    with pytest.raises(InfrastructureError, match="under way"):
        copy.deepcopy(session)
    while pending.remaining:
        pending.take(block=True)
    assert pool.run_batch(["1", "2"], echo=True, sessions=[idle, session])[1].output == "2"
    with InterpreterPool(workers=1) as other, pytest.raises(ConfigError, match="of this pool"):
        other.run("1", session=session)
    for sessions in ([None], [None, 3]):
        with pytest.raises(ConfigError, match="sessions"):
            pool.submit(["1", "2"], sessions=sessions)  # type: ignore[arg-type]


def test_a_call_that_answers_otherwise_when_run_again_is_infrastructure_and_not_a_wrong_state() -> None:
    with InterpreterPool(workers=1) as pool:
        session = InterpreterSession()
        pool.run("x = 1", session=session)
        past = session._past[0]
        session._past[0] = past._replace(result=pool.run("1 / 0"))
        kill_workers(pool)
        result = pool.run("x", session=session)
        assert (result.status, result.kind) == ("infrastructure", "replay")
        assert pool.run("1", echo=True).output == "1"
