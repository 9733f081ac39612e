"""Controls: recurrences that are not rational (docs/theory.md). A Python loop runs them, since no scan can.

They are called as a `RationalRNN` is: `layer(input, hx, lengths=…, mask=…)`, `step`, `init_state`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.nn import RationalRNN, State
from rrnn.nn.layer_weights import uniform_rows
from rrnn.zoo.gated import scrn
from rrnn.zoo.recurrent import Recurrent, check_sizes, keep
from rrnn.zoo.rrnn import check_length


class Update(nn.Module, ABC):
    """The update of one layer: how a step changes its state, which is `states` tensors (B, H)."""

    states = 1
    hidden_size: int

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Return (T, B, …): everything that does not depend on the state, for all steps at once."""

    @abstractmethod
    def forward(
        self, projected: Tensor, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return (output, new state) of one step, given what `project` returned for it and its input x (B, I)."""


class Looped(Recurrent):
    """A stack of layers that loop over time. The state is a tuple of one tensor (states, batch, units) per layer."""

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
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
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


class SRUv2(Looped):
    """SRU, version 2 (Lei et al. 2018), whose gates see the state.

    f = σ(W_f v + v_f ⊙ c' + b_f), r = σ(W_r v + v_r ⊙ c' + b_r); c = f ⊙ c' + (1 − f) ⊙ W v; h = r ⊙ c + (1 − r) ⊙ v.
    A further projection replaces v where the input and hidden sizes differ.
    """

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
    """The n-gram RCNN (Lei et al. 2015, 2016) whose decay sees the state.

    λ = σ(W_c c' + W_λ v + b_λ) with c' = cⁿ of the previous step; cʲ = λ ⊙ cʲ' + (1 − λ) ⊙ cʲ⁻¹' ⊙ W_j v, c⁰ = 1;
    h = tanh(cⁿ + b).
    """

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
        check_length("an n-gram RCNN", "n", n)

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


class SCRNState(NamedTuple):
    """The state of an `SCRN`."""

    context: State
    hidden: Tensor
    """(batch, units)"""


class SCRN(Recurrent):
    """SCRN (Mikolov et al. 2015): rational context units beside a hidden layer that is not rational.

    s = (1 − α) B v + α s'; h = σ(P s + A v + R h'). The output is [h; s], of hidden_size + context_size components.
    `context_size` defaults to a fifth of `hidden_size`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        context_size: int | None = None,
        batch_first: bool = False,
        alpha: float = 0.95,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        context_size = max(1, hidden_size // 5) if context_size is None else context_size
        check_sizes(input_size=input_size, hidden_size=hidden_size, context_size=context_size)
        self.input_size, self.hidden_size, self.context_size = input_size, hidden_size, context_size
        self.batch_first = bool(batch_first)
        self.context = RationalRNN(scrn(alpha), input_size, context_size, device=device, dtype=dtype)
        self.A = nn.Parameter(torch.empty(hidden_size, input_size, device=device, dtype=dtype))
        self.P = nn.Parameter(torch.empty(hidden_size, context_size, device=device, dtype=dtype))
        self.R = nn.Parameter(torch.empty(hidden_size, hidden_size, device=device, dtype=dtype))
        with torch.no_grad():
            for matrix in (self.A, self.P, self.R):
                uniform_rows(matrix, matrix.shape[1])

    def init_state(self, batch_size: int | None = None) -> SCRNState:
        batch = () if batch_size is None else (batch_size,)
        return SCRNState(self.context.init_state(batch_size), self.R.new_zeros(*batch, self.hidden_size))

    def run(self, x: Tensor, state: Any, mask: Tensor | None) -> tuple[Tensor, SCRNState]:
        s, context = self.context(x, state.context, mask=mask)
        given, h, outputs = F.linear(x, self.A) + F.linear(s, self.P), state.hidden, []
        for t in range(x.shape[0]):
            h = keep(mask, t, torch.sigmoid(given[t] + F.linear(h, self.R)), h)
            outputs.append(h)
        hidden = torch.stack(outputs) if outputs else s.new_zeros(0, x.shape[1], self.hidden_size)
        return torch.cat([hidden, s], -1), SCRNState(context, h)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, context_size={self.context_size}"
