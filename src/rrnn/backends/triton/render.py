"""Programs to Triton: a table of strings over the IR, and the loops around it.

All kernels share one frame. A Triton program owns BLOCK units of one batch row and one chunk of time; it walks its
chunk serially, `unroll` steps at a time with all loads issued before the arithmetic. One chunk is the serial schedule.
With several chunks, `summary` first composes each chunk's transition (the scan form), `join` runs the states from chunk
to chunk, and `forward` starts every chunk from its joined state; backwards the same with the reverse scan form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from rrnn.ir import Op, Program, adjoint, reverse_scan_form, scan_form
from rrnn.ir.adjoint import unit_values
from rrnn.ir.ops import PLUS, TIMES

OPS = {
    Op.ADD: "{0} + {1}",
    Op.SUB: "{0} - {1}",
    Op.MUL: "{0} * {1}",
    Op.DIV: "{0} / {1}",
    Op.NEG: "-{0}",
    Op.MAX: "tl.where({0} >= {1}, {0}, {1})",
    Op.MIN: "tl.where({0} <= {1}, {0}, {1})",
    Op.LOGADDEXP: "logaddexp({0}, {1})",
    Op.EXP: "tl.exp({0})",
    Op.LOG: "tl.log({0})",
    Op.SQRT: "tl.sqrt({0})",
    Op.SIGMOID: "tl.sigmoid({0})",
    Op.TANH: "tanh({0})",
    Op.RELU: "tl.maximum({0}, 0.0)",
    Op.LOG_SIGMOID: "log_sigmoid({0})",
    Op.SOFTPLUS: "softplus({0})",
    Op.STEP: "tl.where({0} > 0.0, 1.0, 0.0)",
    Op.GE: "tl.where({0} >= {1}, 1.0, 0.0)",
    Op.GT: "tl.where({0} > {1}, 1.0, 0.0)",
    Op.SHARE: "share({0}, {1})",
}

HEAD = """\
import triton
import triton.language as tl

from rrnn.backends.triton.math import log_sigmoid, logaddexp, share, softplus, tanh
"""

# (The parameters are called theta: Triton's own launcher uses the name `params`.)
_JIT = '@triton.jit(do_not_specialize=["T", "B", "C", "c0"])'

# Offsets are 64 bits wide: a stride that fits 32 bits may not when multiplied, as that of projections laid out one
# after another. By a cast, which keeps what Triton knows of a stride's divisibility and so its wide loads; adding a
# wide zero would lose it.
_STRIDES = re.compile(r"\b(?:g?x[tbk]|g?i[tb]|[mog][tb])\b")
_FRAME = """\
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    c = tl.program_id(2).to(tl.int64) + c0
    ok = d < D
    lane = b * D + d
    lanes = tl.cast(B, tl.int64) * D
"""


def number(value: float) -> str:
    return f'float("{value}")' if math.isinf(value) else repr(value)


class _Kernel:
    """Lines of one kernel, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def __call__(self, *lines: str) -> None:
        self.lines += [("    " * self.depth + line) if line else "" for line in lines]

    def units(self, program: Program, units: tuple[int, ...]) -> None:
        """Per-unit values, once."""
        for n in sorted(program.needed_for(units)):
            op, args, attr = program.instructions[n]
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            elif op is Op.PARAM:
                text = f"tl.load(theta + {attr} * D + d, mask=ok, other=0.0)"
            else:
                text = OPS[op].format(*(f"u{a}" for a in args))
            self(f"u{n} = {text}")

    def step(
        self,
        program: Program,
        values: Iterable[int],
        units: tuple[int, ...],
        leaf: Callable[[Op, int], str],
        tag: str,
    ) -> None:
        """The instructions that `values` need, as {tag}v{n}; numbers and per-unit values keep their own names."""
        live: set[int] = set()
        todo = list(values)
        while todo:
            n = todo.pop()
            if n not in live:
                live.add(n)
                todo += [] if n in units else program.instructions[n].args
        for n in sorted(live):
            op, args, attr = program.instructions[n]
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            elif n in units:
                text = f"u{n}"
            elif op.arity == 0:
                text = leaf(op, int(attr or 0))
            else:
                text = OPS[op].format(*(f"{tag}v{a}" for a in args))
            self(f"{tag}v{n} = {text}")

    def text(self, name: str, arguments: str) -> str:
        head = [f"\n\n{_JIT}", f"def {name}({arguments}):", _FRAME.rstrip("\n")]
        strides = [f"    {stride} = tl.cast({stride}, tl.int64)" for stride in _STRIDES.findall(arguments)]
        return "\n".join([*head, *strides, *self.lines]) + "\n"


