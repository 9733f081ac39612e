"""Least costs (tropical): ⊕ = min, ⊗ = +, 0̄ = +∞."""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.epsilon_closure import by_best
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import SELECTIVE

MIN_PLUS = Semiring(
    "min-plus",
    zero=math.inf,
    one=0.0,
    plus=lambda s, a, b: s.min(a, b),
    times=lambda s, a, b: s.add(a, b),
    star=lambda s, a: s.min(0.0, a),
    star_exists=lambda s, a: s.ge(a, 0.0),
    star_domain="a ≥ 0",
    converges=by_best,
    values=Range(-math.inf, math.inf, low_open=True),
    set_description="ℝ ∪ {+∞}",
    plus_symbol="min",
    times_symbol="+",
    selective=True,
    has_gradient=True,
    maximum=False,
    strength=lambda s, a: s.neg(a),
    strength_adds=True,
    to_log=lambda s, a: s.neg(a),
    from_log=lambda s, x: s.neg(x),
    costs=True,
    products=SELECTIVE,
)
