"""Choose a small sample of a large product in which every pair of values of two factors still occurs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, int], tuple[str, int]]


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Return rows {factor: value} that together contain every pair of values of two factors.

    The choice is greedy and the same every time: each row starts from a pair that has not occurred yet, and every other
    factor takes the value that adds the most new pairs.
    """
    names = list(factors)
    left = {
        ((a, i), (b, j)): None  # a dict, because a set has no order
        for a, b in combinations(names, 2)
        for i in range(len(factors[a]))
        for j in range(len(factors[b]))
    }

    def pair(a: str, i: int, b: str, j: int) -> Pair:
        return ((a, i), (b, j)) if names.index(a) < names.index(b) else ((b, j), (a, i))

    rows: list[Row] = []
    while left:
        (a, i), (b, j) = next(iter(left))
        chosen = {a: i, b: j}
        for name in names:
            if name not in chosen:
                size, turn = len(factors[name]), len(rows)
                gains = [sum(pair(name, k, *other) in left for other in chosen.items()) for k in range(size)]
                # values that add equally many take turns
                chosen[name] = max(
                    range(size), key=[(g, -((k - turn) % size)) for k, g in enumerate(gains)].__getitem__
                )
        for a, b in combinations(names, 2):
            left.pop(((a, chosen[a]), (b, chosen[b])), None)
        rows.append({name: factors[name][chosen[name]] for name in names})
    return rows