def _whole(value: str, constant: bool) -> str:
    """A number as a block."""
    return f"tl.full([BLOCK], {value}, tl.float32)" if constant else value


def _is_const(program: Program, n: int) -> bool:
    return program.instructions[n].op is Op.CONST


class _Renderer:
    def __init__(self, program: Program, unroll: int, every: int) -> None:
        self.program, self.unroll, self.every = program, unroll, every
        self.S, self.K = len(program.states), len(program.projections)

    # ---- pieces ------------------------------------------------------------------------------------------------

    def _pointers(self, *, grad: bool = False, store: bool = False) -> dict[str, tuple[str, str]]:
        """name → (where it starts, its stride in time) of the tensors that a kernel walks along."""
        places = {"xp": ("x + t * xt + b * xb + d", "xt"), "mp": ("mask + t * mt + b * mb", "mt")}
        if self.program.uses_input:
            places["ip"] = ("inp + t * it + b * ib + d", "it")
        if grad:
            places["gp"] = ("go + t * gt + b * gb + d", "gt")
            places["sp"] = (f"saved + t // {self.every} * {self.S} * lanes + lane", f"{self.S} * lanes")
        if store:
            places["xo"] = ("gx + t * gxt + b * gxb + d", "gxt")
            if self.program.uses_input:
                places["io"] = ("gi + t * git + b * gib + d", "git")
        return places

    def _loads(
        self,
        k: _Kernel,
        program: Program,
        offsets: Iterable[object],
        into: str,
        when: str = "",
        *,
        grad: bool = False,
    ) -> None:
        """All loads of some steps (at the pointers plus offset·stride), before any arithmetic. `when`: a condition of
        the whole program under which there is anything to load."""
        used = {(i.op, i.attr) for i in program.instructions}
        ok = f"mask=d < tl.where({when}, D, 0), other=0.0" if when else "mask=ok, other=0.0"
        for j, at in enumerate(offsets):
            for p in range(self.K):
                if (Op.PREACT, p) in used:
                    k(f"{into}{j}_{p} = tl.load(xp + {at} * xt + {p} * xk, {ok})")
            if (Op.INPUT, None) in used:
                k(f"{into}i{j} = tl.load(ip + {at} * it, {ok})")
            if grad:
                k(f"{into}q{j} = tl.load(gp + {at} * gt, {ok})")
            k(
                "if MASKED:",
                f"    {into}m{j} = tl.load(mp + {at} * mt" + (f", mask={when}, other=0)" if when else ")"),
            )
        if grad:
            k(*(f"{into}w{s} = tl.load(sp + {s} * lanes, {ok})" for s in range(self.S)))

    def _turns(
        self,
        k: _Kernel,
        program: Program,
        steps: int,
        back: bool,
        grad: bool,
        store: bool,
        body: Callable[[], None],
    ) -> None:
        """A loop over turns of `steps` steps that loads the next turn before it computes the current one."""
        places = self._pointers(grad=grad, store=store)
        read = {
            name: stride for name, (_, stride) in places.items() if name in ("xp", "mp", "ip", "gp", "sp")
        }
        move = "-=" if back else "+="

        def advance(names: Iterable[str]) -> None:
            for name in names:
                by = 1 if name == "sp" else steps
                k(f"{name} {move} {by} * ({places[name][1]})")

        self._loads(k, program, range(steps), "a", "turns > 0", grad=grad)
        k("for turn in range(0, turns):")
        k.depth += 1
        advance(read)
        first = len(k.lines)
        self._loads(k, program, range(steps), "n", "turn + 1 < turns", grad=grad)
        loaded = [line.strip() for line in k.lines[first:]]
        body()
        advance(name for name in places if name not in read)
        k(f"t {move} {steps}")
        for line in loaded:  # what was next is current now
            name = line.split(" = ")[0]
            if name == "if MASKED:":
                k(line)
            else:
                k(("    " if name[1] == "m" else "") + f"a{name[1:]} = {name}")
        k.depth -= 1

    def _leaf(self, j: int, state: str) -> Callable[[Op, int], str]:
        def leaf(op: Op, index: int) -> str:
            return {
                Op.PREACT: f"a{j}_{index}.to(tl.float32)",
                Op.INPUT: f"ai{j}.to(tl.float32)",
                Op.STATE: f"{state}{index}",
                Op.GRAD_OUTPUT: f"aq{j}.to(tl.float32)",
                Op.GRAD_STATE: f"g{index}",
            }[op]

        return leaf

    @staticmethod
    def _select(k: _Kernel, name: str, new: str, old: str, j: int) -> None:
        """name = new, or old on a padded step."""
        k("if MASKED:", f"    {name} = tl.where(am{j} != 0, {new}, {old})", "else:", f"    {name} = {new}")

    # ---- forwards ------------------------------------------------------------------------------------------------

    def _chunk(
        self, k: _Kernel, program: Program, body: Callable[[int], None], more: dict[str, tuple[str, str]]
    ) -> None:
        """Walk a chunk forwards, `unroll` steps a turn, then one by one. `more`: pointers that the body writes to."""
        k("t = c * C", "end = tl.minimum(t + C, T)", f"turns = (end - t) // {self.unroll}")
        places = self._pointers() | more
        k(*(f"{name} = {start}" for name, (start, _) in places.items()))

        def turn(steps: int) -> Callable[[], None]:
            def run() -> None:
                body(steps)
                k(*(f"{name} += {steps} * {stride}" for name, (_, stride) in more.items()))

            return run

        self._turns(k, program, self.unroll, back=False, grad=False, store=False, body=turn(self.unroll))
        if self.unroll > 1:
            k("for _ in range(0, end - t):")
            k.depth += 1
            self._loads(k, program, [0], "a")
            turn(1)()
            k(*(f"{name} += {stride}" for name, (_, stride) in self._pointers().items()), "t += 1")
            k.depth -= 1

    def forward(self) -> str:
        p, k, every = self.program, _Kernel(), self.every
        units, results, output = unit_values(p), p.of_kind("state"), p.of_kind("output")[0]
        k.units(p, units)
        k(
            *(
                f"z{s} = tl.load(starts + (c * {self.S} + {s}) * lanes + lane, mask=ok, other=0.0)"
                for s in range(self.S)
            )
        )

        def body(steps: int) -> None:
            for j in range(steps):
                fixed = bool(every) and steps % every == 0
                if every and (not fixed or j % every == 0):
                    when = "ok" if fixed else f"d < tl.where((t + {j}) % {every} == 0, D, 0)"
                    for s in range(self.S):
                        at = f"saved + ((t + {j}) // {every} * {self.S} + {s}) * lanes + lane"
                        k(f"tl.store({at}, z{s}, mask={when})")
                k.step(p, [*results.values(), output], units, self._leaf(j, "z"), f"s{j}_")
                for s, n in results.items():
                    self._select(k, f"y{s}", _whole(f"s{j}_v{n}", _is_const(p, n)), f"z{s}", j)
                k(*(f"z{s} = y{s}" for s in results))
                self._select(k, f"o{j}", _whole(f"s{j}_v{output}", _is_const(p, output)), "0.0", j)
            for j in range(steps):
                k(f"tl.store(op + {j} * ot, o{j}.to(out.dtype.element_ty), mask=ok)")

        self._chunk(k, p, body, {"op": ("out + t * ot + b * ob + d", "ot")})
        k("if end == T:")
        k(
            *(f"    tl.store(final + {s} * lanes + lane, z{s}, mask=ok)" for s in range(self.S)),
            *([] if self.S else ["    pass"]),
        )
        arguments = (
            "x, theta, starts, mask, inp, out, final, saved, xt, xb, xk, mt, mb, it, ib, ot, ob, T, B, D, C, c0,\n"
            "    MASKED: tl.constexpr, BLOCK: tl.constexpr,"
        )
        return k.text("forward", arguments)

    def summary(self) -> str:
        form, k = scan_form(self.program), _Kernel()
        p, size = form.program, form.size
        units, entries = unit_values(p), {divmod(i, size): n for i, n in p.of_kind("entry").items()}
        semiring = self.program.semiring
        plus, times = (OPS[t[semiring.name]].format for t in (PLUS, TIMES))
        carried = sorted(form.carried)
        k.units(p, units)
        for i, j in carried:
            k(
                f"m_{i}_{j} = tl.full([BLOCK], {number(semiring.one if i == j else semiring.zero)}, tl.float32)"
            )

        def body(steps: int) -> None:
            for s in range(steps):
                tag = f"s{s}_"
                k.step(p, entries.values(), units, self._leaf(s, "none"), tag)
                for i, j in carried:
                    terms = []
                    for (via, to), n in sorted(entries.items()):
                        if to == j and (i, via) in form.carried:
                            terms.append(f"({times(f'm_{i}_{via}', f'{tag}v{n}')})")
                        elif to == j and i == via == 0:  # the constant one reaches itself with weight one
                            terms.append(f"{tag}v{n}")
                    text = terms[0] if terms else number(semiring.zero)
                    for term in terms[1:]:
                        text = f"({plus(text, term)})"
                    k(f"n_{i}_{j} = {_whole(text, not terms)}")
                for i, j in carried:
                    self._select(k, f"m_{i}_{j}", f"n_{i}_{j}", f"m_{i}_{j}", s)

        self._chunk(k, p, body, {})
        for e, (i, j) in enumerate(carried):
            k(f"tl.store(entries + (c * {len(carried)} + {e}) * lanes + lane, m_{i}_{j}, mask=ok)")
        arguments = (
            "x, theta, mask, inp, entries, xt, xb, xk, mt, mb, it, ib, T, B, D, C, c0,\n"
            "    MASKED: tl.constexpr, BLOCK: tl.constexpr,"
        )
        return k.text("summary", arguments)

    def join(self) -> str:
        """States at the start of every chunk, from the first state and the chunks' transitions."""
        form, semiring = scan_form(self.program), self.program.semiring
        plus, times = (OPS[t[semiring.name]].format for t in (PLUS, TIMES))

        def renew(k: _Kernel, entry: Callable[[int, int], str]) -> None:
            for j in range(1, form.size):
                terms = [entry(0, j)] if (0, j) in form.carried else []
                terms += [
                    f"({times(f'z{i - 1}', entry(i, j))})"
                    for i in range(1, form.size)
                    if (i, j) in form.carried
                ]
                text = terms[0]
                for term in terms[1:]:
                    text = f"({plus(text, term)})"
                k(f"n{j - 1} = {text}")

        return self._join("join", sorted(form.carried), renew)

    def _join(
        self,
        name: str,
        keys: list[tuple[int, int]],
        renew: Callable[[_Kernel, Callable[[int, int], str]], None],
    ) -> str:
        """Walk chunks from `c0` by `step`, C of them; the state before each goes to `starts`, the last to `final`."""
        k, group = _Kernel(), 8
        k(*(f"z{s} = tl.load(first + {s} * lanes + lane, mask=ok, other=0.0)" for s in range(self.S)))

        def body(steps: int) -> None:
            k.depth += 1
            for g in range(steps):
                for e, (i, j) in enumerate(keys):
                    at = f"entries + ((c + {g} * step) * {len(keys)} + {e}) * lanes + lane"
                    k(f"e{g}_{i}_{j} = tl.load({at}, mask=ok, other=0.0)")
            for g in range(steps):
                for s in range(self.S):
                    k(f"tl.store(starts + ((c + {g} * step) * {self.S} + {s}) * lanes + lane, z{s}, mask=ok)")
                renew(k, lambda i, j, g=g: f"e{g}_{i}_{j}")
                k(*(f"z{s} = n{s}" for s in range(self.S)))
            k(f"c += {steps} * step")
            k.depth -= 1

        k(f"for _ in range(0, C // {group}):")
        body(group)
        k(f"for _ in range(0, C % {group}):")
        body(1)
        k(*(f"tl.store(final + {s} * lanes + lane, z{s}, mask=ok)" for s in range(self.S)))
        return k.text(name, "first, entries, starts, final, B, D, C, c0, T, step, BLOCK: tl.constexpr,")

    # ---- backwards -----------------------------------------------------------------------------------------------

    def _renew(self, k: _Kernel, program: Program, j: int, before: str, after: str) -> None:
        """States after step j from those before it."""
        units, new = unit_values(program), program.of_kind("new_state")
        k.step(program, new.values(), units, self._leaf(j, before), f"f{j}_")
        for s, n in new.items():
            self._select(k, f"{after}{s}", _whole(f"f{j}_v{n}", _is_const(program, n)), f"{before}{s}", j)

    def _backwards(
        self, k: _Kernel, program: Program, step: Callable[[int, object], None], *, store: bool
    ) -> None:
        """Walk the chunk's segments of `every` steps from its end: load everything, recompute the states between the
        saved ones (w{j}_{s}: before step j), then take `step(j, offset)` from last to first. A last segment that T
        cuts off is walked step by step, each time from the saved state: little code, run once."""
        E, places = self.every, self._pointers(grad=True, store=store)
        k("begin = c * C", "end = tl.minimum(begin + C, T)", f"t = begin + (end - begin - 1) // {E} * {E}")
        k(*(f"{name} = {start}" for name, (start, _) in places.items()))
        if E > 1:
            k(f"if t + {E} > end:")
            k.depth += 1
            k("for past in range(0, end - t):", "    j = end - t - 1 - past")
            k.depth += 1
            k(*(f"w0_{s} = tl.load(sp + {s} * lanes, mask=ok, other=0.0)" for s in range(self.S)))
            k("for i in range(0, j):")
            k.depth += 1
            self._loads(k, program, ["i"], "a")
            self._renew(k, program, 0, "w0_", "w1_")
            k(*(f"w0_{s} = w1_{s}" for s in range(self.S)), *([] if self.S else ["pass"]))
            k.depth -= 1
            self._loads(k, program, ["j"], "a", grad=True)
            step(0, "j")
            k.depth -= 1
            k(*(f"{name} -= {1 if name == 'sp' else E} * {stride}" for name, (_, stride) in places.items()))
            k(f"t -= {E}")
            k.depth -= 1
        k(f"turns = (t - begin + {E}) // {E}")

        def body() -> None:
            k(*(f"w0_{s} = aw{s}" for s in range(self.S)))
            for j in range(E - 1):
                self._renew(k, program, j, f"w{j}_", f"w{j + 1}_")
            for j in reversed(range(E)):
                step(j, j)

        self._turns(k, program, E, back=True, grad=True, store=store, body=body)

    def backward(self) -> str:
        p, k = adjoint(self.program).step, _Kernel()
        units, sums = unit_values(p), p.of_kind("grad_unit")
        results, preacts, inputs = p.of_kind("grad_state"), p.of_kind("grad_preact"), p.of_kind("grad_input")
        k.units(p, units)
        k(
            *(
                f"g{s} = tl.load(ends + (c * {self.S} + {s}) * lanes + lane, mask=ok, other=0.0)"
                for s in range(self.S)
            )
        )
        k(*(f"acc{u} = tl.zeros([BLOCK], tl.float32)" for u in sums))

        def step(j: int, at: object) -> None:
            tag = f"b{j}_"
            k.step(
                p, [o.value for o in p.outputs if o.kind != "new_state"], units, self._leaf(j, f"w{j}_"), tag
            )

            def value(n: int) -> str:
                return _whole(f"{tag}v{n}", _is_const(p, n))

            for i, n in preacts.items():
                self._select(k, "r", value(n), "0.0", j)
                k(f"tl.store(xo + {at} * gxt + {i} * gxk, r.to(gx.dtype.element_ty), mask=ok)")
            for n in inputs.values():
                self._select(k, "r", value(n), "0.0", j)
                k(f"tl.store(io + {at} * git, r.to(gi.dtype.element_ty), mask=ok)")
            for u, n in sums.items():
                self._select(k, "r", value(n), "0.0", j)
                k(f"acc{u} += r")
            for s, n in results.items():
                self._select(k, f"h{s}", value(n), f"g{s}", j)
            k(*(f"g{s} = h{s}" for s in results))

        self._backwards(k, p, step, store=True)
        k("if c == 0:")
        k(
            *(f"    tl.store(gfirst + {s} * lanes + lane, g{s}, mask=ok)" for s in range(self.S)),
            *([] if self.S else ["    pass"]),
        )
        k(*(f"tl.store(partial + (c * {len(sums)} + {u}) * lanes + lane, acc{u}, mask=ok)" for u in sums))
        arguments = (
            "x, theta, mask, inp, saved, go, ends, gx, gi, gfirst, partial, xt, xb, xk, mt, mb, it, ib, gt, gb,\n"
            "    gxt, gxb, gxk, git, gib, T, B, D, C, c0, MASKED: tl.constexpr, BLOCK: tl.constexpr,"
        )
        return k.text("backward", arguments)

    def _reverse_keys(self) -> list[tuple[int, int]]:
        """(i, j): what state i's gradient before the chunk gets from state j's after it; j = S: the constant part."""
        form = reverse_scan_form(self.program)
        return sorted(form.carried) + [(i, self.S) for i in range(self.S)]

    def reverse_summary(self) -> str:
        form, k = reverse_scan_form(self.program), _Kernel()
        p, size = form.program, form.size
        jacobian = {divmod(i, size): n for i, n in p.of_kind("jacobian").items()}
        direct, units, keys = p.of_kind("direct"), unit_values(p), self._reverse_keys()
        k.units(p, units)
        for i, j in keys:
            k(f"m_{i}_{j} = tl.full([BLOCK], {1.0 if i == j else 0.0}, tl.float32)")

        def step(s: int, at: object) -> None:
            tag = f"b{s}_"
            k.step(p, [*jacobian.values(), *direct.values()], units, self._leaf(s, f"w{s}_"), tag)
            for i, j in keys:
                terms = []
                for (old, via), n in sorted(jacobian.items()):
                    if old == i and j == size:
                        terms.append(f"{tag}v{n} * (m_{via}_{j} + {tag}v{direct[via]})")
                    elif old == i and (via, j) in keys:
                        terms.append(f"{tag}v{n} * m_{via}_{j}")
                k(f"n_{i}_{j} = {_whole(' + '.join(terms) or '0.0', not terms)}")
            for i, j in keys:
                self._select(k, f"m_{i}_{j}", f"n_{i}_{j}", f"m_{i}_{j}", s)

        self._backwards(k, p, step, store=False)
        for e, (i, j) in enumerate(keys):
            k(f"tl.store(entries + (c * {len(keys)} + {e}) * lanes + lane, m_{i}_{j}, mask=ok)")
        arguments = (
            "x, theta, mask, inp, saved, go, entries, xt, xb, xk, mt, mb, it, ib, gt, gb, T, B, D, C, c0,\n"
            "    MASKED: tl.constexpr, BLOCK: tl.constexpr,"
        )
        return k.text("reverse_summary", arguments)

    def reverse_join(self) -> str:
        keys = self._reverse_keys()

        def renew(k: _Kernel, entry: Callable[[int, int], str]) -> None:
            for i in range(self.S):
                terms = [f"z{j} * {entry(i, j)}" for j in range(self.S) if (i, j) in keys]
                k(f"n{i} = {' + '.join([*terms, entry(i, self.S)])}")

        return self._join("reverse_join", keys, renew)


@lru_cache(maxsize=256)
def render(program: Program, unroll: int, every: int) -> str:
    """A module with the kernels of a program: `unroll` steps at a time forwards, states saved every `every` steps
    (0: none, and then no backward kernels)."""
    r = _Renderer(program, unroll, every)
    parts = [
        f'"""{program.name}, generated: unroll {unroll}, states saved every {every} steps."""\n\n',
        HEAD,
        r.forward(),
    ]
    if program.states:
        parts += [r.summary(), r.join()]
    if every:
        parts += [r.backward()]
        if program.states:
            parts += [r.reverse_summary(), r.reverse_join()]
    return "".join(parts)
