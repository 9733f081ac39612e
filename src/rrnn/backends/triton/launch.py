"""Launches of generated kernels, with little said to Triton twice.

At every call Triton's own launcher asks of each argument what a kernel may be specialised on, a quarter of the host's
time for a layer. All it can find is dtypes, which numbers are 1 or multiples of 16, and which pointers are. So what it
compiled for the same dtypes and numbers fits again, as long as all pointers are multiples of 16.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from torch import Tensor

from rrnn.backends.triton.plan import Plan

REMEMBERED = 4096  # calls with different numbers, of one module: lengths of sequences vary


class Kernels:
    """The kernels of a generated module, and what Triton has compiled of them."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self,
        name: str,
        grid: tuple[int, int, int],
        tensors: tuple[Tensor | None, ...],
        numbers: tuple[int, ...],
        how: Plan,
        masked: bool | None = None,
    ) -> None:
        """Launch a kernel, whose arguments are pointers, numbers, and constants: `masked`, if it knows masks, and the
        plan's block. The tensors' device is the current one."""
        pointers, dtypes, bits, device = [], [], 0, -1
        for t in tensors:
            if t is None:
                pointers.append(None)
                dtypes.append(None)
            else:
                pointers.append(at := t.data_ptr())
                dtypes.append(t.dtype)
                bits |= at
                device = t.get_device()
        key = (name, device, grid, masked, how.block, how.warps, numbers, *dtypes)
        known = None if bits & 15 else self._compiled.get(key)
        if known is not None:
            run, rest = known
            run(*pointers, *rest)
            return
        kernel = getattr(self.module, name)[grid](*tensors, *numbers, **how.options(MASKED=masked))
        if kernel is not None and not bits & 15:  # (Triton's interpreter compiles nothing.)
            if len(self._compiled) >= REMEMBERED:
                self._compiled.clear()
            constants = (how.block,) if masked is None else (masked, how.block)
            self._compiled[key] = kernel[grid], (*numbers, *constants)
