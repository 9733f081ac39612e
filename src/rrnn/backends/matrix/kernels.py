"""Triton kernels of the matrix schedule: chunks of C steps as products on tensor cores.

Per sequence and head, with keys k, queries q and log-decays g over N states and values v over U units:

    Z_t = exp(g_t) ⊙ Z_{t−1} + k_t v_tᵀ,    o_t = Z_tᵀ q_t    (Z has N × U numbers)

Time is cut into *segments*, and a program walks through the chunks of a segment with a tile of the state in registers,
so that states reach memory only between segments. Where sequences and heads alone fill the GPU, a segment is a whole
sequence. Elsewhere `segment_states` adds up what each segment enters, and `join` runs the state from one to the next.
`outputs` and `query_gradients` walk forwards, `key_gradients` backwards, with the gradient of the state.

G is the running sum of g from the start of a chunk, with 64 bits where products have float32's full precision (see
`factors.sums_dtype`). A decay is one number per state (DECAY = 2), one per head (1) or
none (0). With one per state, pairs of steps s ≤ t need Σ_n q_t k_s exp(G_t − G_s). Where G stays small (*mild*), that
is one product of q exp(G − G_middle) and k exp(G_middle − G). In *harsh* segments those could overflow (DECAY = 3, a
launch of their own), and a binary tree takes their place: at exactly one level, s and t lie in the two halves of a
block of 2^(level + 1) steps. With the boundary between the halves as reference, G_t − G_ref and G_ref − G_s are both at
most 0, and a level is one product. (With a branch inside the loop over chunks, Triton loads nothing ahead.)

With a decay per head, values may be weighted: `weights` has each step's number c by which v enters, `skips` each step's
number d, so that o gains d v. Both lie like G. They spare the passes over memory that c v and o + d v would need.

Packed sequences have a `table` with the first step of each segment, the one behind its last, and its sequence's number.
Rows of G beyond a segment's end repeat its last one. No order depends on timing: two runs give the same bits.
"""

# Type checkers do not know Triton's language.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false

import triton
import triton.language as tl


