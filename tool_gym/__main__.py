"""Tool environments in the terminal: ``python -m tool_gym list``, ``check ID``, ``play ID`` and ``replay FILE``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import gymnasium

from tool_gym.checker import run_checks
from tool_gym.env import ToolEnv
from tool_gym.errors import ConfigError, ToolGymError
from tool_gym.noise import KINDS, NOISES
from tool_gym.protocol import ANSWER, printable, tags
from tool_gym.registration import find, import_module, resolve, tool_environments
from tool_gym.tasks.base import SPLITS
from tool_gym.watchdog import trusted
from tool_gym.wrappers import replay

_IMPORT_SECONDS = 600.0  # a module may load what it needs
_HELP = "a line of code is a call, '= 3' is an answer, a line with tags is sent as it is; end of file stops"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0, or 2 after a setting that is not allowed."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except ToolGymError as error:
        print(f"python -m tool_gym: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tool_gym", description="Tool environments in the terminal.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="the registered tool environments")
    listing.add_argument("modules", nargs="*", help="modules to import first, which register more")
    listing.set_defaults(run=_list)

    checking = commands.add_parser("check", help="whether an environment keeps the contract, and what to do if not")
    checking.add_argument("id", help="an environment, such as tool_gym/Arithmetic-v0, or module:id")
    checking.add_argument("--problems", type=int, default=200, help="problems to play (default 200)")
    checking.add_argument("--seed", type=int, default=0, help="of the problems (default 0)")
    checking.add_argument("--answers", type=int, help="number of possible answers, where the task has that setting")
    checking.set_defaults(run=_check)

    again = commands.add_parser("replay", help="play recorded episodes again and compare them byte for byte")
    again.add_argument("file", help="written by tool_gym.wrappers.RecordTrajectories")
    again.add_argument("modules", nargs="*", help="modules to import first, which register environments")
    again.set_defaults(run=_replay)

    play = commands.add_parser("play", help="play an episode, a turn at a time", description=f"Play: {_HELP}.")
    play.add_argument("id", help="an environment, such as tool_gym/Arithmetic-v0, or module:id")
    play.add_argument("--noise", choices=NOISES, default="none", help="which calls are made to fail")
    play.add_argument("--noise-rate", type=float, default=0.3, help="share of working calls that fail (default .3)")
    play.add_argument("--correlation", type=float, default=0.9, help="of faults and poor reasoning (default .9)")
    play.add_argument("--mean-burst", type=float, help="mean length of an outage in calls (--noise burst)")
    kinds = f"{', '.join(KINDS)}; or shares, timeout=.7,wrong_value=.3"
    play.add_argument("--faults", type=_shares, help=f"what faults look like (default timeout): {kinds}")
    play.add_argument("--permanent", type=float, help="share of faults that stay for the episode (default 0)")
    play.add_argument("--difficulty", type=int, help="default: drawn")
    play.add_argument("--answers", type=int, help="number of possible answers, where the task has that setting")
    play.add_argument("--split", choices=tuple(SPLITS), default="train")
    play.add_argument("--max-turns", type=int, help="default: the environment's")
    play.add_argument("--seed", type=int, help="default: drawn")
    play.set_defaults(run=_play)
    return parser


def _import(field: str, value: str, module: str) -> None:
    """Import a module that registers environments. Raises TaskError, naming it, for whatever it raises of its own."""
    with trusted(f"the import of {module}", seconds=_IMPORT_SECONDS):
        import_module(field, value, module)


def _import_of(env_id: str) -> None:
    """:func:`_import` for the module of ``module:id``."""
    module, colon, _ = env_id.rpartition(":")
    if colon:
        _import("env", env_id, module)


def _replay(options: argparse.Namespace) -> int:
    for module in options.modules:
        _import("modules", module, module)
    count = replay(options.file)
    print(f"{count} episodes came out as they were recorded")
    return 0


def _check(options: argparse.Namespace) -> int:
    _import_of(options.id)
    settings = {} if options.answers is None else {"answers": options.answers}
    checks = run_checks(options.id, problems=options.problems, seed=options.seed, **settings)
    for check in checks:
        print(f"{'ok    ' if check.passed else '-     ' if check.skipped else 'BROKEN'}  {check.name}")
        if not check.passed:
            print(f"        {printable(check.problem)}")
    return 0 if all(check.passed for check in checks) else 1


def _shares(text: str) -> str | dict[str, float]:
    """A kind of fault, or the share of each: ``timeout=.7,wrong_value=.3``."""
    if "=" not in text:
        return text
    return {kind.strip(): float(share) for kind, _, share in (part.partition("=") for part in text.split(","))}


def _list(options: argparse.Namespace) -> int:
    for module in options.modules:
        _import("modules", module, module)
    rows = [("environment", "task", "difficulties", "tools", "turns")]
    for id_ in tool_environments():
        try:
            resolved = resolve(id_)
        except ConfigError as error:  # such as a task with a setting that only `make` can give
            rows.append((id_, f"({error})", "", "", ""))
            continue
        difficulties = ", ".join(map(str, resolved.task.difficulties))
        tools = ", ".join(tool.name for tool in resolved.tools) or "none"
        rows.append((id_, type(resolved.task).__name__, difficulties, tools, str(resolved.max_turns)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _play(options: argparse.Namespace) -> int:
    if options.seed is not None and options.seed < 0:
        raise ConfigError("seed", options.seed, "0 or more")
    _import_of(options.id)
    find(options.id)  # says what exists, where gymnasium would guess at a near name
    names = ["noise", "noise_rate", "correlation", "mean_burst", "faults", "permanent"]
    names += ["difficulty", "answers", "split", "max_turns"]
    settings = {name: value for name in names if (value := getattr(options, name)) is not None}
    env = gymnasium.make(options.id, disable_env_checker=True, **settings).unwrapped
    assert isinstance(env, ToolEnv)
    observation, info = env.reset(seed=options.seed)
    interactive = sys.stdin.isatty()
    if interactive:
        print(f"({_HELP})")
    print(f"{observation}   (difficulty {info['difficulty']}, {env.episodes.max_turns} turns)")
    tool_names = tuple(tool.name for tool in env.episodes.tools)
    for line in _lines(sys.stdin, interactive):
        before = info["tool_calls"], info["injected_faults"]
        turn = as_turn(line, tool_names)
        observation, reward, terminated, truncated, info = env.step(turn)
        print(f"[{info['turns']}] {turn}")
        if observation:
            print(f"    {observation}")
        if note := describe(info, *before):
            print(f"    ({note})")
        if terminated or truncated:
            print(f"    {'answered' if terminated else 'cut off'}: reward {reward:g}")
            break
    env.close()
    return 0


def _lines(stream: TextIO, interactive: bool) -> Iterator[str]:
    """Lines that hold something, each asked for with a prompt where a person types them."""
    while True:
        if interactive:
            print("> ", end="", flush=True)
        try:
            line = stream.readline()
        except UnicodeDecodeError as error:
            raise ConfigError("input", error.object[error.start : error.end], f"{error.encoding} text") from error
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def as_turn(line: str, tool_names: Sequence[str]) -> str:
    """The turn that a line stands for: text with tags is itself, ``= x`` an answer, else a call of the first tool."""
    if any(tag in line for tag in tags(tool_names)):
        return line
    answer = re.fullmatch(r"\s*=\s*(.*?)\s*", line)
    if answer:
        return f"<{ANSWER}>{answer[1]}</{ANSWER}>"
    return f"<{tool_names[0]}>{line}</{tool_names[0]}>" if tool_names else line


def describe(info: dict[str, Any], calls_before: int, faults_before: int) -> str:
    """What happened in a step that the policy does not see: the call's quality, and whose doing an error was."""
    parts = []
    if info["tool_calls"] > calls_before:
        parts.append(f"quality {info['reasoning_quality']:.2f}" if info["reasoning_quality"] >= 0 else "not judged")
    if info["injected_faults"] > faults_before:
        kind = info["fault_kind"] if info["error_origin"] else f"silent {info['fault_kind']}"
        parts.append(f"injected fault: {kind}{', to stay' if info['fault_permanent'] else ''}")
    elif info["error_origin"]:
        parts.append(f"{info['error_origin']} error: {info['error_kind']}")
    return ", ".join(parts)


def _command() -> int:
    """:func:`main`, ended quietly where the reader of the output has gone, as after ``| head -1``."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered has nowhere to go, and must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(_command())
