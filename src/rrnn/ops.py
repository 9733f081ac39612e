"""Where compiled cells meet autograd.

`rational` runs the cells of one layer side by side: pre-activations of all of them in one tensor, outputs written side
by side into one tensor. Three ways lead to a backend, with the same results:

* eagerly on the reference backend: plain torch ops, so that double backward and vmap work;
* eagerly on any other backend: an `autograd.Function`, which costs a quarter of a registered op's call;
* under torch.compile, torch.export and torch.jit.trace: the opaque ops `rrnn::forward` and `rrnn::backward`; under
  torch.onnx.export the op `rrnn::cell`, one per cell.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.backends import reference, shared_states
from rrnn.backends.cell_op import cell_by_cell
from rrnn.backends.extents import join_states
from rrnn.backends.interface import captured, cast, compute_dtype, first_state
from rrnn.backends.layer_call import LayerCall, LayerCells, run_backward, run_forward
from rrnn.backends.reference import per_unit_values
from rrnn.backends.registered_ops import wants_gradients
from rrnn.backends.registry import chosen, resolve
from rrnn.backends.triton.plan import save_every as gpu_interval
from rrnn.errors import BackendError
from rrnn.ir import Program

SAVE_EVERY = 16
"""On the CPU, training saves the states before every SAVE_EVERY-th step and recomputes the others; 1 saves them all.
On a GPU the interval is `rrnn.backends.triton.plan.save_every`."""


class Result(NamedTuple):
    """What `rational` returns."""

    output: Tensor  # (T, B, ΣN·D): per cell all units' first output, then their second one, …
    states: list[Tensor]  # per cell (S, B, D)


Params = Tensor | Sequence[Tensor]
"""A cell's parameters (P, D), or their P rows (D,)."""


def rational(
    x: Tensor,
    params: Sequence[Params],
    states: Sequence[Tensor] | None,
    programs: Sequence[Program],
    *,
    mask: Tensor | None = None,
    inp: Tensor | None = None,
    save_every: int | None = None,
    weight: Tensor | None = None,
    widths: Sequence[int] | None = None,
    sequences: Tensor | None = None,
) -> Result:
    """Run cells side by side over time.

    x (T, B, Σ K·D) holds per cell its K projections of D units each; params[i] (P, D), or its rows; states[i]
    (S, B, D), None for the cells' own; mask (T, B) bool; inp (T, B, ΣD) for cells that read the layer's input.
    With a weight (Σ K·D, I), x (T, B, I) is what it projects: the product is part of the same node of autograd's graph,
    which saves time on the host. (Not inside autocast, nor where a graph is captured.)

    A program of families reads flat rows of pre-activations and parameters (see `rrnn.backends.extents`), which do not
    tell the number of units: `widths` are those of all cells.

    Packed sequences: x and inp are (total, 1, …), states[i] (S, n, D), and `sequences` (n, 3) is what `packed_table`
    makes of their offsets. Nothing crosses from one sequence to the next, and no padding is made."""
    rows = [[p] if isinstance(p, Tensor) else p for p in params]
    widths = [r[0].shape[-1] for r in rows] if widths is None else widths
    name, grad = chosen(), wants_gradients(chain((x, weight, inp), *rows, states or ()))
    batch = x.shape[1] if sequences is None else sequences.shape[0]
    if captured():
        tables, texts = [_table(r) for r in rows], [p.text for p in programs]
        first = list(initial_states(programs, tables, batch, widths) if states is None else states)
        every, given = save_every or _interval(x, programs), (x, tables, first, mask, inp)
        if torch._C._get_tracing_state() is not None and not torch.compiler.is_compiling():
            # One op, of any number of steps, that can be trained or not. Traces have no lists of strings.
            return Result(*torch.ops.rrnn.traced(*given, json.dumps(texts), every, name, sequences))
        if torch.onnx.is_in_onnx_export():
            cells = LayerCells(programs, widths, 0, resolve(name, x.device, x.dtype, programs))
            return Result(*cell_by_cell(LayerCall(x, tables, mask, inp, cells, sequences), first))
        layer = texts, list(widths), every if grad else 0, name, sequences
        out, final, _ = torch.ops.rrnn.forward(*given, *layer)
        return Result(out, final)
    if name == "auto" and torch._C._are_functorch_transforms_active():
        name = "reference"  # torch.func can transform torch ops only
    backend = resolve(name, x.device, x.dtype, programs, steps=x.shape[0], packed=sequences is not None)
    if weight is not None and not (grad and backend.name != "reference"):
        x = F.linear(x, weight)
    every = (save_every or backend.interval(x, programs, widths) or _interval(x, programs)) if grad else 0
    cells = LayerCells(programs, widths, every, backend)
    if backend.name == "reference":
        tables = [_table(r) for r in rows]
        first = initial_states(programs, tables, batch, widths) if states is None else states
        return _eager_reference(LayerCall(x, tables, mask, inp, cells, sequences), first)
    if states is None:  # kernels know first states that are numbers
        first = [
            None if None not in p.flat.first_states else initial_state(p, _table(r), batch, w)
            for p, r, w in zip(programs, rows, widths, strict=True)
        ]
    else:
        first = [cast(s, compute_dtype(x.dtype)) for s in states]
    if not grad:
        call = LayerCall(x, [_table(r) for r in rows], mask, inp, cells, sequences)
        out, final, _ = run_forward(call, first)
        return Result(out, final)
    layer = cells, [len(r) for r in rows]
    out, *final = _RationalFunction.apply(layer, mask, sequences, x, weight, inp, *chain(*rows), *first)
    return Result(out, final)


