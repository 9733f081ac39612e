"""The op `rrnn::cell`, one cell over time, for torch.onnx.export.

torch's ONNX exporter cannot take ops that return lists of tensors, as `rrnn::forward` does, so a layer is traced cell
by cell there. `rrnn.exporters.torch_onnx` translates this op into ONNX nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rrnn.backends import shared_states
from rrnn.backends.interface import CellCall, cast, compute_dtype
from rrnn.backends.layer_call import LayerCall
from rrnn.backends.registry import resolve
from rrnn.errors import BackendError
from rrnn.ir import Program


def cell_by_cell(call: LayerCall, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Run the cells of a layer, each by an op of its own; return the layer's output and the cells' final states."""
    if call.sequences is not None:
        raise BackendError(
            "ONNX models cannot take packed sequences, and this one is exported with cu_seqlens=. Export it with a "
            "padded batch and lengths=."
        )
    outputs, finals = [], []
    for own, state in zip(call.split(), states, strict=True):
        first = cast(state, compute_dtype(own.x.dtype))
        out, end = torch.ops.rrnn.cell(own.x, own.params, first, own.mask, own.inp, own.program.text)
        outputs.append(out)
        finals.append(end)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1), finals


@torch.library.custom_op("rrnn::cell", mutates_args=())
def _cell(
    x: Tensor, params: Tensor, state: Tensor, mask: Tensor | None, inp: Tensor | None, program: str
) -> tuple[Tensor, Tensor]:
    """Return (output, final state) of x (T, B, K, D), params (P, D), state (S, B, D), mask (T, B), inp (T, B, D), or of
    the flat rows of a program with families (`rrnn.backends.extents`)."""
    parsed, units = Program.parse(program), state.shape[-1]
    out = x.new_empty(*x.shape[:2], parsed.output_count * units)
    backend = resolve("auto", x.device, x.dtype, [parsed], steps=x.shape[0])
    call = CellCall(parsed, x, params, mask, inp, width=0 if parsed.wide is None else units)
    end, _ = shared_states.forward(backend, call, state, out)
    return out, end.clone()  # an op must not return one of its arguments


@_cell.register_fake
def _(x: Tensor, params: Tensor, state: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    columns = Program.parse(rest[-1]).output_count * state.shape[-1]
    return x.new_empty(x.shape[0], x.shape[1], columns), torch.empty(
        state.shape, dtype=state.dtype, device=state.device
    )
