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

from collections.abc import Iterable, Mapping

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.family_text import padded
from rrnn.backends.triton.kernel_text import HEAD, OPS, number, shift
from rrnn.ir import Op, Program, adjoint
from rrnn.ir.adjoint import unit_values
from rrnn.ir.program import Extent, needed

_JIT = '@triton.jit(do_not_specialize=["T", "B"])'
_FOLDS = {
    Op.SUM: "tl.sum(tl.where({ok}, {0}, 0.0), {axis}, keep_dims=True)",
    Op.MOST: 'tl.max(tl.where({ok}, {0}, float("-inf")), {axis}, keep_dims=True)',
    Op.LEAST: 'tl.min(tl.where({ok}, {0}, float("inf")), {axis}, keep_dims=True)',
    Op.LOGSUM: 'logsum(tl.where({ok}, {0}, float("-inf")), {axis})',
    Op.FIRST: "first(tl.where({ok}, {0} == {1}, False) & (tl.abs({1}) < float('inf')), {k}, {axis})",
}


class _Text:
    """The lines of one kernel."""

    def __init__(self, program: Program) -> None:
        assert program.wide is not None
        self.wide, self.lines, self.depth = program.wide, list[str](), 1

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    def place(self, packed: bool) -> None:
        """Write where the Triton program works: units d of a head and batch row b; k0, k1, … are indices. A packed
        sequence is a batch of one row, of which T is the length; `rows` counts all steps."""
        heads, groups = self.wide.heads, self.wide.groups
        self("rows = tl.cast(T, tl.int64) * B")
        if packed:
            self("number = tl.load(sequences + tl.program_id(1) * 3)")
            self("offset = tl.load(sequences + tl.program_id(1) * 3 + 1)")
            self("T = tl.load(sequences + tl.program_id(1) * 3 + 2) - offset")
        self(
            f"U = D // {heads}",
            "blocks = tl.cdiv(U, BLOCK)",
            "head = tl.program_id(0) // blocks",
            f"group = head // {heads // groups}",
            f"u = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK){self.along(0)}",
            f"b = tl.program_id({2 if packed else 1}).to(tl.int64)",
            "ok = u < U",
            "d = (head * U + u).to(tl.int64)",
            "lanes = tl.cast(B, tl.int64) * D",
            "lane = b * D + d",
        )
        for f, (_, size) in enumerate(self.wide.sizes):
            self(f"k{f} = tl.arange(0, {padded(size)}){self.along(self.axis(f))}", f"ok{f} = k{f} < {size}")

    def axis(self, family: int) -> int:
        """Return the axis of a family's index in tiles: sources have one of their own."""
        return 2 if self.wide.sizes[family][0].endswith(".source") else 1

    def along(self, axis: int) -> str:
        """Return the subscript that gives a row of numbers the shape of a tile, along an axis."""
        return f"[{', '.join(':' if k == axis else 'None' for k in range(3))}]"

    def shape(self, over: Iterable[int], lanes: str = "BLOCK") -> str:
        """Return the shape of a tile."""
        sizes = [lanes, "1", "1"]
        for f in over:
            sizes[self.axis(f)] = str(padded(self.wide.sizes[f][1]))
        return f"[{', '.join(sizes)}]"

    def ok(self, over: Iterable[int], lanes: bool = True) -> str:
        """Return the mask of a tile."""
        parts = [*(["ok"] if lanes else []), *(f"ok{f}" for f in over)]
        return " & ".join(parts) or "True"

    def at(self, extent: Extent, start: int) -> str:
        """Return the number of a row, with the indices of its families."""
        return f"({start} + {Addresses(self.wide, ()).number(extent)})" if extent.over else str(start)

    def units(self, program: Program, units: tuple[int, ...], table: Addresses) -> None:
        """Write the per-unit values, which are computed once."""

        def leaf(op: Op, index: int) -> str:
            return self.load(table, index, "theta", "D")

        self.step(program, units, (), leaf, "u")

    def load(self, table: Addresses, index: int, base: str, stride: str) -> str:
        """Return the load of a projection or parameter: rows of units, then what is shared."""
        extent, start = table.extents[index], table.starts[index]
        if extent.per == "unit":
            where, mask = f"{self.at(extent, start)} * {stride} + d", self.ok(extent.over)
        else:
            indices = self.wide.indices(extent)
            where = f"{table.rows} * {stride} + {self.at(extent, start)} + {extent.per} * {indices}"
            mask = self.ok(extent.over, lanes=False)
        if mask == "True":
            return f"tl.load({base} + {where}).to(tl.float32)"
        return f"tl.load({base} + {where}, mask={mask}, other=0.0).to(tl.float32)"

    def step(
        self, program: Program, values: Iterable[int], units: tuple[int, ...], leaf: object, tag: str
    ) -> None:
        """Write the instructions that `values` need, as {tag}v{n}; per-unit values have the name uv{n}."""
        for n in sorted(needed(program.instructions, values, stop=units)):
            op, args, attr = program.instructions[n]
            names = [f"{tag}v{a}" for a in args]
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            elif n in units:
                text = f"uv{n}"
            elif op.arity == 0:
                text = leaf(op, int(attr or 0))  # type: ignore[operator]
            elif op is Op.MOVE:
                before, after = map(self.axis, divmod(int(attr or 0), len(self.wide.sizes)))
                text = names[0] if before == after else f"tl.permute({names[0]}, (0, 2, 1))"
            elif op in ALONG_FAMILY:
                axis = self.axis(int(attr or 0))
                text = _FOLDS[op].format(*names, ok=f"ok{attr}", k=f"k{attr}", axis=axis)
            else:
                text = OPS[op].format(*names)
            self(f"{tag}v{n} = {text}")

    def whole(self, value: str, over: Iterable[int]) -> str:
        """Return a value as a full tile of lanes."""
        return f"({value} + tl.zeros({self.shape(over)}, tl.float32))"

    def text(self, name: str, arguments: str) -> str:
        return "\n".join([f"\n\n{_JIT}", f"def {name}({arguments}):", *self.lines]) + "\n"


