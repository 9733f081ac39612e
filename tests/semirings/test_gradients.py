"""Gradients of tensor operations: right where they exist, none to −∞, no NaN, the first of ties wins."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from rrnn.semirings import LOG, MAX_PLUS, MIN_PLUS, SEMIRINGS, Semiring

INF = math.inf
SMOOTH = [s for s in SEMIRINGS.values() if s.has_gradient]
INFINITE_ZERO = [LOG, MAX_PLUS, MIN_PLUS]
SELECTIVE = [s for s in SMOOTH if s.selective]


def of(semiring: Semiring) -> str:
    return semiring.name


def leaf(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def gradient(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[list[float]]:
    return [g.tolist() for g in torch.autograd.grad(function(*inputs).sum(), inputs)]


def distinct(*shape: int) -> torch.Tensor:
    """Positive values all different (no ties, where the selective semirings have no derivative)."""
    torch.manual_seed(len(shape))
    n = math.prod(shape)
    return ((torch.randperm(n).double() + 1) / n).reshape(shape).requires_grad_()


Operation = Callable[..., torch.Tensor]


def shape(semiring: Semiring, *sizes: int) -> tuple[int, ...]:
    """Return the shape of the numbers that vary in a tensor of elements: all, or over signed-log the logarithms."""
    return (*sizes, semiring.size) if semiring.components and semiring.name != "signed-log" else sizes


def varied(semiring: Semiring, operation: Operation) -> Operation:
    """Return an operation as a function of the numbers that vary: over signed-log, signs are given and left out."""
    if semiring.name != "signed-log":
        return operation

    def on_logarithms(*logs: torch.Tensor) -> torch.Tensor:
        signs = [(torch.arange(x.numel()) % 3 != 0).double().mul(2).sub(1).reshape(x.shape) for x in logs]
        return operation(*(torch.stack(both, -1) for both in zip(signs, logs, strict=True)))[..., 1]

    return on_logarithms


@pytest.mark.parametrize("semiring", SMOOTH, ids=of)
def test_gradcheck(semiring: Semiring) -> None:
    a = distinct(*shape(semiring, 3, 4))
    b = distinct(a.numel()).detach().flip(0).reshape(a.shape).mul(1.37).requires_grad_()
    for operation in (semiring.t_plus, semiring.t_times):
        assert torch.autograd.gradcheck(varied(semiring, operation), (a, b))
    for dim in (0, 1, -1):
        assert torch.autograd.gradcheck(varied(semiring, lambda x, d=dim: semiring.t_sum(x, d)), (a,))
    columns = b.detach().transpose(0, 1).clone().requires_grad_()
    assert torch.autograd.gradcheck(varied(semiring, semiring.t_matmul), (a, columns))
    total = varied(semiring, lambda x: semiring.t_sum(x, -1))
    assert torch.autograd.gradcheck(lambda x: total(x * 2), (distinct(*shape(semiring, 2, 3, 4)),))


@pytest.mark.parametrize("semiring", SMOOTH, ids=of)
def test_gradcheck_of_star(semiring: Semiring) -> None:
    inside = {
        "real": [-0.9, 0.0, 0.5],
        "log": [-3.0, -0.5, -0.01],
        "max-plus": [-2.0, -0.5],
        "complex": [(0.3, -0.4), (-0.9, 0.0), (0.0, 0.5)],
        "expectation": [(0.3, -4.0), (-0.9, 0.0), (0.0, 5.0)],
        "signed-log": [-3.0, -0.5, -0.01],
    }
    a = leaf(inside.get(semiring.name, [0.2, 0.7]))
    star = varied(semiring, semiring.t_star)
    if star(a).requires_grad:
        assert torch.autograd.gradcheck(star, (a,))
    else:  # a constant one: no gradient to give
        assert star(a).eq(semiring.one).all()


@pytest.mark.parametrize("semiring", [s for s in SMOOTH if not s.selective], ids=of)
def test_second_derivatives(semiring: Semiring) -> None:
    a = distinct(*shape(semiring, 2, 3))
    b = distinct(*a.shape).detach().mul(0.7).requires_grad_()
    assert torch.autograd.gradgradcheck(varied(semiring, semiring.t_plus), (a, b))
    assert torch.autograd.gradgradcheck(varied(semiring, lambda x: semiring.t_sum(x, 1)), (a,))


def test_a_zero_of_signed_log_gets_no_gradient() -> None:
    ring = SEMIRINGS["signed-log"]
    zero, one = ring.zero, ring.one
    a, b = leaf([zero, (1.0, 1.0), zero, (1.0, 0.5)]), leaf([(-1.0, 2.0), zero, zero, (-1.0, 0.5)])
    assert ring.numbers(ring.t_plus(a, b)) == [(-1.0, 2.0), (1.0, 1.0), zero, zero]  # the last two cancel
    of_a, of_b = gradient(
        lambda x, y: ring.t_plus(x, y)[..., 1].where(~ring.is_zero(ring.t_plus(x, y)), 0.0), a, b
    )
    assert [g[1] for g in of_a] == [0.0, 1.0, 0.0, 0.0] and [g[1] for g in of_b] == [1.0, 0.0, 0.0, 0.0]
    rows = leaf([[zero, one, zero], [zero, zero, zero]])
    (slope,) = torch.autograd.grad(ring.t_sum(ring.t_times(rows, rows), 1)[..., 1].exp().sum(), rows)
    assert slope.isfinite().all() and slope[1].eq(0).all() and slope[0, :, 1].tolist() == [0.0, 2.0, 0.0]


@pytest.mark.parametrize("semiring", INFINITE_ZERO, ids=of)
def test_an_infinite_zero_gets_no_gradient(semiring: Semiring) -> None:
    zero = semiring.zero
    a, b = leaf([zero, 1.0, zero]), leaf([2.0, zero, zero])
    assert semiring.t_plus(a, b).tolist() == [2.0, 1.0, zero]
    assert gradient(semiring.t_plus, a, b) == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    assert gradient(lambda x: semiring.t_plus(x, x), leaf([zero])) == [[0.0]]

    rows = leaf([[zero, 3.0, zero], [zero, zero, zero]])
    assert semiring.t_sum(rows, 1).tolist() == [3.0, zero]
    assert gradient(lambda x: semiring.t_sum(x, 1), rows) == [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]
    # A zero made inside the graph stays harmless downstream: the product 0̄ ⊗ a takes no part in the sum.
    a, b = leaf([zero, 0.5]), leaf([0.25, 0.75])
    through = gradient(lambda x, y: semiring.t_sum(semiring.t_times(x, y), 0), a, b)
    assert through == [[0.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize("semiring", INFINITE_ZERO, ids=of)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_are_never_nan(semiring: Semiring, dtype: torch.dtype) -> None:
    """All pairs and triples of hard values, in value and gradient."""
    large = 1e38 if dtype == torch.float32 else 1e308
    hard = [semiring.zero, 0.0, 1.0, -1.0, 80.0, large, -large]
    triples = torch.cartesian_prod(*[torch.tensor(hard, dtype=dtype)] * 3).requires_grad_()
    pairs = semiring.t_plus(triples[:, 0], triples[:, 1])
    for value in (semiring.t_sum(triples, 1), pairs, semiring.t_plus(pairs, triples[:, 2])):
        (slope,) = torch.autograd.grad(value.sum(), triples, retain_graph=True)
        assert not value.isnan().any()
        assert slope.isfinite().all()
        assert slope[triples == semiring.zero].eq(0).all()
        # Each finite result is a mean of its arguments as far as gradients go: they sum to one.
        used = slope.sum(1)[value != semiring.zero]
        assert torch.allclose(used, torch.ones_like(used))


def test_log_gradient_is_a_softmax() -> None:
    scores = leaf([[0.0, 1.0, -INF, 2.0], [1e300, 1e300, -1e300, -INF]])
    (slope,) = torch.autograd.grad(LOG.t_sum(scores, 1).sum(), scores)
    assert torch.allclose(slope, scores.detach().softmax(1), rtol=1e-15, atol=0)


@pytest.mark.parametrize("semiring", SELECTIVE, ids=of)
def test_the_first_of_ties_takes_all(semiring: Semiring) -> None:
    a, b = leaf([2.0]), leaf([2.0])
    assert gradient(semiring.t_plus, a, b) == [[1.0], [0.0]]
    low, high = (1.0, 3.0) if semiring.plus(1.0, 3.0) == 3.0 else (3.0, 1.0)
    rows = leaf([[low, high, high], [high, low, high], [low, low, low]])
    assert gradient(lambda x: semiring.t_sum(x, 1), rows) == [[[0, 1, 0], [1, 0, 0], [1, 0, 0]]]
    assert gradient(lambda x: semiring.t_sum(x, 0), rows) == [[[0, 1, 1], [1, 0, 0], [0, 0, 0]]]
    for size in (7, 64, 1000, 5000):  # long enough for vectorised and split reductions
        for first in (0, 1, size // 2, size - 1):
            values = torch.full((3, size), low, dtype=torch.float64)
            values[:, first:] = high
            expected = torch.zeros(3, size, dtype=torch.float64)
            expected[:, first] = 1.0
            for dim, at in ((1, values), (0, values.T.contiguous())):
                at = at.clone().requires_grad_()
                (slope,) = torch.autograd.grad(semiring.t_sum(at, dim).sum(), at)
                assert torch.equal(slope if dim else slope.T, expected)


@pytest.mark.parametrize("semiring", SMOOTH, ids=of)
def test_nan_is_not_swallowed(semiring: Semiring) -> None:
    """A NaN (an overflow, a star that does not exist) must come out, not lose a comparison."""
    nan, one = torch.full_like(semiring.ones(1), math.nan), semiring.ones(1)
    for result in (
        semiring.t_plus(nan, one),
        semiring.t_plus(one, nan),
        semiring.t_times(nan, one),
        semiring.t_sum(torch.stack([one, nan]), 0),
        semiring.t_star(nan),
    ):
        assert result.isnan().any()
