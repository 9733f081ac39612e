"""Choose whether the matrix schedule pays, and its tile sizes, by a small rule on sizes, dtype and the device."""

from __future__ import annotations

import torch

from rrnn.backends.matrix.factors import Tiles, padded
from rrnn.ir.separable import SIGN, Separable

LEAST_STATES = 16
"""Fewer states do not fill a tile of the tensor cores."""
CPU_STATES = 16
"""From so many states on, torch's products are faster than compiled loops on a CPU."""
LARGE, SMALL = 64 << 10, 24 << 10
"""Bytes of shared memory that tiles of 64 × 64 and of 32 × 32 numbers are sure to fit."""


def pays(parts: Separable, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether the matrix schedule is expected to be faster than the scalar one, and as exact. (A decay that is a
    bare parameter has a gradient at 0, which its logarithm has not.)"""
    if SIGN in parts.factors.of_kind("factor") and not parts.turns:
        return False
    return parts.size >= (LEAST_STATES if device.type == "cuda" else CPU_STATES)


def tiles_of(states: int, units: int, decay: str, dtype: torch.dtype, shared: int) -> Tiles:
    """Return the tile sizes for so many states and units of a head, and bytes of shared memory a program may use."""
    if dtype == torch.float64 or not shared:
        return Tiles(64, 64, 64)
    chunk = tile = 64 if dtype == torch.bfloat16 and shared >= LARGE else 32
    return Tiles(chunk, min(tile, padded(states)), min(tile, padded(units)))
