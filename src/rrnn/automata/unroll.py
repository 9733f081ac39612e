"""Write out the families of a cell: one state for each index, and read-outs as arcs into a final state.

The result is a cell as it would be written without families. It has the same scores, one unit at a time: what a head
shares is given to each of its units. A weight over the family h, such as linear("B", over=h), becomes linear("B_0"),
linear("B_1"), ….

A read-out that sees the input is still a weighted automaton. For every arc p → q with weight u, where q is read with
weight w, there is an arc p → y with weight u ⊗ w. The state y is final and has no way out, so a path that enters it has
just consumed the symbol that w sees. Where ε-arcs lead to q, the states on the way to it have copies instead, which
nothing but these ε-arcs leaves. The final weight of a state that is read scores the empty sequence alone: it belongs to
a copy of the initial state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rrnn.automata import expressions as ex
from rrnn.automata.cell import Cell, CellArc
from rrnn.automata.cell_algebra import times
from rrnn.automata.cell_rules import reachable
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
            if not arc.epsilon:
                entries.append((p, q, at_index(arc.weight, i)))
    for state, weight in cell.finals:
        for q, i in _states(cell, state) if state not in dict(cell.reads) else ():
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
    """Return the states of the unrolled cell, but for the one in which read-outs without ε-arcs end: name → the cell's
    own state or family."""
    own, end = {q: state for state in cell.states for q, _ in _states(cell, state)}, _end(cell)
    return own | {name: own[copy.state] for copy, name in _copies(cell).items() if name != end}


def read_out_arcs(cell: Cell) -> frozenset[tuple[str, str]]:
    """Return (source, target) of those arcs of the unrolled cell that only read out the state in which a path stays."""
    if not cell.reads:
        return frozenset()
    leads, copied = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for arc in unroll(cell).arcs:
        if not arc.epsilon:
            leads[arc.source].add(arc.target)
    for copy, name in _copies(cell).items():
        copied[name].add(copy.state)
    return frozenset((q, name) for name, states in copied.items() for q in states if leads[q] & states == {q})


class _Copy(NamedTuple):
    """A state on the way to a state that is read, when only ε-arcs follow."""

    state: str
    read: str
    empty: bool
    """Whether the path has consumed nothing: then the final weight counts, otherwise the read-out."""


def _end(cell: Cell) -> str:
    """Return the name of the state in which read-outs end, with which no name of another state begins."""
    end = "y"
    while any(q.startswith(end) for state in cell.states for q, _ in _states(cell, state)):
        end += "_"
    return end


def _copies(cell: Cell) -> dict[_Copy, str]:
    """Return the names of all copies. States that are read where no ε-arc leads to them share one."""
    starts = {q for state, _ in cell.initials for q, _ in _states(cell, state)}
    copies, end, silent = dict[_Copy, str](), _end(cell), _silent(cell)
    for state, _ in cell.reads:
        for read, _ in _states(cell, state):
            alone = all(arc.target != read for arc in silent)
            before = sorted(reachable([read], silent, backwards=True))
            for q in before:
                copies[_Copy(q, read, False)] = end if alone else f"{end}{len(copies)}"
            for q in before if state in dict(cell.finals) and not starts.isdisjoint(before) else ():
                copies[_Copy(q, read, True)] = f"{end}{len(copies)}"
    return copies


def _silent(cell: Cell) -> list[CellArc]:
    """Return the ε-arcs that a path may take at its end."""
    return [arc for arc in cell.arcs if arc.epsilon] if cell.epsilon_after_last else []


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
    """Return the cell with an arc into the copy of a state for each arc into it that consumes a symbol."""
    copies, ring = _copies(cell), cell.semiring
    if not ring.commutative and any(not copy.empty and name != _end(cell) for copy, name in copies.items()):
        raise CellError(
            f"cell {cell.name!r} reads a state to which ε-arcs lead. In an automaton the read-out would come before "
            f"their weights, and the ⊗ of {ring.name} is not commutative. Put the weights of these ε-arcs on the arcs "
            "before them."
        )
    weights = {q: at_index(w, i) for state, w in cell.reads for q, i in _states(cell, state)}
    read, ends = defaultdict[str, list[tuple[str, str]]](list), dict[str, ex.Expr]()
    for copy, name in copies.items():
        if not copy.empty:
            read[copy.state].append((name, copy.read))
    for p, q, entry in entries:
        for name, end in read[q]:
            written = written.arc(p, name, times(ring, entry, weights[end]), merge="plus")
    starts = {q: at_index(w, i) for state, w in cell.initials for q, i in _states(cell, state)}
    finals = {q: at_index(w, i) for state, w in cell.finals for q, i in _states(cell, state)}
    for copy, name in copies.items():
        if copy.empty and copy.state in starts:
            written = written.initial(name, starts[copy.state])
        for arc in _silent(cell):
            target = copies.get(copy._replace(state=arc.target))
            if arc.source == copy.state and target is not None:
                written = written.epsilon(name, target, at_index(arc.weight, None), merge="plus")
        if copy.state == copy.read:
            ends[name] = finals[copy.read] if copy.empty else ex.one
    for name, weight in ends.items():
        written = written.final(name, weight)
    # A path may start in a state to be read at once, which is what the state's copy does.
    used = {arc.source for arc in written.arcs} | {q for q, _ in written.finals}
    return written._with(initials=tuple((q, w) for q, w in written.initials if q in used))
