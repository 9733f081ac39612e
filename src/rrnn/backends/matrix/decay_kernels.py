"""Triton kernels of log-decays in the matrix schedule: their running sums, and their gradients from parts.

`kernels` explains the schedule and its words.
"""

# Type checkers do not know Triton's language.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false

import triton
import triton.language as tl

from rrnn.backends.matrix.kernels import _program, _put, _segment, _tile


@triton.jit
def _segment_of(table, slot, S, C: tl.constexpr):
    """Return the number of the segment of S steps in which a chunk lies."""
    if table is None:
        segment = (slot // (S // C)).to(tl.int64)
    else:
        first, begin = tl.load(table + slot * 4), tl.load(table + slot * 4 + 3)
        segment = begin // S + tl.load(table + slot * 4 + 2) + (first - begin) // S
    return segment


@triton.jit
def note_harsh(G, harsh, table, slot, S, B, b, H, h, MILD: tl.constexpr, C: tl.constexpr):
    """Note the segment of S steps of a chunk whose running sums are not mild."""
    segment = _segment_of(table, slot, S, C)
    tl.atomic_or(harsh + (segment * B + b) * H + h, (tl.max(tl.abs(G)) >= MILD).to(tl.int32))


@triton.jit
def chunk_sums(x, REVERSE: tl.constexpr, QUICK: tl.constexpr):
    """Return the sums from a chunk's first step on (REVERSE: to its last). QUICK: as a product with a triangle of ones,
    in three parts of 11 bits, which takes fewer barriers than a scan does, and errs in the 22nd bit."""
    C: tl.constexpr = x.shape[0]
    if not QUICK or C < 16 or x.shape[1] < 16:
        found = tl.cumsum(x, 0, reverse=REVERSE)
    else:
        i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
        ones = tl.where(i <= j if REVERSE else i >= j, 1.0, 0.0)
        found = tl.dot(ones, x, input_precision="tf32x3")
    return found


@triton.jit
def running_sums(
    g, G, harsh, table, gt, gb, gh, Gt, Gb, Gh, T, B, H, N, S,
    C: tl.constexpr, BN: tl.constexpr, MILD: tl.constexpr,
):  # fmt: skip
    """Write the running sums of g (T, B, H, N) from each chunk's start; note harsh segments, unless None is given."""
    slot, b, h = _program(B, H)
    first, stop, _ = _segment(table, slot, T, C)
    t, n = first + tl.arange(0, C), tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.cumsum(_tile(g + b * gb + h * gh, first, t < stop, gt, n, N).to(G.dtype.element_ty), 0)
    _put(G + b * Gb + h * Gh, first, t < stop, Gt, n, N, sums)
    if harsh is not None:
        note_harsh(sums, harsh, table, slot, S, B, b, H, h, MILD, C)


@triton.jit
def decay_gradients(
    w, dg, table, wn, wt, wb, wh, dt, db, dh, T, B, H, N,
    PARTS: tl.constexpr, SUM: tl.constexpr, C: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write the gradients of log-decays from all parts of w. SUM: as sums from each step to the end of its chunk."""
    slot, b, h = _program(B, H)
    first, stop, _ = _segment(table, slot, T, C)
    t, n = first + tl.arange(0, C), tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros([C, BN], tl.float32)
    wp = w + b * wb + h * wh
    for _ in range(PARTS):
        sums += _tile(wp, first, t < stop, wt, n, N)
        wp += wn
    if SUM:
        sums = tl.cumsum(sums, 0, reverse=True)
    _put(dg + b * db + h * dh, first, t < stop, dt, n, N, sums)
