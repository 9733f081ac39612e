"""What values an expression can take, by interval arithmetic: the proof that a weight lies in its semiring's set."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from rrnn.automata import expressions as ex
from rrnn.automata.evaluate import FUNCTIONS
from rrnn.semirings import Semiring


class Range(NamedTuple):
    """All values lie between `low` and `high`. An open end is one that no value attains: σ stays below 1."""

    low: float
    high: float
    integral: bool = False  # only whole numbers
    low_open: bool = False
    high_open: bool = False


_ALL = Range(-math.inf, math.inf, low_open=True, high_open=True)


@lru_cache(maxsize=4096)  # a weight's subexpressions are asked for again and again
def range_of(expr: ex.Expr, semiring: Semiring) -> Range:
    """An interval that contains every value of the expression that no overflow or NaN came into.

    Ends are computed in the same floating point as values, whose rounding is monotone; an end that only
    rounding attains (σ(40) is 1.0 in a computer) counts as open.
    """
    match expr:
        case ex.Number(value=value):
            return Range(value, value, value.is_integer())
        case ex.One():
            return Range(semiring.one, semiring.one, True)
        case ex.Zero():
            return Range(semiring.zero, semiring.zero, math.isfinite(semiring.zero))
        case ex.Score() if semiring.laws.non_negative:
            boolean = semiring.name == "boolean"
            return Range(0.0, 1.0 if boolean else math.inf, semiring.name != "max-times", False, not boolean)
        case ex.Call(function=function, argument=argument):
            return _call(function, range_of(argument, semiring))
        case ex.Binary(operator="*", left=left, right=right) if left == right:
            return _square(range_of(left, semiring))
        case ex.Binary(operator=operator, left=left, right=right):
            a, b = range_of(left, semiring), range_of(right, semiring)
            return _product(a, b) if operator == "*" else _sum(a, b if operator == "+" else _negative(b))
        case _:
            return _ALL


def _negative(a: Range) -> Range:
    return Range(-a.high, -a.low, a.integral, a.high_open, a.low_open)


def _sum(a: Range, b: Range) -> Range:
    low, high = a.low + b.low, a.high + b.high
    return Range(
        -math.inf if math.isnan(low) else low,
        math.inf if math.isnan(high) else high,
        a.integral and b.integral,
        a.low_open or b.low_open,
        a.high_open or b.high_open,
    )


def _product(a: Range, b: Range) -> Range:
    """The extremes of a product are at corners; one is open if no corner that attains it is closed."""
    corners: dict[float, bool] = {}
    for x, x_open in ((a.low, a.low_open), (a.high, a.high_open)):
        for y, y_open in ((b.low, b.low_open), (b.high, b.high_open)):
            annihilates = (x == 0 and not x_open) or (y == 0 and not y_open)
            value = 0.0 if x == 0 or y == 0 else x * y  # an unbounded end is no number: 0 times it is 0
            corners[value] = corners.get(value, True) and not annihilates and (x_open or y_open)
    low, high = min(corners), max(corners)
    return Range(low, high, a.integral and b.integral, corners[low], corners[high])


def _square(a: Range) -> Range:
    low, high, _, low_open, high_open = (
        a if a.low + a.high >= 0 else _negative(a)
    )  # the larger side to the right
    if low < 0:
        high_open = high_open and (low_open or -low < high)
        low, low_open = 0.0, False
    return Range(low * low, high * high, a.integral, low_open, high_open)


def _call(function: str, a: Range) -> Range:
    if function == "neg":
        return _negative(a)
    if function == "step":
        never = a.low > 0 or (a.low == 0 and a.low_open)  # never 0
        return Range(1.0 if never else 0.0, 1.0 if a.high > 0 else 0.0, True)
    if function == "relu":
        # A part of the range below 0 is folded onto 0, which is then attained.
        low_open, high_open = a.low >= 0 and a.low_open, (a.high > 0 or a.low >= 0) and a.high_open
        return Range(max(a.low, 0.0), max(a.high, 0.0), a.integral, low_open, high_open)
    low, high = a.low, a.high
    if function in ("log", "sqrt"):  # below 0 there is no value at all; see `rules.domain`
        low, high = max(low, 0.0), max(high, 0.0)
    f = FUNCTIONS[function]
    return Range(f(low), f(high), False, a.low_open and low == a.low, a.high_open and high == a.high)
