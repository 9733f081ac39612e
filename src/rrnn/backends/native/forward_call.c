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

