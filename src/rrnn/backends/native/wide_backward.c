/* @name@: backward, @type@, with families of states

   As wide_forward.c and backward.c; gparams (B, U, D): per batch row, sums over time of the gradients of per-unit values.
   What a head or group shares gets the sum over its units: a job runs the blocks of one group (or a part of them, fixed
   by the shape alone) segment by segment, and adds up a segment's sums in `partial` (parts, T, B, C shared), which are
   added in the end. So results do not depend on the number of threads, bit for bit. */
#include "kernel.h"

typedef @x@ X;       /* what tensors hold */
typedef @real@ real; /* what is computed with */
enum { S = @S@, R = @R@, PR = @PR@, N = @N@, V = @V@, U = @U@, W = @W@, HEADS = @heads@, GROUPS = @groups@ };
enum { LANES = @lanes@, BLOCK = @block@, PITCH = BLOCK + 16, KEPT = @kept@ };

@call@
@common@
/* The sum of m lanes, in an order that does not depend on the compiler. */
static inline real total(const real *restrict lanes, long m) {
    real sum[16] = {0};
    long i = 0;
    for (; i + 16 <= m; i += 16)
        for (int j = 0; j < 16; j++) sum[j] += lanes[i + j];
    for (; i < m; i++) sum[i % 16] += lanes[i];
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++) sum[j] += sum[j + half];
    return sum[0];
}

@units@
/* One step forward, n lanes, a multiple of LANES: from the old states to new states and kept values. */
static void again(long n, const X *restrict a, long xk, const X *restrict w, const X *restrict v, const real *restrict z,
                  real *restrict kept, const real *restrict unit, long head, long group) {
    n &= -LANES;
@again@
    (void)a, (void)xk, (void)w, (void)v, (void)z, (void)kept, (void)unit, (void)head, (void)group;
}

/* One step back: q is the output's gradient, g the new states' gradient, h the old states'; of the n lanes m are real. */
static void back(long n, long m, const X *restrict a, long xk, const X *restrict w, const X *restrict v,
                 const X *restrict q, long qk, const real *restrict z, const real *restrict kept,
                 const real *restrict unit, const real *restrict g, real *restrict h, real *restrict acc,
                 X *restrict ga, long gxk, real *restrict gw, X *restrict gv, long head, long group) {
    n &= -LANES;
@back@
    (void)m, (void)a, (void)xk, (void)w, (void)v, (void)q, (void)qk, (void)z, (void)kept, (void)unit, (void)g, (void)h;
    (void)acc, (void)ga, (void)gxk, (void)gw, (void)gv, (void)head, (void)group;
}

struct shared { const struct call *call; real *partial; long parts, rows; }; /* rows: steps of all columns of x */

/* A block's own memory: gradients of states, twice, of per-unit values, and the per-unit values. */
enum { OWN = (2 * S + U + V + 1) * PITCH };

/* The steps t0 .. t1 of one block. */
static void segment(const struct call *p, long b, long head, long d0, long n, long t0, long t1, real *own,
                    real (*kept)[KEPT * PITCH], real *first, real *partial) {
    @pads@X pad[R + 1 + N][LANES] __attribute__((aligned(64))), out[R + 1][LANES] __attribute__((aligned(64)));
    const long whole = n & -LANES, rest = n - whole, B = p->B, D = p->D, group = head / (HEADS / GROUPS);
    real *g = own, *h = own + S * PITCH, *acc = own + 2 * S * PITCH, *unit = acc + U * PITCH;
    memset(pad, 0, sizeof pad), memset(first, 0, S * PITCH * sizeof(real));
    for (int s = 0; s < S; s++)
        memcpy(first + s * PITCH, p->saved + ((t0 / p->every * S + s) * B + b) * D + d0, n * sizeof(real));
    for (long t = t0; t < t1; t++) {
        const real *z = t > t0 ? kept[t - t0 - 1] : first;
        if (p->mask && !p->mask[t * p->mt + b * p->mb]) {
            memcpy(kept[t - t0], z, S * PITCH * sizeof(real));
            continue;
        }
        const X *x = p->x + t * p->xt + b * p->xb, *a = x + d0, *w = x + R * D;
        const X *v = p->inp ? p->inp + t * p->it + b * p->ib + d0 : 0;
        for (long i = 0; i < whole; i += STRIP) {
            const long m = whole - i < STRIP ? whole - i : STRIP;
            again(m, a + i, D, w, v ? v + i : 0, z + i, kept[t - t0] + i, unit + i, head, group);
        }
        if (rest) {
            for (int k = 0; k < R; k++) few(pad[k], a + k * D + whole, rest * sizeof(X));
            if (v) few(pad[R], v + whole, rest * sizeof(X));
            again(LANES, pad[0], LANES, w, pad[R], z + whole, kept[t - t0] + whole, unit + whole, head, group);
        }
    }
    for (long t = t1 - 1; t >= t0; t--) {
        if (p->mask && !p->mask[t * p->mt + b * p->mb]) continue;
        const X *x = p->x + t * p->xt + b * p->xb, *a = x + d0, *w = x + R * D;
        const X *v = p->inp ? p->inp + t * p->it + b * p->ib + d0 : 0, *q = p->go + t * p->got + b * p->gob + d0;
        X *ga = p->gx + t * p->gxt + b * p->gxb + d0, *gv = p->gi ? p->gi + t * p->git + b * p->gib + d0 : 0;
        const real *z = t > t0 ? kept[t - t0 - 1] : first;
        real *gw = partial + (t * B + b) * W;
        for (long i = 0; i < whole; i += STRIP) {
            const long m = whole - i < STRIP ? whole - i : STRIP;
            back(m, m, a + i, D, w, v ? v + i : 0, q + i, D, z + i, kept[t - t0] + i, unit + i, g + i, h + i, acc + i,
                 ga + i, D, gw, gv ? gv + i : 0, head, group);
        }
        if (rest) {
            for (int k = 0; k < R; k++) few(pad[k], a + k * D + whole, rest * sizeof(X));
            if (v) few(pad[R], v + whole, rest * sizeof(X));
            for (int k = 0; k < N; k++) few(pad[R + 1 + k], q + k * D + whole, rest * sizeof(X));
            back(LANES, rest, pad[0], LANES, w, pad[R], pad[R + 1], LANES, z + whole, kept[t - t0] + whole, unit + whole,
                 g + whole, h + whole, acc + whole, out[0], LANES, gw, out[R], head, group);
            for (int k = 0; k < R; k++) few(ga + k * D + whole, out[k], rest * sizeof(X));
            if (gv) few(gv + whole, out[R], rest * sizeof(X));
        }
        real *swap = g;
        g = h, h = swap;
    }
    if (g != own) memcpy(own, g, S * PITCH * sizeof(real));
}

