"""The matrix schedule with torch's matrix products: what `kernels` computes on a GPU, on any device and in any dtype.

Tensors have chunks before the steps of a chunk: (chunks, B, H, C, N). The last chunk is filled up with steps that
neither read nor write.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.backends.matrix.factors import MILD, FactorGradients, Factors


def chunk_sums(g: Tensor, chunk: int, reverse: bool = False) -> Tensor:
    """Return the running sums of g (T, …) from the start of each chunk, or from its end."""
    steps = g.shape[0]
    full = F.pad(g, (0, 0) * (g.dim() - 1) + (0, -steps % chunk)).unflatten(0, (-1, chunk))
    sums = full.flip(1).cumsum(1).flip(1) if reverse else full.cumsum(1)
    return sums.flatten(0, 1)[:steps]


class _Chunks:
    """The factors of all chunks."""

    def __init__(self, f: Factors, chunk: int) -> None:
        self.chunk, self.steps, self.heads = chunk, f.v.shape[0], f.v.shape[2]
        self.dtype = torch.float64 if f.v.dtype == torch.float64 else torch.float32
        self.mask = f.mask
        self.q, self.k, self.v = (self.cut(t) for t in (f.q, f.k, f.v))
        self.G = None if f.G is None else self.cut(f.G if f.G.dim() == 4 else f.G.unsqueeze(-1), last=True)
        self.vector = f.G is not None and f.G.dim() == 4
        self.end = None if self.G is None else self.G[..., -1:, :]
        i = torch.arange(chunk, device=f.v.device)
        self.apart = i[:, None] ^ i[None, :]
        self.lower = i[:, None] > i[None, :]
        self.index = i

    def cut(self, t: Tensor, last: bool = False) -> Tensor:
        """Return t (T, B, H, X) as (chunks, B, H, C, X), without padded steps; `last` repeats the last step of all."""
        t = t.to(self.dtype)
        if self.mask is not None and not last:
            t = torch.where(self.mask[:, :, None, None], t, 0.0)
        if missing := -self.steps % self.chunk:
            more = t[-1:].expand(missing, *t.shape[1:]) if last else t.new_zeros(missing, *t.shape[1:])
            t = torch.cat([t, more])
        if t.shape[2] != self.heads:
            t = t.repeat_interleave(self.heads // t.shape[2], 2)
        return t.unflatten(0, (-1, self.chunk)).permute(0, 2, 3, 1, 4).contiguous()

    def join(self, t: Tensor) -> Tensor:
        """Return (chunks, B, H, C, X) as (T, B, H, X)."""
        return t.permute(0, 3, 1, 2, 4).flatten(0, 1)[: self.steps]

    def to_end(self) -> Tensor | float:
        """Return the decays from each step to the end of its chunk."""
        return 1.0 if self.G is None or self.end is None else (self.end - self.G).exp()

    def from_start(self) -> Tensor | float:
        return 1.0 if self.G is None else self.G.exp()

    def mild(self) -> bool:
        """Return whether no chunk forgets so much that a decay from or to its middle could overflow."""
        assert self.G is not None
        return bool(self.G.abs().amax() < MILD) if self.G.numel() else True

    def around_middle(self) -> tuple[Tensor, Tensor]:
        assert self.G is not None
        middle = self.G[..., self.chunk // 2 - 1, None, :]
        return (self.G - middle).exp(), (middle - self.G).exp()

    def levels(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return for each level which steps are in right halves, decays from or to the boundary, and pairs."""
        assert self.G is not None
        found = []
        for level in range(self.chunk.bit_length() - 1):
            right = ((self.index >> level) & 1 == 1)[:, None]
            before = ((self.index >> (level + 1)) << (level + 1)) + (1 << level) - 1
            gap = self.G - self.G[..., before, :]
            found.append((right, torch.where(right, gap, -gap).exp(), self.apart >> level == 1))
        return found

    def pairs(self) -> Tensor:
        """Return Σ q_t k_s exp(G_t − G_s) for s ≤ t, else 0."""
        q, k = self.q, self.k
        if self.G is None:
            a = q @ k.mT
        elif not self.vector:
            a = (q @ k.mT) * self.decays()
        elif self.mild():
            up, down = self.around_middle()
            a = (q * up) @ (k * down).mT
        else:
            a = torch.diag_embed((q * k).sum(-1))
            for right, e, pairs in self.levels():
                x = torch.where(right, q, k) * e
                a += torch.where(pairs, x @ x.mT, 0.0)
        return a.tril()

    def decays(self) -> Tensor:
        """Return exp(G_t − G_s) for s ≤ t of a decay per head, else 0."""
        assert self.G is not None
        gap = self.G - self.G.mT
        return torch.where(self.lower | (self.apart == 0), gap, -torch.inf).exp()

    def run(self, local: Tensor, first: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
        """Return the states before each chunk (reverse: gradients after each) and the last one."""
        z = torch.zeros_like(local[0]) if first is None else first.to(self.dtype)
        decay = None if self.end is None else self.end.exp().mT
        order, states = range(local.shape[0]), torch.empty_like(local)
        for c in reversed(order) if reverse else order:
            states[c] = z
            z = (z if decay is None else z * decay[c]) + local[c]
        return states, z


def _rows(z: Tensor) -> Tensor:
    """Return states (…, B, H, N, U) as (…, N, B, H·U)."""
    return z.movedim(-2, -4).flatten(-2)


def _matrices(rows: Tensor, heads: int) -> Tensor:
    """Return states (…, N, B, H·U) as (…, B, H, N, U)."""
    return rows.unflatten(-1, (heads, -1)).movedim(-4, -2)


def forward(f: Factors, first: Tensor | None, o: Tensor, chunk: int, scale: float) -> tuple[Tensor, Tensor]:
    """Write the outputs into o (T, B, H, U); return the final state (N, B, H·U) and the states before each chunk."""
    c = _Chunks(f, chunk)
    states, end = c.run(
        (c.k * c.to_end()).mT @ c.v, None if first is None else _matrices(first, c.heads), False
    )
    out = c.pairs() @ c.v
    out += (c.q * c.from_start()) @ states
    o.copy_(c.join(out).mul_(scale))
    return _rows(end).contiguous(), _rows(states)


def backward(
    f: Factors,
    saved: Tensor,
    go: Tensor,
    gend: Tensor | None,
    into: FactorGradients,
    chunk: int,
    scale: float,
) -> Tensor:
    """Write the gradients of the factors into `into`; return that of the first state."""
    c = _Chunks(f, chunk)
    q, k, v, g = c.q, c.k, c.v, c.cut(go * scale)
    states = _matrices(saved, c.heads).to(c.dtype)
    up, down = c.from_start(), c.to_end()
    last = None if gend is None else _matrices(gend, c.heads)
    after, first = c.run((q * up).mT @ g, last, True)
    into.v.copy_(c.join(c.pairs().mT @ g + (k * down) @ after))
    da = (g @ v.mT).tril()
    rq, rk = (g @ states.mT) * up, (v @ after.mT) * down
    if c.G is None or c.end is None or into.G is None:
        rq, rk = rq + da @ k, rk + da.mT @ q
    else:
        kept = c.end.exp() * (states * after).sum(-1).unsqueeze(-2) + (k * rk).sum(-2, keepdim=True)
        same = torch.diagonal(da, dim1=-2, dim2=-1).unsqueeze(-1)
        da = da.tril(-1)
        if not c.vector:
            da = da * c.decays()
            rq, rk = rq + da @ k, rk + da.mT @ q
        elif c.mild():
            up, down = c.around_middle()
            rq, rk = rq + (da @ (k * down)) * up, rk + (da.mT @ (q * up)) * down
        else:
            both = da + da.mT
            for right, e, pairs in c.levels():
                r = (torch.where(pairs, both, 0.0) @ (torch.where(right, q, k) * e)) * e
                rq, rk = rq + torch.where(right, r, 0.0), rk + torch.where(right, 0.0, r)
        dg = c.join(q * rq - k * rk)
        ends = torch.arange(1, c.G.shape[0] + 1, device=dg.device).mul(chunk).clamp(max=c.steps) - 1
        dg[ends] += kept.squeeze(-2)
        into.G.copy_(dg if c.vector else dg.sum(-1))
        rq, rk = rq + same * k, rk + same * q
    into.q.copy_(c.join(rq))
    into.k.copy_(c.join(rk))
    return _rows(first).contiguous()
