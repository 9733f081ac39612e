"""The number systems: `⟨K, ⊕, ⊗, 0̄, 1̄⟩`, each written once, on numbers, tensors and programs."""

from rrnn.semirings.defined.boolean import BOOLEAN
from rrnn.semirings.defined.complex import COMPLEX
from rrnn.semirings.defined.counting import COUNTING
from rrnn.semirings.defined.log import LOG
from rrnn.semirings.defined.max_plus import MAX_PLUS
from rrnn.semirings.defined.max_times import MAX_TIMES
from rrnn.semirings.defined.min_plus import MIN_PLUS
from rrnn.semirings.defined.real import REAL
from rrnn.semirings.registry import SEMIRINGS, get_semiring, register_semiring
from rrnn.semirings.semiring import Semiring

__all__ = [
    "BOOLEAN",
    "COMPLEX",
    "COUNTING",
    "LOG",
    "MAX_PLUS",
    "MAX_TIMES",
    "MIN_PLUS",
    "REAL",
    "SEMIRINGS",
    "Semiring",
    "get_semiring",
    "register_semiring",
]
