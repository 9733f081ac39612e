/* @name@: backward, @type@

   As forward; go (T, B, N D) the outputs' gradients; gx, gi the gradients of x and inp; gfinal, gfirst (S, B, D) those of the
   final states, or NULL for zeros, and of the first; gparams (P, D) those of the parameters, from `partial` (B, U, D): per
   batch row, sums over time of the gradients of per-unit values, which then are summed in a fixed order.

   Time runs in segments of `every` steps, the last one first: `again` runs a segment forward from its saved states and
   keeps the new states and whatever costs an exponential, `back` goes back through it. */
#include "kernel.h"

typedef @x@ X;       /* what tensors hold */
typedef @real@ real; /* what is computed with */
enum { S = @S@, K = @K@, P = @P@, N = @N@, V = @V@, U = @U@, ROWS = @rows@, LANES = @lanes@ };
enum { BLOCK = @block@, PITCH = BLOCK + 16 }; /* lanes of a block; from row to row: rows 2^n apart would share cache sets */
enum { KEPT = @kept@ }; /* rows that `again` leaves for `back`, the new states first */

@call@
@units@
/* One step forward, n lanes, a multiple of LANES: from the old states to new states and kept values. */
static void again(long n, const X *restrict a, long xk, const X *restrict v, const real *restrict old,
                  real *restrict kept, const real *restrict unit) {
    real row[ROWS + 1][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
@again@
    (void)a, (void)xk, (void)v, (void)old, (void)kept, (void)unit, (void)row;
}

/* One step back: q is the output's gradient, g the new states' (in) and the old states' (out). */
static void back(long n, const X *restrict a, long xk, const X *restrict v, const X *restrict q, long qk,
                 const real *restrict old, const real *restrict kept, const real *restrict unit,
                 real *restrict g, real *restrict acc, X *restrict ga, long gxk, X *restrict gv) {
    real row[ROWS + 1][STRIP] __attribute__((aligned(64)));
    n &= -LANES;
@back@
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
@epilogue@
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
