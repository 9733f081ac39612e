"""The softmax that becomes its gradient in place, against F.cross_entropy: torch's ops, and the kernel interpreted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rrnn.tasks.lm import loss as module
from rrnn.tasks.lm.loss import (
    add_rows,
    column_sums,
    kernel_rows,
    loss_and_gradients,
    plain_loss,
    tied_loss,
    token_losses,
    torch_rows,
)

ROWS, UNITS, WORDS, PADDED = 7, 5, 21, 24


def case(dtype: torch.dtype, device: str = "cpu", rows: int = ROWS, words: int = WORDS) -> list[Tensor]:
    torch.manual_seed(0)
    padded = words + 3
    hidden, weight = torch.randn(rows, UNITS), torch.randn(padded, UNITS)
    bias, targets = torch.randn(padded), torch.randint(words, (rows,))
    bias[words:] = 100.0  # padding would win, if it took part
    leaves = [
        hidden.to(dtype),
        weight.to(dtype),
        bias.to(max(dtype, torch.float32, key=lambda d: d.itemsize)),
    ]
    return [*(leaf.to(device).requires_grad_() for leaf in leaves), targets.to(device)]


@pytest.fixture(params=["torch", "kernel"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "kernel":
        pytest.importorskip("triton")
    rows = kernel_rows if request.param == "kernel" else torch_rows
    monkeypatch.setattr(module, "softmax_rows", rows)
    return request.param


def compare(leaves: list[Tensor], tolerance: float, words: int = WORDS) -> None:
    wanted = leaves[:3]
    expected = plain_loss(*leaves, words, 0.25)
    ours = tied_loss(*leaves, words, scale=0.25)
    torch.testing.assert_close(ours, expected, rtol=tolerance, atol=tolerance)
    theirs = torch.autograd.grad(3 * expected, wanted)
    for g, e in zip(torch.autograd.grad(3 * ours, wanted), theirs, strict=True):
        torch.testing.assert_close(g, e, rtol=tolerance, atol=tolerance)


def test_value_and_gradients(both: str) -> None:
    compare(case(torch.float32), 1e-5)


def test_double_precision_on_the_cpu() -> None:
    compare(case(torch.float64), 1e-12)


def test_bfloat16_computes_in_float32(both: str) -> None:
    compare(case(torch.bfloat16), 3e-2)


@pytest.mark.parametrize("words", [WORDS, 13, 29, 16 - 3, 32 - 3, 3], ids=str)
@pytest.mark.parametrize("chunk", [2, 4, 8])
def test_rows_of_a_head_and_a_tail(chunk: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also heads with padding, no tail, one as large as the head, and rows of too many chunks."""
    pytest.importorskip("triton")
    monkeypatch.setattr(module, "softmax_rows", kernel_rows)
    monkeypatch.setattr(module, "CHUNK_ROW", chunk)
    compare(case(torch.float32, words=words), 1e-5, words)


def test_chunks_hold_a_row() -> None:
    assert module._chunks(10_048) == (2048, 4, 1)
    for width in [*range(1, 100), *range(100, 17_000, 61), 16_384]:
        chunk, head, tail = module._chunks(width)
        if head:
            assert width <= (head + tail) * chunk < max(2 * width, 2)
        else:
            assert width > 16_384
        for part in (chunk, head, tail):
            assert part & (part - 1) == 0


def test_logits_in_several_pieces(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several blocks, and several pieces of rows: the last of each is not whole."""
    monkeypatch.setattr(module, "CHUNK_ROW", 4)
    monkeypatch.setattr(module, "WHOLE", 2)
    monkeypatch.setattr(module, "CHUNK", 2 * PADDED)
    compare(case(torch.float32), 1e-5)


@pytest.mark.parametrize("whole", [2, 8], ids=["in pieces", "whole"])
def test_words_of_no_probability(both: str, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A score of −∞, also all over the first pieces of a row."""
    monkeypatch.setattr(module, "CHUNK_ROW", 4)
    monkeypatch.setattr(module, "WHOLE", whole)
    hidden, weight, bias, targets = case(torch.float32)
    with torch.no_grad():
        bias[:18] = -torch.inf
    compare([hidden, weight, bias, 18 + targets % 3], 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (7, 24), (64, 32), (700, 100), (513, 33)], ids=str)
def test_column_sums(shape: tuple[int, int], dtype: torch.dtype) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    matrix = torch.randn(shape).to(dtype)
    ours = column_sums(matrix, torch.float32, kernels=True)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, matrix.double().sum(0).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(column_sums(matrix, torch.float32), ours, rtol=1e-5, atol=1e-5)


def test_extreme_scores(both: str) -> None:
    hidden, weight, bias, targets = case(torch.float32)
    leaves = [(hidden * 1e3).detach().requires_grad_(), weight, bias, targets]
    compare(leaves, 1e-4)


def test_padding_has_no_gradient(both: str) -> None:
    hidden, weight, bias, targets = case(torch.float32)
    grads = torch.autograd.grad(tied_loss(hidden, weight, bias, targets, WORDS), [weight, bias])
    for grad in grads:
        assert not grad[WORDS:].any()
        assert grad[:WORDS].any()


def test_a_low_copy_gives_gradients_in_full_precision(both: str) -> None:
    hidden, weight, bias, targets = case(torch.float32)
    ours = loss_and_gradients(hidden.bfloat16(), weight, bias, targets, WORDS, low=weight.bfloat16())
    assert (ours.hidden.dtype, ours.weight.dtype) == (torch.bfloat16, torch.float32)
    (expected,) = torch.autograd.grad(plain_loss(hidden, weight, bias, targets, WORDS), weight)
    torch.testing.assert_close(ours.weight, expected, rtol=5e-2, atol=5e-2)


def test_losses_alone(both: str) -> None:
    hidden, weight, bias, targets = case(torch.float32)
    losses = token_losses(hidden, weight, bias, targets, WORDS)
    each = [plain_loss(hidden[i : i + 1], weight, bias, targets[i : i + 1], WORDS) for i in range(ROWS)]
    torch.testing.assert_close(losses, torch.stack(each).detach(), rtol=1e-5, atol=1e-5)


def test_token_losses_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    leaves = case(torch.float32)
    whole = token_losses(*leaves, WORDS)
    monkeypatch.setattr(module, "AT_ONCE", 3 * PADDED << 4)
    torch.testing.assert_close(token_losses(*leaves, WORDS), whole)
    torch.testing.assert_close(whole.sum(), plain_loss(*leaves, WORDS).detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernels", [False, True], ids=["torch", "kernel"])
def test_rows_of_words_that_come_again(kernels: bool, dtype: torch.dtype) -> None:
    if kernels:
        pytest.importorskip("triton")
    torch.manual_seed(0)
    words, rows = torch.tensor([3, 0, 3, 3, 1]), torch.randn(5, 300).to(dtype)  # columns of two blocks
    table = torch.randn(6, 300)
    expected = table.clone()
    for word, row in zip(words, rows, strict=True):
        expected[word] += row
    add_rows(table, words, rows, kernels)
    torch.testing.assert_close(table, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu(dtype: torch.dtype) -> None:
    compare(case(dtype, "cuda", 300, 10_001), 1e-4 if dtype == torch.float32 else 5e-2, 10_001)


@pytest.mark.gpu
def test_column_sums_on_a_gpu() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(1120, 10_048, device="cuda").bfloat16()
    ours = column_sums(matrix, torch.float32)
    torch.testing.assert_close(ours, matrix.double().sum(0).float(), rtol=1e-5, atol=1e-4)
    assert torch.equal(ours, column_sums(matrix, torch.float32))
