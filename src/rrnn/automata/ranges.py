"""What values an expression can take: the evaluator on intervals, which proves that a weight lies in its semiring."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rrnn.arithmetic import RANGES, Range
from rrnn.arithmetic.ranges import ALL
from rrnn.automata import expressions as ex
from rrnn.automata.evaluate import Evaluator
from rrnn.semirings import Semiring


def _evaluator(semiring: Semiring) -> Evaluator:
    def leaf(node: ex.Expr) -> Any:
        return semiring.element(semiring.values) if isinstance(node, ex.Score) else ALL

    return Evaluator(RANGES, semiring, leaf, Range.of)


@lru_cache(maxsize=4096)  # a weight's subexpressions are asked for again and again
def range_of(expr: ex.Expr, semiring: Semiring) -> Range:
    """Return an interval that contains every value of a real expression that no overflow or NaN came into."""
    return _evaluator(semiring)(expr)


@lru_cache(maxsize=4096)
def weight_range(expr: ex.Expr, semiring: Semiring) -> Any:
    """Return the range of a whole weight: of each component, if elements have several."""
    return _evaluator(semiring).weight(expr)
