"""Where the numbers of families, heads and groups lie in tensors, for programs of families.

Such a program reads one flat row of pre-activations a step, x (T, B, C), and one flat row of parameters, (1, P). In
both, one projection or parameter follows another: with an extent per unit (indices, D), so that units are side by
side; per head or group (heads, indices). A family of states is as many rows of the state (S, B, D).

Here values have one axis for each family, of size 1 if they do not depend on its index: (…, family 0, …, D).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from rrnn.arithmetic import TENSORS
from rrnn.ir import Op, Program
from rrnn.ir.program import Extent, Families
from rrnn.ir.semiring_code import fold_elements
from rrnn.semirings import Semiring


def spread(wide: Families, extents: Sequence[Extent], flat: Tensor, units: int) -> list[Tensor]:
    """Return the values (…, families, D) of the extents that a flat row (…, C) holds one after another; what units
    share is repeated."""
    parts = flat.split([wide.numbers(e, units) for e in extents], -1)
    return [_spread(wide, e, part, units) for e, part in zip(extents, parts, strict=True)]


def by_index(program: Program, table: str, place: int, flat: Tensor, units: int) -> dict[str, Tensor]:
    """Return a projection's or parameter's numbers, (…, C), by name: (…, units) for each index of its family."""
    name, wide = getattr(program, table)[place], program.wide
    if wide is None:
        return {name: flat}
    extent = getattr(wide, table)[place]
    (value,) = spread(wide, [extent], flat, units)
    sizes = [wide.sizes[f][1] for f in sorted(extent.over)]
    value = _ordered(value.reshape(*flat.shape[:-1], *sizes, units), extent.over, back=True)
    value = value.reshape(*flat.shape[:-1], wide.indices(extent), units)
    return {name + end: value[..., i, :] for i, end in enumerate(wide.ends(extent))}


def _spread(wide: Families, extent: Extent, part: Tensor, units: int) -> Tensor:
    sizes = [wide.sizes[f][1] for f in extent.over]
    sharers = wide.sharers(extent, units)
    if extent.per == "unit":
        value = part.unflatten(-1, (*sizes, units))
    else:
        value = part.unflatten(-1, (sharers, *sizes)).movedim(-1 - len(sizes), -1)
        value = value.unsqueeze(-1).expand(*value.shape, units // sharers).flatten(-2)
    value = _ordered(value, extent.over, back=False)
    return value.reshape(*part.shape[:-1], *_axes(wide, extent.over), units)


def _ordered(value: Tensor, over: Sequence[int], back: bool) -> Tensor:
    """Return values (…, indices of an extent, D) with their families in ascending order, or `back` in the extent's."""
    if list(over) == sorted(over):
        return value
    leading, count = value.dim() - 1 - len(over), len(over)
    ascending = sorted(range(count), key=lambda k: over[k])
    order = sorted(range(count), key=lambda k: ascending[k]) if back else ascending
    return value.permute(*range(leading), *(leading + k for k in order), value.dim() - 1)


def gather(wide: Families, extents: Sequence[Extent], values: Sequence[Tensor], units: int) -> Tensor:
    """Return the flat row (…, C) of values (…, families, D): the reverse of `spread`, and its gradient. What units
    share is the sum over them."""
    parts = [_gather(wide, e, value, units) for e, value in zip(extents, values, strict=True)]
    return torch.cat(parts, -1)


