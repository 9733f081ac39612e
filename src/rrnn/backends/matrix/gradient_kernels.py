"""Triton kernels of the matrix schedule's gradients; `kernels` explains the schedule and its words."""

# Type checkers do not know Triton's language.
# pyright: reportPossiblyUnboundVariable=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportCallIssue=false, reportAssignmentType=false

import triton
import triton.language as tl

from rrnn.backends.matrix.kernels import (
    _beginning,
    _chunk_place,
    _coming,
    _exp,
    _halves,
    _known,
    _level,
    _middle,
    _own,
    _pairs,
    _place,
    _program,
    _put,
    _rows,
    _segment,
    _sums,
    _tile,
    _weighted,
)


@triton.jit
def rounded(x, DOT: tl.constexpr, P: tl.constexpr):
    """Return x as products read it. The gradient of a log-decay is a difference: queries times their gradients less
    keys times theirs, summed from its step on. Pairs of steps behind it must cancel, so both sides round alike. (TF32
    products drop the last 13 bits.)"""
    if P == "tf32":
        y = ((x.to(tl.float32).to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
    else:
        y = x.to(DOT)
    return y


@triton.jit
def _diagonal(x, N: tl.constexpr):
    """Return the diagonal of a square. (Triton loads ahead what products read, so a product of two tiles is faster here
    than sums of what they are element by element.)"""
    i = tl.arange(0, N)
    return tl.sum(tl.where(i[:, None] == i[None, :], x, 0.0), 1)


@triton.jit
def query_gradients(
    q, k, v, G, weights, S, go, dq, w, Z, mask, table, harsh,
    qt, qb, qh, kt, kb, kh, vt, vb, vh, gt, gb, gh, ot, ob, oh, dqt, dqb, dqh, wn, wt, wb, wh, mt, mb,
    T, B, H, N, U, shared, scale, L,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, DECAY: tl.constexpr, STAGES: tl.constexpr, UNIT: tl.constexpr,
    DOT: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the gradients of BN states' queries. Where they decay, write the queries times their gradients into w
    (summed over these states, if the decay is a head's), and into Z the states before each chunk, for keys."""
    slot, b, h = _program(B, H)
    first, stop, ahead = _segment(table, slot, T, L)
    n, u = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BU)
    qt, qb, qh = _known(qt, qb, qh, UNIT)
    kt, kb, kh = _known(kt, kb, kh, UNIT)
    vt, vb, vh = _known(vt, vb, vh, UNIT)
    ot, ob, oh = _known(ot, ob, oh, UNIT)
    dqt, dqb, dqh = _known(dqt, dqb, dqh, UNIT)
    qp, kp = q + b * qb + h // shared * qh, k + b * kb + h // shared * kh
    vp, op, dp, Gp = v + b * vb + h * vh, go + b * ob + h * oh, dq + b * dqb + h * dqh, G
    row = b * gb + h * gh
    if DECAY > 0:
        Gp = G + row
    EXACT: tl.constexpr = w is not None and DECAY == 1 and P == "ieee" and tl.float32 == DOT
    if w is not None:
        wp = w + b * wb + h * wh
    at, inside = _place(slot, b, B, h, H, n, N, u, U)
    z = _beginning(S, at, inside)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    chunks, _ = _own(tl.cdiv(stop - first, C), harsh, slot, b, B, h, H, DECAY)
    if DECAY == 1:
        coming = _coming(Gp, first + C - 1, stop, gt, chunks > 0)
    for step in tl.range(0, chunks, num_stages=STAGES):
        start = first + step * C
        t, ok, near = _rows(start, stop, b, mask, mt, mb, C)
        ks, vs, os = (
            _tile(kp, start, ok, kt, n, N),
            _tile(vp, start, ok, vt, u, U),
            _tile(op, start, ok, ot, u, U),
        )
        vs, os = vs.to(DOT), os.to(DOT)
        da = tl.dot(os, tl.trans(vs), input_precision=P) * scale
        last = tl.minimum(start + C, stop) - 1
        if w is not None:
            qs = _tile(qp, start, ok, qt, n, N).to(tl.float32)
            place = Z + _chunk_place(start // C + ahead, b, B, h, H, n, N, u, U)
            tl.store(place, z.to(Z.dtype.element_ty), mask=inside)
        if DECAY >= 2:
            ks = ks.to(tl.float32)
            Gs, end = _sums(Gp, near, gt, n, N), tl.load(Gp + last * gt + n, mask=n < N, other=0.0)
            if DECAY == 2:
                up, down, into, out = _middle(Gs, Gp, start, stop, gt, n, N, end, C)
                y = rounded(ks * down, DOT, P)
                z = z * into[:, None]
                r = tl.dot(os, tl.trans(z.to(DOT)), input_precision=P) * scale
                r = tl.dot(tl.where(i >= j, da, 0.0).to(DOT), y, r, input_precision=P)
                if w is not None:
                    own = rounded(qs * up, DOT, P).to(tl.float32) * r
                r = r * up
                z = tl.dot(tl.trans(y), vs, z, input_precision=P) * out[:, None]
            else:
                y = (ks * _exp(end[None, :] - Gs)).to(DOT)
                r = tl.dot(os, tl.trans(z.to(DOT)), input_precision=P) * scale * _exp(Gs)
                if w is not None:
                    own = qs * r
                for level in tl.range(0, C.bit_length() - 1, num_stages=1):
                    e = _halves(Gs, Gp, t, start, stop, gt, n, N, level, C)
                    m = tl.where(_level(level, C), da, 0.0).to(DOT)
                    part = tl.dot(m, rounded(ks * e, DOT, P), input_precision=P)
                    r += part * e
                    if w is not None:
                        own += rounded(qs * e, DOT, P).to(tl.float32) * part
                r += (
                    tl.sum(tl.where(i == j, da, 0.0), 1)[:, None] * ks
                )  # what a step reads of itself does not decay
                z = tl.dot(tl.trans(y), vs, z * _exp(end)[:, None], input_precision=P)
            if w is not None:
                _put(wp, start, t < stop, wt, n, N, own)
        else:
            y, x = rounded(ks, DOT, P), vs
            r = tl.dot(os, tl.trans(z.to(DOT)), input_precision=P) * scale
            if DECAY == 1:
                here = tl.load(Gp + near * gt)
                da = da * _exp(tl.where(i >= j, here[:, None] - here[None, :], float("-inf")))
                da = _weighted(da, weights, row + near[None, :] * gt)
                r = r * _exp(here)[:, None]
                end, coming = coming, _coming(Gp, start + 2 * C - 1, stop, gt, True)
                kept = _weighted(_exp(end - here), weights, row + near * gt)
                x = (vs.to(tl.float32) * kept[:, None]).to(DOT)
                z = z * _exp(end)
            else:
                da = tl.where(i >= j, da, 0.0)
            if EXACT:
                along = tl.sum(tl.where(i >= j, tl.sum(qs * r, 1)[:, None], 0.0), 0)
            r = tl.dot(da.to(DOT), y, r, input_precision=P)
            if w is not None:
                if not EXACT:
                    along = tl.sum(rounded(qs, DOT, P).to(tl.float32) * r, 1)
                tl.store(wp + tl.program_id(1).to(tl.int64) * wn + t * wt, along, mask=t < stop)
            z = tl.dot(tl.trans(y), x, z, input_precision=P)
        _put(dp, start, t < stop, dqt, n, N, r)


@triton.jit
def key_gradients(
    q, k, v, G, weights, skips, gS, go, dk, dv, w, dweights, dskips, Z, gfirst, mask, table, harsh,
    qt, qb, qh, kt, kb, kh, vt, vb, vh, gt, gb, gh, ot, ob, oh, dkt, dkb, dkh, dvt, dvb, dvh, wn, wt, wb, wh, mt, mb,
    T, B, H, N, U, shared, scale, L,
    C: tl.constexpr, BN: tl.constexpr, BU: tl.constexpr, KEYS: tl.constexpr, VALUES: tl.constexpr,
    DECAY: tl.constexpr, STAGES: tl.constexpr, UNIT: tl.constexpr, DOT: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Write the gradients of keys and decays (KEYS; BU covers all units) and of values (VALUES; BN covers all states),
    from the gradient of the state after each segment; into w, keys times their gradients, negative,
    and at each chunk's last step what the state after it contributes. Write the gradients of weights for these units
    (VALUES) and of skips (KEYS), where there are any. Write the gradient of the state before the segment unless
    `gfirst` is None."""
    slot, b, h = _program(B, H)
    first, stop, ahead = _segment(table, slot, T, L)
    n, u = tl.arange(0, BN), tl.arange(0, BU)
    if not VALUES:
        n += tl.program_id(1) * BN
    if not KEYS:
        u += tl.program_id(1) * BU
    qt, qb, qh = _known(qt, qb, qh, UNIT)
    kt, kb, kh = _known(kt, kb, kh, UNIT)
    vt, vb, vh = _known(vt, vb, vh, UNIT)
    ot, ob, oh = _known(ot, ob, oh, UNIT)
    dkt, dkb, dkh = _known(dkt, dkb, dkh, UNIT)
    dvt, dvb, dvh = _known(dvt, dvb, dvh, UNIT)
    qp, kp = q + b * qb + h // shared * qh, k + b * kb + h // shared * kh
    vp, op, Gp = v + b * vb + h * vh, go + b * ob + h * oh, G
    dkp, dvp = dk + b * dkb + h * dkh, dv + b * dvb + h * dvh
    # Where what has one number per step begins, and its gradients.
    row, own = b * gb + h * gh, b * wb + h * wh
    if DECAY > 0:
        Gp = G + row
    EXACT: tl.constexpr = w is not None and DECAY == 1 and P == "ieee" and tl.float32 == DOT
    if w is not None:
        wp = w + own
    at, inside = _place(slot, b, B, h, H, n, N, u, U)
    z = _beginning(gS, at, inside)
    i, j = tl.arange(0, C)[:, None], tl.arange(0, C)[None, :]
    chunks, mine = _own(tl.cdiv(stop - first, C), harsh, slot, b, B, h, H, DECAY)
    if DECAY == 1:
        coming = _coming(Gp, first + chunks * C - 1, stop, gt, chunks > 0)
    for step in tl.range(0, chunks, num_stages=STAGES):
        start = first + (chunks - 1 - step) * C
        t, ok, near = _rows(start, stop, b, mask, mt, mb, C)
        qs, ks = _tile(qp, start, ok, qt, n, N), _tile(kp, start, ok, kt, n, N)
        os = _tile(op, start, ok, ot, u, U).to(DOT)
        last = tl.minimum(start + C, stop) - 1
        if KEYS or dweights is not None:
            vs = _tile(vp, start, ok, vt, u, U).to(DOT)
            if KEYS and w is not None:
                place = Z + _chunk_place(start // C + ahead, b, B, h, H, n, N, u, U)
                before = tl.load(place, mask=inside, other=0.0)
        if DECAY >= 2:
            Gs, end = _sums(Gp, near, gt, n, N), tl.load(Gp + last * gt + n, mask=n < N, other=0.0)
            qs, ks = qs.to(tl.float32), ks.to(tl.float32)
            if DECAY == 2:
                up, down, into, out = _middle(Gs, Gp, start, stop, gt, n, N, end, C)
                x, y = rounded(qs * up, DOT, P), rounded(ks * down, DOT, P)
                z = z * out[:, None]
                after, z = z.to(DOT), z * into[:, None]
                if VALUES:
                    a = tl.dot(y, tl.trans(x), input_precision=P)  # transposed: rows are s
            else:
                x, y = (qs * _exp(Gs)).to(DOT), (ks * _exp(end[None, :] - Gs)).to(DOT)
                into = _exp(end)
                after, z = z.to(DOT), z * into[:, None]
                if VALUES:
                    a = tl.trans(_pairs(qs, ks, Gs, Gp, t, start, stop, gt, n, N, C, DOT, P))
            if VALUES:
                r = tl.dot(y, after, input_precision=P)
                r = tl.dot((tl.where(i <= j, a, 0.0) * scale).to(DOT), os, r, input_precision=P)
                _put(dvp, start, t < stop, dvt, u, U, r)
            if KEYS:
                da = tl.where(i <= j, tl.dot(vs, tl.trans(os), input_precision=P) * scale, 0.0)
                r = tl.dot(vs, tl.trans(after), input_precision=P)
                if w is not None:
                    kept = into * _diagonal(tl.dot(before.to(DOT), tl.trans(after), input_precision=P), BN)
                if DECAY == 2:
                    if w is not None:
                        kept += tl.sum(y.to(tl.float32) * r, 0)
                    r = tl.dot(da.to(DOT), x, r, input_precision=P)
                    if w is not None:
                        taken = y.to(tl.float32) * r
                    r = r * down
                else:
                    r = r * _exp(end[None, :] - Gs)
                    if w is not None:
                        taken = ks * r
                        kept += tl.sum(taken, 0)
                    for level in tl.range(0, C.bit_length() - 1, num_stages=1):
                        e = _halves(Gs, Gp, t, start, stop, gt, n, N, level, C)
                        m = tl.where(tl.trans(_level(level, C)), da, 0.0).to(DOT)
                        part = tl.dot(m, rounded(qs * e, DOT, P), input_precision=P)
                        r += part * e
                        if w is not None:
                            taken += rounded(ks * e, DOT, P).to(tl.float32) * part
                    r += tl.sum(tl.where(i == j, da, 0.0), 1)[:, None] * qs
                _put(dkp, start, t < stop, dkt, n, N, r)
                if w is not None:
                    _put(
                        wp,
                        start,
                        t < stop,
                        wt,
                        n,
                        N,
                        tl.where(t[:, None] == last, kept[None, :], 0.0) - taken,
                    )
            new = tl.dot(tl.trans(x), os, input_precision=P) * scale
            if DECAY == 2:
                new = new * into[:, None]
            z += new
        else:
            x, y, after = rounded(qs, DOT, P), rounded(ks, DOT, P), z.to(DOT)
            if DECAY == 1:
                here, end = tl.load(Gp + near * gt), coming
                coming = _coming(Gp, start - 1, stop, gt, True)
                pair = _exp(tl.where(i <= j, here[None, :] - here[:, None], float("-inf")))
                to_end = _exp(end - here)[:, None]
            if VALUES:
                a = tl.dot(y, tl.trans(x), input_precision=P) * scale  # transposed: rows are s
                a = a * pair if DECAY == 1 else tl.where(i <= j, a, 0.0)
            if KEYS:
                da = tl.dot(vs, tl.trans(os), input_precision=P)
                if dskips is not None:
                    tl.store(dskips + own + t * wt, tl.sum(tl.where(i == j, da, 0.0), 1), mask=t < stop)
                da = da * scale
                if DECAY == 1:  # weighted as `query_gradients` does, so that both sides round alike
                    da = _weighted(da * pair, weights, row + near[:, None] * gt)
                else:
                    da = tl.where(i <= j, da, 0.0)
            if VALUES:
                r = tl.dot(y, after, input_precision=P)
                if DECAY == 1:
                    r = r * to_end
                r = tl.dot(a.to(DOT), os, r, input_precision=P)
                if dweights is not None:
                    along = tl.sum(r * vs.to(tl.float32), 1)
                    tl.store(
                        dweights + own + tl.program_id(1).to(tl.int64) * wn + t * wt, along, mask=t < stop
                    )
                r = _weighted(r, weights, row + near[:, None] * gt)
                if skips is not None:
                    r += _weighted(os.to(tl.float32), skips, row + near[:, None] * gt)
                _put(dvp, start, t < stop, dvt, u, U, r)
            if KEYS:
                r = tl.dot(vs, tl.trans(after), input_precision=P)
                if DECAY == 1:
                    r = r * _weighted(to_end, weights, row + near[:, None] * gt)
                if w is not None:
                    kept = tl.sum(before.to(tl.float32) * z) * _exp(end)
                    if EXACT:
                        m = tl.where(i < j, da * tl.dot(y, tl.trans(x), input_precision=P), 0.0)
                        m = tl.dot(m, tl.where(i >= j, 1.0, 0.0), input_precision=P)  # sums from each t on
                        along = kept + tl.sum(tl.where(i < j, m + tl.sum(y * r, 1)[:, None], 0.0), 0)
                    else:
                        kept += tl.sum(y.to(tl.float32) * r)
                r = tl.dot(da.to(DOT), x, r, input_precision=P)
                if w is not None:
                    if not EXACT:
                        along = tl.where(t == last, kept, 0.0) - tl.sum(y.to(tl.float32) * r, 1)
                    tl.store(w + own + tl.program_id(1).to(tl.int64) * wn + t * wt, along, mask=t < stop)
                _put(dkp, start, t < stop, dkt, n, N, r)
            g = os
            if DECAY == 1:
                g, z = (os.to(tl.float32) * _exp(here)[:, None]).to(DOT), z * _exp(end)
            z += tl.dot(tl.trans(x), g, input_precision=P) * scale
    if gfirst is not None:  # noqa: SIM102  (known when it is compiled)
        if mine:
            tl.store(gfirst + at, z, mask=inside)
