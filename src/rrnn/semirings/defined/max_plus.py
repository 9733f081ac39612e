"""Greatest sums: ⊕ = max, ⊗ = +, 0̄ = −∞."""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.epsilon_closure import by_best
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import SELECTIVE

MAX_PLUS = Semiring(
    "max-plus",
    zero=-math.inf,
    one=0.0,
    plus=lambda s, a, b: s.max(a, b),
    times=lambda s, a, b: s.add(a, b),
    star=lambda s, a: s.max(0.0, a),
    star_exists=lambda s, a: s.ge(0.0, a),
    star_domain="a ≤ 0",
    converges=by_best,
    values=Range(-math.inf, math.inf, high_open=True),
    set_description="ℝ ∪ {−∞}",
    plus_symbol="max",
    times_symbol="+",
    selective=True,
    has_gradient=True,
    maximum=True,
    strength=lambda s, a: a,
    strength_adds=True,
    to_log=lambda s, a: a,
    from_log=lambda s, x: x,
    costs=True,
    products=SELECTIVE,
)
