"""An automaton as a set of moves: each takes ε-arcs, perhaps none, and then consumes one symbol.

Over moves an automaton has no ε, and a path of n symbols is exactly n moves, a start and an end: all that this package
computes is written once, on moves, whatever the cell. As in a compiled recurrence, a state holds what has *just
consumed* a symbol; ε-arcs are taken by what comes next, a move or the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from rrnn.automata import Cell, CellArc, epsilon_cycles, reachable
from rrnn.automata import expressions as ex
from rrnn.automata.expression_rules import is_constant, is_zero
from rrnn.errors import AutomatonError

MAX_MOVES = 20_000


@dataclass(frozen=True)
class Bridge:
    """A way from one state to another over ε-arcs; without arcs, the state itself."""

    source: str
    target: str
    arcs: tuple[CellArc, ...] = ()
    star: bool = False
    """It stands for all ε-paths between the two, infinitely many: they form a cycle, and ⊕ adds."""

    @property
    def silent(self) -> bool:
        return not self.arcs and not self.star


@dataclass(frozen=True)
class Move:
    """ε-arcs, then an arc that consumes."""

    bridge: Bridge
    arc: CellArc
    consumes: bool
    """Its arc reads its symbol and goes on to another state. A self-loop skips its symbol, and so does an arc weighted
    1̄, as SoPa's that opens q0 anew: it takes no notice of it."""

    @property
    def enters(self) -> bool:
        """It goes on in the pattern, if only by its ε-arcs."""
        return self.consumes or (not self.bridge.silent and self.source != self.target)

    @property
    def source(self) -> str:
        return self.bridge.source

    @property
    def target(self) -> str:
        return self.arc.target


@dataclass(frozen=True)
class End:
    """ε-arcs, then a final state."""

    bridge: Bridge
    weight: ex.Expr

    @property
    def source(self) -> str:
        return self.bridge.source


@dataclass(frozen=True)
class Moves:
    """A cell's automaton without ε-arcs and without what no path uses."""

    cell: Cell
    states: tuple[str, ...]
    initials: tuple[tuple[str, ex.Expr], ...]
    epsilons: tuple[CellArc, ...]
    bridges: tuple[Bridge, ...]
    moves: tuple[Move, ...]
    ends: tuple[End, ...]

    @cached_property
    def index(self) -> dict[str, int]:
        """The states by number."""
        return {q: i for i, q in enumerate(self.states)}

    @property
    def most_entries(self) -> int | None:
        """The most moves that enter on one path; None where a cycle allows any number."""
        follows: dict[str, set[str]] = {q: set() for q in self.states}
        for move in self.moves:
            if move.source != move.target or move.enters:
                follows[move.source].add(move.target)
        depth: dict[str, int | None] = {}

        def longest(q: str) -> int | None:
            if q not in depth:
                depth[q] = None  # met again while it is being computed: a cycle
                ahead = [longest(p) for p in follows[q]]
                known = [n for n in ahead if n is not None]
                depth[q] = None if len(known) < len(ahead) else max(known, default=-1) + 1
            return depth[q]

        found = [longest(q) for q, _ in self.initials]
        known = [n for n in found if n is not None]
        return max(known, default=0) if len(known) == len(found) else None


@lru_cache(maxsize=256)
def moves_of(cell: Cell) -> Moves:
    """The moves of a cell that some path from an initial to a final state can take."""
    cell.check()
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
        moves += [Move(bridge, a, _consumes(cell, a)) for a in over]
        if len(moves) + len(bridges) > MAX_MOVES:
            raise AutomatonError(
                f"cell {cell.name!r} has over {MAX_MOVES:,} ways to take ε-arcs and then an arc, too many to tell "
                "apart. Leave out some of its ε-arcs, or say .limit_epsilon(k)."
            )
    ends = [
        End(bridge, weight)
        for q, weight in finals
        for bridge in bridges
        if bridge.target == q and (bridge.silent or cell.epsilon_after_last)
    ]
    # A loop first, as recurrences have it: of equal weights the first wins.
    moves.sort(key=lambda m: (m.source != m.target, not m.bridge.silent))
    return _trim(
        Moves(cell, states, tuple(starts), tuple(a for a in arcs if a.epsilon), (), tuple(moves), tuple(ends))
    )


def _trim(whole: Moves) -> Moves:
    """Without states that no move reaches, as F's q3, which only an ε-arc enters."""
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
    """Where ⊕ selects, no cycle improves a path, so those without one suffice; where it adds, a cycle's star does."""
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
    """Up to `limit` ε-arcs in a row, or without a limit those that visit no state twice."""
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
    arcs = [arc for some in leaving.values() for arc in some]
    ahead = reachable([a.target for a in leaving[start]], arcs)
    if start not in ahead:
        yield Bridge(start, start)
    for q in leaving:
        if q in ahead:
            yield Bridge(start, q, star=True)
