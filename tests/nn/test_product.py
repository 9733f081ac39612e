"""The layer's matrix product by oneDNN against F.linear: values, gradients, and when it steps aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.nn import product
from rrnn.nn.product import linear

INPUTS, ROWS = 37, 70


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """oneDNN however small the product is, on whatever processor; the number of its products."""
    monkeypatch.setattr(product, "WORTH", 0)
    monkeypatch.setattr(product, "cpu", lambda: "AMD")
    product._onednn_gains.cache_clear()
    if not product._onednn_gains():
        pytest.skip("this torch has no such product")
    count, run = [0], product._product

    def counted(a: Tensor, b: Tensor) -> Tensor:
        count[0] += 1
        return run(a, b)

    monkeypatch.setattr(product, "_product", counted)
    yield count
    product._onednn_gains.cache_clear()


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


INPUT: dict[str, Callable[[], Tensor]] = {
    "contiguous": lambda: draw(5, 3, INPUTS),
    "batch first": lambda: draw(3, 5, INPUTS).transpose(0, 1),
    "every other column": lambda: draw(5, 3, 2 * INPUTS)[..., ::2],
    "expanded": lambda: draw(5, 1, INPUTS).expand(5, 3, INPUTS),
    "one row": lambda: draw(1, 1, INPUTS),
}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("kind", INPUT)
def test_values_and_gradients(
    kind: str, many: bool, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "MANY_ROWS", 0 if many else 1000)
    x, weight = INPUT[kind]().requires_grad_(), draw(ROWS, INPUTS).requires_grad_()
    seed = draw(*x.shape[:2], 2 * ROWS)[..., :ROWS]  # not contiguous, either
    results = []
    for function in (linear, F.linear):
        y = function(x, weight)
        results.append((y, *torch.autograd.grad(y, (x, weight), seed)))
    assert taken == [2 if many else 3]
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-4)
    assert all(g.is_contiguous() for g in results[0])


def test_second_gradients() -> None:
    x, weight = draw(5, 3, INPUTS).requires_grad_(), draw(ROWS, INPUTS).requires_grad_()
    results = []
    for function in (linear, F.linear):
        grads = torch.autograd.grad(function(x, weight).tanh().sum(), (x, weight), create_graph=True)
        loss = torch.stack([g.square().sum() for g in grads]).sum()
        results.append(torch.autograd.grad(loss, (x, weight)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("frozen", ["x", "weight"])
def test_only_gradients_that_are_wanted(frozen: str, taken: list[int]) -> None:
    x, weight = draw(5, 3, INPUTS), draw(ROWS, INPUTS)
    wanted = (weight if frozen == "x" else x).requires_grad_()
    linear(x, weight).sum().backward()
    assert taken == [2] and wanted.grad is not None


def test_steps_aside(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = draw(5, 3, INPUTS), nn.Parameter(draw(ROWS, INPUTS))
    with torch.no_grad():
        linear(x, weight)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    linear(x.double(), nn.Parameter(weight.detach().double()))
    torch.func.grad(lambda w: linear(x, w).sum())(weight.detach())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        assert torch.autograd.forward_ad.unpack_dual(linear(dual, weight)).tangent is not None
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", False)
        linear(x, weight)
    monkeypatch.setattr(product, "WORTH", x.numel() * ROWS + 1)
    linear(x, weight)
    assert taken == [0]


@pytest.mark.parametrize("why", ["other processor", "no such operation", "another meaning"])
def test_does_without(why: str, taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(a: Tensor, b: Tensor) -> Tensor:
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute '_linear_pointwise'")

    if why == "other processor":
        monkeypatch.setattr(product, "cpu", lambda: "model name : Intel")
    else:
        wrong = fails if why == "no such operation" else lambda a, b: torch.zeros(a.shape[0], b.shape[0])
        monkeypatch.setattr(product, "_product", wrong)
    product._onednn_gains.cache_clear()
    x, weight = draw(5, 3, INPUTS), nn.Parameter(draw(ROWS, INPUTS))
    assert torch.equal(linear(x, weight), F.linear(x, weight)) and taken == [0]


def test_weight_gradients_are_made_where_they_are_told() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(5, 2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    towards, calls = torch.randn(5, 2, 4), []

    def run(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        calls.append(tensors)
        return function(*tensors)

    out = product._SideStreamLinear.apply(x, weight, run)
    assert isinstance(out, Tensor)
    expected = F.linear(x, weight)
    torch.testing.assert_close(out, expected)
    found = torch.autograd.grad(out, (x, weight), towards)
    torch.testing.assert_close(found, torch.autograd.grad(expected, (x, weight), towards))
    assert len(calls) == 1


def test_weight_gradients_stay_where_they_are_without_a_gpu() -> None:
    x, weight = torch.randn(5, 2, 3), torch.randn(4, 3, requires_grad=True)
    with product.weight_gradients(lambda *_: pytest.fail("no other stream on a CPU")):
        product.linear(x, weight).sum().backward()


def test_a_product_on_the_cpu_has_its_own_node() -> None:
    assert not product.in_one_node(torch.randn(5, 2, 3), torch.randn(4, 3, requires_grad=True))