class PairKernels:
    """Writes the kernels of one program."""

    def __init__(self, program: Program, packed: bool = False) -> None:
        assert program.wide is not None
        self.packed = packed
        self.program, self.wide = program.flat, program.flat.wide or program.wide
        self.projections = Addresses(self.wide, self.wide.projections)
        self.parameters = Addresses(self.wide, self.wide.parameters)
        self.states = Addresses(self.wide, self.wide.states)

    def _leaf(self, k: _Text, state: str) -> object:
        def leaf(op: Op, index: int) -> str:
            match op:
                case Op.PREACT:
                    return k.load(self.projections, index, "xp", "D")
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

    def _state(self, k: _Text, s: int, base: str) -> tuple[str, str]:
        """Return (where state s lies, its mask) in rows (S, B, D) that begin at `base`."""
        extent = self.wide.states[s]
        return f"{base} + {k.at(extent, self.states.starts[s])} * lanes + lane", k.ok(extent.over)

    def _load_states(self, k: _Text, names: str, base: str) -> None:
        for s in range(len(self.wide.states)):
            where, mask = self._state(k, s, base)
            k(f"{names}{s} = tl.load({where}, mask={mask}, other=0.0)")

    def _store_states(self, k: _Text, names: str, base: str) -> None:
        for s in range(len(self.wide.states)):
            where, mask = self._state(k, s, base)
            k(f"tl.store({where}, {names}{s}, mask={mask})")

    def _walk(self, k: _Text) -> None:
        """Write what a step reads: pointers, and whether it is valid."""
        k("xp = x + t * xt + b * xb")
        if self.program.uses_input:
            k("ip = inp + t * it + b * ib")
        k("if MASKED:", "    valid = tl.load(mask + t * mt + b * mb) != 0")

    def _renew(self, k: _Text, program: Program, kind: str, names: str, tag: str) -> None:
        """Write the new states in the place of the old ones."""
        new = program.of_kind(kind)
        for s, n in new.items():
            value = k.whole(f"{tag}v{n}", self.wide.states[s].over)
            k(f"new{s} = {value}")
            k("if MASKED:", f"    new{s} = tl.where(valid, new{s}, {names}{s})")
        k(*(f"{names}{s} = new{s}" for s in new))

    def forward(self, every: int) -> str:
        p, k = self.program, _Text(self.program)
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
            k(f"r = {k.whole(f'sv{n}', ())}", "if MASKED:", "    r = tl.where(valid, r, 0.0)")
            k(f"tl.store(out + t * ot + b * ob + {j} * D + d, r.to(out.dtype.element_ty), mask=ok)")
        self._renew(k, p, "state", "z", "s")
        k.depth -= 1
        self._store_states(k, "z", "final")
        pointers = "x, theta, first, mask, inp, out, final, saved," + (" sequences," if self.packed else "")
        numbers = "xt, xb, mt, mb, it, ib, ot, ob, T, B, D,"
        return k.text("forward", f"{pointers} {numbers} MASKED: tl.constexpr, BLOCK: tl.constexpr")

    def backward(self, every: int) -> str:
        whole = adjoint(self.program)
        p, k = whole.step, _Text(whole.step)
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

    def _gradients(self, k: _Text, p: Program, sums: Mapping[int, int], table: Addresses) -> None:
        """Write the gradients of a step's projections, input and per-unit values."""

        def value(n: int, over: Iterable[int]) -> None:
            k(f"r = {k.whole(f'bv{n}', over)}", "if MASKED:", "    r = tl.where(valid, r, 0.0)")

        for i, n in p.of_kind("grad_preact").items():
            extent, start = self.wide.projections[i], self.projections.starts[i]
            value(n, extent.over)
            if extent.per == "unit":
                where = f"xo + {k.at(extent, start)} * D + d"
                k(f"tl.store({where}, r.to(gx.dtype.element_ty), mask={k.ok(extent.over)})")
                continue
            k("r = tl.sum(tl.where(ok, r, 0.0), 0, keep_dims=True)")
            slot = "tl.program_id(0) % blocks"
            if extent.per == "group":
                slot += f" + head % {self.wide.heads // self.wide.groups} * blocks"
            column = f"{k.at(extent, start)} + {extent.per} * {self.wide.indices(extent)}"
            column += "" if extent.over else f" + tl.zeros({k.shape((), lanes='1')}, tl.int32)"
            row = f"({slot}) * rows + t * B + b"
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
    kernels = PairKernels(program, packed)
    about = f'"""{program.name}, generated: pairs of states, saved every {every} steps."""\n\n'
    return about + HEAD + _MATH + kernels.forward(every) + (kernels.backward(every) if every else "")
