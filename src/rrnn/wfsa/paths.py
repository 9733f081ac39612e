"""Single paths: list all that derive a string, or find the best ones.

`WFSA.score_by_paths` follows the paper's two definitions literally. Every faster way is tested against it, so it shares
no computation with them: it uses Python numbers, the semiring's scalar ⊕ and ⊗, and a walk over `machine.arcs`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rrnn import moved
from rrnn.errors import AutomatonError
from rrnn.wfsa.automaton import Automaton
from rrnn.wfsa.forward_backward import trellis
from rrnn.wfsa.graph import components, cycle_through, successors
from rrnn.wfsa.strongest import ranks_of, strongest
from rrnn.wfsa.symbols import EPSILON, Arc, is_batch


@dataclass(frozen=True)
class Path:
    """A sequence of adjacent arcs from `start`, with its score λ(start) ⊗ τ(π_1) ⊗ … ⊗ τ(π_n) ⊗ ρ(end)."""

    start: Any
    arcs: tuple[Arc, ...]
    positions: tuple[int, ...]
    """The number of symbols consumed before each arc: `arcs[j]` reads symbol `positions[j]`, or nothing."""
    weight: Any

    @property
    def states(self) -> tuple[Any, ...]:
        """The states along the path, including the first and the last."""
        return (self.start, *(arc.target for arc in self.arcs))

    @property
    def string(self) -> tuple[Any, ...]:
        """The string that the path derives."""
        return tuple(arc.symbol for arc in self.arcs if arc.symbol is not EPSILON)

    def __str__(self) -> str:
        steps = "".join(f" —{arc.symbol}→ {arc.target}" for arc in self.arcs)
        return f"{self.start}{steps}  ({self.weight})"


class Paths(Automaton):
    """Methods of `WFSA` about single paths."""

    def score_by_paths(self, string: Any, max_epsilon: int | None = None) -> Any:
        """Return ⟦x⟧ straight from its definition (Definition 4 of the paper), path by path, as a Python number.

        It is slow: the oracle of the tests. `max_epsilon` caps the number of consecutive ε-arcs; it is needed where
        ε-arcs form a cycle.
        """
        return self.semiring.sum(path.weight for path in paths(self, string, max_epsilon))

    def best_path(self, string: Any) -> Path | None:
        """Return the path of greatest weight that derives the string, or None if there is none. See `k_best`."""
        return next(iter(self.k_best(string, 1)), None)

    def k_best(self, string: Any, k: int) -> list[Path]:
        """Return the k best distinct paths that derive the string, best first; fewer if there are fewer.

        Best is what ⊕ picks (least cost in min-plus); over real, log and counting, the greatest weight; over signed
        reals, the greatest magnitude, whatever the sign. Paths of weight 0̄ are left out, and over expectation those
        of probability 0. Of tied paths the first wins: the one whose final state, then (from the end) whose arcs'
        sources come first in `states`.
        """
        check_k(k)
        ids, ring = self.encode(string), self.semiring
        ranked = self.cached(
            "ranked", lambda: self.detach().with_semiring("max-plus", lambda w: ranks_of(ring, w))
        )
        steps = trellis(ranked, ids)
        traces = strongest(steps, k)
        # At each position, every path has one arc that consumes the symbol and any number of ε-arcs before it.
        there = traces.rank > -math.inf
        consuming = [
            arcs[edge].tolist() for arcs, edge in zip(steps.arcs, traces.edges[:, there], strict=True)
        ]
        silent = [] if traces.silent is None else [lane for (lane,) in traces.silent]
        epsilons = steps.silent_arcs.tolist()

        def arcs_of(i: int) -> list[int]:
            if not silent:
                return [arcs[i] for arcs in consuming]
            parts = [[epsilons[edge] for edge in edges[i]] for edges in silent]
            for part, arcs in zip(parts, consuming, strict=False):
                part.append(arcs[i])
            return [arc for part in parts for arc in part]

        found = [(start, arcs_of(i)) for i, start in enumerate(traces.start[there].tolist())]
        # Sorting is stable: tied paths keep their order.
        return sorted(paths_of(self, found), key=lambda path: ring.strength(path.weight), reverse=True)


def check_k(k: Any) -> None:
    """Raise unless k is a positive integer."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise AutomatonError(f"the number of paths k must be a whole number of at least 1; got k = {k!r}")


