"""The rules that only a whole cell can break: reachable final states, converging ε-cycles, names with one meaning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rrnn.arithmetic import RANGES
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import weight_range
from rrnn.automata.expression_rules import check_output, check_weight, is_zero, shown
from rrnn.automata.expression_text import expr_text, given_names
from rrnn.automata.family_rules import check_states
from rrnn.errors import CellError, GrowthWarning, nearest
from rrnn.semirings import Semiring

if TYPE_CHECKING:
    from rrnn.automata.cell import Cell, CellArc


def check_cell(cell: Cell) -> None:
    """Raise a `CellError` for what only the whole automaton shows, such as an unreachable final state."""
    # Weights were checked when they were given, but perhaps under another semiring.
    for place, weight in cell.weights():
        check_weight(weight, place, cell.semiring, constant=False)
    for expr in cell.output_exprs:
        check_output(expr, cell.semiring)
    given_names(cell)
    check_leaves(cell)
    check_states(cell)
    _check_ends(cell)
    warn_of_growth(cell)
    if cell.epsilon_limit is None:
        arcs = _epsilon_arcs(cell)
        for component in epsilon_cycles(cell):
            if not _star_exists(cell.semiring, set(component), arcs):
                raise CellError(
                    f"cell {cell.name!r} has an ε-cycle {_one_cycle(component[0], arcs)} whose star is not known to "
                    f"exist in the {cell.semiring_name} semiring ({cell.semiring.star_domain}). Keep its weights "
                    'provably inside (e.g. sigmoid(parameter("a")) over the reals), remove an ε-arc, or ',
                    call="call .limit_epsilon(k).",
                    line="add the line: epsilon_limit 3",
                )


def check_leaves(cell: Cell, fix: str = "use two names") -> None:
    """Raise a `CellError` if one name stands for two different projections or parameters."""
    seen: dict[str, ex.Expr] = {}
    for expression in cell.expressions():
        for node in ex.walk(expression):
            if isinstance(node, (ex.Linear, ex.Parameter)) and seen.setdefault(node.name, node) != node:
                raise CellError(
                    f"cell {cell.name!r} uses the name {node.name!r} in two ways: "
                    f"{expr_text(seen[node.name])} and {expr_text(node)}. "
                    f"A name stands for one projection or parameter: {fix}."
                )


def _check_ends(cell: Cell) -> None:
    """Raise a `CellError` if no path leads from an initial to a final state, or one of these has no arc."""
    ring = cell.semiring
    if not cell.initials:
        raise CellError(
            f"cell {cell.name!r} has no initial state: ",
            call="call .initial(state)",
            line="add a line, such as: initial q0",
        )
    ends = dict(cell.finals) | dict(cell.reads)
    if not ends:
        raise CellError(
            f"cell {cell.name!r} has no final state: ",
            call=f"call .final(state, weight){' or .read(state, weight)' * bool(cell.families)}",
            line=f"add a line, such as: final q1{' or: read h : C' * bool(cell.families)}",
        )
    if not _ends_reached(cell) & {q for q, w in (*cell.finals, *cell.reads) if not is_zero(w, ring)}:
        finals = ", ".join(map(repr, ends))
        limit = "" if cell.epsilon_limit is None else f" under its epsilon_limit of {cell.epsilon_limit}"
        limit += "" if cell.epsilon_after_last else " and no ε-arc after the last symbol"
        raise CellError(
            f"cell {cell.name!r}: no final state ({finals}) is reachable from an initial state, so every score is "
            f"the semiring's zero{limit}. Add the missing arcs or initial states."
        )
    starts = dict(cell.initials)
    sources, targets = {arc.source for arc in cell.arcs}, {arc.target for arc in cell.arcs}
    for word, lonely, met in (
        ("initial", [q for q in starts if q not in ends and q not in sources], "leaves"),
        ("final", [q for q in ends if q not in starts and q not in targets], "enters"),
    ):
        if lonely:
            hint = nearest(lonely[0], [q for q in cell.states if q != lonely[0]])
            raise CellError(
                f"cell {cell.name!r}: unknown state {lonely[0]!r}: it is {word}, but no arc {met} it.{hint} "
                "Add the arc or leave the state out."
            )


def _ends_reached(cell: Cell) -> set[str]:
    """Return the states in which a path may end, as far as arcs, weights of zero and the limit on ε decide it."""
    ring, limit = cell.semiring, cell.epsilon_limit
    starts = [q for q, w in cell.initials if not is_zero(w, ring)]
    arcs = [arc for arc in cell.arcs if not is_zero(arc.weight, ring)]
    if limit is None:
        return reachable(starts, arcs)
    # state → the fewest ε-arcs since the last symbol with which it is reached
    fewest = dict.fromkeys(starts, 0)
    leaving: dict[str, list[CellArc]] = {}
    for arc in arcs:
        leaving.setdefault(arc.source, []).append(arc)
    todo = list(fewest)
    while todo:
        q = todo.pop()
        for arc in leaving.get(q, ()):
            count = fewest[q] + 1 if arc.epsilon else 0
            if count < fewest.get(arc.target, limit + 1):
                fewest[arc.target] = count
                todo.append(arc.target)
    return {q for q, count in fewest.items() if count == 0 or cell.epsilon_after_last}


def reachable(starts: Iterable[str], arcs: Iterable[CellArc], *, backwards: bool = False) -> set[str]:
    """Return the states reachable from `starts` along arcs of any kind (against their direction if `backwards`)."""
    following: dict[str, set[str]] = {}
    for arc in arcs:
        if not isinstance(arc.weight, ex.Zero):
            a, b = (arc.target, arc.source) if backwards else (arc.source, arc.target)
            following.setdefault(a, set()).add(b)
    seen = set(starts)
    todo = list(seen)
    while todo:
        for q in following.get(todo.pop(), ()):
            if q not in seen:
                seen.add(q)
                todo.append(q)
    return seen


def epsilon_cycles(cell: Cell) -> list[list[str]]:
    """Return the groups of states that reach each other (or themselves) by ε-arcs alone, each in state order."""
    arcs = _epsilon_arcs(cell)
    sources = {a.source for a in arcs}
    ahead = {
        q: reachable([a.target for a in arcs if a.source == q], arcs) for q in cell.states if q in sources
    }
    groups: list[list[str]] = []
    grouped: set[str] = set()
    for q in cell.states:
        if q not in grouped and q in ahead.get(q, ()):
            groups.append([p for p in cell.states if p in ahead[q] and q in ahead.get(p, ())])
            grouped.update(groups[-1])
    return groups


def _epsilon_arcs(cell: Cell) -> list[CellArc]:
    return [a for a in cell.arcs if a.epsilon and not is_zero(a.weight, cell.semiring)]


def _one_cycle(start: str, arcs: list[CellArc]) -> str:
    """Return a shortest ε-cycle through a state, as text for the message."""
    paths, found = [[start]], {start}
    while True:  # breadth first; it ends, since there is one
        path = paths.pop(0)
        for arc in arcs:
            if arc.source == path[-1] and arc.target == start:
                return " → ".join([*path, start])
            if arc.source == path[-1] and arc.target not in found:
                found.add(arc.target)
                paths.append([*path, arc.target])


def _star_exists(ring: Semiring, component: set[str], arcs: list[CellArc]) -> bool:
    """Return whether the ranges of the weights on the cycles prove that their ε-closure converges."""
    rows: dict[str, list[tuple[str, Any]]] = {q: [] for q in component}
    for arc in arcs:
        if {arc.source, arc.target} <= component:
            rows[arc.source].append((arc.target, weight_range(arc.weight, ring)))
    return ring.converges(ring, rows)


def warn_of_growth(cell: Cell) -> None:
    """Warn, once for each cell, of loops whose weight is provably stronger than one: their states grow without bound.
    Semirings without a gradient are left out: there, as with counts, growth is what is wanted."""
    ring = cell.semiring
    if not (ring.ranks and ring.has_gradient) or cell.__dict__.setdefault("_growth_was_checked", False):
        return
    loops = [
        arc for arc in cell.arcs if arc.source == arc.target and not arc.epsilon and _grows(ring, arc.weight)
    ]
    cell.__dict__["_growth_was_checked"] = True
    if not loops:
        return
    weights = ", ".join(f"{arc.source!r} has the weight {expr_text(arc.weight)}" for arc in loops)
    states = "its state grows" if len(loops) == 1 else "their states grow"
    warnings.warn(
        f"cell {cell.name!r}: the loop at {weights}, which over {ring.name} is always stronger than one "
        f"({shown(ring.one)}), so {states} without bound with the length of the input. {_weaker(ring, loops)}",
        GrowthWarning,
        stacklevel=outside_level(),
    )


def _grows(ring: Semiring, weight: ex.Expr) -> bool:
    neutral, strength = ring.strength(ring.one), ring.strength(weight_range(weight, ring), RANGES)
    return strength.low > neutral or (strength.low == neutral and strength.low_open)


def _weaker(ring: Semiring, loops: list[CellArc]) -> str:
    """Return the advice of the growth warning: which weights to write instead."""
    if not ring.logarithmic:
        return "Keep it within one, as sigmoid does."
    forms = [
        expr_text(ex.call("log_sigmoid", arc.weight.argument))
        for arc in loops
        if isinstance(arc.weight, ex.Call) and arc.weight.function == "sigmoid"
    ]
    sign = "" if ring.maximum else "-"
    example = ", ".join(sign + form for form in forms) or f"{sign}log_sigmoid(x) for sigmoid(x)"
    return f"Weights over {ring.name} are logarithms: use those of the real weights, as {example}."


def outside_level() -> int:
    """Return the stack level, seen from the caller, of the first frame outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "rrnn":
        frame, level = frame.f_back, level + 1
    return level