/* Every parts-th block of a group, all steps of one batch row. */
static void blocks(const struct call *p, long b, long group, long part, long parts, real *own, void *kept, real *first,
                   real *partial) {
    const long width = p->D / HEADS, across = (width + BLOCK - 1) / BLOCK, count = HEADS / GROUPS * across;
    const long B = p->B, D = p->D;
    for (long t1 = p->T, t0; t1 >= 0; t1 = t0) {
        t0 = t1 > 0 ? (t1 - 1) / p->every * p->every : -1;
        real *mine = own;
        for (long k = part; k < count; k += parts, mine += OWN) {
            const long head = group * (HEADS / GROUPS) + k / across, at = k % across * BLOCK, d0 = head * width + at;
            const long n = width - at < BLOCK ? width - at : BLOCK;
            real *acc = mine + 2 * S * PITCH;
            if (t1 == p->T) {
                memset(mine, 0, OWN * sizeof(real));
                units(n, p->params, d0, D, acc + U * PITCH, head, group);
                for (int s = 0; s < S && p->gfinal; s++)
                    memcpy(mine + s * PITCH, p->gfinal + (s * B + b) * D + d0, n * sizeof(real));
            }
            if (t1 > 0) segment(p, b, head, d0, n, t0, t1, mine, kept, first, partial);
            if (t0 > 0) continue;
            for (int s = 0; s < S; s++) memcpy(p->gfirst + (s * B + b) * D + d0, mine + s * PITCH, n * sizeof(real));
            for (int u = 0; u < U; u++) memcpy(p->gparams + (b * U + u) * D + d0, acc + u * PITCH, n * sizeof(real));
        }
        if (t0 <= 0) break;
    }
}

static void work(void *given) {
    struct crew *crew = given;
    const struct shared *s = crew->call;
    const struct call *p = s->call;
    const long steps = p->every < p->T ? p->every : p->T, width = p->D / HEADS;
    const long count = HEADS / GROUPS * ((width + BLOCK - 1) / BLOCK), most = (count + s->parts - 1) / s->parts;
    const long keep = (steps + 1) * KEPT * PITCH;
    real *memory = aligned_alloc(64, (most * OWN + S * PITCH + keep) * sizeof(real));
    for (long job; memory && (job = take(crew)) >= 0;) {
        const long part = job % s->parts, group = job / s->parts % GROUPS, b = job / s->parts / GROUPS;
        real *partial = s->partial + part * s->rows * W;
        struct call own = *p;
        if (p->sequences) {
            const long *at = p->sequences + b * 3;
            own = only(p, at);
            own.gparams += at[0] * U * p->D, partial += at[1] * W;
        }
        blocks(&own, p->sequences ? 0 : b, group, part, s->parts, memory, memory + most * OWN, memory + most * OWN + keep,
               partial);
    }
    free(memory);
}

int rrnn_backward(const struct call *p) {
    if (!p->B || !p->D) return 0;
    const long count = HEADS / GROUPS * ((p->D / HEADS + BLOCK - 1) / BLOCK), columns = p->sequences ? 1 : p->B;
    const long rows = p->T * columns, size = rows * W;
    long parts = 8 / (p->B * GROUPS); /* by the shape alone */
    parts = parts < 1 ? 1 : parts > count ? count : parts;
    struct shared shared = {p, calloc(parts * size + 1, sizeof(real)), parts, rows};
    struct crew crew = {&shared, p->B * GROUPS * parts, 0};
    huge(p->gx, ((p->T - 1) * p->gxt + (p->B - 1) * p->gxb + R * p->D + W) * sizeof(X));
    if (shared.partial) gather(work, &crew, p->parallel, p->threads);
    const int done = crew.next >= crew.jobs;
    for (long row = 0; done && row < rows; row++) {
        const long t = row / columns, b = row % columns;
        X *ga = p->gx + t * p->gxt + b * p->gxb, *gw = ga + R * p->D;
        for (long c = 0; c < W; c++) {
            real sum = shared.partial[row * W + c];
            for (long k = 1; k < parts; k++) sum += shared.partial[k * size + row * W + c];
            @store_shared@
        }
        if (p->mask && !p->mask[t * p->mt + b * p->mb]) {
            memset(ga, 0, R * p->D * sizeof(X));
            if (p->gi) memset(p->gi + t * p->git + b * p->gib, 0, p->D * sizeof(X));
        }
    }
    free(shared.partial);
    return !done;
}
