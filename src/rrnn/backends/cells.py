"""Cells side by side on a backend, without autograd: pre-activations of all of them in one tensor, outputs written side
by side into one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from rrnn.backends.base import Backend, cast, compute_dtype
from rrnn.backends.reference.interpreter import interpret, leaves
from rrnn.ir import Op, Program, adjoint


def slices(x: Tensor, programs: Sequence[Program], widths: Sequence[int]) -> list[Tensor]:
    """Per cell a view (T, B, K, D) of the pre-activations."""
    if len(programs) == 1 and (k := len(programs[0].projections)) * widths[0] == x.shape[2]:
        return [
            x.view(x.shape[0], x.shape[1], k, widths[0])
        ]  # a tenth of the time below: it counts in `step`
    views, start = [], 0
    for program, width in zip(programs, widths, strict=True):
        k = len(program.projections)
        views.append(x[..., start : start + k * width].unflatten(-1, (k, width)))
        start += k * width
    return views


def columns(y: Tensor | None, widths: Sequence[int]) -> list[Tensor | None]:
    """Per cell a view (T, B, D) of a tensor with ΣD columns."""
    if y is None:
        return [None] * len(widths)
    return [y] if len(widths) == 1 else list(y.split(list(widths), -1))


def run_forward(
    backend: Backend,
    x: Tensor,
    params: Sequence[Tensor],
    states: Sequence[Tensor | None],
    mask: Tensor | None,
    inp: Tensor | None,
    programs: Sequence[Program],
    widths: Sequence[int],
    every: int,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """`states` in the compute dtype, None for a cell's own numbers."""
    out = x.new_empty((*x.shape[:2], sum(widths)))
    finals, saved = [], []
    rows = zip(
        programs,
        slices(x, programs, widths),
        params,
        states,
        columns(inp, widths),
        columns(out, widths),
        strict=True,
    )
    for program, a, p, s, i, o in rows:
        assert o is not None
        end, kept = backend.forward(program, a, p, s, mask, i if program.uses_input else None, every, o)
        finals.append(end)
        saved += [kept] if kept is not None else []
    return out, finals, saved


def run_backward(
    backend: Backend,
    x: Tensor,
    params: Sequence[Tensor],
    mask: Tensor | None,
    inp: Tensor | None,
    saved: Sequence[Tensor],
    grad_out: Tensor,
    grad_finals: Sequence[Tensor | None],
    programs: Sequence[Program],
    widths: Sequence[int],
    every: int,
    wanted: Sequence[bool],
) -> tuple[Tensor, list[Tensor], list[Tensor | None], Tensor | None]:
    """`wanted`: per cell, whether the gradient of its first state is."""
    dtype = compute_dtype(x.dtype)
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    grad_inp = None if inp is None else inp.new_empty(inp.shape)
    if grad_inp is not None and not all(program.uses_input for program in programs):
        grad_inp.zero_()  # columns that no kernel writes
    grad_params, grad_states = [], []
    rows = zip(
        programs,
        slices(x, programs, widths),
        slices(grad_x, programs, widths),
        params,
        saved,
        grad_finals,
        columns(inp, widths),
        columns(grad_inp, widths),
        columns(grad_out, widths),
        wanted,
        strict=True,
    )
    for program, a, ga, p, kept, gs, i, gi, go, first in rows:
        assert go is not None
        i, gi = (i, gi) if program.uses_input else (None, None)
        gs = None if gs is None else cast(gs, dtype)
        units, to_first = backend.backward(program, a, p, mask, i, every, kept, go, gs, ga, gi, first)
        if not backend.gives_parameter_gradients:
            units = epilogue(program, cast(p, dtype), units)
        grad_params.append(cast(units, p.dtype))
        grad_states.append(to_first)
    return grad_x, grad_params, grad_states, grad_inp


def epilogue(program: Program, params: Tensor, units: Tensor) -> Tensor:
    """Gradients of per-unit values to gradients of parameters: a few (D,)-sized operations."""
    tail = adjoint(program).epilogue
    if _only_biases(tail):
        return units
    values = {n: params[p] for n, p in leaves(tail, Op.PARAM).items()}
    values |= {n: units[j] for n, j in leaves(tail, Op.GRAD_UNIT).items()}
    interpret(tail, range(len(tail.instructions)), values, params)
    rows = [values[n].expand(params.shape[-1]) for n in tail.of_kind("grad_param").values()]
    return torch.stack(rows) if rows else torch.zeros_like(params)


@lru_cache(maxsize=256)
def _only_biases(tail: Program) -> bool:
    """Whether every parameter is read as it is: its gradient is that of the per-unit value."""
    given = leaves(tail, Op.GRAD_UNIT)
    return [given.get(n) for n in tail.of_kind("grad_param").values()] == list(range(len(given)))
