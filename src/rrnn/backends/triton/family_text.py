"""The text of a kernel of families: tiles of units and indices of families, and how leaves are loaded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from rrnn.arithmetic import ALONG_FAMILY, SEMIRING_FOLDS
from rrnn.backends.native.family_loops import Addresses
from rrnn.backends.triton.kernel_text import OPS, STRIDES, Elements, number
from rrnn.ir import Op, Program
from rrnn.ir.program import Extent, Families, needed
from rrnn.ir.semiring_code import OperationCode

_JIT = '@triton.jit(do_not_specialize=["T", "B", "C", "chunks", "zero"])'
FOLDS = {
    Op.SUM: ("tl.sum({0}, {axis}, keep_dims=True)", "0.0"),
    Op.MOST: ("tl.max({0}, {axis}, keep_dims=True)", 'float("-inf")'),
    Op.LEAST: ("tl.min({0}, {axis}, keep_dims=True)", 'float("inf")'),
    Op.LOGSUM: ("logsum({0})", 'float("-inf")'),
    Op.FIRST: ("first(({0} == {1}) & (tl.abs({1}) < float('inf')), {k})", 'float("nan")'),
}
"""How Triton folds a tile along an index, and what stands where the index is padded (None: the text has the mask)."""
LOG2_E = 1.4426950408889634


def padded(size: int) -> int:
    """Return the next power of two."""
    return 1 << (size - 1).bit_length()


class TileKernels:
    """What writers of kernels on tiles share: where things lie, and how states are loaded and stored."""

    def __init__(self, program: Program, every: int, packed: bool = False) -> None:
        assert program.wide is not None
        self.packed, self.every = packed, every
        self.program, self.wide = program.flat, program.flat.wide or program.wide
        self.projections = Addresses(self.wide, self.wide.projections)
        self.parameters = Addresses(self.wide, self.wide.parameters)
        self.states = Addresses(self.wide, self.wide.states)

    def _state(self, k: FamilyText, s: int, base: str, when: str = "") -> tuple[str, str]:
        """Return (where state s lies, its mask) in rows (S, B, D) that begin at `base`."""
        extent = self.wide.states[s]
        return f"{base} + {k.at(extent, self.states.starts[s])} * lanes + lane", k.ok(extent.over, True, when)

    def _load_states(self, k: FamilyText, names: str, base: str, when: str = "") -> None:
        for s in range(len(self.wide.states)):
            where, mask = self._state(k, s, base, when)
            k(f"{names}{s} = tl.load({where}, mask={mask}, other=0.0)")

    def _store_states(self, k: FamilyText, names: str, base: str) -> None:
        for s in range(len(self.wide.states)):
            where, mask = self._state(k, s, base)
            k(f"tl.store({where}, {names}{s}, mask={mask})")

    def _slot(self, extent: Extent) -> str:
        """Return which partial sum of a shared projection's gradient a Triton program writes."""
        slot = "tl.program_id(0) % blocks"
        if extent.per == "group":
            slot += f" + head % {self.wide.heads // self.wide.groups} * blocks"
        return slot


