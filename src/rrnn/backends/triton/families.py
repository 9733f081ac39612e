"""Launch the Triton kernels of programs of families."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from rrnn.backends.cache import cached
from rrnn.backends.interface import CellCall, Gradients, by_sequence, by_state, first_state
from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_kernels import render
from rrnn.backends.triton.family_loop import kept
from rrnn.backends.triton.family_text import padded
from rrnn.ir import Program, adjoint
from rrnn.ir.program import Families

TILE = 512
"""About how many numbers of a family a warp has: 16 a thread."""
WARPS, STAGES = 1, 2
"""Warps of a Triton program, and stages of its pipeline."""


@lru_cache(maxsize=256)
def _module(program: Program, every: int, packed: bool) -> ModuleType:
    source = render(program, every, packed)
    path = cached(source, ".py", source.encode)
    spec = importlib.util.spec_from_file_location(f"rrnn_generated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def block_of(wide: Families, units: int) -> tuple[int, int]:
    """Return (units of a block, warps) for this many units: a tile of the widest family has TILE numbers a warp."""
    widest = max((padded(size) for _, size in wide.sizes), default=1)
    block = max(1, min(padded(max(1, units // wide.heads)), WARPS * TILE // widest, WARPS * 32))
    return block, WARPS


def _options(wide: Families, units: int, masked: bool) -> dict[str, Any]:
    """Return the constants of a launch."""
    block, warps = block_of(wide, units)
    full = units // wide.heads % block == 0
    return {
        "MASKED": masked,
        "BLOCK": block,
        "FULL": full,
        "STAGES": STAGES,
        "num_warps": warps,
        "enable_fp_fusion": True,
    }


def interval(program: Program) -> int:
    """Return the interval at which states are saved: as many steps as the backward kernel keeps."""
    return kept(program)


def _rows(x: Tensor) -> Tensor:
    """Return a tensor with its last axis side by side, as kernels read it."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def _shared(call: CellCall) -> Tensor:
    """Return what the units of a head or group share of x, as float32: each thread reads all of it, and a conversion
    there would take as many instructions as a tenth of the recurrence."""
    assert call.program.wide is not None
    table = Addresses(call.program.wide, call.program.wide.projections)
    return call.x[..., table.rows * call.units :].float()


def forward(call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
    """Run a program of families on Triton, as `Backend.forward` describes it."""
    program, x, params, mask, inp, every, _, packed = call
    assert program.wide is not None
    steps, rows, batch, units = *x.shape[:2], call.batch, call.units
    x, common, params = _rows(x), _rows(_shared(call)), params.contiguous()
    inp = None if inp is None else _rows(inp)
    state = first_state(program, batch, units, params) if state is None else state.float()
    saved = call.new_saved(state, state.shape[0])
    if not (steps and batch and units):
        return state.clone(), saved
    state = by_sequence(state, packed)
    final = torch.empty_like(state)
    target = out if out.stride(-1) == 1 else torch.empty_like(out, memory_format=torch.contiguous_format)
    how, heads = _options(program.wide, units, mask is not None), program.wide.heads
    grid = (heads * -(-(units // heads) // how["BLOCK"]), batch, 1)
    bits = x if mask is None else mask.view(torch.uint8)
    _module(program, every, packed is not None).forward[grid](
        *(
            x,
            common,
            params,
            state,
            bits,
            x if inp is None else inp,
            target,
            final,
            final if saved is None else saved,
            *(() if packed is None else (packed,)),
        ),
        *(
            *x.stride()[:2],
            *common.stride()[:2],
            *_strides(mask),
            *_strides(inp),
            *target.stride()[:2],
            steps,
            rows,
            units,
            steps,
            0,
        ),
        **how,
    )
    if target is not out:
        out.copy_(target)
    return by_state(final, packed), saved


def _strides(t: Tensor | None) -> tuple[int, int]:
    return (0, 0) if t is None else (t.stride(0), t.stride(1))


def backward(call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
    """Run the gradient of a program of families, as `Backend.backward` describes it; per-unit values get gradients."""
    program, x, params, mask, inp, every, _, packed = call
    wide = program.wide
    assert wide is not None
    steps, columns, batch, units = *x.shape[:2], call.batch, call.units
    x, common, params, saved = _rows(x), _rows(_shared(call)), params.contiguous(), saved.contiguous()
    inp, go = None if inp is None else _rows(inp), _rows(grads.out)
    shape = (program.flat.state_count, batch, units)
    gfinal = saved.new_zeros(shape) if grads.state is None else grads.state.float()
    rows = adjoint(program).unit_rows
    if not (steps and batch and units):
        grads.x.zero_()
        return saved.new_zeros(rows, units), gfinal.clone() if grads.wants_first else None
    gfinal = by_sequence(gfinal, packed)
    first = torch.empty_like(gfinal)
    how = _options(wide, units, mask is not None)
    blocks = -(-(units // wide.heads) // how["BLOCK"])
    table = Addresses(wide, wide.projections)
    grouped = any(e.per == "group" for e in wide.projections)
    slots = blocks * (wide.heads // wide.groups if grouped else 1)
    # What heads share is summed in the first slots alone, and packed sequences may leave steps out.
    new = saved.new_zeros if grouped or packed is not None else saved.new_empty
    shared = new(slots, steps, columns, table.shared)
    sums = saved.new_empty(batch, rows, units)
    into = (
        grads.x
        if grads.x.stride(-1) == 1
        else torch.empty_like(grads.x, memory_format=torch.contiguous_format)
    )
    into_inp = None if grads.inp is None else _rows(grads.inp)
    bits = x if mask is None else mask.view(torch.uint8)
    _module(program, every, packed is not None).backward[wide.heads * blocks, batch, 1](
        *(
            x,
            common,
            params,
            bits,
            x if inp is None else inp,
            saved,
            go,
            gfinal,
            into,
            into if into_inp is None else into_inp,
        ),
        *(first, sums, shared, *(() if packed is None else (packed,))),
        *(
            *x.stride()[:2],
            *common.stride()[:2],
            *_strides(mask),
            *_strides(inp),
            *go.stride()[:2],
            *into.stride()[:2],
        ),
        *(*_strides(into_inp), steps, columns, units, steps, 0),
        **how,
        PRECISION="tf32x3" if x.dtype == torch.float32 else "tf32",
    )
    if table.shared:
        into[..., table.rows * units :] = shared.sum(0)
    if into is not grads.x:
        grads.x.copy_(into)
    if into_inp is not None and grads.inp is not None and into_inp is not grads.inp:
        grads.inp.copy_(into_inp)
    return sums.sum(0), by_state(first, packed) if grads.wants_first else None
