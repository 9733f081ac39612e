"""Draw elements of every semiring (hypothesis strategies), and bound how far two evaluations may lie apart.

Tolerances are those of floating point, not of taste. ⊕ of the selective semirings, boolean and counting is
exact, and so is everything built from it by monotone operations. A sum or product of floats is right up to a
few units in the last place of the largest number that took part, so that is what a law may miss (`slack`).
Overflow is kept out by bounding exponents (a float that overflows has left the set), not by small values.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from hypothesis import strategies as st

from rrnn.semirings import Semiring

EPS = sys.float_info.epsilon


def signed(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high) | st.floats(low, high).map(lambda a: -a)


# Three factors in [1e-100, 1e100] stay between the smallest float and the largest (1.8e308).
MULTIPLICATIVE = st.sampled_from([0.0, 1.0, 1e-100, 1e100]) | st.floats(1e-100, 1e100) | st.floats(1e-3, 1e3)
SIGNED = MULTIPLICATIVE | MULTIPLICATIVE.map(lambda a: -a)
# Three summands of at most 5e307 do not overflow.
ADDITIVE = st.sampled_from([0.0, 1.0, -1.0, 1e300, -1e300]) | signed(0.0, 5e307) | signed(0.0, 50.0)
SIGN = st.sampled_from([-1.0, 1.0])
NOTHING = st.just((0.0, -math.inf))  # the zero of signed-log

ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "real": SIGNED,
    "max-plus": ADDITIVE | st.just(-math.inf),
    "log": ADDITIVE | st.just(-math.inf),
    "min-plus": ADDITIVE | st.just(math.inf),
    "max-times": MULTIPLICATIVE,
    "boolean": st.sampled_from([0.0, 1.0]),
    "counting": st.integers(0, 3) | st.integers(0, 2**20),  # three factors fit int64
    "complex": st.tuples(SIGNED, SIGNED),
    "expectation": st.tuples(SIGNED, SIGNED),
    "signed-log": st.tuples(SIGN, ADDITIVE | st.integers(-2, 2).map(float)) | NOTHING,
}
# Elements whose star exists, and elements whose star does not.
INSIDE_ONE = st.floats(-1.0, 1.0, exclude_min=True, exclude_max=True)
IN_STAR: dict[str, st.SearchStrategy[Any]] = {
    "real": INSIDE_ONE,
    "max-plus": st.floats(-1e300, 0.0) | st.just(-math.inf),
    "log": st.floats(-1e300, -1e-300) | st.just(-math.inf),
    "min-plus": st.floats(0.0, 1e300) | st.just(math.inf),
    "max-times": st.floats(0.0, 1.0),
    "boolean": st.sampled_from([0.0, 1.0]),
    "counting": st.just(0),
    "complex": st.tuples(INSIDE_ONE, INSIDE_ONE).filter(lambda a: math.hypot(*a) < 1 - 1e-12),
    "expectation": st.tuples(INSIDE_ONE, signed(0.0, 1e3)),
    "signed-log": st.tuples(SIGN, st.floats(-1e300, -1e-300)) | NOTHING,
}
OUT_OF_STAR: dict[str, st.SearchStrategy[Any]] = {
    "real": signed(1.0, 1e300),
    "max-plus": st.floats(1e-300, 1e300),
    "log": st.floats(0.0, 1e300),
    "min-plus": st.floats(-1e300, -1e-300),
    "max-times": st.floats(math.nextafter(1.0, 2.0), 1e300),
    "counting": st.integers(1, 10**6),
    "complex": st.tuples(signed(1.0, 1e300), SIGNED) | st.tuples(SIGNED, signed(1.0, 1e300)),
    "expectation": st.tuples(signed(1.0, 1e300), SIGNED),
    "signed-log": st.tuples(SIGN, st.floats(0.0, 1e300)),
}

BY_PRODUCTS = {"real", "complex", "expectation", "max-times"}  # an error grows with the sizes of factors
LOGARITHMS = {"log", "signed-log"}
EXACT_PLUS = {"max-plus", "min-plus", "max-times", "boolean", "counting"}
EXACT_TIMES = {"boolean", "counting"}


def size(semiring: Semiring, a: Any) -> float:
    """Return the sum of the absolute values of the components that are finite."""
    return sum(abs(x) for x in semiring.numbers_of(a) if math.isfinite(x))


def slack(semiring: Semiring, *arguments: Any) -> float:
    """Return how far two floating-point evaluations of one expression over `arguments` may lie apart."""
    total = math.fsum(size(semiring, a) for a in arguments)
    return 8 * EPS * (total + 1.0 if semiring.name in LOGARITHMS else total)


def plus_slack(semiring: Semiring, *terms: Any) -> float:
    return 0.0 if semiring.name in EXACT_PLUS else slack(semiring, *terms)


def times_slack(semiring: Semiring, *factors: Any) -> float:
    if semiring.name in EXACT_TIMES:
        return 0.0
    if semiring.name in BY_PRODUCTS:
        return 8 * EPS * math.prod(size(semiring, a) for a in factors)
    return slack(semiring, *factors)


def spread_slack(semiring: Semiring, a: Any, b: Any, c: Any) -> float:
    """Return what a ⊗ (b ⊕ c) = a⊗b ⊕ a⊗c may miss: nothing where ⊕ selects, as rounding is monotone."""
    if semiring.name in EXACT_PLUS:
        return 0.0
    if semiring.name in BY_PRODUCTS:  # relative to the products, which may cancel in the sum
        return times_slack(semiring, a, b) + times_slack(semiring, a, c)
    return slack(semiring, a, b, c)


def same(semiring: Semiring, a: Any, b: Any, tolerance: float, scale: float = 0.0) -> bool:
    """Return whether two elements agree in each component; over signed-log as real numbers in units of e^scale."""
    if semiring.name == "signed-log":
        x, y = (sign * math.exp(min(log - scale, 700.0)) if sign else 0.0 for sign, log in (a, b))
        return a == b or abs(x - y) <= math.expm1(
            min(tolerance, 700.0)
        )  # an error of a logarithm is a factor
    return all(
        x == y or (math.isfinite(x) and math.isfinite(y) and abs(x - y) <= tolerance)
        for x, y in zip(semiring.numbers_of(a), semiring.numbers_of(b), strict=True)
    )


def log_scale(semiring: Semiring, *products: tuple[Any, ...]) -> float:
    """Return the logarithm of the largest of some products over signed-log: what terms that cancel are measured by."""
    if semiring.name != "signed-log":
        return 0.0
    top = max(sum(log for _, log in factors) for factors in products)
    return top if math.isfinite(top) else 0.0
