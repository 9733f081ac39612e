"""The ops that graphs record, of torch.compile, torch.export and torch.jit.trace: `rrnn::forward` and its kin.

`rrnn.ops` calls them where a graph is captured. Programs travel as texts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.backends.interface import cast, compute_dtype
from rrnn.backends.layer_call import LayerCall, LayerCells, run_backward, run_forward
from rrnn.backends.registry import resolve
from rrnn.errors import BackendError
from rrnn.ir import Program


class _OpCells(NamedTuple):
    """The last arguments of both ops: `LayerCells` in types that torch's schemas have."""

    programs: list[str]
    widths: list[int]
    every: int
    backend: str
    sequences: Tensor | None = None

    def resolved(self, x: Tensor) -> LayerCells:
        """Parse the programs, and find the backend that runs them on x's device."""
        programs = [Program.parse(text) for text in self.programs]
        packed = self.sequences is not None
        backend = resolve(self.backend, x.device, x.dtype, programs, steps=x.shape[0], packed=packed)
        return LayerCells(programs, self.widths, self.every, backend)


_LIB = torch.library.Library("rrnn", "DEF")
_CELLS = "str[] programs, SymInt[] widths, int every, str backend, Tensor? sequences=None"
_LIB.define(
    f"forward(Tensor x, Tensor[] params, Tensor[] states, Tensor? mask, Tensor? inp, {_CELLS})"
    " -> (Tensor, Tensor[], Tensor[])",
    tags=(torch.Tag.needs_fixed_stride_order,) if hasattr(torch.Tag, "needs_fixed_stride_order") else (),
)
_LIB.define(
    "backward(Tensor x, Tensor[] params, Tensor? mask, Tensor? inp, Tensor[] saved, Tensor grad_out,"
    f" Tensor[] grad_finals, {_CELLS}) -> (Tensor, Tensor[], Tensor[], Tensor)"
)


def _op_forward(
    x: Tensor,
    params: list[Tensor],
    states: list[Tensor],
    mask: Tensor | None,
    inp: Tensor | None,
    *cells: Any,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    given = _OpCells(*cells)
    call = LayerCall(x, params, mask, inp, given.resolved(x), given.sequences)
    first = [cast(s, compute_dtype(x.dtype)) for s in states]
    with torch.no_grad():
        out, finals, saved = run_forward(call, first)
    # Flat: as a dimension, ⌈T / every⌉ is 1 for short sequences, and a graph traced on one would refuse longer ones.
    return out, finals, [kept.reshape(-1) for kept in saved]


def _op_backward(
    x: Tensor,
    params: list[Tensor],
    mask: Tensor | None,
    inp: Tensor | None,
    saved: list[Tensor],
    grad_out: Tensor,
    grad_finals: list[Tensor],
    *cells: Any,
) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor]:
    given = _OpCells(*cells)
    call = LayerCall(x, params, mask, inp, given.resolved(x), given.sequences)
    shapes = [own.saved_shape(g.shape[0]) for own, g in zip(call.split(), grad_finals, strict=True)]
    saved = [kept.view(shape) for kept, shape in zip(saved, shapes, strict=True)]
    with torch.no_grad():
        every = [True] * len(saved)
        gx, gp, gs, gi = run_backward(call, saved, grad_out, grad_finals, every, every)
    return gx, gp, [g for g in gs if g is not None], x.new_empty(0) if gi is None else gi


_LIB.impl("forward", _op_forward, "CompositeExplicitAutograd")
_LIB.impl("backward", _op_backward, "CompositeExplicitAutograd")


@torch.library.register_fake("rrnn::forward", lib=_LIB)
def _fake_forward(x: Tensor, *rest: Any) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    programs, widths, every, _, packed = _OpCells(*rest[4:])
    dtype, steps, rows = compute_dtype(x.dtype), x.shape[0], x.shape[1]
    batch = rows if packed is None else packed.shape[0]
    parsed = [Program.parse(text) for text in programs]
    counts = [p.flat.state_count for p in parsed]
    finals = [x.new_empty(n, batch, w, dtype=dtype) for n, w in zip(counts, widths, strict=True)]
    kept = 0  # stored numbers of all units of one sequence, as in `CellCall.saved_shape`
    if every:
        kept = (steps + every - 1) // every * batch if packed is None else steps // every + batch
    saved = [x.new_empty(kept * n * w, dtype=dtype) for n, w in zip(counts, widths, strict=True)]
    columns = sum(w * p.output_count for p, w in zip(parsed, widths, strict=True))
    return x.new_empty(steps, rows, columns), finals, saved if every else []


@torch.library.register_fake("rrnn::backward", lib=_LIB)
def _fake_backward(
    x: Tensor, params: list[Tensor], mask: Tensor | None, inp: Tensor | None, *rest: Any
) -> tuple[Tensor, list[Tensor], list[Tensor], Tensor]:
    _, _, grad_finals, *_ = rest
    states = [
        torch.empty_like(g, dtype=compute_dtype(x.dtype), memory_format=torch.contiguous_format)
        for g in grad_finals
    ]
    gi = x.new_empty(0) if inp is None else inp.new_empty(inp.shape)
    return x.new_empty(x.shape), [p.new_empty(p.shape) for p in params], states, gi


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, params, states, mask, inp, *cells = inputs
    given = _OpCells(*cells)
    ctx.save_for_backward(x, inp, mask, given.sequences, *params, *output[2])
    ctx.cells, ctx.dtypes = given._replace(sequences=None), [s.dtype for s in states]


def _op_grad(ctx: Any, grad_out: Tensor, grad_finals: list[Tensor], _: Any) -> tuple[Any, ...]:
    cells, count = ctx.cells, len(ctx.dtypes)
    if not cells.every:
        raise BackendError(
            "this graph kept no states for a backward pass, since it was traced for inference (torch.no_grad). "
            "Compile or export it with gradients enabled to train it."
        )
    x, inp, mask, packed, *rest = ctx.saved_tensors
    params, saved = rest[:count], rest[count:]
    grads = grad_out, list(grad_finals)
    cells = cells._replace(sequences=packed)
    gx, gp, gs, gi = torch.ops.rrnn.backward(x, params, mask, inp, saved, *grads, *cells)
    gs = [g.to(d) for g, d in zip(gs, ctx.dtypes, strict=True)]
    rest = len(ctx.needs_input_grad) - 5  # graphs of older versions do not pass `sequences`
    return gx, gp, gs, None, None if inp is None else gi, *[None] * rest


torch.library.register_autograd("rrnn::forward", _op_grad, setup_context=_setup, lib=_LIB)


def wants_gradients(tensors: Iterable[Tensor | None]) -> bool:
    """Return whether autograd will ask for gradients of any of these tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _op_traced(
    x: Tensor,
    params: list[Tensor],
    states: list[Tensor],
    mask: Tensor | None,
    inp: Tensor | None,
    programs: str,
    every: int,
    backend: str,
    sequences: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    grad = wants_gradients([x, inp, *params, *states])
    cells = json.loads(programs), [s.shape[-1] for s in states], every if grad else 0, backend, sequences
    out, finals, _ = torch.ops.rrnn.forward(x, params, states, mask, inp, *cells)
    return out, finals


_LIB.define(
    "traced(Tensor x, Tensor[] params, Tensor[] states, Tensor? mask, Tensor? inp, str programs, int every,"
    " str backend, Tensor? sequences=None) -> (Tensor, Tensor[])"
)
_LIB.impl("traced", _op_traced, "CompositeImplicitAutograd")
