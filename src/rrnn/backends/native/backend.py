"""Calls of the compiled C kernels: programs behind the common interface, and the affine recurrence.

The affine recurrence, c_t = M_{x_t} c_{t−1} + u_t, is what affine families, ISAN and linear Elman networks among them,
run on the CPU (`rrnn.backends.affine`).
"""

from __future__ import annotations

import struct
import warnings
from ctypes import c_char_p, c_int
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.interface import (
    Backend,
    CellCall,
    Gradients,
    by_sequence,
    by_state,
    cast,
    compute_dtype,
    first_state,
    side_by_side,
    units_contiguous,
)
from rrnn.backends.native import families
from rrnn.backends.native.compiler import find_compiler, load, parallel_address, threads_for
from rrnn.backends.native.render import TYPES, fill, render_backward, render_forward
from rrnn.errors import BackendError
from rrnn.ir import Program, adjoint

# `struct call` of forward.c and backward.c: pointers and longs, eight bytes each. A call that
# packs them into bytes has one argument, which costs a third of what two dozen cost.
_FORWARD, _BACKWARD = struct.Struct("24q"), struct.Struct("32q")


def _function(source: str, name: str) -> Any:
    """Return a function of a compiled source; its one argument is a packed `struct call`."""
    function = getattr(load(source), name)
    function.argtypes, function.restype = [c_char_p], c_int
    return function


@lru_cache(maxsize=512)
def _forward_kernel(program: Program, dtype: torch.dtype) -> Any:
    render = render_forward if program.wide is None else families.render_forward
    return _function(render(program, dtype), "rrnn_forward")


@lru_cache(maxsize=512)
def _backward_kernel(program: Program, dtype: torch.dtype) -> Any:
    render = render_backward if program.wide is None else families.render_backward
    return _function(render(program, dtype), "rrnn_backward")


def _at2(t: Tensor | None) -> tuple[int, ...]:
    """Return a tensor's pointer and its strides of time and batch; zeros for None."""
    return (0, 0, 0) if t is None else (t.data_ptr(), *t.stride()[:2])


def _at3(x: Tensor) -> tuple[int, ...]:
    """Return a tensor's pointer and its strides of time, batch and projection. (Flat rows of programs of families have
    none of the latter, and their kernels read none.)"""
    return (x.data_ptr(), *x.stride()[:3])


@cache
def _why_never(device: torch.device, dtype: torch.dtype) -> str | None:
    """Return why C kernels do not run there, whatever compiler there is; None if they do. (It takes torch half a
    microsecond to tell a device's type.)"""
    if device.type != "cpu":
        return f"it runs on the CPU, not on {device.type}"
    return None if dtype in TYPES else f"it computes with float32, float64 and bfloat16, not {dtype}"


