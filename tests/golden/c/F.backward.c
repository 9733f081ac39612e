/* F: backward, float

   As forward; go (T, B, N D) the outputs' gradients; gx, gi the gradients of x and inp; gfinal, gfirst (S, B, D) those of the
   final states, or NULL for zeros, and of the first; gparams (P, D) those of the parameters, from `partial` (B, U, D): per
   batch row, sums over time of the gradients of per-unit values, which then are summed in a fixed order.

   Time runs in segments of `every` steps, the last one first: `again` runs a segment forward from its saved states and
   keeps the new states and whatever costs an exponential, `back` goes back through it. */
#include "kernel.h"

typedef float X;       /* what tensors hold */
typedef float real; /* what is computed with */
enum { S = 2, K = 4, P = 5, N = 1, V = 5, U = 5, ROWS = 0, LANES = 16 };
enum { BLOCK = 576, PITCH = BLOCK + 16 }; /* lanes of a block; from row to row: rows 2^n apart would share cache sets */
enum { KEPT = 4 }; /* rows that `again` leaves for `back`, the new states first */

struct call {
    const X *x; long xt, xb, xk;
    const real *params;
    const uint8_t *mask; long mt, mb;
    const X *inp; long it, ib;
    const real *saved; long every;
    const X *go; long got, gob;
    const real *gfinal;
    real *gfirst;
    X *gx; long gxt, gxb, gxk;
    X *gi; long git, gib;
    real *gparams;
    long T, B, D, threads;
    parallel_t parallel;
    const long *sequences; /* NULL, or of packed sequences, (B, 3): see `only` */
};

/* A packed sequence, (number, begin, end), as a call of its own with one batch row. States lie sequence by sequence. */
static struct call only(const struct call *p, const long *at) {
    struct call own = *p;
    const long begin = at[1], states = at[0] * S * p->D;
    own.T = at[2] - begin, own.B = 1;
    own.x += begin * p->xt, own.go += begin * p->got, own.gx += begin * p->gxt;
    if (p->inp) own.inp += begin * p->it;
    if (p->gi) own.gi += begin * p->git;
    if (p->gfinal) own.gfinal += states;
    own.gfirst += states, own.saved += (begin / p->every + at[0]) * S * p->D;
    return own;
}

