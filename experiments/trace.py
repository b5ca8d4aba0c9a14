"""The rollouts of one group as policy, environment and selection saw them, in the terminal or as a page."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from agents.checkpoint import atomic_write
from agents.config import Config
from agents.runs import TRAJECTORIES_FILE, read_config, read_rows
from agents.selection import SELECTORS
from tool_gym.errors import ConfigError
from tool_gym.protocol import printable

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; margin: 0 auto; max-width: 60rem; padding: 1rem; }
pre { background: #f6f6f6; padding: .5rem; border-left: 4px solid #0072B2; white-space: pre-wrap; margin: .3rem 0;
  overflow-wrap: anywhere; }
section.kept pre { border-color: #D55E00; } h2 { font-size: 1.05rem; margin: 1.4rem 0 .2rem; }
p { margin: .2rem 0; color: #444; } .fault { color: #8f3a00; font-weight: 600; }
"""


@dataclass(frozen=True)
class TraceConfig:
    """Show the rollouts of one group: text, calls, faults by origin, quality, penalty, kept or dropped and why."""

    run: Annotated[Path, tyro.conf.Positional]
    """Folder of the run."""
    step: int | None = None
    """Step whose sample is shown; they are written at evaluations. None: the last."""
    group: int | None = None
    """Which of the step's groups, where several were written. None: the first."""
    html: Path | None = None
    """A file to write the same to as a page."""


@dataclass(frozen=True)
class Told:
    """One rollout for people: a headline, its turns and replies, a line for each call, and what selection did."""

    headline: str
    text: str
    calls: tuple[str, ...]
    kept: bool
    why: str


def trace(config: TraceConfig, console: Console) -> None:
    """Print a group's rollouts, and write them as a page where that is asked for.

    Raises ConfigError where the run or its sample is not there.
    """
    own = read_config(config.run)
    rows = _group(read_rows(config.run / TRAJECTORIES_FILE), config)
    algo = own.algo.at(rows[0]["step"], own.run.steps)
    try:
        title = printable(f"{config.run.name}, step {rows[0]['step']}, rule {algo.selector}: {rows[0]['prompt']}")
        told = list(_told(rows, own))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        wanted = f"rollouts of this version ({type(error).__name__}: {error})"
        raise ConfigError("run", str(config.run / TRAJECTORIES_FILE), wanted) from error
    console.print(title, markup=False, highlight=False, style="bold")
    for rollout in told:
        style = "green" if rollout.kept else "dim"
        console.print(f"\n{rollout.headline}", markup=False, highlight=False, style=style)
        for line in (rollout.text, *rollout.calls, rollout.why):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    if config.html is not None:
        atomic_write(config.html, page(title, told))
        console.print(f"\npage: {config.html}", markup=False, highlight=False, soft_wrap=True)


def _group(rows: Sequence[dict[str, Any]], config: TraceConfig) -> list[dict[str, Any]]:
    steps = sorted({row["step"] for row in rows})
    if not steps:
        raise ConfigError("run", str(config.run), "a run whose trajectories.jsonl has a sample (--run.trajectories)")
    step = steps[-1] if config.step is None else config.step
    if step not in steps:
        raise ConfigError("step", step, ", ".join(map(str, steps)))
    groups = sorted({row.get("group", 0) for row in rows if row["step"] == step})
    group = groups[0] if config.group is None else config.group
    if group not in groups:
        raise ConfigError("group", group, ", ".join(map(str, groups)))
    return [row for row in rows if row["step"] == step and row.get("group", 0) == group]


def _told(rows: Sequence[dict[str, Any]], config: Config) -> Iterator[Told]:
    for number, row in enumerate(rows):
        outcome = "lost to the machinery" if not row["valid"] else "right" if row["reward"] > 0.5 else "wrong"
        luck = ", by luck" if row["lucky"] else ""
        # Runs of earlier revisions left nothing out of the loss.
        in_loss = bool(row.get("in_loss", row["selected"]))
        kept = "kept" if in_loss else "left out of the loss" if row["selected"] else "dropped"
        headline = f"[{number}] {outcome}{luck}, quality {row['quality']:.2f}, penalty {row['penalty']:.2f}: {kept}"
        calls = tuple(printable(_call(index, call)) for index, call in enumerate(row["calls"], start=1))
        yield Told(headline, printable(row["text"]), calls, in_loss, _why(number, rows, config))


def _call(index: int, call: dict[str, Any]) -> str:
    """What became of a call: its own result, and what was made of it."""
    if call["origin"] == "infrastructure":
        return f"call {index}: lost to the machinery"
    told = f"call {index}: {call['status'] if call['status'] == 'ok' else call['status'] + ' by the policy'}"
    if call["fault"]:
        # Runs of earlier revisions have no more than the kind.
        standing = call.get("standing")
        stays = ", one that stays" if call.get("permanent") and not standing else ""
        own = f" ({call['output']!r})" if "output" in call else ""
        fault = f"{'an earlier ' if standing else 'a '}{call['fault']} fault{stays}"
        told += f"{own}, then {'struck' if call['origin'] else 'silently altered'} by {fault}"
    elif call.get("scheduled"):
        told += f" (a {call['scheduled']} fault was drawn for it, with no working call to strike)"
    return f"{told}; reasoning quality {call['quality']:.2f}"


