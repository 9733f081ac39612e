"""Rules that only a whole cell can break."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell, CellArc
from rrnn.automata.names import given_names
from rrnn.automata.ranges import Range, range_of
from rrnn.automata.rules import check_output, check_weight, is_zero
from rrnn.automata.syntax import expr_text
from rrnn.errors import CellError
from rrnn.semirings import Semiring


def check_cell(cell: Cell) -> None:
    # Weights were checked as they were given, but perhaps under another semiring.
    for place, weight in cell.weights():
        check_weight(weight, place, cell.semiring, constant=False)
    check_output(cell.output_expr, cell.semiring)
    given_names(cell)
    check_leaves(cell)
    _check_ends(cell)
    if cell.epsilon_limit is None:
        arcs = _epsilon_arcs(cell)
        for component in epsilon_cycles(cell):
            if not _star_exists(cell.semiring, set(component), arcs):
                raise CellError(
                    f"cell {cell.name!r} has an ε-cycle {_one_cycle(component[0], arcs)} whose star is not known to "
                    f"exist in the {cell.semiring_name} semiring ({cell.semiring.star_domain}). Keep its weights "
                    "provably inside (e.g. sigmoid(parameter(…)) over the reals), remove an ε-arc, or say "
                    ".limit_epsilon(k)."
                )


def check_leaves(cell: Cell, fix: str = "use two names") -> None:
    """A name stands for one projection or parameter."""
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
    ring = cell.semiring
    if not cell.initials:
        raise CellError(f"cell {cell.name!r} has no initial state: say .initial(state)")
    if not cell.finals:
        raise CellError(f"cell {cell.name!r} has no final state: say .final(state, weight)")
    if not _ends_reached(cell) & {q for q, w in cell.finals if not is_zero(w, ring)}:
        finals = ", ".join(repr(q) for q, _ in cell.finals)
        limit = "" if cell.epsilon_limit is None else f" under its epsilon_limit of {cell.epsilon_limit}"
        limit += "" if cell.epsilon_after_last else " and no ε-arc after the last symbol"
        raise CellError(
            f"cell {cell.name!r}: no final state ({finals}) is reachable from an initial state, so every score is "
            f"the semiring's zero{limit}. Add the missing arcs or initial states."
        )
    starts, ends = dict(cell.initials), dict(cell.finals)
    sources, targets = {arc.source for arc in cell.arcs}, {arc.target for arc in cell.arcs}
    for word, lonely, met in (
        ("initial", [q for q in starts if q not in ends and q not in sources], "leaves"),
        ("final", [q for q in ends if q not in starts and q not in targets], "enters"),
    ):
        if lonely:
            near = difflib.get_close_matches(lonely[0], [q for q in cell.states if q != lonely[0]], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise CellError(
                f"cell {cell.name!r}: unknown state {lonely[0]!r}: it is {word}, but no arc {met} it.{hint} "
                "Add the arc or leave the state out."
            )


def _ends_reached(cell: Cell) -> set[str]:
    """States in which a path may end, as far as arcs, weights of zero and the limit on ε decide it."""
    ring, limit = cell.semiring, cell.epsilon_limit
    starts = [q for q, w in cell.initials if not is_zero(w, ring)]
    arcs = [arc for arc in cell.arcs if not is_zero(arc.weight, ring)]
    if limit is None:
        return reachable(starts, arcs)
    fewest = dict.fromkeys(
        starts, 0
    )  # state → the fewest ε-arcs since the last symbol with which it is reached
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
    """States reachable from `starts` along arcs of any kind (against them when `backwards`)."""
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
    """Groups of states that reach each other (or themselves) by ε-arcs alone, each in state order."""
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
    """A shortest ε-cycle through a state, for the message."""
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
    """A sufficient proof, from the ranges of the weights on the cycles, that their ε-closure converges."""
    if ring.name in ("boolean", "counting"):
        return ring.name == "boolean"  # one more round changes no truth, but always a count
    rows: dict[str, list[_Bound]] = {q: [] for q in component}
    for arc in arcs:
        if {arc.source, arc.target} <= component:
            size, is_open = _largest(range_of(arc.weight, ring), ring.name)
            if math.isinf(size) or (ring.name == "log" and size > 700):
                return False
            rows[arc.source].append((arc.target, math.exp(size) if ring.name == "log" else size, is_open))
    if ring.name in ("real", "log"):
        return _contracts(rows)
    # Selective: where no cycle improves a path, the best ε-path from a state has no cycle in it, and the
    # fix-point of x = 1̄ ⊕ A ⊗ x is there after as many rounds as there are states.
    x = dict.fromkeys(component, ring.one)
    for _ in component:
        new = {q: ring.sum([ring.one, *(ring.times(w, x[p]) for p, w, _ in row)]) for q, row in rows.items()}
        if new == x:
            return True
        x = new
    return False


_Bound = tuple[str, float, bool]  # (target, largest weight, does no value attain it?)


def _largest(r: Range, semiring: str) -> tuple[float, bool]:
    """The end of a weight's range that is worst for convergence."""
    if semiring == "min-plus":
        return r.low, r.low_open
    if semiring == "real" and abs(r.low) == abs(r.high):
        return abs(r.high), r.low_open and r.high_open
    if semiring == "real" and abs(r.low) > abs(r.high):
        return abs(r.low), r.low_open
    return r.high, r.high_open


def _contracts(rows: dict[str, list[_Bound]]) -> bool:
    """Is the spectral radius of this non-negative matrix below one?

    It is when Ax < x for some x > 0 (Collatz and Wielandt). For x = 1, the sums of rows, less is enough since the
    states of a component all reach each other: none above 1, and one of them below it, or never attaining it.
    """
    sums = {q: math.fsum(size for _, size, _ in row) for q, row in rows.items()}
    below = any(sums[q] < 1 or any(is_open for _, _, is_open in row) for q, row in rows.items())
    if max(sums.values()) <= 1:
        return below
    x = dict.fromkeys(rows, 1.0)
    for _ in range(100):
        ahead = {q: sum(size * x[p] for p, size, _ in row) for q, row in rows.items()}
        if all(ahead[q] < (1 - 1e-9) * x[q] for q in rows):
            return True
        x = {q: min(1 + ahead[q], 1e100) for q in rows}
    return False
