"""Weights as numbers that compare: a path's rank is the sum of its moves' ranks, and the greatest is the strongest.

Over the reals and other numbers that multiply, the rank is log₂ of the magnitude (exact for powers of two) and the sign
stands beside it; logarithms and costs rank as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rrnn.semirings import Semiring


def rank(ring: Semiring, weight: Tensor) -> Tensor:
    """−∞ for 0̄."""
    if ring.name in ("log", "max-plus"):
        return weight
    if ring.name == "min-plus":
        return -weight
    return weight.abs().log2()


def weight_of(ring: Semiring, rank: Tensor, negative: Tensor | bool = False) -> Tensor:
    """The weight that has this rank, with this sign."""
    if ring.name in ("log", "max-plus"):
        return rank
    if ring.name == "min-plus":
        return -rank
    size = rank.exp2()
    return torch.where(torch.as_tensor(negative), -size, size)


def share(ring: Semiring, some: Tensor, whole: Tensor) -> Tensor:
    """How much of the whole some paths are, both ⊕ over paths of weights that cannot cancel; NaN of nothing."""
    return (some - whole).exp() if ring.name == "log" else some / whole
