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
from typing import Any, Literal

from rrnn.errors import SemiringError
from rrnn.semirings import Semiring

Costs = Literal["neglog", "plain"]


def resolve_costs(semiring: Semiring, costs: str | None) -> Costs:
    """Return the convention for a semiring, checked."""
    if costs is None:
        return "neglog" if semiring.costs else "plain"
    if costs not in ("neglog", "plain"):
        raise SemiringError(f'costs are "neglog" or "plain"; got {costs!r}')
    if costs == "neglog" and not semiring.costs:
        raise SemiringError(f'{semiring.name} weights have no negative logarithms; use costs="plain"')
    return costs


def weight_of(cost: float, semiring: Semiring, costs: Costs) -> float:
    """Return the weight that a cost stands for; `SemiringError` where the semiring has no such weight."""
    if costs == "plain":
        return checked(cost, semiring)
    weight = semiring.from_log(0.0 - cost)  # not −0.0, which would be written with its sign
    if not semiring.logarithmic and (math.isinf(weight) or (weight == 0.0 and cost != math.inf)):
        raise SemiringError(
            f"the weight e^{-cost!r} is outside the range of float64 in the {semiring.name} semiring. "
            "Read the file in the log semiring."
        )
    return checked(weight, semiring, f"weight of cost {cost!r}")


def cost_of(weight: float, semiring: Semiring, costs: Costs) -> float:
    """Return the cost that stands for a weight; `SemiringError` for a negative one under "neglog"."""
    if costs == "plain":
        return weight
    logarithm = semiring.to_log(weight)
    if math.isnan(logarithm):
        raise SemiringError(f'a negative weight ({weight!r}) has no logarithm; use costs="plain"')
    return 0.0 - logarithm


def checked(weight: Any, semiring: Semiring, what: str = "weight") -> Any:
    """The weight as an element of the semiring that also fits its tensors."""
    value = semiring.check(weight, what)
    if semiring.integers and value >= 2**63:
        size = len(str(int(value)))  # perhaps more than a float can hold
        raise SemiringError(
            f"a {semiring.name} {what} must be below 2⁶³ to fit an int64; got one of {size} digits"
        )
    return value
