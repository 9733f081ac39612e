"""Rows of the paper's Table 1: a model's recurrence, and which of the paper's automata it is."""

from __future__ import annotations

from itertools import pairwise

from rrnn import zoo
from rrnn.automata import Cell
from rrnn.ir import lower
from rrnn.ir.equations import Equations, state_symbols
from rrnn.ir.notation import PLAIN
from rrnn.theory.histories import reach


def recurrence(cell: Cell) -> str:
    """The updates of the stored states, and the score where it is none of them."""
    lines = Equations(lower(cell), PLAIN).lines()
    states = {f"{symbol}ₜ" for symbol in state_symbols(cell).values()}
    return "; ".join(
        f"{left} = {right}"
        for left, right in lines
        if left in states or (left == "cₜ" and right not in states)
    )


def automaton(cell: Cell) -> str:
    """The paper's name for the automaton, or its shape. Over histories, if weights see earlier inputs."""
    over = "" if not reach(cell) else f" over histories of {reach(cell)}"
    return f"{_shape(cell)}{over}"


def _shape(cell: Cell) -> str:
    arcs = {(a.source, a.target, a.epsilon) for a in cell.arcs}
    names = cell.states
    chain = {(a, b, False) for a, b in pairwise(names)}
    loops = {(q, q, False) for q in names}
    ends = [q for q, _ in cell.initials] == [names[0]] and [q for q, _ in cell.finals] == [names[-1]]
    if ends and arcs == chain | loops:
        return {2: "B", 3: "C"}.get(len(names), f"chain of {len(names)}")
    if ends and arcs == chain | {(q, q, False) for q in (names[0], names[-1])}:
        return f"chain of {len(names)}"
    f = zoo.get_cell("F")
    if arcs == {(a.source, a.target, a.epsilon) for a in f.arcs} and names == f.states:
        return "F"
    return f"{len(names)} states, {len(arcs)} arcs"
