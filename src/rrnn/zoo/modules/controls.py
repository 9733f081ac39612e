"""Two neighbours of rational models whose gates see the state: they are not shown to be rational."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.errors import CellError
from rrnn.nn.layer_weights import uniform_rows
from rrnn.zoo.modules.looped import Looped, Update


class SRUv2(Looped):
    """SRU, version 2 (Lei et al. 2018): f = σ(W_f v + v_f ⊙ c' + b_f), r = σ(W_r v + v_r ⊙ c' + b_r);
    c = f ⊙ c' + (1 − f) ⊙ W v; h = r ⊙ c + (1 − r) ⊙ v. A further projection replaces v where sizes differ."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        def make(inputs: int) -> Update:
            return _SRUv2(inputs, hidden_size, device, dtype)

        super().__init__(make, input_size, hidden_size, num_layers, batch_first, dropout)


class _SRUv2(Update):
    def __init__(self, inputs: int, units: int, device: Any, dtype: Any) -> None:
        super().__init__()
        self.hidden_size, self.projected = units, inputs != units
        rows = 4 if self.projected else 3
        self.weight = nn.Parameter(torch.empty(rows * units, inputs, device=device, dtype=dtype))
        self.peephole = nn.Parameter(torch.zeros(2, units, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(2, units, device=device, dtype=dtype))
        with torch.no_grad():
            uniform_rows(self.weight, inputs)

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def forward(
        self, projected: Tensor, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        (c,), (new, f, r, *rest) = state, projected.split(self.hidden_size, -1)
        f, r = (
            torch.sigmoid(a + v * c + b) for a, v, b in zip((f, r), self.peephole, self.bias, strict=True)
        )
        c = f * c + (1 - f) * new
        return r * c + (1 - r) * (rest[0] if self.projected else x), (c,)


class StateRCNN(Looped):
    """n-gram RCNN whose decay sees the state: λ = σ(W_c c' + W_λ v + b_λ) with c' = cⁿ of the previous step;
    cʲ = λ ⊙ cʲ' + (1 − λ) ⊙ cʲ⁻¹' ⊙ W_j v, c⁰ = 1; h = tanh(cⁿ + b)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        n: int = 2,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(n, int) or not 1 <= n <= 64:
            raise CellError(f"an n-gram RCNN has n from 1 to 64; got {n!r}")

        def make(inputs: int) -> Update:
            return _StateRCNN(inputs, hidden_size, n, device, dtype)

        super().__init__(make, input_size, hidden_size, num_layers, batch_first, dropout)


class _StateRCNN(Update):
    def __init__(self, inputs: int, units: int, n: int, device: Any, dtype: Any) -> None:
        super().__init__()
        self.hidden_size, self.states = units, n
        self.weight = nn.Parameter(torch.empty((1 + n) * units, inputs, device=device, dtype=dtype))
        self.recurrent = nn.Parameter(torch.empty(units, units, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(2, units, device=device, dtype=dtype))  # b_λ, b
        with torch.no_grad():
            uniform_rows(self.weight, inputs)
            uniform_rows(self.recurrent, units)

    def project(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)

    def forward(
        self, projected: Tensor, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        decay, *u = projected.split(self.hidden_size, -1)
        decay = torch.sigmoid(F.linear(state[-1], self.recurrent) + decay + self.bias[0])
        before = (torch.ones_like(decay), *state)
        new = tuple(decay * c + (1 - decay) * before[j] * u[j] for j, c in enumerate(state))
        return torch.tanh(new[-1] + self.bias[1]), new
