"""Intervals: which values an expression can take, and how each operation maps them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rrnn.arithmetic.operators import Operators


@dataclass(frozen=True)
class Range(Operators):
    """An interval that contains every value. An open end is one that no value attains: σ stays below 1."""

    low: float
    high: float
    integral: bool = False
    """Only whole numbers."""
    low_open: bool = False
    high_open: bool = False

    @staticmethod
    def of(value: float) -> Range:
        """Return the range of one number."""
        return Range(value, value, math.isfinite(value) and float(value).is_integer())

    @property
    def constant(self) -> bool:
        """Whether there is one value only."""
        return self.low == self.high

    def contains(self, value: float) -> bool:
        """Return whether a number lies inside; NaN lies in no range."""
        above = value > self.low or (value == self.low and not self.low_open)
        below = value < self.high or (value == self.high and not self.high_open)
        return above and below and (not self.integral or value == math.floor(value))

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low, self.integral, self.high_open, self.low_open)

    def apply(self, op: str, *values: Range | float) -> Range:
        """Return the range of `op` of ranges and numbers."""
        return _OPERATORS[op](*map(_lift, values))


ALL = Range(-math.inf, math.inf, low_open=True, high_open=True)
"""Every real number."""
TRUTH = Range(0.0, 1.0, True)
"""0 and 1: what a comparison gives."""

RangeRule = Callable[..., Range]
"""The range of an operation's result, from the ranges of its arguments."""


def _lift(value: Range | float) -> Range:
    return value if isinstance(value, Range) else Range.of(float(value))


def add(a: Range, b: Range) -> Range:
    """Return the range of a sum."""
    low, high = a.low + b.low, a.high + b.high
    return Range(
        -math.inf if math.isnan(low) else low,
        math.inf if math.isnan(high) else high,
        a.integral and b.integral,
        a.low_open or b.low_open,
        a.high_open or b.high_open,
    )


def multiply(a: Range, b: Range) -> Range:
    """Return the range of a product: its extremes are at corners, and one is open if no corner attains it."""
    corners: dict[float, bool] = {}
    for x, x_open in ((a.low, a.low_open), (a.high, a.high_open)):
        for y, y_open in ((b.low, b.low_open), (b.high, b.high_open)):
            annihilates = (x == 0 and not x_open) or (y == 0 and not y_open)
            # An unbounded end is not attained: 0 times it counts as 0.
            value = 0.0 if x == 0 or y == 0 else x * y
            corners[value] = corners.get(value, True) and not annihilates and (x_open or y_open)
    low, high = min(corners), max(corners)
    return Range(low, high, a.integral and b.integral, corners[low], corners[high])


def square(a: Range) -> Range:
    """Return the range of a value times itself, which multiplying two ranges would overestimate."""
    wide = a if a.low + a.high >= 0 else -a  # the larger side to the right
    low, high, low_open, high_open = wide.low, wide.high, wide.low_open, wide.high_open
    if low < 0:
        high_open = high_open and (low_open or -low < high)
        low, low_open = 0.0, False
    return Range(low * low, high * high, a.integral, low_open, high_open)


def divide(a: Range, b: Range) -> Range:
    """Return the range of a quotient; a divisor that may be 0 gives everything."""
    if excludes_zero(b):
        infinite = math.copysign(math.inf, b.high + b.low)
        low, high = (infinite if end == 0 else 1.0 / end for end in (b.high, b.low))
        return multiply(replace(a, integral=False), Range(low, high, False, b.high_open, b.low_open))
    return ALL


def excludes_zero(a: Range) -> bool:
    """Return whether 0 is provably no value."""
    positive = a.low > 0 or (a.low == 0 and a.low_open)
    return positive or a.high < 0 or (a.high == 0 and a.high_open)


def maximum(a: Range, b: Range) -> Range:
    """Return the range of the greater of two values."""
    low, high = max(a.low, b.low), max(a.high, b.high)
    lows = [r.low_open for r in (a, b) if r.low == low]  # both must come down to the lower end to attain it
    highs = [r.high_open for r in (a, b) if r.high == high]
    return Range(low, high, a.integral and b.integral, any(lows), all(highs))


def minimum(a: Range, b: Range) -> Range:
    """Return the range of the lesser of two values."""
    return -maximum(-a, -b)


def greater(a: Range, b: Range) -> Range:
    """Return the range of [a > b]."""
    always = a.low > b.high or (a.low == b.high and (a.low_open or b.high_open))
    return Range(float(always), float(a.high > b.low), True)


def at_least(a: Range, b: Range) -> Range:
    """Return the range of [a ≥ b]."""
    never = a.high < b.low or (a.high == b.low and (a.high_open or b.low_open))
    return Range(float(a.low >= b.high), float(not never), True)


def choose(condition: Range, a: Range, b: Range) -> Range:
    """Return the range of a where a condition holds, and b elsewhere."""
    if condition.constant:
        return a if condition.low else b
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Range(
        low,
        high,
        a.integral and b.integral,
        all(r.low_open for r in (a, b) if r.low == low),
        all(r.high_open for r in (a, b) if r.high == high),
    )


def rising(f: Callable[..., float], lowest: float = -math.inf) -> RangeRule:
    """Return the rule of a function that never falls, defined from `lowest` on: its ends are its arguments' ends.

    Ends are computed in the same floating point as values, whose rounding is monotone; an end that only rounding
    attains (σ(40) is 1.0 in a computer) counts as open.
    """

    def rule(*arguments: Range) -> Range:
        lows = [max(a.low, lowest) for a in arguments]
        highs = [max(a.high, lowest) for a in arguments]
        return Range(
            f(*lows),
            f(*highs),
            False,
            any(a.low_open and end == a.low for a, end in zip(arguments, lows, strict=True)),
            any(a.high_open and end == a.high for a, end in zip(arguments, highs, strict=True)),
        )

    return rule


def always(result: Range) -> RangeRule:
    """Return the rule of a function of which only its whole range is known."""
    return lambda *_: result


_OPERATORS: dict[str, RangeRule] = {
    "add": add,
    "sub": lambda a, b: add(a, -b),
    "mul": multiply,
    "div": divide,
    "neg": lambda a: -a,
}
