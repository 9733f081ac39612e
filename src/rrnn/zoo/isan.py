"""ISAN, the input switched affine network (Foerster et al. 2017): c = W_x c' + b_x, with W and b for each symbol x.

Its units mix, so it is no cell. Each unit is the score of an automaton with 2d states all the same (the paper's D_i):
d of them hold c, d others are initial, loop on one and feed c with b.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.errors import ShapeError
from rrnn.nn.affine import AffineRNN


class ISAN(AffineRNN):
    """`ISAN(28, 64)` reads symbols 0 … 27, as int64 (T, B), and returns its states (T, B, 64) and the last one.

    chunk: compose this many steps to one map, in parallel over the chunks; None walks step by step.
    `weight` (symbols, units, units) starts with random orthogonal matrices, `bias` (symbols, units) uniform in
    ±1/√units.
    """

    features = 0

    def __init__(
        self,
        num_symbols: int,
        hidden_size: int,
        batch_first: bool = False,
        *,
        chunk: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(hidden_size, batch_first, chunk)
        if not isinstance(num_symbols, int) or isinstance(num_symbols, bool) or num_symbols <= 0:
            raise ShapeError(f"num_symbols must be a whole number above 0; got {num_symbols!r}")
        self.num_symbols = num_symbols
        shape = (num_symbols, hidden_size, hidden_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(shape[:2], device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the initialisation anew."""
        for matrix in self.weight:
            # orthogonal_ knows no half precision
            drawn = torch.empty(matrix.shape, device=matrix.device, dtype=torch.float32)
            matrix.copy_(nn.init.orthogonal_(drawn))
        bound = self.hidden_size**-0.5
        nn.init.uniform_(self.bias, -bound, bound)

    @property
    def dtype(self) -> torch.dtype:
        return self.weight.dtype

    def check_input(self, input: Tensor, mask: Tensor | None) -> None:
        if input.is_floating_point() or input.is_complex() or input.dtype == torch.bool:
            raise ShapeError(
                f"ISAN reads symbols, whole numbers; got {input.dtype}. For vectors there is LinearElman."
            )
        # Only where looking is free: on a GPU it would wait for the device, and a compiler cannot look.
        if input.device.type != "cpu" or torch.compiler.is_compiling() or not input.numel():
            return
        wrong = (input < 0) | (input >= self.num_symbols)
        wrong = wrong if mask is None else wrong & mask
        if wrong.any():
            raise ShapeError(
                f"symbols are numbered from 0 to {self.num_symbols - 1}; got {int(input[wrong][0])}. "
                "If it is padding, say so: mask= or lengths=."
            )

    def affine(self, input: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        symbols = input.long() if mask is None else torch.where(mask, input.long(), 0)
        return symbols, self.weight, F.embedding(symbols, self.bias)

    def extra_repr(self) -> str:
        return f"{self.num_symbols}, {self.hidden_size}"
