"""Greatest products (Viterbi) of numbers that are not negative: ⊕ = max, ⊗ = ·."""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.epsilon_closure import by_best
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import SELECTIVE

MAX_TIMES = Semiring(
    "max-times",
    zero=0.0,
    one=1.0,
    plus=lambda s, a, b: s.max(a, b),
    times=lambda s, a, b: s.mul(a, b),
    star=lambda s, a: s.max(1.0, a),
    star_exists=lambda s, a: s.ge(1.0, a),
    star_domain="0 ≤ a ≤ 1",
    converges=by_best,
    values=Range(0.0, math.inf, high_open=True),
    set_description="[0, ∞)",
    weights_fix="may be negative, and max-times needs weights that are provably "
    "non-negative: wrap it in sigmoid, exp, softplus or relu",
    plus_symbol="max",
    times_symbol="·",
    selective=True,
    has_gradient=True,
    strength=lambda s, a: a,
    to_real=lambda s, a: a,
    from_real=lambda s, x: x,
    costs=True,
    scales=True,
    products=SELECTIVE,
)
