"""The matrix schedule with torch's matrix products: what `kernels` computes on a GPU, on any device and in any dtype.

Tensors have chunks before the steps of a chunk: (chunks, B, H, C, N). The last chunk of a sequence is filled up with
steps that neither read nor write. Packed sequences share one column of chunks, B = 1, in the order of saved states.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from rrnn.backends.matrix.factors import MILD, FactorGradients, Factors, segments_of


class _Chunks:
    """The factors of all chunks."""

    def __init__(self, f: Factors, chunk: int) -> None:
        self.chunk, self.steps, self.heads = chunk, f.v.shape[0], f.v.shape[2]
        self.dtype = torch.float64 if f.v.dtype == torch.float64 else torch.float32
        self.mask, self.i = f.mask, torch.arange(chunk, device=f.v.device)
        self.table, self.places = None, None
        if f.sequences is not None:
            self.table, self.places = segments_of(f.sequences, self.steps, chunk)
        self.q, self.k, self.v = (self.cut(t) for t in (f.q, f.k, f.v))
        self.vector = f.g is not None and f.g.dim() == 4
        # Steps that fill up a chunk have decays of 1, so they repeat the last sum. Sums have 64 bits, since decays err
        # by what the sums are rounded by.
        g = None if f.g is None else self.cut(f.g if self.vector else f.g.unsqueeze(-1))
        self.G = None if g is None else g.cumsum(-2, dtype=torch.float64)
        self.end = None if self.G is None else self.G[..., -1:, :]
        self.apart = self.i[:, None] ^ self.i[None, :]
        self.lower = self.i[:, None] > self.i[None, :]

    def cut(self, t: Tensor) -> Tensor:
        """Return t (T, B, H, X) as (chunks, B, H, C, X), with zeros for padded steps."""
        t = t.to(self.dtype)
        if self.mask is not None:
            t = torch.where(self.mask[:, :, None, None], t, 0.0)
        if self.table is not None:
            at = self.table[:, :1] + self.i
            there = (at < self.table[:, 1:2])[:, :, None, None, None]
            t = torch.where(there, t[at.clamp(max=self.steps - 1)], 0.0)
        else:
            if missing := -self.steps % self.chunk:
                t = torch.cat([t, t.new_zeros(missing, *t.shape[1:])])
            t = t.unflatten(0, (-1, self.chunk))
        if t.shape[3] != self.heads:
            t = t.repeat_interleave(self.heads // t.shape[3], 3)
        return t.permute(0, 2, 3, 1, 4).contiguous()

    def join(self, t: Tensor) -> Tensor:
        """Return (chunks, B, H, C, X) as (T, B, H, X)."""
        t = t.permute(0, 3, 1, 2, 4)
        if self.table is None or self.places is None:
            return t.flatten(0, 1)[: self.steps]
        step = torch.arange(self.steps, device=t.device)
        begin = self.table[self.places[:, 0], 0]  # of each sequence
        owner = torch.searchsorted(begin, step, right=True) - 1
        within = step - begin[owner]
        return t[self.places[owner, 0] + within // self.chunk, within % self.chunk]

    def exp(self, gap: Tensor) -> Tensor:
        """Return the exponential of differences of sums."""
        return gap.to(self.dtype).exp()

    def to_end(self) -> Tensor | float:
        """Return the decays from each step to the end of its chunk."""
        if self.G is None or self.end is None:
            return 1.0
        if self.mild:
            return self.around_middle[1] * self.exp(self.end - self.middle)
        return self.exp(self.end - self.G)

    def from_start(self) -> Tensor | float:
        """Return the decays from the start of a chunk to each step."""
        if self.G is None:
            return 1.0
        return self.around_middle[0] * self.exp(self.middle) if self.mild else self.exp(self.G)

    @cached_property
    def mild(self) -> bool:
        """Whether decays belong to states, and none from or to the middle of a chunk could overflow."""
        if not self.vector or self.G is None or self.G.is_meta:
            return False
        low, high = self.G.aminmax() if self.G.numel() else (self.G.sum(), self.G.sum())
        return bool(torch.maximum(-low, high) < MILD)

    @property
    def middle(self) -> Tensor:
        """The sums at the middle of each chunk."""
        assert self.G is not None
        return self.G[..., self.chunk // 2 - 1, None, :]

    @cached_property
    def around_middle(self) -> tuple[Tensor, Tensor]:
        """The decays from the middle of a chunk to each step, and the other way round."""
        assert self.G is not None
        gap = (self.G - self.middle).to(self.dtype)
        return gap.exp(), gap.neg().exp()

    def levels(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return for each level which steps are in right halves, decays from or to the boundary, and pairs."""
        assert self.G is not None
        found = []
        for level in range(self.chunk.bit_length() - 1):
            right = ((self.i >> level) & 1 == 1)[:, None]
            before = ((self.i >> (level + 1)) << (level + 1)) + (1 << level) - 1
            gap = self.G - self.G[..., before, :]
            found.append((right, self.exp(torch.where(right, gap, -gap)), self.apart >> level == 1))
        return found

    def pairs(self) -> Tensor:
        """Return Σ q_t k_s exp(G_t − G_s) for s ≤ t, else 0."""
        q, k = self.q, self.k
        if self.G is None:
            a = q @ k.mT
        elif not self.vector:
            a = (q @ k.mT) * self.decays
        elif self.mild:
            up, down = self.around_middle
            a = (q * up) @ (k * down).mT
        else:
            a = torch.diag_embed((q * k).sum(-1))
            for right, e, pairs in self.levels():
                x = torch.where(right, q, k) * e
                a += torch.where(pairs, x @ x.mT, 0.0)
        return a.tril()

    @cached_property
    def decays(self) -> Tensor:
        """exp(G_t − G_s) for s ≤ t of a decay per head, else 0."""
        assert self.G is not None
        gap = self.G - self.G.mT
        return self.exp(torch.where(self.lower | (self.apart == 0), gap, -torch.inf))

    @property
    def onward(self) -> Tensor:
        """A matrix whose product with rows gives the sums from each to the last."""
        return (self.i[:, None] <= self.i[None, :]).to(self.dtype)

    def gradient_of_sums(self, pairs: Tensor, queries: Tensor, keys: Tensor, kept: Tensor) -> Tensor:
        """Return the gradient of a head's log-decays (T, B, H) from what each pair of steps s < t, each query with what
        was there before the chunk, each key with what comes after it, and both of these contribute to the loss. A step
        gets what passes through it; there are no differences, so nothing cancels."""
        before = self.lower.to(self.dtype)
        through = (
            (self.onward @ pairs).tril(-1).sum(-1, keepdim=True)
        )  # from all s before t, to all from t on
        through += self.onward @ queries[..., None] + before @ keys[..., None] + kept[..., None]
        return self.join(through).squeeze(-1)

    def run(self, local: Tensor, first: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
        """Return the states before each chunk (reverse: gradients after each) and the last one of each sequence."""
        decay = None if self.end is None else self.exp(self.end).mT
        states, after = torch.empty_like(local), torch.empty_like(local)
        order = range(local.shape[0])
        starts = owners = last = None
        if self.table is not None and self.places is not None:
            starts, last = self.places[:, 0], torch.maximum(self.places[:, 0], self.places[:, 1] - 1)
            starts, last = (last, starts) if reverse else (starts, last)
            owners = self.table[:, 2]
        if first is None:
            first = local.new_zeros((1 if starts is not None else local.shape[1], *local.shape[2:]))
        z = first = first.to(self.dtype)
        for c in reversed(order) if reverse else order:
            if starts is not None and owners is not None:
                own = owners[c : c + 1]
                z = torch.where(starts[own] == c, first[own] if first.shape[0] > 1 else first, z[:1])
            states[c] = z
            after[c] = z = (z if decay is None else z * decay[c]) + local[c]
        return states, z if last is None else after[last].squeeze(1)


def _rows(z: Tensor) -> Tensor:
    """Return states (…, B, H, N, U) as (…, N, B, H·U)."""
    return z.movedim(-2, -4).flatten(-2)


def _matrices(rows: Tensor, heads: int) -> Tensor:
    """Return states (…, N, B, H·U) as (…, B, H, N, U)."""
    return rows.unflatten(-1, (heads, -1)).movedim(-4, -2)


def forward(f: Factors, first: Tensor | None, o: Tensor, chunk: int, scale: float) -> tuple[Tensor, Tensor]:
    """Write the outputs into o (T, B, H, U); return the final state (N, n, H·U) and the states before each chunk."""
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
) -> tuple[Tensor, Tensor | None]:
    """Write the gradients of queries, keys and values into `into`; return those of the first state and of log-decays,
    from the states before each chunk."""
    c = _Chunks(f, chunk)
    q, k, v, g = c.q, c.k, c.v, c.cut(go * scale)
    states = _matrices(saved, c.heads).to(c.dtype)
    up, down = c.from_start(), c.to_end()
    last = None if gend is None else _matrices(gend, c.heads)
    after, first = c.run((q * up).mT @ g, last, True)
    a, da = c.pairs(), (g @ v.mT).tril()
    into.v.copy_(c.join(a.mT @ g + (k * down) @ after))
    rq, rk = (g @ states.mT) * up, (v @ after.mT) * down
    dg = None
    if c.G is None or c.end is None:
        rq, rk = rq + da @ k, rk + da.mT @ q
    else:
        kept = c.exp(c.end) * (states * after).sum(-1).unsqueeze(-2)
        same = torch.diagonal(da, dim1=-2, dim2=-1).unsqueeze(-1)
        da = da.tril(-1)
        if not c.vector:
            dg = c.gradient_of_sums(a * da, (q * rq).sum(-1), (k * rk).sum(-1), kept.sum(-1))
            da = da * c.decays
            rq, rk = rq + da @ k, rk + da.mT @ q
        else:
            kept += (k * rk).sum(-2, keepdim=True)
            if c.mild:
                up, down = c.around_middle
                rq, rk = rq + (da @ (k * down)) * up, rk + (da.mT @ (q * up)) * down
            else:
                both = da + da.mT
                for right, e, pairs in c.levels():
                    r = (torch.where(pairs, both, 0.0) @ (torch.where(right, q, k) * e)) * e
                    rq, rk = rq + torch.where(right, r, 0.0), rk + torch.where(right, 0.0, r)
            dG = q * rq - k * rk
            dG[..., -1:, :] += kept
            dg = c.join(c.onward @ dG)
        rq, rk = rq + same * k, rk + same * q
    into.q.copy_(c.join(rq))
    into.k.copy_(c.join(rk))
    return _rows(first).contiguous(), dg
