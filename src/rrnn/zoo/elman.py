"""The Elman network without its nonlinearity: c = W c' + U v + b. Rational, as ISAN with one matrix for all symbols.

With a tanh around it (torch's `nn.RNN`) it is the paper's example of a recurrence believed not to be rational.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.errors import ShapeError
from rrnn.nn.affine import AffineRNN
from rrnn.nn.sequences import zero_padding


class LinearElman(AffineRNN):
    """`LinearElman(300, 64)` reads vectors (T, B, 300) and returns its states (T, B, 64) and the last one.

    `weight_hh` is W, `weight_ih` U and `bias` b; all start uniform in ±1/√units, as `nn.RNN` does.
    chunk: compose this many steps to one map, in parallel over the chunks; None walks step by step.
    """

    features = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        batch_first: bool = False,
        *,
        chunk: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(hidden_size, batch_first, chunk)
        if not isinstance(input_size, int) or isinstance(input_size, bool) or input_size <= 0:
            raise ShapeError(f"input_size must be a whole number above 0; got {input_size!r}")
        self.input_size = input_size
        self.weight_hh = nn.Parameter(torch.empty(hidden_size, hidden_size, device=device, dtype=dtype))
        self.weight_ih = nn.Parameter(torch.empty(hidden_size, input_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the initialisation anew."""
        bound = self.hidden_size**-0.5
        for p in self.parameters():
            nn.init.uniform_(p, -bound, bound)

    @property
    def dtype(self) -> torch.dtype:
        return self.weight_hh.dtype

    def check_input(self, input: Tensor, mask: Tensor | None) -> None:
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"expected input with {self.input_size} features; got {input.shape[-1]} in {tuple(input.shape)}"
            )
        if input.dtype != self.dtype and not torch.is_autocast_enabled(input.device.type):
            raise ShapeError(
                f"expected input of {self.dtype}, as the layer's weights are; got {input.dtype}. "
                f"Convert one: input.to({self.dtype}), or layer.to({input.dtype})."
            )

    def affine(self, input: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        u = F.linear(zero_padding(input, mask), self.weight_ih, self.bias)
        symbols = torch.zeros(input.shape[:2], dtype=torch.int64, device=input.device)
        return symbols, self.weight_hh.unsqueeze(0), u

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}{'' if self.bias is not None else ', bias=False'}"
