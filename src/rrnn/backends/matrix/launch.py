"""Launch the kernels of the matrix schedule: tile sizes for a call and a GPU, and the calls themselves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rrnn.backends.matrix import kernels as _kernels
from rrnn.backends.matrix.factors import FactorGradients, Factors, Tiles, padded

kernels: Any = _kernels  # (type checkers do not know how Triton's kernels are launched)


def precision(dtype: torch.dtype) -> tuple[Any, str]:
    """Return the dtype of products and how float32 ones are computed. float16 lacks the range of states, so it goes
    through TF32, whose mantissa is as long."""
    import triton.language as tl

    if dtype == torch.bfloat16:
        return tl.bfloat16, "ieee"
    if dtype == torch.float16 or torch.backends.cuda.matmul.allow_tf32:
        return tl.float32, "tf32"
    return tl.float32, "ieee"


def _strides(t: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0) if t is None else t.stride()[:3]


def _sizes(f: Factors) -> tuple[int, int, int, int, int, int]:
    """Return T, B, H, N, U and how many heads share keys and queries."""
    steps, batch, heads, units = f.v.shape
    return steps, batch, heads, f.k.shape[3], units, heads // f.k.shape[2]


def _masked(f: Factors) -> tuple[Tensor, tuple[int, ...]]:
    return (f.v, (0, 0)) if f.mask is None else (f.mask.view(torch.uint8), f.mask.stride()[:2])


def _enter(f: Factors, x: Tensor, y: Tensor, tiles: Tiles, reverse: bool, scale: float = 1.0) -> Tensor:
    """Return what each chunk adds to the state, (chunks, N, B, H·U)."""
    T, B, H, N, U, shared = _sizes(f)
    chunks = -(-T // tiles.chunk)
    S = f.v.new_empty((chunks, N, B, H * U), dtype=torch.float32)
    BN, BU = min(tiles.states, padded(N)), min(tiles.units, padded(U))
    grid = (chunks, B * H, -(-N // BN) * -(-U // BU))
    bits, strides = _masked(f)
    dot, how = precision(f.v.dtype)
    kernels.chunk_states[grid](
        x, y, f.v if f.G is None else f.G, S, bits,
        *_strides(x), *_strides(y), *_strides(f.G), *strides, T, B, H, N, U, shared,
        scale, C=tiles.chunk, BN=BN, BU=BU, DECAY=f.decay, MASKED=f.mask is not None, REVERSE=reverse, DOT=dot,
        PRECISION=how, num_warps=tiles.state_warps,
    )  # fmt: skip
    return S


def _join(f: Factors, S: Tensor, first: Tensor | None, tiles: Tiles, reverse: bool) -> Tensor:
    """Run the states from chunk to chunk, in place; return the last one, (N, B, H·U)."""
    T, B, H, N, U, _ = _sizes(f)
    end = S.new_empty(S.shape[1:])
    BN, BU, warps, stages = tiles.join
    BU = min(BU, padded(U))
    kernels.join[B * H, -(-N // BN), -(-U // BU)](
        S, first, end, f.v if f.G is None else f.G, *_strides(f.G), T, B, H, N, U, S.shape[0],
        C=tiles.chunk, BN=BN, BU=BU, DECAY=f.decay, REVERSE=reverse, STAGES=stages, num_warps=warps,
    )  # fmt: skip
    return end


def forward(
    f: Factors, first: Tensor | None, o: Tensor, tiles: Tiles, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Write the outputs into o (T, B, H, U); return the final state (N, B, H·U) and the states before each chunk."""
    T, B, H, N, U, shared = _sizes(f)
    S = _enter(f, f.k, f.v, tiles, False)
    end = _join(f, S, first, tiles, False)
    BN, BU = min(tiles.states, padded(N)), min(tiles.units, padded(U))
    bits, strides = _masked(f)
    dot, how = precision(f.v.dtype)
    kernels.outputs[S.shape[0], B * H](
        f.q, f.k, f.v, f.v if f.G is None else f.G, S, o, bits,
        *_strides(f.q), *_strides(f.k), *_strides(f.v), *_strides(f.G), *_strides(o), *strides, T, B, H, N, U, shared,
        scale, C=tiles.chunk, BN=BN, BU=BU, NN=-(-N // BN), NU=-(-U // BU), DECAY=f.decay, MILD=tiles.mild,
        MASKED=f.mask is not None, DOT=dot, PRECISION=how, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return end, S


def backward(
    f: Factors,
    S: Tensor,
    go: Tensor,
    gend: Tensor | None,
    tiles: Tiles,
    into: FactorGradients,
    scale: float = 1.0,
) -> Tensor:
    """Write the gradients of the factors into `into`; return that of the first state."""
    T, B, H, N, U, shared = _sizes(f)
    gS = _enter(f, f.q, go, tiles, True, scale)
    gfirst = _join(f, gS, gend, tiles, True)
    BN, BU = min(tiles.states, padded(N)), min(tiles.units, padded(U))
    bits, strides = _masked(f)
    dot, how = precision(f.v.dtype)
    G, dG = (f.v, f.v) if f.G is None or into.G is None else (f.G, into.G)
    kernels.gradients[S.shape[0], B * H](
        f.q, f.k, f.v, G, S, go, gS, into.q, into.k, into.v, dG, bits,
        *_strides(f.q), *_strides(f.k), *_strides(f.v), *_strides(f.G), *_strides(go),
        *_strides(into.q), *_strides(into.k), *_strides(into.v), *strides, T, B, H, N, U, shared,
        scale, C=tiles.chunk, BN=BN, BU=BU, NN=-(-N // BN), NU=-(-U // BU), DECAY=f.decay, MILD=tiles.mild,
        MASKED=f.mask is not None, DOT=dot, PRECISION=how, num_warps=tiles.gradient_warps, num_stages=tiles.stages,
    )  # fmt: skip
    return gfirst
