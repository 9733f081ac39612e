"""What `RationalRNN` may be built with, each mistake with its message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rrnn.automata import Cell
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import evaluate
from rrnn.errors import CellError, ShapeError
from rrnn.nn.weights import SATURATED, is_forget_gate


def check_cells(cell: Any, hidden_size: Any) -> list[tuple[Cell, int]]:
    """(cell, units) pairs, of one cell and a hidden size, or of a list of pairs."""
    if isinstance(cell, str):
        raise CellError(
            f"a layer is built of a Cell; got the name {cell!r}. Write rrnn.zoo.layer({cell!r}, input_size, "
            f"hidden_size), or get the cell first: rrnn.zoo.get_cell({cell!r})."
        )
    if isinstance(cell, Cell):
        if hidden_size is None:
            raise ShapeError(f"hidden_size is missing: how many units of {cell.name} should a layer have?")
        return [(cell, _positive(hidden_size, "hidden_size"))]
    pairs = list(cell) if isinstance(cell, (list, tuple)) else []
    if not pairs or not all(
        isinstance(p, (list, tuple)) and len(p) == 2 and isinstance(p[0], Cell) for p in pairs
    ):
        raise CellError(
            "a layer is built of a Cell and a hidden size, or of a list of pairs [(cell, units), …]; "
            f"got {type(cell).__name__}"
        )
    pairs = [(c, _positive(units, f"the number of units of {c.name}")) for c, units in pairs]
    total = sum(units for _, units in pairs)
    if hidden_size not in (None, total):
        raise ShapeError(
            f"hidden_size is the sum of the cells' units, {total}; got {hidden_size!r}. Leave it out."
        )
    return pairs


def check_forget_gates(cells: Sequence[tuple[Cell, int]], what: str) -> None:
    """Whether there are some, and a loop that one weighs is weighed with one where the gate is fully open."""
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
    gates, one = _forget_gates(expression), cell.semiring.one
    # What the others are does not matter to a gate that is open.
    names = (node.name for node in ex.walk(expression) if isinstance(node, (ex.Linear, ex.Parameter)))
    values = dict.fromkeys((*names, "input"), 0.3) | dict.fromkeys(gates, SATURATED)
    weight = evaluate(expression, values, cell.semiring) if gates else one
    if not math.isclose(weight, one, abs_tol=1e-6):
        raise CellError(
            f"{what} opens forget gates, {', '.join(sorted(gates))} here, and the loop of {cell.name} at {state} is "
            f"then weighed {weight:.3g}, not {one:g}: a forget gate is a sigmoid of its projection. Leave it out, or "
            "give the projection another name than f, f1, f2, … or forget…"
        )


def _forget_gates(expression: ex.Expr) -> set[str]:
    projections = (node.name for node in ex.walk(expression) if isinstance(node, ex.Linear))
    return {name for name in projections if is_forget_gate(name)}


def check_options(
    input_size: Any,
    num_layers: Any,
    rates: dict[str, Any],
    skip: Any,
    norm: Any,
) -> None:
    _positive(input_size, "input_size")
    _positive(num_layers, "num_layers")
    for name, value in rates.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ShapeError(f"{name} is a probability, a number between 0 and 1; got {value!r}")
    if skip not in (None, "highway", "residual"):
        raise ShapeError(f'skip is None, "highway" or "residual"; got {skip!r}')
    if not (norm is None or norm == "layer" or callable(norm)):
        raise ShapeError(
            f'norm is None, "layer" or a function of the hidden size that makes a module; got {norm!r}'
        )


def _positive(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ShapeError(f"{name} must be a whole number above 0; got {value!r}")
    return value
