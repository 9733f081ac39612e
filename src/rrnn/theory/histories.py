"""Windows: a gate that sees the K latest inputs, in an automaton that reads one symbol at a time.

The paper's construction for QRNN, for any cell and any K: a state remembers the K − 1 symbols before, or all of them
while there are fewer. (Its text leaves out the empty history, so that its machine scores the first symbol 0; a layer
sees zeros there, and has c₁ = u₁.) B over an alphabet of n symbols and K = 2 has 2n + 1 states: q₀ before the first
symbol, and q₀ and q₁ after each symbol.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import product
from typing import Any

from rrnn.automata import Cell
from rrnn.automata import expressions as ex
from rrnn.errors import AutomatonError
from rrnn.wfsa import EPSILON, WFSA, Arc, instantiate

History = tuple[Any, ...]
Values = Callable[[History, Hashable], Mapping[str, float]]
"""(the symbols before, oldest first, at most K − 1; the symbol) → the values of the projections there."""

MAX_ARCS = 200_000


def reach(cell: Cell) -> int:
    """How many earlier inputs the cell's weights see: K − 1. What only the output sees does not count."""
    nodes = (node for _, weight in cell.weights() for node in ex.walk(weight))
    return max((node.window - 1 for node in nodes if isinstance(node, ex.Linear)), default=0)


def unit_wfsa(
    cell: Cell, alphabet: Sequence[Hashable], values: Values, parameters: Mapping[str, float]
) -> WFSA:
    """One unit of a cell as a WFSA. With windows, its states are pairs (state of the cell, history)."""
    lags = reach(cell)
    if not lags:
        return instantiate(cell, {a: values((), a) for a in alphabet}, parameters)
    _check_size(cell, lags, len(alphabet))
    histories = [h for length in range(lags + 1) for h in product(alphabet, repeat=length)]
    windows = {(h, a): values(h, a) for h in histories for a in alphabet}
    return _remember(instantiate(cell, windows, parameters, whole_windows=True), alphabet, lags)


def _remember(machine: WFSA, alphabet: Sequence[Hashable], lags: int) -> WFSA:
    """The machine over symbols, of one over windows (history, symbol); only what can be reached."""
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
            f"power of the window: {symbols} symbols and a window of {lags + 1} make about {arcs:,} arcs, and at most "
            f"{MAX_ARCS:,} are built. Pass fewer symbols."
        )
