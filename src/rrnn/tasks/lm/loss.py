"""The cross-entropy of a softmax with tied weights, in the precision that the configuration asks for.

The logits exist only once: computing the loss turns them into their gradient. On a GPU that is one kernel over one
bf16 or fp32 matrix, computing in fp32; on a CPU torch operations on a few rows at a time, so that they stay in cache.
`plain_loss` is the obvious twin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.backends.triton.backend import has_kernels, on_device
from rrnn.errors import RunError
from rrnn.tasks.graphs import SideStream

Precision = Literal["fp32", "tf32", "bf16"]


def low_dtype(precision: Precision) -> torch.dtype | None:
    """Return the dtype of the copies of the weights that products read; None if they read the weights themselves."""
    if precision not in ("fp32", "tf32", "bf16"):
        raise RunError(f"precision is fp32, tf32 or bf16; got {precision!r}")
    return torch.bfloat16 if precision == "bf16" else None


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Let a GPU compute fp32 products in TF32 inside this context, unless the precision is fp32."""
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [switch.allow_tf32 for switch in switches]
    for switch in switches:
        switch.allow_tf32 = precision != "fp32"
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value


CHUNK = 1 << 19  # numbers that fit into the cache of a CPU core
AT_ONCE = 1 << 27  # logits that an evaluation holds on a GPU; a sixteenth of that on a CPU
CHUNK_ROW, WHOLE = 2048, 8  # in the kernel: columns that its threads read at once; chunks that they hold


class Gradients(NamedTuple):
    """The losses −log softmax(hidden · weightᵀ + bias)[target] per row, and the gradients of scale times their sum."""

    losses: Tensor
    hidden: Tensor
    weight: Tensor
    bias: Tensor


@torch.no_grad()
def loss_and_gradients(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    vocabulary: int,
    *,
    scale: float = 1.0,
    low: Tensor | None = None,
    side: SideStream | None = None,
) -> Gradients:
    """Compute the loss and its gradients of hidden (n, d), weight (padded, d), bias (padded), targets (n).

    Words from `vocabulary` on are padding and have probability 0. `low` is a copy of `weight` in the dtype of `hidden`,
    for products in low precision; the gradient of `weight` still has weight's own dtype. With `side`, the gradients of
    weight and bias may be read after it joined.
    """
    table = weight if low is None else low
    logits = hidden @ table.t()
    losses = softmax_rows(logits, bias, targets, vocabulary, scale)

    def of_weights(logits: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return _product(logits.t(), hidden, weight.dtype), column_sums(logits, bias.dtype)

    run = of_weights if side is None else partial(side.run, of_weights)
    return Gradients(losses, logits @ table, *run(logits, hidden))


def tied_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, vocabulary: int, *, scale: float = 1.0
) -> Tensor:
    """Return scale times the sum of the losses, differentiable with respect to hidden, weight and bias."""
    return _TiedLoss.apply(hidden, weight, bias, targets, vocabulary, scale)  # pyright: ignore[reportReturnType]


def token_losses(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, vocabulary: int) -> Tensor:
    """Return −log of the target's probability per row, without gradients, computing some rows at a time."""
    rows = max(1, (AT_ONCE if hidden.is_cuda else AT_ONCE >> 4) // len(weight))
    with torch.no_grad():
        parts = zip(hidden.split(rows), targets.split(rows), strict=True)
        return torch.cat([softmax_rows(h @ weight.t(), bias, t, vocabulary, None) for h, t in parts])


def plain_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, vocabulary: int, scale: float = 1.0
) -> Tensor:
    """Define `tied_loss` in the obvious way."""
    logits = F.linear(hidden, weight[:vocabulary]).to(bias.dtype) + bias[:vocabulary]
    return scale * F.cross_entropy(logits, targets, reduction="sum")


def softmax_rows(
    logits: Tensor, bias: Tensor, targets: Tensor, vocabulary: int, scale: float | None
) -> Tensor:
    """Return the loss per row, at least in float32. `logits` become the gradient of scale · loss; with `scale=None`
    their content is undefined afterwards."""
    rows = kernel_rows if has_kernels(logits.device) else torch_rows
    return rows(logits, bias, targets, vocabulary, scale)


