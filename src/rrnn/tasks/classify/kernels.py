"""A batch of texts in one launch. `Texts.gather` is the twin."""

# Triton's language, not Python's:
# pyright: reportArgumentType=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gather(
    rows, tokens, starts, sizes, labels, ids, lengths, answers, weights, steps, batch, BLOCK: tl.constexpr
):
    """ids (T, B), and lengths, answers, weights (B), of the examples in `rows` (B); a row of −1 is an empty text."""
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = j < steps * batch
    time, column = j // batch, j % batch
    row = tl.load(rows + column, mask=inside, other=-1)
    there = row >= 0
    length = tl.load(sizes + row, mask=there, other=0)
    start = tl.load(starts + row, mask=there, other=0)
    tl.store(ids + j, tl.load(tokens + start + time, mask=time < length, other=0), mask=inside)
    first = j < batch  # the first step's programs write what is one a text
    tl.store(lengths + j, length, mask=first)
    answer = tl.load(labels + tl.where(there, row, 0), mask=first, other=0)  # of an empty row any will do
    tl.store(answers + j, answer, mask=first)
    tl.store(weights + j, there.to(tl.float32), mask=first)
