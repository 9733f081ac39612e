"""Row vectors times matrices over a semiring, at the speed of the machine, and ⊕ by segment.

The plain form is `Semiring.t_matmul`, which writes out every product before it sums. Here max and min go
through blocks that stay in cache, and log through one real matrix product. Their backward passes are written
by hand for the same reason; they keep the library's two rules: of tied maxima the first gets the gradient,
and 0̄ gets none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rrnn.semirings import Semiring

_BLOCK = 1 << 17  # elements of a block of products: about 1 MB, which stays in the second-level cache
_GATHER = 8000  # elements copied and multiplied in the time it takes to start one more small product, …
_GATHER_REAL = 3000  # … and over the reals, where that is a bare matrix product
_SAFE = 1e-200  # below this a sum of scaled exponentials may have lost terms to underflow


class Matrices:
    """A stack of matrices over one semiring, stored as columns: (S, targets, sources)."""

    def __init__(self, ring: Semiring, columns: Tensor) -> None:
        self.ring, self.columns = ring, columns
        self._split: tuple[Tensor, ...] | None = None
        self._scaled: list[tuple[Tensor, Tensor, Tensor]] | None = None
        if ring.name == "log":
            self._scaled = _scaled(columns.detach())

    def times(self, rows: Tensor, groups: list[tuple[int, int]]) -> Tensor:
        """rows (n, sources) times matrix s, for each (s, how many) of the groups in turn: (n, targets)."""
        per_row = self.columns.shape[1] * self.columns.shape[2]
        gather = _GATHER_REAL if self.ring.name == "real" else _GATHER
        if rows.shape[0] * per_row < gather * (len(groups) - 1):
            return self._each_its_own(rows, groups, per_row)
        if self._split is None:  # one node of the graph for all: slices would each bring back a whole stack
            self._split = self.columns.unbind(0)
        if len(groups) == 1:
            return self._product(rows, groups[0][0])
        blocks = rows.split([count for _, count in groups])
        return torch.cat([self._product(block, s) for block, (s, _) in zip(blocks, groups, strict=True)])

    def _product(self, rows: Tensor, s: int) -> Tensor:
        assert self._split is not None
        columns = self._split[s]
        if self.ring.name == "real":
            return rows @ columns.t()
        if self._scaled is not None:
            return _LogProduct.apply(rows, columns, *self._scaled[s])  # pyright: ignore[reportReturnType]
        if self.ring.laws.selective and self.ring.laws.has_gradient:
            return _SelectiveProduct.apply(rows, columns, self.ring)  # pyright: ignore[reportReturnType]
        return self.ring.t_matmul(rows, columns.t())

    def _each_its_own(self, rows: Tensor, groups: list[tuple[int, int]], per_row: int) -> Tensor:
        """Many small groups: copy a matrix for every row and take all products at once."""
        symbols = symbol_of_each(groups)
        step = max(1, 8 * _BLOCK // per_row)
        parts = []
        for block, which in zip(rows.split(step), symbols.split(step), strict=True):
            columns = self.columns.index_select(0, which)
            if self.ring.name == "real":
                parts.append(torch.bmm(columns, block.unsqueeze(-1)).squeeze(-1))
            else:
                parts.append(self.ring.t_sum(self.ring.t_times(block.unsqueeze(1), columns), -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def symbol_of_each(groups: list[tuple[int, int]]) -> Tensor:
    """The groups' symbols, one a row."""
    return torch.from_numpy(np.repeat(*np.array(groups, dtype=np.int64).T))


class _SelectiveProduct(torch.autograd.Function):
    """max or min over products. Winners are found in backward only: finding them costs twice a plain max."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor, ring: Any) -> Tensor:
        out = rows.new_empty(rows.shape[0], columns.shape[0])
        reduce = torch.amax if ring.maximum else torch.amin
        step = max(1, _BLOCK // columns.numel())
        for block, result in zip(rows.split(step), out.split(step), strict=True):
            reduce(ring.t_times(block.unsqueeze(1), columns), -1, out=result)
        ctx.save_for_backward(rows, columns, out)
        ctx.ring = ring
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, columns, out = ctx.saved_tensors
        ring = ctx.ring
        if math.isinf(ring.zero):
            grad = grad.where(out != ring.zero, grad.new_zeros(()))
        to_rows, to_columns = torch.zeros_like(rows), torch.zeros_like(columns)
        targets, sources = columns.shape
        place = torch.arange(targets) * sources
        step = max(1, _BLOCK // columns.numel())
        for block, g, into in zip(rows.split(step), grad.split(step), to_rows.split(step), strict=True):
            products = ring.t_times(block.unsqueeze(1), columns)
            winner = (products.max(-1) if ring.maximum else products.min(-1)).indices
            to_block, to_matrix = g, g
            if ring.one == 1.0:  # max-times: the derivative of a product is the other factor
                to_block = g * columns.gather(1, winner.t()).t()
                to_matrix = g * block.gather(1, winner)
            into.scatter_add_(1, winner, to_block)
            to_columns.view(-1).index_add_(0, (winner + place).flatten(), to_matrix.flatten())
        return to_rows, to_columns, None


def _scaled(columns: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Per matrix: exp(columns − top), top (the greatest of each column, 0 if none), which are not −∞."""
    top = columns.amax(-1, keepdim=True)
    top = top.where(top != -math.inf, top.new_zeros(()))
    powers = (columns - top).exp()
    alive = (columns != -math.inf).float()
    return list(zip(powers.unbind(0), top.squeeze(-1).unbind(0), alive.unbind(0), strict=True))


