"""The automata inside a layer: compute the scores of its hidden units, and turn each unit into a WFSA.

A gate that sees a window of the K latest inputs needs an automaton that remembers them, since it reads one symbol at a
time. This is the paper's construction for QRNN, for any cell and any K: a state remembers the K − 1 symbols before, or
all of them while there are fewer. (The paper leaves out the empty history, so that its automaton scores the first
symbol 0; a layer sees zeros there, and has c₁ = u₁.) B over an alphabet of n symbols and K = 2 has 2n + 1 states: q₀
before the first symbol, and q₀ and q₁ after each symbol.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from rrnn import zoo
from rrnn.automata import Cell, unroll
from rrnn.automata import expressions as ex
from rrnn.errors import AutomatonError, ShapeError
from rrnn.ir import Program
from rrnn.nn import MachineRNN, RationalRNN
from rrnn.nn.affine import AffineRNN
from rrnn.nn.layer import RationalLayer
from rrnn.wfsa import EPSILON, WFSA, Arc, instantiate
from rrnn.zoo.mixing import ISAN, LinearElman
from rrnn.zoo.paper_automata import automaton_d

History = tuple[Any, ...]
Values = Callable[[History, Hashable], Mapping[str, float]]
"""(at most K − 1 earlier symbols, oldest first; the symbol) → the values of the projections there."""

MAX_ARCS = 200_000
Alphabet = Mapping[Any, Any] | Tensor | Sequence[Hashable] | None


@lru_cache(maxsize=256)
def score_program(program: Program) -> Program:
    """Return the program that outputs the components of the automaton's score."""
    flat = program.flat
    kept = tuple(o for o in flat.outputs if o.kind != "output")
    scores = tuple(o._replace(kind="output") for o in flat.outputs if o.kind == "score")
    return replace(flat, name=f"{program.name}.score", outputs=(*kept, *scores))


def scores(model: nn.Module, x: Tensor) -> Tensor:
    """Return the scores c_t of the first layer's units on x (T, B, I) or (T, I), before the output expression.

    Scores of several components have a last dimension for these. ISAN takes symbols, (T, B) or (T,).
    """
    if isinstance(model, AffineRNN):
        swap = model.batch_first and x.dim() == model.features + 2
        out = model(x.transpose(0, 1) if swap else x)[0]
        return out.transpose(0, 1) if swap else out
    rnn = _rational(model)
    if x.dim() not in (2, 3) or x.shape[-1] != rnn.input_size:
        raise ShapeError(
            f"expected input with {rnn.input_size} features, (time, features) or (time, batch, features); "
            f"got shape {tuple(x.shape)}"
        )
    layer = _first(rnn)
    programs = [score_program(program) for program in layer.programs]
    out, _, _ = layer.recur(x if x.dim() == 3 else x.unsqueeze(1), programs=programs)
    out = out if x.dim() == 3 else out.squeeze(1)
    sizes = {cell.semiring.size for cell in layer.cell_types}
    if len(sizes) > 1:
        raise AutomatonError(
            "the cells of this layer are over semirings with different numbers of components, so their scores do not "
            "fit into one tensor. Compute the scores of layers with one cell each."
        )
    if sizes == {1}:
        return out
    parts = out.split([size * width for size in sizes for width in layer.widths], -1)
    return torch.cat(
        [part.unflatten(-1, (-1, width)).mT for part, width in zip(parts, layer.widths, strict=True)], -2
    )


