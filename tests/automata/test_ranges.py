"""Ranges hold every value, and are tight where proofs need them to be."""

from __future__ import annotations

import math

import pytest
from cell_language_strategies import expressions
from hypothesis import given
from hypothesis import strategies as st

from rrnn.automata import (
    Expr,
    evaluate,
    exp,
    linear,
    log,
    log_sigmoid,
    one,
    parameter,
    range_of,
    relu,
    score,
    sigmoid,
    softplus,
    sqrt,
    step,
    tanh,
    zero,
)
from rrnn.automata import expressions as ex
from rrnn.automata.evaluator import Range
from rrnn.semirings import BOOLEAN, COUNTING, LOG, MAX_PLUS, MAX_TIMES, MIN_PLUS, REAL

points = st.one_of(st.floats(-5, 5), st.sampled_from([0.0, -0.0, 1.0, -1.0, 40.0, -40.0, 1e6, -1e6, 1e-300]))
x, p = linear("x"), parameter("p")


def subvalues(expr: Expr, values: dict[str, float]) -> list[float]:
    return [evaluate(node, values, REAL) for node in ex.walk(expr)]


@given(expressions(), st.dictionaries(st.sampled_from(["u", "f", "output", "one", "input", "r"]), points))
def test_every_value_lies_in_its_range(expr: Expr, values: dict[str, float]) -> None:
    values = dict.fromkeys(["u", "f", "output", "one", "input", "r", "states", "sigmoid"], 0.25) | values
    if all(map(math.isfinite, subvalues(expr, values))):
        r = range_of(expr, REAL)
        value = evaluate(expr, values, REAL)
        slack = 1e-12 * abs(value)  # mathematical libraries are monotone only up to the last bit
        assert r.low - slack <= value <= r.high + slack
        assert not r.integral or value == round(value)


@given(expressions(), expressions())
def test_ends_are_numbers_in_order(a: Expr, b: Expr) -> None:
    for expr in (a, a - b, a * b):
        r = range_of(expr, REAL)
        assert not math.isnan(r.low) and not math.isnan(r.high) and r.low <= r.high


inf = math.inf


@pytest.mark.parametrize(
    ("expr", "low", "high", "ends"),
    [
        (x, -inf, inf, "()"),
        (ex.as_expr(2), 2, 2, "[]"),
        (sigmoid(x), 0, 1, "()"),
        (1 - sigmoid(x), 0, 1, "()"),
        (tanh(x), -1, 1, "()"),
        (relu(x), 0, inf, "[)"),
        (relu(-exp(x)), 0, 0, "[]"),
        (relu(exp(x)), 0, inf, "()"),
        (exp(x), 0, inf, "()"),
        (exp(-relu(x)), 0, 1, "(]"),
        (softplus(x), 0, inf, "()"),
        (log_sigmoid(x), -inf, 0, "()"),
        (-relu(x), -inf, 0, "(]"),
        (step(x), 0, 1, "[]"),
        (step(exp(x)), 1, 1, "[]"),
        (step(-relu(x)), 0, 0, "[]"),
        (0.5 * step(x) + 0.5, 0.5, 1, "[]"),
        (x * x, 0, inf, "[)"),
        (sigmoid(x) * sigmoid(x), 0, 1, "()"),
        (tanh(x) * tanh(x), 0, 1, "[)"),
        (1 - tanh(x) * tanh(x), 0, 1, "(]"),
        (tanh(x) * tanh(p), -1, 1, "()"),
        (sigmoid(x) * (1 - sigmoid(x)), 0, 1, "()"),
        (step(x) * sigmoid(x), 0, 1, "[)"),
        (relu(x) * p, -inf, inf, "()"),
        (log(relu(x)), -inf, inf, "[)"),
        (sqrt(1 - sigmoid(x) * sigmoid(x)), 0, 1, "()"),
        (exp(ex.as_expr(1000)), inf, inf, "[]"),
        (exp(ex.as_expr(1000)) - exp(ex.as_expr(1000)), -inf, inf, "[]"),
    ],
)
def test_ranges(expr: Expr, low: float, high: float, ends: str) -> None:
    r = range_of(expr, REAL)
    assert (r.low, r.high) == (low, high)
    assert ("(" if r.low_open else "[") + (")" if r.high_open else "]") == ends


def test_whole_numbers() -> None:
    whole = [ex.as_expr(3), step(x), 2 * step(x) + 1, -step(x), relu(step(x) - 1), step(x) * step(x)]
    assert all(range_of(e, REAL).integral for e in whole)
    other = [ex.as_expr(0.5), x, sigmoid(x), step(x) * 0.5, step(x) + p, exp(step(x)), tanh(step(x))]
    assert not any(range_of(e, REAL).integral for e in other)


def test_constants_of_each_semiring() -> None:
    assert range_of(one, MAX_PLUS) == Range(0.0, 0.0, True)
    assert range_of(zero, MAX_PLUS) == range_of(zero, LOG) == Range(-inf, -inf, False)
    assert range_of(zero, MIN_PLUS) == Range(inf, inf, False)
    assert range_of(score, BOOLEAN) == Range(0, 1, True)
    assert range_of(score, COUNTING).integral and not range_of(score, MAX_TIMES).integral
    assert range_of(score, MAX_TIMES).low == 0 and range_of(score, REAL).low == -inf
