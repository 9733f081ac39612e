"""Cut heads of more states or units than a tile holds into blocks, and run the kernels on each.

A state is a matrix (N × U), and the recurrence acts on each of its numbers alone, so any block of rows and columns is a
recurrence by itself: it reads the queries, keys and decays of its states and the values of its units. Outputs and
gradients of values are sums over blocks of states, the other gradients sums over blocks of units, in a fixed order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.backends.matrix import launch
from rrnn.backends.matrix.factors import FactorGradients, Factors, StepGradients, Tiles


class _Sum:
    """A tensor (…, X) and the sums of parts that replace its columns: one part is written in place, several are added
    in float32 first."""

    def __init__(self, target: Tensor, parts: int) -> None:
        self.target, self.parts = target, parts
        self.totals: dict[tuple[int, int], Tensor] = {}

    def place(self, at: slice) -> Tensor:
        """Return where to write the next part of these columns."""
        own = self.target[..., at]
        return own if self.parts == 1 else torch.empty_like(own, dtype=torch.float32)

    def add(self, at: slice, part: Tensor) -> None:
        """Add a part that was written."""
        if self.parts > 1:
            key = at.start, at.stop
            self.totals[key] = self.totals[key].add_(part) if key in self.totals else part

    def finish(self) -> None:
        for (start, stop), total in self.totals.items():
            self.target[..., start:stop].copy_(total)


class _Blocks:
    """The blocks of a call: which states and units each has."""

    def __init__(self, f: Factors, block: tuple[int, int]) -> None:
        self.f, self.heads = f, f.v.shape[2]
        self.states, self.units = (
            [slice(i, min(i + size, count)) for i in range(0, count, size)]
            for size, count in zip(block, (f.k.shape[3], f.v.shape[3]), strict=True)
        )
        self.each = [(rows, columns) for columns in self.units for rows in self.states]

    def factors(self, rows: slice, columns: slice) -> Factors:
        f = self.f
        g = f.g if f.g is None or f.g.dim() == 3 else f.g[..., rows]
        return f._replace(q=f.q[..., rows], k=f.k[..., rows], v=f.v[..., columns], g=g)

    def matrices(self, z: Tensor) -> Tensor:
        """Return states (…, N, n, H·U) as (…, N, n, H, U)."""
        return z.unflatten(-1, (self.heads, -1))

    def cut(self, z: Tensor | None, rows: slice, columns: slice) -> Tensor | None:
        """Return a block of states (…, N, n, H·U)."""
        return None if z is None else self.matrices(z)[..., rows, :, :, columns].flatten(-2).contiguous()

    def put(self, whole: Tensor | None, rows: slice, columns: slice, block: Tensor | None) -> Tensor | None:
        """Write a block into states (…, N, n, H·U), which are made for the first one; return these."""
        if block is None:
            return None
        if whole is None:
            lead, n = block.shape[:-3], block.shape[-2]
            whole = block.new_empty((*lead, self.f.k.shape[3], n, self.heads * self.f.v.shape[3]))
        self.matrices(whole)[..., rows, :, :, columns] = self.matrices(block)
        return whole


def forward(
    f: Factors, first: Tensor | None, o: Tensor, tiles: Tiles, scale: float
) -> tuple[Tensor, Tensor | None]:
    """Do what `launch.forward` does, block by block if `tiles` says so."""
    if tiles.block is None:
        return launch.forward(f, first, o, tiles, scale)
    cut = _Blocks(f, tiles.block)
    out, end, states = _Sum(o, len(cut.states)), None, None
    for rows, columns in cut.each:
        part = out.place(columns)
        own = launch.forward(cut.factors(rows, columns), cut.cut(first, rows, columns), part, tiles, scale)
        out.add(columns, part)
        end, states = cut.put(end, rows, columns, own[0]), cut.put(states, rows, columns, own[1])
    out.finish()
    assert end is not None
    return end, states


def backward(
    f: Factors,
    S: Tensor | None,
    first: Tensor | None,
    go: Tensor,
    gend: Tensor | None,
    tiles: Tiles,
    into: FactorGradients,
    scale: float,
    learns: bool = True,
) -> tuple[Tensor, StepGradients]:
    """Do what `launch.backward` does, block by block if `tiles` says so."""
    if tiles.block is None:
        return launch.backward(f, S, first, go, gend, tiles, into, scale, learns)
    assert f.weights is None and f.skips is None, "they come with whole heads only"
    cut = _Blocks(f, tiles.block)
    dq, dk = (_Sum(t, len(cut.units)) for t in (into.q, into.k))
    dv, gfirst, dg = _Sum(into.v, len(cut.states)), None, None
    for rows, columns in cut.each:
        part = FactorGradients(dq.place(rows), dk.place(rows), dv.place(columns))
        own, before, begin, end = (
            cut.factors(rows, columns),
            *(cut.cut(z, rows, columns) for z in (S, first, gend)),
        )
        own_first, (own_dg, *_) = launch.backward(
            own, before, begin, go[..., columns], end, tiles, part, scale, learns
        )
        for total, at, value in ((dq, rows, part.q), (dk, rows, part.k), (dv, columns, part.v)):
            total.add(at, value)
        gfirst = cut.put(gfirst, rows, columns, own_first)
        if own_dg is not None and f.summed:  # in parts
            own_dg = own_dg.sum(0, keepdim=True)
        if own_dg is not None and f.g is not None and f.g.dim() == 3:  # of a decay per head
            dg = own_dg if dg is None else dg + own_dg
        elif own_dg is not None:
            dg = own_dg.new_zeros((*own_dg.shape[:-1], f.k.shape[3])) if dg is None else dg
            dg[..., rows] += own_dg
    for total in (dq, dk, dv):
        total.finish()
    assert gfirst is not None
    return gfirst, StepGradients(dg)
