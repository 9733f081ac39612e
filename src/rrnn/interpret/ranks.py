"""Weights as numbers that compare: a path's rank is the sum of its moves' ranks, and the greatest is the strongest.

Over the reals and other numbers that multiply, the rank is log₂ of the magnitude (exact for powers of two) and the sign
stands beside it; logarithms and costs rank as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.semirings import Semiring


def rank(ring: Semiring, weight: Tensor) -> Tensor:
    """Return the ranks of weights; −∞ for 0̄."""
    return ring.on_tensors(ring.rank, weight)


def weight_of(ring: Semiring, rank: Tensor, negative: Tensor | bool = False) -> Tensor:
    """Return the weight that has this rank, with this sign."""
    if ring.logarithmic:
        return ring.bind(ring.on_tensors(ring.from_log, rank))
    size = ring.bind(ring.on_tensors(ring.from_real, rank.exp2()))
    return torch.where(torch.as_tensor(negative), -size, size)


def share(ring: Semiring, some: Tensor, whole: Tensor) -> Tensor:
    """Return how much of the whole some paths are, both ⊕ over paths of weights that cannot cancel; NaN of nothing."""
    if ring.logarithmic:
        return (ring.on_tensors(ring.to_log, some) - ring.on_tensors(ring.to_log, whole)).exp()
    return ring.on_tensors(ring.to_real, some) / ring.on_tensors(ring.to_real, whole)