def _interval(x: Tensor, programs: Sequence[Program]) -> int:
    """Return the interval at which training saves states where neither the caller nor the backend has a wish."""
    return min(gpu_interval(len(p.flat.instructions)) for p in programs) if x.is_cuda else SAVE_EVERY


def initial_state(program: Program, params: Tensor, batch: int, units: int | None = None) -> Tensor:
    """Return λ of every stored state, (S, batch, D), differentiable in the parameters."""
    program, units = program.flat, units or params.shape[-1]
    dtype = compute_dtype(params.dtype)
    if None not in program.first_states:  # the usual case
        return first_state(program, batch, units, params, dtype)
    values = per_unit_values(program, params.to(dtype), units)
    count = 0 if program.wide is None else len(program.wide.sizes)
    found = [values[i] if values[i].dim() else values[i].view([1] * (count + 1)) for i in program.initial]
    first = [value.expand(batch, *[-1] * count, units) for value in found]
    return join_states(program, first, params)


def initial_states(
    programs: Sequence[Program], params: Sequence[Params], batch: int, widths: Sequence[int] | None = None
) -> tuple[Tensor, ...]:
    """Return the `initial_state` of each of several cells side by side."""
    tables = [_table(p) for p in params]
    widths = [t.shape[-1] for t in tables] if widths is None else widths
    return tuple(initial_state(p, t, batch, w) for p, t, w in zip(programs, tables, widths, strict=True))


def _table(params: Params) -> Tensor:
    """Return a cell's parameters as one tensor, (P, D)."""
    if isinstance(params, Tensor):
        return params
    if len(params) > 1:
        return torch.stack(params)  # pyright: ignore[reportArgumentType]
    return params[0] if params[0].dim() == 2 else params[0].unsqueeze(0)


# ---- eager autograd ---------------------------------------------------------------------------------------------


def _eager_reference(call: LayerCall, states: Sequence[Tensor]) -> Result:
    """Run the cells with plain torch ops, which autograd records."""
    outputs, finals = [], []
    for own, state in zip(call.split(), states, strict=True):
        program = own.program
        if program.shares_states:
            own, state = own._replace(program=program.with_unit_states), shared_states.spread(program, state)
        out, end = reference.run(own, state)
        outputs.append(out)
        finals.append(shared_states.pick(program, end) if program.shares_states else end)
    if not call.x.shape[-1]:  # no op reads it, and its gradient is an empty tensor, as kernels return it
        nothing = call.x.sum()
        outputs, finals = ([each + nothing.to(each.dtype) for each in some] for some in (outputs, finals))
    return Result(outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1), finals)


