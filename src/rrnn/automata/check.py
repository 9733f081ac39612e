"""Rules that only a whole cell can break."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell, CellArc, _checked
from rrnn.automata.ranges import range_of
from rrnn.errors import CellError


def check_cell(cell: Cell) -> None:
    for place, weight in cell.weights():
        _checked(weight, place, cell.semiring, constant="arc" not in place or "ε-arc" in place)
    _check_names(cell)
    if not cell.initials:
        raise CellError(f"cell {cell.name!r} has no initial state: say .initial(state)")
    if not cell.finals:
        raise CellError(f"cell {cell.name!r} has no final state: say .final(state, weight)")
    reached = reachable([q for q, w in cell.initials if not isinstance(w, ex.Zero)], cell.arcs)
    if not reached & {q for q, w in cell.finals if not isinstance(w, ex.Zero)}:
        finals = ", ".join(repr(q) for q, _ in cell.finals)
        raise CellError(
            f"cell {cell.name!r}: no final state ({finals}) is reachable from an initial state, so every score is "
            "the semiring's zero. Add the missing arcs or initial states."
        )
    if cell.epsilon_limit is None:
        for component in epsilon_cycles(cell):
            if not _star_exists(cell, component):
                names = " → ".join([*component, component[0]])
                raise CellError(
                    f"cell {cell.name!r} has an ε-cycle {names} whose star is not known to exist in the "
                    f"{cell.semiring_name} semiring ({cell.semiring.star_domain}). Keep its weights provably inside "
                    "(e.g. sigmoid(parameter(…)) over the reals), remove an ε-arc, or say .limit_epsilon(k)."
                )


def reachable(starts: Iterable[str], arcs: Iterable[CellArc], *, backwards: bool = False) -> set[str]:
    """States reachable from `starts` along arcs of any kind (against them when `backwards`)."""
    following: dict[str, list[str]] = {}
    for arc in arcs:
        if not isinstance(arc.weight, ex.Zero):
            a, b = (arc.target, arc.source) if backwards else (arc.source, arc.target)
            following.setdefault(a, []).append(b)
    seen, todo = set(starts), list(starts)
    while todo:
        for q in following.get(todo.pop(), ()):
            if q not in seen:
                seen.add(q)
                todo.append(q)
    return seen


def epsilon_cycles(cell: Cell) -> list[list[str]]:
    """Groups of states that reach each other (or themselves) by ε-arcs alone, each in state order."""
    arcs = [a for a in cell.arcs if a.epsilon and not isinstance(a.weight, ex.Zero)]
    ahead = {q: reachable([a.target for a in arcs if a.source == q], arcs) for q in cell.states}
    groups: list[list[str]] = []
    for q in cell.states:
        if q in ahead[q] and not any(q in g for g in groups):
            groups.append([p for p in cell.states if p == q or (p in ahead[q] and q in ahead[p])])
    return groups


def _star_exists(cell: Cell, component: list[str]) -> bool:
    """A sufficient proof: over the reals and log, the weights leaving each state inside the cycle sum to less
    than one; in selective semirings no step of the cycle improves a path."""
    kind = cell.semiring_name
    for q in component:
        inner = [a.weight for a in cell.arcs if a.epsilon and a.source == q and a.target in component]
        ranges = [range_of(w, cell.semiring) for w in inner]
        if kind == "boolean":
            continue
        if kind == "max-plus" and any(r.high > 0 for r in ranges):
            return False
        if kind == "min-plus" and any(r.low < 0 for r in ranges):
            return False
        if kind == "max-times" and any(r.high > 1 for r in ranges):
            return False
        if kind == "counting":
            return False
        if kind in ("real", "log"):
            size = [math.exp(min(r.high, 1)) if kind == "log" else max(abs(r.low), abs(r.high)) for r in ranges]
            # sigmoid and tanh never attain their bound, so a sum of exactly 1 is still inside if one is in it
            attained = all(r.low == r.high or r.integral for r in ranges)
            if sum(size) > 1 or (sum(size) == 1 and attained):
                return False
    return True


def _check_names(cell: Cell) -> None:
    seen: dict[str, ex.Expr] = {}
    for expression in cell.expressions():
        for node in ex.walk(expression):
            if isinstance(node, (ex.Linear, ex.Parameter)) and seen.setdefault(node.name, node) != node:
                raise CellError(
                    f"cell {cell.name!r} uses the name {node.name!r} in two ways: {seen[node.name]} and {node}. "
                    "A name stands for one projection or parameter; use two names."
                )
