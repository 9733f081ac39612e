"""The Triton kernel of `rrnn.nn.dropout`: both masks made and applied on the way, forwards and backwards alike."""

# Triton's language, not Python's:
# pyright: reportPossiblyUnboundVariable=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl

STEPS = 4  # of a program: as many as Philox gives numbers at once
ROUNDS = tl.constexpr(7)
"""Of Philox 4x32: the fewest that pass BigCrush (Salmon et al., 2011)."""


@triton.jit
def _factor(bits, limit, scale):
    """`scale` where random bits, as an int32, reach the limit; else 0."""
    return tl.where(bits.to(tl.int32, bitcast=True) >= limit, scale, 0.0)


@triton.jit
def _read(x, t, steps, stride, i, left):
    left = tl.where(t < steps, left, 0)
    return tl.load(x + t.to(tl.int64) * stride + i, mask=i < left, other=0.0).to(tl.float32)


@triton.jit
def _write(out, value, t, steps, stride, i, left):
    left = tl.where(t < steps, left, 0)
    tl.store(out + t.to(tl.int64) * stride + i, value.to(out.dtype.element_ty), mask=i < left)


@triton.jit(do_not_specialize=["number", "each_limit", "shared_limit"])
def dropped(
    x,
    out,
    seed,
    steps,
    batch,
    units,
    x_step,
    x_row,
    number,
    each_limit,
    each_scale,
    shared_limit,
    shared_scale,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = x · mask (T, B, D) · mask (B, D). One program: four steps of a sequence's block of units.

    An element's random number depends on the seed, the number of the mask, and the element's place (step, sequence,
    unit), whatever blocks and strides are; places are 32 bits of step and 64 of the rest, so none comes twice.
    """
    blocks = tl.cdiv(units, BLOCK)
    program = tl.program_id(0)
    sequence = (program // blocks % batch).to(tl.int64)
    group = (program // blocks // batch).to(tl.int32)
    first = (program % blocks).to(tl.int64) * BLOCK
    i = tl.arange(0, BLOCK)
    left = units - first  # units from this block on
    place = sequence * units + first
    # All loads first: they are under way while the random numbers are computed.
    t0 = group * 4
    x += sequence * x_row + first
    v0 = _read(x, t0, steps, x_step, i, left)
    v1 = _read(x, t0 + 1, steps, x_step, i, left)
    v2 = _read(x, t0 + 2, steps, x_step, i, left)
    v3 = _read(x, t0 + 3, steps, x_step, i, left)
    key = tl.load(seed)
    low, high = (place + i).to(tl.uint32), ((place + i) >> 32).to(tl.uint32)
    zero = low * 0
    if SHARED:
        bits, _, _, _ = tl.philox(key, low, high, zero, zero + (2 * number + 1).to(tl.uint32), ROUNDS)
        mask = _factor(bits, shared_limit, shared_scale)
        v0 *= mask
        v1 *= mask
        v2 *= mask
        v3 *= mask
    if EACH:
        r0, r1, r2, r3 = tl.philox(
            key, low, high, zero + group.to(tl.uint32), zero + (2 * number).to(tl.uint32), ROUNDS
        )
        v0 *= _factor(r0, each_limit, each_scale)
        v1 *= _factor(r1, each_limit, each_scale)
        v2 *= _factor(r2, each_limit, each_scale)
        v3 *= _factor(r3, each_limit, each_scale)
    stride = tl.cast(units, tl.int64) * batch
    out += place
    _write(out, v0, t0, steps, stride, i, left)
    _write(out, v1, t0 + 1, steps, stride, i, left)
    _write(out, v2, t0 + 2, steps, stride, i, left)
    _write(out, v3, t0 + 3, steps, stride, i, left)
