"""What goes wrong without an error, each said once, with what to do."""

from __future__ import annotations

from collections.abc import Mapping

_COLLAPSED_ENTROPY = 0.01  # nats a token: the policy's next token is all but certain
_GOOD_REWARD = 0.9  # a policy that is right may be certain


class Alarms:
    """Watches the figures of each step."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def check(self, step: int, figures: Mapping[str, float | int | None]) -> list[str]:
        """What to tell the user after a step: things not told before."""
        found = dict(_alarms(figures))
        fresh = [text for name, text in found.items() if name not in self._said]
        self._said |= found.keys()
        return [f"warning, step {step}: {text}" for text in fresh]


def _alarms(figures: Mapping[str, float | int | None]) -> list[tuple[str, str]]:
    reward, entropy, groups = figures.get("reward"), figures.get("entropy"), figures.get("train/groups_trained")
    alarms = []
    if reward == 0:
        advice = "easier --env.difficulties, or more --sft.steps"
        alarms.append(("no reward", f"no rollout was right, so there was nothing to learn from; try {advice}"))
    elif groups == 0:
        advice = "a larger --algo.group-size, or --algo.refill"
        alarms.append(("no group", f"all rewards within each group were equal, so nothing was learnt; try {advice}"))
    if entropy is not None and reward is not None and entropy < _COLLAPSED_ENTROPY and reward < _GOOD_REWARD:
        said = f"entropy is {entropy:.4f} at reward {reward:.2f}: the policy no longer explores"
        alarms.append(("entropy", f"{said}; try a smaller --algo.learning-rate"))
    return alarms