/* Per-unit values, once a block. */
static void unit_lanes(long n, const real *restrict params, long stride, real *restrict unit) {
    real row[1][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
    SIMD
    for (long i = 0; i < n; i++) {
        const real v0 = params[2 * stride + i]; /* r */
        const real v1 = decay_f(v0);
        const real v2 = half_f(v1);
        const real v3 = sigmoid_f(v0, v1, v2);
        const real v4 = params[0 * stride + i]; /* f1.bias */
        const real v5 = params[1 * stride + i]; /* f2.bias */
        const real v6 = params[3 * stride + i]; /* p1 */
        const real v7 = decay_f(v6);
        const real v8 = half_f(v7);
        const real v9 = sigmoid_f(v6, v7, v8);
        const real v10 = params[4 * stride + i]; /* p2 */
        const real v11 = decay_f(v10);
        const real v12 = half_f(v11);
        const real v13 = sigmoid_f(v10, v11, v12);
        unit[0 * PITCH + i] = v3;
        unit[1 * PITCH + i] = v4;
        unit[2 * PITCH + i] = v5;
        unit[3 * PITCH + i] = v9;
        unit[4 * PITCH + i] = v13;
    }
    (void)params, (void)stride, (void)row;
}

static void units(long n, const real *params, long D, real *unit) {
    real pad[P + 1][LANES] __attribute__((aligned(64)));
    const long whole = n & -LANES, rest = n - whole;
    for (long i = 0; i < whole; i += STRIP)
        unit_lanes(whole - i < STRIP ? whole - i : STRIP, params + i, D, unit + i);
    if (!rest) return;
    memset(pad, 0, sizeof pad);
    for (int k = 0; k < P; k++) few(pad[k], params + k * D + whole, rest * sizeof(real));
    unit_lanes(LANES, pad[0], LANES, unit + whole);
}

/* One step forward, n lanes, a multiple of LANES: from the old states to new states and kept values. */
static void again(long n, const X *restrict a, long xk, const X *restrict v, const real *restrict old,
                  real *restrict kept, const real *restrict unit) {
    real row[ROWS + 1][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
    SIMD
    for (long i = 0; i < n; i++) {
        const real v1 = unit[0 * PITCH + i];
        const real v2 = old[0 * PITCH + i]; /* q1 */
        const real v3 = old[1 * PITCH + i]; /* q2 */
        const real v4 = a[0 * xk + i]; /* f1 */
        const real v5 = unit[1 * PITCH + i];
        const real v6 = v4 + v5;
        const real v7 = decay_f(v6);
        const real v8 = half_f(v7);
        const real v9 = sigmoid_f(v6, v7, v8);
        const real v10 = v9 * v2;
        const real v11 = 1.0f - v9;
        const real v12 = a[1 * xk + i]; /* u1 */
        const real v13 = v11 * v12;
        const real v14 = v10 + v13;
        const real v15 = a[2 * xk + i]; /* f2 */
        const real v16 = unit[2 * PITCH + i];
        const real v17 = v15 + v16;
        const real v18 = decay_f(v17);
        const real v19 = half_f(v18);
        const real v20 = sigmoid_f(v17, v18, v19);
        const real v21 = v20 * v3;
        const real v22 = 1.0f - v20;
        const real v23 = a[3 * xk + i]; /* u2 */
        const real v24 = v22 * v23;
        const real v25 = v2 + v1;
        const real v26 = v24 * v25;
        const real v27 = v21 + v26;
        kept[0 * PITCH + i] = v14;
        kept[1 * PITCH + i] = v27;
        kept[2 * PITCH + i] = v9;
        kept[3 * PITCH + i] = v20;
    }
    (void)a, (void)xk, (void)v, (void)old, (void)kept, (void)unit, (void)row;
}

/* One step back: q is the output's gradient, g the new states' (in) and the old states' (out). */
static void back(long n, const X *restrict a, long xk, const X *restrict v, const X *restrict q, long qk,
                 const real *restrict old, const real *restrict kept, const real *restrict unit,
                 real *restrict g, real *restrict acc, X *restrict ga, long gxk, X *restrict gv) {
    real row[ROWS + 1][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
    SIMD
    for (long i = 0; i < n; i++) {
        const real v1 = unit[0 * PITCH + i];
        const real v2 = old[0 * PITCH + i]; /* q1 */
        const real v3 = old[1 * PITCH + i]; /* q2 */
        const real v9 = kept[2 * PITCH + i];
        const real v11 = 1.0f - v9;
        const real v12 = a[1 * xk + i]; /* u1 */
        const real v14 = kept[0 * PITCH + i];
        const real v20 = kept[3 * PITCH + i];
        const real v22 = 1.0f - v20;
        const real v23 = a[3 * xk + i]; /* u2 */
        const real v24 = v22 * v23;
        const real v25 = v2 + v1;
        const real v27 = kept[1 * PITCH + i];
        const real v28 = unit[3 * PITCH + i];
        const real v29 = v14 * v28;
        const real v30 = unit[4 * PITCH + i];
        const real v31 = v27 * v30;
        const real v32 = v29 + v31;
        const real v33 = tanh_f(v32);
        const real v34 = q[i];
        const real v35 = g[0 * PITCH + i];
        const real v36 = g[1 * PITCH + i];
        const real v37 = v33 * v33;
        const real v38 = 1.0f - v37;
        const real v39 = v34 * v38;
        const real v40 = v39 * v30;
        const real v41 = v39 * v27;
        const real v42 = v36 + v40;
        const real v43 = v39 * v28;
        const real v44 = v39 * v14;
        const real v45 = v35 + v43;
        const real v46 = v42 * v25;
        const real v47 = v42 * v24;
        const real v48 = v46 * v23;
        const real v49 = v46 * v22;
        const real v50 = -v48;
        const real v51 = v42 * v3;
        const real v52 = v42 * v20;
        const real v53 = v50 + v51;
        const real v54 = v20 * v22;
        const real v55 = v53 * v54;
        const real v56 = v45 * v12;
        const real v57 = v45 * v11;
        const real v58 = -v56;
        const real v59 = v45 * v2;
        const real v60 = v45 * v9;
        const real v61 = v58 + v59;
        const real v62 = v47 + v60;
        const real v63 = v9 * v11;
        const real v64 = v61 * v63;
        g[0 * PITCH + i] = v62;
        g[1 * PITCH + i] = v52;
        ga[0 * gxk + i] = v64;
        ga[1 * gxk + i] = v57;
        ga[2 * gxk + i] = v55;
        ga[3 * gxk + i] = v49;
        acc[0 * PITCH + i] += v47;
        acc[1 * PITCH + i] += v64;
        acc[2 * PITCH + i] += v55;
        acc[3 * PITCH + i] += v44;
        acc[4 * PITCH + i] += v41;
    }
    (void)a, (void)xk, (void)v, (void)q, (void)qk, (void)old, (void)kept, (void)unit, (void)acc, (void)gxk, (void)gv, (void)row;
}

struct shared { const struct call *call; real *partial; };

/* All steps of the lanes d0 .. d0 + n of one batch row; `kept` has room for one segment. */
static void block(const struct call *p, long b, long d0, long n, real (*kept)[KEPT * PITCH], real *partial) {
    real g[(S + 1) * PITCH] __attribute__((aligned(64))), unit[(V + 1) * PITCH] __attribute__((aligned(64)));
    real acc[(U + 1) * PITCH] __attribute__((aligned(64))), first[(S + 1) * PITCH] __attribute__((aligned(64)));
    X pad[K + 1 + N][LANES] __attribute__((aligned(64))), out[K + 1][LANES] __attribute__((aligned(64)));
    const long whole = n & -LANES, rest = n - whole, B = p->B, D = p->D;
    memset(g, 0, sizeof g), memset(acc, 0, sizeof acc), memset(first, 0, sizeof first), memset(pad, 0, sizeof pad);
    units(n, p->params + d0, D, unit);
    for (int s = 0; s < S && p->gfinal; s++)
        memcpy(g + s * PITCH, p->gfinal + (s * B + b) * D + d0, n * sizeof(real));
    for (long t1 = p->T; t1 > 0;) {
        const long t0 = (t1 - 1) / p->every * p->every;
        for (int s = 0; s < S; s++)
            memcpy(first + s * PITCH, p->saved + ((t0 / p->every * S + s) * B + b) * D + d0, n * sizeof(real));
        for (long t = t0; t < t1; t++) {
            const real *old = t > t0 ? kept[t - t0 - 1] : first;
            if (p->mask && !p->mask[t * p->mt + b * p->mb]) {
                memcpy(kept[t - t0], old, S * PITCH * sizeof(real));
                continue;
            }
            const X *a = p->x + t * p->xt + b * p->xb + d0, *v = p->inp ? p->inp + t * p->it + b * p->ib + d0 : 0;
            const long next = t + 1 < t1 ? t + 1 : t0 - p->every;
            for (long i = 0; i < whole; i += STRIP) {
                const long m = whole - i < STRIP ? whole - i : STRIP;
                if (next >= 0)
                    for (int k = 0; k < K; k++) soon(a + (next - t) * p->xt + k * p->xk + i, m * sizeof(X));
                again(m, a + i, p->xk, v ? v + i : 0, old + i, kept[t - t0] + i, unit + i);
            }
            if (rest) {
                for (int k = 0; k < K; k++) few(pad[k], a + k * p->xk + whole, rest * sizeof(X));
                if (v) few(pad[K], v + whole, rest * sizeof(X));
                again(LANES, pad[0], LANES, pad[K], old + whole, kept[t - t0] + whole, unit + whole);
            }
        }
        for (long t = t1 - 1; t >= t0; t--) {
            X *ga = p->gx + t * p->gxt + b * p->gxb + d0, *gv = p->gi ? p->gi + t * p->git + b * p->gib + d0 : 0;
            if (p->mask && !p->mask[t * p->mt + b * p->mb]) {
                for (int k = 0; k < K; k++) memset(ga + k * p->gxk, 0, n * sizeof(X));
                if (gv) memset(gv, 0, n * sizeof(X));
                continue;
            }
            const X *a = p->x + t * p->xt + b * p->xb + d0, *v = p->inp ? p->inp + t * p->it + b * p->ib + d0 : 0;
            const X *q = p->go + t * p->got + b * p->gob + d0;
            const real *old = t > t0 ? kept[t - t0 - 1] : first;
            for (long i = 0; i < whole; i += STRIP) {
                const long m = whole - i < STRIP ? whole - i : STRIP;
                if (t > 0) {
                    for (int k = 0; k < N; k++) soon(q - p->got + k * D + i, m * sizeof(X));
                    for (int k = 0; k < K; k++) soon_written(ga - p->gxt + k * p->gxk + i, m * sizeof(X));
                }
                back(m, a + i, p->xk, v ? v + i : 0, q + i, D, old + i, kept[t - t0] + i, unit + i,
                     g + i, acc + i, ga + i, p->gxk, gv ? gv + i : 0);
            }
            if (rest) {
                for (int k = 0; k < K; k++) few(pad[k], a + k * p->xk + whole, rest * sizeof(X));
                if (v) few(pad[K], v + whole, rest * sizeof(X));
                for (int k = 0; k < N; k++) few(pad[K + 1 + k], q + k * D + whole, rest * sizeof(X));
                back(LANES, pad[0], LANES, pad[K], pad[K + 1], LANES, old + whole, kept[t - t0] + whole, unit + whole,
                     g + whole, acc + whole, out[0], LANES, out[K]);
                for (int k = 0; k < K; k++) few(ga + k * p->gxk + whole, out[k], rest * sizeof(X));
                if (gv) few(gv + whole, out[K], rest * sizeof(X));
            }
        }
        t1 = t0;
    }
    for (int s = 0; s < S; s++) memcpy(p->gfirst + (s * B + b) * D + d0, g + s * PITCH, n * sizeof(real));
    for (int u = 0; u < U; u++) memcpy(partial + (b * U + u) * D + d0, acc + u * PITCH, n * sizeof(real));
}

static void work(void *shared) {
    struct crew *crew = shared;
    const struct shared *shared_by = crew->call;
    const struct call *p = shared_by->call;
    const long width = block_width(p->D, p->B, BLOCK, p->threads), across = (p->D + width - 1) / width;
    const long steps = p->every < p->T ? p->every : p->T;
    void *kept = aligned_alloc(64, (steps + 1) * KEPT * PITCH * sizeof(real));
    for (long job; kept && (job = take(crew)) >= 0;) {
        const long d0 = job % across * width, n = p->D - d0 < width ? p->D - d0 : width;
        if (p->sequences) {
            const long *at = p->sequences + job / across * 3;
            const struct call own = only(p, at);
            block(&own, 0, d0, n, kept, shared_by->partial + at[0] * U * p->D);
        } else
            block(p, job / across, d0, n, kept, shared_by->partial);
    }
    aligned_free(kept);
}

/* The gradients of parameters from those of per-unit values, n lanes. */
static void epilogue(long n, const real *restrict params, const real *restrict total, long stride,
                     real *restrict gparams) {
    real row[ROWS + 1][STRIP] __attribute__((aligned(64)));
    SIMD
    for (long i = 0; i < n; i++) {
        const real v1 = params[2 * stride + i];
        const real v2 = decay_f(v1);
        const real v3 = half_f(v2);
        const real v4 = sigmoid_f(v1, v2, v3);
        const real v5 = params[3 * stride + i];
        const real v6 = decay_f(v5);
        const real v7 = half_f(v6);
        const real v8 = sigmoid_f(v5, v6, v7);
        const real v9 = params[4 * stride + i];
        const real v10 = decay_f(v9);
        const real v11 = half_f(v10);
        const real v12 = sigmoid_f(v9, v10, v11);
        const real v13 = total[0 * stride + i];
        const real v14 = total[1 * stride + i];
        const real v15 = total[2 * stride + i];
        const real v16 = total[3 * stride + i];
        const real v17 = total[4 * stride + i];
        const real v18 = 1.0f - v12;
        const real v19 = v12 * v18;
        const real v20 = v17 * v19;
        const real v21 = 1.0f - v8;
        const real v22 = v8 * v21;
        const real v23 = v16 * v22;
        const real v24 = 1.0f - v4;
        const real v25 = v4 * v24;
        const real v26 = v13 * v25;
        gparams[0 * stride + i] = v14;
        gparams[1 * stride + i] = v15;
        gparams[2 * stride + i] = v26;
        gparams[3 * stride + i] = v23;
        gparams[4 * stride + i] = v20;
    }
    (void)params, (void)total, (void)stride, (void)row;
}

EXPORT int rrnn_backward(const struct call *p) {
    if (!p->B || !p->D) {
        memset(p->gparams, 0, P * p->D * sizeof(real));
        return 0;
    }
    const long width = block_width(p->D, p->B, BLOCK, p->threads), UD = U * p->D;
    real *total = malloc((p->B * UD + 1) * sizeof(real)); /* of the first row: the others are added to it */
    struct shared shared = {p, total};
    struct crew crew = {&shared, p->B * ((p->D + width - 1) / width), 0};
    huge(p->gx, ((p->T - 1) * p->gxt + (p->B - 1) * p->gxb + (K - 1) * p->gxk + p->D) * sizeof(X));
    if (total) gather(work, &crew, p->parallel, p->threads);
    const int done = crew.next >= crew.jobs; /* else no thread found memory */
    for (long b = 1; done && b < p->B; b++)
        for (long i = 0; i < UD; i++) total[i] += total[b * UD + i];
    for (long d = 0; done && d < p->D; d += STRIP)
        epilogue(p->D - d < STRIP ? p->D - d : STRIP, p->params + d, total + d, p->D, p->gparams + d);
    free(total);
    return !done;
}
