"""Costs ↔ weights: what a number in an OpenFst file means in each semiring.

OpenFst's numbers are costs, negative logarithms: its tropical semiring adds them along a path and takes the
smallest, its log semiring adds the probabilities they stand for. So, with `costs="neglog"`:

| semiring  | cost of a weight w | OpenFst arc type  | the missing cost (0) is | cost Infinity is |
|-----------|--------------------|-------------------|-------------------------|------------------|
| min-plus  | w                  | standard          | 0                       | +∞               |
| max-plus  | −w                 | standard          | 0                       | −∞               |
| log       | −w                 | log, log64        | 0                       | −∞               |
| real      | −log w, for w ≥ 0  | log, log64        | 1                       | 0                |
| max-times | −log w             | standard          | 1                       | 0                |
| boolean   | 0 for 1            | standard          | 1                       | 0                |

`costs="plain"` writes the weight itself, in every semiring, and a missing number is the semiring's one. It is
exact, and the only way for negative real weights and for counting, which have no logarithm; OpenFst reads
such a file but takes its numbers for costs. Counting is always plain, the others are neglog unless told.
"""

from __future__ import annotations

import math
from typing import Literal

from rrnn.errors import SemiringError
from rrnn.semirings import Semiring

Costs = Literal["neglog", "plain"]

_AS_IS = {"min-plus"}
_NEGATED = {"max-plus", "log"}
_LOGARITHM = {"real", "max-times", "boolean"}


def resolve_costs(semiring: Semiring, costs: str | None) -> Costs:
    """The convention for a semiring, checked."""
    known = semiring.name in _AS_IS | _NEGATED | _LOGARITHM
    if costs is None:
        return "neglog" if known else "plain"
    if costs not in ("neglog", "plain"):
        raise SemiringError(f'costs are "neglog" or "plain"; got {costs!r}')
    if costs == "neglog" and not known:
        raise SemiringError(f'{semiring.name} weights have no negative logarithms; use costs="plain"')
    return costs


def weight_of(cost: float, semiring: Semiring, costs: Costs) -> float:
    """The weight that a cost stands for; `SemiringError` where the semiring has no such weight."""
    if costs == "plain":
        return checked(cost, semiring)
    if semiring.name in _LOGARITHM:
        return checked(_exp(-cost, semiring), semiring, f"weight of cost {cost!r}")
    return checked(-cost if semiring.name in _NEGATED else cost, semiring, f"weight of cost {cost!r}")


def cost_of(weight: float, semiring: Semiring, costs: Costs) -> float:
    """The cost that stands for a weight; `SemiringError` for a negative one under "neglog"."""
    if costs == "plain" or semiring.name in _AS_IS:
        return weight
    if semiring.name in _NEGATED:
        return 0.0 - weight  # not −0.0, which would be written with its sign
    if weight < 0:
        raise SemiringError(f'a negative weight ({weight!r}) has no logarithm; use costs="plain"')
    return 0.0 - math.log(weight) if weight else math.inf


def checked(weight: float, semiring: Semiring, what: str = "weight") -> float:
    """The weight as an element of the semiring that also fits its tensors."""
    value = semiring.check(weight, what)
    if semiring.name == "counting" and value >= 2**63:
        size = len(str(int(value)))  # perhaps more than a float can hold
        raise SemiringError(f"a counting {what} must be below 2⁶³ to fit an int64; got one of {size} digits")
    return value


def _exp(exponent: float, semiring: Semiring) -> float:
    try:
        value = math.exp(exponent)
    except OverflowError:
        value = math.inf
    if math.isinf(value) or (value == 0.0 and exponent != -math.inf):
        raise SemiringError(
            f"the weight e^{exponent!r} is outside the range of float64 in the {semiring.name} semiring. "
            "Read the file in the log semiring."
        )
    return value
