"""Train a tool-using transformer from nothing: cold start, then GRPO with a rule for which rollouts to learn from.

    python train.py                                   the default: GRPO-RoC, faults correlated with reasoning
    python train.py --selector grpo --noise iid       another rule, other noise
    python train.py --resume runs/NAME                go on with a run
    python train.py --config runs/NAME/config.json --name again    the same run once more, or with other settings
    python train.py --help                            every setting

The loop is in agents/trainer.py, the loss in agents/grpo.py, the rules in agents/selection.py.

Deviations from the textbook:
- GRPO (arXiv 2402.03300): no KL term and no reference policy; no entropy bonus; the upper clip is wider
  (0.28, DAPO); the loss is a mean over the tokens of all chosen rollouts, not a mean of means; groups with
  equal rewards are dropped.
- GRPO-RoC (arXiv 2508.20722): errors are counted from the tools' structured status, not by looking for the word
  "error"; the format penalty is the paper's, not the released code's; quotas are the released code's, repaired
  for odd sizes.
- The model starts from demonstrations of format, sloppiness and luck (agents/sft.py) in place of pre-training.
"""

from __future__ import annotations

import argparse
import gc
import sys
from dataclasses import dataclass, fields
from pathlib import Path

try:
    from rich.console import Console

    from agents import runs, trainer
    from agents.command import exit_status, parse
    from agents.config import Config
    from agents.display import open_display, print_summary
    from agents.signals import StopSignals
    from tool_gym.errors import ConfigError
except KeyboardInterrupt:
    # Importing torch takes seconds, in which there is nothing to end in order.
    print("interrupted", file=sys.stderr)
    sys.exit(130)


@dataclass(frozen=True)
class Arguments(Config):
    resume: Path | None = None
    """Folder of a run to go on with; its own settings are used."""
    config: Path | None = None
    """A run's config.json: its settings are the defaults."""


def read_arguments(words: list[str]) -> Arguments:
    """The command line; with ``--config FILE`` over the settings of that file."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--config", type=Path)
    known, _ = early.parse_known_args(words)
    default = Arguments()
    if known.config is not None:
        given = runs.config_of(known.config, "config", str(known.config), "the config.json of a run")
        default = Arguments(**{f.name: getattr(given, f.name) for f in fields(Config)})
    arguments: Arguments = parse(Arguments, words, default=default, description=__doc__)
    return arguments


def main(arguments: Arguments) -> None:
    console = Console()
    with open_display(console) as display:
        stop = StopSignals(display.note)
        config = Config(**{f.name: getattr(arguments, f.name) for f in fields(Config)})
        with stop.installed():
            if arguments.resume is None:
                folder = trainer.train(config, display, stop)
            elif changed := config.arguments():
                raise ConfigError("resume", " ".join(changed), "no other setting: a run goes on with its own")
            else:
                folder = trainer.resume(arguments.resume, display, stop)
    print_summary(console, runs.read_summary(folder))
    told = f"run folder: {folder}\ncurves: {folder / 'curves.png'}"
    console.print(told, soft_wrap=True, markup=False, highlight=False)


def run(words: list[str]) -> int:
    """Train as the command line says; returns the exit status, errors on purpose being one line on stderr."""
    hint = "--resume RUN_DIR goes on from the latest checkpoint, else from the start"
    return exit_status(lambda: main(read_arguments(words)), hint)


if __name__ == "__main__":
    # What the imports made stays: the garbage collector need not look through it again and again.
    gc.freeze()
    sys.exit(run(sys.argv[1:]))
