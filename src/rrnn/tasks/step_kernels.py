"""Triton kernels for training steps. Each has a twin in torch that defines the correct result.

`squares` and `update`: `rrnn.tasks.update`. `softmax_rows`, `column_sums` and `add_rows`: `rrnn.tasks.lm.loss`.
`gather`: `rrnn.tasks.classify.prepare`.
"""

# Triton's language, not Python's:
# pyright: reportPossiblyUnboundVariable=false, reportGeneralTypeIssues=false, reportArgumentType=false
# pyright: reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl

# ---- the update of all weights ---------------------------------------------------------------------------------------


@triton.jit
def squares(grads, sizes, partial, BLOCK: tl.constexpr):
    """Store in partial[program] the sum of squares of the program's share.

    Blocks of all segments are dealt out in turn, so that no program has two blocks more than another.
    """
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
    """Clip, make a step of SGD or Adam, decay, and update averages and the low-precision copy.

    Each number is read and written once. Blocks are dealt out as in `squares`. `control` holds the learning rate and
    1 − decay; `counters` the number of steps, then the steps in each average. What only the next update reads leaves
    the cache first, so that the next step's products find the low-precision copies there.
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
            # Four numbers per thread in every dtype: eight bf16 would reach the fp32 stores through shared memory.
            j = start + tl.max_contiguous(tl.arange(0, BLOCK), 4)
            ok = j < n
            seen = j < tl.where(look, n, 0)  # no memory traffic where the averages do not look
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
            for k in tl.static_range(
                AVERAGES
            ):  # before the stores, since the compiler moves no load up past a store
                # in whole numbers: a GPU's quotient of floats may be off by one rounding
                looks = tl.maximum(tl.cdiv(tl.load(counters + 1 + k).to(tl.int32), EVERY), 1)
                share = tl.maximum(1.0 - tl.load(decays + k), 1.0 / looks)
                a = tl.load(averages[i] + k * n + j, mask=seen, other=0.0, eviction_policy="evict_first")
                # as in torch.lerp, exact at both ends
                a = tl.where(share < 0.5, a + share * (w - a), w - (w - a) * (1.0 - share))
                tl.store(averages[i] + k * n + j, a, mask=seen, eviction_policy="evict_first")
            if ADAM:
                tl.store(moments[i] + j, m, mask=ok, eviction_policy="evict_first")
                tl.store(moments[i] + n + j, v, mask=ok, eviction_policy="evict_first")
            tl.store(weights[i] + j, w, mask=ok, eviction_policy="evict_first")
            if lows[i] is not None:
                tl.store(lows[i] + j, w.to(lows[i].dtype.element_ty), mask=ok)
        first = (first + programs - tl.cdiv(n, BLOCK) % programs) % programs


# ---- the softmax of a language model ---------------------------------------------------------------------------------


LOG2E = tl.constexpr(1.4426950408889634)  # exp2 saves one multiplication


@triton.jit
def _logits(z, j, padded, INSIDE: tl.constexpr):
    """Load logits up to the aligned end of a row, so that loads are wide, past the first-level cache, which keeps the
    bias. INSIDE: the block contains no padding."""
    if INSIDE:
        return tl.load(z + j, cache_modifier=".cg")
    return tl.load(z + j, mask=j < padded, other=0.0, cache_modifier=".cg")


@triton.jit
def _scores(logits, bias, j, words, padded, INSIDE: tl.constexpr):
    """Return logits plus bias, −∞ in the padding."""
    if INSIDE:
        return logits.to(tl.float32) + tl.load(bias + j)
    v = logits.to(tl.float32) + tl.load(bias + j, mask=j < padded, other=0.0)
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
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
    INSIDE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Compute the loss of a row. With WRITE its logits become scale · (softmax − one-hot), 0 in the padding.

    One program handles one row. HEAD + TAIL chunks hold a row, which is then read once. Both are powers of two (or TAIL
    is 0), so that few registers are wasted. A chunk is what all threads read at once, so that each thread reduces over
    chunks alone. INSIDE: the head has no padding. HEAD = 0: a row is read chunk by chunk, twice with WRITE.
    """
    row = tl.program_id(0).to(tl.int64)
    z = logits + row * padded
    target = tl.load(targets + row)
    # Read this before any write: the reductions below are barriers between the two.
    at = tl.load(z + target).to(tl.float32) + tl.load(bias + target)
    column = tl.arange(0, CHUNK)
    if HEAD:
        j = tl.arange(0, HEAD)[:, None] * CHUNK + column[None, :]
        v = _logits(z, j, padded, INSIDE)
        if TAIL:
            k = (HEAD + tl.arange(0, TAIL)[:, None]) * CHUNK + column[None, :]
            w = _logits(z, k, padded, False)  # all loads of logits start before the first use of the bias
        v = _scores(v, bias, j, words, padded, INSIDE)
        tops = tl.max(v, 0)
        if TAIL:
            w = _scores(w, bias, k, words, padded, False)
            tops = tl.maximum(tops, tl.max(w, 0))
        top = tl.max(tops, 0)
        v = tl.exp2(v * LOG2E - top * LOG2E)
        totals = tl.sum(v, 0)
        if TAIL:
            w = tl.exp2(w * LOG2E - top * LOG2E)
            totals += tl.sum(w, 0)
        total = tl.sum(totals, 0)
    else:
        top = -2.0e38  # finite, also after the conversion to powers of two
        total = 0.0
        for start in range(0, words, CHUNK):
            j = start + column
            v = _scores(_logits(z, j, padded, False), bias, j, words, padded, False)
            above = tl.maximum(top, tl.max(v, 0))
            total *= tl.exp2((top - above) * LOG2E)
            total += tl.sum(tl.exp2(v * LOG2E - above * LOG2E), 0)
            top = above
    tl.store(losses + row, tl.log(total) + top - at)
    if WRITE:
        share = scale / total
        low = logits.dtype.element_ty
        if HEAD:
            tl.store(z + j, (v * share).to(low), mask=j < padded)
            if TAIL:
                tl.store(z + k, (w * share).to(low), mask=k < padded)
        else:
            for start in range(0, padded, CHUNK):
                j = start + column
                v = _scores(_logits(z, j, padded, False), bias, j, words, padded, False)
                v = tl.exp2(v * LOG2E - top * LOG2E)
                tl.store(z + j, (v * share).to(low), mask=j < padded)
        tl.debug_barrier()  # the target's logit is written twice, in this order
        tl.store(z + target, (tl.exp2(at * LOG2E - top * LOG2E) * share - scale).to(low))


