"""From template to machine: one hidden unit of a cell, with numbers in the place of its weight functions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

from rrnn.automata import Cell, evaluate
from rrnn.automata import expressions as ex
from rrnn.errors import AutomatonError, CellError
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON, nearest


def instantiate(
    cell: Cell,
    symbols: Mapping[Any, Mapping[str, float]],
    parameters: Mapping[str, float] | None = None,
    *,
    whole_windows: bool = False,
) -> WFSA:
    """The WFSA of one hidden unit of a cell.

    `symbols[a]["f1"]` is the pre-activation W·v + b of the projection f1 at the symbol a, `symbols[a]["input"]`
    the value of `input()` there, and `parameters["r"]` the number the unit has learned for r. What only the
    output expression uses need not be given: a machine ends at the score. `whole_windows` says that symbols stand
    for whole windows of inputs; without it, a weight that sees more than one input is an error.

    The machine's states are the cell's. Under an `epsilon_limit` a state becomes several, (q, j), where j counts
    the ε-arcs taken since the last symbol.
    """
    given = {} if parameters is None else parameters
    constants, at = _values(cell.check(), symbols, given, whole_windows)

    def weight(expr: ex.Expr, values: Mapping[str, float] = constants) -> float:
        return evaluate(expr, values, cell.semiring)

    limit = cell.epsilon_limit
    copies = _copies(cell)
    arcs: list[tuple[Hashable, Any, Hashable, float]] = []
    for source, target, expr, epsilon in cell.arcs:
        counts = [j for q, j in copies if q == source]
        if epsilon:
            counts = counts if limit is None else [j for j in counts if j < limit]
            w = weight(expr)
            arcs += [(_name(cell, source, j), EPSILON, _name(cell, target, j + 1), w) for j in counts]
        for symbol, values in at.items() if not epsilon else ():
            w = weight(expr, values)
            arcs += [(_name(cell, source, j), symbol, _name(cell, target, 0), w) for j in counts]
    return WFSA(
        cell.semiring,
        alphabet=at,
        states=[_name(cell, q, j) for q, j in copies],
        arcs=arcs,
        initial={_name(cell, q, 0): weight(w) for q, w in cell.initials},
        final={
            _name(cell, q, j): weight(w)
            for q, w in cell.finals
            for p, j in copies
            if p == q and (j == 0 or cell.epsilon_after_last)
        },
        merge="plus",
        allow_empty=True,  # the cell was checked; numbers that happen to be 0̄ are no mistake
    )


def _name(cell: Cell, state: str, count: int) -> Hashable:
    return state if cell.epsilon_limit is None else (state, count)


def _copies(cell: Cell) -> list[tuple[str, int]]:
    """(state, ε-arcs since the last symbol): with a limit, each state as often as ε-arcs lead to it."""
    layer, copies = list(cell.states), [(q, 0) for q in cell.states]
    for j in range(1, (cell.epsilon_limit or 0) + 1):
        into = {arc.target for arc in cell.arcs if arc.epsilon and arc.source in layer}
        layer = [q for q in cell.states if q in into]
        copies += [(q, j) for q in layer]
    return copies


def _values(
    cell: Cell, symbols: Any, parameters: Any, whole_windows: bool
) -> tuple[dict[str, float], dict[Any, dict[str, float]]]:
    """The values of the parameters, and for each symbol those of the parameters and projections."""
    nodes = [node for expr in cell.expressions() for node in ex.walk(expr)]
    needed = [node for _, expr in cell.weights() for node in ex.walk(expr)]
    for node in needed:
        if isinstance(node, ex.Linear) and node.window > 1 and not whole_windows:
            raise CellError(
                f"an arc of a WFSA weighs one symbol, but the projection {node.name!r} of cell {cell.name!r} sees "
                f"a window of {node.window}. Use window=1, or symbols that stand for whole windows "
                "(and whole_windows=True)."
            )
    if not isinstance(symbols, Mapping):
        raise AutomatonError(
            "symbols are a mapping from symbol to the values of the cell's projections there, such as "
            f"{{'a': {{'u': 0.5}}}}; got {type(symbols).__name__}"
        )
    constants = _numbers(parameters, *_leaves(needed, nodes, ex.Parameter), "the parameters")
    projections = _leaves(needed, nodes, (ex.Linear, ex.Input))
    return constants, {
        symbol: constants | _numbers(values, *projections, f"the projections at symbol {symbol!r}")
        for symbol, values in symbols.items()
    }


def _leaves(needed: list[ex.Expr], nodes: list[ex.Expr], kind: Any) -> tuple[list[str], list[str]]:
    """The names of leaves of a kind: (those that weights use, all)."""
    first, second = (
        list(dict.fromkeys(getattr(node, "name", "input") for node in some if isinstance(node, kind)))
        for some in (needed, nodes)
    )
    return first, second


def _numbers(values: Any, needed: list[str], known: list[str], what: str) -> dict[str, float]:
    """The values as floats: each needed name has one, and no other name is there."""
    if not isinstance(values, Mapping):
        raise AutomatonError(
            f"values of {what} are a mapping from name to number; got {type(values).__name__}"
        )
    missing = [name for name in needed if name not in values]
    if missing:
        raise AutomatonError(
            f"values of {what} must include {', '.join(map(repr, needed))}; {missing[0]!r} is missing. Add it."
        )
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if name not in known:
            raise AutomatonError(
                f"values of {what} are given by name, one of {', '.join(map(repr, known)) or 'none'}; "
                f"got {name!r}.{nearest(name, known)}"
            )
        try:
            numbers[name] = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            numbers[name] = math.nan
        if not math.isfinite(numbers[name]):
            raise AutomatonError(f"the value of {name!r} in {what} must be a finite number; got {value!r}")
    return numbers