class _FirstDerivativeOnly(torch.autograd.Function):
    """Gradients that cannot be differentiated again, and raise if they are. (Torch's once_differentiable does not
    notice where the incoming gradient is a constant, as that of `out.sum()` is: second derivatives are then silently
    wrong.)"""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the first `count` tensors, the gradients; the others are what they depend on."""
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise BackendError(
            "gradients of compiled kernels have no gradients of their own; a second derivative was asked for. Run the "
            'forward pass under `with rrnn.use_backend("reference"):`.'
        )


def _through_product(
    grad: Tensor, x: Tensor, weight: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of x and of the weight, from that of their product."""
    rows = grad.flatten(0, 1)
    to_x = rows.mm(weight).view(x.shape) if wanted[0] else None
    return to_x, rows.t().mm(x.flatten(0, 1)) if wanted[1] else None


class _RationalFunction(torch.autograd.Function):
    """The cells of a layer, and perhaps the matrix product before them, as one node of autograd's graph."""

    @staticmethod
    def forward(
        ctx: Any,
        layer: tuple[LayerCells, list[int]],
        mask: Tensor | None,
        sequences: Tensor | None,
        x: Tensor,
        weight: Tensor | None,
        inp: Tensor | None,
        *rest: Any,
    ) -> tuple[Tensor, ...]:
        """Run the cells. `layer` holds the cells and how many rows of parameters each of them has; `rest` holds all
        cells' rows, then their states. (Rows, so that no stack is in the graph.)"""
        ctx.cells, counts = layer
        params, ctx.are_rows, ctx.counts, at = [], [], counts, 0
        for count in counts:
            rows = rest[at : at + count]
            params.append(_table(rows))
            ctx.are_rows.append(rows[0].dim() == 1)
            at += count
        y = x if weight is None else F.linear(x, weight)
        call = LayerCall(y, params, mask, inp, ctx.cells, sequences)
        out, finals, saved = run_forward(call, rest[at:])
        ctx.set_materialize_grads(False)  # usually nothing depends on the final states
        ctx.save_for_backward(x, weight, y, inp, mask, sequences, *params, *saved)
        return out, *finals

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_out: Tensor | None, *grad_finals: Tensor | None
    ) -> tuple[Any, ...]:
        cells, count = ctx.cells, len(ctx.are_rows)
        x, weight, y, inp, mask, sequences, *rest = ctx.saved_tensors
        params, saved = rest[:count], rest[count:]
        go: Tensor = x.new_zeros((*x.shape[:2], cells.output_size())) if grad_out is None else grad_out
        twice = torch.is_grad_enabled()  # create_graph=True
        with torch.no_grad() if twice else nullcontext():
            call, wanted = LayerCall(y, params, mask, inp, cells, sequences), ctx.needs_input_grad[-count:]
            learned, at = [], 6
            for n in ctx.counts:
                learned.append(True in ctx.needs_input_grad[at : at + n])
                at += n
            gx, gp, gs, gi = run_backward(call, saved, go, grad_finals, wanted, learned)
            gw = None
            if weight is not None:
                gx, gw = _through_product(gx, x, weight, ctx.needs_input_grad[3:5])
            gp = [
                row
                for g, is_row in zip(gp, ctx.are_rows, strict=True)
                for row in (g.unbind() if is_row else [g])
            ]
        grads = (gx, gw, gi, *gp, *gs)
        if twice:
            grads = _FirstDerivativeOnly.apply(
                len(grads), *grads, x, weight, inp, *params, *saved, go, *grad_finals
            )
        return None, None, None, *grads  # pyright: ignore[reportGeneralTypeIssues]
