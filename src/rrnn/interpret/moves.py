"""Rewrite an automaton as a set of moves, each of which takes any ε-arcs and then consumes one symbol.

An automaton of moves has no ε-arcs, and a path over n symbols is a start, exactly n moves and an end. This package
computes everything on moves, so each function is written once for all cells. As in a compiled recurrence, a state holds
paths that have *just consumed* a symbol; ε-arcs belong to what comes next, a move or the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from rrnn.automata import Cell, CellArc, epsilon_cycles, reachable, unroll
from rrnn.automata import expressions as ex
from rrnn.automata.expression_rules import is_constant, is_zero
from rrnn.automata.unroll import read_out_arcs
from rrnn.errors import AutomatonError

MAX_MOVES = 20_000


@dataclass(frozen=True)
class Bridge:
    """A path from one state to another over ε-arcs; without arcs, it stays at the state."""

    source: str
    target: str
    arcs: tuple[CellArc, ...] = ()
    star: bool = False
    """True if it represents all ε-paths between the two states, infinitely many: they contain a cycle, and ⊕ adds."""

    @property
    def silent(self) -> bool:
        """Whether it takes no ε-arc."""
        return not self.arcs and not self.star


@dataclass(frozen=True)
class Move:
    """Any ε-arcs, followed by an arc that consumes a symbol."""

    bridge: Bridge
    arc: CellArc
    consumes: bool
    """Whether its arc leads to another state with a weight that may depend on the symbol. A self-loop skips its symbol,
    and so does an arc of weight 1̄, such as the one with which SoPa opens q0 again."""
    reads: bool = False
    """Whether it is a self-loop followed by a read-out: an arc of `unroll` into the state in which read-outs end."""

    @property
    def advances(self) -> bool:
        """Whether it leads on in the pattern, if only by its ε-arcs."""
        return self.consumes or (not self.bridge.silent and self.source != self.target)

    @property
    def enters(self) -> bool:
        """Whether it advances, and not only to read out the state in which the path was."""
        return self.advances and not self.reads

    @property
    def source(self) -> str:
        return self.bridge.source

    @property
    def target(self) -> str:
        return self.arc.target


@dataclass(frozen=True)
class End:
    """Any ε-arcs, followed by the final weight of a state."""

    bridge: Bridge
    weight: ex.Expr

    @property
    def source(self) -> str:
        return self.bridge.source


@dataclass(frozen=True)
class Moves:
    """A cell's automaton as moves, without states and arcs that are on no path."""

    cell: Cell
    states: tuple[str, ...]
    initials: tuple[tuple[str, ex.Expr], ...]
    epsilons: tuple[CellArc, ...]
    bridges: tuple[Bridge, ...]
    moves: tuple[Move, ...]
    ends: tuple[End, ...]

    @cached_property
    def index(self) -> dict[str, int]:
        """State → its number."""
        return {q: i for i, q in enumerate(self.states)}

    @property
    def most_entries(self) -> int | None:
        """The largest number of entering moves on one path; None if a cycle allows any number."""
        follows: dict[str, set[str]] = {q: set() for q in self.states}
        for move in self.moves:
            if move.source != move.target or move.enters:
                follows[move.source].add(move.target)
        depth: dict[str, int | None] = {}

        def longest(q: str) -> int | None:
            if q not in depth:
                depth[q] = None  # found again while it is being computed: a cycle
                ahead = [longest(p) for p in follows[q]]
                known = [n for n in ahead if n is not None]
                depth[q] = None if len(known) < len(ahead) else max(known, default=-1) + 1
            return depth[q]

        found = [longest(q) for q, _ in self.initials]
        known = [n for n in found if n is not None]
        return max(known, default=0) if len(known) == len(found) else None


