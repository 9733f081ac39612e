"""The autograd functions behind `rrnn.semirings.tensor_products`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rrnn.semirings.tensor_products import BLOCK

_SAFE = 1e-200  # below this a sum of scaled exponentials may have lost terms to underflow


class SelectiveProduct(torch.autograd.Function):
    """max or min over products. Winners are found in backward only: finding them costs twice a plain max."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor, ring: Any) -> Tensor:
        out = rows.new_empty(rows.shape[0], columns.shape[0])
        reduce = torch.amax if ring.maximum else torch.amin
        step = max(1, BLOCK // columns.numel())
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
        step = max(1, BLOCK // columns.numel())
        for block, g, into in zip(rows.split(step), grad.split(step), to_rows.split(step), strict=True):
            products = ring.t_times(block.unsqueeze(1), columns)
            winner = (products.max(-1) if ring.maximum else products.min(-1)).indices
            with torch.enable_grad():
                a = block.gather(1, winner).requires_grad_()
                b = columns.gather(1, winner.t()).t().detach().requires_grad_()
                to_block, to_matrix = torch.autograd.grad(ring.t_times(a, b), (a, b), g)
            into.scatter_add_(1, winner, to_block)
            to_columns.view(-1).index_add_(0, (winner + place).flatten(), to_matrix.flatten())
        return to_rows, to_columns, None


def scaled(columns: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return per matrix: exp(columns − top), top (the greatest of each column, 0 if none), which are not −∞."""
    top = columns.amax(-1, keepdim=True)
    top = top.where(top != -math.inf, top.new_zeros(()))
    powers = (columns - top).exp()
    alive = (columns != -math.inf).float()
    return list(zip(powers.unbind(0), top.squeeze(-1).unbind(0), alive.unbind(0), strict=True))


class LogProduct(torch.autograd.Function):
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


class SegmentSelect(torch.autograd.Function):
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
