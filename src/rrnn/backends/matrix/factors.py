"""What the matrix schedule reads and writes, whichever device runs it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

NONE, SCALAR, VECTOR = 0, 1, 2
"""Decays: none, one number per head, one per state."""
MILD = 40.0
"""A chunk whose running sums of log-decays stay below this is *mild*: decays between its middle and any step, at most
exp(MILD), overflow nowhere, so one product gives all pairs of steps."""


class Tiles(NamedTuple):
    """The sizes of a launch: steps of a chunk, states and units of a tile, warps of each kernel."""

    chunk: int
    states: int
    units: int
    warps: int = 4
    state_warps: int = 4
    gradient_warps: int = 8
    stages: int = 2
    mild: float = MILD
    join: tuple[int, int, int, int] = (4, 64, 2, 4)


class Factors(NamedTuple):
    """What the recurrence reads: queries and keys (T, B, H or groups, N), values (T, B, H, U), and running sums of
    log-decays from the start of each chunk, (T, B, H, N), (T, B, H) or None. Last axes are side by side."""

    q: Tensor
    k: Tensor
    v: Tensor
    G: Tensor | None
    mask: Tensor | None

    @property
    def decay(self) -> int:
        return NONE if self.G is None else SCALAR if self.G.dim() == 3 else VECTOR


class FactorGradients(NamedTuple):
    """The gradients of factors; those of keys and queries are per head, even where heads share them."""

    q: Tensor
    k: Tensor
    v: Tensor
    G: Tensor | None


def padded(size: int) -> int:
    """Return the next power of two, at least 16, the least that tensor cores multiply."""
    return max(16, 1 << (size - 1).bit_length())
