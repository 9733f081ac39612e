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

