"""Recurrences that no scan computes: a Python loop over time, for controls. What needs no state is one product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.zoo.modules.recurrent import Recurrent, keep, positive


class Update(nn.Module, ABC):
    """One layer: how a step changes its state, `states` tensors (B, H)."""

    states = 1
    hidden_size: int

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """(T, B, …): all that does not need the state, for all steps at once."""

    @abstractmethod
    def forward(
        self, projected: Tensor, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(output, new state) of one step, of what `project` gave for it and its input x (B, I)."""


class Looped(Recurrent):
    """Layers of an update, stacked. Its state is a tuple with one tensor (states, batch, units) per layer."""

    def __init__(
        self,
        make: Callable[[int], Update],
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        batch_first: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        positive(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout = bool(batch_first), float(dropout)
        self.layers = nn.ModuleList(make(hidden_size if i else input_size) for i in range(num_layers))

    def _updates(self) -> list[Update]:
        return list(self.layers)  # pyright: ignore[reportReturnType]

    def init_state(self, batch_size: int | None = None) -> tuple[Tensor, ...]:
        batch = () if batch_size is None else (batch_size,)
        like = next(self.parameters())
        return tuple(like.new_zeros(u.states, *batch, self.hidden_size) for u in self._updates())

    def run(self, x: Tensor, state: Any, mask: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        finals = []
        for depth, (update, first) in enumerate(zip(self._updates(), state, strict=True)):
            x = F.dropout(x, self.dropout, self.training) if depth else x
            projected, here, outputs = update.project(x), tuple(first.unbind(0)), []
            for t in range(x.shape[0]):
                out, new = update(projected[t], x[t], here)
                here = tuple(keep(mask, t, a, b) for a, b in zip(new, here, strict=True))
                outputs.append(out if mask is None else torch.where(mask[t].unsqueeze(-1), out, 0.0))
            x = torch.stack(outputs) if outputs else x.new_zeros(0, x.shape[1], self.hidden_size)
            finals.append(torch.stack(here))
        return x, tuple(finals)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"
