"""Triton kernels for programs with arcs from each state of a family to each, or between two families.

A Triton program owns BLOCK units of one head and one batch row, and walks all steps. Values are tiles of three axes, of
units, of the index of a family and of the index of a source: (BLOCK, 1, 1) for units, (BLOCK, N, 1) for a family,
(1, N, N) for a matrix that the units of a head share; N is padded to a power of two. Taking a value from one index to
another exchanges two axes. So the text is as long for a family of 4 states as for one of 128.

Backwards, time runs in segments of EVERY steps, the last one first. A segment is run forward from its saved states,
which leaves the state before each step in `scratch`; then it is walked back. What a head or group shares gets a partial
sum from each block of units, and the partial sums are added in a fixed order.

For packed sequences, a program owns units of one sequence: it moves its pointers there, and finds the length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_text import FOLDS, FamilyText, TileKernels
from rrnn.backends.triton.kernel_text import HEAD, shift
from rrnn.backends.triton.semiring_folds import fold_functions
from rrnn.ir import Op, Program, adjoint
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import Extent

_JIT = '@triton.jit(do_not_specialize=["T", "B"])'


class PairText(FamilyText):
    """The lines of a kernel whose values are tiles of three axes. Every index has a mask."""

    rank, chunks = 3, False
    folds = FOLDS | {
        Op.LOGSUM: ("logsum({0}, {axis})", 'float("-inf")'),
        Op.FIRST: (
            "first(tl.where({ok}, {0} == {1}, False) & (tl.abs({1}) < float('inf')), {k}, {axis})",
            None,
        ),
    }

    def axis(self, family: int) -> int:
        """Return the axis of a family's index in tiles: sources have one of their own."""
        return 2 if self.wide.sizes[family][0].endswith(".source") else 1

    def masked(self, over: Iterable[int]) -> list[int]:
        return list(over)

    def column(self, extent: Extent, start: int) -> str:
        return f"{self.at(extent, start)} + {extent.per} * {self.wide.indices(extent)}"

    def whole(self, program: Program, n: int, tag: str, over: Iterable[int]) -> str:
        return f"({tag}v{n} + tl.zeros({self.shape(over)}, tl.float32))"

    def text(self, name: str, arguments: str) -> str:
        return "\n".join([f"\n\n{_JIT}", f"def {name}({arguments}):", *self.lines]) + "\n"


