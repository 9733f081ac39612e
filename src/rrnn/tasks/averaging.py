"""Averages of the weights over the steps: exponential moving averages, several at once, and the mean of a tail (ASGD).

Both follow one rule: before its start an average is the weights themselves; its n-th step moves it by max(1 − decay,
1/n) towards them. So an exponential one begins as a plain mean, without a trace of the first weights, and a tail is
one whose decay is 1. Averages that look at the weights in every m-th step only follow the same rule, counted in looks:
a decay of a step is decayᵐ of a look.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TAIL = "tail"


class Averages:
    """Which averages are kept, and how far they are. `counters` holds the number of steps, then each average's; in
    every `every`-th step they look at the weights."""

    def __init__(self, emas: Sequence[float], tail: bool, device: torch.device, every: int = 1) -> None:
        self.names, self.every = [f"ema{decay:g}" for decay in emas] + [TAIL] * tail, every
        self.decays = torch.tensor([decay**every for decay in (*emas, *[1.0] * tail)], device=device)
        self.counters = torch.zeros(1 + len(self.names), device=device)
        self._active = torch.ones_like(self.counters)
        if tail:
            self._active[-1] = 0.0

    def __len__(self) -> int:
        return len(self.names)

    def start_tail(self) -> None:
        """From the next step on."""
        self._active[-1] = 1.0

    def count(self) -> None:
        """One more step."""
        self.counters += self._active

    def shares(self) -> Tensor:
        """(K,): how far the averages move towards the weights in this step."""
        # the first look counts whole, however late before it the average began
        looks = (self.counters[1:] + (self.every - 1)).div(self.every, rounding_mode="floor")
        return torch.maximum(1 - self.decays, 1 / looks.clamp(min=1.0)) * (self.counters[0] % self.every == 0)

    @property
    def ready(self) -> dict[str, int | None]:
        """Name → row of what there is to evaluate: the weights as they are, and averages that have begun."""
        begun = [name != TAIL or bool(self._active[-1]) for name in self.names]
        return {"last": None} | {name: row for row, name in enumerate(self.names) if begun[row]}

    def tensors(self) -> dict[str, Tensor]:
        return {"counters": self.counters, "active": self._active}
