"""Many episodes at once: their turns, their tool calls in batches, faults, grading.

This is the one place where the rules of an episode live. A caller begins episodes, submits a turn of
each that is ready, and collects transitions as tools answer; whoever steps one episode
(:class:`tool_gym.ToolEnv`), a fixed number in lockstep (:class:`tool_gym.ToolVectorEnv`) or hundreds
asynchronously (a trainer) goes through the same code.

An episode is a sequence of turns of at most ``max_turns``. A turn with a call is replied to with what the
tool said, one with an answer is graded and ends the episode, and one with neither gets an error. A noise
model may replace the result of a call that worked by a fault. Which calls it strikes, and how, is a function of the
episode's keys, the call's number in its episode, its tool and its quality, and of permanent faults before it:
neither the order in which tools answer nor what else is in flight can change an episode.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tool_gym.errors import ConfigError, InfrastructureError, TaskError, ToolGymError
from tool_gym.noise import KINDS, Calls, Fault, NoiseModel, NoNoise
from tool_gym.protocol import MIN_OUTPUT_CHARS, ParsedTurn, format_problem, format_reply, parse
from tool_gym.tasks.base import Problem, Task
from tool_gym.tools import Finished, Results, Tool, ToolCall, ToolRequest, ToolResult, resolve_tools
from tool_gym.watchdog import Call, watched

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from tool_gym.interpreter import InterpreterPool

Origin = Literal["", "policy", "injected", "infrastructure"]

DEFAULT_OUTPUT_CHARS = 1000
"""Longest output shown to a policy, where nothing else is asked for."""

NO_QUALITY = -1.0
"""Stands for the quality of a call where there is none to judge."""

# While several batches are in flight, none of which may be waited for alone: seconds between looks at them.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5e-5, 1e-3


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """What is fixed before the first turn of an episode.

    Attributes:
        problem: the problem posed.
        key: 64-bit key of every noise draw of the episode (see :mod:`tool_gym.rng`).
        outage_key: 64-bit key of the outages that burst noise makes; episodes with the same one, such as those of a
            training step, are in the same outages. None: ``key``, outages of its own.
    """

    problem: Problem
    key: int
    outage_key: int | None = None


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of an episode, with what the policy may not see.

    Attributes:
        call: the tool and the raw body, up to the end of the turn if the call was never closed.
        result: what truly came of the call.
        delivered: what the policy was told: ``result``, or the fault in its place.
        quality: the task's judgement of the call, 0 (confused) to 1 (right), before any fault; 0 for an
            unclosed call, which never ran; -1 after an infrastructure failure.
        eligible: whether the true result is ok, so that a fault could replace it.
        fault: kind of the fault that was injected (a silent one included), "" if none.
        scheduled: whether the noise model struck this call, eligible or not.
        origin: whose doing an error is: "" if ``delivered`` is ok (a silent wrong value included), else
            ``policy``, ``injected`` or ``infrastructure``.
        turn: number of the turn that made the call, from 1.
        scheduled_kind: kind of the fault that was scheduled, "" if none. It is not the one that was injected where an
            earlier, permanent one stands.
        permanent: whether the fault that was injected stays for the rest of the episode.
        standing: whether it is an earlier one that stayed.
        retry_of: index of the earlier call, the same in tool and body, that met a fault or an error and that this is
            the first to make again; -1 if there is none.
    """

    call: ToolCall
    result: ToolResult
    delivered: ToolResult
    quality: float
    eligible: bool
    fault: str
    scheduled: bool
    origin: Origin
    turn: int
    scheduled_kind: str = ""
    permanent: bool = False
    standing: bool = False
    retry_of: int = -1


class FaultCount(NamedTuple):
    """Faults of one kind in one episode.

    Attributes:
        scheduled: drawn by the noise model, on whatever call.
        landed: injected in place of a true result, standing ones included.
        retried: landed, and the same call was made again later.
        recovered: landed, and the episode was answered rightly in the end.
    """

    scheduled: int
    landed: int
    retried: int
    recovered: int


