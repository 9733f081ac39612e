"""The translation table with which `torch.onnx.export` writes layers: rrnn's registered ops as ONNX nodes.

torch's exporter calls a translation with the values of an op's arguments, and records every operator that is called
meanwhile. `Recorder` calls operators for the same functions that `rrnn.export` builds its graphs with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import evaluator

from rrnn.backends import cell_op  # noqa: F401  # registers rrnn::cell
from rrnn.exporters.onnx_cells import cell_nodes, spread
from rrnn.exporters.onnx_nodes import Emitter
from rrnn.ir import Op, Program
from rrnn.ir.program import Extent

_NAMES = (f"rrnn_value_{n}" for n in count())


class Recorder(Emitter):
    """Adds nodes to the graph that torch's exporter is building."""

    def add(self, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        found = self.add_several(op, 1, *inputs, **attributes)
        return found[0]

    def add_several(
        self, op: str, outputs: int, *inputs: ir.Value | None, **attributes: Any
    ) -> Sequence[ir.Value]:
        recorder: Any = evaluator.default()
        # Appended to the recorder's nodes, as torch does for its own Scan: an operator whose number of outputs varies
        # cannot be called.
        node = ir.node(op, inputs, attributes, num_outputs=outputs)
        for value in node.outputs:
            value.name = next(self.names)
        recorder.nodes.append(node)
        return node.outputs

    def constant(self, array: np.ndarray) -> ir.Value:
        return self.add("Constant", value=ir.tensor(array))


def translate_cell(
    x: ir.Value, params: ir.Value, state: ir.Value, mask: Any, inp: Any, program: str
) -> Sequence[ir.Value]:
    """Write `rrnn::cell` as ONNX nodes: x (T, B, K, D), params (P, D), state (S, B, D), mask (T, B), inp (T, B, D);
    x (T, B, numbers) and params (1, numbers) of a program with families."""
    parsed = Program.parse(program)
    flat, wide = parsed.flat, parsed.flat.wide
    assert x.dtype is not None and state.shape is not None
    units = state.shape[-1]
    assert isinstance(units, int)
    g = Recorder(np.dtype(x.dtype.numpy()), _NAMES)

    def part(value: ir.Value, index: int, axis: int) -> ir.Value:
        return g.add("Squeeze", g.slice(value, index, index + 1, axis), g.integers(axis))

    def numbers(value: ir.Value, extents: Sequence[Extent], index: int, axis: int) -> ir.Value:
        assert wide is not None
        start = sum(wide.numbers(e, units) for e in extents[:index])
        return g.slice(value, start, start + wide.numbers(extents[index], units), axis)

    leaves: dict[int, ir.Value] = {}
    for n, (op, _, attr) in enumerate(flat.instructions):
        index = 0 if op is Op.CONST else int(attr or 0)
        if op is Op.PARAM and wide is not None:
            own = numbers(part(params, 0, 0), wide.parameters, index, 0)
            leaves[n] = spread(g, wide, wide.parameters[index], own, units, 0)
        elif op is Op.PARAM:
            leaves[n] = part(params, index, 0)
        elif op is Op.PREACT:
            leaves[n] = part(x, index, 2) if wide is None else numbers(x, wide.projections, index, 2)
        elif op is Op.INPUT:
            leaves[n] = inp
    valid = None if mask is None else g.unsqueeze(mask, 2)
    shape = g.size(x, 0), g.size(x, 1), g.integers(units)
    out, final = cell_nodes(g, parsed, leaves, state if flat.states else None, valid, units, shape)
    return out, g.add("Identity", state if final is None else final)


TRANSLATIONS: dict[Any, Any] = {torch.ops.rrnn.cell.default: translate_cell}
"""Op → function that writes it as ONNX nodes."""
