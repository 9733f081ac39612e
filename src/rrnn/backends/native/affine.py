"""The affine recurrence c_t = M_{x_t} c_{t−1} + u_t in C: what ISAN and linear Elman networks run on the CPU."""

from __future__ import annotations

import struct
from ctypes import c_char_p, c_int
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.native.compiler import load
from rrnn.backends.native.render import TYPES, fill
from rrnn.backends.native.threads import parallel_address, threads_for

_CALL = struct.Struct("15q")
MAX_SIZE = 1024
"""Larger states are left to torch: their products no longer wait for the start of a loop."""


@lru_cache(maxsize=128)
def _kernel(size: int, dtype: torch.dtype) -> Any:
    kernel = load(fill("affine.c", real=TYPES[dtype].real, D=size)).rrnn_affine
    kernel.argtypes, kernel.restype = [c_char_p], c_int
    return kernel


def affine_scan(symbols: Tensor, columns: Tensor, u: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The states (T, B, d) of symbols (T, B), u (T, B, d) and first (B, d); time runs backwards if `reverse`.
    `columns` (S, d, d) holds the matrices transposed. A symbol of −1 stands for the identity."""
    steps, batch, size = u.shape
    columns, first, u = columns.contiguous(), first.contiguous(), u.contiguous()
    out = torch.empty_like(u)
    if not u.numel():
        return out

    def walk(t: Tensor) -> tuple[int, int, int]:
        """Where time begins, and the strides of time and batch."""
        begin, stride = t.data_ptr(), t.stride(0)
        return (
            (begin + (steps - 1) * stride * t.element_size() if reverse else begin),
            (-stride if reverse else stride),
            t.stride(1),
        )

    call = _CALL.pack(
        *walk(symbols),
        columns.data_ptr(),
        *walk(u),
        first.data_ptr(),
        *walk(out),
        *(steps, batch, threads_for(u.numel() * size), parallel_address()),
    )
    _kernel(size, u.dtype)(call)
    return out
