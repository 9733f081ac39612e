"""Enumerate the paths of a unit one at a time on its concrete WFSA, the slow twin of explanations."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torch import Tensor

from rrnn.interpret import Reading, TokenPath, k_best
from rrnn.nn import RationalRNN
from rrnn.semirings import Semiring
from rrnn.theory import to_wfsa
from rrnn.wfsa import EPSILON
from rrnn.wfsa.paths import paths

WORDS = "abcdefghij"
Arcs = tuple[tuple[Any, Any, Any], ...]
"""(source, symbol or "ε", target) of each arc of a path."""


def enumerated(layer: RationalRNN, unit: int, x: Tensor) -> dict[Arcs, float]:
    """Return the weight of every path of a unit on a sentence (T, I), by its arcs; parallel arcs count as one."""
    words = WORDS[: len(x)]
    machine = to_wfsa(layer, unit, dict(zip(words, x, strict=True)))

    def plain(state: Any) -> Any:  # (state, ε-arcs so far), (state, history) or both
        while isinstance(state, tuple):
            state = state[0]
        return state

    return _summed(
        machine.semiring,
        [
            (
                tuple(
                    (plain(a.source), "ε" if a.symbol is EPSILON else a.symbol, plain(a.target))
                    for a in p.arcs
                ),
                p.weight,
            )
            for p in paths(machine, words)
        ],
    )


def arcs_of(path: TokenPath) -> Arcs:
    return tuple((step.source, step.token, step.target) for step in path.steps)


def listed(reading: Reading, unit: int) -> list[TokenPath]:
    """Return all paths of a unit on the first sentence of a reading."""
    reading, k = reading.of_units([unit]), 64
    while True:
        (first, *_) = k_best(reading, k)
        if len(first.paths) < k:
            return list(first.paths)
        k *= 4


def as_enumerated(reading: Reading, unit: int) -> dict[Arcs, float]:
    ring = next(part.ring for part in reading.parts if unit in part.units)
    return _summed(ring, [(arcs_of(path), path.weight) for path in listed(reading, unit)])


def entries(path: TokenPath) -> list[int]:
    """Return the positions at which a path enters, following the definition word by word."""
    found, before = [], path.start
    for i, step in enumerate(path.steps):
        if step.position is not None:
            bridged = i > 0 and path.steps[i - 1].kind == "bridged"
            if step.kind == "consumed" or (bridged and before != step.target):
                found.append(step.position)
            before = step.target
    return found


def _summed(ring: Semiring, weights: list[tuple[Arcs, float]]) -> dict[Arcs, float]:
    total: dict[Arcs, float] = defaultdict(lambda: ring.zero)
    for arcs, weight in weights:
        total[arcs] = ring.plus(total[arcs], weight)
    return {arcs: weight for arcs, weight in total.items() if weight != ring.zero}