def to_wfsa(model: nn.Module, unit: int, alphabet: Alphabet = None, *, layer: int = 0) -> WFSA:
    """Return the WFSA of one hidden unit of the first layer (in forward direction).

    `alphabet` maps each symbol to its input vector, or is a matrix of vectors, whose symbols are 0, 1, 2, …. A layer of
    `rrnn.nn.from_wfsa` has its own symbols, so it needs none. For an ISAN, which reads symbols itself, it names them: a
    mapping from name to number, the names of 0, 1, 2, … in this order, or None to use the numbers. The WFSA's prefix
    scores on a string are the unit's scores on that string, up to rounding.

    Projections that see K > 1 inputs need states for histories: the WFSA grows with |alphabet|^(K − 1).
    """
    if not isinstance(model, AffineRNN):
        _rational(model)
    if layer != 0:
        raise AutomatonError(
            f"only the first layer, number 0, reads symbols, as an automaton does; layer {layer!r} reads the hidden "
            "states below it, real vectors that depend on the whole string so far, which no finite alphabet covers."
        )
    size = model.hidden_size
    assert isinstance(size, int)
    if not isinstance(unit, int) or isinstance(unit, bool) or not 0 <= unit < size:
        raise ShapeError(f"unit must be a number from 0 to {size - 1}; got {unit!r}")
    with torch.no_grad():
        if isinstance(model, ISAN):
            return _isan_unit(model, unit, alphabet)
        assert isinstance(model, (RationalRNN, LinearElman))
        if alphabet is None and isinstance(model, MachineRNN):
            alphabet = model.symbol_vectors()
        vectors = _vectors(alphabet, model.input_size)
        if isinstance(model, LinearElman):
            return _elman_unit(model, unit, vectors)
        return _cell_unit(_first(model), unit, vectors)


# ---- layers whose units mix: the paper's D --------------------------------------------------------------------------


def _isan_unit(model: ISAN, unit: int, alphabet: Alphabet) -> WFSA:
    count = model.num_symbols
    if alphabet is None:
        numbers: dict[Any, Any] = {i: i for i in range(count)}
    elif isinstance(alphabet, Mapping):
        numbers = dict(alphabet)
    elif isinstance(alphabet, Tensor) or len(alphabet) != count:
        came = f"a tensor {tuple(alphabet.shape)}" if isinstance(alphabet, Tensor) else f"{len(alphabet)}"
        raise ShapeError(
            f"an ISAN reads symbols, not vectors: pass the names of its {count} symbols, or a mapping from name to "
            f"number; got {came}"
        )
    else:
        numbers = {name: i for i, name in enumerate(alphabet)}
    for name, number in numbers.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
            raise ShapeError(f"symbols are numbered from 0 to {count - 1}; {name!r} has {number!r}")
    weight, bias = model.weight.double().cpu(), model.bias.double().cpu()
    (machine,) = automaton_d(numbers, lambda a: weight[numbers[a]], lambda a: bias[numbers[a]], units=[unit])
    return machine


def _elman_unit(model: LinearElman, unit: int, vectors: dict[Any, Tensor]) -> WFSA:
    w, u = model.weight_hh.double().cpu(), model.weight_ih.double().cpu()
    b = torch.zeros(len(w), dtype=torch.float64) if model.bias is None else model.bias.double().cpu()
    (machine,) = automaton_d(vectors, lambda a: w, lambda a: u @ vectors[a] + b, units=[unit])
    return machine


# ---- layers of cells -----------------------------------------------------------------------------------------------


def _cell_unit(layer: RationalLayer, unit: int, vectors: dict[Any, Tensor]) -> WFSA:
    cell, column = layer.locate(unit)
    kind = unroll(layer.cell_types[cell])
    learned = {name: value.item() for name, value in layer.numbers_of(cell, column)[1].items()}
    found = _preactivations(layer, unit, vectors)
    # A read-out that no path ends with, and a final weight beside a read-out, may be the layer's alone.
    nodes = [node for expr in kind.expressions() for node in ex.walk(expr)]
    known = {node.name for node in nodes if isinstance(node, (ex.Linear, ex.Parameter))} | {"input"}

    def numbers(idle: dict[str, float], given: Mapping[str, float]) -> dict[str, float]:
        return idle | {name: value for name, value in given.items() if name in known}

    idle = _idle(kind, ex.Linear, ex.Input)
    return unit_wfsa(
        kind,
        list(vectors),
        lambda history, symbol: numbers(idle, found(history, symbol)),
        numbers(_idle(kind, ex.Parameter), learned),
    )


