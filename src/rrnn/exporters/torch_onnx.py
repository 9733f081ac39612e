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
from rrnn.exporters.onnx_nodes import Emitter, cell_nodes
from rrnn.exporters.parts import refuse_wide
from rrnn.ir import Op, Program

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
    """Write `rrnn::cell` as ONNX nodes: x (T, B, K, D), params (P, D), state (S, B, D), mask (T, B), inp (T, B, D)."""
    parsed = Program.parse(program)
    refuse_wide(parsed.name, [parsed])
    flat = parsed.flat
    assert x.dtype is not None
    g = Recorder(np.dtype(x.dtype.numpy()), _NAMES)

    def part(value: ir.Value, index: int, axis: int) -> ir.Value:
        return g.add("Squeeze", g.slice(value, index, index + 1, axis), g.integers(axis))

    leaves: dict[int, ir.Value] = {}
    for n, (op, _, attr) in enumerate(flat.instructions):
        if op is Op.PARAM:
            leaves[n] = part(params, int(attr or 0), 0)
        elif op is Op.PREACT:
            leaves[n] = part(x, int(attr or 0), 2)
        elif op is Op.INPUT:
            leaves[n] = inp
    valid = None if mask is None else g.unsqueeze(mask, 2)
    shape = g.size(x, 0), g.size(x, 1), g.size(params, 1)
    out, final = cell_nodes(g, parsed, leaves, state if flat.states else None, valid, shape)
    return out, g.add("Identity", state if final is None else final)


TRANSLATIONS: dict[Any, Any] = {torch.ops.rrnn.cell.default: translate_cell}
"""Op → function that writes it as ONNX nodes."""
