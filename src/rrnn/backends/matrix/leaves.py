"""Views of what a separable step reads, by heads, and the evaluation of its factors with torch ops.

All values have the axes (…, groups, heads of a group, X): X is the index of a family, the unit of a head, or of size 1.
Heads of a group that share a value have an axis of size 1. No factor has an index and a unit, so values never grow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.backends.interface import CellCall
from rrnn.ir import Op, Program
from rrnn.ir.interpreter import interpret
from rrnn.ir.program import Extent, Families

Leaf = tuple[Op, int]
"""What a leaf reads: PREACT, PARAM or INPUT, and its index."""


def leaves_of(program: Program, values: Iterable[int]) -> dict[Leaf, int]:
    """Return the leaves that these values need, and their instructions."""
    found = {}
    for n in sorted(program.needed_for(values)):
        op, _, attr = program.instructions[n]
        if op in (Op.PREACT, Op.PARAM, Op.INPUT):
            found[op, int(attr or 0)] = n
    return found


def columns(wide: Families, extents: Iterable[Extent], units: int) -> list[slice]:
    """Return where the numbers of each extent lie in a flat row."""
    found, at = [], 0
    for extent in extents:
        stop = at + wide.numbers(extent, units)
        found.append(slice(at, stop))
        at = stop
    return found


def by_heads(wide: Families, extent: Extent, part: Tensor, units: int) -> Tensor:
    """Return the numbers of an extent (…, numbers) as a view (…, groups, heads of a group, X)."""
    groups, heads = wide.groups, wide.heads // wide.groups
    if extent.per == "unit":
        return part.unflatten(-1, (groups, heads, units // wide.heads))
    return part.unflatten(-1, (groups, heads if extent.per == "head" else 1, wide.indices(extent)))


def read(call: CellCall, leaves: Iterable[Leaf]) -> dict[Leaf, Tensor]:
    """Return views of the leaves: (T, B, …) of a step's own, (…) of parameters."""
    wide = call.program.wide
    assert wide is not None
    found = {}
    for op, index in leaves:
        if op is Op.INPUT:
            assert call.inp is not None
            found[op, index] = by_heads(wide, Extent(), call.inp, call.units)
            continue
        extents, flat = (wide.projections, call.x) if op is Op.PREACT else (wide.parameters, call.params[0])
        part = flat[..., columns(wide, extents, call.units)[index]]
        found[op, index] = by_heads(wide, extents[index], part, call.units)
    return found


def evaluate(
    program: Program, values: Iterable[int], known: Mapping[int, Tensor], like: Tensor
) -> dict[int, Tensor]:
    """Return the values of instructions, given those of the leaves, by torch ops; `like` has dtype and device."""

    def number(value: float) -> Tensor:
        return torch.full((1, 1, 1), value, dtype=like.dtype, device=like.device)

    found = dict(known)
    interpret(program.instructions, program.needed_for(values), found, TENSORS, number, _along)
    return found


def _along(op: Op, family: int, *values: Tensor) -> Tensor:
    """Run an op along a family: it is the last axis."""
    if op is Op.SUM:
        return values[0].sum(-1, keepdim=True)
    if op in (Op.MOST, Op.LEAST):
        return values[0].amax(-1, keepdim=True) if op is Op.MOST else values[0].amin(-1, keepdim=True)
    raise AssertionError(op)
