"""Log-probabilities: ⊕ = logaddexp, ⊗ = +, 0̄ = −∞. Stable for any size, in value and in gradient."""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.epsilon_closure import by_norm
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import LOGARITHMIC


def _star(s, a):
    """Return −log(1 − eᵃ), with 1 − eᵃ = −2t / (1 − t) for t = tanh(a / 2), which does not cancel near 0."""
    t = s.tanh(s.mul(a, 0.5))
    return s.log(s.div(s.sub(1.0, t), s.mul(t, -2.0)))


LOG = Semiring(
    "log",
    zero=-math.inf,
    one=0.0,
    plus=lambda s, a, b: s.logaddexp(a, b),
    times=lambda s, a, b: s.add(a, b),
    star=_star,
    star_exists=lambda s, a: s.gt(0.0, a),
    star_domain="a < 0",
    converges=by_norm(lambda s, a: s.exp(a)),
    values=Range(-math.inf, math.inf, high_open=True),
    set_description="ℝ ∪ {−∞}",
    times_symbol="+",
    plus_legend="log(exp + exp)",
    has_gradient=True,
    strength=lambda s, a: a,
    strength_adds=True,
    to_log=lambda s, a: a,
    from_log=lambda s, x: x,
    costs=True,
    products=LOGARITHMIC,
)
