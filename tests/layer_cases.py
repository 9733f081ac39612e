"""Make small layers of every kind of cell, and compute their outputs by the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from cell_calls import CORE, MECHANICS_CELLS, RANDOM_CELLS, cell
from torch import Tensor, nn

from rrnn.automata import Cell, input, linear, log_sigmoid, one, parameter, score, sigmoid, tanh
from rrnn.ir import Op
from rrnn.ir.interpreter import evaluate
from rrnn.nn import LayerState, RationalLayer, RationalRNN, State
from rrnn.nn.sequences import transform

Cells = Cell | Sequence[tuple[Cell, int]]


def windowed() -> Cell:
    """Return a cell like a QRNN, with windows of three different widths."""
    f, z = sigmoid(linear("f", bias=True, window=3)), tanh(linear("z", window=2))
    cell = Cell("windowed").initial("q0").loop("q0", one).arc("q0", "q1", (1 - f) * z).loop("q1", f)
    return cell.final("q1").output(sigmoid(linear("o", bias=True)) * score)


def odd() -> Cell:
    """Return a cell with parameters named like attributes of modules, a learned initial weight, and no bias."""
    cell = (
        Cell("odd", "max-plus").initial("q0", log_sigmoid(parameter("training"))).loop("q0", linear("half"))
    )
    cell = cell.arc("q0", "q1", linear("weight", window=2)).loop("q1", log_sigmoid(parameter("forward")))
    return cell.final("q1").output(tanh(score) + 0.1 * input())


def memoryless() -> Cell:
    """Return a cell without a stored state."""
    cell = Cell("memoryless").initial("q0").loop("q0", one).final("q0", sigmoid(parameter("r")))
    return cell.output(score * tanh(linear("o")))


CASES: dict[str, Callable[[], Cells]] = {
    **{name: lambda name=name: cell(name) for name in (*CORE, "F+o", *RANDOM_CELLS[::3])},
    "windowed": windowed,
    "odd": odd,
    "memoryless": memoryless,
    "mixed": lambda: [(cell("B"), 3), (cell("SRU"), 2), (windowed(), 1), (cell("B-max-plus"), 2)],
}
"""Name → cells of a layer. A line here compares a layer of these cells with the definition."""
MECHANICS_LAYERS = (*MECHANICS_CELLS, "mixed", "odd", "memoryless")
"""The layers that stand for all others where a test is about what layers share: padding, layouts, streaming, copies.
Beside the cells chosen for this, there are cells side by side with windows, an initial state that is learned, and a
layer without a state."""


def make_layer(name: str, input_size: int = 4, hidden_size: Any = 3, **options: Any) -> RationalRNN:
    """Return a small layer whose parameters, biases included, are all random."""
    cells = CASES[name]()
    options = {"dtype": torch.float64, **options}
    layer = RationalRNN(cells, input_size, hidden_size if isinstance(cells, Cell) else None, **options)
    return randomised(layer, len(name))


Layer = TypeVar("Layer", bound=nn.Module)


def randomised(layer: Layer, seed: int = 0) -> Layer:
    """Fill all parameters of a layer with random numbers, and return the layer."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * 0.7)
    return layer


def inputs(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# ---- the definition ------------------------------------------------------------------------------------------------


def slow_layer(layer: RationalLayer, x: Tensor) -> Tensor:
    """Return the output of one layer, without skip and norm, on one sequence (T, I): unit by unit, in Python floats."""
    columns, unit = [], 0
    for c, width in enumerate(layer.widths):
        units = [_slow_unit(layer, c, d, unit + d, x) for d in range(width)]
        unit += width
        # The first outputs of all units come first, then their second ones.
        columns += [
            [row[k] for row in of_unit] for k in range(layer.programs[c].output_count) for of_unit in units
        ]
    return torch.tensor(columns, dtype=torch.float64).T


def _slow_unit(layer: RationalLayer, c: int, d: int, unit: int, x: Tensor) -> list[list[float]]:
    """Return all outputs of one unit at each step."""
    program, learned = layer.programs[c].flat, layer.parameters_of(c)
    biases = {f"{name}.bias": layer.projection(c, name).bias for name in program.projections}
    named = [(learned | biases)[name] for name in program.parameters]
    numbers = {
        Op.PARAM: [0.0 if p is None else p[d].item() for p in named],
        Op.STATE: [0.0] * len(program.states),
    }
    read = {"projections": [0.0] * len(program.projections), "input": 0.0}

    def leaves() -> dict[int, float]:
        found = {}
        for n, (op, _, attr) in enumerate(program.instructions):
            if op is Op.PREACT:
                found[n] = read["projections"][int(attr or 0)]
            elif op is Op.INPUT:
                found[n] = read["input"]
            elif op in numbers:
                found[n] = numbers[op][int(attr or 0)]
        return found

    values = evaluate(program.instructions, leaves())
    numbers[Op.STATE] = [values[i] for i in program.initial]
    outputs = []
    for t in range(x.shape[0]):
        read["projections"] = [_projection(layer, c, name, d, x, t) for name in program.projections]
        if program.uses_input:
            replaced = layer.own_projection("input")
            read["input"] = (x[t, unit] if replaced is None else replaced.weight()[unit] @ x[t]).item()
        values = evaluate(program.instructions, leaves())
        numbers[Op.STATE] = [values[n] for n in program.of_kind("state").values()]
        outputs.append([values[n] for n in program.of_kind("output").values()])
    return outputs


def _projection(layer: RationalLayer, c: int, name: str, d: int, x: Tensor, t: int) -> float:
    """Return W·v without the bias, summed over the window."""
    projection = layer.projection(c, name)
    lags = range(min(projection.window, t + 1))
    return sum((projection.weight(k)[d] @ x[t - k]).item() for k in lags)


def same_state(a: Sequence[LayerState], b: Sequence[LayerState]) -> None:
    torch.testing.assert_close(torch.utils._pytree.tree_leaves(a), torch.utils._pytree.tree_leaves(b))


def sequences(state: State, which: Any) -> State:
    """Return the state of some sequences of the batch."""
    return transform(lambda t: t[:, which], state)