@lru_cache(maxsize=256)
def moves_of(cell: Cell) -> Moves:
    """Return the moves of a cell that are on some path from an initial to a final state. Families are written out."""
    read = read_out_arcs(cell.check())
    cell = unroll(cell)
    arcs = [a for a in cell.arcs if not is_zero(a.weight, cell.semiring)]
    if cell.epsilon_limit == 0:
        arcs = [a for a in arcs if not a.epsilon]
    starts = [(q, w) for q, w in cell.initials if not is_zero(w, cell.semiring)]
    finals = [(q, w) for q, w in cell.finals if not is_zero(w, cell.semiring)]
    alive = reachable([q for q, _ in starts], arcs) & reachable([q for q, _ in finals], arcs, backwards=True)
    arcs = [a for a in arcs if {a.source, a.target} <= alive]
    states = tuple(q for q in cell.states if q in alive)

    bridges, moves = [], []
    for bridge in _bridges(cell, states, arcs):
        bridges.append(bridge)
        over = [a for a in arcs if not a.epsilon and a.source == bridge.target]
        moves += [Move(bridge, a, _consumes(cell, a), (a.source, a.target) in read) for a in over]
        if len(moves) + len(bridges) > MAX_MOVES:
            raise AutomatonError(
                f"cell {cell.name!r} has more than {MAX_MOVES:,} ways to take ε-arcs and then an arc, too many to "
                "list. Remove some of its ε-arcs, or limit them with cell.limit_epsilon(k)."
            )
    ends = [
        End(bridge, weight)
        for q, weight in finals
        for bridge in bridges
        if bridge.target == q and (bridge.silent or cell.epsilon_after_last)
    ]
    # Self-loops first: of moves with equal weights the first wins.
    moves.sort(key=lambda m: (m.source != m.target, not m.bridge.silent))
    return _trim(
        Moves(cell, states, tuple(starts), tuple(a for a in arcs if a.epsilon), (), tuple(moves), tuple(ends))
    )


def _trim(whole: Moves) -> Moves:
    """Remove states that no move reaches, such as F's q3, which only an ε-arc enters."""
    starts, moves, ends = whole.initials, whole.moves, whole.ends
    steps = [CellArc(m.source, m.target, ex.one) for m in moves]
    alive = reachable([q for q, _ in starts], steps) & reachable(
        [e.source for e in ends], steps, backwards=True
    )
    moves = tuple(m for m in moves if {m.source, m.target} <= alive)
    ends = tuple(e for e in ends if e.source in alive)
    return replace(
        whole,
        states=tuple(q for q in whole.states if q in alive),
        initials=tuple((q, w) for q, w in starts if q in alive),
        bridges=tuple(dict.fromkeys(each.bridge for each in (*moves, *ends))),
        moves=moves,
        ends=ends,
    )


def _consumes(cell: Cell, arc: CellArc) -> bool:
    return arc.source != arc.target and not is_constant(arc.weight, cell.semiring, cell.semiring.one)


def _bridges(cell: Cell, states: tuple[str, ...], arcs: list[CellArc]) -> Iterator[Bridge]:
    """Yield the bridges between states.

    Where ⊕ selects, a cycle never improves a path, so paths without cycles suffice; where ⊕ adds, a cycle needs a star.
    """
    leaving: dict[str, list[CellArc]] = {q: [] for q in states}
    for arc in arcs:
        if arc.epsilon:
            leaving[arc.source].append(arc)
    cyclic = cell.epsilon_limit is None and bool(epsilon_cycles(cell))
    for q in states:
        if cyclic and not cell.semiring.selective:
            yield from _stars(q, leaving)
        else:
            yield from _walks(q, leaving, cell.epsilon_limit)


def _walks(start: str, leaving: dict[str, list[CellArc]], limit: int | None) -> Iterator[Bridge]:
    """Yield the bridges of up to `limit` ε-arcs, or without a limit those that visit no state twice."""
    stack: list[tuple[CellArc, ...]] = [()]
    while stack:
        walk = stack.pop()
        here = walk[-1].target if walk else start
        yield Bridge(start, here, walk)
        seen = {start, *(arc.target for arc in walk)}
        for arc in reversed(leaving[here]):
            if len(walk) < limit if limit is not None else arc.target not in seen:
                stack.append((*walk, arc))


def _stars(start: str, leaving: dict[str, list[CellArc]]) -> Iterator[Bridge]:
    """Yield one bridge for all ε-paths from `start` to each state."""
    arcs = [arc for some in leaving.values() for arc in some]
    ahead = reachable([a.target for a in leaving[start]], arcs)
    if start not in ahead:
        yield Bridge(start, start)
    for q in leaving:
        if q in ahead:
            yield Bridge(start, q, star=True)