@triton.jit
def _program(B, H):
    """Return the numbers of a program's segment (or chunk), column and head. They share the first axis of the grid: the
    others have 65535 programs at most."""
    own = tl.program_id(0)
    slots = tl.num_programs(0) // (B * H)
    return own % slots, (own // slots // H).to(tl.int64), own // slots % H


@triton.jit
def _segment(table, slot, T, L):
    """Return the first step of a segment, the one behind its last, and by how much its chunks' numbers are ahead."""
    if table is None:
        first = slot.to(tl.int64) * L
        stop = tl.minimum(first + L, T)
        ahead = first * 0
    else:
        first, stop = tl.load(table + slot * 4), tl.load(table + slot * 4 + 1)
        ahead = tl.load(table + slot * 4 + 2)
    return first, stop, ahead


@triton.jit
def _known(t, b, h, UNIT: tl.constexpr):
    """Return strides of steps, columns and heads, all multiples of UNIT, so that Triton knows it. (By itself it looks
    for multiples of 16: rows of 264 numbers, as Mamba-2 with 8 heads has them, would be read number by number.)"""
    if UNIT > 1:
        t, b, h = t // UNIT * UNIT, b // UNIT * UNIT, h // UNIT * UNIT
    return t, b, h


@triton.jit
def _rows(start, stop, b, mask, mt, mb, C: tl.constexpr):
    """Return the steps of a chunk, which of them are neither padding nor beyond the end, and whose sums to read."""
    t = start + tl.arange(0, C)
    ok = t < stop
    if mask is not None:
        ok = ok & (tl.load(mask + t * mt + b * mb, mask=ok, other=0) != 0)
    return t, ok, tl.minimum(t, stop - 1)


@triton.jit
def _places(base, start, stride, columns, C: tl.constexpr):
    """Return where rows from `start` on lie, whose columns lie side by side: far from the tensor's start, but less than
    2³¹ numbers from one another, so that the sums in tiles have 32 bits."""
    return base + start * stride + (tl.arange(0, C)[:, None] * stride + columns[None, :])


@triton.jit
def _tile(base, start, ok, stride, columns, count):
    """Load rows of a tensor; zeros for rows and columns that are not there."""
    inside = ok[:, None] & (columns < count)[None, :]
    return tl.load(_places(base, start, stride, columns, ok.shape[0]), mask=inside, other=0.0)


@triton.jit
def _put(base, start, ok, stride, columns, count, value):
    """Store rows of a tensor."""
    inside = ok[:, None] & (columns < count)[None, :]
    tl.store(_places(base, start, stride, columns, ok.shape[0]), value.to(base.dtype.element_ty), mask=inside)


@triton.jit
def _sums(Gp, t, stride, n, N):
    """Load the running sums of these steps; zeros for columns that are not there."""
    return tl.load(Gp + t[:, None] * stride + n[None, :], mask=(n < N)[None, :], other=0.0)


@triton.jit
def _exp(x):
    """Return the exponential of differences of sums, which may have 64 bits. The result has 32, and is 0 below 2⁻¹²⁶:
    for such results, tl.exp spends three more instructions on every number."""
    return tl.exp2(x.to(tl.float32) * 1.4426950408889634)


@triton.jit
def _weighted(x, weights, at):
    """Return numbers of steps times the weights at their places, if there are any."""
    return x if weights is None else x * tl.load(weights + at)


@triton.jit
def _coming(Gp, at, stop, gt, there):
    """Load a head's sum at a chunk's end, a chunk ahead. (Triton loads tiles ahead by itself, but no numbers.)"""
    return tl.load(Gp + tl.maximum(tl.minimum(at, stop - 1), 0) * gt, mask=there, other=0.0)


@triton.jit
def _halves(G, Gp, t, start, stop, gt, n, N, level, C: tl.constexpr):
    """Return each step's decay from the boundary between the halves of its block of 2^(level + 1) steps, or to it."""
    i = tl.arange(0, C)
    right = ((i >> level) & 1 == 1)[:, None]
    before = start + ((i >> (level + 1)) << (level + 1)) + ((1 << level) - 1)
    gap = G - _sums(Gp, tl.minimum(before, stop - 1), gt, n, N)
    return _exp(tl.where(right, gap, -gap))


@triton.jit
def _level(level, C: tl.constexpr):
    """Return which pairs of steps (t, s < t) are in the two halves of a block of 2^(level + 1) steps."""
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    return ((i ^ j) >> level == 1) & (i > j)


@triton.jit
def _pairs(q, k, G, Gp, t, start, stop, gt, n, N, C: tl.constexpr, DOT: tl.constexpr, P: tl.constexpr):
    """Return Σ_n q_t k_s exp(G_t − G_s) for s ≤ t by the tree, else 0."""
    i = tl.arange(0, C)
    a = tl.where(i[:, None] == i[None, :], tl.sum(q * k, 1)[:, None], 0.0)
    for level in tl.range(0, C.bit_length() - 1, num_stages=1):
        e = _halves(G, Gp, t, start, stop, gt, n, N, level, C)
        x, y = (q * e).to(DOT), (k * e).to(DOT)
        a += tl.where(_level(level, C), tl.dot(x, tl.trans(y), input_precision=P), 0.0)
    return a


@triton.jit
def _middle(G, Gp, start, stop, gt, n, N, end, C: tl.constexpr):
    """Return the decays from a chunk's middle to each step, the other way round, up to the middle, and from it on."""
    at = tl.minimum(start + C // 2, stop) - 1
    middle = tl.load(Gp + at * gt + n, mask=n < N, other=0.0)
    return _exp(G - middle[None, :]), _exp(middle[None, :] - G), _exp(middle), _exp(end - middle)


@triton.jit
def _own(chunks, harsh, segment, b, B, h, H, DECAY: tl.constexpr):
    """Return the number of a segment's chunks, 0 if the other launch of the two for decays per state does it; whether
    this one does."""
    mine = chunks >= 0
    if DECAY >= 2:
        flag = tl.load(harsh + (segment.to(tl.int64) * B + b) * H + h)
        mine = flag != 0 if DECAY == 3 else flag == 0
        chunks = tl.where(mine, chunks, 0)
    return chunks, mine


@triton.jit
def _place(slot, b, B, h, H, n, N, u, U):
    """Return where the state of a segment is, and which of its numbers exist."""
    stride = tl.cast(B, tl.int64) * H * U
    inside = (n < N)[:, None] & (u < U)[None, :]
    at = slot.to(tl.int64) * N * stride + (b * H + h) * U + n.to(tl.int64)[:, None] * stride + u[None, :]
    return at, inside


@triton.jit
def _beginning(S, at, inside):
    """Return the state that a segment begins with: zeros if S is None."""
    if S is None:  # noqa: SIM108
        z = tl.zeros(inside.shape, tl.float32)
    else:
        z = tl.load(S + at, mask=inside, other=0.0)
    return z


@triton.jit
def _chunk_place(chunk, b, B, h, H, n, N, u, U):
    """Return where the state of a chunk is, by the chunk's number."""
    return (((chunk * B + b) * H + h) * N + n.to(tl.int64)[:, None]) * U + u[None, :]


@triton.jit
def segment_states(
    k, v, G, weights, S, E, mask, table,
    kt, kb, kh, vt, vb, vh, gt, gb, gh, mt, mb, T, B, H, N, U, shared, scale, L,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, DECAY: tl.constexpr, REVERSE: tl.constexpr,
    STAGES: tl.constexpr, UNIT: tl.constexpr, DOT: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the state after each segment, from zeros, into S, and the sum of its log-decays into E, if there are any.
    REVERSE: with queries in place of keys and gradients of outputs in place of values, the gradient of the state before
    each segment."""
    slot, b, h = _program(B, H)
    first, stop, _ = _segment(table, slot, T, L)
    blocks = tl.cdiv(U, BU)
    n = tl.program_id(1) // blocks * BN + tl.arange(0, BN)
    u = tl.program_id(1) % blocks * BU + tl.arange(0, BU)
    kt, kb, kh = _known(kt, kb, kh, UNIT)
    vt, vb, vh = _known(vt, vb, vh, UNIT)
    kp, vp, Gp = k + b * kb + h // shared * kh, v + b * vb + h * vh, G
    own = b * gb + h * gh
    if DECAY > 0:
        Gp = G + own
    where, inside = _place(slot, b, B, h, H, n, N, u, U)
    z, total = tl.zeros([BN, BU], tl.float32), tl.zeros([BN], tl.float32)
    chunks = tl.cdiv(stop - first, C)
    if DECAY == 1:
        coming = _coming(Gp, first + (chunks * C if REVERSE else C) - 1, stop, gt, chunks > 0)
    for step in tl.range(0, chunks, num_stages=STAGES):
        at = chunks - 1 - step if REVERSE else step
        start = first + at * C
        ok, near = _rows(start, stop, b, mask, mt, mb, C)[1:]
        x, y = _tile(kp, start, ok, kt, n, N), _tile(vp, start, ok, vt, u, U)
        last = tl.minimum(start + C, stop) - 1
        if DECAY == 2:
            here, end = _sums(Gp, near, gt, n, N), tl.load(Gp + last * gt + n, mask=n < N, other=0.0)
            x = x.to(tl.float32) * _exp(here if REVERSE else end[None, :] - here)
            z = z * _exp(end)[:, None]
            total += end.to(tl.float32)
        if DECAY == 1:
            here, end = tl.load(Gp + near * gt), coming
            coming = _coming(Gp, start + (0 if REVERSE else 2 * C) - 1, stop, gt, True)
            carried = _weighted(_exp(here if REVERSE else end - here), weights, own + near * gt)
            y = y.to(tl.float32) * carried[:, None]
            z = z * _exp(end)
            total += end.to(tl.float32)
        z = tl.dot(tl.trans(x.to(DOT)), y.to(DOT), z, input_precision=P)
    tl.store(S + where, z * scale, mask=inside)
    if E is not None:
        tl.store(E + ((slot.to(tl.int64) * B + b) * H + h) * N + n, total, mask=n < N)


@triton.jit
def join(
    S, first, end, E, table, B, H, N, U, segments,
    BN: tl.constexpr, BU: tl.constexpr, DECAY: tl.constexpr, REVERSE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Replace what each segment enters by the state before it (REVERSE: by the gradient of the state after it), from
    `first`, or zeros if it is None; write the state after the last one into `end`. Packed sequences have a `table` with
    the first segment of each and the one behind its last."""
    b, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    n, u = tl.program_id(1) * BN + tl.arange(0, BN), tl.program_id(2) * BU + tl.arange(0, BU)
    inside = (n < N)[:, None] & (u < U)[None, :]
    stride = tl.cast(B, tl.int64) * H * U  # B: sequences
    at = (b * H + h) * U + n.to(tl.int64)[:, None] * stride + u[None, :]
    if first is None:  # noqa: SIM108  (Triton compiles one of the two)
        z = tl.zeros([BN, BU], tl.float32)
    else:
        z = tl.load(first + at, mask=inside, other=0.0)
    begin = tl.cast(0, tl.int64)
    columns, row, own = tl.cast(B, tl.int64), stride, at  # of S
    if table is not None:  # one column of segments holds all sequences
        begin, segments = tl.load(table + 2 * b), tl.load(table + 2 * b + 1)
        segments = segments - begin
        columns, row = tl.cast(1, tl.int64), tl.cast(H, tl.int64) * U
        own = h * U + n.to(tl.int64)[:, None] * row + u[None, :]
        b = b * 0
    for step in tl.range(0, segments, num_stages=STAGES):
        c = begin + (segments - 1 - step if REVERSE else step)
        place = S + c * N * row + own
        new = tl.load(place, mask=inside, other=0.0)
        tl.store(place, z, mask=inside)
        if DECAY > 0:
            z = z * tl.exp(tl.load(E + ((c * columns + b) * H + h) * N + n, mask=n < N, other=0.0))[:, None]
        z += new
    tl.store(end + at, z, mask=inside)


@triton.jit
def outputs(
    q, k, v, G, weights, skips, S, end_state, o, mask, table, harsh,
    qt, qb, qh, kt, kb, kh, vt, vb, vh, gt, gb, gh, ot, ob, oh, mt, mb, T, B, H, N, U, shared, scale, L,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, DECAY: tl.constexpr, STAGES: tl.constexpr, UNIT: tl.constexpr,
    DOT: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the outputs of a segment for BU units, from the state before it (zeros if S is None); write the state after
    it unless `end_state` is None."""
    slot, b, h = _program(B, H)
    first, stop, _ = _segment(table, slot, T, L)
    n, u = tl.arange(0, BN), tl.program_id(1) * BU + tl.arange(0, BU)
    qt, qb, qh = _known(qt, qb, qh, UNIT)
    kt, kb, kh = _known(kt, kb, kh, UNIT)
    vt, vb, vh = _known(vt, vb, vh, UNIT)
    ot, ob, oh = _known(ot, ob, oh, UNIT)
    qp, kp = q + b * qb + h // shared * qh, k + b * kb + h // shared * kh
    vp, op, Gp, own = v + b * vb + h * vh, o + b * ob + h * oh, G, b * gb + h * gh
    if DECAY > 0:
        Gp = G + own
    at, inside = _place(slot, b, B, h, H, n, N, u, U)
    z = _beginning(S, at, inside)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    chunks, mine = _own(tl.cdiv(stop - first, C), harsh, slot, b, B, h, H, DECAY)
    if DECAY == 1:
        coming = _coming(Gp, first + C - 1, stop, gt, chunks > 0)
    for step in tl.range(0, chunks, num_stages=STAGES):
        start = first + step * C
        t, ok, near = _rows(start, stop, b, mask, mt, mb, C)
        qs, ks, vs = (
            _tile(qp, start, ok, qt, n, N),
            _tile(kp, start, ok, kt, n, N),
            _tile(vp, start, ok, vt, u, U),
        )
        vs = vs.to(DOT)
        last = tl.minimum(start + C, stop) - 1
        if DECAY >= 2:
            Gs, end = _sums(Gp, near, gt, n, N), tl.load(Gp + last * gt + n, mask=n < N, other=0.0)
            qs, ks = qs.to(tl.float32), ks.to(tl.float32)
            if DECAY == 2:
                up, down, into, out = _middle(Gs, Gp, start, stop, gt, n, N, end, C)
                x, y = (qs * up).to(DOT), (ks * down).to(DOT)
                a = tl.dot(x, tl.trans(y), input_precision=P)
                z = z * into[:, None]
                r = tl.dot(x, z.to(DOT), input_precision=P)
                z = tl.dot(tl.trans(y), vs, z, input_precision=P) * out[:, None]
            else:
                a = _pairs(qs, ks, Gs, Gp, t, start, stop, gt, n, N, C, DOT, P)
                x, y = (qs * _exp(Gs)).to(DOT), (ks * _exp(end[None, :] - Gs)).to(DOT)
                r = tl.dot(x, z.to(DOT), input_precision=P)
                z = tl.dot(tl.trans(y), vs, z * _exp(end)[:, None], input_precision=P)
            a = tl.where(i >= j, a, 0.0)
        else:
            x, y, w = qs.to(DOT), ks.to(DOT), vs
            a = tl.dot(x, tl.trans(y), input_precision=P)
            r = tl.dot(x, z.to(DOT), input_precision=P)
            if DECAY == 1:
                here = tl.load(Gp + near * gt)
                a = a * _exp(tl.where(i >= j, here[:, None] - here[None, :], float("-inf")))
                a = _weighted(a, weights, own + near[None, :] * gt)
                r = r * _exp(here)[:, None]
                end, coming = coming, _coming(Gp, start + 2 * C - 1, stop, gt, True)
                kept = _weighted(_exp(end - here), weights, own + near * gt)
                w = (vs.to(tl.float32) * kept[:, None]).to(DOT)
                z = z * _exp(end)
            else:
                a = tl.where(i >= j, a, 0.0)
            z = tl.dot(tl.trans(y), w, z, input_precision=P)
        r = tl.dot(a.to(DOT), vs, r, input_precision=P) * scale
        if skips is not None:
            r += tl.load(skips + own + near * gt)[:, None] * vs.to(tl.float32)
        _put(op, start, t < stop, ot, u, U, r)
    if end_state is not None:  # noqa: SIM102  (known when it is compiled)
        if mine:
            tl.store(end_state + at, z, mask=inside)
