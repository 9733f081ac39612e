"""What values an expression can take, by interval arithmetic: the proof that a weight lies in its semiring's set."""

from __future__ import annotations

import math
from typing import NamedTuple

from rrnn.automata import expressions as ex
from rrnn.semirings import Semiring


class Range(NamedTuple):
    low: float
    high: float
    integral: bool = False  # only whole numbers


_ALL = Range(-math.inf, math.inf)


def _mul(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(max(x, -745.0)) / (1.0 + math.exp(max(x, -745.0)))


def _exp(x: float) -> float:
    return math.inf if x > 709 else math.exp(x)


_MONOTONE = {
    "sigmoid": lambda x: 0.0 if x == -math.inf else _sigmoid(x),
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "log_sigmoid": lambda x: -math.inf if x == -math.inf else (-math.log1p(_exp(-x)) if x > -30 else x),
    "exp": _exp,
    "log": lambda x: -math.inf if x <= 0 else math.log(x),
    "softplus": lambda x: x if x > 30 else math.log1p(_exp(x)),
    "sqrt": lambda x: math.sqrt(max(x, 0.0)),
    "step": lambda x: float(x > 0),
}


def range_of(expr: ex.Expr, semiring: Semiring) -> Range:
    """A closed interval that contains every value of the expression (bounds may be ±∞)."""
    match expr:
        case ex.Number(value=value):
            return Range(value, value, value == round(value))
        case ex.One():
            return Range(semiring.one, semiring.one, True)
        case ex.Zero():
            return Range(semiring.zero, semiring.zero, math.isfinite(semiring.zero))
        case ex.Call(function="neg", argument=argument):
            low, high, integral = range_of(argument, semiring)
            return Range(-high, -low, integral)
        case ex.Call(function=function, argument=argument):
            low, high, integral = range_of(argument, semiring)
            f = _MONOTONE[function]
            return Range(f(low), f(high), function == "step" or (function == "relu" and integral))
        case ex.Binary(operator=operator, left=left, right=right):
            a, b = range_of(left, semiring), range_of(right, semiring)
            whole = a.integral and b.integral
            if operator == "+":
                return Range(a.low + b.low, a.high + b.high, whole)
            if operator == "-":
                return Range(a.low - b.high, a.high - b.low, whole)
            if left == right:  # a square
                ends = [_mul(a.low, a.low), _mul(a.high, a.high)]
                return Range(0.0 if a.low <= 0 <= a.high else min(ends), max(ends), whole)
            corners = [_mul(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
            return Range(min(corners), max(corners), whole)
        case _:
            return _ALL
