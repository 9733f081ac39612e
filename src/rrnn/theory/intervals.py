"""Intervals of any precision that contain the true value: one arithmetic on mpmath's interval numbers.

mpmath is an optional package (`pip install rrnn[rank]`). Every operation rounds outwards, so what is computed from
intervals is proved, not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from rrnn.arithmetic import Arithmetic, Op
from rrnn.errors import RRNNError


class PrecisionError(RRNNError):
    """A value that cannot be computed with the allowed precision, or without mpmath."""


class Intervals(Arithmetic):
    """All ops of the table on intervals with a precision in bits. Each instance has a context of its own."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.context = _mpmath().ctx_iv.MPIntervalContext()
        self.context.prec = bits
        super().__init__(self._function)

    def number(self, value: Any) -> Any:
        """Return the interval of a number, which is exact for whole numbers, floats and fractions."""
        if isinstance(value, Fraction):
            return self.context.mpf(value.numerator) / self.context.mpf(value.denominator)
        return self.context.mpf(value)

    def between(self, low: Any, high: Any) -> Any:
        """Return the interval between two numbers, or from one interval's lower end to another's upper end."""
        return self.context.mpf([self.number(low).a, self.number(high).b])

    def _function(self, op: Op) -> Callable[..., Any]:
        own = getattr(self, f"_{op.text}", None)
        if own is None:
            raise PrecisionError(f"the operation {op.text} has no definition on intervals of high precision")
        return lambda *values: own(*(self.number(v) if isinstance(v, (int, float)) else v for v in values))

    # Each function below is monotone in each argument, or mpmath's own, so that its ends are those of its arguments.

    def _add(self, a: Any, b: Any) -> Any:
        return a + b

    def _sub(self, a: Any, b: Any) -> Any:
        return a - b

    def _mul(self, a: Any, b: Any) -> Any:
        return a * b

    def _div(self, a: Any, b: Any) -> Any:
        return a / b

    def _neg(self, a: Any) -> Any:
        return -a

    def _max(self, a: Any, b: Any) -> Any:
        low, high = (x if x > y else y for x, y in ((a.a, b.a), (a.b, b.b)))
        return self.between(low, high)

    def _min(self, a: Any, b: Any) -> Any:
        return -self._max(-a, -b)

    def _logaddexp(self, a: Any, b: Any) -> Any:
        return self._log(self.context.exp(a) + self.context.exp(b))

    def _exp(self, x: Any) -> Any:
        return self.context.exp(x)

    def _log(self, x: Any) -> Any:
        if x.a < 0:
            raise PrecisionError(
                f"the logarithm of {show(x)} is not defined: the interval contains negative numbers"
            )
        low, high = (self.number(-math.inf) if end == 0 else self.context.log(end) for end in (x.a, x.b))
        return self.between(low, high)

    def _sqrt(self, x: Any) -> Any:
        return self.context.sqrt(x)

    def _sin(self, x: Any) -> Any:
        return self.context.sin(x)

    def _cos(self, x: Any) -> Any:
        return self.context.cos(x)

    def _sigmoid(self, x: Any) -> Any:
        return 1 / (1 + self.context.exp(-x))

    def _tanh(self, x: Any) -> Any:
        return 1 - 2 / (1 + self.context.exp(2 * x))

    def _log_sigmoid(self, x: Any) -> Any:
        return -self._softplus(-x)

    def _softplus(self, x: Any) -> Any:
        return self._log(1 + self.context.exp(x))

    def _ge(self, a: Any, b: Any) -> Any:
        return self.between(int(bool(a.a >= b.b)), int(not a.b < b.a))

    def _gt(self, a: Any, b: Any) -> Any:
        return self.between(int(bool(a.a > b.b)), int(not a.b <= b.a))

    def _where(self, condition: Any, a: Any, b: Any) -> Any:
        if condition.a == condition.b:
            return a if condition.a != 0 else b
        low, high = (a.a if a.a < b.a else b.a), (a.b if a.b > b.b else b.b)
        return self.between(low, high)

    def _share(self, a: Any, b: Any) -> Any:
        return self.number(0) if a.b == self.number(-math.inf).b else self.context.exp(a - b)


def is_interval(value: Any) -> bool:
    """Return whether a value is an interval number of mpmath."""
    return hasattr(value, "a") and hasattr(value, "b") and hasattr(value, "delta")


def excludes_zero(x: Any) -> bool:
    """Return whether 0 is proved not to be the value."""
    return bool(x.a > 0) or bool(x.b < 0)


def middle(x: Any) -> Any:
    """Return the middle of an interval as an mpmath number, in a context of the interval's precision."""
    low, high = (end._mpi_[0] for end in (x.a, x.b))
    mp = x.ctx.__dict__.get("_middles")
    if mp is None:
        mp = x.ctx.__dict__["_middles"] = _mpmath().MPContext()
        mp.prec = x.ctx.prec
    return (mp.make_mpf(low) + mp.make_mpf(high)) / 2


def show(x: Any, digits: int = 6) -> str:
    """Return an interval with few digits, for messages."""
    mpmath = _mpmath()
    return f"[{', '.join(mpmath.nstr(mpmath.mpf(end._mpi_[0]), digits) for end in (x.a, x.b))}]"


def _mpmath() -> Any:
    try:
        import mpmath
        import mpmath.ctx_iv
    except ImportError:
        raise PrecisionError(
            "certified bounds need the package mpmath, which is not installed. Run: pip install 'rrnn[rank]'"
        ) from None
    return mpmath
