"""Triton kernels for programs of families: the index of a family is the second axis of a tile.

A Triton program owns BLOCK units of one head and one batch row, and walks the steps of a chunk. Values are tiles of two
axes, (BLOCK, 1) for units, (BLOCK, N) for a family, (1, N) for what the units of a head share; N is padded to a power
of two. So the text is as long for a family of 16 states as for one of 128.

A turn is a few steps. What each unit has for itself, one number a step, is loaded a turn ahead in registers. What units
share lies in memory sequence by sequence, so that its addresses are constants; it is loaded a step or two ahead, and
within a turn Triton's pipeline brings it through shared memory. A program is one warp: with up to 16 states a
thread owns a unit and has all its states in registers, so that the sum over the index, which most outputs are, needs
no exchange between threads.

Backwards, a piece of a few steps is run forward from its saved states, and then walked back; the states in between stay
in registers. What a head or group shares gets a partial sum from each block of units, and the partial sums are added in
a fixed order. The sum over the units of a tile is a product with a matrix of ones, on the tensor cores: a sum by
exchanges between threads takes 160 of them a step for two projections of 16 numbers. A tensor core rounds to 11 bits,
so float32 is summed in two parts, the first 11 bits and the rest. Few units are padded with zeros to ROWS, the fewest
that triton 3.6 multiplies.

For packed sequences, a program owns units of one sequence: it moves its pointers there, and finds the length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_loop import TURN, FamilyLoop
from rrnn.backends.triton.family_text import FamilyText
from rrnn.backends.triton.kernel_text import shift
from rrnn.ir import Op, Program, adjoint
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import Extent

ROWS = 16
"""Rows of the smallest product on tensor cores."""
CONSTANTS = "MASKED: tl.constexpr, BLOCK: tl.constexpr, FULL: tl.constexpr, STAGES: tl.constexpr"


class FamilyKernels(FamilyLoop):
    """Writes the kernels of one program."""

    def forward(self) -> str:
        """Return the kernel that runs every chunk from its first states."""
        p, k, every, rows = self.program, FamilyText(self.wide), self.every, self.states.rows
        units, outputs = unit_values(p), p.of_kind("output")
        k.place(self.packed)
        if self.packed:
            steps = {"x": "xt", "shared": str(self.projections.shared), "out": "ot"} | (
                {"inp": "it"} if p.uses_input else {}
            )
            own = {"first": f"{rows} * D", "final": f"{rows} * D"}
            shift(k, steps, own, (every, rows) if every else None)
        k.units(p, units, self.parameters)
        self._load_states(k, "z", f"first + c * {rows} * lanes")

        def step(j: int, whole: bool) -> None:
            if every and not (whole and TURN % every == 0 and j % every):
                always = whole and TURN % every == 0
                if not always:
                    k(f"if (t + {j}) % {every} == 0:")
                    k.depth += 1
                k(f"sp = saved + (t + {j}) // {every} * {rows} * lanes")
                self._store_states(k, "z", "sp")
                if not always:
                    k.depth -= 1
            k.step(p, [*p.of_kind("state").values(), *outputs.values()], units, self._leaf(j, "z"), "s")
            for i, n in outputs.items():
                k(f"r = {k.whole(p, n, 's', ())}", "if MASKED:", f"    r = tl.where(am{j} != 0, r, 0.0)")
                k(f"tl.store(op + {j} * ot + {i} * D + d, r.to(out.dtype.element_ty), mask=ok)")
            self._renew(k, p, "state", j, "s", "z", "z")

        self._forwards(k, p, step, store=True)
        k("if end == T:")
        k.depth += 1
        self._store_states(k, "z", "final")
        k.depth -= 1
        pointers = "x, shared, theta, first, mask, inp, out, final, saved," + (
            " sequences," if self.packed else ""
        )
        numbers = "xt, xb, mt, mb, it, ib, ot, ob, T, B, D, C, zero,"
        return k.text("forward", f"{pointers} {numbers} {CONSTANTS}")

    def backward(self) -> str:
        """Return the kernel of the gradient of every chunk."""
        whole = adjoint(self.program)
        p, k, every = whole.step, FamilyText(self.wide), self.every
        units, sums = unit_values(p), p.of_kind("grad_unit")
        table = Addresses(self.wide, [Extent(tuple(self.program.over[n])) for n in whole.units])
        rows, piece = self.states.rows, self._piece()
        k.place(self.packed)
        if self.packed:
            steps = {
                "x": "xt",
                "shared": str(self.projections.shared),
                "go": "gt",
                "gx": "gxt",
                "gshared": str(self.projections.shared),
            }
            steps |= {"inp": "it", "gi": "git"} if p.uses_input else {}
            own = dict[str, str].fromkeys(("gfinal", "gfirst"), f"{rows} * D")
            shift(k, steps, own | {"gunits": f"{table.rows} * D"}, (every, rows))
        k.units(p, units, self.parameters)
        self._load_states(k, "g", f"gfinal + c * {rows} * lanes")
        for j in sums:
            k(f"acc{j} = tl.zeros({k.shape(table.extents[j].over)}, tl.float32)")
        results = [o.value for o in p.outputs if o.kind != "new_state"]
        shared = [
            i for i, e in enumerate(self.wide.projections) if e.per != "unit" and k.width(e.over) >= ROWS
        ]
        if shared:
            k(f"row = tl.arange(0, {ROWS})[:, None]")

        def around(before: bool) -> None:
            for i in shared:
                if before:
                    k(f"sums{i} = tl.zeros([{ROWS}, {k.width(self.wide.projections[i].over)}], tl.float32)")
                else:
                    self._store_shared(k, i, f"sums{i}", "t + row", f"row < {piece}")

        def step(j: int, at: object) -> None:
            by = {} if j < 0 else {i: j for i in shared}
            after = p.of_kind("new_state").items() if 0 <= j < piece - 1 else ()
            j = max(j, 0)
            known = {n: f"w{j + 1}_{s}" for s, n in after if p.instructions[n].op is not Op.CONST}
            k.step(p, results, units, self._leaf(j, f"w{j}_"), "b", known)
            self._gradients(k, p, j, at, sums, table, by)
            self._renew(k, p, "grad_state", j, "b", "g", "g")

        self._backwards(k, p, piece, step, around, self._pointers(grad=True, store=True))
        k("if c == 0:")
        k.depth += 1
        self._store_states(k, "g", "gfirst")
        k.depth -= 1
        for j in sums:
            extent = table.extents[j]
            where = f"gunits + ((c * B + b) * {table.rows} + {k.at(extent, table.starts[j])}) * D + d"
            k(f"tl.store({where}, acc{j}, mask={k.ok(extent.over)})")
        pointers = "x, shared, theta, mask, inp, saved, go, gfinal, gx, gi, gfirst, gunits, gshared,"
        pointers += " sequences," if self.packed else ""
        numbers = "xt, xb, mt, mb, it, ib, gt, gb, gxt, gxb, git, gib, T, B, D, C, zero,"
        return k.text("backward", f"{pointers} {numbers} {CONSTANTS}, EXACT: tl.constexpr")

    def _store_shared(self, k: FamilyText, i: int, value: str, step: str, mask: str = "") -> None:
        """Write a block's partial sums of what a head or group shares."""
        extent, start = self.wide.projections[i], self.projections.starts[i]
        column = k.column(extent, start) + ("" if extent.over else " + tl.zeros([1, 1], tl.int32)")
        row = f"(({self._slot(extent)}) * rows + b * T + {step})"
        where = f"gshared + {row} * {self.projections.shared} + {column}"
        mask = " & ".join(part for part in (mask, k.ok(extent.over, lanes=False)) if part)
        k(f"tl.store({where}, {value}{f', mask={mask}' if mask else ''})")

    def _gradients(
        self,
        k: FamilyText,
        p: Program,
        j: int,
        at: object,
        sums: Mapping[int, int],
        table: Addresses,
        by_product: Mapping[int, int],
    ) -> None:
        """Write the gradients of a step's projections, input and per-unit values. `by_product`: shared projections
        whose sums over units are products, and the row of the step."""

        def value(n: int, over: Iterable[int]) -> None:
            k(f"r = {k.whole(p, n, 'b', over)}", "if MASKED:", f"    r = tl.where(am{j} != 0, r, 0.0)")

        for i, n in p.of_kind("grad_preact").items():
            extent, start = self.wide.projections[i], self.projections.starts[i]
            value(n, extent.over)
            if extent.per == "unit":
                where = f"xo + {at} * gxt + {k.at(extent, start)} * D + d"
                k(f"tl.store({where}, r.to(gx.dtype.element_ty), mask={k.ok(extent.over)})")
                continue
            k("if not FULL:", "    r = tl.where(ok, r, 0.0)")
            if i in by_product:
                k(f"sums{i} = tl.where(row == {by_product[i]}, sum_units(r, EXACT), sums{i})")
            else:
                self._store_shared(k, i, "tl.sum(r, 0, keep_dims=True)", f"t + {at}")
        for n in p.of_kind("grad_input").values():
            value(n, ())
            k(f"tl.store(io + {at} * git + d, r.to(gi.dtype.element_ty), mask=ok)")
        for i, n in sums.items():
            value(n, table.extents[i].over)
            k(f"acc{i} += r")


