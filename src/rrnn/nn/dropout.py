"""Dropout of sequences: a mask for every element, a mask for all steps of a sequence, or both at once.

On a GPU each application is one kernel, and its gradient the same kernel: masks are made where they are applied, from
a seed and an element's place, so that nothing but the seed is kept. Elsewhere, under `torch.compile` and `torch.func`,
and with the reference backend, torch ops say the same thing with random numbers of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.backends.interface import captured, units_contiguous
from rrnn.backends.registry import chosen, get_backend
from rrnn.backends.triton.backend import on_device

BLOCK = 256  # units of a program, one per thread: with several, random numbers would move between threads
GRID = 65535  # the most programs along a grid's second axis


class Drops:
    """The dropouts of one pass over a batch: `drops(x, each, shared)` for as many x as there are.

    `generator` is torch's default one if left out. On a GPU all masks of a pass come from one seed, drawn from it on
    the device when the first mask is needed: inside a CUDA graph, every replay draws a new one. Or `seed` is given: a
    tensor of one int64 on the device, which its owner changes from pass to pass.
    """

    def __init__(self, generator: torch.Generator | None = None, seed: Tensor | None = None) -> None:
        self.generator = generator
        self._seeds: dict[torch.device, Tensor] = {} if seed is None else {seed.device: seed}
        self._masks = 0

    @staticmethod
    def current() -> Drops:
        """Return the dropouts of the enclosing `dropping`, or new ones."""
        if captured():
            return Drops()
        return _CURRENT.get() or Drops()

    def __call__(self, x: Tensor, each: float = 0.0, shared: float = 0.0) -> Tensor:
        """Return x (T, …) with elements dropped with probability `each`, and with probability `shared` all elements at
        a place of x[0], at every step. What is left is scaled up so that the expectation stays."""
        if not (each or shared):
            return x
        if not _has_kernel(x):
            x = _torch_dropout(x, each, self.generator)
            return x * _torch_dropout(x.new_ones(x.shape[1:]), shared, self.generator) if shared else x
        if not x.numel():
            return x
        self._masks += 1
        how = (self._seed(x.device), self._masks, each, shared)
        if torch.is_grad_enabled() and x.requires_grad:
            return _Dropped.apply(x, *how)  # pyright: ignore[reportReturnType]
        return _launch(x, *how)

    def _seed(self, device: torch.device) -> Tensor:
        if device not in self._seeds:
            seed = torch.empty(1, dtype=torch.int64, device=device)
            self._seeds[device] = seed.random_(generator=self.generator)
        return self._seeds[device]


_CURRENT: ContextVar[Drops | None] = ContextVar("drops", default=None)


@contextmanager
def dropping(drops: Drops) -> Iterator[None]:
    """Let all models inside draw their dropout from `drops`: masks of one seed."""
    token = _CURRENT.set(drops)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def _torch_dropout(x: Tensor, p: float, generator: torch.Generator | None) -> Tensor:
    """Drop as `F.dropout` does, which takes no generator; on a CPU with the same numbers."""
    if not p:
        return x
    if generator is None:
        return F.dropout(x, p)
    keep = torch.empty_like(x).bernoulli_(1 - p, generator=generator)
    return x * keep.div_(1 - p or 1.0)


def _has_kernel(x: Tensor) -> bool:
    """Return whether the Triton backend is in force, and x is a tensor that its kernels may read."""
    if captured():
        return False
    name = chosen()
    return (
        (name == "triton" or (name == "auto" and x.is_cuda))
        and get_backend("triton").why_not(x.device, x.dtype) is None
        and x.dim() in (2, 3)
        and type(x) is Tensor
        and not torch._C._are_functorch_transforms_active()
        and torch.autograd.forward_ad._current_level < 0
    )


def _limit(p: float) -> int:
    """Return the int32 that a share p of all int32s lies below."""
    return min(round(p * 2**32), 2**32 - 1) - 2**31


def _launch(x: Tensor, seed: Tensor, number: int, each: float, shared: float) -> Tensor:
    """Run the kernel: mask number `number` of a seed, on x."""
    from rrnn.nn.dropout_kernel import STEPS, dropped

    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x = units_contiguous(x if x.dim() == 3 else x.unsqueeze(1))
    steps, batch, units = x.shape
    if x.stride(1) == units:  # as the units of one long sequence, so that no block ends in the middle
        batch, units = 1, batch * units
    blocks = -(-units // BLOCK)
    run: Any = dropped[(-(-steps // STEPS.value) * batch, min(blocks, GRID), -(-blocks // GRID))]
    with on_device(x.device):
        run(
            x,
            out,
            seed,
            steps,
            batch,
            units,
            x.stride(0),
            x.stride(1),
            number,
            _limit(each),
            _limit(shared),
            0.0 if 1.0 in (each, shared) else 1 / ((1 - each) * (1 - shared)),
            EACH=each > 0,
            SHARED=shared > 0,
            BLOCK=BLOCK,
            num_warps=BLOCK // 32,
            enable_fp_fusion=True,  # set explicitly: Triton's default is about to change
        )
    return out


class _Dropped(torch.autograd.Function):
    """Dropout by the kernel. It is linear in x, so its gradient is itself, and so is the gradient of that."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor, number: int, each: float, shared: float) -> Tensor:
        ctx.save_for_backward(seed)
        ctx.how = (number, each, shared)
        return _launch(x, seed, *ctx.how)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (seed,) = ctx.saved_tensors
        return _Dropped.apply(grad, seed, *ctx.how), None, None, None, None