def paths(machine: Automaton, string: Any, max_epsilon: int | None = None) -> Iterator[Path]:
    """Yield every path that derives the string and has no arc, start or end of weight 0̄.

    With `max_epsilon`, yield the paths that take at most that many ε-arcs in a row.
    """
    if is_batch(string):
        raise AutomatonError(
            "paths are listed for one string, and a list is a batch of strings; pass the string as a str or a tuple"
        )
    symbols = tuple(string.tolist() if hasattr(string, "tolist") else string)
    machine.encode(symbols)  # raises if a symbol is unknown
    ring = machine.semiring
    leaving: dict[Any, list[Arc]] = {}
    for arc in machine.arcs:
        if arc.weight != ring.zero:
            leaving.setdefault(arc.source, []).append(arc)
    if max_epsilon is None and (cycle := epsilon_cycle(machine)) is not None:
        raise AutomatonError(
            f"ε-arcs form the cycle {' →ε '.join(map(str, cycle))}, so infinitely many paths derive one string and "
            "cannot be listed. Pass max_epsilon= to cap the number of consecutive ε-arcs, or use score, which takes "
            "the star."
        )
    final = machine.final

    # The stack is explicit, since a string may be longer than Python's recursion limit. Its entries are partial paths
    # as linked lists (arc, position, before), so that they share their beginnings.
    for start, weight in machine.initial.items():
        stack: list[tuple[Any, int, int, Any, Any]] = [(start, 0, 0, weight, None)]
        while stack:
            state, position, epsilons, score, trail = stack.pop()
            if position == len(symbols) and state in final:
                yield _path(start, trail, ring.times(score, final[state]))
            for arc in reversed(leaving.get(state, [])):
                if arc.symbol is EPSILON:
                    if max_epsilon is not None and epsilons >= max_epsilon:
                        continue
                    after, run = position, epsilons + 1
                elif position < len(symbols) and arc.symbol == symbols[position]:
                    after, run = position + 1, 0
                else:
                    continue
                stack.append((arc.target, after, run, ring.times(score, arc.weight), (arc, position, trail)))


def _path(start: Any, trail: Any, weight: Any) -> Path:
    arcs: list[Arc] = []
    positions: list[int] = []
    while trail is not None:
        arc, position, trail = trail
        arcs.append(arc)
        positions.append(position)
    return Path(start, tuple(reversed(arcs)), tuple(reversed(positions)), weight)


def paths_of(machine: Automaton, found: Iterable[tuple[int, list[int]]]) -> Iterator[Path]:
    """Yield the paths that are given as the numbers of their first state and arcs, with their scores."""
    ring, initial, final = machine.semiring, machine.initial, machine.final
    symbols = (*machine.alphabet, EPSILON)
    columns = [t.detach().numpy() for t in (machine.arc_source, machine.arc_symbol, machine.arc_target)]
    seen: dict[int, Arc] = {}  # the arcs that are taken, by number: a machine may have very many others

    def arc_of(number: int) -> Arc:
        if number not in seen:
            q, a, p = (int(column[number]) for column in columns)
            weight = ring.numbers(machine.arc_weight[number])
            seen[number] = Arc(machine.states[q], symbols[a], machine.states[p], weight)
        return seen[number]

    for first, numbers in found:
        start = end = machine.states[first]
        taken = tuple(arc_of(number) for number in numbers)
        weight, position = initial[start], 0
        positions: list[int] = []
        for arc in taken:
            positions.append(position)
            position += arc.symbol is not EPSILON
            weight, end = ring.times(weight, arc.weight), arc.target
        yield Path(start, taken, tuple(positions), ring.times(weight, final[end]))


def epsilon_cycle(machine: Automaton) -> list[Any] | None:
    """Return the states of a cycle of ε-arcs, q → … → q, or None if there is none."""
    arcs = (
        ((machine.arc_symbol < 0) & ~machine.semiring.is_zero(machine.arc_weight.detach()))
        .nonzero()
        .flatten()
    )
    edges = zip(machine.arc_source[arcs].tolist(), machine.arc_target[arcs].tolist(), strict=True)
    follows = successors(machine.num_states, edges)
    for part in components(follows):
        if len(part) > 1 or part[0] in follows[part[0]]:
            return [machine.states[q] for q in cycle_through(follows, part[0], part)]
    return None


__getattr__ = moved.attributes(__name__)