MATH = f"""

@triton.jit
def sum_units(r, EXACT: tl.constexpr):
    pads: tl.constexpr = max(1, {ROWS} // r.shape[0])
    for _ in tl.static_range((pads > 1) + (pads > 2) + (pads > 4) + (pads > 8)):
        r = tl.reshape(tl.permute(tl.join(r, tl.zeros_like(r)), (0, 2, 1)), [2 * r.shape[0], r.shape[1]])
    ones = tl.full([{ROWS}, r.shape[0]], 1.0, tl.float32)
    if not EXACT:
        return tl.dot(ones, r, input_precision="tf32")
    most = (r.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    rest = tl.maximum(r - most, -1e36)  # the NaN of ∞ − ∞ becomes a number; no finite rest is as low
    return tl.dot(ones, rest, tl.dot(ones, most, input_precision="tf32"), input_precision="tf32")
"""
MATH += """

@triton.jit
def logsum(v):
    most = tl.max(v, 1, keep_dims=True)
    safe = tl.where(most == float("-inf"), 0.0, most)
    total = tl.sum(tl.exp(v - safe), 1, keep_dims=True)
    return tl.where(most == float("-inf"), most, safe + tl.log(total))


@triton.jit
def first(hit, k):
    place = tl.min(tl.where(hit, k, 1073741824), 1, keep_dims=True)
    return tl.where(hit & (k == place), 1.0, 0.0)
"""