def _idle(cell: Cell, *leaf: type[ex.Expr]) -> dict[str, float]:
    """Return a number for each leaf of the cell's weights, for those that a layer does not have.

    A layer leaves out the leaves of arcs that are on no path, where any number will do.
    """
    nodes = (node for _, weight in cell.weights() for node in ex.walk(weight))
    return {getattr(node, "name", "input"): 1.0 for node in nodes if isinstance(node, leaf)}


def _preactivations(layer: RationalLayer, unit: int, vectors: dict[Any, Tensor]) -> Values:
    """Return a function that computes one unit's projections W·v + b, and input(), after any history."""
    cell, column = layer.locate(unit)
    matrix = torch.stack(list(vectors.values()))

    def products(row: Tensor, constant: float = 0.0) -> dict[Any, float]:
        return dict(zip(vectors, (matrix @ row.double().cpu() + constant).tolist(), strict=True))

    # Projection → lag → symbol → the summand of that input; the bias is added at lag 0
    adds: dict[str, list[dict[Any, float]]] = {}
    for name, (projection, row) in layer.numbers_of(cell, column)[0].items():
        p = layer.projection(cell, projection)
        bias = 0.0 if p.bias is None else p.bias.flatten()[row].item()
        adds[name] = [products(p.weight(k)[row], 0.0 if k else bias) for k in range(p.window)]
    if layer.programs[cell].uses_input:
        projected = layer.own_projection("input")
        if projected is None:
            adds["input"] = [{a: v[unit].item() for a, v in vectors.items()}]
        else:
            adds["input"] = [products(projected.weight()[unit])]

    def values(history: History, symbol: Hashable) -> dict[str, float]:
        """Add up the window. Before the first symbol it holds zeros, which add nothing."""
        symbols = (symbol, *reversed(history))
        return {
            name: sum(by_symbol[a] for by_symbol, a in zip(by_lag, symbols, strict=False))
            for name, by_lag in adds.items()
        }

    return values


# ---- windows: automata that remember histories ------------------------------------------------------------------
def reach(cell: Cell) -> int:
    """Return how many earlier inputs the cell's weights see, K − 1, not counting those that only the output sees."""
    nodes = (node for _, weight in cell.weights() for node in ex.walk(weight))
    return max((node.window - 1 for node in nodes if isinstance(node, ex.Linear)), default=0)


def unit_wfsa(
    cell: Cell, alphabet: Sequence[Hashable], values: Values, parameters: Mapping[str, float]
) -> WFSA:
    """Return one unit of a cell as a WFSA. With windows, its states are pairs (state of the cell, history)."""
    lags = reach(cell)
    if not lags:
        return instantiate(cell, {a: values((), a) for a in alphabet}, parameters)
    _check_size(cell, lags, len(alphabet))
    histories = [h for length in range(lags + 1) for h in product(alphabet, repeat=length)]
    windows = {(h, a): values(h, a) for h in histories for a in alphabet}
    return _remember(instantiate(cell, windows, parameters, whole_windows=True), alphabet, lags)


