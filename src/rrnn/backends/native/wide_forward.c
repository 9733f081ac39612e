/* @name@: forward, @type@, with families of states

   x (T, B, C): R rows of D numbers, one per unit, then what heads and groups share; params alike, with PR rows of units;
   first, final (S, B, D) where a family is as many rows as it has states; mask, inp, out, saved as in forward.c. A block
   of lanes lies in one head. */
#include "kernel.h"

typedef @x@ X;       /* what tensors hold */
typedef @real@ real; /* what is computed with */
enum { S = @S@, R = @R@, PR = @PR@, N = @N@, V = @V@, HEADS = @heads@, GROUPS = @groups@, LANES = @lanes@ };
enum { BLOCK = @block@, PITCH = BLOCK + 16 };

@call@
@common@
@units@
/* One time step of n lanes, a multiple of LANES, from the old states z to the new ones, y. */
static void step(long n, const X *restrict a, long xk, const X *restrict w, const X *restrict v, X *restrict o, long ok,
                 const real *restrict z, real *restrict y, const real *restrict unit, long head, long group) {
    n &= -LANES;
@step@
    (void)a, (void)xk, (void)w, (void)v, (void)o, (void)ok, (void)z, (void)y, (void)unit, (void)head, (void)group;
}

/* All steps of the lanes d0 .. d0 + n of one batch row; `z`, `y` and `unit` have room for a block. */
static void block(const struct call *p, long b, long head, long d0, long n, real *z, real *y, real *unit) {
    @pads@X pad[R + 1 + N][LANES] __attribute__((aligned(64)));
    const long whole = n & -LANES, rest = n - whole, B = p->B, D = p->D, group = head / (HEADS / GROUPS);
    memset(z, 0, S * PITCH * sizeof(real)), memset(y, 0, S * PITCH * sizeof(real)), memset(pad, 0, sizeof pad);
    units(n, p->params, d0, D, unit, head, group);
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
        const X *x = p->x + t * p->xt + b * p->xb, *a = x + d0, *w = x + R * D;
        const X *v = p->inp ? p->inp + t * p->it + b * p->ib + d0 : 0;
        for (long i = 0; i < whole; i += STRIP) {
            const long m = whole - i < STRIP ? whole - i : STRIP;
            step(m, a + i, D, w, v ? v + i : 0, o + i, D, z + i, y + i, unit + i, head, group);
        }
        if (rest) {
            for (int k = 0; k < R; k++) few(pad[k], a + k * D + whole, rest * sizeof(X));
            if (v) few(pad[R], v + whole, rest * sizeof(X));
            step(LANES, pad[0], LANES, w, pad[R], pad[R + 1], LANES, z + whole, y + whole, unit + whole, head, group);
            for (int k = 0; k < N; k++) few(o + k * D + whole, pad[R + 1 + k], rest * sizeof(X));
        }
        real *swap = z;
        z = y, y = swap;
    }
    for (int s = 0; s < S; s++) memcpy(p->final + (s * B + b) * D + d0, z + s * PITCH, n * sizeof(real));
}

static void work(void *shared) {
    struct crew *crew = shared;
    const struct call *p = crew->call;
    const long width = p->D / HEADS, across = (width + BLOCK - 1) / BLOCK;
    real *memory = aligned_alloc(64, (2 * S + V + 1) * PITCH * sizeof(real));
    for (long job; memory && (job = take(crew)) >= 0;) {
        const long part = job % across * BLOCK, head = job / across % HEADS, b = job / across / HEADS;
        const long d0 = head * width + part, n = width - part < BLOCK ? width - part : BLOCK;
        const struct call own = p->sequences ? only(p, p->sequences + b * 3) : *p;
        block(&own, p->sequences ? 0 : b, head, d0, n, memory, memory + S * PITCH, memory + 2 * S * PITCH);
    }
    free(memory);
}

int rrnn_forward(const struct call *p) {
    if (!p->B || !p->D) return 0;
    struct crew crew = {p, p->B * HEADS * ((p->D / HEADS + BLOCK - 1) / BLOCK), 0};
    huge(p->out, ((p->T - 1) * p->ot + (p->B - 1) * p->ob + N * p->D) * sizeof(X));
    gather(work, &crew, p->parallel, p->threads);
    return crew.next < crew.jobs; /* no thread found memory */
}
