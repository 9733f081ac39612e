"""Triton kernels of a training step: softmax to gradient in place, sums of columns, rows added to a table."""

# Triton's language, not Python's:
# pyright: reportPossiblyUnboundVariable=false, reportGeneralTypeIssues=false, reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exponentials are powers of two: one multiplication less


@triton.jit
def _logits(z, j, padded, INSIDE: tl.constexpr):
    """As far as the aligned end of a row, not of its words: so loads are wide; past the first cache, which keeps the
    bias. INSIDE: there are only words."""
    if INSIDE:
        return tl.load(z + j, cache_modifier=".cg")
    return tl.load(z + j, mask=j < padded, other=0.0, cache_modifier=".cg")


@triton.jit
def _scores(logits, bias, j, words, padded, INSIDE: tl.constexpr):
    """−∞ in the padding."""
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
    """A row's loss; with WRITE its logits become scale · (softmax − one-hot), 0 in the padding. One program a row.

    HEAD + TAIL chunks hold a row, which is then read once: both are powers of two (or TAIL is 0), so that little is
    held in vain, and a chunk is what all threads read at once, so that over chunks each reduces alone. INSIDE: the
    head has no padding. HEAD = 0: a row is read chunk by chunk, twice with WRITE.
    """
    row = tl.program_id(0).to(tl.int64)
    z = logits + row * padded
    target = tl.load(targets + row)
    # Before any write: the reductions below are barriers between this read and them.
    at = tl.load(z + target).to(tl.float32) + tl.load(bias + target)
    column = tl.arange(0, CHUNK)
    if HEAD:
        j = tl.arange(0, HEAD)[:, None] * CHUNK + column[None, :]
        v = _logits(z, j, padded, INSIDE)
        if TAIL:
            k = (HEAD + tl.arange(0, TAIL)[:, None]) * CHUNK + column[None, :]
            w = _logits(z, k, padded, False)  # all logits are under way before the bias is waited for
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
        top = -2.0e38  # finite, and so in powers of two
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
        tl.debug_barrier()  # the target's is written twice, in this order
        tl.store(z + target, (tl.exp2(at * LOG2E - top * LOG2E) * share - scale).to(low))


@triton.jit
def column_sums(matrix, sums, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr):
    """sums = matrix.sum(0), always in the same order. One program some columns; UNROLL reads are under way at once."""
    r = tl.arange(0, UNROLL * ROWS)[:, None]
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, rows, UNROLL * ROWS):
        ok = (start + r < rows) & (c < width)[None, :]
        v = tl.load(matrix + r * width + c[None, :], mask=ok, other=0.0).to(tl.float32)
        # a thread has the same places of each (ROWS, COLUMNS), and so adds them up alone
        total += tl.sum(tl.reshape(v, [UNROLL, ROWS, COLUMNS]), 0)
        matrix += UNROLL * ROWS * width
    tl.store(sums + c, tl.sum(total, 0), mask=c < width)


@triton.jit
def add_rows(table, words, rows, width, BLOCK: tl.constexpr):
    """table[word] += row. One program a row and block of columns; a word may come several times."""
    row = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(rows + row * width + j, mask=j < width, other=0.0).to(tl.float32)
    tl.atomic_add(table + tl.load(words + row) * width + j, value, mask=j < width, sem="relaxed")
