"""All semirings by name."""

from __future__ import annotations

import difflib

from rrnn.errors import SemiringError
from rrnn.semirings.base import Semiring
from rrnn.semirings.log import Log
from rrnn.semirings.numeric import Boolean, Counting, Real
from rrnn.semirings.selective import MaxPlus, MaxTimes, MinPlus

REAL, LOG = Real(), Log()
MAX_PLUS, MIN_PLUS, MAX_TIMES = MaxPlus(), MinPlus(), MaxTimes()
BOOLEAN, COUNTING = Boolean(), Counting()

SEMIRINGS: dict[str, Semiring] = {
    s.name: s for s in (REAL, MAX_PLUS, LOG, MIN_PLUS, MAX_TIMES, BOOLEAN, COUNTING)
}


def get_semiring(semiring: str | Semiring) -> Semiring:
    """A semiring by name (or itself)."""
    if isinstance(semiring, Semiring):
        return semiring
    found = SEMIRINGS.get(str(semiring).replace("_", "-").lower())
    if found is None:
        near = difflib.get_close_matches(str(semiring), SEMIRINGS, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SemiringError(f"unknown semiring {semiring!r}: there are {', '.join(SEMIRINGS)}.{hint}")
    return found
