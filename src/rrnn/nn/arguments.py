"""Check what layers are built with and called with; each mistake has its message."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import evaluate
from rrnn.errors import CellError, ShapeError, nearest
from rrnn.nn.layer_weights import SATURATED, ProjectionRows, is_forget_gate
from rrnn.nn.sequences import BlockState, LayerState, State

MAX_SIZE = 2**31 - 1
"""The most units, inputs or layers: more fit no memory, and torch's own error is a page of C++."""


def check_cells(cell: Any, hidden_size: Any) -> list[tuple[Cell, int]]:
    """Return the (cell, units) pairs of one cell and a hidden size, or of a list of pairs. A cell may be a name."""
    if isinstance(cell, str):
        cell = _named(cell)
    if isinstance(cell, Cell):
        if hidden_size is None:
            raise ShapeError(f"hidden_size is missing: how many units of {cell.name} should a layer have?")
        return [(cell, positive(hidden_size, "hidden_size"))]
    pairs = list(cell) if isinstance(cell, (list, tuple)) else []
    if not pairs or not all(
        isinstance(p, (list, tuple)) and len(p) == 2 and isinstance(p[0], (Cell, str)) for p in pairs
    ):
        raise CellError(
            "a layer is built of a cell or its name and a hidden size, or of a list of pairs [(cell, units), …]; "
            f"got {type(cell).__name__}"
        )
    pairs = [(_named(c) if isinstance(c, str) else c, units) for c, units in pairs]
    pairs = [(c, positive(units, f"the number of units of {c.name}")) for c, units in pairs]
    total = sum(units for _, units in pairs)
    if hidden_size not in (None, total):
        raise ShapeError(
            f"hidden_size is the sum of the cells' units, {total}; got {hidden_size!r}. Leave it out."
        )
    return pairs


def check_layers(cell: Any, hidden_size: Any, num_layers: int) -> list[list[tuple[Cell, int]]]:
    """Return the (cell, units) pairs of each layer, of one hidden size for all layers or of one for each."""
    if not isinstance(hidden_size, (list, tuple)):
        return [check_cells(cell, hidden_size)] * num_layers
    if len(hidden_size) != num_layers:
        raise ShapeError(
            f"hidden_size is one number for all layers, or one for each: there are {num_layers} layers (num_layers), "
            f"and {len(hidden_size)} numbers were given"
        )
    return [check_cells(cell, size) for size in hidden_size]


def check_heads(cells: Sequence[tuple[Cell, int]], heads: Any, groups: Any) -> None:
    """Raise a `ShapeError` unless heads divide the units of every cell, groups divide the heads, and somebody asks for
    them."""
    positive(heads, "heads")
    positive(groups, "groups")
    shared = {
        node.per
        for cell, _ in cells
        for expression in cell.expressions()
        for node in ex.walk(expression)
        if isinstance(node, (ex.Linear, ex.Parameter))
    }
    names = ", ".join(cell.name for cell, _ in cells)
    if heads > 1 and not shared & {"head", "group"}:
        raise ShapeError(
            f"heads={heads} splits the units for projections and parameters that a head shares, and {names} has none. "
            "Leave heads out."
        )
    if groups > 1 and "group" not in shared:
        raise ShapeError(
            f"groups={groups} splits the heads for projections and parameters that a group shares, and {names} has "
            "none. Leave groups out."
        )
    for cell, units in cells:
        if units % heads:
            raise ShapeError(
                f"heads are equal parts of a cell's units: {heads} heads do not divide the {units} units of "
                f"{cell.name}. Use a multiple of {heads} units, or another number of heads."
            )
    if heads % groups:
        raise ShapeError(
            f"groups are equal parts of the heads: {groups} groups do not divide {heads} heads. Use a multiple of "
            f"{groups} heads, or another number of groups."
        )


def check_low_rank(cells: Sequence[tuple[Cell, int]], low_rank: Any) -> None:
    """Raise a `CellError` unless `low_rank` maps projections of the cells, without windows, to ranks."""
    if low_rank is not None and not isinstance(low_rank, Mapping):
        raise CellError(f'low_rank is a table of projections and ranks, {{"f": 16}}; got {low_rank!r}')
    names = ", ".join(cell.name for cell, _ in cells)
    windows = {
        node.name: node.window
        for cell, _ in cells
        for expression in cell.expressions()
        for node in ex.walk(expression)
        if isinstance(node, ex.Linear)
    }
    for name, rank in (low_rank or {}).items():
        if name not in windows:
            raise CellError(
                f"low_rank names projections, and those of {names} are {', '.join(windows) or 'none'}; got {name!r}."
                f"{nearest(str(name), windows)}"
            )
        positive(rank, f"the rank of {name}")
        if windows[name] > 1:
            raise CellError(
                f"a projection of low rank sees one input, and {name} of {names} has a window of {windows[name]}. "
                f"Leave it out of low_rank."
            )


