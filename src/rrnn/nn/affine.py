"""Layers of affine recurrences c_t = M_{x_t} c_{t−1} + u_t that read symbols or vectors: faces of affine cells.

A layer has a cell (`rrnn.zoo.wide`), and weights under names and in shapes of its own. The cell's program says which of
them are the matrix M and the vector u (`rrnn.ir.affine`); `rrnn.backends.affine` runs the recurrence. A symbol's matrix
is read in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.backends.affine.parts import given_parts
from rrnn.backends.affine.scan import IDENTITY, affine_scan
from rrnn.backends.interface import compute_dtype
from rrnn.errors import ShapeError
from rrnn.ir import lower
from rrnn.nn.arguments import positive
from rrnn.nn.sequences import OneStep, TimeFirst


class Weights(NamedTuple):
    """What an affine cell reads."""

    values: Mapping[str, Tensor]
    """The matrix (source, target) and the vector that enters, by their names in the cell: (T, B, …) if they depend on
    vectors; (symbols, …) where the input is a symbol."""
    symbols: Tensor | None = None
    """(T, B) int64, without those of padding."""


class AffineRNN(nn.Module, ABC):
    """One layer of an affine recurrence. A subclass defines the cell, and what it reads.

    Layouts, masks, lengths and streaming are those of `RationalRNN`. The state is one tensor, (batch, units).
    """

    features: int
    """Dimensions of one step of one sequence: 0 for symbols, 1 for vectors."""
    hint: str = ""
    """What to add to a message about an input with other dimensions."""

    def __init__(self, hidden_size: int, batch_first: bool, chunk: int | None) -> None:
        super().__init__()
        self.hidden_size, self.batch_first = positive(hidden_size, "hidden_size"), bool(batch_first)
        self.chunk = None if chunk is None else positive(chunk, "chunk")
        self.given = given_parts(lower(self.cell()).program)

    @abstractmethod
    def cell(self) -> Cell:
        """Return the automaton of the layer's units."""

    @abstractmethod
    def weights(self, input: Tensor, mask: Tensor | None) -> Weights:
        """Return what the cell reads of a checked input, time first. Whatever padding holds must not reach it."""

    def affine(self, input: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return (symbols (T, B), matrices (S, d, d), u (T, B, d)) of a checked input, time first."""
        values, symbols = self.weights(input, mask)
        matrix, u = values[self.given.matrix], values[self.given.entry]
        matrix = matrix.mT if self.given.by_source else matrix
        if symbols is None:
            symbols = torch.zeros(input.shape[:2], dtype=torch.int64, device=input.device)
            return symbols, matrix.unsqueeze(0), u
        return symbols, matrix, F.embedding(symbols, u)

    @abstractmethod
    def check_input(self, input: Tensor, mask: Tensor | None) -> None:
        """Raise a `ShapeError` for an input that is not this layer's."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters, and so of the output."""

    def init_state(self, batch_size: int | None = None) -> Tensor:
        """Return c_0: zeros (batch, units), or (units,) for unbatched input."""
        shape = (self.hidden_size,) if batch_size is None else (batch_size, self.hidden_size)
        return next(self.parameters()).new_zeros(shape, dtype=compute_dtype(self.dtype))

    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return (states c_1 … c_T, the last state) of a batch, time first unless `batch_first`, or of one sequence.

        `hx` is a state that an earlier call returned. `lengths` (B) or `mask` (True at valid steps) mark padding: it
        changes no state, outputs zeros, and nothing depends on what it holds.
        """
        dims = input.dim() if isinstance(input, Tensor) else -1
        if dims - self.features not in (1, 2):
            got = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(
                f"expected a tensor with {self.features + 1} or {self.features + 2} dimensions; got {got}{self.hint}"
            )
        given = TimeFirst(input, self.features, self.batch_first, lengths, mask)
        x, mask = given.x, given.mask
        self.check_input(x, mask)
        first = self._first(hx, given)
        symbols, matrices, u = self.affine(x, mask)
        if mask is not None:
            symbols, u = torch.where(mask, symbols, IDENTITY), torch.where(mask.unsqueeze(-1), u, 0.0)
        work = first.dtype
        states = affine_scan(symbols, matrices.to(work), u.to(work), first, chunk=self.chunk)
        final = states[-1] if x.shape[0] else first
        out = states if mask is None else torch.where(mask.unsqueeze(-1), states, 0.0)
        return given.output(out.to(self.dtype)), given.state_out(final)

    def step(self, x_t: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return (output, state) of one step, for streaming."""
        if not isinstance(x_t, Tensor) or x_t.dim() - self.features not in (0, 1):
            got = tuple(x_t.shape) if isinstance(x_t, Tensor) else type(x_t).__name__
            raise ShapeError(
                f"expected one step, a tensor with {self.features} or {self.features + 1} dimensions; got {got}"
            )
        given = OneStep(x_t, self.features)
        self.check_input(given.x, None)
        first = self._first(state, given)
        symbols, matrices, u = self.affine(given.x, None)
        m, u = matrices[symbols[0]].to(first.dtype), u[0].to(first.dtype)
        final = torch.baddbmm(u.unsqueeze(-1), m, first.unsqueeze(-1)).squeeze(-1)
        final = given.state_out(final)
        return final.to(self.dtype), final

    def _first(self, hx: Tensor | None, given: TimeFirst) -> Tensor:
        """Return the first state, (B, d), in the dtype that states have."""
        if hx is None:
            return self.init_state(given.x.shape[1])
        expected = (*given.batch, self.hidden_size)
        if not isinstance(hx, Tensor) or not hx.is_floating_point() or tuple(hx.shape) != expected:
            got = f"{hx.dtype} {tuple(hx.shape)}" if isinstance(hx, Tensor) else type(hx).__name__
            names = "(batch, units)" if given.batched else "(units,)"
            raise ShapeError(
                f"expected a state of shape {expected}, numbers of {names}; got {got}. "
                "Pass a state that this layer returned, or init_state."
            )
        return given.state_in(hx).to(compute_dtype(self.dtype))
