"""Lower bounds on the number of states from finite parts of a Hankel matrix, whose entries are the scores of p·s.

A WFSA of d states over a commutative semiring factors the matrix of any prefixes p and suffixes s into (prefixes × d) ⊗
(d × suffixes). So over a field d is at least the rank of every such matrix, and a minor whose determinant is not zero
proves it. Over a selective semiring (max-plus) d is at least the size of a minor whose best permutation is unique:
with fewer states, two of its entries would use the same state, and exchanging their columns would be as good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from rrnn.theory.intervals import Intervals, excludes_zero, middle

String = tuple[Any, ...]
CANDIDATES = 40
"""The greatest number of prefixes, and of suffixes, from which a minor is chosen, unless its basis needs more."""
_GAP = 1e-9  # the least difference of weights that is worth certifying
_STARTS = 16  # entries from which a unique permutation is grown
_UNIT = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Minor:
    """Prefixes and suffixes whose matrix proves a lower bound: their number."""

    prefixes: tuple[String, ...] = ()
    suffixes: tuple[String, ...] = ()
    log10: float | None = None
    """log₁₀ |determinant| over a field; the gap to the second-best permutation, as it is, over a selective semiring."""

    @property
    def size(self) -> int:
        return len(self.prefixes)


def shortlex(alphabet: Sequence[Any], count: int) -> list[String]:
    """Return the first strings over an alphabet, the empty one first: whole lengths only, as many as fit."""
    strings: list[String] = [()]
    length = 1
    while len(strings) + len(alphabet) ** length <= max(count, 1 + len(alphabet)):
        strings += product(alphabet, repeat=length)
        length += 1
    return strings


def _grown(basis: Iterable[String], alphabet: Sequence[Any], *, left: bool) -> list[String]:
    """Return strings and their extensions by one symbol, on the left or on the right, without repetitions."""
    basis = list(basis)
    longer = [((a, *x) if left else (*x, a)) for x in basis for a in alphabet]
    return list(dict.fromkeys([*basis, *longer]))


def field_minor(
    value: Callable[[String], Any], alphabet: Sequence[Any], limit: int, least: int = CANDIDATES
) -> Minor:
    """Return a minor of at most `limit` rows whose determinant is proved not to be zero.

    `value` gives the interval of a string's score. A basis of prefixes and suffixes is extended by one symbol at a
    time; where this finds nothing more, the `least` shortest strings are tried as well.
    """
    found, short = Minor(), False
    while found.size < limit:
        rows = _grown(found.prefixes or [()], alphabet, left=False)
        columns = _grown(found.suffixes or [()], alphabet, left=True)
        if short:
            some = shortlex(alphabet, least)
            rows, columns = (list(dict.fromkeys([*x, *some])) for x in (rows, columns))
        larger = _eliminated(value, rows, columns, limit)
        if larger.size > found.size:
            found, short = larger, False
        elif short:
            break
        else:
            short = True
    return found


def _eliminated(
    value: Callable[[String], Any], rows: list[String], columns: list[String], limit: int
) -> Minor:
    """Return the minor that Gaussian elimination on intervals finds, with the greatest pivot first.

    All entries are enclosed, so the product of pivots that exclude 0 encloses a determinant that is not 0.
    """
    matrix = [[value((*p, *s)) for s in columns] for p in rows]
    sizes = [[_size(x) for x in row] for row in matrix]
    down, across = list(range(len(rows))), list(range(len(columns)))
    chosen: list[tuple[int, int]] = []
    log10 = 0.0
    while down and across and len(chosen) < limit:
        i, j = max(((i, j) for i in down for j in across), key=lambda place: sizes[place[0]][place[1]])
        if sizes[i][j] == -math.inf:
            break
        chosen.append((i, j))
        log10 += _log10(matrix[i][j])
        down.remove(i)
        across.remove(j)
        for k in down:
            if matrix[k][j].a == 0 == matrix[k][j].b:
                continue
            factor = matrix[k][j] / matrix[i][j]
            for m in across:
                matrix[k][m] = matrix[k][m] - factor * matrix[i][m]
                sizes[k][m] = _size(matrix[k][m])
    return Minor(
        tuple(rows[i] for i, _ in chosen), tuple(columns[j] for _, j in chosen), log10 if chosen else None
    )


def _size(x: Any) -> float:
    """Return about log₂ |x| for an interval that excludes 0, and −∞ for others."""
    if not excludes_zero(x):
        return -math.inf
    _, _, exponent, bits = (x.a if x.a > 0 else x.b)._mpi_[0]
    return exponent + bits


def _log10(x: Any) -> float:
    size = abs(middle(x))
    return float(size.context.log10(size))


def selective_minor(
    value: Callable[[String], Any],
    alphabet: Sequence[Any],
    limit: int,
    exact: Intervals,
    least: int = CANDIDATES,
) -> Minor:
    """Return a minor whose best permutation is proved to be unique; weights add up, and the greatest is the best."""
    some = shortlex(alphabet, least)
    intervals = [[value((*p, *s)) for s in some] for p in some]
    weights = np.array([[float(middle(x)) for x in row] for row in intervals])
    best: list[tuple[int, int]] = []
    starts = [(int(i), int(j)) for i, j in np.argwhere(np.isfinite(weights))[:_STARTS]]
    for start in starts:
        grown = _unique(weights, start, limit)
        best = max(best, grown, key=len)
        if len(best) >= limit:
            break
    while best:
        gap = _proved_gap([[intervals[i][j] for _, j in best] for i, _ in best], exact)
        if gap is not None:
            return Minor(tuple(some[i] for i, _ in best), tuple(some[j] for _, j in best), gap)
        best.pop()
    return Minor()


def _unique(weights: Any, start: tuple[int, int], limit: int) -> list[tuple[int, int]]:
    """Grow a matrix, pair by pair, in which the diagonal is the only best permutation.

    It is the only one if every cycle k → l of the numbers w(k, l) − w(k, k) is negative. `paths` are the greatest
    weights of paths, which say what the cycles through a further pair weigh.
    """
    pairs, paths = [start], np.zeros((1, 1))
    while len(pairs) < limit:
        rows, columns = [i for i, _ in pairs], [j for _, j in pairs]
        own = np.array([weights[i, j] for i, j in pairs])
        into = _max_plus(weights[:, columns], paths)  # from a new row into the pairs, and on
        back = weights[rows] - own[:, None]
        with np.errstate(invalid="ignore"):
            cycle = _max_plus(into, back) - weights
        cycle = np.where(np.isfinite(weights), cycle, np.inf)
        cycle[rows] = cycle[:, columns] = np.inf
        i, j = divmod(int(cycle.argmin()), cycle.shape[1])
        if not cycle[i, j] < -_GAP:
            break
        pairs.append((i, j))
        n = len(pairs)
        edges = np.full((n, n), -np.inf)
        edges[:-1, :-1] = paths
        edges[-1, :-1] = weights[i, columns] - weights[i, j]
        edges[:-1, -1] = weights[rows, j] - own
        edges[-1, -1] = 0.0
        for k in range(n):
            edges = np.maximum(edges, edges[:, k : k + 1] + edges[k : k + 1])
        paths = edges
    return pairs


def _max_plus(a: Any, b: Any) -> Any:
    return (a[:, :, None] + b[None]).max(1)


def _proved_gap(matrix: list[list[Any]], exact: Intervals) -> float | None:
    """Return a lower bound of what the diagonal is better than any other permutation by, or None."""
    n, minus = len(matrix), exact.number(float("-inf"))
    # The greatest weights of walks, from the upper ends of all numbers
    walks = [
        [exact.number((matrix[k][m] - matrix[k][k]).b) if m != k else minus for m in range(n)]
        for k in range(n)
    ]
    for via in range(n):
        walks = [
            [exact.max(walks[k][m], (walks[k][via] + walks[via][m]).b) for m in range(n)] for k in range(n)
        ]
    worst = max((walks[k][k].b for k in range(n)), default=minus)
    return None if n and not worst < 0 else float("inf") if not n or worst == minus else -float(worst.mid)


def singular_values(
    value: Callable[[String], float], alphabet: Sequence[Any], states: int
) -> tuple[Any, int]:
    """Return the singular values of a matrix of floats in which `states` states could show, and √(rows·columns)."""
    some = shortlex(alphabet, max(CANDIDATES, 2 * states))
    matrix = np.array([[value((*p, *s)) for s in some] for p in some])
    return np.linalg.svd(matrix, compute_uv=False), len(some)


def count_above(singular: Any, size: int, error: float) -> int:
    """Return how many singular values no matrix within `error` of each entry can lose (Weyl), rounding included."""
    rounding = 8 * size * _UNIT * (float(singular[0]) if len(singular) else 0.0)
    return int((singular > error * size + rounding).sum())
