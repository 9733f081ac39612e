"""Triton kernels of an update of all weights: the gradient's norm, and all the rest. `update` is their twin."""

# Triton's language, not Python's:
# pyright: reportPossiblyUnboundVariable=false, reportGeneralTypeIssues=false, reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def squares(grads, sizes, partial, BLOCK: tl.constexpr):
    """partial[program] = the sum of squares of its share. Blocks of all segments are dealt out in turn, so that no
    program has two more than another."""
    total = tl.zeros([BLOCK], tl.float32)
    programs = tl.num_programs(0)
    first = tl.program_id(0)
    for i in tl.static_range(len(grads)):
        for start in range(first * BLOCK, sizes[i], programs * BLOCK):
            j = start + tl.arange(0, BLOCK)
            g = tl.load(grads[i] + j, mask=j < sizes[i], other=0.0).to(tl.float32)
            total += g * g
        first = (first + programs - tl.cdiv(sizes[i], BLOCK) % programs) % programs
    tl.store(partial + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def update(
    weights,
    grads,
    lows,
    averages,
    moments,
    sizes,
    partial,
    control,
    decays,
    counters,
    clip,
    l2,
    beta1,
    beta2,
    epsilon,
    PARTIALS: tl.constexpr,
    AVERAGES: tl.constexpr,
    EVERY: tl.constexpr,
    ADAM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Clip, SGD or Adam, multiplicative decay, averages, the low-precision copy: each number is read and written once.
    Blocks are dealt out as in `squares`.

    control: rate, 1 − decay. counters: steps, then the steps in each average. `rrnn.tasks.update` is the twin.
    What only the next update reads leaves the cache first: the next step's products find the low copies there.
    """
    squared = tl.sum(tl.load(partial + tl.arange(0, PARTIALS)), 0)
    factor = tl.minimum(clip / (tl.sqrt(squared) + 1e-6), 1.0)
    rate = tl.load(control)
    keep = tl.load(control + 1)
    steps = tl.load(counters)
    look = steps.to(tl.int32) % EVERY == 0
    if ADAM:
        unbias1 = 1.0 - tl.exp(steps * tl.log(beta1))
        unbias2 = 1.0 - tl.exp(steps * tl.log(beta2))
    programs = tl.num_programs(0)
    first = tl.program_id(0)
    for i in tl.static_range(len(weights)):
        n = sizes[i]
        for start in range(first * BLOCK, n, programs * BLOCK):
            # Four numbers a thread in every dtype: what is read as eight bf16 comes to fp32's stores by shared memory.
            j = start + tl.max_contiguous(tl.arange(0, BLOCK), 4)
            ok = j < n
            seen = j < tl.where(look, n, 0)  # where nothing is, nothing is moved
            w = tl.load(weights[i] + j, mask=ok, other=0.0, eviction_policy="evict_first")
            g = tl.load(grads[i] + j, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
            g = g * factor + l2 * w
            if ADAM:
                m = tl.load(moments[i] + j, mask=ok, other=0.0, eviction_policy="evict_first")
                v = tl.load(moments[i] + n + j, mask=ok, other=0.0, eviction_policy="evict_first")
                m += (1.0 - beta1) * (g - m)
                v += (1.0 - beta2) * (g * g - v)
                g = (m / unbias1) / (tl.sqrt(v / unbias2) + epsilon)
            w = w * keep - rate * g
            for k in tl.static_range(AVERAGES):  # before the stores: no load is moved up past one
                # whole numbers: a GPU's quotient of floats may lie just beside the one that it is
                looks = tl.maximum(tl.cdiv(tl.load(counters + 1 + k).to(tl.int32), EVERY), 1)
                share = tl.maximum(1.0 - tl.load(decays + k), 1.0 / looks)
                a = tl.load(averages[i] + k * n + j, mask=seen, other=0.0, eviction_policy="evict_first")
                # as torch.lerp: exact at both ends
                a = tl.where(share < 0.5, a + share * (w - a), w - (w - a) * (1.0 - share))
                tl.store(averages[i] + k * n + j, a, mask=seen, eviction_policy="evict_first")
            if ADAM:
                tl.store(moments[i] + j, m, mask=ok, eviction_policy="evict_first")
                tl.store(moments[i] + n + j, v, mask=ok, eviction_policy="evict_first")
            tl.store(weights[i] + j, w, mask=ok, eviction_policy="evict_first")
            if lows[i] is not None:
                tl.store(lows[i] + j, w.to(lows[i].dtype.element_ty), mask=ok)
        first = (first + programs - tl.cdiv(n, BLOCK) % programs) % programs
