"""SCRN (Mikolov et al. 2015): rational context units beside a hidden layer that is not shown to be rational."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.nn import RationalRNN, State
from rrnn.nn.layer_weights import uniform_rows
from rrnn.zoo.modules.recurrent import Recurrent, keep, positive
from rrnn.zoo.scrn import scrn


class SCRNState(NamedTuple):
    context: State
    hidden: Tensor
    """(batch, units)"""


class SCRN(Recurrent):
    """s = (1 − α) B v + α s'; h = σ(P s + A v + R h'). The output is [h; s]: hidden_size + context_size numbers.

    `context_size` is a fifth of `hidden_size` if it is not given.
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
        positive(input_size=input_size, hidden_size=hidden_size, context_size=context_size)
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
