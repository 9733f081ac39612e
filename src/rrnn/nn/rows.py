"""Which row of a layer's matrix, and so which column of its pre-activations, belongs to what.

For each cell its projections in the program's order, `units` rows each; then, only where they are needed, as many rows
as the layer has units for the projection that stands in for input(), for the projected input of a skip connection, and
for the highway gate. A projection with a window of K has further rows in the matrices `lagged.1` … `lagged.K-1`, which
hold only the projections that reach so far back, in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.ir import Lowered


class Rows(NamedTuple):
    """`cell` is the cell's place in the layer, −1 for the layer's own rows: "input", "skip", "gate"."""

    cell: int
    name: str
    start: int
    stop: int
    window: int = 1


def rows_of(cells: Sequence[Lowered], widths: Sequence[int], extra: Sequence[str]) -> tuple[Rows, ...]:
    rows, start = [], 0
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        for projection in cell.projections:
            rows.append(Rows(i, projection.name, start, start + width, projection.window))
            start += width
    for name in extra:
        rows.append(Rows(-1, name, start, start + sum(widths)))
        start += sum(widths)
    return tuple(rows)


def count(rows: Sequence[Rows]) -> int:
    return sum(r.stop - r.start for r in rows)


def add_columns(y: Tensor, z: Tensor, rows: Sequence[Rows]) -> Tensor:
    """y, with the columns of z added in the place of these rows."""
    if z.shape[-1] == y.shape[-1]:
        return y + z
    parts, end, taken = [], 0, 0
    for r in rows:
        width = r.stop - r.start
        parts += [y[..., end : r.start], y[..., r.start : r.stop] + z[..., taken : taken + width]]
        end, taken = r.stop, taken + width
    return torch.cat([*parts, y[..., end:]], -1)
