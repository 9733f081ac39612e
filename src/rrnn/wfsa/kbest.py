"""The k best paths of a string, exactly and without listing them all.

A best-first search from the end of the string to its beginning. How good the best way from the beginning to any
state at any position is, a max-plus Forward pass has already told, so the search never turns into a path that is
not among the best: it costs that pass and, for every path, little more than its length.

Weights are compared through log₂ of their magnitude (exact for powers of two), or through themselves where the
semiring is one of logarithms or costs.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from rrnn.errors import AutomatonError
from rrnn.semirings import Semiring, get_semiring
from rrnn.wfsa.paths import Path, paths_of
from rrnn.wfsa.strings import encode
from rrnn.wfsa.tables import forward_table

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA

_START = -1  # the option that begins the path here instead of coming over an arc


def k_best(machine: WFSA, string: Any, k: int) -> list[Path]:
    """The k best distinct paths, best first, none of weight 0̄. See `WFSA.k_best` for what best means."""
    if not isinstance(k, int) or k < 1:
        raise AutomatonError(f"k_best lists at least one path, a whole number of them; got k = {k!r}")
    ids = encode(machine, string)
    ranked = machine.cached("ranked", lambda: _Ranked(machine))
    found = paths_of(machine, _search(ranked, ids, k))
    return sorted(
        found, key=lambda path: _key(machine.semiring, path.weight), reverse=True
    )  # stable: ties stay


def _key(ring: Semiring, weight: float) -> float:
    """Greater is better."""
    return -weight if ring.name == "min-plus" else abs(weight) if ring.name == "real" else weight


class _Options(NamedTuple):
    """The ways into a state at a position, best first: arcs (or `_START`), where from, weights, whole values."""

    arcs: list[int]
    sources: list[int]
    weights: list[float]
    values: list[float]


class _Ranked:
    """The machine with weights that rank, and its arcs by symbol and target, sources in order."""

    def __init__(self, machine: WFSA) -> None:
        ring = machine.semiring
        ranks = {"real": lambda w: w.abs().log2(), "max-times": torch.log2, "min-plus": torch.neg}
        ranks |= {"counting": lambda w: w.double().log2(), "boolean": torch.zeros_like}
        self.machine = machine.detach().with_semiring(
            get_semiring("max-plus"), ranks.get(ring.name, lambda w: w)
        )
        n = machine.num_states
        code = (machine.arc_symbol + 1) * n + machine.arc_target
        order = (code * n + machine.arc_source).argsort(stable=True)
        self.order = order.numpy()
        self.source = machine.arc_source[order].numpy()
        self.weight = self.machine.arc_weight[order].numpy()
        self.begin = torch.searchsorted(
            code[order], torch.arange((len(machine.alphabet) + 1) * n + 1)
        ).numpy()
        self.initial = self.machine.initial_weight.numpy()
        self.final = self.machine.final_weight.numpy()

    def into(self, symbol: int, target: int) -> slice:
        at = (symbol + 1) * len(self.initial) + target
        return slice(int(self.begin[at]), int(self.begin[at + 1]))


def _sorted(arcs: np.ndarray, sources: np.ndarray, weights: np.ndarray, values: np.ndarray) -> _Options:
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > -np.inf]
    return _Options(*(column[order].tolist() for column in (arcs, sources, weights, values)))


def _options(ranked: _Ranked, table: np.ndarray, ids: list[int], position: int, state: int) -> _Options:
    """Ways to be in `state` when `position` symbols are read: to start there, over a consuming arc, over ε."""
    starts = int(position == 0)
    over, silent = ranked.into(ids[position - 1] if position else -1, state), ranked.into(-1, state)
    parts = [slice(0, 0) if starts else over, silent]
    rows = [table[position - 1], table[position]]
    weights = np.concatenate(
        [ranked.initial[state : state + starts], *(ranked.weight[part] for part in parts)]
    )
    reached = [np.zeros(starts), *(row[ranked.source[part]] for row, part in zip(rows, parts, strict=True))]
    return _sorted(
        np.concatenate([np.full(starts, _START), *(ranked.order[part] for part in parts)]),
        np.concatenate([np.full(starts, state), *(ranked.source[part] for part in parts)]),
        weights,
        weights + np.concatenate(reached),
    )


def _search(ranked: _Ranked, ids: list[int], k: int) -> list[tuple[int, list[int]]]:
    """(first state, arcs) of the k best paths."""
    table: np.ndarray = forward_table(ranked.machine, ids, closed=True)[0].numpy()
    known: dict[tuple[int, int], _Options] = {}
    consumes: list[int] = (ranked.machine.arc_symbol >= 0).tolist()
    visits: dict[tuple[int, int], int] = {}
    states = np.arange(len(ranked.final))
    last = _sorted(np.full(len(states), _START), states, ranked.final, ranked.final + table[-1])
    # An entry is a way to go on from a suffix: (−value, −age, options, which, value of the suffix, position
    # before the option, trail of arcs after it). Of equal values the youngest comes first: the search goes on with
    # the first choice to the very beginning before it looks at a second.
    heap: list[tuple[float, int, _Options, int, float, int, Any]] = []
    age = 0

    def push(options: _Options, which: int, suffix: float, position: int, trail: Any) -> None:
        nonlocal age
        if which < len(options.arcs):
            age += 1
            entry = (-(options.values[which] + suffix), -age, options, which, suffix, position, trail)
            heapq.heappush(heap, entry)

    push(last, 0, 0.0, len(ids), None)
    found: list[tuple[int, list[int]]] = []
    while heap and len(found) < k:
        _, _, options, which, suffix, position, trail = heapq.heappop(heap)
        push(options, which + 1, suffix, position, trail)
        arc, source = options.arcs[which], options.sources[which]
        if arc == _START and options is not last:
            found.append((source, _unwind(trail)))
            continue
        if arc != _START:
            position -= consumes[arc]
            trail = (arc, trail)
        node = (position, source)
        visits[node] = visits.get(node, 0) + 1
        if visits[node] > k:  # k better suffixes have left from here: this one cannot be among the k best
            continue
        if node not in known:
            known[node] = _options(ranked, table, ids, position, source)
        push(known[node], 0, suffix + options.weights[which], position, trail)
    return found


def _unwind(trail: Any) -> list[int]:
    arcs: list[int] = []
    while trail is not None:
        arc, trail = trail
        arcs.append(arc)
    return arcs