@dataclass(slots=True)
class EpisodeRecord:
    """An episode so far; complete once its last transition is collected.

    Attributes:
        problem, key, outage_key: as specified.
        calls: every call in order, unclosed ones included.
        turns: turns of the policy so far.
        answers: well-formed answer blocks of the answering turn, 0 if there was none or its answer tags do
            not match, so that a format penalty needs only ``answers`` and ``turns``.
        idle_turns: turns with neither a call nor an answer.
        format_violations: places at which turns broke the grammar (:attr:`ParsedTurn.violations`).
        answer: the graded text, None if the episode ended without an answer.
        success: whether the answer is right; the reward of the last transition is 1 if so, else 0.
        valid: False after an infrastructure failure: the episode says nothing about the policy.
    """

    problem: Problem
    key: int
    calls: list[CallRecord] = field(default_factory=list)
    turns: int = 0
    answers: int = 0
    idle_turns: int = 0
    format_violations: int = 0
    answer: str | None = None
    success: bool = False
    valid: bool = True
    outage_key: int | None = None

    def fault_counts(self) -> dict[str, FaultCount]:
        """What became of the faults so far, for every kind in the order of :data:`tool_gym.noise.KINDS`."""
        scheduled = Counter(call.scheduled_kind for call in self.calls)
        landed = Counter(call.fault for call in self.calls)
        retried = Counter(self.calls[call.retry_of].fault for call in self.calls if call.retry_of >= 0)
        return {
            kind: FaultCount(scheduled[kind], landed[kind], retried[kind], landed[kind] * self.success)
            for kind in KINDS
        }


class Transition(NamedTuple):
    """What one turn of one episode led to.

    Attributes:
        id: the episode.
        observation: the reply to the turn, "" after an answer.
        reward: 1.0 for a right answer, else 0.0.
        terminated: the episode was answered.
        truncated: the episode ended otherwise; never together with ``terminated``.
        info: scalars under constant keys: see docs/ENVIRONMENT.md.
        record: the episode's record, the same object in each of its transitions.
    """

    id: int
    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    record: EpisodeRecord


class _Episode:
    """A running episode: its record, and what only its running needs."""

    __slots__ = (
        "errors",
        "failed",
        "faults",
        "history",
        "in_flight",
        "record",
        "retried",
        "scheduled",
        "standing",
        "states",
    )

    def __init__(self, record: EpisodeRecord) -> None:
        self.record = record
        self.history: list[tuple[ToolCall, ToolResult]] = []  # calls that a tool answered, with true results
        self.errors = 0
        self.scheduled = 0
        self.faults = 0
        self.retried = 0
        self.standing: dict[str, Fault] = {}  # the permanent fault of each tool that has met one
        self.failed: dict[ToolCall, int] = {}  # calls that met a fault or an error and were not made again since
        self.in_flight = False
        self.states: dict[str, dict[str, Any]] = {}  # what each tool keeps


class _Step(NamedTuple):
    """A turn whose outcome is known: ``result`` is the true result of its call, None where it made none."""

    id: int
    turn: ParsedTurn
    result: ToolResult | None


class _Batch(NamedTuple):
    """Calls of one tool on their way, and whose they are by index."""

    results: Results
    turns: list[tuple[int, ParsedTurn]]


