"""Run the cells of a layer side by side on a backend, without autograd.

The pre-activations of all cells are in one tensor, and their outputs are written side by side into another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.backends import shared_states
from rrnn.backends.extents import gather, spread
from rrnn.backends.interface import Backend, CellCall, Gradients, cast, compute_dtype
from rrnn.backends.reference import interpret, leaves, parameter_values
from rrnn.ir import Op, Program, adjoint
from rrnn.ir.program import Families


class LayerCells(NamedTuple):
    """The cells that stand side by side in a layer, and how they run."""

    programs: Sequence[Program]
    widths: Sequence[int]  # units D of each cell
    every: int  # the interval at which states are saved for the backward pass; 0: inference
    backend: Backend

    def slices(self, x: Tensor) -> list[Tensor]:
        """Return each cell's view (T, B, K, D) of the pre-activations; (T, B, C) for a program of families."""
        programs, widths, _, _ = self
        steps, batch, size = x.shape
        if (
            len(programs) == 1
            and programs[0].wide is None
            and (k := len(programs[0].projections)) * widths[0] == size
        ):
            # Ten times faster than the lines below, which matters in `step`.
            return [x.view(steps, batch, k, widths[0])]
        views, start = [], 0
        for program, width in zip(programs, widths, strict=True):
            k, stop = len(program.projections), start + program.columns(width)
            own = x[..., start:stop]
            views.append(own.unflatten(-1, (k, width)) if program.wide is None else own)
            start = stop
        return views

    def columns(self, y: Tensor) -> list[Tensor]:
        """Return each cell's view (T, B, D) of a tensor with ΣD columns."""
        return [y] if len(self.widths) == 1 else list(y.split(list(self.widths), -1))

    def outputs(self, y: Tensor) -> list[Tensor]:
        """Return each cell's view (T, B, N·D) of the layer's output or of its gradient."""
        return [y] if len(self.widths) == 1 else list(y.split(self.output_widths(), -1))

    def output_size(self) -> int:
        """Return how many columns the output has."""
        programs, widths, _, _ = self
        if len(widths) == 1:  # without building a list, which matters in `step`
            return widths[0] * programs[0].output_count
        return sum(self.output_widths())

    def output_widths(self) -> list[int]:
        """Return how many columns of the output each cell writes."""
        return [width * p.output_count for p, width in zip(self.programs, self.widths, strict=True)]

    def inputs(self, inp: Tensor | None) -> list[Tensor | None]:
        """Return each cell's columns of the layer's input or of its gradient, None for a cell that does not use it."""
        if inp is None:
            return [None] * len(self.programs)
        pairs = zip(self.programs, self.columns(inp), strict=True)
        return [own if program.uses_input else None for program, own in pairs]


class LayerCall(NamedTuple):
    """What the forward and the backward pass of cells side by side read."""

    x: Tensor  # (T, B, Σ K·D)
    params: Sequence[Tensor]  # per cell (P, D)
    mask: Tensor | None  # (T, B)
    inp: Tensor | None  # (T, B, ΣD)
    cells: LayerCells
    sequences: Tensor | None = None  # (n, 3) of packed sequences, as in `CellCall`

    def split(self) -> list[CellCall]:
        """Return each cell's own call."""
        x, params, mask, inp, cells, packed = self
        if len(cells.programs) == 1:  # most layers have one, and time matters in `step`
            (program,), (table,), (view,) = cells.programs, params, cells.slices(x)
            own = inp if program.uses_input else None
            return [CellCall(program, view, table, mask, own, cells.every, cells.widths[0], packed)]
        own, masks, inputs = cells.slices(x), repeat(mask), cells.inputs(inp)
        rest = repeat(cells.every), cells.widths, repeat(packed)
        return list(map(CellCall, cells.programs, own, params, masks, inputs, *rest))


def run_forward(
    call: LayerCall, states: Sequence[Tensor | None]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the output (T, B, ΣN·D), the cells' final states and what they saved. `states` are in the compute dtype;
    None starts a cell from its own first states."""
    x, cells = call.x, call.cells
    steps, batch, _ = x.shape
    out = x.new_empty((steps, batch, cells.output_size()))
    finals, saved = [], []
    for own, state, into in zip(call.split(), states, cells.outputs(out), strict=True):
        end, kept = shared_states.forward(cells.backend, own, state, into)
        finals.append(end)
        if kept is not None:
            saved.append(kept)
    return out, finals, saved


def run_backward(
    call: LayerCall,
    saved: Sequence[Tensor],
    grad_out: Tensor,
    grad_finals: Sequence[Tensor | None],
    wanted: Sequence[bool],
    learned: Sequence[bool],
) -> tuple[Tensor, list[Tensor], list[Tensor | None], Tensor | None]:
    """Return the gradients of x, of the cells' parameters, of their first states, and of the layer's input.
    `wanted[i]`: whether to return the gradient with respect to cell i's first state. `learned[i]`: whether those of its
    parameters are of use."""
    x, cells, inp = call.x, call.cells, call.inp
    backend, dtype = cells.backend, compute_dtype(x.dtype)
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    grad_inp = None if inp is None else inp.new_empty(inp.shape)
    if grad_inp is not None and not all(program.uses_input for program in cells.programs):
        grad_inp.zero_()  # columns that no kernel writes
    to_states = [None if g is None else cast(g, dtype) for g in grad_finals]
    written = cells.slices(grad_x), cells.inputs(grad_inp)
    grads = map(Gradients, cells.outputs(grad_out), to_states, *written, wanted, learned)
    grad_params, grad_states = [], []
    for own, kept, given in zip(call.split(), saved, grads, strict=True):
        units, to_first = shared_states.backward(backend, own, kept, given)
        if not backend.gives_parameter_gradients(own.program):
            units = epilogue(own.program, cast(own.params, dtype), units, own.units)
        grad_params.append(cast(units, own.params.dtype))
        grad_states.append(to_first)
    return grad_x, grad_params, grad_states, grad_inp


def epilogue(program: Program, params: Tensor, units: Tensor, width: int) -> Tensor:
    """Return the gradients of parameters from those of per-unit values, by a few operations on (D,)-sized tensors."""
    tail = adjoint(program).epilogue
    if tail.wide is None and _only_biases(tail):
        return units
    given = list(units.unbind()) if tail.wide is None else _unit_gradients(tail.wide, units)
    values = parameter_values(tail, params, width)
    values |= {n: given[j] for n, j in leaves(tail, Op.GRAD_UNIT).items()}
    interpret(tail, range(len(tail.instructions)), values, params)
    found = [values[n] for n in tail.of_kind("grad_param").values()]
    if tail.wide is not None:
        return (
            gather(tail.wide, tail.wide.parameters, found, width)[None] if found else torch.zeros_like(params)
        )
    rows = [value.expand(width) for value in found]
    return torch.stack(rows) if rows else torch.zeros_like(params)


def _unit_gradients(wide: Families, units: Tensor) -> list[Tensor]:
    """Return the gradients (families, D) of per-unit values from the rows of all."""
    return spread(wide, wide.units, units.flatten(), units.shape[-1])


@lru_cache(maxsize=256)
def _only_biases(tail: Program) -> bool:
    """Return whether every parameter is read unchanged, so that its gradient is that of the per-unit value."""
    given = leaves(tail, Op.GRAD_UNIT)
    return [given.get(n) for n in tail.of_kind("grad_param").values()] == list(range(len(given)))