def check_ranks(rows: Sequence[ProjectionRows], input_size: int) -> None:
    """Raise a `ShapeError` for a low rank above that of any matrix of its projection's shape."""
    for r in rows:
        height, rank = r.stop - r.start, r.rank or 0
        if rank > min(height, input_size):
            raise ShapeError(
                f"a low rank is at most the smaller side of the projection's matrix: that of {r.name} is {height} × "
                f"{input_size}; got the rank {rank}. Use at most {min(height, input_size)}, or leave {r.name} out of "
                "low_rank."
            )


def _named(name: str) -> Cell:
    """Return a cell of the zoo, or of a file. The zoo is built on this package, which therefore finds it by its name
    when it is first asked for one, and imports nothing of it."""
    return import_module("rrnn.zoo").get_cell(name)


def named_block(name: str) -> Mapping[str, Any]:
    """Return the settings of the published block around a model of the zoo; none for a file."""
    return import_module("rrnn.zoo").block_settings(name)


def check_forget_gates(cells: Sequence[tuple[Cell, int]], what: str) -> None:
    """Raise a `CellError` unless there are forget gates, and every loop that one weighs has weight one where it is
    fully open."""
    kinds = [cell for cell, _ in cells]
    if not any(_forget_gates(expression) for cell in kinds for expression in cell.expressions()):
        raise CellError(
            f"{what} opens forget gates, projections called f, f1, f2, … or forget…, and "
            f"{', '.join(cell.name for cell in kinds)} has none. Leave it out."
        )
    for cell in kinds:
        for arc in cell.arcs:
            if arc.source == arc.target:
                _check_loop(cell, arc.source, arc.weight, what)


def _check_loop(cell: Cell, state: str, expression: ex.Expr, what: str) -> None:
    """Raise a `CellError` if a loop's weight is not one where its forget gates are fully open."""
    gates, one = _forget_gates(expression), cell.semiring.one
    # Any value of the other leaves will do: it does not matter where a gate is open.
    names = (node.name for node in ex.walk(expression) if isinstance(node, (ex.Linear, ex.Parameter)))
    values = dict.fromkeys((*names, "input"), 0.3) | dict.fromkeys(gates, SATURATED)
    weight = evaluate(expression, values, cell.semiring) if gates else one
    if not math.isclose(weight, one, abs_tol=1e-6):
        raise CellError(
            f"{what} opens forget gates, {', '.join(sorted(gates))} here, and the loop of {cell.name} at {state} then "
            f"has the weight {weight:.3g}, not {one:g}: a forget gate is a sigmoid of its projection. Leave it out, or "
            "give the projection another name than f, f1, f2, … or forget…"
        )


def _forget_gates(expression: ex.Expr) -> set[str]:
    """Return the names of the forget gates in an expression."""
    projections = (node.name for node in ex.walk(expression) if isinstance(node, ex.Linear))
    return {name for name in projections if is_forget_gate(name)}


def check_options(
    input_size: Any,
    num_layers: Any,
    rates: dict[str, Any],
    skip: Any,
    norm: Any,
) -> None:
    """Raise a `ShapeError` for an option of `RationalRNN` that has no meaning."""
    positive(input_size, "input_size")
    positive(num_layers, "num_layers")
    for name, value in rates.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ShapeError(f"{name} is a probability, a number between 0 and 1; got {value!r}")
    if skip not in (None, "highway", "residual"):
        raise ShapeError(f'skip is None, "highway" or "residual"; got {skip!r}')
    if not (norm is None or norm == "layer" or callable(norm)):
        raise ShapeError(
            f'norm is None, "layer" or a function of the hidden size that makes a module; got {norm!r}'
        )