def _gather(wide: Families, extent: Extent, value: Tensor, units: int) -> Tensor:
    sizes = [wide.sizes[f][1] for f in extent.over]
    leading = value.shape[: -1 - len(wide.sizes)]
    ascending = [wide.sizes[f][1] for f in sorted(extent.over)]
    value = value.expand(*leading, *_axes(wide, extent.over), units).reshape(*leading, *ascending, units)
    value = _ordered(value, extent.over, back=True)
    if extent.per != "unit":
        sharers = wide.sharers(extent, units)
        value = value.unflatten(-1, (sharers, units // sharers)).sum(-1).movedim(-1, -1 - len(sizes))
    return value.flatten(len(leading))


def _axes(wide: Families, over: Iterable[int]) -> list[int]:
    """Return the sizes of the families' axes: 1 for those on whose index a value does not depend."""
    return [size if f in over else 1 for f, (_, size) in enumerate(wide.sizes)]


def split_states(program: Program, state: Tensor) -> list[Tensor]:
    """Return each state's value (…, B, families, D) from the rows (…, S, B, D) of all; without families (…, B, D)."""
    wide = program.wide
    if wide is None:
        return list(state.unbind(-3))
    found = []
    for extent, rows in zip(wide.states, program.state_rows, strict=True):
        own = state[..., rows, :, :].movedim(-3, -2)  # (…, B, indices, D)
        found.append(own.reshape(*own.shape[:-2], *_axes(wide, extent.over), own.shape[-1]))
    return found


def join_states(program: Program, values: Sequence[Tensor], like: Tensor) -> Tensor:
    """Return the rows of all states, the reverse of `split_states`; `like` has their shape."""
    wide = program.wide
    if not values:
        return like
    if wide is None:
        return torch.stack(list(values), -3)
    rows = []
    for extent, value in zip(wide.states, values, strict=True):
        leading = value.shape[: -1 - len(wide.sizes)]
        whole = value.expand(*leading, *_axes(wide, extent.over), value.shape[-1])
        rows.append(whole.reshape(*leading, wide.indices(extent), value.shape[-1]).movedim(-2, -3))
    return torch.cat(rows, -3)


def along(program: Program) -> Callable[..., Tensor]:
    """Return the function that runs an op along a family on tensors (…, families, D)."""
    count = 0 if program.wide is None else len(program.wide.sizes)

    def run(op: Op, family: int, *values: Tensor) -> Tensor:
        dim = family - count - 1  # not of `move`, nor of a semiring's own folds
        match op:
            case Op.SUM:
                return values[0].sum(dim, keepdim=True)
            case Op.LOGSUM:
                return _logsum(values[0], dim)
            case Op.MOST | Op.LEAST:
                return _chosen(values[0], dim, op is Op.MOST)
            case Op.FOLD | Op.BEFORE | Op.AFTER:
                return _folded(program.semiring, op, family, values, count)
            case Op.MOVE:
                before, after = divmod(family, count)
                return values[0].transpose(before - count - 1, after - count - 1)
        equal = (values[0] == values[1]) & values[1].isfinite()
        first = equal & (equal.cumsum(dim) == 1)
        return first.to(values[0].dtype)

    return run


def _logsum(a: Tensor, dim: int) -> Tensor:
    """Return log Σ exp, with a gradient of zero where all are −∞ (torch's own is NaN)."""
    most = a.detach().amax(dim, keepdim=True)
    dead = most == -math.inf
    safe = torch.where(dead, 0.0, most)
    total = torch.where(a == -math.inf, 0.0, torch.where(a == -math.inf, safe, a).sub(safe).exp())
    total = total.sum(dim, keepdim=True)
    return torch.where(dead, -math.inf, torch.where(dead, 1.0, total).log() + safe)


def _chosen(a: Tensor, dim: int, most: bool) -> Tensor:
    """Return the largest or smallest along an axis. In a tie the first index gets the gradient, an infinity none."""
    place = (a if most else -a).argmax(dim, keepdim=True)
    best = a.gather(dim, place)
    return torch.where(best.isinf(), best.detach(), best)


def _folded(ring: Semiring, op: Op, attr: int, parts: Sequence[Tensor], count: int) -> Tensor:
    """Return a component of the ⊕ over all indices of a family, or over those before or after each."""
    family, component = divmod(attr, len(parts))
    dim = family - count - 1
    columns = zip(*(part.split(1, dim) for part in torch.broadcast_tensors(*parts)), strict=True)
    elements = [ring.element(column) for column in columns]
    zero = ring.element(
        torch.full_like(elements[0][0] if ring.components else elements[0], z)
        for z in ring.numbers_of(ring.zero)
    )
    found = fold_elements(ring, TENSORS, op, elements, zero)
    return torch.cat([ring.numbers_of(element)[component] for element in found], dim)