class Episodes:
    """Runs episodes of one task: ``begin`` -> ids, ``submit`` turns, ``collect`` transitions.

    Not safe for use from several threads. May be pickled and deep-copied while no turn is in flight; a pickled
    one uses its new process's shared pool.

    Args:
        task: problems' judge.
        tools: names of tools, or :class:`~tool_gym.tools.Tool` objects.
        noise: which calls are struck by faults.
        max_turns: turns of an episode, the answering one included.
        pool: runs the python tool's calls; None is the process's shared pool, started on first need. A pool
            that is passed in stays open.
        max_output_chars: longest output shown to the policy, 40 or more.
        task_seconds: how long one call of the task's methods may take; None: as the watchdog has it.

    Raises:
        ConfigError: an argument outside of its range.
    """

    def __init__(
        self,
        task: Task,
        tools: Sequence[str | Tool] = ("python",),
        *,
        noise: NoiseModel | None = None,
        max_turns: int = 5,
        pool: InterpreterPool | None = None,
        max_output_chars: int = DEFAULT_OUTPUT_CHARS,
        task_seconds: float | None = None,
    ) -> None:
        if not isinstance(task, Task):
            raise ConfigError("task", task, "a Task instance")
        if noise is not None and not isinstance(noise, NoiseModel):
            raise ConfigError("noise", noise, "a NoiseModel")
        if not _is_integer(max_turns) or max_turns < 1:
            raise ConfigError("max_turns", max_turns, "an integer of at least 1")
        if not _is_integer(max_output_chars) or max_output_chars < MIN_OUTPUT_CHARS:
            raise ConfigError("max_output_chars", max_output_chars, f"an integer of at least {MIN_OUTPUT_CHARS}")
        self.task = task
        self.tools = resolve_tools(tools)
        self.noise = NoNoise() if noise is None else noise
        self.max_turns = int(max_turns)
        self.max_output_chars = int(max_output_chars)
        self.task_seconds = task_seconds
        self.closed = False
        self._grading, self._judging = (f"{type(task).__name__}.{name}" for name in ("grade", "reasoning_quality"))
        self._watched = Call(self._grading, 0.0, 0)
        self._pool = pool
        self._tools = {tool.name: tool for tool in self.tools}
        self._names = tuple(self._tools)
        self.noise.check_tools(self._names)
        self._next_id = 0
        self._running: dict[int, _Episode] = {}
        self._ready: list[_Step] = []
        self._batches: list[_Batch] = []
        self._outstanding = 0

    # -- the interface ------------------------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        """Episodes whose turn is submitted and whose transition is not collected yet."""
        return self._outstanding

    def begin(self, specs: Sequence[EpisodeSpec]) -> list[int]:
        """Begin an episode for each spec; the prompt is ``spec.problem.prompt``. Ids are never used twice.

        Raises:
            ConfigError: something else than a spec of a Problem and a 64-bit key. Nothing is begun then.
        """
        self._check_open()
        for spec in specs:
            if not isinstance(spec, EpisodeSpec) or not isinstance(spec.problem, Problem):
                raise ConfigError("specs", spec, "EpisodeSpec(problem: Problem, key: int)")
            if not _is_key(spec.key):
                raise ConfigError("key", spec.key, "an unsigned 64-bit integer")
            if spec.outage_key is not None and not _is_key(spec.outage_key):
                raise ConfigError("outage_key", spec.outage_key, "an unsigned 64-bit integer, or None")
        ids = list(range(self._next_id, self._next_id + len(specs)))
        self._next_id += len(specs)
        for id_, spec in zip(ids, specs, strict=True):
            outage_key = None if spec.outage_key is None else int(spec.outage_key)
            self._running[id_] = _Episode(EpisodeRecord(spec.problem, int(spec.key), outage_key=outage_key))
        return ids

    def submit(self, ids: Sequence[int], turns: Sequence[str]) -> None:
        """Submit a turn of each episode and return at once; its calls are on their way, a batch for each tool.

        Raises:
            ConfigError: an id of no running episode, of one whose last turn is not collected yet, or given
                twice; a turn that is not text; unequal lengths. Nothing is submitted then.
        """
        self._check_open()
        self._check_turns(ids, turns)
        calls: dict[str, list[tuple[int, ParsedTurn]]] = {}
        for id_, text in zip(ids, turns, strict=True):
            episode = self._running[id_]
            episode.in_flight = True
            turn = parse(text, self._names)
            record = episode.record
            record.turns += 1
            record.format_violations += turn.violations
            if turn.kind == "call":
                calls.setdefault(turn.tool, []).append((id_, turn))
            else:
                self._ready.append(_Step(id_, turn, format_problem(turn) if turn.kind == "unclosed" else None))
        self._outstanding += len(ids)
        for name, batch in calls.items():
            requests = [self._request(self._running[id_], turn) for id_, turn in batch]
            self._batches.append(_Batch(self._start(self._tools[name], requests), batch))

    def collect(self, block: bool = True) -> list[Transition]:
        """Transitions of the turns whose outcome is known by now, by ascending id.

        With ``block`` waits until there is at least one; an empty list then means that nothing is outstanding.

        Raises:
            TaskError: the task raised, or returned what its contract forbids.
        """
        steps = self._take(block)
        if not steps:
            return []
        steps.sort(key=_by_id)
        calls = [step for step in steps if step.result is not None]
        with watched(self._grading, self.task_seconds) as self._watched:
            made = dict(zip([step.id for step in calls], self._record_calls(calls), strict=True)) if calls else {}
            return [self._advance(step, made.get(step.id)) for step in steps]

    def abandon(self, ids: Sequence[int]) -> list[Transition]:
        """End episodes as truncated, for instance where the policy ran out of tokens; their last transitions.

        A turn in flight counts as taken, but what comes of it is dropped.

        Raises:
            ConfigError: an id of no running episode. Nothing is abandoned then.
        """
        self._check_open()
        if len(set(ids)) != len(ids):
            raise ConfigError("ids", list(ids), "each id once")
        for id_ in ids:
            if id_ not in self._running:
                raise ConfigError("ids", id_, "ids of running episodes")
        transitions = []
        for id_ in ids:
            episode = self._running.pop(id_)
            self._outstanding -= episode.in_flight
            transitions.append(Transition(id_, "", 0.0, False, True, self._info(episode), episode.record))
        return transitions

    def info(self, id_: int) -> dict[str, Any]:
        """The info of a running episode between turns, such as after its beginning: no error, no call."""
        return self._info(self._running[id_])

    def close(self) -> None:
        """Drop every running episode. The pool stays open, for it belongs to others. Closing twice is fine."""
        self.closed = True
        self._running.clear()
        self._ready.clear()
        self._batches.clear()
        self._outstanding = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._outstanding or self._batches:
            raise ToolGymError("episodes cannot be copied or pickled while turns are in flight")
        return {**self.__dict__, "_pool": None}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__getstate__(), memo))
        twin._pool = self._pool
        return twin

    # -- turns on their way -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.closed:
            raise ToolGymError("these episodes are closed")

    def _check_turns(self, ids: Sequence[int], turns: Sequence[str]) -> None:
        if len(ids) != len(turns):
            raise ConfigError("turns", len(turns), f"as many as there are ids ({len(ids)})")
        if len(set(ids)) != len(ids):
            raise ConfigError("ids", list(ids), "each id once")
        for id_, text in zip(ids, turns, strict=True):
            if id_ not in self._running or self._running[id_].in_flight:
                raise ConfigError("ids", id_, "ids of running episodes whose last turn is collected")
            if not isinstance(text, str):
                raise ConfigError("turns", text, "text")

    def _request(self, episode: _Episode, turn: ParsedTurn) -> ToolRequest:
        return ToolRequest(turn.body, episode.record.problem, episode.states.setdefault(turn.tool, {}))

    def _start(self, tool: Tool, requests: list[ToolRequest]) -> Results:
        try:
            return tool.submit(requests, self._get_pool)
        except InfrastructureError as error:
            # The episodes become invalid, and the caller sees why in their records.
            lost = ToolResult("infrastructure", "unavailable", str(error))
            return Finished([lost] * len(requests))
        except TaskError:
            raise
        except Exception as error:
            raise TaskError(f"{type(tool).__name__}.submit raised {error!r}") from error

    def _get_pool(self) -> InterpreterPool:
        if self._pool is not None:
            return self._pool
        from tool_gym.interpreter import shared_pool

        # Asked for each time: it is another one after a fork.
        return shared_pool()

    def _take(self, block: bool) -> list[_Step]:
        """Steps whose outcome is known, abandoned episodes' left out; with ``block`` at least one, if any is due."""
        steps, self._ready = self._ready, []
        steps = [step for step in steps if step.id in self._running]
        pause = _SHORTEST_PAUSE
        while True:
            wait = block and not steps and self._outstanding > 0
            alone = len(self._batches) == 1
            for batch in self._batches:
                # Waiting for one of several batches would keep the others' results from the caller.
                for index, result in batch.results.take(wait and alone):
                    id_, turn = batch.turns[index]
                    if not isinstance(result, ToolResult):
                        raise TaskError(f"tool {turn.tool!r} answered {result!r}, not a ToolResult")
                    if id_ in self._running:
                        steps.append(_Step(id_, turn, result))
            self._batches = [batch for batch in self._batches if batch.results.remaining]
            if steps or not wait:
                return steps
            if not self._batches:
                raise TaskError("a tool returned fewer results than there were calls")
            if len(self._batches) > 1:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    # -- the rules ----------------------------------------------------------------------------------------

    def _record_calls(self, steps: list[_Step]) -> list[CallRecord]:
        """Judge the calls of N steps, draw their faults at once, and enter them in their episodes' records."""
        episodes = [self._running[step.id] for step in steps]
        qualities_N = [self._quality(episode, step) for episode, step in zip(episodes, steps, strict=True)]
        records = [episode.record for episode in episodes]
        keys_N = np.array([record.key for record in records], dtype=np.uint64)
        outages = [record.key if record.outage_key is None else record.outage_key for record in records]
        scheduled_N = self.noise.strike(
            Calls(
                qualities=np.maximum(np.array(qualities_N), 0.0),
                keys=keys_N,
                numbers=np.array([len(record.calls) for record in records], dtype=np.int64),
                outage_keys=np.array(outages, dtype=np.uint64),
                tools=[step.turn.tool for step in steps],
            )
        )
        return [
            _record_call(episode, step, quality, scheduled)
            for episode, step, quality, scheduled in zip(episodes, steps, qualities_N, scheduled_N, strict=True)
        ]

    def _advance(self, step: _Step, made: CallRecord | None) -> Transition:
        """The transition of a step; ``made`` is the record of its call, None where it made none."""
        episode = self._running[step.id]
        episode.in_flight = False
        self._outstanding -= 1
        record = episode.record
        if step.turn.answer is not None:
            record.answers, record.answer = step.turn.answers, step.turn.answer
            record.success = self._grade(record.problem, step.turn.answer)
            del self._running[step.id]
            return Transition(step.id, "", float(record.success), True, False, self._info(episode), record)
        if made is None:
            record.idle_turns += 1
            told, origin = format_problem(step.turn), "policy"
        else:
            told, origin = made.delivered, made.origin
            record.valid = origin != "infrastructure"
        truncated = record.turns >= self.max_turns or not record.valid
        if truncated:
            del self._running[step.id]
        observation = format_reply(
            told, self._names, max_output_chars=self.max_output_chars, max_error_chars=self.task.max_error_chars
        )
        kind = "" if told.ok else told.kind or told.status
        info = self._info(episode, origin, kind, made)
        return Transition(step.id, observation, 0.0, False, truncated, info, record)

    def _quality(self, episode: _Episode, step: _Step) -> float:
        """The task's judgement of a call, from the calls that a tool answered so far and this one."""
        assert step.result is not None
        if step.turn.kind == "unclosed":
            return 0.0
        if step.result.status == "infrastructure":
            return NO_QUALITY
        episode.history.append((ToolCall(step.turn.tool, step.turn.body), step.result))
        problem = episode.record.problem
        self._watched.at(self._judging, problem.prompt)
        try:
            judged: Any = self.task.reasoning_quality(problem, episode.history)
        except Exception as error:
            told = f"raised {error!r} for the call {step.turn.body!r} (calls that failed are judged, too)"
            raise self._task_error("reasoning_quality", problem, told) from error
        # numpy's scalars are real numbers, too.
        if isinstance(judged, bool) or not isinstance(judged, Real) or not 0.0 <= float(judged) <= 1.0:
            raise self._task_error("reasoning_quality", problem, f"returned {judged!r}, not a number from 0 to 1")
        return float(judged)

    def _grade(self, problem: Problem, answer: str) -> bool:
        self._watched.at(self._grading, problem.prompt)
        try:
            right = self.task.grade(problem, answer)
        except Exception as error:
            raise self._task_error("grade", problem, f"raised {error!r} for the answer {answer!r}") from error
        if not isinstance(right, (bool, np.bool_)):
            raise self._task_error("grade", problem, f"returned {right!r} for the answer {answer!r}, not a bool")
        return bool(right)

    def _task_error(self, method: str, problem: Problem, what: str) -> TaskError:
        return TaskError(f"{type(self.task).__name__}.{method} {what} (problem {problem.prompt!r})")

    def _info(
        self, episode: _Episode, origin: str = "", kind: str = "", made: CallRecord | None = None
    ) -> dict[str, Any]:
        record = episode.record
        return {
            "tool_calls": len(record.calls),
            "tool_errors": episode.errors,
            "scheduled_faults": episode.scheduled,
            "injected_faults": episode.faults,
            "retried_faults": episode.retried,
            "recovered_faults": episode.faults if record.success else 0,
            "error_origin": origin,
            "error_kind": kind,
            "scheduled_kind": made.scheduled_kind if made else "",
            "fault_kind": made.fault if made else "",
            "fault_permanent": made.permanent if made else False,
            "reasoning_quality": made.quality if made else NO_QUALITY,
            "answers": record.answers,
            "turns": record.turns,
            "format_violations": record.format_violations,
            "success": record.success,
            "valid_for_training": record.valid,
            "difficulty": record.problem.difficulty,
        }


