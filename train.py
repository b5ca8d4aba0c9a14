"""Train a tool-using transformer from nothing: cold start, then GRPO with a rule for which rollouts to learn from.

    python train.py                                   the default: GRPO-RoC, faults correlated with reasoning
    python train.py --selector grpo --noise iid       another rule, other noise
    python train.py --resume runs/NAME                go on with a run
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

import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import tyro
from rich.console import Console

from agents import trainer
from agents.config import Config
from agents.display import open_display, print_summary
from tool_gym.errors import ConfigError, ToolGymError


@dataclass(frozen=True)
class Arguments(Config):
    resume: Path | None = None
    """Folder of a run to go on with; its own settings are used."""


def main(arguments: Arguments) -> None:
    console = Console()
    with open_display(console) as display:
        config = Config(**{f.name: getattr(arguments, f.name) for f in fields(Config)})
        if arguments.resume is None:
            folder = trainer.train(config, display)
        elif changed := config.arguments():
            raise ConfigError("resume", " ".join(changed), "no other setting: a run goes on with its own")
        else:
            folder = trainer.resume(arguments.resume, display)
    print_summary(console, json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    console.print(f"run folder: {folder}\ncurves: {folder / 'curves.png'}", soft_wrap=True, highlight=False)


if __name__ == "__main__":
    try:
        main(tyro.cli(Arguments, description=__doc__))
    except (ToolGymError, OSError) as error:
        # A full disk or a folder that cannot be read is the machine's; the latest checkpoint is whole.
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        print("interrupted; --resume RUN_DIR goes on from the latest checkpoint", file=sys.stderr)
        sys.exit(130)
