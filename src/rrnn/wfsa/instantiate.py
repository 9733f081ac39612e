"""Turn a cell into a WFSA: the states and arcs of the cell, with weights for each symbol of a finite alphabet."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rrnn.automata import Cell, evaluate, unroll
from rrnn.automata import expressions as ex
from rrnn.errors import AutomatonError, CellError, nearest
from rrnn.semirings import Semiring
from rrnn.wfsa import checks
from rrnn.wfsa.machine import WFSA
from rrnn.wfsa.symbols import EPSILON, State, Symbol


def instantiate(
    cell: Cell,
    symbols: Mapping[Any, Mapping[str, float]],
    parameters: Mapping[str, float] | None = None,
    *,
    whole_windows: bool = False,
) -> WFSA:
    """Return the WFSA of one hidden unit of a cell.

    `symbols[a]["f1"]` is the pre-activation W·v + b of the projection f1 at the symbol a, `symbols[a]["input"]`
    the value of `input()` there, and `parameters["r"]` the number the unit has learned for r. What only the
    output expression uses need not be given: a machine ends at the score. `whole_windows` says that symbols stand
    for whole windows of inputs; without it, a weight that sees more than one input is an error.

    The machine's states are the cell's. Under an `epsilon_limit` a state becomes several, (q, j), where j counts
    the ε-arcs taken since the last symbol.
    """
    given = {} if parameters is None else parameters
    constants, at = _values(cell.check(), symbols, given, whole_windows)

    def weight(expr: ex.Expr, symbol: Symbol) -> Any:
        return evaluate(expr, constants if symbol is EPSILON else at[symbol], cell.semiring)

    return with_weights(cell, at, weight, allow_empty=True)  # numbers that happen to be 0̄ are no mistake


def with_weights(
    cell: Cell,
    alphabet: Iterable[Symbol],
    weight: Callable[[ex.Expr, Symbol], Any],
    semiring: str | Semiring | None = None,
    *,
    allow_empty: bool = False,
) -> WFSA:
    """Return the WFSA that has the states and arcs of a cell, with other weights and perhaps over another semiring.

    `weight(expression, symbol)` gives the weight of an arc by the cell's expression for it. The symbol of an ε-arc, of
    an initial and of a final weight is `EPSILON`.
    """
    cell = unroll(cell)
    symbols, limit, copies = checks.alphabet(alphabet), cell.epsilon_limit, _copies(cell)
    arcs: list[tuple[State, Symbol, State, Any]] = []
    for source, target, expr, epsilon, _ in cell.arcs:
        counts = [j for q, j in copies if q == source]
        if epsilon and limit is not None:
            counts = [j for j in counts if j < limit]
        for symbol in (EPSILON,) if epsilon else symbols:
            w = weight(expr, symbol)
            for j in counts:
                end = _name(cell, target, j + 1 if epsilon else 0)
                arcs.append((_name(cell, source, j), symbol, end, w))
    return WFSA(
        cell.semiring if semiring is None else semiring,
        alphabet=symbols,
        states=[_name(cell, q, j) for q, j in copies],
        arcs=arcs,
        initial={_name(cell, q, 0): weight(w, EPSILON) for q, w in cell.initials},
        final={
            _name(cell, q, j): weight(w, EPSILON)
            for q, w in cell.finals
            for p, j in copies
            if p == q and (j == 0 or cell.epsilon_after_last)
        },
        merge="plus",
        allow_empty=allow_empty,
    )


def _name(cell: Cell, state: str, count: int) -> State:
    return state if cell.epsilon_limit is None else (state, count)


def _copies(cell: Cell) -> list[tuple[str, int]]:
    """Return the states of the machine as (state, number of ε-arcs since the last symbol).

    Without a limit of ε-arcs, that number is always 0.
    """
    layer, copies = list(cell.states), [(q, 0) for q in cell.states]
    for j in range(1, (cell.epsilon_limit or 0) + 1):
        into = {arc.target for arc in cell.arcs if arc.epsilon and arc.source in layer}
        layer = [q for q in cell.states if q in into]
        copies += [(q, j) for q in layer]
    return copies


def _values(
    cell: Cell, symbols: Any, parameters: Any, whole_windows: bool
) -> tuple[dict[str, float], dict[Any, dict[str, float]]]:
    """Return the values of the parameters, and for each symbol those of the parameters and projections."""
    nodes = [node for expr in cell.expressions() for node in ex.walk(expr)]
    needed = [node for _, expr in cell.weights() for node in ex.walk(expr)]
    for node in needed:
        if isinstance(node, ex.Linear) and node.window > 1 and not whole_windows:
            raise CellError(
                f"the weight of an arc depends on one symbol, but the projection {node.name!r} of cell {cell.name!r} "
                f"sees a window of {node.window}. Use window=1, or symbols that stand for whole windows "
                "(and whole_windows=True)."
            )
    if not isinstance(symbols, Mapping):
        raise AutomatonError(
            "symbols must be a mapping from symbol to the values of the cell's projections there, such as "
            f"{{'a': {{'u': 0.5}}}}; got {type(symbols).__name__}"
        )
    constants = _numbers(parameters, *_leaves(needed, nodes, ex.Parameter), "the parameters")
    projections = _leaves(needed, nodes, (ex.Linear, ex.Input))
    return constants, {
        symbol: constants | _numbers(values, *projections, f"the projections at symbol {symbol!r}")
        for symbol, values in symbols.items()
    }


def _leaves(needed: list[ex.Expr], nodes: list[ex.Expr], kind: Any) -> tuple[list[str], list[str]]:
    """Return the names of leaves of a kind: those that weights use, and all of them."""
    first, second = (
        list(dict.fromkeys(getattr(node, "name", "input") for node in some if isinstance(node, kind)))
        for some in (needed, nodes)
    )
    return first, second


def _numbers(values: Any, needed: list[str], known: list[str], what: str) -> dict[str, float]:
    """Return the values as floats, or raise unless all needed names, and only known ones, have a value."""
    if not isinstance(values, Mapping):
        raise AutomatonError(
            f"values of {what} must be a mapping from name to number; got {type(values).__name__}"
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
