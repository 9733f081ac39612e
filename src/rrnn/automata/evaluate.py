"""What an expression computes: the definition, in Python floats, that every backend must agree with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rrnn.automata import expressions as ex
from rrnn.errors import CellError
from rrnn.semirings import Semiring, get_semiring


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _sigmoid(x: float) -> float:
    # Either branch takes exp of a negative number only, so that nothing overflows.
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x) if x > 0 else math.nan


def _relu(x: float) -> float:
    return x if x > 0 or x != x else 0.0  # NaN stays NaN


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "sigmoid": _sigmoid,
    "tanh": math.tanh,
    "relu": _relu,
    "log_sigmoid": _log_sigmoid,
    "exp": _exp,
    "log": _log,
    "softplus": _softplus,
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "step": lambda x: 1.0 if x > 0 else 0.0,
}
"""Function → its definition. All are non-decreasing but `neg`. Outside their domain log and sqrt give NaN."""


def evaluate(expr: ex.Expr, values: Mapping[str, float], semiring: str | Semiring) -> float:
    """The value of an expression, given that of each projection (bias included) and parameter by name.

    `values["input"]` is the value of `input()`, `values["score"]` that of the score.
    """
    return _evaluate(expr, values, get_semiring(semiring))


def _evaluate(expr: ex.Expr, values: Mapping[str, float], ring: Semiring) -> float:
    match expr:
        case ex.Number(value=value):
            return value
        case ex.One():
            return ring.one
        case ex.Zero():
            return ring.zero
        case ex.Linear(name=name) | ex.Parameter(name=name):
            return _value(name, values)
        case ex.Input():
            return _value("input", values)
        case ex.Score():
            return _value("score", values)
        case ex.Call(function=function, argument=argument):
            return FUNCTIONS[function](_evaluate(argument, values, ring))
        case ex.Binary(operator=operator, left=left, right=right):
            a, b = _evaluate(left, values, ring), _evaluate(right, values, ring)
            return a + b if operator == "+" else a - b if operator == "-" else a * b
    raise AssertionError(expr)


def _value(name: str, values: Mapping[str, float]) -> float:
    if name not in values:
        raise CellError(
            f"the expression needs a value for {name!r}; values are given for {', '.join(values) or 'nothing'}"
        )
    return float(values[name])
