"""Every row of the table of ops: its meaning, tensor function, range and gradient agree, and renderers can write it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from op_twins import TORCH

from rrnn.arithmetic import ALONG_FAMILY, BY_NAME, COMPOSITES, FLOATS, RANGES, TENSORS, Arithmetic, Op, Range

NUMERIC = [op for op in Op if op.value.meaning is not None]
ON_ELEMENTS = {Op.ELEMENT, Op.COMPONENT, Op.PLUS, Op.TIMES}
POINTS = [-math.inf, -800.0, -40.0, -1.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 40.0, 800.0, math.inf, math.nan]


def of(op: Op) -> str:
    return op.text


def points(op: Op) -> list[tuple[float, ...]]:
    """Return all combinations of hard values as arguments; a condition is 0 or 1."""
    if op is Op.WHERE:
        return [(c, a, b) for c in (0.0, 1.0) for a in POINTS for b in POINTS]
    return [(a,) for a in POINTS] if op.arity == 1 else [(a, b) for a in POINTS for b in POINTS]


def columns(rows: list[tuple[float, ...]]) -> list[torch.Tensor]:
    return [torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)]


# ---- rows ------------------------------------------------------------------------------------------------------


def test_every_op_is_a_leaf_a_number_or_an_element() -> None:
    assert set(NUMERIC) == set(TORCH)
    assert {op for op in Op if not op.leaf} == {*NUMERIC, *ON_ELEMENTS, *ALONG_FAMILY}
    assert {op.value.name: op for op in Op} == BY_NAME
    assert not set(BY_NAME) & set(COMPOSITES)
    assert all(op.attribute in (None, "number", "index", "output") for op in Op)


@pytest.mark.parametrize("op", NUMERIC, ids=of)
def test_a_row_is_complete(op: Op) -> None:
    row, places = op.value, [f"{{{i}}}" for i in range(op.arity)]
    assert row.meaning and row.tensor and row.range
    for code in (row.c, row.triton):
        assert all(place in code for place in places)
        assert "{" not in code.replace("{s}", "").format(*"xyz")  # nothing else is to be filled in
    assert bool(row.plain) == bool(row.latex)
    # Signs between arguments need no name, and gradients are not printed.
    assert row.plain or op in (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.NEG, Op.SHARE)
    assert row.gradient or op in (Op.GE, Op.GT)


@pytest.mark.parametrize("op", [op for op in Op if op not in (*NUMERIC, *ALONG_FAMILY)], ids=of)
def test_leaves_and_elements_compute_no_number(op: Op) -> None:
    row = op.value
    assert not (row.tensor or row.gradient or row.range or row.c or row.triton)
    for arithmetic in (FLOATS, TENSORS, RANGES):
        with pytest.raises(AssertionError):
            getattr(arithmetic, op.text)


# ---- meaning, in torch and in the table's own tensors ------------------------------------------------------------


@pytest.mark.parametrize("op", NUMERIC, ids=of)
def test_meaning(op: Op) -> None:
    rows = points(op)
    got = torch.tensor([op.value.meaning(*row) for row in rows], dtype=torch.float64)
    for function in (TORCH[op], getattr(TENSORS, op.text)):
        expected = function(*columns(rows))
        assert expected.dtype == torch.float64
        torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("op", NUMERIC, ids=of)
def test_tensors_meet_numbers(op: Op) -> None:
    """One of the arguments may be a Python number, and float32 stays float32."""
    values = (1.0, 0.5, 0.25)[: op.arity]
    for place in range(op.arity):
        arguments: list[Any] = list(values)
        arguments[place] = torch.tensor([values[place]], dtype=torch.float32)
        result = getattr(TENSORS, op.text)(*arguments)
        assert result.dtype == torch.float32
        assert result.item() == pytest.approx(getattr(FLOATS, op.text)(*values), rel=1e-6)


def test_a_nan_is_never_lost() -> None:
    for name in ("max", "min", "logaddexp", "add", "mul", "sub", "div"):
        for other in POINTS:
            for pair in ((math.nan, other), (other, math.nan)):
                assert math.isnan(getattr(FLOATS, name)(*pair))
                assert getattr(TENSORS, name)(*map(torch.tensor, pair)).isnan()


def test_the_first_of_ties_wins() -> None:
    # By the sign of a zero, one can see which came out.
    for name in ("max", "min"):
        assert math.copysign(1, getattr(FLOATS, name)(-0.0, 0.0)) == -1
        assert math.copysign(1, getattr(FLOATS, name)(0.0, -0.0)) == 1
        assert torch.signbit(getattr(TENSORS, name)(torch.tensor(-0.0), torch.tensor(0.0)))


def test_division_by_zero_is_that_of_floats() -> None:
    div = FLOATS.div
    assert div(1.0, 0.0) == math.inf and div(1.0, -0.0) == -math.inf and div(-2.0, 0.0) == -math.inf
    assert math.isnan(div(0.0, 0.0)) and math.isnan(div(math.nan, 0.0))


def test_share_is_what_an_argument_contributed() -> None:
    total = FLOATS.logaddexp(0.3, -0.4)
    assert sum(FLOATS.share(x, total) for x in (0.3, -0.4)) == pytest.approx(1.0, rel=1e-15)
    assert FLOATS.share(-math.inf, -math.inf) == FLOATS.share(-math.inf, 1.0) == 0.0


# ---- ranges ----------------------------------------------------------------------------------------------------

numbers = (
    st.floats(-5, 5) | st.sampled_from([0.0, 1.0, -1.0, 40.0, -40.0, 1e6, -1e6, 1e-300]) | st.integers(-3, 3)
)


@st.composite
def ranges_and_values(draw: st.DrawFn) -> tuple[Range, float]:
    """Draw a range with a number in it, an end being open where the number is not there."""
    low, value, high = sorted(float(draw(numbers)) for _ in range(3))
    if draw(st.booleans()):
        low, high = (-math.inf, high) if draw(st.booleans()) else (low, math.inf)
    integral = draw(st.booleans()) and all(map(math.isfinite, (low, high))) and value.is_integer()
    open_low, open_high = draw(st.booleans()) and low < value, draw(st.booleans()) and value < high
    return Range(low, high, integral, open_low, open_high), value


@pytest.mark.parametrize("name", [*(op.text for op in NUMERIC), *COMPOSITES])
@given(data=st.data())
def test_values_lie_in_the_range(name: str, data: st.DataObject) -> None:
    count = BY_NAME[name].arity if name in BY_NAME else 2 if name == "eq" else 1
    given_ = [data.draw(ranges_and_values()) for _ in range(count)]
    value = getattr(FLOATS, name)(*(v for _, v in given_))
    assume(math.isfinite(value))
    r = getattr(RANGES, name)(*(r for r, _ in given_))
    assert all(r.contains(v) for r, v in given_)
    slack = 1e-12 * abs(value)  # mathematical libraries are monotone only up to the last bit
    assert r.low - slack <= value <= r.high + slack
    assert not r.integral or value.is_integer()
    # An open end is attained by rounding alone: never where the arguments are moderate.
    if all(abs(v) <= 5 and (v == 0 or abs(v) > 1e-3) for _, v in given_) and abs(value) > 1e-6:
        assert not (r.low_open and value < r.low) and not (r.high_open and value > r.high)


def test_ranges_meet_numbers() -> None:
    assert RANGES.add(Range(0.0, 1.0), 2.0) == Range(2.0, 3.0) and RANGES.neg(3) == Range(-3.0, -3.0, True)
    assert 1 - Range(0.0, 1.0, True) == Range(0.0, 1.0, True) == Range(0.0, 1.0, True) * 1
    assert 2 * Range(0.0, 1.0) + 1 == 1 + Range(0.0, 2.0) == Range(1.0, 3.0)


@pytest.mark.parametrize(
    ("divisor", "low", "high"),
    [
        (Range(1.0, 4.0), 0.5, 2.0),
        (Range(-4.0, -1.0), -2.0, -0.5),
        (Range(0.0, 4.0, low_open=True), 0.5, math.inf),
        (Range(-4.0, 0.0, high_open=True), -math.inf, -0.5),
        (Range(0.5, math.inf), 0.0, 4.0),
        (Range(0.0, 1.0), -math.inf, math.inf),
        (Range(-1.0, 1.0), -math.inf, math.inf),
    ],
)
def test_quotients(divisor: Range, low: float, high: float) -> None:
    r = RANGES.div(2.0, divisor)
    assert (r.low, r.high) == (low, high)
    assert not r.integral


# ---- gradients -------------------------------------------------------------------------------------------------

SMOOTH = [(0.7, -1.3), (1.9, 0.4), (0.1, 2.5), (3.0, -4.0), (0.6, 0.3)]


@pytest.mark.parametrize("op", [op for op in NUMERIC if op.value.gradient], ids=of)
def test_gradient_by_autograd_and_differences(op: Op) -> None:
    for pair in [*SMOOTH, *([] if op in (Op.LOG, Op.SQRT) else [(-0.6, 0.3), (-2.0, -1.0)])]:
        at = [1.0, *pair] if op is Op.WHERE else [0.0, *pair][1 : op.arity + 1]
        y = op.value.meaning(*at)
        got = [0.0 if g is None else g for g in op.value.gradient(FLOATS, *at, y, 1.5)]
        assert len(got) == op.arity

        def value(i: int, h: float, at: list[float] = at) -> float:
            return op.value.meaning(*(x + h * (i == j) for j, x in enumerate(at)))

        for i, g in enumerate(got):
            if not (op is Op.WHERE and i == 0):
                assert g == pytest.approx(1.5 * (value(i, 1e-5) - value(i, -1e-5)) / 2e-5, rel=1e-6, abs=1e-9)
        for function in (TORCH[op], getattr(TENSORS, op.text)):
            leaves = torch.tensor(at, dtype=torch.float64, requires_grad=True)
            (function(*leaves.unbind()) * 1.5).backward()
            assert leaves.grad is not None
            assert got == pytest.approx(leaves.grad.tolist(), rel=1e-12)


def test_comparisons_have_no_gradient() -> None:
    for name in ("ge", "gt"):
        assert not getattr(TENSORS, name)(torch.tensor(1.0, requires_grad=True), 0.5).requires_grad


# ---- composites ------------------------------------------------------------------------------------------------

COMPOSED = {
    "relu": torch.relu,
    "step": lambda x: (x > 0).double(),
    "silu": torch.nn.functional.silu,
    "abs": torch.abs,
    "sign": torch.sign,
    "eq": lambda a, b: (a == b).double(),
    "square": torch.square,
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites(name: str) -> None:
    finite = [x for x in POINTS if math.isfinite(x)]
    rows = [(a, b) for a in finite for b in finite] if name == "eq" else [(a,) for a in finite]
    expected = COMPOSED[name](*columns(rows))
    got = torch.tensor([getattr(FLOATS, name)(*row) for row in rows], dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-14, atol=1e-300)
    torch.testing.assert_close(getattr(TENSORS, name)(*columns(rows)), expected, rtol=1e-14, atol=1e-300)
    assert set(COMPOSED) == set(COMPOSITES)


def test_relu_gives_no_gradient_at_zero() -> None:
    x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    TENSORS.relu(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 0.0, 1.0]


def test_a_square_is_not_negative() -> None:
    assert RANGES.square(Range(-2.0, 1.0)) == Range(0.0, 4.0)
    assert RANGES.square(Range(-3.0, -1.0)) == Range(1.0, 9.0)
    assert RANGES.mul(Range(-2.0, 1.0), Range(-2.0, 1.0)).low == -2.0


# ---- arithmetics -----------------------------------------------------------------------------------------------


def test_an_unknown_operation() -> None:
    with pytest.raises(
        AttributeError, match=r"'cosh' is not an operation of the table; the operations are .*exp.*relu"
    ):
        FLOATS.cosh  # noqa: B018


def test_an_arithmetic_may_have_functions_of_its_own() -> None:
    own = Arithmetic(lambda op: lambda *values: (op.text, *values), square=lambda x: ("squared", x))
    assert own.relu(3) == ("max", 0.0, 3)
    assert own.square(2) == ("squared", 2)
    assert own.sign(1) == ("sub", ("gt", 1, 0.0), ("gt", 0.0, 1))
