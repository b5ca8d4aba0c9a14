"""AdamW: to the bit that of torch, in steps, in what a checkpoint keeps of it, and without what making that imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from agents.checkpoint import Checkpoint, load, save
from agents.optimizer import AdamW
from tests.tiny import DEVICES

ROOT = Path(__file__).parents[1]
RATES = (0.1, 0.05, 0.02)


def parameters(device: str = "cpu") -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in ((7, 5), (300,), (5,))]


def give_gradients(made: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(1 + step)
    for parameter in made:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.device)
    if step == 0:
        made[2].grad = None  # moves for the first time when the others have moved


def states_of(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The states of torch's class by the names that a checkpoint has for them."""
    states = optimizer.state_dict()["state"]
    return {f"{number}.{name}": value.clone() for number, state in states.items() for name, value in state.items()}


def make(made: list[nn.Parameter]) -> AdamW:
    return AdamW((made[:1], 0.1), (made[1:], 0.0), learning_rate=RATES[0])


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_that_of_torch_to_the_bit(device: str) -> None:
    ours, theirs = parameters(device), parameters(device)
    groups = [{"params": theirs[:1], "weight_decay": 0.1}, {"params": theirs[1:], "weight_decay": 0.0}]
    one, other = make(ours), torch.optim.AdamW(groups, lr=RATES[0], betas=(0.9, 0.95), fused=True)
    for step, rate in enumerate(RATES):
        one.learning_rate = other.param_groups[0]["lr"] = other.param_groups[1]["lr"] = rate
        one.zero_grad()
        assert all(parameter.grad is None for parameter in ours)
        for made in (ours, theirs):
            give_gradients(made, step)
        one.step()
        other.step()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)), step
        kept = states_of(other)
        assert one.tensors().keys() == kept.keys()
        assert all(torch.equal(value, kept[name]) for name, value in one.tensors().items()), step


def test_it_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = parameters()
    optimizer = make(whole)
    for step in range(3):
        give_gradients(whole, step)
        optimizer.step()
        if step == 1:
            save(tmp_path / "c", Checkpoint({str(n): p for n, p in enumerate(whole)}, optimizer.tensors(), {}, {}))
    saved = load(tmp_path / "c")
    again = [nn.Parameter(saved.policy[str(number)]) for number in range(3)]
    resumed = make(again)
    resumed.restore(saved.optimizer)
    give_gradients(again, 2)
    resumed.step()
    assert all(torch.equal(a, b) for a, b in zip(whole, again, strict=True))


def test_it_goes_on_from_the_states_of_torch_s_class() -> None:
    """Those of a first step, at which not all have moved: as in checkpoints that were made with it."""
    ours, theirs = parameters(), parameters()
    other = torch.optim.AdamW(theirs, lr=0.1, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    give_gradients(theirs, 0)
    other.step()
    with torch.no_grad():
        for a, b in zip(ours, theirs, strict=True):
            a.copy_(b)
    one = AdamW((ours, 0.0), learning_rate=0.1)
    one.restore(states_of(other))
    for made, optimizer in ((ours, one), (theirs, other)):
        give_gradients(made, 1)
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"3.step": torch.tensor(1.0)}, "of which there are 3"),
        ({"-1.step": torch.tensor(1.0)}, "of which there are 3"),
        ({"0.momentum": torch.zeros(7, 5)}, "state of parameter 0"),
        ({"1.exp_avg": torch.zeros(7, 5)}, "state of parameter 1"),
        ({"1.exp_avg": None}, "state of parameter 1"),
    ],
)
def test_states_of_other_parameters_are_refused_and_change_nothing(
    changes: dict[str, torch.Tensor | None], message: str
) -> None:
    made = parameters()
    optimizer = make(made)
    give_gradients(made, 1)
    optimizer.step()
    before = optimizer.tensors()
    tensors = {name: value for name, value in {**before, **changes}.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        optimizer.restore(tensors)
    assert all(optimizer.tensors()[name] is value for name, value in before.items())


def test_a_process_that_trains_does_not_import_the_compiler_of_torch(
    tmp_path: Path, tiny_cold_starts: Callable[[Path], Path]
) -> None:
    tiny_cold_starts(tmp_path)
    program = f"""
import sys
from pathlib import Path
from agents.trainer import train
from tests.tiny import Silent, tiny_config
train(tiny_config(Path({str(tmp_path)!r}), **{{"run.steps": 1}}), Silent())
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
