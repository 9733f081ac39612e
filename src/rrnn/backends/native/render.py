"""Programs to C: a table of strings over the IR, and two loops around it.

A kernel runs blocks of lanes of one batch row; time is the outer loop, the states of the block stay in a local array,
and the inner loop over lanes is straight-line code that the compiler vectorises. A padded step is a branch around
the inner loop. Lanes never mix, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from functools import lru_cache
from importlib.resources import files

import torch

from rrnn.ir import Op, Program, adjoint
from rrnn.ir.adjoint import unit_values

OPS = {
    Op.ADD: "{0} + {1}",
    Op.SUB: "{0} - {1}",
    Op.MUL: "{0} * {1}",
    Op.DIV: "{0} / {1}",
    Op.NEG: "-{0}",
    Op.MAX: "{0} >= {1} ? {0} : {1}",
    Op.MIN: "{0} <= {1} ? {0} : {1}",
    Op.LOGADDEXP: "logaddexp_{s}({0}, {1})",
    Op.EXP: "exp_{s}({0})",
    Op.LOG: "log_{s}({0})",
    Op.SQRT: "sqrt_{s}({0})",
    Op.SIGMOID: "sigmoid_{s}({0})",
    Op.TANH: "tanh_{s}({0})",
    Op.RELU: "{0} > 0 ? {0} : 0",
    Op.LOG_SIGMOID: "log_sigmoid_{s}({0})",
    Op.SOFTPLUS: "softplus_{s}({0})",
    Op.STEP: "{0} > 0 ? (real)1 : (real)0",
    Op.GE: "{0} >= {1} ? (real)1 : (real)0",
    Op.GT: "{0} > {1} ? (real)1 : (real)0",
    Op.SHARE: "share_{s}({0}, {1})",
}

TYPES = {  # tensor dtype → (C type, computing type, suffix, load, store)
    torch.float32: ("float", "float", "f", "{0}", "{0}"),
    torch.float64: ("double", "double", "d", "{0}", "{0}"),
    torch.bfloat16: ("bf16", "float", "f", "load_bf16({0})", "store_bf16({0})"),
}

MAX_BLOCK = 512  # lanes
SCRATCH = 1 << 15  # bytes of states and per-unit values that a block keeps at hand: an L1 cache


def block_lanes(program: Program) -> int:
    """Lanes of a block, so that its states and per-unit values stay in the first-level cache."""
    rows = len(program.states) * 2 + len(unit_values(program)) * 2 + 1
    return max(64, min(MAX_BLOCK, SCRATCH // (4 * rows) // 64 * 64))


class _Code:
    """Lines of one kernel for one tensor type."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.x, self.real, self.suffix, self._load, self._store = TYPES[dtype]

    def load(self, place: str) -> str:
        return self._load.format(place)

    def store(self, value: str) -> str:
        return self._store.format(value)

    def number(self, value: float) -> str:
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        text = repr(value)
        return (
            f"({text}{'f' if self.suffix == 'f' else ''})"
            if value < 0
            else text + ("f" if self.suffix == "f" else "")
        )

    def instructions(
        self, program: Program, which: frozenset[int], leaf: dict[Op, str], units: tuple[int, ...]
    ) -> list[str]:
        """One assignment an instruction; leaves are places in memory, per-unit values come from the local array."""
        lines = []
        for n in sorted(which):
            op, args, attr = program.instructions[n]
            if op is Op.CONST:
                text = self.number(float(attr or 0.0))
            elif n in units:
                text = f"unit[{units.index(n)}][i]"
            elif op in leaf:
                text = leaf[op].format(attr)
            else:
                text = OPS[op].format(*(f"v{a}" for a in args), s=self.suffix)
            lines.append(f"const real v{n} = {text};")
        return lines


def _live(program: Program, values: list[int], units: tuple[int, ...]) -> frozenset[int]:
    """Instructions of the step itself (per-unit ones only where the step reads them, and numbers)."""
    live: set[int] = set()
    todo = list(values)
    while todo:
        n = todo.pop()
        if n not in live:
            live.add(n)
            if n not in units:
                todo += program.instructions[n].args
    return frozenset(live)


def _unit_loop(code: _Code, program: Program, units: tuple[int, ...]) -> list[str]:
    """Per-unit values, once per block."""
    if not units:
        return []
    which = program.needed_for(units)
    lines = ["SIMD", "for (long i = 0; i < n; i++) {"]
    lines += [
        "    " + x for x in code.instructions(program, which, {Op.PARAM: "params[{0} * D + d0 + i]"}, ())
    ]
    lines += [f"    unit[{j}][i] = v{n};" for j, n in enumerate(units)]
    return [*lines, "}"]


def _indent(lines: list[str], by: int) -> str:
    return "\n".join(" " * by + line if line else "" for line in lines)


