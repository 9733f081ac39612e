"""Layers as ONNX nodes: projections, windows, cells, skip connections, norms, directions, padding.

Each function follows the layer's own `forward`, in evaluation mode: x (T, B, I) time first, states as the layer has
them. Padding comes last in every sequence (`lengths`), so that a window's earlier inputs are the ones just before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn

from rrnn.errors import ExportError
from rrnn.exporters.onnx_cells import cell_nodes
from rrnn.exporters.onnx_nodes import Emitter, Graph
from rrnn.exporters.parts import cell_tables, finite, lag_matrix, unit_constants
from rrnn.ir import Op
from rrnn.nn.affine import AffineRNN
from rrnn.nn.layer import RationalLayer
from rrnn.nn.rnn import RationalRNN
from rrnn.zoo.mixing import ISAN, LinearElman


class Padding(NamedTuple):
    """The lengths of padded sequences, and the mask (T, B, 1) of valid steps."""

    lengths: ir.Value
    mask: ir.Value


class LayerValues(NamedTuple):
    """The state of a layer as ONNX values: None where a cell has no state, or the layer no window."""

    states: tuple[ir.Value | None, ...]
    history: ir.Value | None


def weight(g: Emitter, tensor: Tensor, what: str = "the model") -> ir.Value:
    """Return a parameter as a constant of the graph's dtype."""
    return g.constant(finite(tensor.detach().cpu().numpy().astype(g.dtype), what))


def padding(g: Emitter, x: ir.Value, lengths: ir.Value) -> Padding:
    """Return what is known of sequences x (T, B, …) with these lengths (B)."""
    steps = g.add("Squeeze", g.size(x, 0), g.integers(0))
    zero, one = (g.constant(np.array(n, np.int64)) for n in (0, 1))
    times = g.unsqueeze(g.add("Range", zero, steps, one), 1)
    return Padding(lengths, g.unsqueeze(g.add("Less", times, g.unsqueeze(lengths, 0)), 2))


def zeroed(g: Emitter, x: ir.Value, given: Padding | None) -> ir.Value:
    """Return x with zeros at padded steps."""
    return x if given is None else g.add("Where", given.mask, x, g.number(0.0))


def linear(g: Emitter, x: ir.Value, matrix: Tensor, bias: Tensor | None = None) -> ir.Value:
    """Return x · matrixᵀ + bias, as `F.linear` does."""
    y = g.add("MatMul", x, weight(g, matrix.detach().T.contiguous()))
    return y if bias is None else g.add("Add", y, weight(g, bias))


