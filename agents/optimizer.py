"""AdamW (arXiv 1711.05101) for every training here, by the fused kernel of torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adamw import adamw

_BETAS = (0.9, 0.95)
_EPSILON = 1e-8


class Optimizer(Protocol):
    """What an update needs of an optimiser. Those of `torch.optim` have it, too: tests learn with them."""

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def step(self) -> object:
        """Move the parameters along their gradients."""


class AdamW:
    """`torch.optim.AdamW(fused=True)` to the bit, its steps and states, but not its class.

    Making that imports torch's compiler, which nothing here uses, and takes as long as importing torch itself: in
    every process that trains (docs/PERFORMANCE.md).

    Args:
        groups: parameters, each group with its weight decay. A parameter's number counts through all groups.
        learning_rate: of the next step; may be set before each.
    """

    def __init__(self, *groups: tuple[Iterable[Tensor], float], learning_rate: float) -> None:
        self.groups = [(list(parameters), decay) for parameters, decay in groups]
        self.parameters = [parameter for parameters, _ in self.groups for parameter in parameters]
        self.learning_rate = learning_rate
        self._states: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameters, decay in self.groups:
            moved = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
            for parameter, _ in moved:
                if parameter not in self._states:
                    self._states[parameter] = self._new_state(parameter)
            states = [self._states[parameter] for parameter, _ in moved]
            adamw(
                [parameter for parameter, _ in moved],
                [gradient for _, gradient in moved],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=self.learning_rate,
                weight_decay=decay,
                eps=_EPSILON,
                maximize=False,
            )

    @staticmethod
    def _new_state(parameter: Tensor) -> dict[str, Tensor]:
        return {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }

    def tensors(self) -> dict[str, Tensor]:
        """The states of all parameters that have moved, named ``<parameter number>.<field>``."""
        numbers = {parameter: number for number, parameter in enumerate(self.parameters)}
        return {f"{numbers[p]}.{name}": value for p, state in self._states.items() for name, value in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what ``tensors`` returned.

        Raises ValueError, changing nothing, where that is no state of these parameters.
        """
        found: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            owner, _, name = key.partition(".")
            found.setdefault(int(owner), {})[name] = value
        if not found.keys() <= set(range(len(self.parameters))):
            raise ValueError(f"states of parameters {sorted(found)}, of which there are {len(self.parameters)}")
        states: dict[Tensor, dict[str, Tensor]] = {}
        for number, fields in found.items():
            parameter = self.parameters[number]
            fresh = self._new_state(parameter)
            if _shapes(fields) != _shapes(fresh):
                raise ValueError(f"state of parameter {number}: {_shapes(fields)}, must be {_shapes(fresh)}")
            states[parameter] = {name: fields[name].to(fresh[name]) for name in fresh}
        self._states = states


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}
