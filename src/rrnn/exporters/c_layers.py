"""Layers as C functions: projections, windows, cells, skip connections, norms, and linear layers around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from rrnn.errors import ExportError
from rrnn.exporters.c_families import Memory, family_step
from rrnn.exporters.c_text import Source, cell_step, number
from rrnn.exporters.parts import cell_tables, check_layer, first_state_arrays, lag_matrix, unit_constants
from rrnn.ir import Op
from rrnn.nn.layer import RationalLayer
from rrnn.nn.rnn import RationalRNN


def check(layer: Any) -> None:
    """Raise an `ExportError` for a layer that cannot run step by step in C."""
    check_layer(layer, "C", (RationalRNN,))
    if layer.bidirectional:
        raise ExportError(
            "a bidirectional layer also reads its input from the end, so it cannot run step by step in C: export the "
            "model to .onnx"
        )


def array_of(tensor: Any) -> np.ndarray:
    """Return a parameter as an array of float64."""
    return tensor.detach().cpu().double().numpy()


class Stack:
    """The layers of one or several `RationalRNN`s, one after the other: their functions and first states."""

    def __init__(self, source: Source) -> None:
        self.source, self.count, self.first = source, 0, list[str]()
        self.calls: list[str] = []

    def add(self, rnn: RationalRNN, x: str) -> str:
        """Add layers that read the array x; return the array that holds their output."""
        check(rnn)
        for layer, (states, history) in zip(rnn._all_layers(), first_state_arrays(rnn), strict=True):
            k, source = self.count, self.source
            out = source.field(f"output_{k % 2}", layer.output_size, "the outputs of layers, in turn")
            arrays = [*((f"layer_{k}_state_{c}", s) for c, s in enumerate(states))]
            if history is not None:
                arrays.append((f"layer_{k}_history", history))
            for name, first in arrays:
                if first.size:
                    field = source.field(name, first.size)
                    begin = source.constants(f"{name}_first", first) if np.any(first) else "0"
                    self.first.append(f"set({first.size}, {begin}, {field});")
            source.functions.append(_layer_function(source, layer, k))
            self.calls.append(f"layer_{k}(m, {x}, {out});")
            x, self.count = out, k + 1
        return x


def _layer_function(source: Source, layer: RationalLayer, k: int) -> str:
    """Return the C function that runs one step of a layer."""
    rows, inputs, outputs = layer.matrix().shape[0], layer.input_size, layer.output_size
    lines: list[str] = []
    if rows:
        y = source.field("projected", rows, "W x of the layer that is running")
        lines += [f"float *const y = {y};", f"set({rows}, 0, y);"]
    for lag in range(layer.window if rows else 0):
        matrix = source.array(f"layer_{k}_weight_{lag}", array_of(lag_matrix(layer, lag)).T)
        x = f"m->layer_{k}_history + {(layer.window - 1 - lag) * inputs}" if lag else "x"
        lines.append(f"add_linear({inputs}, {rows}, {matrix}, {x}, y);")
    if layer.window > 1:
        kept, size = f"m->layer_{k}_history", (layer.window - 1) * inputs
        lines.append(
            f"for (int i = 0; i < {size}; i++) {kept}[i] = i + {inputs} < {size} ? {kept}[i + {inputs}] : "
            f"x[i + {inputs} - {size}];"
        )
    own = {r.name: r.start for r in layer.own_rows}
    first = done = 0
    for c, (program, width) in enumerate(zip(layer.programs, layer.widths, strict=True)):
        starts = {r.name: r.start for r in layer.rows if r.cell == c}
        units = unit_constants(program, cell_tables(layer)[c], width)
        lines += [f"/* {width} units of {program.name} */"]
        out, state = "out" if not done else f"(out + {done})", f"m->layer_{k}_state_{c}"
        if program.wide is not None:
            shared = {n: _once_per_head(v, program.wide.heads) for n, v in units.items()}
            held = {n: (source.array(f"layer_{k}_cell_{c}_v{n}", v), v.shape[-1]) for n, v in shared.items()}
            inp = f"(y + {own['input'] + first})" if "input" in own else f"(x + {first})"
            names = program.flat.projections
            memory = Memory(
                lambda index, starts=starts, names=names: f"y + {starts[names[index]]}", inp, held, state, out
            )
            lines += family_step(program, width, memory)
            first, done = first + width, done + width * program.output_count
            continue
        held = {n: source.array(f"layer_{k}_cell_{c}_v{n}", v) for n, v in units.items()}

        def leaf(op: Op, index: int, starts: Any = starts, program: Any = program, first: int = first) -> str:
            if op is Op.PREACT:
                return f"y[{starts[program.flat.projections[index]]} + i]"
            return f"y[{own['input'] + first} + i]" if "input" in own else f"x[{first} + i]"

        lines += cell_step(program, width, leaf, held, state, out)
        first, done = first + width, done + width * program.output_count
    lines += _around(source, layer, k, own)
    unused = [name for name in ("x", "m") if not any(f"{name}" in _words(line) for line in lines)]
    lines += [f"(void){name};" for name in unused]
    body = "\n".join("    " + line for line in lines)
    note = f"{inputs} inputs, {outputs} outputs"
    return f"/* {note} */\nstatic void layer_{k}({source.name}_state *m, const float *x, float *out) {{\n{body}\n}}"


def _once_per_head(values: np.ndarray, heads: int) -> np.ndarray:
    """Return values (…, units) with one column per head where all units of each head have the same."""
    by_head = values.reshape(*values.shape[:-1], heads, -1)
    return by_head[..., 0] if (by_head == by_head[..., :1]).all() else values


def _words(line: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in line).split()


def _around(source: Source, layer: RationalLayer, k: int, own: dict[str, int]) -> list[str]:
    """Return the statements of a layer's skip connection and norm."""
    size, lines = layer.output_size, list[str]()
    carried = f"y[{own['skip']} + i]" if "skip" in own else "x[i]"
    if layer.skip == "residual":
        lines.append(f"for (int i = 0; i < {size}; i++) out[i] += {carried};")
    elif layer.skip == "highway":
        gate = f"y[{own['gate']} + i]"
        if layer.gate_bias is not None:
            gate += f" + {source.array(f'layer_{k}_gate_bias', array_of(layer.gate_bias))}[i]"
        lines.append(
            f"for (int i = 0; i < {size}; i++) out[i] = {carried} + sigmoid_f({gate}) * (out[i] - {carried});"
        )
    norm = layer.norm
    if isinstance(norm, nn.LayerNorm) and norm.weight is not None:
        scale = source.array(f"layer_{k}_norm_scale", array_of(norm.weight))
        bias = np.zeros(size) if norm.bias is None else array_of(norm.bias)
        shift = source.array(f"layer_{k}_norm_bias", bias)
        lines.append(f"layer_norm({size}, {scale}, {shift}, {number(norm.eps)}, out);")
    elif norm is not None and not isinstance(norm, nn.Identity):
        raise ExportError(
            f"the layer's norm is a {type(norm).__name__}, which is not known in C: build the layer with "
            'norm="layer", or export with torch.onnx.export and rrnn.onnx_translations()'
        )
    return lines


def dense(source: Source, module: nn.Module, x: str, name: str) -> tuple[list[str], str]:
    """Return (statements, the array of the result) of linear layers with tanh between them."""
    parts = list(module) if isinstance(module, nn.Sequential) else [module]
    lines, size = list[str](), 0
    for n, part in enumerate(parts):
        if isinstance(part, nn.Linear):
            w = source.array(f"{name}_{n}_weight", array_of(part.weight).T)
            bias = "0" if part.bias is None else source.array(f"{name}_{n}_bias", array_of(part.bias))
            y = source.field(f"{name}_{n}", part.out_features)
            lines += [f"set({part.out_features}, {bias}, {y});"]
            lines += [f"add_linear({part.in_features}, {part.out_features}, {w}, {x}, {y});"]
            x, size = y, part.out_features
        else:
            assert isinstance(part, nn.Tanh), part
            lines.append(f"for (int i = 0; i < {size}; i++) {x}[i] = tanhf({x}[i]);")
    return lines, x
