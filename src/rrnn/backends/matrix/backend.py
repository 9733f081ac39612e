"""The matrix backend: families whose weights are separable, in chunks of time as matrix products."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from rrnn.backends.interface import Backend, CellCall, Gradients, compute_dtype, first_state
from rrnn.backends.matrix import passes, schedule
from rrnn.backends.matrix.factors import Tiles
from rrnn.backends.matrix.plan import LENGTH, on_cpu, pays, tiles_of
from rrnn.backends.registry import chosen, get_backend
from rrnn.backends.triton.backend import gpu_of, installed, on_device
from rrnn.ir import Program
from rrnn.ir.separable import separable

_Result = TypeVar("_Result")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the kernels on tensor cores run here; elsewhere torch's matrix products do. (Triton's interpreter
    runs them on a CPU, for tests, if this backend is asked for by name.)"""
    interpreted = device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1" and chosen() == "matrix"
    return installed() and (device.type == "cuda" or interpreted) and dtype != torch.float64


class Matrix(Backend):
    """The backend that runs separable families as matrix products: on tensor cores, or with torch's products."""

    name = "matrix"

    def __init__(self) -> None:
        self._refused: set[Tiles] = set()

    def why_not(self, device: torch.device, dtype: torch.dtype, program: Program | None = None) -> str | None:
        if dtype not in DTYPES:
            return f"it computes with floating-point numbers, not {dtype}"
        found = None if program is None else separable(program)
        return f"the family is not separable: {found}" if isinstance(found, str) else None

    def pays(self, device: torch.device, dtype: torch.dtype, program: Program, steps: int | None) -> bool:
        if device.type == "cpu" and get_backend("native").why_not(device, dtype, program) is None:
            return False  # compiled loops are faster (benchmarks/matrix_or_scalar.py)
        found = separable(program)
        return not isinstance(found, str) and pays(found, device, dtype, steps)

    def gives_parameter_gradients(self, program: Program) -> bool:
        return True

    def interval(self, x: Tensor, programs: Sequence[Program], widths: Sequence[int]) -> int | None:
        return max(
            self._tiles(p, x, width, True)[0].segment for p, width in zip(programs, widths, strict=True)
        )

    def forward(self, call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
        program, dtype = call.program.flat, compute_dtype(call.x.dtype)
        empty = not (call.x.shape[0] and call.batch and call.units)
        if state is None and (any(program.first_states) or empty):
            state = first_state(program, call.batch, call.units, call.params, dtype)
        state = None if state is None else state.contiguous()
        if state is not None and empty:
            return state.clone(), call.new_saved(state, state.shape[0])
        return self._run(call, lambda tiles: passes.forward(call, state, out, tiles))

    def backward(self, call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
        if not (call.x.shape[0] and call.batch and call.units):
            grads.x.zero_()
            first = (
                saved.new_zeros(saved.shape[1], call.batch, call.units)
                if grads.state is None
                else grads.state
            )
            return torch.zeros_like(call.params), first if grads.wants_first else None
        return self._run(call, lambda tiles: passes.backward(call, saved, grads, tiles))

    def _run(self, call: CellCall, run: Callable[[Tiles], _Result]) -> _Result:
        """Run a pass with the first tiles that the GPU takes: what Triton needs of shared memory is known when it has
        compiled a kernel, and an estimate before."""
        choices = self._tiles(call.program, call.x, call.units, bool(call.every))
        with on_device(call.x.device), torch.no_grad():
            for tiles in choices[:-1]:
                if tiles._replace(segment=0) in self._refused:
                    continue
                try:
                    return run(tiles)
                except Exception as error:
                    if type(error).__name__ != "OutOfResources":
                        raise
                    self._refused.add(tiles._replace(segment=0))
            return run(choices[-1])

    def _tiles(self, program: Program, x: Tensor, units: int, training: bool) -> list[Tiles]:
        """Return the sizes to try, the best first."""
        parts, wide = schedule.parts_of(program), program.wide
        assert wide is not None
        size = parts.size * (2 if parts.turns else 1)
        far = max(x.stride(0), x.shape[1] * max(units, size * wide.heads)) * LENGTH >= 2**31
        if far or not has_kernels(x.device, x.dtype):  # kernels count the numbers of a chunk with 32 bits
            return [on_cpu()]
        steps, columns = x.shape[0], x.shape[1] * wide.heads
        sizes = size, units // wide.heads, parts.decay
        return tiles_of(*sizes, x.dtype, gpu_of(x.device), steps, columns, training)
