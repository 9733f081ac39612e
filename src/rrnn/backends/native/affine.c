/* c_t = M_x c_{t-1} + u_t, x the symbol of step t: each sequence by itself, its state at hand. A negative symbol stands
   for the identity. Matrices lie column by column, so that a step adds columns, each times one number of the state. */
#include "kernel.h"

typedef @real@ real;
enum { D = @D@, STRIPE = D < 64 ? D : 64 }; /* numbers of the new state that one walk over the columns sums up */

struct call {
    const int64_t *x; long xt, xb;
    const real *columns; /* (symbols, D, D) */
    const real *u; long ut, ub;
    const real *first; /* (B, D) */
    real *out; long ot, ob;
    long T, B, threads;
    parallel_t parallel;
};

/* out = M c + u for the numbers from..from + STRIPE; two sums at a time, since one waits for its own additions. */
static inline void stripe(const real *restrict m, const real *restrict c, const real *restrict u, real *restrict out) {
    real even[STRIPE] __attribute__((aligned(64))), odd[STRIPE] __attribute__((aligned(64)));
    for (int i = 0; i < STRIPE; i++) even[i] = u[i], odd[i] = 0;
    for (int j = 0; j + 1 < D; j += 2) {
        const real a = c[j], b = c[j + 1];
        for (int i = 0; i < STRIPE; i++) even[i] += a * m[j * D + i];
        for (int i = 0; i < STRIPE; i++) odd[i] += b * m[j * D + D + i];
    }
    if (D % 2)
        for (int i = 0; i < STRIPE; i++) even[i] += c[D - 1] * m[(D - 1) * D + i];
    for (int i = 0; i < STRIPE; i++) out[i] = even[i] + odd[i];
}

static void sequence(const struct call *p, long b) {
    const real *c = p->first + b * D;
    for (long t = 0; t < p->T; t++) {
        const int64_t x = p->x[t * p->xt + b * p->xb];
        const real *u = p->u + t * p->ut + b * p->ub;
        real *out = p->out + t * p->ot + b * p->ob;
        if (x < 0) {
            for (int i = 0; i < D; i++) out[i] = c[i] + u[i];
        } else {
            const real *m = p->columns + x * D * D;
            int i = 0;
            for (; i + STRIPE <= D; i += STRIPE) stripe(m + i, c, u + i, out + i);
            for (; i < D; i++) { /* a rest narrower than a stripe */
                real sum = u[i];
                for (int j = 0; j < D; j++) sum += c[j] * m[j * D + i];
                out[i] = sum;
            }
        }
        c = out;
    }
}

static void work(void *shared) {
    struct crew *crew = shared;
    for (long b; (b = take(crew)) >= 0;) sequence(crew->call, b);
}

EXPORT int rrnn_affine(const struct call *p) {
    struct crew crew = {p, p->B, 0};
    gather(work, &crew, p->parallel, p->threads);
    return 0;
}
