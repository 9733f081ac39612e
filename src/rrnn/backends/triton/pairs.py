"""Launch the Triton kernels of programs with arcs from each state of a family to each."""

from __future__ import annotations

import math
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from rrnn.backends.interface import CellCall, Gradients, by_sequence, by_state, first_state
from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_text import padded
from rrnn.backends.triton.module import imported
from rrnn.backends.triton.pair_kernels import render
from rrnn.ir import Program, adjoint

TILE = 1024
"""About how many numbers a tile has."""
MOST = 16384
"""The largest matrix of states that a tile may hold: it takes a quarter of a multiprocessor's registers."""


@lru_cache(maxsize=256)
def _module(program: Program, every: int, packed: bool) -> ModuleType:
    return imported(render(program, every, packed))


def widest(program: Program) -> int:
    """Return how many numbers the widest value of a unit has: of a family, or of a pair of families."""
    wide = program.flat.wide
    assert wide is not None
    own = (math.prod(padded(wide.sizes[f][1]) for f in over) for over in program.flat.over)
    return max(*(padded(size) for _, size in wide.sizes), *own, 1)


def block_of(program: Program, units: int) -> tuple[int, int]:
    """Return (units of a block, warps) for this many units: a tile of the widest family has about TILE numbers."""
    wide, most = program.wide, widest(program)
    assert wide is not None
    block = max(1, min(padded(max(1, units // wide.heads)), TILE // most, 128))
    return block, max(1, min(4, block * most // 128))


def why_not(program: Program) -> str | None:
    """Return why these kernels cannot run a program, or None."""
    step = adjoint(program).step if program.semiring.has_gradient else program
    if step.has_pairs and (most := widest(step)) > MOST:
        return f"its matrices between states have {most} numbers, padded to powers of two, and a tile at most {MOST}"
    return None


def _rows(x: Tensor) -> Tensor:
    """Return a tensor with its last axis side by side, as kernels read it."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def forward(call: CellCall, state: Tensor | None, out: Tensor) -> tuple[Tensor, Tensor | None]:
    """Run a program on Triton, as `Backend.forward` describes it."""
    program, x, params, mask, inp, every, _, packed = call
    assert program.wide is not None
    steps, rows, batch, units = *x.shape[:2], call.batch, call.units
    x, params = _rows(x), params.contiguous()
    inp = None if inp is None else _rows(inp)
    state = first_state(program, batch, units, params) if state is None else state.float()
    saved = call.new_saved(state, state.shape[0])
    if not (steps and batch and units):
        return state.clone(), saved
    state = by_sequence(state, packed)
    final = torch.empty_like(state)
    target = out if out.stride(-1) == 1 else torch.empty_like(out, memory_format=torch.contiguous_format)
    block, warps = block_of(program, units)
    heads = program.wide.heads
    grid = (heads * -(-(units // heads) // block), batch, 1)
    bits = x if mask is None else mask.view(torch.uint8)
    _module(program, every, packed is not None).forward[grid](
        *(
            x,
            params,
            state,
            bits,
            x if inp is None else inp,
            target,
            final,
            final if saved is None else saved,
            *(() if packed is None else (packed,)),
        ),
        *(*x.stride()[:2], *_strides(mask), *_strides(inp), *target.stride()[:2], steps, rows, units),
        MASKED=mask is not None,
        BLOCK=block,
        num_warps=warps,
    )
    if target is not out:
        out.copy_(target)
    return by_state(final, packed), saved


def _strides(t: Tensor | None) -> tuple[int, int]:
    return (0, 0) if t is None else (t.stride(0), t.stride(1))


def backward(call: CellCall, saved: Tensor, grads: Gradients) -> tuple[Tensor, Tensor | None]:
    """Run the gradient of a program, as `Backend.backward` describes it; per-unit values get gradients."""
    program, x, params, mask, inp, every, _, packed = call
    wide = program.wide
    assert wide is not None
    steps, columns, batch, units = *x.shape[:2], call.batch, call.units
    x, params, saved = _rows(x), params.contiguous(), saved.contiguous()
    inp, go = None if inp is None else _rows(inp), _rows(grads.out)
    shape = (program.flat.state_count, batch, units)
    gfinal = saved.new_zeros(shape) if grads.state is None else grads.state.float()
    rows = adjoint(program).unit_rows
    if not (steps and batch and units):
        grads.x.zero_()
        return saved.new_zeros(rows, units), gfinal.clone() if grads.wants_first else None
    gfinal = by_sequence(gfinal, packed)
    first = torch.empty_like(gfinal)
    block, warps = block_of(adjoint(program).step, units)
    blocks = -(-(units // wide.heads) // block)
    table = Addresses(wide, wide.projections)
    slots = blocks * (wide.heads // wide.groups if any(e.per == "group" for e in wide.projections) else 1)
    shared = saved.new_zeros(slots, steps, columns, table.shared)
    sums = saved.new_empty(batch, rows, units)
    scratch = saved.new_empty(every if packed is not None else min(every, steps), *shape)
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
            params,
            bits,
            x if inp is None else inp,
            saved,
            go,
            gfinal,
            into,
            into if into_inp is None else into_inp,
        ),
        *(first, sums, shared, scratch, *(() if packed is None else (packed,))),
        *(*x.stride()[:2], *_strides(mask), *_strides(inp), *go.stride()[:2], *into.stride()[:2]),
        *(*_strides(into_inp), steps, columns, units),
        MASKED=mask is not None,
        BLOCK=block,
        num_warps=warps,
    )
    if table.shared:
        into[..., table.rows * units :] = shared.sum(0)
    if into is not grads.x:
        grads.x.copy_(into)
    if into_inp is not None and grads.inp is not None and into_inp is not grads.inp:
        grads.inp.copy_(into_inp)
    return sums.sum(0), by_state(first, packed) if grads.wants_first else None