def module_nodes(g: Emitter, module: nn.Module, x: ir.Value, what: str) -> ir.Value:
    """Add a module that has no state: linear layers, activations, norms, and sequences of these."""
    activations = {nn.Tanh: "Tanh", nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid"}
    if isinstance(module, nn.Sequential):
        for part in module:
            x = module_nodes(g, part, x, what)
        return x
    if isinstance(module, nn.Linear):
        return linear(g, x, module.weight, module.bias)
    if type(module) in activations:
        return g.add(activations[type(module)], x)
    if isinstance(module, (nn.Identity, nn.Dropout)):
        return x
    if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1 and module.weight is not None:
        bias = torch.zeros_like(module.weight) if module.bias is None else module.bias
        scales = weight(g, module.weight), weight(g, bias)
        return g.add("LayerNormalization", x, *scales, axis=-1, epsilon=module.eps)
    raise ExportError(
        f"{what} is a {type(module).__name__}, which rrnn.export does not know: it knows linear layers, tanh, ReLU, "
        "sigmoid and LayerNorm. Export with torch.onnx.export and rrnn.onnx_translations() instead."
    )


# ---- one direction of one layer --------------------------------------------------------------------------------------


def layer_nodes(
    g: Emitter, layer: RationalLayer, x: ir.Value, state: LayerValues, given: Padding | None
) -> tuple[ir.Value, LayerValues]:
    """Add one direction of one layer; return (output, next state). x has zeros at padded steps."""
    y, history = _project(g, layer, x, state.history, given)
    columns = {(r.cell, r.name): g.slice(y, r.start, r.stop, 2) for r in layer.rows}
    steps, batch = g.size(x, 0), g.size(x, 1)
    outputs, finals, first, tables = [], [], 0, cell_tables(layer)
    for c, (program, width) in enumerate(zip(layer.programs, layer.widths, strict=True)):
        table, flat = tables[c], program.flat
        leaves = {
            n: g.constant(value.astype(g.dtype)) for n, value in unit_constants(program, table, width).items()
        }
        for n, (op, _, attr) in enumerate(flat.instructions):
            if op is Op.PREACT:
                leaves[n] = columns[c, flat.projections[int(attr or 0)]]
            elif op is Op.INPUT:
                whole = columns.get((-1, "input"), x)
                leaves[n] = g.slice(whole, first, first + width, 2)
        mask = None if given is None else given.mask
        shape = steps, batch, g.integers(width)
        out, final = cell_nodes(g, program, leaves, state.states[c], mask, width, shape)
        outputs.append(out)
        finals.append(final)
        first += width
    out = _around(g, layer, g.join(outputs, 2), x, columns)
    if layer.norm is not None:
        out = zeroed(g, module_nodes(g, layer.norm, out, "the layer's norm"), given)
    return out, LayerValues(tuple(finals), history)


def _project(
    g: Emitter, layer: RationalLayer, x: ir.Value, history: ir.Value | None, given: Padding | None
) -> tuple[ir.Value, ir.Value | None]:
    """Return (pre-activations (T, B, rows) without biases, the next history)."""
    y = linear(g, x, layer.matrix())
    if layer.window == 1:
        return y, None
    assert history is not None
    reach = layer.window - 1
    inputs = g.add("Concat", history, x, axis=0)
    steps = g.size(x, 0)
    for k in range(1, layer.window):
        start = g.integers(reach - k)
        stop = g.add("Add", start, steps)
        earlier = g.add("Slice", inputs, start, stop, g.integers(0), g.integers(1))
        y = g.add("Add", y, linear(g, earlier, lag_matrix(layer, k)))
    if given is None:
        stop = g.add("Add", steps, g.integers(reach))
        return y, g.add("Slice", inputs, steps, stop, g.integers(0), g.integers(1))
    offsets = g.constant(np.arange(reach, dtype=np.int64)[:, None])
    places = g.unsqueeze(g.add("Add", g.unsqueeze(given.lengths, 0), offsets), 2)
    where = g.expand(places, g.integers(reach), g.size(x, 1), g.integers(layer.input_size))
    return y, g.add("GatherElements", inputs, where, axis=0)


def _around(
    g: Emitter, layer: RationalLayer, out: ir.Value, x: ir.Value, columns: dict[tuple[int, str], ir.Value]
) -> ir.Value:
    """Return a layer's output with its skip connection."""
    if not layer.skip:
        return out
    carried = columns.get((-1, "skip"), x)
    if layer.skip == "residual":
        return g.add("Add", out, carried)
    gate = columns[-1, "gate"]
    if layer.gate_bias is not None:
        gate = g.add("Add", gate, weight(g, layer.gate_bias))
    return g.add("Add", carried, g.add("Mul", g.add("Sigmoid", gate), g.add("Sub", out, carried)))


# ---- whole stacks ----------------------------------------------------------------------------------------------------


def rnn_nodes(
    g: Emitter, rnn: RationalRNN, x: ir.Value, states: Sequence[LayerValues], given: Padding | None
) -> tuple[ir.Value, list[LayerValues]]:
    """Add all layers of a `RationalRNN`; return (output, next states). Dropout and zoneout act in training only."""
    layers, n = rnn._all_layers(), rnn.num_directions
    x, finals = zeroed(g, x, given), []
    for depth in range(rnn.num_layers):
        outputs = []
        for i in range(depth * n, depth * n + n):
            read = x if i % n == 0 else _reversed(g, x, given)
            out, final = layer_nodes(g, layers[i], read, states[i], given)
            outputs.append(out if i % n == 0 else _reversed(g, out, given))
            finals.append(final)
        x = g.join(outputs, 2)
    return x, finals


def _reversed(g: Emitter, x: ir.Value, given: Padding | None) -> ir.Value:
    """Return sequences backwards, with padding still at the end."""
    lengths = g.expand(g.size(x, 0), g.size(x, 1)) if given is None else given.lengths
    return g.add("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)


def first_states(g: Emitter, rnn: RationalRNN, x: ir.Value) -> list[LayerValues]:
    """Return the state before the first step, λ of the automata, for the batch of x (T, B, …)."""
    batch, found = g.size(x, 1), []

    def spread(value: Tensor) -> ir.Value:
        sizes = g.integers(value.shape[0]), batch, g.integers(value.shape[2])
        return g.expand(g.constant(value.detach().cpu().numpy().astype(g.dtype)), *sizes)

    for states, history in rnn.init_state(1):
        values = tuple(spread(s) if s.shape[0] else None for s in states)
        found.append(LayerValues(values, None if history is None else spread(history)))
    return found


def affine_nodes(
    g: Emitter, rnn: AffineRNN, x: ir.Value, state: ir.Value, given: Padding | None
) -> tuple[ir.Value, ir.Value]:
    """Add an affine recurrence, c = W c' + u, of vectors (T, B, I) or symbols (T, B); return (states, the last one)."""
    units = rnn.hidden_size
    if isinstance(rnn, LinearElman):
        symbols, u = None, linear(g, zeroed(g, x, given), rnn.weight_ih, rnn.bias)
        matrices = weight(g, rnn.weight_hh.detach().T.contiguous())
    elif isinstance(rnn, ISAN):
        symbols = x
        if given is not None:
            mask = g.add("Squeeze", given.mask, g.integers(2))
            symbols = g.add("Where", mask, x, g.constant(np.array(0, np.int64)))
        u = g.add("Gather", weight(g, rnn.bias), symbols, axis=0)
        matrices = weight(g, rnn.weight.detach().mT.contiguous())
    else:
        raise ExportError(f"rrnn.export does not know the affine layer {type(rnn).__name__}")
    body = Graph(g.dtype, g)
    old = body.input(next(g.names), ("batch", units))
    here = [body.input(next(g.names), ("batch", units))]
    scanned = [u]
    if symbols is None:
        product = body.add("MatMul", old, matrices)
    else:
        here.append(body.input(next(g.names), ("batch",), ir.DataType.INT64))
        scanned.append(symbols)
        chosen = body.add("Gather", matrices, here[1], axis=0)
        product = body.add("Squeeze", body.add("MatMul", body.unsqueeze(old, 1), chosen), body.integers(1))
    new = body.add("Add", product, here[0])
    if given is not None:
        here.append(body.input(next(g.names), ("batch", 1), ir.DataType.BOOL))
        scanned.append(given.mask)
        new = body.add("Where", here[-1], new, old)
    graph = body.finish("affine_step", [old, *here], [new, body.add("Identity", new)])
    final, out = g.add_several("Scan", 2, state, *scanned, body=graph, num_scan_inputs=len(scanned))
    return zeroed(g, out, given), final
