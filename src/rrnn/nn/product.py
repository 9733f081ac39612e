"""The matrix product of a layer: `F.linear`, except in four cases.

In training on AMD processors, torch's own product (MKL) is 5 to 25 % slower than oneDNN's, which torch also contains;
most where rows are not a multiple of a vector, such as the paper's 650 units. oneDNN is used where it was measured to
be faster; results differ by rounding only.

Without gradients, the product of one sequence that is expanded to a batch is computed once, and expanded.

On a GPU a training loop can have the gradients of weights computed on another stream (`weight_gradients`). Otherwise
the product can be part of the cells' node in autograd's graph (`in_one_node`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rrnn.backends.interface import captured
from rrnn.backends.native.compiler import cpu

WORTH = 1 << 26
"""Multiplications: below this, the product is done before oneDNN has rearranged its weight."""
MANY_ROWS = 2048
"""Rows: above this, MKL computes the weight's gradient, since oneDNN would transpose a copy of the output's."""

Run = Callable[..., Tensor]
_RUN: ContextVar[Run | None] = ContextVar("weight_gradients", default=None)


@contextmanager
def weight_gradients(run: Run) -> Iterator[None]:
    """Let products on a GPU inside have the gradient of a weight computed by run(function, *tensors), which returns
    function(*tensors), maybe from another stream.

    Whoever asks autograd for these gradients waits for that stream before reading them. Each weight must come into one
    product only, since autograd would add up several gradients at once.
    """
    token = _RUN.set(run)
    try:
        yield
    finally:
        _RUN.reset(token)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return x (T, B, I) times weightᵀ (I, rows)."""
    if captured():
        return F.linear(x, weight)
    if not torch.is_grad_enabled():
        is_expanded = x.dim() == 3 and x.shape[1] > 1 and x.stride(1) == 0 and type(x) is Tensor
        return F.linear(x[:, :1], weight).expand(-1, x.shape[1], -1) if is_expanded else F.linear(x, weight)
    if x.is_cuda and weight.is_leaf and weight.requires_grad and (run := _RUN.get()) is not None:
        return _SideStreamLinear.apply(x, weight, run)  # pyright: ignore[reportReturnType]
    if x.numel() * weight.shape[0] < WORTH or not _plain(x, weight) or not _onednn_gains():
        return F.linear(x, weight)
    return _OneDnnLinear.apply(x, weight)  # pyright: ignore[reportReturnType]


def in_one_node(x: Tensor, weight: Tensor) -> bool:
    """Return whether the product is left to `rrnn.ops.rational`, whose node of autograd's graph it is then part of: on
    a GPU, where calls can take the host longer than the device, and where nothing else has a say in the product."""
    return (
        x.is_cuda
        and not captured()
        and torch.is_grad_enabled()
        and x.is_contiguous()  # F.linear keeps the copy that it makes of another layout
        and x.dtype == weight.dtype
        and type(x) in (Tensor, nn.Parameter)
        and type(weight) in (Tensor, nn.Parameter)
        and _RUN.get() is None
        and not torch.is_autocast_enabled("cuda")
        and not torch._C._are_functorch_transforms_active()
    )


def _plain(x: Tensor, weight: Tensor) -> bool:
    """Return whether a foreign kernel may read these tensors: float32 on the CPU, no subclass, no transform or cast
    under way."""
    return (
        (x.requires_grad or weight.requires_grad)
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and type(x) is Tensor
        and type(weight) in (Tensor, nn.Parameter)
        and weight.is_contiguous()
        and torch.backends.mkldnn.enabled  # pyright: ignore[reportAttributeAccessIssue]
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and torch.autograd.forward_ad._current_level < 0
    )


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return a bᵀ, computed by oneDNN; b may be a transposed view."""
    return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


@cache
def _onednn_gains() -> bool:
    """Return whether oneDNN was measured to be faster on this kind of processor, and this torch has the (private)
    operation and computes what we expect with it."""
    if "AMD" not in cpu() or not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return False
    a, b = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(3, 4)
    try:
        return torch.equal(_product(a, b.T), a @ b) and torch.equal(_product(b.T, a), b.T @ a.T)
    except (AttributeError, RuntimeError, TypeError):
        return False


class _OneDnnLinear(torch.autograd.Function):
    """The product computed by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows, inputs = grad.flatten(0, -2), x.flatten(0, -2).contiguous()
        twice = torch.is_grad_enabled()  # create_graph=True: operations that have gradients
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight if twice else _product(grad, weight.T)
        if ctx.needs_input_grad[1]:
            many = rows.shape[0] > MANY_ROWS
            grad_weight = rows.T @ inputs if twice or many else _product(rows.T, inputs.T)
        return grad_x, grad_weight


class _SideStreamLinear(torch.autograd.Function):
    """The product whose weight gradient is computed by `run`, maybe on another stream."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, run: Run) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.run = run
        return F.linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight = ctx.saved_tensors
        grad_weight = ctx.run(lambda y, x: y.flatten(0, -2).T @ x.flatten(0, -2), grad, x)
        return grad @ weight if ctx.needs_input_grad[0] else None, grad_weight, None
