"""``python -m experiments sweep | compare | evaluate | theory``: see each one's --help."""

from __future__ import annotations

import sys
from typing import Annotated

import tyro
from rich.console import Console

from experiments.compare import CompareConfig, compare
from experiments.evaluate import EvaluateConfig, evaluate
from experiments.sweep import SweepConfig, sweep
from experiments.theory import TheoryConfig
from experiments.theory import main as theory
from tool_gym.errors import ConfigError, ToolGymError

Command = (
    Annotated[SweepConfig, tyro.conf.subcommand("sweep")]
    | Annotated[CompareConfig, tyro.conf.subcommand("compare")]
    | Annotated[EvaluateConfig, tyro.conf.subcommand("evaluate")]
    | Annotated[TheoryConfig, tyro.conf.subcommand("theory")]
)


def main() -> int:
    command = tyro.cli(Command, prog="python -m experiments", description=__doc__)
    console = Console()
    match command:
        case SweepConfig():
            return sweep(command, console)
        case CompareConfig():
            compare(command, console)
        case EvaluateConfig():
            evaluate(command, console)
        case TheoryConfig():
            theory(command)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ToolGymError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