_HEAD = """\
typedef {x} X;
typedef {real} real;
enum {{ S = {states}, K = {projections}, V = {values}, U = {sums}, BLOCK = {block} }}; /* V per-unit values, U sums */
#if defined(__GNUC__) && !defined(__clang__)
#define SIMD _Pragma("GCC ivdep")
#else
#define SIMD _Pragma("clang loop vectorize(enable)")
#endif
"""

_FORWARD = """
/* x (T, B, K, D) strides xt xb xk 1; params (P, D); first, final (S, B, D); mask (T, B) strides mt mb, or NULL;
   inp, out (T, B, D) with strides; saved (ceil(T/every), S, B, D) when every > 0. */
void rrnn_forward(const X *restrict x, long xt, long xb, long xk, const real *restrict params,
                  const real *restrict first, const uint8_t *mask, long mt, long mb,
                  const X *inp, long it, long ib, X *restrict out, long ot, long ob,
                  real *restrict final, real *restrict saved, long every, long T, long B, long D, int threads) {{
    const long across = (D + BLOCK - 1) / BLOCK, width = ((D + across - 1) / across + 15) / 16 * 16;
    #pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long job = 0; job < B * across; job++) {{
        const long b = job / across, d0 = job % across * width;
        const long n = D - d0 < width ? D - d0 : width;
        if (n <= 0) continue;
        real z[S + 1][BLOCK], unit[V + 1][BLOCK];
        (void)unit; (void)params; (void)inp;
{unit_loop}
        for (int s = 0; s < S; s++) memcpy(z[s], first + (s * B + b) * D + d0, n * sizeof(real));
        for (long t = 0; t < T; t++) {{
            X *restrict o = out + t * ot + b * ob + d0;
            if (every && t % every == 0)
                for (int s = 0; s < S; s++)
                    memcpy(saved + ((t / every * S + s) * B + b) * D + d0, z[s], n * sizeof(real));
            if (mask && !mask[t * mt + b * mb]) {{ memset(o, 0, n * sizeof(X)); continue; }}
            const X *restrict a = x + t * xt + b * xb + d0;
            const X *restrict v = inp ? inp + t * it + b * ib + d0 : 0;
            (void)a; (void)v;
            SIMD
            for (long i = 0; i < n; i++) {{
{step}
            }}
        }}
        for (int s = 0; s < S; s++) memcpy(final + (s * B + b) * D + d0, z[s], n * sizeof(real));
    }}
}}
"""

_BACKWARD = """
/* As rrnn_forward; go (T, B, D) the output's gradient; gx, gi gradients of x and inp; gstate (S, B, D) in: of the
   final state, out: of the first; partial (B, U, D): per batch row, sums over time of the gradients of per-unit values.
   States between the saved ones are recomputed. */
void rrnn_backward(const X *restrict x, long xt, long xb, long xk, const real *restrict params,
                   const uint8_t *mask, long mt, long mb, const X *inp, long it, long ib,
                   const real *restrict saved, long every, const X *restrict go, long got, long gob,
                   real *restrict gstate, X *restrict gx, long gxt, long gxb, long gxk,
                   X *gi, long git, long gib, real *restrict partial, long T, long B, long D, int threads) {{
    const long across = (D + BLOCK - 1) / BLOCK, width = ((D + across - 1) / across + 15) / 16 * 16;
    #pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (long job = 0; job < B * across; job++) {{
        const long b = job / across, d0 = job % across * width;
        const long n = D - d0 < width ? D - d0 : width;
        if (n <= 0) continue;
        real g[S + 1][BLOCK], unit[V + 1][BLOCK], acc[U + 1][BLOCK];
        real (*z)[S + 1][BLOCK] = every > 1 ? malloc(every * sizeof *z) : 0;
        (void)unit; (void)params; (void)inp;
{unit_loop}
        memset(acc, 0, sizeof acc);
        for (int s = 0; s < S; s++) memcpy(g[s], gstate + (s * B + b) * D + d0, n * sizeof(real));
        for (long t1 = T; t1 > 0;) {{
            const long t0 = (t1 - 1) / every * every;
            const real *kept[S + 1];
            for (int s = 0; s < S; s++) kept[s] = saved + ((t0 / every * S + s) * B + b) * D + d0;
            if (every > 1) {{
                for (int s = 0; s < S; s++) memcpy(z[0][s], kept[s], n * sizeof(real));
                for (long t = t0; t < t1 - 1; t++) {{
                    if (mask && !mask[t * mt + b * mb]) {{ memcpy(z[t - t0 + 1], z[t - t0], sizeof z[0]); continue; }}
                    const X *restrict a = x + t * xt + b * xb + d0;
                    const X *restrict v = inp ? inp + t * it + b * ib + d0 : 0;
                    real (*restrict old)[BLOCK] = z[t - t0], (*restrict new)[BLOCK] = z[t - t0 + 1];
                    (void)a; (void)v; (void)old; (void)new;
                    SIMD
                    for (long i = 0; i < n; i++) {{
{again}
                    }}
                }}
            }}
            for (long t = t1 - 1; t >= t0; t--) {{
                X *restrict ga = gx + t * gxt + b * gxb + d0;
                X *restrict gv = gi ? gi + t * git + b * gib + d0 : 0;
                (void)gv;
                if (mask && !mask[t * mt + b * mb]) {{
                    for (int k = 0; k < K; k++) memset(ga + k * gxk, 0, n * sizeof(X));
                    if (gi) memset(gv, 0, n * sizeof(X));
                    continue;
                }}
                const X *restrict a = x + t * xt + b * xb + d0;
                const X *restrict v = inp ? inp + t * it + b * ib + d0 : 0;
                const X *restrict q = go + t * got + b * gob + d0;
                if (every > 1) for (int s = 0; s < S; s++) kept[s] = z[t - t0][s];
{pointers}
                (void)a; (void)v; (void)q; (void)ga;
                SIMD
                for (long i = 0; i < n; i++) {{
{step}
                }}
            }}
            t1 = t0;
        }}
        for (int s = 0; s < S; s++) memcpy(gstate + (s * B + b) * D + d0, g[s], n * sizeof(real));
        for (int u = 0; u < U; u++) memcpy(partial + (b * U + u) * D + d0, acc[u], n * sizeof(real));
        free(z);
    }}
}}

/* Sum over the batch in a fixed order: total (U, D). */
void rrnn_reduce(const real *restrict partial, real *restrict total, long B, long UD) {{
    memset(total, 0, UD * sizeof(real));
    for (long b = 0; b < B; b++)
        for (long i = 0; i < UD; i++) total[i] += partial[b * UD + i];
}}
"""


