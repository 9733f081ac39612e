"""Which rows of a layer's matrices, and so which columns of its pre-activations, belong to which projection.

`weight` holds for each cell its projections in the program's order, `units` rows each; then, only where they are
needed, as many rows as the layer has units for the projection that stands in for input(), and as many as it has
outputs for the projected input of a skip connection and for the highway gate. A projection with a window of K has
further rows in the matrices `lagged.1` … `lagged.K-1`, which hold only the projections that reach so far back, in the
same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    lagged: tuple[int, ...] = ()
    """Its first row in `lagged.1`, `lagged.2`, …, as far back as its window reaches."""

    @property
    def window(self) -> int:
        return 1 + len(self.lagged)

    def of_lag(self, k: int) -> slice:
        """Return its rows in the matrix of lag k: `weight` for 0, `lagged.k` otherwise."""
        start = self.lagged[k - 1] if k else self.start
        return slice(start, start + self.stop - self.start)


def rows_of(cells: Sequence[Lowered], widths: Sequence[int], extra: Mapping[str, int]) -> tuple[Rows, ...]:
    """Lay out the projections of all cells, then the layer's own, `extra`: name → rows."""
    wanted = [
        (i, projection.name, width, projection.window)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        for projection in cell.projections
    ]
    wanted += [(-1, name, size, 1) for name, size in extra.items()]
    ends = [0] * max((window for *_, window in wanted), default=1)  # of each matrix, so far
    rows = []
    for cell, name, width, window in wanted:
        start, *lagged = ends[:window]
        rows.append(Rows(cell, name, start, start + width, tuple(lagged)))
        ends[:window] = [end + width for end in ends[:window]]
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


@dataclass(frozen=True, eq=False)
class Projection:
    """The weights of one projection, W₀ x_t + W₁ x_{t−1} + … + b. They are the layer's own parameters: what you write
    into them in place (`with torch.no_grad()`), the layer computes with."""

    rows: Rows
    matrices: tuple[Tensor, ...]
    """`weight`, `lagged.1`, …: the whole matrices, which this projection shares with others."""
    bias: Tensor | None
    """(units,); None for a projection without one."""

    @property
    def window(self) -> int:
        """How many inputs it sees: the present one and window − 1 earlier ones."""
        return self.rows.window

    def weight(self, lag: int = 0) -> Tensor:
        """Return W_lag (units, inputs), a view of the layer's matrix."""
        return self.matrices[lag][self.rows.of_lag(lag)]
