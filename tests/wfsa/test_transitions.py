"""The fast products against the plain ones of the semiring, in value and gradient."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from wfsa_strategies import DIFFERENTIABLE

from rrnn.semirings import SEMIRINGS, autograd
from rrnn.semirings import tensor_products as ring_products
from rrnn.wfsa import transitions
from rrnn.wfsa.transitions import Matrices, segment_plus


def numbers(semiring: str, *shape: int, seed: int = 0, zeros: float = 0.3) -> Tensor:
    """Random elements, a part of them 0̄."""
    ring, rng = SEMIRINGS[semiring], torch.Generator().manual_seed(seed)
    if semiring in ("boolean", "counting"):
        return torch.randint(0, 2 if semiring == "boolean" else 4, shape, generator=rng).to(ring.dtype)
    values = torch.randn(*shape, *ring.shape, generator=rng, dtype=ring.dtype)
    if semiring == "signed-log":
        values[..., 0] = values[..., 0].sign()
    values = values.abs() if semiring == "max-times" else values
    return ring.where(torch.rand(*shape, generator=rng) >= zeros, values, ring.zeros(*shape))


def plain(semiring: str, rows: Tensor, columns: Tensor, groups: list[tuple[int, int]]) -> Tensor:
    ring, out, at = SEMIRINGS[semiring], [], 0
    for s, count in groups:
        out.append(ring.t_matmul(rows[at : at + count], columns[s].transpose(0, 1)))
        at += count
    return torch.cat(out)


def small_blocks(monkeypatch: pytest.MonkeyPatch, semiring: str, gather: int) -> None:
    """Make several blocks even of small products, and choose between one product a group and one matrix a row."""
    monkeypatch.setattr(SEMIRINGS[semiring].products, "gather", gather)
    for module in (transitions, ring_products, autograd):
        monkeypatch.setattr(module, "BLOCK", 40)


GROUPS = [[(1, 7)], [(0, 3), (2, 4)], [(2, 1), (0, 1), (1, 5)]]


@pytest.mark.parametrize("gather", [0, 10**9])
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_values(
    semiring: str, groups: list[tuple[int, int]], gather: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, semiring, gather)
    rows, columns = numbers(semiring, 7, 4), numbers(semiring, 3, 5, 4, seed=1)
    rows[2] = SEMIRINGS[semiring].zeros(1)  # a dead string
    columns[1, 3] = SEMIRINGS[semiring].zeros(1)  # a state nobody enters
    got = Matrices(SEMIRINGS[semiring], columns).times(rows, groups)
    torch.testing.assert_close(got, plain(semiring, rows, columns, groups), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("gather", [0, 10**9])
@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
def test_gradients(semiring: str, gather: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as autograd's through the plain form, zeros included; and right, where nothing is tied or 0̄."""
    small_blocks(monkeypatch, semiring, gather)
    ring, groups = SEMIRINGS[semiring], GROUPS[2]
    upstream = torch.randn(7, 5, *ring.shape, dtype=torch.float64)
    gradients = []
    for product in (
        lambda r, c: Matrices(ring, c).times(r, groups),
        lambda r, c: plain(semiring, r, c, groups),
    ):
        rows = numbers(semiring, 7, 4).requires_grad_()
        columns = numbers(semiring, 3, 5, 4, seed=1).requires_grad_()
        out = product(rows, columns)
        out.where(out.isfinite(), 0.0).mul(upstream).sum().backward()
        gradients.append((rows.grad, columns.grad))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    rows = numbers(semiring, 7, 4, zeros=0).requires_grad_()
    columns = numbers(semiring, 3, 5, 4, seed=1, zeros=0).requires_grad_()
    assert torch.autograd.gradcheck(lambda r, c: Matrices(ring, c).times(r, groups), (rows, columns))


def test_log_products_that_underflow() -> None:
    """Rows and columns whose greatest entries are thousands apart: value and gradient of the exact form."""
    rng = torch.Generator().manual_seed(0)
    rows = (torch.rand(6, 5, generator=rng, dtype=torch.float64) * -3000).requires_grad_()
    columns = (torch.rand(1, 4, 5, generator=rng, dtype=torch.float64) * -3000).requires_grad_()
    with torch.no_grad():
        rows[0, 1] = columns[0, 2, 3] = -math.inf
        columns[0, 3] = -math.inf
    got = Matrices(SEMIRINGS["log"], columns).times(rows, [(0, 6)])
    wanted = plain("log", rows, columns, [(0, 6)])
    torch.testing.assert_close(got, wanted, rtol=1e-14, atol=0)
    upstream = torch.randn(6, 4, dtype=torch.float64, generator=rng)
    for a, b in zip(
        torch.autograd.grad((got[:, :3] * upstream[:, :3]).sum(), (rows, columns)),
        torch.autograd.grad((wanted[:, :3] * upstream[:, :3]).sum(), (rows, columns)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "max-times"])
def test_of_tied_products_the_first_gets_the_gradient(semiring: str) -> None:
    rows = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
    columns = torch.ones(1, 1, 4, dtype=torch.float64, requires_grad=True)
    Matrices(SEMIRINGS[semiring], columns).times(rows, [(0, 1)]).sum().backward()
    assert rows.grad is not None and rows.grad.tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert columns.grad is not None and columns.grad.tolist() == [[[1.0, 0.0, 0.0, 0.0]]]


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_segments(semiring: str) -> None:
    ring = SEMIRINGS[semiring]
    values, segment = numbers(semiring, 9), torch.tensor([0, 3, 0, 1, 3, 3, 0, 4, 4])
    values[7:] = ring.zeros(1)
    got = segment_plus(ring, values, segment, 6)
    for i in range(6):
        torch.testing.assert_close(got[i], ring.t_sum(values[segment == i], 0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
def test_gradients_of_segments(semiring: str) -> None:
    ring, segment = SEMIRINGS[semiring], torch.tensor([0, 2, 0, 1, 2, 2, 0])
    values = numbers(semiring, 7, zeros=0).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: segment_plus(ring, v, segment, 3), (values,))
    if ring.selective:
        tied = torch.zeros(7, dtype=torch.float64, requires_grad=True)
        segment_plus(ring, tied, segment, 3).sum().backward()
        assert tied.grad is not None and tied.grad.tolist() == [1, 1, 0, 1, 0, 0, 0]
    dead = ring.zeros(7).requires_grad_()
    out = segment_plus(ring, dead, segment, 3)
    if ring.infinities:
        out.where(out.isfinite(), 0.0).sum().backward()
        assert dead.grad is not None and not dead.grad.any()
