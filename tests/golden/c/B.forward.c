/* B: forward, float

   x (T, B, K, D) with strides xt xb xk 1; params (P, D); first, final (S, B, D); mask (T, B) with strides, or NULL: a
   padded step keeps the state and outputs 0; inp (T, B, D), out (T, B, N D) with strides; saved (ceil(T / every), S, B, D): the
   states before the steps 0, every, 2 every, ... when every > 0. */
#include "kernel.h"

typedef float X;       /* what tensors hold */
typedef float real; /* what is computed with */
enum { S = 1, K = 2, P = 1, N = 1, V = 1, ROWS = 0, LANES = 16 };
enum { BLOCK = 768, PITCH = BLOCK + 16 }; /* lanes of a block; from row to row: rows 2^n apart would share cache sets */

struct call {
    const X *x; long xt, xb, xk;
    const real *params, *first;
    const uint8_t *mask; long mt, mb;
    const X *inp; long it, ib;
    X *out; long ot, ob;
    real *final, *saved;
    long every, T, B, D, threads;
    parallel_t parallel;
    const long *sequences; /* NULL, or of packed sequences, (B, 3): see `only` */
};

/* A packed sequence, (number, begin, end), as a call of its own with one batch row. States lie sequence by sequence. */
static struct call only(const struct call *p, const long *at) {
    struct call own = *p;
    own.T = at[2] - at[1], own.B = 1;
    own.x += at[1] * p->xt, own.out += at[1] * p->ot;
    if (p->inp) own.inp += at[1] * p->it;
    own.first += at[0] * S * p->D, own.final += at[0] * S * p->D;
    if (p->every) own.saved += (at[1] / p->every + at[0]) * S * p->D;
    return own;
}

/* Per-unit values, once a block. */
static void unit_lanes(long n, const real *restrict params, long stride, real *restrict unit) {
    real row[1][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
    SIMD
    for (long i = 0; i < n; i++) {
        const real v0 = params[0 * stride + i]; /* f.bias */
        unit[0 * PITCH + i] = v0;
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

/* One time step of n lanes, a multiple of LANES. */
static void step(long n, const X *restrict a, long xk, const X *restrict v, X *restrict o, long ok,
                 real *restrict z, const real *restrict unit) {
    real row[ROWS + 1][STRIP] __attribute__((aligned(64)));
    n &= -LANES; /* said here, so that the compiler leaves out what would run the last few lanes */
    SIMD
    for (long i = 0; i < n; i++) {
        const real v1 = z[0 * PITCH + i]; /* q1 */
        const real v2 = a[0 * xk + i]; /* f */
        const real v3 = unit[0 * PITCH + i];
        const real v4 = v2 + v3;
        const real v5 = decay_f(v4);
        const real v6 = half_f(v5);
        const real v7 = sigmoid_f(v4, v5, v6);
        const real v8 = v7 * v1;
        const real v9 = 1.0f - v7;
        const real v10 = a[1 * xk + i]; /* u */
        const real v11 = v9 * v10;
        const real v12 = v8 + v11;
        z[0 * PITCH + i] = v12;
    }
    SIMD
    for (long i = 0; i < n; i++) {
        const real v12 = z[0 * PITCH + i];
        const real v13 = tanh_f(v12);
        o[i] = v13;
    }
    (void)a, (void)xk, (void)v, (void)ok, (void)z, (void)unit, (void)row;
}

/* All steps of the lanes d0 .. d0 + n of one batch row. */
static void block(const struct call *p, long b, long d0, long n) {
    real z[(S + 1) * PITCH] __attribute__((aligned(64))), unit[(V + 1) * PITCH] __attribute__((aligned(64)));
    X pad[K + 1 + N][LANES] __attribute__((aligned(64))); /* the last lanes: projections, input, outputs */
    const long whole = n & -LANES, rest = n - whole, B = p->B, D = p->D;
    memset(z, 0, sizeof z), memset(pad, 0, sizeof pad);
    units(n, p->params + d0, D, unit);
    for (int s = 0; s < S; s++) memcpy(z + s * PITCH, p->first + (s * B + b) * D + d0, n * sizeof(real));
    for (long t = 0; t < p->T; t++) {
        X *o = p->out + t * p->ot + b * p->ob + d0;
        if (p->every && t % p->every == 0)
            for (int s = 0; s < S; s++)
                memcpy(p->saved + ((t / p->every * S + s) * B + b) * D + d0, z + s * PITCH, n * sizeof(real));
        if (p->mask && !p->mask[t * p->mt + b * p->mb]) {
            for (int k = 0; k < N; k++) memset(o + k * D, 0, n * sizeof(X));
            continue;
        }
        const X *a = p->x + t * p->xt + b * p->xb + d0, *v = p->inp ? p->inp + t * p->it + b * p->ib + d0 : 0;
        for (long i = 0; i < whole; i += STRIP) {
            const long m = whole - i < STRIP ? whole - i : STRIP;
            if (t + 1 < p->T)
            {
                for (int k = 0; k < K; k++) soon(a + p->xt + k * p->xk + i, m * sizeof(X));
                for (int k = 0; k < N; k++) soon_written(o + p->ot + k * D + i, m * sizeof(X));
            }
            step(m, a + i, p->xk, v ? v + i : 0, o + i, D, z + i, unit + i);
        }
        if (rest) {
            for (int k = 0; k < K; k++) few(pad[k], a + k * p->xk + whole, rest * sizeof(X));
            if (v) few(pad[K], v + whole, rest * sizeof(X));
            step(LANES, pad[0], LANES, pad[K], pad[K + 1], LANES, z + whole, unit + whole);
            for (int k = 0; k < N; k++) few(o + k * D + whole, pad[K + 1 + k], rest * sizeof(X));
        }
    }
    for (int s = 0; s < S; s++) memcpy(p->final + (s * B + b) * D + d0, z + s * PITCH, n * sizeof(real));
}

static void work(void *shared) {
    struct crew *crew = shared;
    const struct call *p = crew->call;
    const long width = block_width(p->D, p->B, BLOCK, p->threads), across = (p->D + width - 1) / width;
    for (long job; (job = take(crew)) >= 0;) {
        const long d0 = job % across * width, n = p->D - d0 < width ? p->D - d0 : width;
        const struct call own = p->sequences ? only(p, p->sequences + job / across * 3) : *p;
        block(&own, p->sequences ? 0 : job / across, d0, n);
    }
}

EXPORT int rrnn_forward(const struct call *p) {
    if (!p->B || !p->D) return 0;
    const long width = block_width(p->D, p->B, BLOCK, p->threads);
    struct crew crew = {p, p->B * ((p->D + width - 1) / width), 0};
    huge(p->out, ((p->T - 1) * p->ot + (p->B - 1) * p->ob + N * p->D) * sizeof(X));
    if (p->every) {
        const long rows = p->sequences ? p->T / p->every + p->B : (p->T + p->every - 1) / p->every * p->B;
        huge(p->saved, rows * S * p->D * sizeof(real));
    }
    gather(work, &crew, p->parallel, p->threads);
    return 0;
}