class PairKernels(TileKernels):
    """Writes the kernels of one program."""

    def _leaf(self, k: PairText, state: str) -> Callable[[Op, int], str]:
        def leaf(op: Op, index: int) -> str:
            match op:
                case Op.PREACT:
                    shared = f"xp + {self.projections.rows} * D"
                    return k.load(self.projections, index, "xp", shared) + ".to(tl.float32)"
                case Op.INPUT:
                    return "tl.load(ip + d, mask=ok, other=0.0).to(tl.float32)"
                case Op.STATE:
                    return f"{state}{index}"
                case Op.GRAD_STATE:
                    return f"g{index}"
                case Op.GRAD_OUTPUT:
                    return f"tl.load(gp + {index} * D + d, mask=ok, other=0.0).to(tl.float32)"
            raise AssertionError(op)

        return leaf

    def _walk(self, k: PairText) -> None:
        """Write what a step reads: pointers, and whether it is valid."""
        k("xp = x + t * xt + b * xb")
        if self.program.uses_input:
            k("ip = inp + t * it + b * ib")
        k("if MASKED:", "    valid = tl.load(mask + t * mt + b * mb) != 0")

    def _renew(self, k: PairText, program: Program, kind: str, names: str, tag: str) -> None:
        """Write the new states in the place of the old ones."""
        new = program.of_kind(kind)
        for s, n in new.items():
            k(f"new{s} = {k.whole(program, n, tag, self.wide.states[s].over)}")
            k("if MASKED:", f"    new{s} = tl.where(valid, new{s}, {names}{s})")
        k(*(f"{names}{s} = new{s}" for s in new))

    def forward(self) -> str:
        """Return the kernel that runs all steps."""
        p, k, every = self.program, PairText(self.wide), self.every
        units, outputs = unit_values(p), p.of_kind("output")
        k.place(self.packed)
        if self.packed:
            steps = {"x": "xt", "out": "ot"} | ({"inp": "it"} if p.uses_input else {})
            rows = {"first": f"{self.states.rows} * D", "final": f"{self.states.rows} * D"}
            shift(k, steps, rows, (every, self.states.rows) if every else None)
        k.units(p, units, self.parameters)
        self._load_states(k, "z", "first")
        k("for step in range(0, T):")
        k.depth += 1
        k("t = tl.cast(step, tl.int64)")
        self._walk(k)
        if every:
            k(f"if step % {every} == 0:")
            k.depth += 1
            k(f"sp = saved + t // {every} * {self.states.rows} * lanes")
            self._store_states(k, "z", "sp")
            k.depth -= 1
        k.step(p, [*p.of_kind("state").values(), *outputs.values()], units, self._leaf(k, "z"), "s")
        for j, n in outputs.items():
            k(f"r = {k.whole(p, n, 's', ())}", "if MASKED:", "    r = tl.where(valid, r, 0.0)")
            k(f"tl.store(out + t * ot + b * ob + {j} * D + d, r.to(out.dtype.element_ty), mask=ok)")
        self._renew(k, p, "state", "z", "s")
        k.depth -= 1
        self._store_states(k, "z", "final")
        pointers = "x, theta, first, mask, inp, out, final, saved," + (" sequences," if self.packed else "")
        numbers = "xt, xb, mt, mb, it, ib, ot, ob, T, B, D,"
        return k.text("forward", f"{pointers} {numbers} MASKED: tl.constexpr, BLOCK: tl.constexpr")

    def backward(self) -> str:
        """Return the kernel of the gradient."""
        whole = adjoint(self.program)
        p, k, every = whole.step, PairText(self.wide), self.every
        units, sums = unit_values(p), p.of_kind("grad_unit")
        table = Addresses(self.wide, [Extent(tuple(sorted(self.program.over[n]))) for n in whole.units])
        rows = self.states.rows
        k.place(self.packed)
        if self.packed:
            steps = {"x": "xt", "go": "gt", "gx": "gxt", "gshared": str(self.projections.shared)}
            steps |= {"inp": "it", "gi": "git"} if p.uses_input else {}
            own = dict[str, str].fromkeys(("gfinal", "gfirst"), f"{rows} * D")
            own |= {"gunits": f"{table.rows} * D", "scratch": f"{every * rows} * D"}
            shift(k, steps, own, (every, rows))
        k.units(p, units, self.parameters)
        self._load_states(k, "g", "gfinal")
        for j in sums:
            k(f"acc{j} = tl.zeros({k.shape(table.extents[j].over)}, tl.float32)")
        k(f"segments = tl.cdiv(T, {every})", "for past in range(0, segments):")
        k.depth += 1
        k(
            "segment = segments - 1 - past",
            f"begin = segment * {every}",
            f"end = tl.minimum(begin + {every}, T)",
        )
        k(f"sp = saved + tl.cast(segment, tl.int64) * {rows} * lanes")
        self._load_states(k, "w", "sp")
        k("for step in range(begin, end):")
        k.depth += 1
        k("t = tl.cast(step, tl.int64)")
        k(f"kept = scratch + (t - begin) * {rows} * lanes")
        self._store_states(k, "w", "kept")
        self._walk(k)
        k.step(p, p.of_kind("new_state").values(), units, self._leaf(k, "w"), "f")
        self._renew(k, p, "new_state", "w", "f")
        k.depth -= 1
        k("tl.debug_barrier()  # what one thread has kept, another one may read")
        k("for back in range(begin, end):")
        k.depth += 1
        k("t = tl.cast(end - 1 - (back - begin), tl.int64)")
        k(f"kept = scratch + (t - begin) * {rows} * lanes")
        self._load_states(k, "w", "kept")
        self._walk(k)
        k("gp = go + t * gt + b * gb", "xo = gx + t * gxt + b * gxb")
        k.step(p, [o.value for o in p.outputs if o.kind != "new_state"], units, self._leaf(k, "w"), "b")
        self._gradients(k, p, sums, table)
        self._renew(k, p, "grad_state", "g", "b")
        k.depth -= 1
        k("tl.debug_barrier()")
        k.depth -= 1
        self._store_states(k, "g", "gfirst")
        for j in sums:
            extent = table.extents[j]
            where = f"gunits + (b * {table.rows} + {k.at(extent, table.starts[j])}) * D + d"
            k(f"tl.store({where}, acc{j}, mask={k.ok(extent.over)})")
        pointers = "x, theta, mask, inp, saved, go, gfinal, gx, gi, gfirst, gunits, gshared, scratch,"
        pointers += " sequences," if self.packed else ""
        numbers = "xt, xb, mt, mb, it, ib, gt, gb, gxt, gxb, git, gib, T, B, D,"
        return k.text("backward", f"{pointers} {numbers} MASKED: tl.constexpr, BLOCK: tl.constexpr")

    def _gradients(self, k: PairText, p: Program, sums: Mapping[int, int], table: Addresses) -> None:
        """Write the gradients of a step's projections, input and per-unit values."""

        def value(n: int, over: Iterable[int]) -> None:
            k(f"r = {k.whole(p, n, 'b', over)}", "if MASKED:", "    r = tl.where(valid, r, 0.0)")

        for i, n in p.of_kind("grad_preact").items():
            extent, start = self.wide.projections[i], self.projections.starts[i]
            value(n, extent.over)
            if extent.per == "unit":
                where = f"xo + {k.at(extent, start)} * D + d"
                k(f"tl.store({where}, r.to(gx.dtype.element_ty), mask={k.ok(extent.over)})")
                continue
            k("r = tl.sum(tl.where(ok, r, 0.0), 0, keep_dims=True)")
            column = k.column(extent, start)
            column += "" if extent.over else f" + tl.zeros({k.shape((), lanes='1')}, tl.int32)"
            row = f"({self._slot(extent)}) * rows + t * B + b"
            where = f"gshared + ({row}) * {self.projections.shared} + {column}"
            mask = f", mask={k.ok(extent.over, lanes=False)}" if extent.over else ""
            k(f"tl.store({where}, r{mask})")
        for n in p.of_kind("grad_input").values():
            value(n, ())
            k("tl.store(gi + t * git + b * gib + d, r.to(gi.dtype.element_ty), mask=ok)")
        for j, n in sums.items():
            value(n, table.extents[j].over)
            k(f"acc{j} += r")


_MATH = """

@triton.jit
def logsum(v, axis: tl.constexpr):
    most = tl.max(v, axis, keep_dims=True)
    dead = most == float("-inf")
    safe = tl.where(dead, 0.0, most)
    total = tl.sum(tl.exp(v - safe), axis, keep_dims=True)
    return tl.where(dead, most, safe + tl.log(tl.where(dead, 1.0, total)))


@triton.jit
def first(hit, k, axis: tl.constexpr):
    place = tl.min(tl.where(hit, k, 1073741824), axis, keep_dims=True)
    return tl.where(hit & (k == place), 1.0, 0.0)
"""


def render(program: Program, every: int, packed: bool = False) -> str:
    """Return the source of a module with the kernels of a program; without `every`, none of the gradient."""
    kernels = PairKernels(program, every, packed)
    about = f'"""{program.name}, generated: pairs of states, saved every {every} steps."""\n\n'
    parts = [about, HEAD, _MATH, fold_functions(kernels.program), kernels.forward()]
    return "".join([*parts, kernels.backward() if every else ""])
