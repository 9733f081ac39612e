"""A small sample of a large product in which every pair of values of every two factors still meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

Row = dict[str, Any]
Pair = tuple[tuple[str, int], tuple[str, int]]


def pairwise(factors: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Rows {factor: value}, greedily: each starts from a pair not yet met, and every other factor takes the value that
    meets the most new pairs. The same rows every time."""
    names = list(factors)
    left = {
        ((a, i), (b, j)): None  # a dict: in order, unlike a set
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
                # equal values take turns, so that no value is worn out
                chosen[name] = max(
                    range(size), key=[(g, -((k - turn) % size)) for k, g in enumerate(gains)].__getitem__
                )
        for a, b in combinations(names, 2):
            left.pop(((a, chosen[a]), (b, chosen[b])), None)
        rows.append({name: factors[name][chosen[name]] for name in names})
    return rows
