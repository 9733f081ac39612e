"""Write out the families of a cell: one state for each index, and read-outs as arcs into a final state.

The result is a cell as it would be written without families. It has the same scores, one unit at a time: what a head
shares is given to each of its units. A weight over the family h, such as linear("B", over=h), becomes linear("B_0"),
linear("B_1"), ….

A read-out that sees the input is still a weighted automaton. For every arc p → q with weight u, where q is read with
weight w, there is an arc p → y with weight u ⊗ w. The state y is final and has no way out, so a path that enters it has
just consumed the symbol that w sees. The empty sequence is scored by the final weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell, CellArc
from rrnn.automata.cell_algebra import times
from rrnn.errors import CellError

Index = int | str | tuple[int | str, int | str] | None
"""The index of a family's state, those of an arc's source and target, or none; a letter stands for any index."""


def is_wide(cell: Cell) -> bool:
    """Return whether a cell has families or read-outs, or its units share something."""
    nodes = (node for top in cell.expressions() for node in ex.walk(top))
    leaves = (node for node in nodes if isinstance(node, (ex.Linear, ex.Parameter)))
    return bool(cell.families or cell.reads) or any(leaf.per != "unit" for leaf in leaves)


def unroll(cell: Cell) -> Cell:
    """Return a cell with the same scores, written without families, read-outs and sharing."""
    if not is_wide(cell):
        return cell
    written = Cell(cell.name, cell.semiring)
    if cell.epsilon_limit is not None:
        written = written.limit_epsilon(cell.epsilon_limit, after_last=cell.epsilon_after_last)
    entries: list[tuple[str, str, ex.Expr]] = []
    for state, weight in cell.initials:
        for q, i in _states(cell, state):
            written = written.initial(q, at_index(weight, i))
    for arc in cell.arcs:
        for p, q, i in _ends(cell, arc):
            add = written.epsilon if arc.epsilon else written.arc
            written = add(p, q, at_index(arc.weight, i), merge="plus")
            entries.append((p, q, at_index(arc.weight, i)))
    for state, weight in cell.finals:
        for q, i in _states(cell, state):
            written = written.final(q, at_index(weight, i))
    if cell.reads:
        written = _with_reads(cell, written, entries)
    return written.output(*(at_index(e, None) for e in cell.output_exprs))


def at_index(expr: ex.Expr, i: Index) -> ex.Expr:
    """Return an expression for one index of its family, or for the indices of an arc's source and target, with leaves
    that each unit has for itself."""
    if isinstance(expr, (ex.Linear, ex.Parameter)):
        indices = i if isinstance(i, tuple) else (i,)
        name = expr.name if expr.over is None else "_".join([expr.name, *map(str, indices)])
        return replace(expr, name=name, over=None, per="unit", start=None, label=None)
    if isinstance(expr, ex.At):
        assert isinstance(i, tuple)
        return at_index(expr.of, i[0] if expr.end == "source" else i[1])
    if isinstance(expr, ex.Binary):
        return replace(expr, left=at_index(expr.left, i), right=at_index(expr.right, i), label=None)
    if isinstance(expr, ex.Call):
        more = tuple(at_index(a, i) for a in expr.more)
        return replace(expr, argument=at_index(expr.argument, i), more=more, label=None)
    if isinstance(expr, ex.Construct):
        return replace(expr, arguments=tuple(at_index(a, i) for a in expr.arguments), label=None)
    return expr


def written_states(cell: Cell) -> dict[str, str]:
    """Return the states of the unrolled cell, but for the one in which read-outs end: name → the cell's own state or
    family."""
    return {q: state for state in cell.states for q, _ in _states(cell, state)}


def read_out_arcs(cell: Cell) -> frozenset[tuple[str, str]]:
    """Return (source, target) of those arcs of the unrolled cell that only read out the state in which a path stays."""
    if not cell.reads:
        return frozenset()
    written, known, reads = unroll(cell), written_states(cell), dict(cell.reads)
    (end,) = (q for q in written.states if q not in known)
    read = {q for q, state in known.items() if state in reads}
    leads = {q: {a.target for a in written.arcs if a.source == q and a.target in read} for q in read}
    return frozenset((q, end) for q in read if leads[q] == {q})


def _states(cell: Cell, state: str) -> Iterator[tuple[str, int | None]]:
    """Yield (name, index) of the states that a name stands for."""
    family = cell.family_of(state)
    if family is None:
        yield state, None
    else:
        yield from ((f"{state}_{i}", i) for i in range(family.size))


def _ends(cell: Cell, arc: CellArc) -> Iterator[tuple[str, str, Index]]:
    """Yield (source, target, index) of the arcs that an arc stands for. A loop of a family and an arc between families
    have one for each index, arcs from each state to each one for each pair."""
    both = bool(cell.family_of(arc.source) and cell.family_of(arc.target))
    for p, i in _states(cell, arc.source):
        for q, j in _states(cell, arc.target):
            if arc.full:
                assert i is not None and j is not None
                yield p, q, (i, j)
            elif not both or i == j:
                yield p, q, i if j is None else j


def _with_reads(cell: Cell, written: Cell, entries: list[tuple[str, str, ex.Expr]]) -> Cell:
    """Return the cell with an arc into a final state for each arc into a state that is read."""
    twice = [q for q, _ in cell.reads if q in dict(cell.finals)]
    if twice or any(arc.epsilon for arc in cell.arcs):
        what = f"the final weight of {twice[0]!r}" if twice else "ε-arcs"
        raise CellError(
            f"cell {cell.name!r} has {what} beside its read-outs, and such a cell cannot be written as an automaton "
            "yet. Leave one of them out."
        )
    weights = {q: at_index(w, i) for state, w in cell.reads for q, i in _states(cell, state)}
    end = "y"
    while end in written.states:
        end += "_"
    for p, q, entry in entries:
        if q in weights:
            written = written.arc(p, end, times(cell.semiring, entry, weights[q]), merge="plus")
    return written.final(end)