@triton.jit
def column_sums(matrix, sums, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr):
    """Compute sums = matrix.sum(0), always in the same order. One program handles COLUMNS columns, with UNROLL loads in
    flight."""
    r = tl.arange(0, UNROLL * ROWS)[:, None]
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, rows, UNROLL * ROWS):
        ok = (start + r < rows) & (c < width)[None, :]
        v = tl.load(matrix + r * width + c[None, :], mask=ok, other=0.0).to(tl.float32)
        # a thread holds the same places of each (ROWS, COLUMNS) block, and so adds them up alone
        total += tl.sum(tl.reshape(v, [UNROLL, ROWS, COLUMNS]), 0)
        matrix += UNROLL * ROWS * width
    tl.store(sums + c, tl.sum(total, 0), mask=c < width)


@triton.jit
def add_rows(table, words, rows, width, BLOCK: tl.constexpr):
    """Add each row to table[word]. One program handles one row and one block of columns. Words may repeat."""
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(rows + row * width + j, mask=j < width, other=0.0).to(tl.float32)
    tl.atomic_add(table + tl.load(words + row) * width + j, value, mask=j < width, sem="relaxed")


# ---- a batch of texts ------------------------------------------------------------------------------------------------


@triton.jit
def gather(
    rows, tokens, starts, sizes, labels, ids, lengths, answers, weights, steps, batch, BLOCK: tl.constexpr
):
    """Gather ids (T, B), and lengths, answers and weights (B), of the examples `rows` (B); −1 is an empty text."""
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = j < steps * batch
    time, column = j // batch, j % batch
    row = tl.load(rows + column, mask=inside, other=-1)
    there = row >= 0
    length = tl.load(sizes + row, mask=there, other=0)
    start = tl.load(starts + row, mask=there, other=0)
    tl.store(ids + j, tl.load(tokens + start + time, mask=time < length, other=0), mask=inside)
    first = j < batch  # programs of the first time step write what exists once per text
    tl.store(lengths + j, length, mask=first)
    answer = tl.load(
        labels + tl.where(there, row, 0), mask=first, other=0
    )  # any label will do for an empty text
    tl.store(answers + j, answer, mask=first)
    tl.store(weights + j, there.to(tl.float32), mask=first)
