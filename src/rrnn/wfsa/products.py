"""Row vectors times a stack of matrices over a semiring, many small products at once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rrnn.semirings import Semiring
from rrnn.semirings.tensor_products import BLOCK


class Matrices:
    """A stack of matrices over one semiring, stored as columns: (S, targets, sources)."""

    def __init__(self, ring: Semiring, columns: Tensor) -> None:
        self.ring, self.columns = ring, columns
        self._split: tuple[Tensor, ...] | None = None
        self._prepared = ring.products.prepare(ring, columns)

    def times(self, rows: Tensor, groups: list[tuple[int, int]]) -> Tensor:
        """Return rows (n, sources) times matrix s, for each (s, how many) of the groups in turn: (n, targets)."""
        per_row = self.columns[0].numel()
        if rows.shape[0] * per_row < self.ring.products.gather * (len(groups) - 1):
            return self._each_its_own(rows, groups, per_row)
        if self._split is None:  # one node of the graph for all: slices would each bring back a whole stack
            self._split = self.columns.unbind(0)
        if len(groups) == 1:
            return self._product(rows, groups[0][0])
        blocks = rows.split([count for _, count in groups])
        return torch.cat([self._product(block, s) for block, (s, _) in zip(blocks, groups, strict=True)])

    def _product(self, rows: Tensor, s: int) -> Tensor:
        assert self._split is not None
        prepared = None if self._prepared is None else self._prepared[s]
        return self.ring.products.product(self.ring, rows, self._split[s], prepared)

    def _each_its_own(self, rows: Tensor, groups: list[tuple[int, int]], per_row: int) -> Tensor:
        """Many small groups: copy a matrix for every row and take all products at once."""
        symbols = symbol_of_each(groups)
        step = max(1, 8 * BLOCK // per_row)
        parts = []
        for block, which in zip(rows.split(step), symbols.split(step), strict=True):
            parts.append(self.ring.products.each(self.ring, block, self.columns.index_select(0, which)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def symbol_of_each(groups: list[tuple[int, int]]) -> Tensor:
    """Return the groups' symbols, one a row."""
    return torch.from_numpy(np.repeat(*np.array(groups, dtype=np.int64).T))


def segment_plus(ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
    """Return the ⊕ of the (m,) values of each segment: (size,), 0̄ where a segment is empty."""
    return ring.products.segments(ring, values, segment, size)
