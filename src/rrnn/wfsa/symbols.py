"""ε, and arcs: the two small things every file of this folder speaks of."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple


class Epsilon:
    """The type of `EPSILON`, of which there is one: copies and pickles of it are itself."""

    _instance: Epsilon | None = None

    def __new__(cls) -> Epsilon:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "ε"

    def __reduce__(self) -> Any:
        return Epsilon, ()


EPSILON: Final = Epsilon()
"""The label of an arc that consumes nothing. Never a member of an alphabet."""


class Arc(NamedTuple):
    """One transition, consuming `symbol` (or nothing: `EPSILON`) on its way from `source` to `target`."""

    source: Hashable
    symbol: Hashable
    target: Hashable
    weight: Any

    def __str__(self) -> str:
        return f"{self.source} --{self.symbol}/{self.weight}--> {self.target}"
