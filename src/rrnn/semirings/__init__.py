"""The number systems: `⟨K, ⊕, ⊗, 0̄, 1̄⟩` and their laws, on Python numbers and on torch tensors."""

from rrnn.semirings.base import Semiring
from rrnn.semirings.registry import (
    BOOLEAN,
    COUNTING,
    LOG,
    MAX_PLUS,
    MAX_TIMES,
    MIN_PLUS,
    REAL,
    SEMIRINGS,
    get_semiring,
)

__all__ = [
    "BOOLEAN",
    "COUNTING",
    "LOG",
    "MAX_PLUS",
    "MAX_TIMES",
    "MIN_PLUS",
    "REAL",
    "SEMIRINGS",
    "Semiring",
    "get_semiring",
]
