"""Triton kernels of the matrix schedule: chunks of C steps as products on tensor cores.

Per sequence and head, with keys k, queries q and log-decays g over N states and values v over U units:

    Z_t = exp(g_t) ⊙ Z_{t−1} + k_t v_tᵀ,    o_t = Z_tᵀ q_t    (Z has N × U numbers)

G is the running sum of g from the start of a chunk. Forwards, `chunk_states` adds up what each chunk enters, `join`
runs the state from chunk to chunk, `outputs` computes all outputs; backwards the first two run on queries and gradients
of outputs, and `gradients` computes the rest. A decay is one number per state (VECTOR), one per head (SCALAR) or none.

With a decay per state, pairs of steps s ≤ t need Σ_n q_t k_s exp(G_t − G_s). Where G stays small (MILD), that is one
product of q exp(G − G_middle) and k exp(G_middle − G). Elsewhere those could overflow, and a binary tree takes their
place: at exactly one level, s and t lie in the two halves of a block of 2^(level + 1) steps. With the boundary between
the halves as reference, G_t − G_ref and G_ref − G_s are both at most 0. So a level is one product of a tile with
its own transpose, queries in right halves and keys in left ones. No order depends on timing: two runs give the same
bits.
"""

# Type checkers do not know Triton's language.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false

import triton
import triton.language as tl

NONE, SCALAR, VECTOR = 0, 1, 2


@triton.jit
def _rows(c, b, T, mask, mt, mb, C: tl.constexpr, MASKED: tl.constexpr):
    """Return the steps of a chunk, and which of them are neither padding nor beyond the end."""
    t = c * C + tl.arange(0, C)
    ok = t < T
    if MASKED:
        ok = ok & (tl.load(mask + t.to(tl.int64) * mt + b * mb, mask=ok, other=0) != 0)
    return t.to(tl.int64), ok