def _record_call(episode: _Episode, step: _Step, quality: float, scheduled: Fault | None) -> CallRecord:
    """Enter a call in its episode's record, with the fault that strikes it, if one does, in place of its result."""
    result, record = step.result, episode.record
    assert result is not None
    call = ToolCall(step.turn.tool, step.turn.body)
    standing = episode.standing.get(call.tool)
    fault = (standing or scheduled) if result.ok else None
    delivered = fault.apply(result) if fault else result
    made = CallRecord(
        call=call,
        result=result,
        delivered=delivered,
        quality=quality,
        eligible=result.ok,
        fault=fault.kind if fault else "",
        scheduled=scheduled is not None,
        origin=_origin(delivered, fault),
        turn=record.turns,
        scheduled_kind=scheduled.kind if scheduled else "",
        permanent=fault is not None and fault.permanent,
        standing=fault is not None and fault is standing,
        # An unclosed call never ran, whatever its body: there is nothing to make again.
        retry_of=-1 if step.turn.kind == "unclosed" else episode.failed.pop(call, -1),
    )
    if made.retry_of >= 0:
        episode.retried += record.calls[made.retry_of].fault != ""
    if step.turn.kind != "unclosed" and (fault or made.origin):
        episode.failed[call] = len(record.calls)
    if fault and fault.permanent:
        episode.standing.setdefault(call.tool, fault)
    record.calls.append(made)
    episode.scheduled += made.scheduled
    episode.faults += fault is not None
    episode.errors += made.origin in ("policy", "injected")
    return made


def _origin(delivered: ToolResult, fault: Fault | None) -> Origin:
    """Whose doing it is that a delivered result is an error."""
    if delivered.ok:
        return ""
    if fault:
        return "injected"
    return "infrastructure" if delivered.status == "infrastructure" else "policy"


def _by_id(step: _Step) -> int:
    return step.id


def _is_key(value: Any) -> bool:
    return _is_integer(value) and 0 <= value < 2**64


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