class FamilyText(Elements):
    """The lines of a kernel whose values are tiles of two axes, of units and of the index of a family."""

    rank, folds, chunks = 2, FOLDS, True

    def __init__(self, wide: Families) -> None:
        super().__init__()
        self.wide, self.begun = wide, 0

    def place(self, packed: bool) -> None:
        """Write where the Triton program works: units d of a head, batch row b and chunk c; k0, k1, … are indices. A
        packed sequence is a batch of one row and one chunk, of which T is the length; `rows` counts all steps."""
        heads, groups = self.wide.heads, self.wide.groups
        self("rows = tl.cast(T, tl.int64) * B")
        if packed:
            self("number = tl.load(sequences + tl.program_id(1) * 3)")
            self("offset = tl.load(sequences + tl.program_id(1) * 3 + 1)")
            self("T = tl.load(sequences + tl.program_id(1) * 3 + 2) - offset")
            if self.chunks:
                self("C = T")
        self(
            f"U = D // {heads}",
            "blocks = tl.cdiv(U, BLOCK)",
            "head = tl.program_id(0) // blocks",
            f"group = head // {heads // groups}",
            f"u = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK){self.along(0)}",
            f"b = tl.program_id({2 if packed else 1}).to(tl.int64)",
            *(["c = tl.program_id(2).to(tl.int64)"] if self.chunks else []),
            "ok = u < U",
            f"d = (head * U + u).to(tl.int64){' + zero' if self.chunks else ''}",
            "lanes = tl.cast(B, tl.int64) * D",
            "lane = b * D + d",
        )
        for f, (_, size) in enumerate(self.wide.sizes):
            self(f"k{f} = tl.arange(0, {padded(size)}){self.along(self.axis(f))}")
            if self.masked([f]):
                self(f"ok{f} = k{f} < {size}")

    def axis(self, family: int) -> int:
        """Return the axis of a family's index in tiles."""
        return 1

    def along(self, axis: int) -> str:
        """Return the subscript that gives a row of numbers the shape of a tile, along an axis."""
        return f"[{', '.join(':' if k == axis else 'None' for k in range(self.rank))}]"

    def masked(self, over: Iterable[int]) -> list[int]:
        """Return those of these families whose index has a mask: those that are padded."""
        return [f for f in over if self.wide.sizes[f][1] < padded(self.wide.sizes[f][1])]

    def filled(self, value: str) -> str:
        return f"tl.full([BLOCK, 1], {value}, tl.float32)"

    def width(self, over: Iterable[int]) -> int:
        """Return the length of a tile's second axis."""
        return padded(self.wide.sizes[f][1]) if (f := next(iter(over), None)) is not None else 1

    def shape(self, over: Iterable[int], lanes: str = "BLOCK") -> str:
        """Return the shape of a tile."""
        sizes = [lanes, *["1"] * (self.rank - 1)]
        for f in over:
            sizes[self.axis(f)] = str(padded(self.wide.sizes[f][1]))
        return f"[{', '.join(sizes)}]"

    def ok(self, over: Iterable[int], lanes: bool = True, when: str = "") -> str:
        """Return the mask of a tile, nothing of which is wanted unless `when` holds; "" if there is nothing to mask."""
        if when and lanes:
            return " & ".join([f"(u < tl.where({when}, U, 0))", *self.ok(over, False).split()])
        if when:
            sizes = [f"(k{f} < tl.where({when}, {self.wide.sizes[f][1]}, 0))" for f in over]
            return " & ".join(sizes) or when
        return " & ".join([*(["ok"] if lanes else []), *(f"ok{f}" for f in self.masked(over))])

    def at(self, extent: Extent, start: int) -> str:
        """Return the number of a row, with the indices of its families."""
        return f"({start} + {Addresses(self.wide, ()).number(extent)})" if extent.over else str(start)

    def column(self, extent: Extent, start: int) -> str:
        """Return the number of what units share, with the index of its family."""
        text = f"{start} + {extent.per} * {self.wide.indices(extent)}"
        return text + (f" + k{extent.over[0]}" if extent.over else "")

    def units(self, program: Program, units: tuple[int, ...], table: Addresses) -> None:
        """Write the per-unit values, which are computed once."""

        def leaf(op: Op, index: int) -> str:
            return self.load(table, index, "theta", f"theta + {table.rows} * D") + ".to(tl.float32)"

        self.step(program, units, (), leaf, "u")

    def load(self, table: Addresses, index: int, base: str, shared: str, when: str = "") -> str:
        """Return the load of a projection or parameter: of a row of units, which begin at `base`, or of numbers that
        units share, which begin at `shared`; zero unless `when` holds."""
        extent, start = table.extents[index], table.starts[index]
        if extent.per == "unit":
            where, mask = f"{base} + {self.at(extent, start)} * D + d", self.ok(extent.over, True, when)
        else:
            where = f"{shared} + {self.column(extent, start)}"
            mask = self.ok(extent.over, False, when)
        return f"tl.load({where}{f', mask={mask}, other=0.0' if mask else ''})"

    def step(
        self,
        program: Program | OperationCode,
        values: Iterable[int],
        units: tuple[int, ...],
        leaf: Callable[[Op, int], str],
        tag: str,
        known: Mapping[int, str] = {},
    ) -> None:
        """Write the instructions that `values` need, as {tag}v{n}; per-unit values have the name uv{n}. `known`: those
        that have a name already."""
        self.begun = len(self.lines)  # of these lines: names are used again by the next step
        for n in sorted(needed(program.instructions, values, stop={*units, *known})):
            op, args, attr = program.instructions[n]
            names = [f"{tag}v{a}" for a in args]
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            elif n in units:
                text = f"uv{n}"
            elif n in known:
                text = known[n]
            elif op.arity == 0:
                text = leaf(op, int(attr or 0))
            elif op is Op.MOVE:
                before, after = map(self.axis, divmod(int(attr or 0), len(self.wide.sizes)))
                text = names[0] if before == after else f"tl.permute({names[0]}, (0, 2, 1))"
            elif op in SEMIRING_FOLDS:
                assert isinstance(program, Program)
                text = self._fold(program, n, tag)
            elif op in ALONG_FAMILY:
                text, neutral = self.folds[op]
                mask = self.ok([int(attr or 0)], lanes=False)
                folded = f"tl.where({mask}, {names[0]}, {neutral})" if mask and neutral else names[0]
                axis = self.axis(int(attr or 0))
                text = text.format(folded, *names[1:], k=f"k{attr}", ok=mask, axis=axis)
            elif op is Op.EXP and (few := self._few(program, args[0])) is not None:
                text = f"tl.exp2(({tag}v{few[0]} * {LOG2_E}) * {tag}v{few[1]})"
            else:
                text = OPS[op].format(*names)
            self(f"{tag}v{n} = {text}")

    def _fold(self, program: Program, n: int, tag: str) -> str:
        """Write a fold by the semiring's own ⊕, all components at once; return the name of component n."""
        op, args, attr = program.instructions[n]
        family, component = divmod(int(attr or 0), len(args))
        own = [f"{family}_{c}_{'_'.join(map(str, args))}" for c in range(len(args))]
        results = [f"{tag}{op.text}{name}" for name in own]
        over = frozenset([family]).union(*(program.over[a] for a in args))
        tiles = [self.whole(program, a, tag, over) for a in args]
        if mask := self.ok([family], lanes=False):
            zero = program.semiring.numbers_of(program.semiring.zero)
            tiles = [f"tl.where({mask}, {t}, {number(z)})" for t, z in zip(tiles, zero, strict=True)]
        if op is Op.FOLD:
            line = f"{', '.join(results)} = fold({', '.join(tiles)}, {self.axis(family)})"
        else:
            both = [f"{tag}{way.text}{name}" for way in (Op.BEFORE, Op.AFTER) for name in own]
            levels = padded(self.wide.sizes[family][1]).bit_length() - 1
            behind = [f for f in over if self.axis(f) > self.axis(family)]
            stride = math.prod(padded(self.wide.sizes[f][1]) for f in behind)
            line = f"{', '.join(both)} = around({', '.join(tiles)}, k{family}, {levels}, {stride})"
        if "    " * self.depth + line not in self.lines[self.begun :]:
            self(line)
        return results[component]

    @staticmethod
    def _few(program: Program | OperationCode, n: int) -> tuple[int, int] | None:
        """Return the arguments of a product of which the first has fewer numbers than the second: a constant factor
        costs less with that one."""
        op, args, _ = program.instructions[n]
        if op is not Op.MUL or not isinstance(program, Program):  # the code of ⊕ or ⊗ has no axes of its own
            return None
        few, many = sorted(args, key=lambda a: len(program.over[a]))
        return (few, many) if len(program.over[few]) < len(program.over[many]) else None

    def whole(self, program: Program, n: int, tag: str, over: Iterable[int]) -> str:
        """Return the value of an instruction as a full tile of lanes."""
        if program.instructions[n].op is Op.CONST:
            return f"tl.full({self.shape(over)}, {tag}v{n}, tl.float32)"
        return f"tl.broadcast_to({tag}v{n}, {self.shape(over)})"

    def text(self, name: str, arguments: str) -> str:
        """Return the text of the whole kernel. Offsets are 64 bits wide."""
        wide = [f"    {stride} = tl.cast({stride}, tl.int64)" for stride in STRIDES.findall(arguments)]
        return "\n".join([f"\n\n{_JIT}", f"def {name}({arguments}):", *wide, *self.lines]) + "\n"