def positive(value: Any, name: str) -> int:
    """Return a whole number above 0, or raise a `ShapeError` that calls it by `name`."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ShapeError(f"{name} must be a whole number above 0; got {value!r}")
    if value > MAX_SIZE:
        raise ShapeError(f"{name} must be at most {MAX_SIZE:,}; got one of {value.bit_length()} bits")
    return value


# ---- calls -----------------------------------------------------------------------------------------------------


def check_input(x: Any, dims: tuple[int, ...], input_size: int, weight: Tensor) -> None:
    """Raise a `ShapeError` for an input that a layer with this weight cannot project; `dims`: how many dimensions it
    may have."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"the input must be a tensor or a PackedSequence; got {type(x).__name__}")
    if x.dim() not in dims:
        raise ShapeError(
            f"expected input with {' or '.join(map(str, dims))} dimensions; got shape {tuple(x.shape)}"
        )
    if x.shape[-1] != input_size:
        raise ShapeError(
            f"expected input with {input_size} features, got {x.shape[-1]}: the last dimension of an input "
            f"is input_size; its shape is {tuple(x.shape)}"
        )
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        fix = f"Convert one: input.to({weight.dtype}), or layer.to({x.dtype})."
        if not x.is_floating_point():
            fix = f"Embed ids first (torch.nn.Embedding), convert numbers: input.to({weight.dtype})."
        raise ShapeError(
            f"expected input of {weight.dtype}, as the layer's weights are; got {x.dtype}. {fix}"
        )


StateShapes = tuple[list[tuple[int, ...]], tuple[int, ...] | None]
"""The shapes of a layer's states, one for each cell, and of its history."""


def check_state(state: Any, shapes: Sequence[StateShapes]) -> State:
    """Return the state, checked against (shapes of states, shape of the history) of each layer and direction."""
    fix = "Pass a state that this layer returned, or rnn.init_state(batch_size)."
    if not isinstance(state, (tuple, list)) or isinstance(state, LayerState) or len(state) != len(shapes):
        got = f"{len(state)}" if isinstance(state, (tuple, list)) else type(state).__name__
        got = "one LayerState alone" if isinstance(state, LayerState) else got
        raise ShapeError(
            f"the state is a tuple of {len(shapes)} LayerState (one per layer and direction); got {got}. {fix}"
        )
    checked = []
    for i, (layer, (expected, history)) in enumerate(zip(state, shapes, strict=True)):
        if not isinstance(layer, (tuple, list)) or len(layer) != 2:
            raise ShapeError(
                f"state[{i}] is a LayerState(states, history); got {type(layer).__name__}. {fix}"
            )
        given, last = layer
        if not isinstance(given, (tuple, list)) or len(given) != len(expected):
            raise ShapeError(f"state[{i}].states holds one tensor per cell, {len(expected)} in all. {fix}")
        for c, (tensor, shape) in enumerate(zip(given, expected, strict=True)):
            _check_tensor(tensor, shape, f"state[{i}].states[{c}]", "(stored states, batch, units)", fix)
        if (last is None) != (history is None):
            rule = "None, since no projection has a window" if history is None else f"of shape {history}"
            got = "None" if last is None else "a tensor"
            raise ShapeError(f"state[{i}].history must be {rule}; got {got}. {fix}")
        if history is not None:
            _check_tensor(last, history, f"state[{i}].history", "(window − 1, batch, input_size)", fix)
        checked.append(LayerState(tuple(given), last))
    return tuple(checked)


def check_block_states(
    states: Any, shapes: Sequence[tuple[StateShapes, tuple[int, ...] | None]], what: str
) -> tuple[BlockState, ...]:
    """Return the states of blocks, checked against (shapes of the layer's state, shape of the tail) of each. `what`
    says in messages what the caller should pass."""
    fix = "Pass a state that the block returned, or init_state(batch_size)."
    if not isinstance(states, (tuple, list)) or isinstance(states, BlockState) or len(states) != len(shapes):
        raise ShapeError(f"the state is {what}; got {type(states).__name__}. {fix}")
    checked = []
    for state, (layer, tail) in zip(states, shapes, strict=True):
        if not isinstance(state, (tuple, list)) or len(state) != 2 or isinstance(state, LayerState):
            raise ShapeError(
                f"a block's state is a BlockState(layer, tail); got {type(state).__name__}. {fix}"
            )
        if (state[1] is None) != (tail is None):
            rule = "None, since the block has no convolution" if tail is None else f"of shape {tail}"
            raise ShapeError(f"the tail of a block's state must be {rule}. {fix}")
        if tail is not None:
            _check_tensor(state[1], tail, "the tail", "(steps − 1, batch, channels)", fix)
        checked.append(BlockState(check_state((state[0],), [layer])[0], state[1]))
    return tuple(checked)


def _check_tensor(tensor: Any, shape: tuple[int, ...], place: str, meaning: str, fix: str) -> None:
    """Raise a `ShapeError` for a tensor of a state with another shape, or without floating-point numbers."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ShapeError(f"{place} must be a tensor of floating-point numbers; got {got}. {fix}")
    if tensor.shape != shape:
        meaning = meaning if len(shape) == 3 else meaning.replace("batch, ", "") + " without a batch"
        raise ShapeError(f"expected {place} of shape {shape}, {meaning}; got {tuple(tensor.shape)}. {fix}")