_ALL, _RANDOM, _FIRST = "all of them", "drawn at random", "the first that came"
_NOT_VOID = "without those that have a turn which neither calls nor answers"
_ORDER = {
    **dict.fromkeys(("grpo", "grpo_2g", "grpo_2p"), (_ALL, _ALL)),
    **dict.fromkeys(("random", "max_variance"), (_RANDOM, _RANDOM)),
    **dict.fromkeys(("stratified", "penalty"), (_RANDOM, _FIRST)),
    **dict.fromkeys(("roc", "roc_error", "roc_format", "roc_policy", "roc_ngram"), ("the cleanest first", _FIRST)),
    "roc_paper": ("drawn at random, the cleaner the more often", _FIRST),
    "anti_roc": ("the least clean first", _FIRST),
    "shortest": ("the shortest first", _FIRST),
    "oracle": ("the best reasoned first", _FIRST),
    "void_turn": (f"{_RANDOM}, {_NOT_VOID}", f"{_FIRST}, {_NOT_VOID}"),
}
"""In which order each rule keeps right rollouts, and wrong ones."""
_RANKED = {
    **dict.fromkeys(("roc", "roc_error", "roc_format", "roc_policy", "roc_ngram", "roc_paper"), ("penalty", 1)),
    "anti_roc": ("penalty", -1),
    "oracle": ("quality", -1),
}
"""What the order of right rollouts is by, smallest first, or with -1 greatest first."""


def _why(number: int, rows: Sequence[dict[str, Any]], config: Config) -> str:
    """Why selection kept or dropped a rollout."""
    row = rows[number]
    rule = config.algo.at(row["step"], config.run.steps).selector
    if not row["valid"]:
        return "dropped: lost to the machinery, so it says nothing about the policy"
    if not row["trainable"]:
        return f"dropped with its group: {_why_group(rows, rule, config)}"
    positive = row["reward"] > 0.5
    alike = [r for r in rows if r["valid"] and (r["reward"] > 0.5) == positive]
    kept = sum(bool(r["selected"]) for r in alike)
    kind = "right" if positive else "wrong"
    verb = "kept" if row["selected"] else "dropped"
    quota = (
        f"{verb}: one of {len(alike)} {kind} rollouts, all of which {rule} keeps"
        if kept == len(alike)
        else f"{verb}: one of {kept} of {len(alike)} {kind} rollouts that {rule} keeps"
        if row["selected"]
        else (f"{verb}: {rule} keeps {kept} of {len(alike)} {kind} rollouts")
    )
    # Of a rule that somebody added nothing more is known.
    told = f"{quota}, {_ORDER[rule][0 if positive else 1]}" if rule in _ORDER else quota
    if row["selected"] and not row.get("in_loss", True):
        return f"{told}; but left out of the loss, since it ended without an answer (--algo.overlong-filter)"
    if positive and rule in _RANKED:
        column, sign = _RANKED[rule]
        rank = 1 + sum(sign * r[column] < sign * row[column] for r in alike)
        level = sum(r[column] == row[column] for r in alike) - 1
        shared = f", as {'is' if level == 1 else 'are'} {level} more" if level else ""
        if shared and rule != "roc_paper":  # which draws
            shared += "; of these the earlier ones first"
        return f"{told}; this is {_ordinal(rank)} by {column}{shared}"
    return told


def _why_group(rows: Sequence[dict[str, Any]], rule: str, config: Config) -> str:
    """Why no rollout of a group is trained on."""
    valid, keep = [row for row in rows if row["valid"]], SELECTORS[rule].keep(config.algo.group_size)
    if len(valid) < keep:
        return f"{len(valid)} rollouts are left, and {rule} keeps {keep}"
    if len({row["reward"] for row in valid}) == 1:
        return "rewards that are all equal give no gradient"
    if config.algo.refill:
        return f"those that {rule} keeps have equal rewards, or enough groups before it had a gradient"
    return f"those that {rule} keeps have equal rewards, which give no gradient"


def _ordinal(rank: int) -> str:
    ending = "th" if 10 < rank % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{ending}"


def page(title: str, rollouts: Sequence[Told]) -> str:
    """The rollouts as a page that stands alone. Whatever a policy or a tool wrote is text on it, never markup."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for rollout in rollouts:
        calls = "".join(f"<p>{html.escape(line)}</p>" for line in rollout.calls)
        parts.append(
            f'<section class="{"kept" if rollout.kept else "dropped"}"><h2>{html.escape(rollout.headline)}</h2>'
            f"<pre>{html.escape(rollout.text)}</pre>{calls}<p>{html.escape(rollout.why)}</p></section>"
        )
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