@triton.jit
def _tile(base, t, ok, stride, columns, count):
    """Load rows of a tensor whose columns lie side by side; zeros for rows and columns that are not there."""
    inside = ok[:, None] & (columns < count)[None, :]
    return tl.load(base + t[:, None] * stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _state(base, n, u, N, U, stride):
    """Load a tile of a chunk's state; its rows are `stride` numbers apart."""
    inside = (n < N)[:, None] & (u < U)[None, :]
    return tl.load(base + n.to(tl.int64)[:, None] * stride + u[None, :], mask=inside, other=0.0)


@triton.jit
def _halves(G, Gp, t, T, gt, n, N, level, C: tl.constexpr):
    """Return which steps are in right halves of blocks of 2^(level + 1) steps, and each step's decay from the boundary
    between the halves, or to it."""
    i = tl.arange(0, C)
    right = ((i >> level) & 1 == 1)[:, None]
    before = t - i + ((i >> (level + 1)) << (level + 1)) + ((1 << level) - 1)
    inside = (t < T) & (before < T)
    gap = G - _tile(Gp, before, inside, gt, n, N)
    return right, tl.exp(tl.where(inside[:, None], tl.where(right, gap, -gap), 0.0))


@triton.jit
def _level(level, C: tl.constexpr):
    """Return which pairs of steps are in the two halves of a block of 2^(level + 1) steps."""
    return (tl.arange(0, C)[:, None] ^ tl.arange(0, C)[None, :]) >> level == 1


@triton.jit
def _decays(G, t, T, C: tl.constexpr):
    """Return exp(G_t − G_s) for s ≤ t of a decay per head, else 0."""
    i = tl.arange(0, C)
    inside = (i[:, None] >= i[None, :]) & (t < T)[:, None]
    return tl.exp(tl.where(inside, G[:, None] - G[None, :], float("-inf")))


@triton.jit
def chunk_states(
    k, v, G, S, mask, kt, kb, kh, vt, vb, vh, gt, gb, gh, mt, mb, T, B, H, N, U, shared, scale,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, DECAY: tl.constexpr, MASKED: tl.constexpr,
    REVERSE: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write Σ_s (k_s exp(G_end − G_s)) v_sᵀ of each chunk; REVERSE: Σ_t (k_t exp(G_t)) v_tᵀ, with queries in place of
    keys and gradients of outputs in place of values."""
    c, b, h = tl.program_id(0), (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    blocks = tl.cdiv(U, BU)
    n = tl.program_id(2) // blocks * BN + tl.arange(0, BN)
    u = tl.program_id(2) % blocks * BU + tl.arange(0, BU)
    t, ok = _rows(c, b, T, mask, mt, mb, C, MASKED)
    x = _tile(k + b * kb + h // shared * kh, t, ok, kt, n, N).to(tl.float32)
    y = _tile(v + b * vb + h * vh, t, ok, vt, u, U)
    last = tl.minimum(c * C + C, T) - 1
    Gp = G + b * gb + h * gh
    if DECAY == 2:
        here = _tile(Gp, t, t < T, gt, n, N)
        if not REVERSE:
            here = tl.load(Gp + last.to(tl.int64) * gt + n, mask=n < N, other=0.0)[None, :] - here
        x = x * tl.exp(tl.where((t < T)[:, None], here, 0.0))
    if DECAY == 1:
        at = tl.load(Gp + t * gt, mask=t < T, other=0.0)
        if not REVERSE:
            at = tl.load(Gp + last.to(tl.int64) * gt) - at
        x = x * tl.exp(tl.where(t < T, at, 0.0))[:, None]
    s = tl.dot(tl.trans(x.to(DOT)), y.to(DOT), input_precision=PRECISION) * scale
    stride = tl.cast(B, tl.int64) * H * U
    where = S + c.to(tl.int64) * N * stride + (b * H + h) * U
    inside = (n < N)[:, None] & (u < U)[None, :]
    tl.store(where + n.to(tl.int64)[:, None] * stride + u[None, :], s, mask=inside)


@triton.jit
def join(
    S, first, end, G, gt, gb, gh, T, B, H, N, U, chunks,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, DECAY: tl.constexpr, REVERSE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Replace what each chunk enters by the state before it (REVERSE: by the gradient of the state after it), from
    `first`, or zeros if it is None; write the state after the last one into `end`."""
    b, h = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    n, u = tl.program_id(1) * BN + tl.arange(0, BN), tl.program_id(2) * BU + tl.arange(0, BU)
    inside = (n < N)[:, None] & (u < U)[None, :]
    stride = tl.cast(B, tl.int64) * H * U
    at = (b * H + h) * U + n.to(tl.int64)[:, None] * stride + u[None, :]
    if first is None:  # noqa: SIM108  (Triton compiles one of the two)
        z = tl.zeros([BN, BU], tl.float32)
    else:
        z = tl.load(first + at, mask=inside, other=0.0)
    Gp = G + b * gb + h * gh
    for step in tl.range(0, chunks, num_stages=STAGES):
        c = step
        if REVERSE:
            c = chunks - 1 - step
        last = (tl.minimum(c * C + C, T) - 1).to(tl.int64)
        place = S + c.to(tl.int64) * N * stride + at
        new = tl.load(place, mask=inside, other=0.0)
        tl.store(place, z, mask=inside)
        if DECAY == 2:
            z = z * tl.exp(tl.load(Gp + last * gt + n, mask=n < N, other=0.0))[:, None]
        if DECAY == 1:
            z = z * tl.exp(tl.load(Gp + last * gt))
        z += new
    tl.store(end + at, z, mask=inside)


@triton.jit
def _around_middle(G, Gp, first, T, gt, n, N, C: tl.constexpr):
    """Return the decays from the middle of a chunk to each step, and the other way round: where a chunk forgets little,
    neither can overflow."""
    at = tl.minimum(first + C // 2, T) - 1
    middle = tl.load(Gp + at * gt + n, mask=n < N, other=0.0)[None, :]
    return tl.exp(G - middle), tl.exp(middle - G)


@triton.jit
def _pairs(
    q, k, G, Gp, t, first, T, gt, n, N,
    C: tl.constexpr, DECAY: tl.constexpr, MILD: tl.constexpr, DOT: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Return Σ_n q_t k_s exp(G_t − G_s), of which only s ≤ t counts."""
    if DECAY == 2:
        q, k = q.to(tl.float32), k.to(tl.float32)
        if tl.max(tl.abs(G)) < MILD:
            up, down = _around_middle(G, Gp, first, T, gt, n, N, C)
            a = tl.dot((q * up).to(DOT), tl.trans((k * down).to(DOT)), input_precision=P)
        else:
            i = tl.arange(0, C)
            a = tl.where(i[:, None] == i[None, :], tl.sum(q * k, 1)[:, None], 0.0)
            for level in tl.range(0, C.bit_length() - 1, num_stages=1):
                right, e = _halves(G, Gp, t, T, gt, n, N, level, C)
                x = (tl.where(right, q, k) * e).to(DOT)
                a += tl.where(_level(level, C), tl.dot(x, tl.trans(x), input_precision=P), 0.0)
    else:
        a = tl.dot(q.to(DOT), tl.trans(k.to(DOT)), input_precision=P)
    return a


@triton.jit
def outputs(
    q, k, v, G, S, o, mask, qt, qb, qh, kt, kb, kh, vt, vb, vh, gt, gb, gh, ot, ob, oh, mt, mb, T, B, H, N, U, shared,
    scale, C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, NN: tl.constexpr, NU: tl.constexpr, DECAY: tl.constexpr,
    MILD: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the outputs of a chunk, from its queries, keys, values and the state before it."""
    c, b, h = tl.program_id(0), (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    t, ok = _rows(c, b, T, mask, mt, mb, C, MASKED)
    i = tl.arange(0, C)
    qp, kp = q + b * qb + h // shared * qh, k + b * kb + h // shared * kh
    Gp = G + b * gb + h * gh
    stride = tl.cast(B, tl.int64) * H * U
    Sp = S + c.to(tl.int64) * N * stride + (b * H + h) * U
    a = tl.zeros([C, C], tl.float32)
    for block in range(NN):
        n = block * BN + tl.arange(0, BN)
        qs, ks = _tile(qp, t, ok, qt, n, N), _tile(kp, t, ok, kt, n, N)
        Gs = _tile(Gp, t, t < T, gt, n, N) if DECAY == 2 else 0.0
        a += _pairs(qs, ks, Gs, Gp, t, tl.cast(c, tl.int64) * C, T, gt, n, N, C, DECAY, MILD, DOT, PRECISION)
    decay = 1.0
    if DECAY == 1:
        at = tl.load(Gp + t * gt, mask=t < T, other=0.0)
        a = a * _decays(at, t, T, C)
        decay = tl.exp(at)[:, None]
    a = tl.where(i[:, None] >= i[None, :], a, 0.0).to(DOT)
    for column in range(NU):
        u = column * BU + tl.arange(0, BU)
        y = tl.zeros([C, BU], tl.float32)
        for block in range(NN):
            n = block * BN + tl.arange(0, BN)
            qs = _tile(qp, t, ok, qt, n, N).to(tl.float32)
            if DECAY == 2:  # noqa: SIM108
                qs = qs * tl.exp(_tile(Gp, t, t < T, gt, n, N))
            else:
                qs = qs * decay
            z = _state(Sp, n, u, N, U, stride)
            y = tl.dot(qs.to(DOT), z.to(DOT), y, input_precision=PRECISION)
        vs = _tile(v + b * vb + h * vh, t, ok, vt, u, U)
        y = tl.dot(a, vs.to(DOT), y, input_precision=PRECISION)
        inside = (t < T)[:, None] & (u < U)[None, :]
        where = o + b * ob + h * oh + t[:, None] * ot + u[None, :]
        tl.store(where, (y * scale).to(o.dtype.element_ty), mask=inside)


@triton.jit
def gradients(
    q, k, v, G, S, go, gS, dq, dk, dv, dG, mask,
    qt, qb, qh, kt, kb, kh, vt, vb, vh, gt, gb, gh, ot, ob, oh, dqt, dqb, dqh, dkt, dkb, dkh, dvt, dvb, dvh, mt, mb,
    T, B, H, N, U, shared, scale,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, NN: tl.constexpr, NU: tl.constexpr, DECAY: tl.constexpr,
    MILD: tl.constexpr, MASKED: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a chunk's queries, keys, values and decays (of G, where they have as many numbers), from
    the state before it and the gradient of the state after it."""
    c, b, h = tl.program_id(0), (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    t, ok = _rows(c, b, T, mask, mt, mb, C, MASKED)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    last = (tl.minimum(c * C + C, T) - 1).to(tl.int64)
    qp, kp = q + b * qb + h // shared * qh, k + b * kb + h // shared * kh
    vp, op = v + b * vb + h * vh, go + b * ob + h * oh
    Gp, dGp = G + b * gb + h * gh, dG + b * gb + h * gh
    stride = tl.cast(B, tl.int64) * H * U
    at = c.to(tl.int64) * N * stride + (b * H + h) * U
    da = tl.zeros([C, C], tl.float32)
    same = tl.zeros([C], tl.float32)
    for column in range(NU):
        u = column * BU + tl.arange(0, BU)
        os, vs = _tile(op, t, ok, ot, u, U), _tile(vp, t, ok, vt, u, U)
        da = tl.dot(os.to(DOT), tl.trans(vs.to(DOT)), da, input_precision=PRECISION)
        same += tl.sum(os.to(tl.float32) * vs.to(tl.float32), 1)
    da, same = da * scale, same * scale
    here = 0.0
    to_end = 0.0
    if DECAY == 1:
        here = tl.load(Gp + t * gt, mask=t < T, other=0.0)
        to_end = tl.exp(tl.where(t < T, tl.load(Gp + last * gt) - here, 0.0))[:, None]
        pair = _decays(here, t, T, C)
        here = tl.exp(here)[:, None]
        da = da * pair
    else:
        da = tl.where(i > j if DECAY == 2 else i >= j, da, 0.0)
    if DECAY == 2:
        both = da.to(DOT)
        both += tl.trans(both)  # one of the two is zero
    a = tl.zeros([C, C], tl.float32)
    steps = tl.zeros([C], tl.float32)  # dG of a decay per head
    for block in range(NN):
        n = block * BN + tl.arange(0, BN)
        qs, ks = _tile(qp, t, ok, qt, n, N).to(tl.float32), _tile(kp, t, ok, kt, n, N).to(tl.float32)
        rq, rk = tl.zeros([C, BN], tl.float32), tl.zeros([C, BN], tl.float32)
        kept = tl.zeros([BN], tl.float32)
        for column in range(NU):
            u = column * BU + tl.arange(0, BU)
            z, gz = _state(S + at, n, u, N, U, stride), _state(gS + at, n, u, N, U, stride)
            os, vs = _tile(op, t, ok, ot, u, U), _tile(vp, t, ok, vt, u, U)
            rq = tl.dot(os.to(DOT), tl.trans(z.to(DOT)), rq, input_precision=PRECISION)
            rk = tl.dot(vs.to(DOT), tl.trans(gz.to(DOT)), rk, input_precision=PRECISION)
            if DECAY > 0:
                kept += tl.sum(z * gz, 1)
        rq = rq * scale
        if DECAY == 2:
            Gs = _tile(Gp, t, t < T, gt, n, N)
            end = tl.load(Gp + last * gt + n, mask=n < N, other=0.0)
            rq = rq * tl.exp(Gs)
            rk = rk * tl.exp(tl.where((t < T)[:, None], end[None, :] - Gs, 0.0))
            kept = kept * tl.exp(end) + tl.sum(ks * rk, 0)
            if tl.max(tl.abs(Gs)) < MILD:
                up, down = _around_middle(Gs, Gp, tl.cast(c, tl.int64) * C, T, gt, n, N, C)
                x, y = (qs * up).to(DOT), (ks * down).to(DOT)
                a += tl.dot(x, tl.trans(y), input_precision=PRECISION)
                rq += tl.dot(tl.where(i > j, both, tl.zeros_like(both)), y, input_precision=PRECISION) * up
                rk += tl.dot(tl.where(i < j, both, tl.zeros_like(both)), x, input_precision=PRECISION) * down
            else:
                for level in tl.range(0, C.bit_length() - 1, num_stages=1):
                    right, e = _halves(Gs, Gp, t, T, gt, n, N, level, C)
                    pairs = _level(level, C)
                    x = (tl.where(right, qs, ks) * e).to(DOT)
                    a += tl.where(pairs, tl.dot(x, tl.trans(x), input_precision=PRECISION), 0.0)
                    r = tl.dot(tl.where(pairs, both, tl.zeros_like(both)), x, input_precision=PRECISION) * e
                    rq += tl.where(right, r, 0.0)
                    rk += tl.where(right, 0.0, r)
                a += tl.where(i == j, tl.sum(qs * ks, 1)[:, None], 0.0)
            dg = qs * rq - ks * rk + tl.where(t[:, None] == last, kept[None, :], 0.0)
            inside = (t < T)[:, None] & (n < N)[None, :]
            tl.store(dGp + t[:, None] * gt + n[None, :], dg, mask=inside)
            rq += same[:, None] * ks  # what a step reads of itself does not decay
            rk += same[:, None] * qs
        else:
            if DECAY == 1:
                rq, rk = rq * here, rk * to_end
                steps += tl.sum(qs * rq - ks * rk, 1)
                whole = tl.sum(kept) * tl.exp(tl.load(Gp + last * gt)) + tl.sum(ks * rk)
                steps += tl.where(t == last, whole, 0.0)
            x, y = qs.to(DOT), ks.to(DOT)
            a = tl.dot(x, tl.trans(y), a, input_precision=PRECISION)
            rq = tl.dot(da.to(DOT), y, rq, input_precision=PRECISION)
            rk = tl.dot(tl.trans(da.to(DOT)), x, rk, input_precision=PRECISION)
        inside = (t < T)[:, None] & (n < N)[None, :]
        where = dq + b * dqb + h * dqh + t[:, None] * dqt + n[None, :]
        tl.store(where, rq.to(dq.dtype.element_ty), mask=inside)
        where = dk + b * dkb + h * dkh + t[:, None] * dkt + n[None, :]
        tl.store(where, rk.to(dk.dtype.element_ty), mask=inside)
    if DECAY == 1:
        both = tl.where(i > j, da * a, 0.0)
        steps += tl.sum(both, 1) - tl.sum(both, 0)
        tl.store(dGp + t * gt, steps, mask=t < T)
        a = a * pair
    a = tl.trans(tl.where(i >= j, a, 0.0)).to(DOT)
    for column in range(NU):
        u = column * BU + tl.arange(0, BU)
        rv = tl.dot(a, _tile(op, t, ok, ot, u, U).to(DOT), input_precision=PRECISION) * scale
        for block in range(NN):
            n = block * BN + tl.arange(0, BN)
            ks = _tile(kp, t, ok, kt, n, N).to(tl.float32)
            if DECAY == 2:
                end = tl.load(Gp + last * gt + n, mask=n < N, other=0.0)
                ks = ks * tl.exp(
                    tl.where((t < T)[:, None], end[None, :] - _tile(Gp, t, t < T, gt, n, N), 0.0)
                )
            if DECAY == 1:
                ks = ks * to_end
            gz = _state(gS + at, n, u, N, U, stride)
            rv = tl.dot(ks.to(DOT), gz.to(DOT), rv, input_precision=PRECISION)
        inside = (t < T)[:, None] & (u < U)[None, :]
        where = dv + b * dvb + h * dvh + t[:, None] * dvt + u[None, :]
        tl.store(where, rv.to(dv.dtype.element_ty), mask=inside)
