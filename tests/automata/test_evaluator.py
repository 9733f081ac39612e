"""What expressions compute, against torch, and at the ends of the number line."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrnn.arithmetic import FLOATS
from rrnn.automata import (
    Evaluator,
    complex,
    construct,
    evaluate,
    input,
    linear,
    one,
    pair,
    parameter,
    polar,
    score,
    sigmoid,
    zero,
)
from rrnn.automata import expressions as ex
from rrnn.errors import CellError
from rrnn.semirings import SEMIRINGS

TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "log_sigmoid": torch.nn.functional.logsigmoid,
    "exp": torch.exp,
    "log": torch.log,
    "softplus": lambda x: torch.logaddexp(x, x.new_zeros(())),  # torch's own softplus is linear from 20 on
    "sqrt": torch.sqrt,
    "step": lambda x: (x > 0).double(),
    "sin": torch.sin,
    "cos": torch.cos,
    "silu": torch.nn.functional.silu,
    "abs": torch.abs,
    "sign": lambda x: (x > 0).double() - (x < 0).double(),
}
POINTS = [
    -math.inf,
    -1e300,
    -800.0,
    -40.0,
    -1.0,
    -1e-9,
    0.0,
    1e-9,
    0.5,
    1.0,
    17.0,
    40.0,
    800.0,
    1e300,
    math.inf,
]


def test_every_function_is_there() -> None:
    assert set(TORCH) == set(ex.FUNCTIONS)


@pytest.mark.parametrize("name", sorted(TORCH))
@given(x=st.one_of(st.sampled_from(POINTS), st.floats(-50, 50)))
def test_functions(name: str, x: float) -> None:
    value = evaluate(ex.FUNCTIONS[name](parameter("x")), {"x": x}, "real")
    expected = TORCH[name](torch.tensor(x, dtype=torch.float64)).item()
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-300, nan_ok=True)


def test_arithmetic_and_leaves() -> None:
    a, b, r = linear("a"), linear("b", bias=True), parameter("r")
    values = {"a": 2.0, "b": 3.0, "r": 5.0, "input": 7.0, "score": 11.0}
    assert evaluate(a + b, values, "real") == 5
    assert evaluate(a - b * r, values, "real") == -13
    assert evaluate(-(a - b), values, "real") == 1
    assert evaluate(input() * score + 0.5, values, "real") == 77.5
    assert (
        evaluate(a / b / r, values, "real") == pytest.approx(2 / 15)
        and evaluate(1 / a, values, "real") == 0.5
    )


def test_elements() -> None:
    r, t = parameter("r"), parameter("t")
    values = {"r": 2.0, "t": math.pi / 2, "score": (3.0, 4.0)}
    assert evaluate(complex(r, -1), values, "complex") == (2.0, -1.0)
    assert evaluate(polar(r, t), values, "complex") == pytest.approx((0.0, 2.0))
    assert evaluate(pair(r, t), values, "expectation") == (2.0, math.pi / 2)
    assert evaluate(construct("valued", r, 3), values, "expectation") == (2.0, 6.0)
    assert evaluate(construct("signed", -1, r), values, "signed-log") == (-1.0, 2.0)
    assert evaluate(score.re * score.re + score.im, values, "complex") == 13.0


@pytest.mark.parametrize("name", sorted(SEMIRINGS))
def test_a_real_weight_stands_for_a_real_number(name: str) -> None:
    ring = SEMIRINGS[name]
    weight = Evaluator(FLOATS, ring, lambda leaf: 1.0).weight(parameter("p"))
    assert weight == (ring.from_real(1.0) if ring.components else 1.0)


def test_what_expressions_share_is_computed_once() -> None:
    asked = []
    value = Evaluator(FLOATS, SEMIRINGS["real"], lambda leaf: asked.append(leaf) or 2.0)
    p = parameter("p")
    assert value(p * p + sigmoid(p) * 0 + p) == 6.0 and len(asked) == 1


@pytest.mark.parametrize("name", sorted(SEMIRINGS))
def test_one_and_zero_are_the_semirings(name: str) -> None:
    assert evaluate(one, {}, name) == SEMIRINGS[name].one
    assert evaluate(zero, {}, SEMIRINGS[name]) == SEMIRINGS[name].zero


def test_missing_value() -> None:
    with pytest.raises(CellError, match="needs a value for 'f'; values were given for u"):
        evaluate(sigmoid(linear("f")), {"u": 1.0}, "real")
