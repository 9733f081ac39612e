"""Proofs that an ε-closure exists, from the ranges of the weights on its cycles.

A proof takes the semiring and, for each state of a strongly connected component, its arcs inside it as (target, range
of the weight), the weight being an element of ranges. True means proved; False means not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rrnn.arithmetic import RANGES, Range

CycleArcs = dict[str, list[tuple[str, Any]]]
Converges = Callable[[Any, CycleArcs], bool]


def always(ring: Any, rows: CycleArcs) -> bool:
    """Prove it for a semiring in which one more round changes nothing."""
    return True


def never(ring: Any, rows: CycleArcs) -> bool:
    """Prove nothing: one more round always counts."""
    return False


def by_norm(norm: Callable[[Any, Any], Range]) -> Converges:
    """Return the proof that a matrix of norms contracts; `norm(s, weight)` is a real number, at most multiplicative."""

    def converges(ring: Any, rows: CycleArcs) -> bool:
        bounds: dict[str, list[_Bound]] = {q: [] for q in rows}
        for q, row in rows.items():
            for target, weight in row:
                size = norm(RANGES, weight)
                if math.isinf(size.high):
                    return False
                bounds[q].append((target, size.high, size.high_open))
        return _contracts(bounds)

    return converges


def by_best(ring: Any, rows: CycleArcs) -> bool:
    """Prove it where ⊕ selects: if no cycle improves a path, the best ε-path from a state has no cycle in it, and the
    fix-point of x = 1̄ ⊕ A ⊗ x is there after as many rounds as there are states."""
    worst = {
        q: [(target, weight.high if ring.maximum else weight.low) for target, weight in row]
        for q, row in rows.items()
    }
    if any(math.isinf(size) and size != ring.zero for row in worst.values() for _, size in row):
        return False
    x = dict.fromkeys(rows, ring.one)
    for _ in rows:
        new = {q: ring.sum([ring.one, *(ring.times(w, x[p]) for p, w in row)]) for q, row in worst.items()}
        if new == x:
            return True
        x = new
    return False


_Bound = tuple[str, float, bool]  # (target, largest norm, does no value attain it?)


def _contracts(rows: dict[str, list[_Bound]]) -> bool:
    """Return whether the spectral radius of this non-negative matrix is below one.

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
