"""Generated C behind the common interface."""

from __future__ import annotations

import os
import warnings
from ctypes import c_int, c_long, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.base import Backend
from rrnn.backends.native.compiler import Compiler, find_compiler, load
from rrnn.backends.native.render import TYPES, render_backward, render_forward
from rrnn.ir import Program, adjoint

_in_forked_child = False


def _after_fork() -> None:
    global _in_forked_child
    _in_forked_child = True  # libgomp's threads do not survive a fork: it would wait for them for ever


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

SMALL = 1 << 14  # numbers to compute: below this, waking threads costs more than it gains


def _threads(work: int) -> int:
    return 1 if _in_forked_child or work < SMALL else torch.get_num_threads()


_FORWARD = [c_void_p, *[c_long] * 3, c_void_p, c_void_p, c_void_p, *[c_long] * 2, c_void_p, *[c_long] * 2]
_FORWARD += [c_void_p, *[c_long] * 2, c_void_p, c_void_p, *[c_long] * 4, c_int]
_BACKWARD = [c_void_p, *[c_long] * 3, c_void_p, c_void_p, *[c_long] * 2, c_void_p, *[c_long] * 2]
_BACKWARD += [c_void_p, c_long, c_void_p, *[c_long] * 2, c_void_p, c_void_p, *[c_long] * 3]
_BACKWARD += [c_void_p, *[c_long] * 2, c_void_p, *[c_long] * 3, c_int]


@lru_cache(maxsize=512)
def _forward_kernel(program: Program, dtype: torch.dtype) -> Any:
    kernel = load(render_forward(program, dtype)).rrnn_forward
    kernel.argtypes, kernel.restype = _FORWARD, None
    return kernel


@lru_cache(maxsize=512)
def _backward_kernels(program: Program, dtype: torch.dtype) -> tuple[Any, Any]:
    library = load(render_backward(program, dtype))
    library.rrnn_backward.argtypes, library.rrnn_backward.restype = _BACKWARD, None
    library.rrnn_reduce.argtypes, library.rrnn_reduce.restype = [c_void_p, c_void_p, c_long, c_long], None
    return library.rrnn_backward, library.rrnn_reduce


def _rows(t: Tensor) -> Tensor:
    """Units must lie side by side; everything else is read where it is."""
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def _at(t: Tensor | None, *dims: int) -> list[Any]:
    """Pointer and strides, zeros for None."""
    return [None, *[0] * len(dims)] if t is None else [t.data_ptr(), *(t.stride(d) for d in dims)]


class Native(Backend):
    name = "native"

    def __init__(self) -> None:
        self._warned = False

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        if device.type != "cpu":
            return f"it runs on the CPU, not on {device.type}"
        if dtype not in TYPES:
            return f"it computes with float32, float64 and bfloat16, not {dtype}"
        compiler = find_compiler()
        if isinstance(compiler, Compiler):
            return None
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"rrnn uses its slow reference on the CPU: {compiler}", RuntimeWarning, stacklevel=2
            )
        return compiler

    def forward(
        self,
        program: Program,
        x: Tensor,
        params: Tensor,
        state: Tensor,
        mask: Tensor | None,
        inp: Tensor | None,
        every: int,
        out: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        steps, batch, _, units = x.shape
        kernel = _forward_kernel(program, x.dtype)
        x, params, state = _rows(x), params.contiguous(), state.contiguous()
        inp = None if inp is None else _rows(inp.to(x.dtype))
        final = torch.empty_like(state)
        saved = None
        if every:
            saved = state.new_empty((steps + every - 1) // every, *state.shape)
        kernel(
            *_at(x, 0, 1, 2),
            params.data_ptr(),
            state.data_ptr(),
            *_at(mask, 0, 1),
            *_at(inp, 0, 1),
            *_at(out, 0, 1),
            final.data_ptr(),
            None if saved is None else saved.data_ptr(),
            every,
            steps,
            batch,
            units,
            _threads(x.numel()),
        )
        return final, saved

    def backward(
        self,
        program: Program,
        x: Tensor,
        params: Tensor,
        mask: Tensor | None,
        inp: Tensor | None,
        every: int,
        saved: Tensor,
        grad_out: Tensor,
        grad_state: Tensor,
        grad_x: Tensor,
        grad_inp: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        steps, batch, _, units = x.shape
        kernel, reduce = _backward_kernels(program, x.dtype)
        x, params, saved, grad_out = (
            _rows(x),
            params.contiguous(),
            saved.contiguous(),
            _rows(grad_out.to(x.dtype)),
        )
        inp = None if inp is None else _rows(inp.to(x.dtype))
        first = grad_state.clone(memory_format=torch.contiguous_format)
        count = len(adjoint(program).units)
        partial = first.new_empty(batch, count, units)
        kernel(
            *_at(x, 0, 1, 2),
            params.data_ptr(),
            *_at(mask, 0, 1),
            *_at(inp, 0, 1),
            saved.data_ptr(),
            every,
            *_at(grad_out, 0, 1),
            first.data_ptr(),
            *_at(grad_x, 0, 1, 2),
            *_at(grad_inp, 0, 1),
            partial.data_ptr(),
            steps,
            batch,
            units,
            _threads(x.numel()),
        )
        total = first.new_empty(count, units)
        reduce(partial.data_ptr(), total.data_ptr(), batch, count * units)
        return total, first
