"""The families of a program: their sizes, the extents of what it reads, and the indices on which values depend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from rrnn.arithmetic import ALONG_FAMILY, Op

if TYPE_CHECKING:
    from rrnn.ir.program import Instruction


class Extent(NamedTuple):
    """Which numbers a projection, parameter or state is: one for each index of the families `over`, and for each unit,
    head or group."""

    over: tuple[int, ...] = ()
    per: str = "unit"


class Families(NamedTuple):
    """The families of a program, and the extents of what it reads, in the order of its names."""

    sizes: tuple[tuple[str, int], ...]  # (name, number of states)
    projections: tuple[Extent, ...] = ()
    parameters: tuple[Extent, ...] = ()
    states: tuple[Extent, ...] = ()
    heads: int = 1
    groups: int = 1
    units: tuple[Extent, ...] = ()  # of an epilogue: the per-unit values whose gradients it reads

    def indices(self, extent: Extent) -> int:
        """Return for how many indices an extent has numbers."""
        return math.prod(self.sizes[f][1] for f in extent.over)

    def sharers(self, extent: Extent, units: int) -> int:
        """Return for how many units, heads or groups an extent has numbers."""
        return {"unit": units, "head": self.heads, "group": self.groups}[extent.per]

    def numbers(self, extent: Extent, units: int) -> int:
        """Return how many numbers an extent is."""
        return self.indices(extent) * self.sharers(extent, units)

    def places(self, extent: Extent, units: int, unit: int) -> dict[str, int]:
        """Return which numbers of an extent a unit reads: the end of a name ("_3" for index 3; "" without a family) →
        the place among all numbers."""
        count, sharers = self.indices(extent), self.sharers(extent, units)
        own = unit * sharers // units
        if not extent.over:
            return {"": own}
        stride, step = (1, sharers) if extent.per == "unit" else (count, 1)
        return {end: own * stride + i * step for i, end in enumerate(self.ends(extent))}

    def ends(self, extent: Extent) -> list[str]:
        """Return how the names of an extent's numbers end without families: "_3" for index 3, "_2_3" for a pair."""
        indices = product(*(range(self.sizes[f][1]) for f in extent.over))
        return ["".join(f"_{i}" for i in some) for some in indices]

    def extent(self, op: Op, index: int) -> Extent:
        """Return the extent of what a leaf reads."""
        if op is Op.PREACT:
            return self.projections[index]
        if op is Op.PARAM:
            return self.parameters[index]
        if op is Op.GRAD_UNIT:
            return self.units[index]
        return self.states[index] if op in (Op.STATE, Op.GRAD_STATE) else Extent()

    def own_values(self, instructions: Iterable[Instruction]) -> set[int]:
        """Return the instructions whose values may differ between the units of a head: what a unit has for itself, and
        what is computed from it."""
        found: set[int] = set()
        for n, (op, args, attr) in enumerate(instructions):
            leaf = op.leaf and op is not Op.CONST and self.extent(op, int(attr or 0)).per == "unit"
            if leaf or any(a in found for a in args):
                found.add(n)
        return found


def families_read(
    instruction: Instruction, over: Sequence[frozenset[int]], wide: Families | None
) -> frozenset[int]:
    """Return the families on whose index an instruction's value depends; `over` are those of earlier ones."""
    op, args, attr = instruction
    if wide is None or op is Op.CONST:
        return _NONE
    if op.leaf:
        return frozenset(wide.extent(op, int(attr or 0)).over)
    inside = _NONE.union(*(over[a] for a in args))
    if op is Op.MOVE:
        before, after = divmod(int(attr or 0), len(wide.sizes))
        return inside - {before} | {after}
    if op in (Op.FIRST, Op.BEFORE, Op.AFTER) or op not in ALONG_FAMILY:
        return inside
    return inside - {int(attr or 0) // len(args) if op is Op.FOLD else attr}


_NONE: frozenset[int] = frozenset()