class _LogProduct(torch.autograd.Function):
    """log of a product of exponentials, each row and column scaled by its greatest entry.

    Where the greatest of a row and of a column do not meet, every term of a sum may underflow: such sums
    (below `_SAFE`, though some path is there) are taken again term by term, so that the result is always the
    stable one.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, columns: Tensor, powers: Tensor, top: Tensor, alive: Tensor
    ) -> Tensor:
        peak = rows.amax(1, keepdim=True)
        peak = peak.where(peak != -math.inf, peak.new_zeros(()))
        row_powers = (rows - peak).exp_()
        sums = row_powers @ powers.t()
        out = sums.log() + peak + top
        lost: Tensor | None = None
        if sums.numel() and float(sums.min()) < _SAFE:
            possible = ((rows != -math.inf).float() @ alive.t()) > 0
            where = ((sums < _SAFE) & possible).nonzero()
            if where.numel():
                lost = where
                terms = rows[where[:, 0]] + columns[where[:, 1]]
                out[where[:, 0], where[:, 1]] = terms.logsumexp(-1)
        ctx.save_for_backward(rows, columns, powers, row_powers, sums, out)
        ctx.lost = lost
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, columns, powers, row_powers, sums, out = ctx.saved_tensors
        share = (grad / sums).where(sums >= _SAFE, grad.new_zeros(()))
        to_rows = (share @ powers).mul_(row_powers)
        to_columns = (share.t() @ row_powers).mul_(powers)
        # Sums that are small but were not lost lie in [0, _SAFE) only when they are 0: nothing to pass on.
        if ctx.lost is not None:
            i, j = ctx.lost.unbind(1)
            part = (rows[i] + columns[j] - out[i, j].unsqueeze(1)).exp() * grad[i, j].unsqueeze(1)
            to_rows.index_add_(0, i, part)
            to_columns.index_add_(0, j, part)
        return to_rows, to_columns, None, None, None


# ---- ⊕ by segment ------------------------------------------------------------------------------------------


def segment_plus(ring: Semiring, values: Tensor, segment: Tensor, size: int) -> Tensor:
    """⊕ of the (m,) values of each segment: (size,), 0̄ where a segment is empty."""
    if ring.name == "log":
        return _segment_log(values, segment, size)
    if ring.laws.selective and ring.laws.has_gradient:
        return _SegmentSelect.apply(values, segment, size, ring)  # pyright: ignore[reportReturnType]
    total = values.new_zeros(size).index_add(0, segment, values)
    return total.clamp_max(1) if ring.name == "boolean" else total


def _segment_log(values: Tensor, segment: Tensor, size: int) -> Tensor:
    peak = values.new_full((size,), -math.inf).scatter_reduce(0, segment, values.detach(), "amax")
    dead = peak == -math.inf
    peak = peak.where(~dead, peak.new_zeros(()))
    alive = values != -math.inf
    gap = values.where(alive, values.new_zeros(())) - peak[segment]
    terms = gap.where(alive, values.new_zeros(())).exp() * alive
    total = values.new_zeros(size).index_add(0, segment, terms)
    logs = total.where(~dead, total.new_ones(())).log() + peak
    return logs.where(~dead, logs.new_full((), -math.inf))


class _SegmentSelect(torch.autograd.Function):
    """max or min of each segment; its first winner gets the gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, segment: Tensor, size: int, ring: Any) -> Tensor:
        empty = values.new_full((size,), ring.zero)
        out = empty.scatter_reduce(0, segment, values, "amax" if ring.maximum else "amin")
        ctx.save_for_backward(values, segment, out)
        ctx.zero = ring.zero
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        values, segment, out = ctx.saved_tensors
        if math.isinf(ctx.zero):
            grad = grad.where(out != ctx.zero, grad.new_zeros(()))
        order = torch.arange(values.numel())
        wins = values == out[segment]
        first = order.new_full(out.shape, values.numel())
        first = first.scatter_reduce(0, segment[wins], order[wins], "amin")
        is_first = wins & (first[segment] == order)
        return grad[segment].where(is_first, grad.new_zeros(())), None, None, None
