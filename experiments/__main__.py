"""``python -m experiments COMMAND``: sweep, report, compare, trace, evaluate, theory, bench, chaos; see --help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.console import Console

from agents.command import complain, parse
from experiments.bench import BenchConfig, bench
from experiments.chaos import ChaosConfig, chaos
from experiments.compare import CompareConfig, compare
from experiments.evaluate import EvaluateConfig, evaluate
from experiments.report import ReportConfig, report
from experiments.sweep import SweepConfig, sweep
from experiments.theory import TheoryConfig
from experiments.theory import main as theory
from experiments.trace import TraceConfig, trace
from tool_gym.errors import ToolGymError

Command = (
    Annotated[SweepConfig, tyro.conf.subcommand("sweep")]
    | Annotated[CompareConfig, tyro.conf.subcommand("compare")]
    | Annotated[ReportConfig, tyro.conf.subcommand("report")]
    | Annotated[TraceConfig, tyro.conf.subcommand("trace")]
    | Annotated[EvaluateConfig, tyro.conf.subcommand("evaluate")]
    | Annotated[TheoryConfig, tyro.conf.subcommand("theory")]
    | Annotated[BenchConfig, tyro.conf.subcommand("bench")]
    | Annotated[ChaosConfig, tyro.conf.subcommand("chaos")]
)


def main(words: Sequence[str] | None = None) -> int:
    """One command, by default that of the command line; returns the exit status."""
    command = parse(Command, words, prog="python -m experiments", description=__doc__)
    console = Console()
    match command:
        case SweepConfig():
            return sweep(command, console)
        case CompareConfig():
            compare(command, console)
        case ReportConfig():
            report(command, console)
        case TraceConfig():
            trace(command, console)
        case EvaluateConfig():
            evaluate(command, console)
        case TheoryConfig():
            theory(command)
        case BenchConfig():
            bench(command, console)
        case ChaosConfig():
            return chaos(command, console)
    return 0


def run(words: Sequence[str] | None = None) -> int:
    """:func:`main`, with what the library raises on purpose as one line on stderr."""
    try:
        return main(words)
    except (ToolGymError, OSError) as error:
        return complain(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
