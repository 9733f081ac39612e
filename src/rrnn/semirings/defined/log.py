"""Log-probabilities: ⊕ = logaddexp, ⊗ = +, 0̄ = −∞. Stable for any size, in value and in gradient."""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.epsilon_closure import by_norm
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import LOGARITHMIC


def log_star(s, a):
    """Return x = −log(1 − eᵃ) and its gradient to all digits, for any a < 0.

    With t = tanh(a / 2), 1 − eᵃ = −2t / (1 − t), which does not cancel near 0, but rounds to 1 far below. There
    x = log(1 + eᵃ⁺ˣ), which holds for every a, gives the digits of a small x.
    """
    t = s.tanh(s.mul(a, 0.5))
    x = s.sub(s.log(s.sub(1.0, t)), s.log(s.mul(t, -2.0)))
    return s.softplus(s.add(a, x))


LOG = Semiring(
    "log",
    zero=-math.inf,
    one=0.0,
    plus=lambda s, a, b: s.logaddexp(a, b),
    times=lambda s, a, b: s.add(a, b),
    star=log_star,
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
