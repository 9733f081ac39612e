"""From a layer to the automata inside it: the scores of its hidden units, and each unit as a WFSA."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from rrnn.errors import ShapeError
from rrnn.ir import Program
from rrnn.nn import RationalRNN
from rrnn.nn.layer import RationalLayer
from rrnn.wfsa import WFSA, instantiate


@lru_cache(maxsize=256)
def score_program(program: Program) -> Program:
    """The program with the automaton's score as its output."""
    score = program.of_kind("score")[0]
    outputs = tuple(o._replace(value=score) if o.kind == "output" else o for o in program.outputs)
    return replace(program, name=f"{program.name}.score", outputs=outputs)


def scores(rnn: RationalRNN, x: Tensor) -> Tensor:
    """The scores c_t of the first layer's units on x (T, B, I), or (T, I): what its output expression reads."""
    if x.dim() not in (2, 3) or x.shape[-1] != rnn.input_size:
        raise ShapeError(
            f"expected input with {rnn.input_size} features, (time, features) or (time, batch, features); "
            f"got shape {tuple(x.shape)}"
        )
    layer = _first(rnn)
    programs = [score_program(program) for program in layer.programs]
    out, _, _ = layer.recur(x if x.dim() == 3 else x.unsqueeze(1), programs=programs)
    return out if x.dim() == 3 else out.squeeze(1)


def to_wfsa(rnn: RationalRNN, unit: int, alphabet: Mapping[Hashable, Tensor] | Tensor) -> WFSA:
    """One hidden unit of the first layer (forwards) as the automaton it is.

    `alphabet` maps each symbol to its input vector, or is a matrix of vectors, whose symbols are 0, 1, 2, …. The
    machine's prefix scores on a string are the unit's scores on the vectors of that string, up to rounding."""
    layer = _first(rnn)
    if not isinstance(unit, int) or isinstance(unit, bool) or not 0 <= unit < layer.hidden_size:
        raise ShapeError(f"units are numbered from 0 to {layer.hidden_size - 1}; got {unit!r}")
    vectors = alphabet if isinstance(alphabet, Mapping) else dict(enumerate(alphabet))
    for symbol, vector in vectors.items():
        if not isinstance(vector, Tensor) or vector.shape != (rnn.input_size,):
            came = tuple(vector.shape) if isinstance(vector, Tensor) else type(vector).__name__
            raise ShapeError(f"the vector of {symbol!r} must have shape ({rnn.input_size},); got {came}")
    cell, inside = 0, unit
    while inside >= layer.widths[cell]:
        cell, inside = cell + 1, inside - layer.widths[cell]
    with torch.no_grad():
        symbols = {
            symbol: _preactivations(layer, cell, inside, unit, vector.double())
            for symbol, vector in vectors.items()
        }
        learned = layer.numbers(cell).parameter.named_parameters()
        numbers = {name: value[inside].item() for name, value in learned}
    return instantiate(layer.cell_types[cell], symbols, numbers)


def _first(rnn: RationalRNN) -> RationalLayer:
    layer = rnn.layers[0]
    assert isinstance(layer, RationalLayer)
    return layer


def _preactivations(
    layer: RationalLayer, cell: int, inside: int, unit: int, vector: Tensor
) -> dict[str, float]:
    """W·v + b of each projection of one unit, and what input() is there."""
    weight, numbers, reads_input = layer.weight.double(), layer.numbers(cell), layer.programs[cell].uses_input
    values = {"input": vector[unit].item()} if reads_input and len(vector) == layer.hidden_size else {}
    for r in layer.rows:
        if r.cell == cell:
            bias = numbers.of(f"{r.name}.bias")
            product = weight[r.start + inside] @ vector
            values[r.name] = product.item() + (0.0 if bias is None else bias[inside].item())
        elif reads_input and (r.cell, r.name) == (-1, "input"):  # what stands in for it where sizes differ
            values["input"] = (weight[r.start + unit] @ vector).item()
    return values