def _remember(machine: WFSA, alphabet: Sequence[Hashable], lags: int) -> WFSA:
    """Turn a machine over windows (history, symbol) into one over symbols, with only the states that can be reached."""
    leaving: dict[Any, list[Arc]] = defaultdict(list)
    for arc in machine.arcs:
        key = arc.source if arc.symbol is EPSILON else (arc.source, arc.symbol[0])  # type: ignore[index]
        leaving[key].append(arc)
    states: dict[Any, None] = {(q, ()): None for q in machine.initial}
    arcs, todo = [], list(states)
    while todo:
        source = todo.pop(0)
        q, history = source
        for arc in [*leaving[q], *leaving[q, history]]:
            symbol: Any = EPSILON if arc.symbol is EPSILON else arc.symbol[1]  # type: ignore[index]
            after = history if symbol is EPSILON else (*history, symbol)[-lags:]
            target = (arc.target, after)
            arcs.append((source, symbol, target, arc.weight))
            if target not in states:
                states[target] = None
                todo.append(target)
    return WFSA(
        machine.semiring,
        alphabet=alphabet,
        states=states,
        arcs=arcs,
        initial={(q, ()): w for q, w in machine.initial.items()},
        final={(q, h): machine.final[q] for q, h in states if q in machine.final},
        allow_empty=True,
    )


def _check_size(cell: Cell, lags: int, symbols: int) -> None:
    windows = sum(symbols**length for length in range(lags + 1)) * symbols
    arcs = windows * sum(not arc.epsilon for arc in cell.arcs)
    if arcs > MAX_ARCS:
        raise AutomatonError(
            f"the automaton of a unit with a window remembers the symbols in it, so it grows with the alphabet to the "
            f"power of the window: {symbols} symbols and a window of {lags + 1} need about {arcs:,} arcs, but at most "
            f"{MAX_ARCS:,} are allowed. Pass fewer symbols."
        )


# ---- checks of arguments --------------------------------------------------------------------------------------------


def _vectors(alphabet: Alphabet, size: int) -> dict[Any, Tensor]:
    if alphabet is None:
        raise ShapeError(
            "alphabet is missing: pass a mapping from symbol to input vector, or a matrix with one vector per row. A "
            "layer that reads vectors has no alphabet of its own."
        )
    vectors: dict[Any, Any] = dict(alphabet) if isinstance(alphabet, Mapping) else dict(enumerate(alphabet))
    if not vectors:
        raise ShapeError("an alphabet has at least one symbol; this one is empty. Pass {symbol: vector, …}")
    for symbol, vector in vectors.items():
        if not isinstance(vector, Tensor) or vector.shape != (size,):
            came = tuple(vector.shape) if isinstance(vector, Tensor) else type(vector).__name__
            raise ShapeError(f"the vector of {symbol!r} must have shape ({size},); got {came}")
    return {symbol: vector.detach().double().cpu() for symbol, vector in vectors.items()}


def _first(rnn: RationalRNN) -> RationalLayer:
    layer = rnn.layers[0]
    assert isinstance(layer, RationalLayer)
    return layer


def _rational(model: Any) -> RationalRNN:
    """Return the model if its units are cells; otherwise raise an error that says what is known about it."""
    if isinstance(model, RationalRNN):
        return model
    known = why_open(model)
    if known is not None:
        raise AutomatonError(f"{type(model).__name__} has no automaton. {known}")
    raise AutomatonError(
        f"expected a RationalRNN, an ISAN or a LinearElman layer; got {type(model).__name__}"
    )


def why_open(model: Any) -> str | None:
    """Return what is known about the recurrence of a model that is not shown to be rational; None for other models."""
    entry = _not_rational(model)
    if entry is None:
        return None
    return f"It is {proved_of(model) or 'not shown to be rational'}. {entry.open}"


def proved_of(model: Any) -> str:
    """Return what is proved about a model that is not rational, or "" if nothing is."""
    entry = _not_rational(model)
    # The proof is about tanh: an Elman network with relu is piecewise linear.
    covered = entry is not None and getattr(model, "nonlinearity", "tanh") == "tanh"
    return entry.proved if entry is not None and covered else ""


def _not_rational(model: Any) -> zoo.Model | None:
    for name, entry in zoo.MODELS.items():
        # nn.LSTM counts as the zoo's LSTM.
        kinds = [entry.factory, getattr(nn, name, None)] if entry.open else []
        if any(isinstance(kind, type) and isinstance(model, kind) for kind in kinds):
            return entry
    return None
