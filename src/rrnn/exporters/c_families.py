"""The step of a cell with families of states as C: loops over tiles of units, in each over the indices of families.

A tile is a few units of one head, so that what they share is one number, and compilers turn the innermost loop over
units into vector code. A step is cut into stages: an instruction that reads a sum along a family comes a stage after
the loop that adds it up. Values over a family are not kept from one loop to the next but computed again; values
without one are kept in small arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rrnn.arithmetic import ALONG_FAMILY
from rrnn.errors import ExportError
from rrnn.exporters.c_text import expression, number
from rrnn.ir import Op, Program
from rrnn.ir.program import Extent, needed
from rrnn.ir.semiring_code import operation_code

LARGEST_TILE = 32
"""The number of units in a tile, at most: kept values take this many floats of the stack each."""

_FOLDS = {
    Op.SUM: ("0.0f", "{0} + {1}"),
    Op.LOGSUM: ("-INFINITY", "logaddexp_f({0}, {1})"),
    Op.MOST: ("-INFINITY", "max_f({0}, {1})"),
    Op.LEAST: ("INFINITY", "min_f({0}, {1})"),
}
"""Op along a family → (what it begins with, how it takes one more value)."""


class Memory(NamedTuple):
    """Where a step finds what it reads and writes, as C texts."""

    projection: Callable[[int], str]
    """The first number of a projection."""
    input: str
    """The layer's input at the cell's first unit."""
    constants: Mapping[int, tuple[str, int]]
    """Array of a value that depends on parameters alone, by instruction, and for how many sharers it has numbers."""
    state: str
    out: str


def family_step(program: Program, units: int, memory: Memory) -> list[str]:
    """Return the statements that compute one step of all units of a cell with families."""
    if any(i.op is Op.MOVE for i in program.flat.instructions):
        raise ExportError(
            f"in {program.name} each state of a family goes to each other by a weight of its own, which is not "
            "written as C: export the model to .onnx"
        )
    return _Step(program.flat, units, memory).lines()


def tile_size(units: int, heads: int) -> int:
    """Return the largest number of units up to `LARGEST_TILE` that divides the units of a head."""
    own = units // heads
    return max(size for size in range(1, min(own, LARGEST_TILE) + 1) if own % size == 0)


class _Step:
    def __init__(self, program: Program, units: int, memory: Memory) -> None:
        assert program.wide is not None
        self.program, self.units, self.memory, self.wide = program, units, memory, program.wide
        self.code, self.over = program.instructions, program.over
        self.tile = tile_size(units, program.wide.heads)
        self.results, self.outputs = program.of_kind("state"), program.of_kind("output")
        wanted = [*self.results.values(), *self.outputs.values()]
        # Constants and leaves are read where they are used.
        self.read = {n for n, i in enumerate(self.code) if n in memory.constants or i.op.leaf}
        self.needed = needed(self.code, wanted, stop=self.read)
        self.stage: dict[int, int] = {}
        for n in sorted(self.needed):
            args = () if n in self.read else self.code[n].args
            after = (self.stage[a] + (self._folded(a) and a not in self.read) for a in args)
            self.stage[n] = max(after, default=0)

    def _folded(self, n: int) -> bool:
        return self.code[n].op in ALONG_FAMILY

    def _inside(self, n: int) -> frozenset[int]:
        """Return the families of what a fold adds up."""
        return frozenset[int]().union(*(self.over[a] for a in self.code[n].args))

    def _own(self, n: int) -> int:
        """Return the first instruction that folds the same elements by the semiring's own ⊕: it names them."""
        size = self.program.semiring.size

        def elements(m: int) -> tuple[Op, tuple[int, ...], int]:
            op, args, attr = self.code[m]
            return op, args, int(attr or 0) // size if op is Op.FOLD else 0

        return next(m for m in range(len(self.code)) if elements(m) == elements(n))

    def lines(self) -> list[str]:
        body = list[str]()
        for stage in range(max(self.stage.values(), default=0) + 1):
            body += self._narrow(stage)
            body += self._wide(stage)
        last = self._end()
        arrays = sorted(n for n in self.kept)
        declared = list(dict.fromkeys(line for n in arrays for line in self._declared(n)))
        declared += [f"float new_{s}[{self._rows(self.results[s]) * self.tile}];" for s in self.moved]
        loop = [*declared, *body, *last]
        if not loop:
            return []
        return [
            f"for (int u = 0; u < {self.units}; u += {self.tile}) {{",
            *("    " + line for line in loop),
            "}",
        ]

    def _declared(self, n: int) -> list[str]:
        rows = self._rows(n) * self.tile
        if self.code[n].op is not Op.FOLD:
            return [f"float v{n}[{rows}];"]
        return [f"float s{self._own(n)}_{c}[{rows}];" for c in range(self.program.semiring.size)]

    # ---- what is kept ------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> set[int]:
        """The instructions whose values are kept in arrays: results of folds, and what has no family."""
        return {n for n in self.needed if n not in self.read and (self._folded(n) or not self.over[n])}

    @property
    def moved(self) -> list[int]:
        """The states whose new values wait in arrays of their own, since a later loop reads the old ones."""
        loops = self._loops()
        found = []
        for s, n in self.results.items():
            if not self.over[n]:
                continue
            here = loops.index((self.stage[n], self.over[n]))
            later = [m for key in loops[here + 1 :] for m in self._closure(self._targets(*key))]
            narrow = [m for m in self.needed if not self.over[m] and self.stage[m] > self.stage[n]]
            olds = {m for m, i in enumerate(self.code) if i.op is Op.STATE and int(i.attr or 0) == s}
            if olds & {*later, *(a for m in narrow if m not in self.read for a in self.code[m].args)}:
                found.append(s)
        return found

    def _rows(self, n: int) -> int:
        """Return for how many indices a value has numbers."""
        return self.wide.indices(Extent(tuple(sorted(self.over[n]))))

    # ---- loops -------------------------------------------------------------------------------------------------------

    def _loops(self) -> list[tuple[int, frozenset[int]]]:
        """Return (stage, families) of each loop over indices, in their order."""
        found = set()
        for n in self.needed:
            if self._folded(n) and n not in self.read:
                found.add((self.stage[n], self._inside(n)))
        found |= {(self.stage[n], self.over[n]) for n in self.results.values() if self.over[n]}
        return sorted((key for key in found if key[1]), key=lambda key: (key[0], sorted(key[1])))

    def _targets(self, stage: int, over: frozenset[int]) -> list[int]:
        """Return what one loop computes: folds, and new states."""
        folds = [
            n
            for n in sorted(self.needed)
            if self._folded(n) and n not in self.read and self.stage[n] == stage and self._inside(n) == over
        ]
        return folds + [n for n in self.results.values() if self.over[n] == over and self.stage[n] == stage]

    def _closure(self, targets: list[int]) -> set[int]:
        """Return the instructions that a loop computes or reads for its targets."""
        starts = [a for n in targets for a in (self.code[n].args if self._folded(n) else [n])]
        return needed(self.code, starts, stop=self.read | self.kept)

    def _wide(self, stage: int) -> list[str]:
        lines = list[str]()
        for key in self._loops():
            if key[0] == stage:
                lines += self._loop(*key)
        return lines

    def _loop(self, stage: int, over: frozenset[int]) -> list[str]:
        """Return the loop over all indices of some families."""
        targets = self._targets(stage, over)
        folds = [n for n in targets if self._folded(n)]
        own = list(dict.fromkeys(self._own(n) for n in folds if self.code[n].op is Op.FOLD))
        begins = [(f"v{n}", n, _FOLDS[self.code[n].op][0]) for n in folds if self.code[n].op is not Op.FOLD]
        zero = enumerate(self.program.semiring.numbers_of(self.program.semiring.zero))
        begins += [(f"s{n}_{c}", n, number(z)) for c, z in zero for n in own]
        lines = [
            f"for (int i = 0; i < {self._rows(n) * self.tile}; i++) {name}[i] = {first};"
            for name, n, first in begins
        ]
        inner, names = self._compute(self._closure(targets))
        for n in folds:
            if self.code[n].op is not Op.FOLD:
                value, place = names(self.code[n].args[0]), f"v{n}[{self._kept_index(n)}]"
                inner.append(f"{place} = {_FOLDS[self.code[n].op][1].format(place, value)};")
        for n in own:
            inner += self._join(n, [names(a) for a in self.code[n].args])
        for s, n in self.results.items():
            if n in targets:
                place = f"new_{s}[{self._kept_index(n)}]" if s in self.moved else self._state(s, n)
                inner.append(f"{place} = {names(n)};")
        return [*lines, *self._nest(over, inner)]

    def _join(self, n: int, values: list[str]) -> list[str]:
        """Return the statements that add an element to those so far, by the semiring's own ⊕."""
        code = operation_code(self.program.semiring, "plus")
        places = [f"s{n}_{c}[{self._kept_index(n)}]" for c in range(len(values))]
        lines, given = list[str](), [*places, *values]
        for k, (op, args, attr) in enumerate(code.instructions):
            if op is Op.CONST:
                text = number(float(attr or 0.0))
            else:
                text = given[int(attr or 0)] if op.leaf else expression(op, [f"p{n}_{a}" for a in args])
            lines.append(f"const float p{n}_{k} = {text};")
        return lines + [f"{place} = p{n}_{k};" for place, k in zip(places, code.results, strict=True)]

    def _nest(self, over: frozenset[int], inner: list[str]) -> list[str]:
        """Return statements inside loops over the indices of families, and over the units of the tile."""
        heads = [f"for (int a{f} = 0; a{f} < {self.wide.sizes[f][1]}; a{f}++)" for f in sorted(over)]
        return [
            " ".join([*heads, f"for (int i = 0; i < {self.tile}; i++) {{"]),
            *("    " + line for line in inner),
            "}",
        ]

    def _narrow(self, stage: int) -> list[str]:
        """Return the loop over units that computes the values of a stage without families."""
        own = [
            n
            for n in sorted(self.kept)
            if not self._folded(n) and not self.over[n] and self.stage[n] == stage
        ]
        if not own:
            return []
        inner = [f"v{n}[i] = {self._expression(n, self._read)};" for n in own]
        return self._nest(frozenset(), inner)

    def _end(self) -> list[str]:
        """Return what is written once all is computed: states that waited, states without families, outputs."""
        lines = list[str]()
        for s, n in self.results.items():
            if s in self.moved:
                lines += self._nest(self.over[n], [f"{self._state(s, n)} = new_{s}[{self._kept_index(n)}];"])
        inner = [
            f"{self._state(s, n)} = {self._read(n)};" for s, n in self.results.items() if not self.over[n]
        ]
        inner += [
            f"{self.memory.out}[{k * self.units} + u + i] = {self._read(n)};" for k, n in self.outputs.items()
        ]
        return [*lines, *(self._nest(frozenset(), inner) if inner else [])]

    def _compute(self, which: set[int]) -> tuple[list[str], Callable[[int], str]]:
        """Return the statements that compute values over families, and the names of these."""
        own = {n for n in which if n not in self.read and n not in self.kept}

        def name(n: int) -> str:
            return f"w{n}" if n in own else self._read(n)

        return [f"const float w{n} = {self._expression(n, name)};" for n in sorted(own)], name

    # ---- texts -------------------------------------------------------------------------------------------------------

    def _expression(self, n: int, name: Callable[[int], str]) -> str:
        op, args, _ = self.code[n]
        return expression(op, [name(a) for a in args])

    def _read(self, n: int) -> str:
        """Return the text of a leaf, of a constant array or of a kept value, in a loop over its families."""
        op, _, attr = self.code[n]
        index = int(attr or 0) if op is not Op.CONST else 0
        if n in self.memory.constants:
            array, sharers = self.memory.constants[n]
            return f"{array}[{self._place(self.over[n], sharers, unit_last=True)}]"
        if op is Op.CONST:
            return number(float(attr or 0.0))
        if op is Op.STATE:
            return self._state(index, n)
        if op is Op.INPUT:
            return f"{self.memory.input}[u + i]"
        if op is Op.PREACT:
            extent = self.wide.extent(op, index)
            place = self._place(
                self.over[n], self.wide.sharers(extent, self.units), unit_last=extent.per == "unit"
            )
            return f"({self.memory.projection(index)})[{place}]"
        name = f"s{self._own(n)}_{index % self.program.semiring.size}" if op is Op.FOLD else f"v{n}"
        return f"{name}[{self._kept_index(n)}]"

    def _index(self, over: frozenset[int]) -> str:
        """Return the number of an index among all of some families."""
        text = ""
        for f in sorted(over):
            text = f"({text}) * {self.wide.sizes[f][1]} + a{f}" if text else f"a{f}"
        return text

    def _kept_index(self, n: int) -> str:
        return f"({self._index(self.over[n])}) * {self.tile} + i" if self.over[n] else "i"

    def _place(self, over: frozenset[int], sharers: int, unit_last: bool) -> str:
        """Return the place of a unit's number: by index and then by unit, or the other way around."""
        own = "u + i" if sharers == self.units else "" if sharers == 1 else f"u / {self.units // sharers}"
        if not over:
            return own or "0"
        index = self._index(over)
        if not own:
            return index
        if unit_last:
            return f"({index}) * {sharers} + {own}"
        return f"({own}) * {self.wide.indices(Extent(tuple(sorted(over))))} + {index}"

    def _state(self, s: int, n: int) -> str:
        first = self.program.state_rows[s].start * self.units
        over = frozenset(self.wide.states[s].over)
        return f"{self.memory.state}[{first} + {self._place(over, self.units, unit_last=True)}]"