def kernel_rows(
    logits: Tensor, bias: Tensor, targets: Tensor, vocabulary: int, scale: float | None
) -> Tensor:
    from rrnn.tasks import step_kernels as kernels

    losses = logits.new_empty(len(logits), dtype=torch.float32)
    chunk, head, tail = _chunks(logits.shape[1])
    run: Any = kernels.softmax_rows[(len(logits),)]
    with on_device(logits.device):
        run(
            logits,
            bias,
            targets,
            losses,
            vocabulary,
            logits.shape[1],
            0.0 if scale is None else scale,
            WRITE=scale is not None,
            HEAD=head,
            TAIL=tail,
            INSIDE=vocabulary >= head * chunk,
            CHUNK=chunk,
            num_warps=max(1, min(8, chunk // 256)),
            maxnreg=128,  # two programs per multiprocessor, three of up to five chunks; not four that load in two turns
            enable_fp_fusion=True,  # set explicitly, since Triton's default is about to change
        )
    return losses


def _chunks(width: int) -> tuple[int, int, int]:
    """Return (chunk size, chunks in the head of a row, in its tail): powers of two, or no head if a row is too long."""
    chunk = min(CHUNK_ROW, 1 << (width - 1).bit_length())
    count = -(-width // chunk)
    if count > WHOLE:
        return 2 * chunk, 0, 0
    head = 1 << (count.bit_length() - 1)
    rest = count - head
    return chunk, head, 1 << (rest - 1).bit_length() if rest else 0


def torch_rows(logits: Tensor, bias: Tensor, targets: Tensor, vocabulary: int, scale: float | None) -> Tensor:
    losses = logits.new_empty(len(logits), dtype=bias.dtype)
    rows = max(1, CHUNK // logits.shape[1])
    for start in range(0, len(logits), rows):
        part, here = logits[start : start + rows], targets[start : start + rows].unsqueeze(1)
        z = part.to(bias.dtype).add_(bias)  # this is `part` itself in full precision
        z[:, vocabulary:] = -math.inf
        z -= z.amax(1, keepdim=True)
        at = z.gather(1, here)
        total = z.exp_().sum(1, keepdim=True)
        losses[start : start + rows] = (total.log() - at).squeeze(1)
        if scale is not None:
            z *= scale / total
            z.scatter_add_(1, here, torch.full_like(at, -scale))
            if z.dtype != part.dtype:
                part.copy_(z)
    return losses


def column_sums(matrix: Tensor, dtype: torch.dtype, kernels: bool | None = None) -> Tensor:
    """Return the sum of the rows, always added in the same order.

    Alone it takes 6 µs on an H200 if the matrix lies in L2, 11 µs if it does not, and other block sizes are no faster
    (column-sums-h200.json in docs/results). In profiles of training steps it takes 13 to 58 µs, since it shares the
    multiprocessors with the layers' products while it runs on the side stream; on the main stream it takes 7 µs. The
    whole step takes the same time, to one percent, wherever it runs.
    """
    if dtype != torch.float32 or not (has_kernels(matrix.device) if kernels is None else kernels):
        return matrix.sum(0, dtype=dtype)
    from rrnn.tasks.step_kernels import column_sums as kernel

    columns, unroll = 32, 16 // matrix.element_size()
    sums = matrix.new_empty(matrix.shape[1], dtype=dtype)
    run: Any = kernel[(-(-len(sums) // columns),)]
    with on_device(matrix.device):
        # maxnreg: there are at most three programs per multiprocessor, so each thread may have eight loads in flight
        run(matrix, sums, *matrix.shape, ROWS=64, COLUMNS=columns, UNROLL=unroll, num_warps=8, maxnreg=80)
    return sums


class _TiedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, vocabulary: int, scale: float
    ) -> Tensor:
        losses, *gradients = loss_and_gradients(hidden, weight, bias, targets, vocabulary, scale=scale)
        ctx.save_for_backward(*gradients)
        return losses.sum().mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *(gradient * grad for gradient in ctx.saved_tensors), None, None, None


def add_rows(table: Tensor, words: Tensor, rows: Tensor, kernels: bool | None = None) -> None:
    """Add each row to table[word]; on a GPU in an undefined order."""
    if not (has_kernels(table.device) if kernels is None else kernels):
        table.index_add_(0, words, rows.to(table.dtype))
        return
    from rrnn.tasks.step_kernels import add_rows as kernel

    width, block = rows.shape[1], 256
    run: Any = kernel[(len(words), -(-width // block))]
    with on_device(table.device):
        run(table, words, rows, width, BLOCK=block, num_warps=2)


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a · b in a dtype that may be wider than theirs."""
    if a.dtype == dtype:
        return a @ b
    if a.is_cuda and "dtype" in torch.ops.aten.mm.overloads():  # since torch 2.8
        return torch.mm(a, b, out_dtype=dtype)  # pyright: ignore[reportCallIssue]
    return (a @ b).to(dtype)
