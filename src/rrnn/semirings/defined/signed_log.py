"""The real numbers without underflow: a sign in {−1, 0, +1} and the logarithm of the magnitude."""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.defined.log import log_star
from rrnn.semirings.epsilon_closure import by_norm
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import SignedLogarithms

_SMALL = 1e-30  # stands for 0 where no logarithm of it is wanted: positive in float32, too


def _plus(s, a, b):
    top = s.max(a[1], b[1])
    total = s.add(s.mul(a[0], s.share(a[1], top)), s.mul(b[0], s.share(b[1], top)))
    size = s.abs(total)
    # No logarithm of 0, nor its gradient: what cancels is 0̄. (A NaN is not 0, and stays.)
    return s.sign(total), s.where(size, s.add(top, s.log(s.where(size, size, _SMALL))), -math.inf)


def _star(s, a):
    """Return 1 / (1 − a), which is positive for |a| < 1: as over log for a > 0, and −log(1 + |a|) for a < 0."""
    log = s.where(s.gt(a[0], 0.0), log_star(s, a[1]), s.neg(s.softplus(a[1])))
    return s.add(s.mul(a[0], 0.0), 1.0), log


def _from_real(s, x):
    size = s.abs(x)
    return s.sign(x), s.where(size, s.log(s.where(size, size, _SMALL)), -math.inf)


SIGNED_LOG = Semiring(
    "signed-log",
    components=("sign", "log"),
    zero=(0.0, -math.inf),
    one=(1.0, 0.0),
    plus=_plus,
    times=lambda s, a, b: (s.mul(a[0], b[0]), s.add(a[1], b[1])),
    star=_star,
    star_exists=lambda s, a: s.gt(0.0, a[1]),
    star_domain="log|a| < 0",
    converges=by_norm(lambda s, a: s.exp(a[1])),
    values=(Range(-1.0, 1.0, True), Range(-math.inf, math.inf, high_open=True)),
    set_description="{−1, 0, +1} × (ℝ ∪ {−∞})",
    plus_legend="+ of the real numbers that they stand for",
    has_gradient=True,
    strength=lambda s, a: a[1],
    strength_adds=True,
    magnitude=lambda s, a: s.exp(a[1]),
    to_real=lambda s, a: s.mul(a[0], s.exp(a[1])),
    from_real=_from_real,
    to_log=lambda s, a: s.where(s.ge(a[0], 0.0), a[1], float("nan")),
    from_log=lambda s, x: (s.gt(x, -math.inf), x),
    constructors={
        # A sign of 0 is 0̄, whatever the logarithm.
        "signed": (("sign", "log"), lambda s, sign, log: (sign, s.where(s.eq(sign, 0.0), -math.inf, log)))
    },
    products=SignedLogarithms(),
)
