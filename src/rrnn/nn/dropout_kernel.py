"""The Triton kernel of `rrnn.nn.dropout`: both masks made and applied on the way, forwards and backwards alike."""

# This is Triton's language, not Python's:
# pyright: reportPossiblyUnboundVariable=false, reportGeneralTypeIssues=false, reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl

STEPS = tl.constexpr(4)  # steps of a program: as many as Philox gives numbers at once
ROUNDS = tl.constexpr(7)
"""Of Philox 4x32: the fewest that pass BigCrush (Salmon et al., 2011)."""


@triton.jit
def _philox(key, c0, c1, c2, c3):
    """Return four words of random bits for a counter's four words: `tl.philox` with one wide product in place of two
    narrow ones."""
    k0, k1 = key.to(tl.uint32), (key >> 32).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        a, b = c0.to(tl.uint64) * 0xD2511F53, c2.to(tl.uint64) * 0xCD9E8D57
        c0, c1 = (b >> 32).to(tl.uint32) ^ c1 ^ k0, b.to(tl.uint32)
        c2, c3 = (a >> 32).to(tl.uint32) ^ c3 ^ k1, a.to(tl.uint32)
        k0 = tl.add(k0, 0x9E3779B9, sanitize_overflow=False)
        k1 = tl.add(k1, 0xBB67AE85, sanitize_overflow=False)
    return c0, c1, c2, c3


@triton.jit
def _factor(bits, limit, factor):
    """Return `factor` where random bits, as an int32, reach the limit; else 0."""
    return tl.where(bits.to(tl.int32, bitcast=True) >= limit, factor, 0.0)


@triton.jit
def _read(x, t, steps, stride, i, left):
    inside = i < tl.where(t < steps, left, 0)
    return tl.load(x + t.to(tl.int64) * stride + i, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _write(out, value, t, steps, stride, i, left):
    inside = i < tl.where(t < steps, left, 0)
    tl.store(out + t.to(tl.int64) * stride + i, value.to(out.dtype.element_ty), mask=inside)


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
    shared_limit,
    scale,
    EACH: tl.constexpr,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out = scale · x where both masks, (T, B, D) and (B, D), keep it; else 0. One program: a block of a sequence's
    units at STEPS steps.

    An element's random number depends on the seed, the number of the mask, and the element's place (step, sequence,
    unit), whatever blocks and strides are; places are 32 bits of step and 64 of the rest, so none comes twice.
    """
    block = tl.program_id(1) + tl.program_id(2).to(tl.int64) * tl.num_programs(1)
    sequence = (tl.program_id(0) % batch).to(tl.int64)
    group = (tl.program_id(0) // batch).to(tl.int32)
    first = block * BLOCK
    place = sequence * units + first
    i = tl.arange(0, BLOCK)
    left = tl.minimum(units - first, BLOCK).to(tl.int32)  # units in this block
    # All loads first: they are under way while random numbers are computed, and could not pass a store.
    x += sequence * x_row + first
    t = group * STEPS
    v0 = _read(x, t, steps, x_step, i, left)
    v1 = _read(x, t + 1, steps, x_step, i, left)
    v2 = _read(x, t + 2, steps, x_step, i, left)
    v3 = _read(x, t + 3, steps, x_step, i, left)
    key = tl.load(seed)
    low, high = (place + i).to(tl.uint32), ((place + i) >> 32).to(tl.uint32)
    zero = low * 0
    if SHARED:
        bits, _, _, _ = _philox(key, low, high, zero, zero + (2 * number + 1).to(tl.uint32))
        scale = _factor(bits, shared_limit, scale)
    f0, f1, f2, f3 = scale, scale, scale, scale
    if EACH:
        r0, r1, r2, r3 = _philox(
            key, low, high, zero + group.to(tl.uint32), zero + (2 * number).to(tl.uint32)
        )
        f0, f1 = _factor(r0, each_limit, scale), _factor(r1, each_limit, scale)
        f2, f3 = _factor(r2, each_limit, scale), _factor(r3, each_limit, scale)
    out += place
    stride = tl.cast(units, tl.int64) * batch
    _write(out, v0 * f0, t, steps, stride, i, left)
    _write(out, v1 * f1, t + 1, steps, stride, i, left)
    _write(out, v2 * f2, t + 2, steps, stride, i, left)
    _write(out, v3 * f3, t + 3, steps, stride, i, left)
