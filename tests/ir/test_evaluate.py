"""The meaning of every op, against torch and against the rules of NaN, infinity and ties."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from rrnn.automata.evaluate import FUNCTIONS
from rrnn.ir import Op
from rrnn.ir.evaluate import MEANING
from rrnn.ir.lower import _CALLS

POINTS = [-math.inf, -800.0, -40.0, -1.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 40.0, 800.0, math.inf]
TORCH = {
    Op.NEG: torch.neg,
    Op.EXP: torch.exp,
    Op.LOG: torch.log,
    Op.SQRT: torch.sqrt,
    Op.SIGMOID: torch.sigmoid,
    Op.TANH: torch.tanh,
    Op.RELU: torch.relu,
    Op.LOG_SIGMOID: F.logsigmoid,
    Op.SOFTPLUS: lambda x: -F.logsigmoid(-x),
    Op.STEP: lambda x: (x > 0).double(),
    Op.ADD: torch.add,
    Op.SUB: torch.sub,
    Op.MUL: torch.mul,
    Op.DIV: torch.div,
    Op.MAX: torch.maximum,
    Op.MIN: torch.minimum,
    Op.LOGADDEXP: torch.logaddexp,
    Op.GE: lambda a, b: (a >= b).double(),
    Op.GT: lambda a, b: (a > b).double(),
}


def test_every_op_has_a_meaning() -> None:
    assert set(MEANING) == {op for op in Op if op.arity}


@pytest.mark.parametrize("op", [op for op in TORCH if op.arity == 1], ids=lambda op: op.text)
def test_unary(op: Op) -> None:
    got = torch.tensor([MEANING[op](x) for x in [*POINTS, math.nan]], dtype=torch.float64)
    expected = TORCH[op](torch.tensor([*POINTS, math.nan], dtype=torch.float64))
    torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("op", [op for op in TORCH if op.arity == 2], ids=lambda op: op.text)
def test_binary(op: Op) -> None:
    pairs = [(x, y) for x in [*POINTS, math.nan] for y in [*POINTS, math.nan]]
    got = torch.tensor([MEANING[op](x, y) for x, y in pairs], dtype=torch.float64)
    a, b = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    torch.testing.assert_close(got, TORCH[op](a, b), rtol=1e-14, atol=1e-300, equal_nan=True)


def test_a_nan_is_never_lost() -> None:
    for op in (Op.MAX, Op.MIN, Op.LOGADDEXP, Op.ADD, Op.MUL):
        for other in POINTS:
            assert math.isnan(MEANING[op](math.nan, other))
            assert math.isnan(MEANING[op](other, math.nan))


def test_share_is_what_an_argument_contributed() -> None:
    total = MEANING[Op.LOGADDEXP](0.3, -0.4)
    shares = [MEANING[Op.SHARE](x, total) for x in (0.3, -0.4)]
    assert sum(shares) == pytest.approx(1.0, rel=1e-15)
    assert MEANING[Op.SHARE](-math.inf, -math.inf) == 0.0
    assert MEANING[Op.SHARE](-math.inf, 1.0) == 0.0


@pytest.mark.parametrize("name", sorted(_CALLS))
def test_the_cell_language_means_the_same(name: str) -> None:
    for x in POINTS:
        a, b = FUNCTIONS[name](x), MEANING[_CALLS[name]](x)
        assert a == pytest.approx(b, rel=1e-15, nan_ok=True)
    assert set(_CALLS) == set(FUNCTIONS)
