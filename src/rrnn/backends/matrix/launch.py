"""Launch the kernels of the matrix schedule."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rrnn.backends.matrix import decay_kernels as _decay_kernels
from rrnn.backends.matrix import gradient_kernels as _gradient_kernels
from rrnn.backends.matrix import kernels as _kernels
from rrnn.backends.matrix.factors import (
    HARSH,
    SCALAR,
    VECTOR,
    FactorGradients,
    Factors,
    StepGradients,
    Tiles,
    Walk,
    full_precision,
    new_steps,
    padded,
    segments_of,
    sums_dtype,
)

kernels: Any = _kernels  # (type checkers do not know how Triton's kernels are launched)
decay_kernels: Any = _decay_kernels
gradient_kernels: Any = _gradient_kernels


def precision(dtype: torch.dtype) -> tuple[Any, str]:
    """Return the dtype of products and how float32 ones are computed. float16 lacks the range of states, so it goes
    through TF32, whose mantissa is as long."""
    import triton.language as tl

    if dtype == torch.bfloat16:
        return tl.bfloat16, "ieee"
    return tl.float32, "ieee" if full_precision(dtype) else "tf32"


def _strides(t: Tensor | None, count: int = 3) -> tuple[int, ...]:
    return (0,) * count if t is None else t.stride()[:count]


def unit_of(*tensors: Tensor) -> int:
    """Return the power of two, at most 8, that divides the strides of all rows, columns and heads; 1 if 16 does, which
    Triton sees by itself."""
    every = math.gcd(*(stride for t in tensors for stride in _strides(t)))
    return 1 if every % 16 == 0 else math.gcd(every, 8)


class Sizes(NamedTuple):
    """T, B, H, N, U, and how many heads share keys and queries."""

    T: int
    B: int
    H: int
    N: int
    U: int
    shared: int


class Launch:
    """The kernels of one call: its factors, running sums of log-decays, segments and sizes."""

    def __init__(self, f: Factors, tiles: Tiles) -> None:
        self.f, self.tiles = f, tiles
        T, B, H, U = f.v.shape
        self.sizes = Sizes(T, B, H, f.k.shape[3], U, H // f.k.shape[2])
        self.mask = None if f.mask is None else f.mask.view(torch.uint8)
        self.table = self.joins = None
        if f.sequences is None:
            self.segments = -(-self.sizes.T // tiles.segment)
        else:
            self.table, self.joins = segments_of(f.sequences, self.sizes.T, tiles.segment)
            self.segments = self.table.shape[0]
        self.whole = f.sequences is None and self.segments == 1  # segments are sequences: nothing to join
        self.G, self.harsh = f.g, f.harsh
        if f.g is not None and not f.summed:
            self.G, self.harsh = self._running_sums(f.g)
        self.weights, self.skips = f.weights, f.skips
        for rows in (f.weights, f.skips):
            assert rows is None or (f.decay == SCALAR and rows.stride() == _strides(self.G))

    @cached_property
    def chunk_table(self) -> Tensor | None:
        """The table of packed sequences' chunks, as `segments_of` returns that of segments; None for others."""
        packed = self.f.sequences
        return None if packed is None else segments_of(packed, self.sizes.T, self.tiles.chunk)[0]

    @property
    def chunks(self) -> int:
        """The number of places for chunks."""
        T, C = self.sizes.T, self.tiles.chunk
        return -(-T // C) if self.f.sequences is None else T // C + self.f.columns

    def _running_sums(self, g: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the running sums of log-decays from the start of each chunk, (T, B, H, N) or (T, B, H), and which
        segments are harsh."""
        T, B, H, N, _, _ = self.sizes
        N, C = (N if g.dim() == 4 else 1), self.tiles.chunk
        if g.dim() == 4 and g.stride(3) != 1:
            g = g.contiguous()
        G, BN = new_steps(g, T, B, H, N, sums_dtype(self.f.v.dtype)), min(64, 1 << (N - 1).bit_length())
        harsh = g.new_zeros((self.segments, B, H), dtype=torch.int32) if g.dim() == 4 else None
        G = G if g.dim() == 4 else G.squeeze(-1)
        decay_kernels.running_sums[self.chunks * B * H, -(-N // BN)](
            g,
            G,
            harsh,
            self.chunk_table,
            *_strides(g),
            *_strides(G),
            T,
            B,
            H,
            N,
            self.tiles.segment,
            C=C,
            BN=BN,
            MILD=self.tiles.mild,
            num_warps=4,
        )
        return G, harsh

    def decay_gradients(self, w: Tensor) -> Tensor:
        """Return the gradients of log-decays, (T, B, H, N) or (T, B, H), from their parts."""
        T, B, H, N, _, _ = self.sizes
        N, C = (N if w.dim() == 5 else 1), self.tiles.chunk
        dg, BN = w.new_empty(w.shape[1:]), min(64, 1 << (N - 1).bit_length())
        decay_kernels.decay_gradients[self.chunks * B * H, -(-N // BN)](
            w,
            dg,
            self.chunk_table,
            *_strides(w, 4),
            *_strides(dg),
            T,
            B,
            H,
            N,
            PARTS=w.shape[0],
            SUM=self.f.parts_of_decay,
            C=C,
            BN=BN,
            num_warps=4,
        )
        return dg

    def grid(self, programs: int) -> tuple[int, int]:
        """Return the grid of so many programs for each segment of each column and head."""
        return self.segments * self.sizes.B * self.sizes.H, programs

    @property
    def ways(self) -> tuple[int, ...]:
        """The decays for which kernels are launched: twice for decays per state, for mild and for harsh segments."""
        return (VECTOR, HARSH) if self.f.decay == VECTOR else (self.f.decay,)

    def constants(self, walk: Walk, decay: int, *tensors: Tensor) -> dict[str, Any]:
        """Return a kernel's sizes, and what is known of the tensors whose rows it reads and writes. Few segments are
        harsh, so their loads need no stages."""
        dot, how = precision(self.f.v.dtype)
        found = {
            "C": self.tiles.chunk,
            "BN": walk.states,
            "BU": walk.units,
            "DECAY": decay,
            "UNIT": unit_of(*tensors),
            "DOT": dot,
            "P": how,
        }
        found |= {"STAGES": 1 if decay == HARSH else walk.stages, "num_warps": walk.warps}
        return found | {"maxnreg": walk.registers} if walk.registers else found

    def join(
        self, x: Tensor, y: Tensor, first: Tensor | None, reverse: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Return the states before each segment, (segments, N, B, H·U), and the last one, (N, n, H·U); in reverse, the
        gradients of states after each segment from queries and gradients of outputs."""
        T, B, H, N, U, shared = self.sizes
        S = x.new_empty((self.segments, N, B, H * U), dtype=torch.float32)
        E = None if self.G is None else S.new_empty((self.segments, B, H, N))
        n, walk, weights = self.f.columns, self.tiles.enter, None if reverse else self.weights
        kernels.segment_states[self.grid(-(-N // walk.states) * -(-U // walk.units))](
            x, y, self.G, weights, S, E, self.mask, self.table,
            *_strides(x), *_strides(y), *_strides(self.G), *_strides(self.mask, 2),
            T, B, H, N, U, shared, scale, self.tiles.segment, REVERSE=reverse,
            **self.constants(walk, self.f.decay, x, y),
        )  # fmt: skip
        end = S.new_empty((N, n, H * U))
        BN, BU, warps, stages = self.tiles.join
        BU = min(BU, padded(U))
        kernels.join[n * H, -(-N // BN), -(-U // BU)](
            S, first, end, E, self.joins, n, H, N, U, self.segments,
            BN=BN, BU=BU, DECAY=self.f.decay, REVERSE=reverse, STAGES=stages, num_warps=warps,
        )  # fmt: skip
        return S, end


def forward(
    f: Factors, first: Tensor | None, o: Tensor, tiles: Tiles, scale: float = 1.0
) -> tuple[Tensor, Tensor | None]:
    """Write the outputs into o (T, B, H, U); return the final state (N, n, H·U) and the states before each segment,
    None if there is one segment that begins with zeros."""
    own = Launch(f, tiles)
    T, B, H, N, U, shared = own.sizes
    S, end, written = first, None, None
    if own.whole:
        end = written = f.v.new_empty((N, B, H * U), dtype=torch.float32)
    else:
        S, end = own.join(f.k, f.v, first, False, 1.0)
    for decay in own.ways:
        kernels.outputs[own.grid(-(-U // tiles.outputs.units))](
            f.q, f.k, f.v, own.G, own.weights, own.skips, S, written, o, own.mask, own.table, own.harsh,
            *_strides(f.q), *_strides(f.k), *_strides(f.v), *_strides(own.G), *_strides(o), *_strides(own.mask, 2),
            T, B, H, N, U, shared, scale, tiles.segment, **own.constants(tiles.outputs, decay, f.q, f.k, f.v, o),
        )  # fmt: skip
    return end, S.unsqueeze(0) if own.whole and S is not None else S


def backward(
    f: Factors,
    S: Tensor | None,
    first: Tensor | None,
    go: Tensor,
    gend: Tensor | None,
    tiles: Tiles,
    into: FactorGradients,
    scale: float = 1.0,
    learns: bool = True,
) -> tuple[Tensor, StepGradients]:
    """Write the gradients of queries, keys and values into `into`; return those of the first state and of what each
    step has. S: the states before each segment; if None, they are computed again from `first`. Unless it
    `learns` them, there are no gradients of log-decays."""
    own = Launch(f, tiles)
    T, B, H, N, U, shared = own.sizes
    if S is None:
        S = first if own.whole else own.join(f.k, f.v, first, False, 1.0)[0]
    gS, written = gend, None
    if own.whole:
        gfirst = written = f.v.new_empty((N, B, H * U), dtype=torch.float32)
    else:
        gS, gfirst = own.join(f.q, go, gend, True, scale)
    blocks, of_keys = -(-N // tiles.queries.states), -(-N // tiles.keys.states)
    wide, full = f.decay == VECTOR, torch.float32
    w = Z = None
    if f.g is not None and learns:  # parts of queries, then those of keys
        w = f.v.new_empty((2, T, B, H, N) if wide else (blocks + of_keys, B, H, T), dtype=full)
        w = w if wide else w.permute(0, 3, 1, 2)
        stored = torch.bfloat16 if f.v.dtype == torch.bfloat16 else full
        Z = f.v.new_empty((own.chunks, B, H, N, U), dtype=stored)  # the states before each chunk
    dweights, dskips = (
        None if t is None else t.new_empty((parts, B, H, T)).permute(0, 3, 1, 2)
        for t, parts in ((f.weights, -(-U // (tiles.values or tiles.keys).units)), (f.skips, 1))
    )
    steps = _strides(w, 4) if wide else (B * H * T, 1, H * T, T)
    strides = _strides(f.q), _strides(f.k), _strides(f.v), _strides(own.G), _strides(go)
    rest = *steps, *_strides(own.mask, 2), T, B, H, N, U, shared, scale, tiles.segment
    flat = [s for each in strides for s in each]
    for decay in own.ways:
        gradient_kernels.query_gradients[own.grid(blocks)](
            f.q, f.k, f.v, own.G, own.weights, S, go, into.q, w, Z, own.mask, own.table, own.harsh, *flat,
            *_strides(into.q), *rest, **own.constants(tiles.queries, decay, f.q, f.k, f.v, go, into.q),
        )  # fmt: skip
    second = None if w is None else w[1 if wide else blocks :]
    roles = [
        (tiles.keys, True, tiles.values is None),
        *([] if tiles.values is None else [(tiles.values, False, True)]),
    ]
    for walk, keys, values in roles:
        for decay in own.ways:
            programs = -(-N // walk.states) * -(-U // walk.units)
            gradient_kernels.key_gradients[own.grid(programs)](
                f.q, f.k, f.v, own.G, own.weights, own.skips, gS, go, into.k, into.v, second,
                dweights if values else None, dskips if keys else None, Z, written if keys else None,
                own.mask, own.table, own.harsh, *flat, *_strides(into.k), *_strides(into.v), *rest, KEYS=keys,
                VALUES=values, **own.constants(walk, decay, f.q, f.k, f.v, go, into.k, into.v),
            )  # fmt: skip
    if w is not None and not f.summed:
        w = own.decay_gradients(w)
    return gfirst, StepGradients(w, dweights, dskips)
