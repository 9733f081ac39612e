"""Layers whose units mix: faces of the cells `isan` and `linear_elman`, with weights under their papers' names.

ISAN, the input switched affine network (Foerster et al. 2017): c = W_x c' + b_x, with a matrix W and a vector b for
each symbol x. Each of its d units is the score of an automaton with 2d states (the paper's D_i): d states hold c; the d
others are initial, loop with weight one and feed c with b.

The Elman network without its nonlinearity: c = W c' + U v + b, which is ISAN with one matrix for all symbols. With a
tanh around it (`torch.nn.RNN`) it is not rational.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.backends.interface import captured
from rrnn.errors import ShapeError
from rrnn.nn.affine import AffineRNN, Weights
from rrnn.nn.sequences import zero_padding
from rrnn.zoo.recurrent import check_sizes
from rrnn.zoo.wide import isan, linear_elman


class ISAN(AffineRNN):
    """An ISAN layer: `ISAN(28, 64)` reads symbols 0 … 27, int64 (T, B), and returns its states (T, B, 64) and the last.

    `weight` (symbols, units, units) is initialised with random orthogonal matrices, `bias` (symbols, units) uniformly
    in ±1/√units. chunk: compose this many steps into one map, in parallel over the chunks; None runs step by step.
    """

    features = 0
    hint = '. ISAN reads symbols; its cell reads vectors, as in RationalRNN("ISAN:units=64", …)'

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
        check_sizes(num_symbols=num_symbols)
        self.num_symbols = num_symbols
        shape = (num_symbols, hidden_size, hidden_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(shape[:2], device=device, dtype=dtype))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the weights again."""
        for matrix in self.weight:
            # orthogonal_ does not support half precision
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
                f"ISAN reads symbols, as integers; got {input.dtype}. Use LinearElman for vectors, or ISAN's cell, as "
                'in RationalRNN("ISAN:units=64", …).'
            )
        # Check only where it is free: on a GPU it would wait for the device, and a compiler cannot trace it.
        if input.device.type != "cpu" or captured() or not input.numel():
            return
        wrong = (input < 0) | (input >= self.num_symbols)
        wrong = wrong if mask is None else wrong & mask
        if wrong.any():
            raise ShapeError(
                f"symbols are numbered from 0 to {self.num_symbols - 1}; got {int(input[wrong][0])}. "
                "If it is padding, pass mask= or lengths=."
            )

    def cell(self) -> Cell:
        return isan(self.hidden_size)

    def weights(self, input: Tensor, mask: Tensor | None) -> Weights:
        symbols = input.long() if mask is None else torch.where(mask, input.long(), 0)
        return Weights({"W": self.weight.mT, "b": self.bias}, symbols)  # the cell's W is (source, target)

    def extra_repr(self) -> str:
        return f"{self.num_symbols}, {self.hidden_size}"


class LinearElman(AffineRNN):
    """A linear Elman layer: `LinearElman(300, 64)` reads (T, B, 300); it returns its states (T, B, 64) and the last.

    `weight_hh` is W, `weight_ih` U and `bias` b; all are initialised uniformly in ±1/√units, as in `nn.RNN`. chunk:
    compose this many steps into one map, in parallel over the chunks; None runs step by step.
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
        check_sizes(input_size=input_size)
        self.input_size = input_size
        self.weight_hh = nn.Parameter(torch.empty(hidden_size, hidden_size, device=device, dtype=dtype))
        self.weight_ih = nn.Parameter(torch.empty(hidden_size, input_size, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise the weights again."""
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
                f"expected input of {self.dtype}, the dtype of the layer's weights; got {input.dtype}. "
                f"Convert one of them: input.to({self.dtype}) or layer.to({input.dtype})."
            )

    def cell(self) -> Cell:
        return linear_elman(self.hidden_size, bias=False)  # the product with `weight_ih` adds it

    def weights(self, input: Tensor, mask: Tensor | None) -> Weights:
        u = F.linear(zero_padding(input, mask), self.weight_ih, self.bias)
        return Weights({"U": u, "W": self.weight_hh.mT})  # the cell's W is (source, target)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}{'' if self.bias is not None else ', bias=False'}"
