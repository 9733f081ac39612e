"""Whole models as ONNX graphs: layers, language models, text classifiers. Batch and time are dynamic.

Names in a graph: `input` (vectors) or `ids` (words), `lengths`; `state_I_C` is the stored states (S, batch, units) of
cell C in layer I, `history_I` the earlier inputs that windows of layer I see; the outputs `next_state_I_C` and
`next_history_I` are what the next call takes. Layers are counted as in `RationalRNN`'s state: layer by layer, in each
the forward and then the backward direction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import torch
from torch import nn

from rrnn import __version__
from rrnn.errors import ExportError
from rrnn.exporters.onnx_layers import (
    LayerValues,
    Padding,
    affine_nodes,
    first_states,
    module_nodes,
    padding,
    rnn_nodes,
    weight,
)
from rrnn.exporters.onnx_nodes import IR_VERSION, Graph
from rrnn.exporters.parts import check_classifier, check_layer, export_dtype, first_state_arrays
from rrnn.nn.affine import AffineRNN
from rrnn.nn.rnn import RationalRNN
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.lm.model import LanguageModel
from rrnn.zoo.mixing import ISAN

FIRST = "rrnn.first_states"
"""The metadata entry that holds the state before the first step."""
LIMIT = 2**31 - 2**20
"""The largest number of bytes of weights: ONNX files are protocol buffers, which end at 2 GB."""


class Options(NamedTuple):
    """What an exported graph takes and returns."""

    lengths: bool
    """Whether it takes the lengths of padded sequences."""
    states: bool
    """Whether it takes the states to begin with; without them it begins with the first state."""


class _Built(NamedTuple):
    inputs: list[ir.Value]
    outputs: list[ir.Value]
    first: dict[str, Any]


def onnx_model(
    module: nn.Module, lengths: bool | None, states: bool | None, metadata: dict[str, str]
) -> ir.Model:
    """Return the ONNX model of a module. None as an option stands for what the kind of model usually has."""
    size = sum(p.numel() * p.element_size() for p in (*module.parameters(), *module.buffers()))
    if size > LIMIT:
        raise ExportError(
            f"the weights take {size:,} bytes, and an ONNX file holds at most 2 GB: export the layers one by one, "
            "rrnn.export(model.module.rnn, …)"
        )
    g = Graph(export_dtype(module))
    if isinstance(module, LanguageModel):
        built = _language_model(g, module, Options(bool(lengths), states is not False))
    elif isinstance(module, TextClassifier):
        if lengths is False or states:
            raise ExportError(
                "a text classifier reads whole texts, padded to one length: leave out lengths and states"
            )
        built = _classifier(g, module)
    else:
        check_layer(module, "ONNX", (RationalRNN, AffineRNN))
        both = isinstance(module, RationalRNN) and module.bidirectional
        if both and states:
            raise ExportError(
                "a bidirectional layer takes no state, since it also reads its input from the end: leave out states"
            )
        built = _layer(g, module, Options(bool(lengths), not both and states is not False))
    graph = g.finish("rrnn", built.inputs, built.outputs)
    metadata = {"rrnn.version": __version__, FIRST: json.dumps(built.first), **metadata}
    model = ir.Model(graph, ir_version=IR_VERSION, producer_name="rrnn", producer_version=__version__)
    model.metadata_props.update(metadata)
    return model


# ---- states ----------------------------------------------------------------------------------------------------------


class _Final(NamedTuple):
    """An output of the graph."""

    name: str
    value: ir.Value
    shape: Sequence[int | str]


class _States:
    """The states of a layer as inputs and outputs of the graph."""

    def __init__(self, g: Graph, module: RationalRNN | AffineRNN, given: bool) -> None:
        self.g, self.module, self.given = g, module, given
        self.inputs: list[ir.Value] = []
        self.first: dict[str, Any] = {}
        arrays = first_state_arrays(module)
        self.values: list[LayerValues] = []
        if not given:
            return
        for i, (cells, history) in enumerate(arrays):
            states = tuple(self._input(f"state_{i}_{c}", s) if s.size else None for c, s in enumerate(cells))
            self.values.append(
                LayerValues(states, None if history is None else self._input(f"history_{i}", history))
            )

    def _input(self, name: str, first: np.ndarray) -> ir.Value:
        rows = first.shape[:1] if isinstance(self.module, RationalRNN) else ()
        value = self.g.input(name, (*rows, "batch", first.shape[-1]))
        self.inputs.append(value)
        self.first[name] = _as_json(first if rows else first[0])
        return value

    def run(self, x: ir.Value, given: Padding | None) -> tuple[ir.Value, list[_Final]]:
        """Add the layer; return (its output (T, B, units), the next states)."""
        g, module = self.g, self.module
        if isinstance(module, AffineRNN):
            if self.given:
                (first,) = (s for s in self.values[0].states if s is not None)
            else:
                first = g.expand(g.number(0.0), g.size(x, 1), g.integers(module.hidden_size))
            out, final = affine_nodes(g, module, x, first, given)
            return out, [_Final("next_state_0_0", final, ("batch", module.hidden_size))]
        values = self.values if self.given else first_states(g, module, x)
        out, ends = rnn_nodes(g, module, x, values, given)
        finals: list[_Final] = []
        for i, (layer, (states, history)) in enumerate(zip(module._all_layers(), ends, strict=True)):
            shapes, _ = layer.state_shapes(())
            for c, (state, (rows, units)) in enumerate(zip(states, shapes, strict=True)):
                if state is not None:
                    finals.append(_Final(f"next_state_{i}_{c}", state, (rows, "batch", units)))
            if history is not None:
                shape = (layer.window - 1, "batch", layer.input_size)
                finals.append(_Final(f"next_history_{i}", history, shape))
        return out, finals


def _output(g: Graph, name: str, value: ir.Value, shape: Sequence[int | str]) -> ir.Value:
    """Return an output of the graph with a name of its own."""
    result = g.add("Identity", value)
    result.name, result.shape, result.type = name, ir.Shape(shape), ir.TensorType(g.type)
    return result


def _as_json(first: np.ndarray) -> Any:
    """Return first values as nested lists; infinities, which JSON lacks, as the texts "inf" and "-inf"."""
    if first.ndim:
        return [_as_json(part) for part in first]
    number = float(first)
    return number if math.isfinite(number) else str(number)


# ---- kinds of models -------------------------------------------------------------------------------------------------


def _lengths(g: Graph, x: ir.Value, wanted: bool) -> tuple[list[ir.Value], Padding | None]:
    if not wanted:
        return [], None
    lengths = g.input("lengths", ("batch",), ir.DataType.INT64)
    return [lengths], padding(g, x, lengths)


def _layer(g: Graph, module: Any, options: Options) -> _Built:
    """Build the graph of a layer: input, lengths, states → output, next states."""
    axes = ("batch", "time") if module.batch_first else ("time", "batch")
    symbols = isinstance(module, ISAN)
    shape, dtype = (axes, ir.DataType.INT64) if symbols else ((*axes, module.input_size), g.type)
    given = g.input("input", shape, dtype)
    order = [1, 0] if symbols else [1, 0, 2]
    x = g.add("Transpose", given, perm=order) if module.batch_first else given
    lengths, pads = _lengths(g, x, options.lengths)
    states = _States(g, module, options.states)
    out, finals = states.run(x, pads)
    out = g.add("Transpose", out, perm=[1, 0, 2]) if module.batch_first else out
    size = module.output_size if isinstance(module, RationalRNN) else module.hidden_size
    output = _output(g, "output", out, (*axes, size))
    return _Built(
        [given, *lengths, *states.inputs], [output, *(_output(g, *final) for final in finals)], states.first
    )


def _language_model(g: Graph, module: LanguageModel, options: Options) -> _Built:
    """Build the graph of a language model: ids (time, batch), states → scores of the next word, next states."""
    check_layer(module.rnn, "ONNX", (RationalRNN,))
    ids = g.input("ids", ("time", "batch"), ir.DataType.INT64)
    table = weight(g, module.embedding[: module.vocabulary])
    x = g.add("Gather", table, ids, axis=0)
    lengths, pads = _lengths(g, x, options.lengths)
    assert isinstance(module.rnn, RationalRNN)
    states = _States(g, module.rnn, options.states)
    hidden, finals = states.run(x, pads)
    # Gemm reads the embedding as it is, so that the file holds it once.
    rows = g.add("Reshape", hidden, g.integers(-1, module.embedding_size))
    scores = g.add("Gemm", rows, table, weight(g, module.bias[: module.vocabulary]), transB=1)
    shape = g.join([g.size(ids, 0), g.size(ids, 1), g.integers(module.vocabulary)], 0)
    scores = g.add("Reshape", scores, shape)
    output = _output(g, "scores", scores, ("time", "batch", module.vocabulary))
    return _Built(
        [ids, *lengths, *states.inputs], [output, *(_output(g, *final) for final in finals)], states.first
    )


def _classifier(g: Graph, module: TextClassifier) -> _Built:
    """Build the graph of a text classifier: ids (time, batch) and lengths (batch) → logits (batch, classes)."""
    check_classifier(module)
    both, how = module.config.bidirectional, module.config.pooling
    ids = g.input("ids", ("time", "batch"), ir.DataType.INT64)
    x = g.add("Gather", weight(g, module.embedding), ids, axis=0)
    lengths, pads = _lengths(g, x, True)
    assert pads is not None
    for layer in module.layers:
        check_layer(layer, "ONNX", (RationalRNN, AffineRNN))
        # Padding comes last: a layer that reads from left to right has seen none of it where there is text.
        x, _ = _States(g, layer, False).run(x, pads if both else None)  # pyright: ignore[reportArgumentType]
    pooled = _last(g, x, pads, both) if how == "last" else _pooled(g, module, how, x, pads)
    logits = module_nodes(g, module.readout, pooled, "the read-out")
    outputs = [_output(g, "logits", logits, ("batch", module.classes))]
    return _Built([ids, *lengths], outputs, {})


def _last(g: Graph, h: ir.Value, pads: Padding, both: bool) -> ir.Value:
    """Return the output at the last word; of a backward direction at the first."""
    one = g.constant(np.array(1, np.int64))
    last = g.add("Sub", g.add("Max", pads.lengths, one), one)
    where = g.expand(g.unsqueeze(last, 0, 2), g.integers(1), g.size(h, 1), g.size(h, 2))
    end = g.add("Squeeze", g.add("GatherElements", h, where, axis=0), g.integers(0))
    if not both:
        return end
    forward = g.add_several("Split", 2, end, axis=1, num_outputs=2)[0]
    start = g.add("Squeeze", g.slice(h, 0, 1, 0), g.integers(0))
    return g.join([forward, g.add_several("Split", 2, start, axis=1, num_outputs=2)[1]], 1)


def _pooled(g: Graph, module: TextClassifier, how: str, h: ir.Value, pads: Padding) -> ir.Value:
    """Return the mean, maximum or weighted mean of the outputs of a text."""
    zero, time = g.number(0.0), g.integers(0)
    if how == "mean":
        total = g.add("ReduceSum", g.add("Where", pads.mask, h, zero), time, keepdims=0)
        count = g.add("Max", pads.lengths, g.constant(np.array(1, np.int64)))
        return g.add("Div", total, g.unsqueeze(g.add("Cast", count, to=g.type), 1))
    if how == "max":
        empty = g.unsqueeze(g.add("Equal", pads.lengths, g.constant(np.array(0, np.int64))), 0, 2)
        held = g.add("Where", g.add("Or", pads.mask, empty), h, g.number(-math.inf))
        return g.add("ReduceMax", held, time, keepdims=0)
    scores = module_nodes(g, module.attention, h, "the attention")
    lowest = g.number(torch.finfo(module.embedding.dtype).min)
    shares = g.add("Softmax", g.add("Where", pads.mask, scores, lowest), axis=0)
    return g.add("ReduceSum", g.add("Mul", shares, g.add("Where", pads.mask, h, zero)), time, keepdims=0)
