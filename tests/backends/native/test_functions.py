"""The elementary functions of kernel.h, against float64 and against mpmath."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import mpmath
import pytest
import torch
from native_functions import apply, function_program
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.ir import Op

UNARY = (Op.EXP, Op.LOG, Op.SQRT, Op.TANH, Op.SIGMOID, Op.LOG_SIGMOID, Op.SOFTPLUS)
TINY = torch.finfo(torch.float32).tiny
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, TINY, 3.4e38, -3.4e38]


@pytest.mark.parametrize("op", UNARY)
def test_float_is_good_to_1e_6_everywhere(op: Op) -> None:
    """A sweep over every 4099th of all 2³² floats: normal, subnormal, huge, infinite, NaN, of both signs."""
    bits = torch.arange(-(2**31), 2**31, 4099, dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.tensor(SPECIAL)])
    ours, true = apply(function_program(op), x), getattr(TENSORS, op.text)(x.double())
    assert torch.equal(ours.isnan(), true.isnan())
    infinite = true.float().isinf()
    assert torch.equal(ours[infinite], true.float()[infinite])
    finite = ~(true.isnan() | infinite)
    ours, true = ours[finite].double(), true[finite]
    normal = true.abs() >= TINY
    assert ((ours - true).abs() / true.abs())[normal].max() < 5e-7
    assert (ours - true).abs()[~normal].max() < TINY  # gates may flush what is subnormal to 0


@pytest.mark.parametrize(
    ("op", "function"),
    [
        (Op.EXP, mpmath.exp),
        (Op.LOG, mpmath.log),
        (Op.TANH, mpmath.tanh),
        (Op.SIGMOID, lambda x: 1 / (1 + mpmath.exp(-x))),
        (Op.LOG_SIGMOID, lambda x: -mpmath.log1p(mpmath.exp(-x))),
        (Op.SOFTPLUS, lambda x: mpmath.log1p(mpmath.exp(x))),
    ],
    ids=lambda v: v.text if isinstance(v, Op) else "",
)
def test_double_is_good_to_1e_14(op: Op, function: Callable[[mpmath.mpf], mpmath.mpf]) -> None:
    rng = random.Random(0)
    points = [rng.uniform(-5, 5) for _ in range(300)] + [rng.uniform(-700, 700) for _ in range(300)]
    points += [rng.choice((-1, 1)) * 10 ** rng.uniform(-300, 2.8) for _ in range(300)]
    if op is Op.LOG:
        points = [abs(x) for x in points] + [10 ** rng.uniform(-307, 307) for _ in range(300)]
        points += [1 + rng.uniform(-1e-3, 1e-3) for _ in range(100)]
    ours = apply(function_program(op), torch.tensor(points, dtype=torch.float64))
    with mpmath.workdps(40):
        for x, y in zip(points, ours.tolist(), strict=True):
            true = function(mpmath.mpf(x))
            assert abs(y - true) <= 1e-14 * abs(true) or abs(true) < 1e-307, x


@pytest.mark.parametrize("op", [Op.SIN, Op.COS], ids=lambda op: op.text)
def test_angles_in_float(op: Op) -> None:
    """Every 4099th of all floats: good to 2e-7 up to 1e9, relative near the zero of sin; NaN where infinite."""
    bits = torch.arange(-(2**31), 2**31, 4099, dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.tensor(SPECIAL)])
    ours, true = apply(function_program(op), x), getattr(TENSORS, op.text)(x.double())
    inside = x.abs() <= 1e9
    assert torch.equal(ours[~x.isfinite()].isnan(), torch.ones_like(ours[~x.isfinite()], dtype=torch.bool))
    assert (ours[inside].double() - true[inside]).abs().max() < 2e-7
    near = inside & (x.abs() < 0.5) & (x.abs() >= TINY)
    assert ((ours.double() - true).abs() / true.abs())[near].max() < 2e-7


@pytest.mark.parametrize("op", [Op.SIN, Op.COS], ids=lambda op: op.text)
def test_angles_in_double(op: Op) -> None:
    rng = random.Random(1)
    points = [rng.uniform(-10, 10) for _ in range(500)] + [rng.uniform(-1e6, 1e6) for _ in range(500)]
    points += [rng.choice((-1, 1)) * 10 ** rng.uniform(-300, 0) for _ in range(300)]
    ours = apply(function_program(op), torch.tensor(points, dtype=torch.float64))
    with mpmath.workdps(40):
        for x, y in zip(points, ours.tolist(), strict=True):
            true = getattr(mpmath, op.text)(mpmath.mpf(x))
            assert abs(y - true) <= 1e-14 * min(1.0, max(abs(x), abs(true))), x


def pairs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 20_000, generator=g, dtype=dtype) * 10 ** torch.empty(20_000, dtype=dtype).uniform_(
        -3, 3, generator=g
    )
    near = a * (1 + 1e-3 * torch.randn(a.shape, generator=g, dtype=dtype))  # close to each other, and equal
    special = torch.tensor([x for x in SPECIAL if abs(x) < 1e38 or x != x or math.isinf(x)], dtype=dtype)
    grid = torch.cartesian_prod(special, special)
    return torch.cat([a, a, a, grid[:, 0]]), torch.cat([b, near, a, grid[:, 1]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN, Op.LOGADDEXP, Op.GE, Op.GT], ids=lambda op: op.text)
def test_functions_of_two_arguments(op: Op, dtype: torch.dtype) -> None:
    a, b = pairs(dtype)
    ours = apply(function_program(op), a, b).double()
    meaning = [op.value.meaning(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    true = torch.tensor(meaning, dtype=torch.float64)
    assert torch.equal(ours.isnan(), true.isnan())
    exact = true.isinf() | (op is not Op.LOGADDEXP)
    assert torch.equal(ours[exact & ~true.isnan()], true[exact & ~true.isnan()])
    # hi + log(1 + e) may cancel: what counts is the error relative to the larger of result and arguments
    scale = torch.stack([true.abs(), torch.maximum(a, b).abs().double()]).amax(0)
    close = true.isfinite() & scale.isfinite()
    error = (ours - true).abs()[close] / scale[close].clamp_min(torch.finfo(dtype).tiny)
    assert error.max() < (1e-6 if dtype == torch.float32 else 1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shared", [False, True], ids=["alone", "with logaddexp"])
def test_shares(shared: bool, dtype: torch.dtype) -> None:
    """exp(a − total), and 0 where a is −∞; where the total is a's own logaddexp, from what that computed."""
    a, b = pairs(dtype)
    keep = ~(a.isnan() | b.isnan()) & (a < math.inf) & (b < math.inf)
    a, b = a[keep], b[keep]
    if not shared:
        b = torch.maximum(a, b)
    ours = apply(function_program(Op.SHARE, of_logaddexp=shared), a, b).double()
    apart = torch.where(a == b, 0.0, a.double() - b.double())
    true = torch.where(a == -math.inf, 0.0, torch.sigmoid(apart) if shared else apart.exp())
    # a − b is rounded once, and its error counts |a − b| times
    info = torch.finfo(dtype)
    allowed = (8 + torch.where(apart.isfinite(), apart, 0.0).abs()) * info.eps * true + info.tiny
    assert ((ours - true).abs() <= allowed).all()


def test_relu_and_step_keep_what_they_should() -> None:
    x = torch.tensor(SPECIAL)
    ours = apply(function_program("relu"), x)
    torch.testing.assert_close(ours, torch.relu(x), equal_nan=True, rtol=0, atol=0)
    assert torch.equal(apply(function_program("step"), x), (x > 0).float())


def test_division_is_exact() -> None:
    a, b = pairs(torch.float32)
    torch.testing.assert_close(apply(function_program(Op.DIV), a, b), a / b, rtol=0, atol=0, equal_nan=True)


def test_bf16_rounds_as_torch_does() -> None:
    """Every bfloat16 goes through −(−x) unchanged, and x + y rounds to nearest even."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    negated = apply(function_program(Op.NEG), x)
    torch.testing.assert_close(negated, -x, rtol=0, atol=0, equal_nan=True)
    y = x.roll(12345)
    torch.testing.assert_close(apply(function_program(Op.ADD), x, y), x + y, rtol=0, atol=0, equal_nan=True)