def _head(code: _Code, program: Program, block: int, sums: int = 0) -> str:
    return files("rrnn.backends.native").joinpath("math.h").read_text(encoding="utf-8") + _HEAD.format(
        x=code.x,
        real=code.real,
        states=len(program.states),
        projections=len(program.projections),
        values=len(unit_values(program)),
        sums=sums,
        block=block,
    )


@lru_cache(maxsize=256)
def render_forward(program: Program, dtype: torch.dtype) -> str:
    """The C source of a program's forward kernel."""
    code = _Code(dtype)
    results, output = program.of_kind("state"), program.of_kind("output")[0]
    units = unit_values(program)
    leaf = {
        Op.PREACT: code.load("a[{0} * xk + i]"),
        Op.INPUT: code.load("v[i]"),
        Op.STATE: "z[{0}][i]",
    }
    step = code.instructions(program, _live(program, [*results.values(), output], units), leaf, units)
    step += [f"z[{s}][i] = v{n};" for s, n in results.items()]
    step += [f"o[i] = {code.store(f'v{output}')};"]
    body = _FORWARD.format(unit_loop=_indent(_unit_loop(code, program, units), 8), step=_indent(step, 16))
    return f"/* {program.name}: forward */\n" + _head(code, program, block_lanes(program)) + body


@lru_cache(maxsize=256)
def render_backward(program: Program, dtype: torch.dtype) -> str:
    """The C source of a program's backward kernel."""
    code = _Code(dtype)
    whole = adjoint(program)
    step = whole.step
    results, preacts, inputs = (
        step.of_kind("grad_state"),
        step.of_kind("grad_preact"),
        step.of_kind("grad_input"),
    )
    grads = step.of_kind("grad_unit")
    units = unit_values(step)
    leaf = {
        Op.PREACT: code.load("a[{0} * xk + i]"),
        Op.INPUT: code.load("v[i]"),
        Op.STATE: "k{0}[i]",
        Op.GRAD_OUTPUT: code.load("q[i]"),
        Op.GRAD_STATE: "g[{0}][i]",
    }
    lines = code.instructions(
        step, _live(step, [o.value for o in step.outputs if o.kind != "new_state"], units), leaf, units
    )
    lines += [f"g[{s}][i] = v{n};" for s, n in results.items()]
    for k in range(len(program.projections)):
        lines.append(f"ga[{k} * gxk + i] = {code.store(f'v{preacts[k]}') if k in preacts else '0'};")
    lines += [f"gv[i] = {code.store(f'v{n}')};" for n in inputs.values()]
    lines += [f"acc[{j}][i] += v{n};" for j, n in grads.items()]
    pointers = [f"const real *restrict k{s} = kept[{s}]; (void)k{s};" for s in range(len(program.states))]

    states = step.of_kind("new_state")
    leaf[Op.STATE] = "old[{0}][i]"
    again = code.instructions(step, _live(step, list(states.values()), units), leaf, units)
    again += [f"new[{s}][i] = v{n};" for s, n in states.items()]
    body = _BACKWARD.format(
        unit_loop=_indent(_unit_loop(code, step, units), 8),
        again=_indent(again, 24),
        pointers=_indent(pointers, 16),
        step=_indent(lines, 20),
    )
    return (
        f"/* {program.name}: backward */\n" + _head(code, step, block_lanes(program), len(whole.units)) + body
    )