class Native(Backend):
    """The backend that compiles programs to C and runs them on the CPU."""

    name = "native"

    def __init__(self) -> None:
        self._warned = False

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        if why := _why_never(device, dtype):
            return why
        compiler = find_compiler()
        return compiler if isinstance(compiler, str) else None

    def passed_over(self, device: torch.device, dtype: torch.dtype) -> None:
        if self._warned or device.type != "cpu" or dtype not in TYPES:
            return
        if (why := self.why_not(device, dtype)) is None:
            return
        self._warned = True
        warnings.warn(f"rrnn runs its slow reference backend on the CPU: {why}", RuntimeWarning, stacklevel=2)

    def gives_parameter_gradients(self, program: Program) -> bool:
        return program.wide is None

    def forward(self, call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
        program, x, params, mask, inp, every, _, sequences = call
        (steps, batch, units), dtype = call.sizes(), compute_dtype(x.dtype)
        kernel = _forward_kernel(program, x.dtype)
        x, params = units_contiguous(x), cast(params, dtype).contiguous()
        state = first_state(program, batch, units, params, dtype) if state is None else state
        state = by_sequence(state, sequences)
        inp = None if inp is None else units_contiguous(cast(inp, x.dtype))
        final = torch.empty_like(state)
        saved = call.new_saved(state, program.flat.state_count) if every else None
        target = out if side_by_side(out) else torch.empty(out.shape, dtype=out.dtype)
        arguments = _FORWARD.pack(
            *_at3(x),
            *(params.data_ptr(), state.data_ptr()),
            *_at2(mask),
            *_at2(inp),
            *_at2(target),
            *(final.data_ptr(), 0 if saved is None else saved.data_ptr()),
            *(every, steps, batch, units, threads_for(x.numel())),
            parallel_address(),
            0 if sequences is None else sequences.data_ptr(),
        )
        if kernel(arguments):
            raise BackendError("no memory for the states of one block")
        if target is not out:
            out.copy_(target)
        return by_state(final, sequences), saved

    def backward(self, call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
        program, x, params, mask, inp, every, _, sequences = call
        grad_out, grad_state, grad_x, grad_inp, wants_first, _ = grads
        steps, batch, units = call.sizes()
        kernel = _backward_kernel(program, x.dtype)
        x, params, saved = units_contiguous(x), cast(params, saved.dtype).contiguous(), saved.contiguous()
        grad_out = units_contiguous(cast(grad_out, x.dtype))
        inp = None if inp is None else units_contiguous(cast(inp, x.dtype))
        grad_state = None if grad_state is None else by_sequence(grad_state, sequences)
        first = by_sequence(saved.new_empty(saved.shape[1], batch, units), sequences)
        if program.wide is None:
            grad_params = torch.empty_like(params)
        else:  # of per-unit values, for each sequence
            grad_params = params.new_empty(batch, adjoint(program).unit_rows, units)
        into_x, into_inp = units_contiguous(grad_x), None if grad_inp is None else units_contiguous(grad_inp)
        arguments = _BACKWARD.pack(
            *_at3(x),
            params.data_ptr(),
            *_at2(mask),
            *_at2(inp),
            *(saved.data_ptr(), every),
            *_at2(grad_out),
            *(0 if grad_state is None else grad_state.data_ptr(), first.data_ptr()),
            *_at3(into_x),
            *_at2(into_inp),
            grad_params.data_ptr(),
            *(steps, batch, units, threads_for(x.numel())),
            parallel_address(),
            0 if sequences is None else sequences.data_ptr(),
        )
        if kernel(arguments):
            raise BackendError("no memory for the states of one segment of time: lower save_every")
        if into_x is not grad_x:
            grad_x.copy_(into_x)
        if into_inp is not grad_inp and grad_inp is not None and into_inp is not None:
            grad_inp.copy_(into_inp)
        if program.wide is not None:  # the epilogue is left to torch
            grad_params = grad_params.sum(0)
        return grad_params, by_state(first, sequences) if wants_first else None


_AFFINE = struct.Struct("15q")
MAX_SIZE = 1024
"""Larger states are left to torch: their products no longer wait for the start of a loop."""


@lru_cache(maxsize=128)
def _affine_kernel(size: int, dtype: torch.dtype) -> Any:
    return _function(fill("affine.c", real=TYPES[dtype].real, D=size), "rrnn_affine")


def affine_scan(symbols: Tensor, columns: Tensor, u: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """Return the states (T, B, d) of symbols (T, B), u (T, B, d) and first (B, d); time runs backwards if `reverse`.
    `columns` (S, d, d) holds the matrices transposed. A symbol of −1 stands for the identity."""
    steps, batch, size = u.shape
    columns, first, u = columns.contiguous(), first.contiguous(), u.contiguous()
    out = torch.empty_like(u)
    if not u.numel():
        return out

    def walk(t: Tensor) -> tuple[int, int, int]:
        """Return where time begins, and the strides of time and batch."""
        begin, stride = t.data_ptr(), t.stride(0)
        return (
            (begin + (steps - 1) * stride * t.element_size() if reverse else begin),
            (-stride if reverse else stride),
            t.stride(1),
        )

    call = _AFFINE.pack(
        *walk(symbols),
        columns.data_ptr(),
        *walk(u),
        first.data_ptr(),
        *walk(out),
        *(steps, batch, threads_for(u.numel() * size), parallel_address()),
    )
    _affine_kernel(size, u.dtype)(call)
    return out
