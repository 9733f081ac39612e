"""Triton kernels of a training step: softmax to gradient in place, the gradient's norm, and the whole update."""

# Triton's language, not Python's:
# pyright: reportPossiblyUnboundVariable=false, reportGeneralTypeIssues=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _scores(z, bias, j, words, padded):
    """−∞ in the padding. Loads go as far as the aligned end of a row, not of its words: so they are wide."""
    v = tl.load(z + j, mask=j < padded, other=0.0).to(tl.float32) + tl.load(
        bias + j, mask=j < padded, other=0.0
    )
    return tl.where(j < words, v, float("-inf"))


@triton.jit
def softmax_rows(
    logits,
    bias,
    targets,
    losses,
    words,
    padded,
    scale,
    WRITE: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row's loss; with WRITE its logits become scale · (softmax − one-hot), 0 in the padding. One program a row; with
    WHOLE a block holds the row, which is then read once."""
    row = tl.program_id(0).to(tl.int64)
    z = logits + row * padded
    target = tl.load(targets + row)
    # Before any write: the reductions below are barriers between this read and them.
    at = tl.load(z + target).to(tl.float32) + tl.load(bias + target)
    top = -3.0e38
    total = 0.0
    if WHOLE:
        j = tl.arange(0, BLOCK)
        v = _scores(z, bias, j, words, padded)
        top = tl.max(v, 0)
        v = tl.exp(v - top)
        total = tl.sum(v, 0)
    else:
        for start in range(0, words, BLOCK):
            j = start + tl.arange(0, BLOCK)
            v = _scores(z, bias, j, words, padded)
            above = tl.maximum(top, tl.max(v, 0))
            total = total * tl.exp(top - above) + tl.sum(tl.exp(v - above), 0)
            top = above
    tl.store(losses + row, tl.log(total) + top - at)
    share = scale / total
    if WRITE and WHOLE:
        g = v * share - tl.where(j == target, scale, 0.0)
        tl.store(z + j, g.to(logits.dtype.element_ty), mask=j < padded)
    elif WRITE:
        for start in range(0, padded, BLOCK):
            j = start + tl.arange(0, BLOCK)
            v = _scores(z, bias, j, words, padded)
            g = tl.exp(v - top) * share - tl.where(j == target, scale, 0.0)
            tl.store(z + j, g.to(logits.dtype.element_ty), mask=j < padded)


@triton.jit
def add_rows(table, words, rows, width, BLOCK: tl.constexpr):
    """table[word] += row. One program a row and block of columns; a word may come several times."""
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(rows + row * width + j, mask=j < width, other=0.0).to(tl.float32)
    tl.atomic_add(table + tl.load(words + row) * width + j, value, mask=j < width, sem="relaxed")


@triton.jit
def squares(grad, partial, n, BLOCK: tl.constexpr):
    """partial[program] = the sum of squares of its share."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        j = start + tl.arange(0, BLOCK)
        g = tl.load(grad + j, mask=j < n, other=0.0).to(tl.float32)
        total += g * g
    tl.store(partial + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def update(
    weight,
    grad,
    low,
    averages,
    moments,
    partial,
    control,
    decays,
    counters,
    n,
    clip,
    beta1,
    beta2,
    epsilon,
    PARTIALS: tl.constexpr,
    LOW: tl.constexpr,
    AVERAGES: tl.constexpr,
    ADAM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Clip, SGD or Adam, multiplicative decay, averages, the low-precision copy: each number is read and written once.

    control: rate, 1 − decay. counters: steps, then the steps in each average. `rrnn.tasks.lm.update` is the twin.
    """
    squared = tl.sum(tl.load(partial + tl.arange(0, PARTIALS)), 0)
    factor = tl.minimum(clip / (tl.sqrt(squared) + 1e-6), 1.0)
    rate = tl.load(control)
    keep = tl.load(control + 1)
    if ADAM:
        steps = tl.load(counters)
        unbias1 = 1.0 - tl.exp(steps * tl.log(beta1))
        unbias2 = 1.0 - tl.exp(steps * tl.log(beta2))
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        j = start + tl.arange(0, BLOCK)
        ok = j < n
        w = tl.load(weight + j, mask=ok, other=0.0)
        g = tl.load(grad + j, mask=ok, other=0.0).to(tl.float32) * factor
        if ADAM:
            m = tl.load(moments + j, mask=ok, other=0.0)
            v = tl.load(moments + n + j, mask=ok, other=0.0)
            m += (1.0 - beta1) * (g - m)
            v += (1.0 - beta2) * (g * g - v)
            tl.store(moments + j, m, mask=ok)
            tl.store(moments + n + j, v, mask=ok)
            g = (m / unbias1) / (tl.sqrt(v / unbias2) + epsilon)
        w = w * keep - rate * g
        tl.store(weight + j, w, mask=ok)
        if LOW:
            tl.store(low + j, w.to(low.dtype.element_ty), mask=ok)
        for k in tl.static_range(AVERAGES):
            share = tl.maximum(1.0 - tl.load(decays + k), 1.0 / tl.maximum(tl.load(counters + 1 + k), 1.0))
            a = tl.load(averages + k * n + j, mask=ok, other=0.0)
            # as torch.lerp: exact at both ends
            a = tl.where(share < 0.5, a + share * (w - a), w - (w - a) * (1.0 - share))
            tl.store(averages + k * n + j, a, mask=ok)
