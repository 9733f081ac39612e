"""torch's LSTM and GRU with the interface and the dropouts of a `RationalRNN`: the same harness for all models."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from rrnn.nn.dropout import Drops

Kind = Literal["lstm", "gru"]
GATES = {"lstm": 4, "gru": 3}


class TorchLayer(nn.Module):
    """One layer. Its parameters are `nn.LSTM`'s and `nn.GRU`'s, in cuDNN's order, to lie side by side in memory.

    They are read at each call, unlike those of `nn.LSTM`, so that others can stand in (`torch.func.functional_call`).
    """

    def __init__(
        self,
        kind: Kind,
        input_size: int,
        hidden_size: int,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        rows = GATES[kind] * hidden_size
        self.kind, self.input_size, self.hidden_size = kind, input_size, hidden_size
        for name, shape in {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def forward(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x (T, B, I); the state is (h, c) of an LSTM and (h,) of a GRU, each (1, B, H)."""
        weights: list[Tensor] = list(self.parameters())
        options = (True, 1, 0.0, self.training, False, False)  # biases, one layer, no dropout, …, time first
        if self.kind == "lstm":
            out, *end = torch._VF.lstm(x, state, weights, *options)
        else:
            out, *end = torch._VF.gru(x, state[0], weights, *options)
        return out, tuple(end)


class TorchRNN(nn.Module):
    """Layers of torch's own, each input with a mask per sequence (`recurrent_dropout`), `dropout` between layers and
    `input_dropout` before the first."""

    def __init__(
        self,
        kind: Kind,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        forget_bias: float = 0.0,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.kind, self.hidden_size, self.forget_bias = kind, hidden_size, forget_bias
        self.dropout, self.input_dropout, self.recurrent_dropout = dropout, input_dropout, recurrent_dropout
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(TorchLayer(kind, size, hidden_size, device, dtype) for size in sizes)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Matrices uniform in ±√(3 / columns), biases 0, as in a `RationalRNN`; an LSTM's f at `forget_bias`."""
        for name, value in self.named_parameters():
            bound = (3 / value.shape[-1]) ** 0.5 if "weight" in name else 0.0
            value.uniform_(-bound, bound)
            if self.kind == "lstm" and name.endswith("bias_ih"):
                value[self.hidden_size : 2 * self.hidden_size].fill_(self.forget_bias)

    def init_state(self, batch_size: int) -> tuple[tuple[Tensor, ...], ...]:
        zeros = next(self.parameters()).new_zeros(1, batch_size, self.hidden_size)
        return tuple((zeros,) * (2 if self.kind == "lstm" else 1) for _ in self.layers)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(output (T, B, H), state) of x (T, B, I)."""
        state, ends = self.init_state(x.shape[1]) if state is None else state, []
        drops = Drops.current()
        for depth, layer in enumerate(self.layers):
            if self.training:
                x = drops(x, self.dropout if depth else self.input_dropout, self.recurrent_dropout)
            x, end = layer(x, state[depth])
            ends.append(end)
        return x, tuple(ends)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(output (B, H), state) of one step x (B, I)."""
        out, state = self(x.unsqueeze(0), state)
        return out.squeeze(0), state
