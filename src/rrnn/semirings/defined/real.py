"""Real numbers with + and ·."""

from rrnn.arithmetic.ranges import ALL
from rrnn.semirings.epsilon_closure import by_norm
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import LINEAR

REAL = Semiring(
    "real",
    zero=0.0,
    one=1.0,
    plus=lambda s, a, b: s.add(a, b),
    times=lambda s, a, b: s.mul(a, b),
    star=lambda s, a: s.div(1.0, s.sub(1.0, a)),
    star_exists=lambda s, a: s.gt(1.0, s.abs(a)),
    star_domain="|a| < 1",
    converges=by_norm(lambda s, a: s.abs(a)),
    values=ALL,
    set_description="ℝ (finite numbers)",
    plus_symbol="+",
    times_symbol="·",
    legend=False,
    has_gradient=True,
    strength=lambda s, a: s.abs(a),
    magnitude=lambda s, a: s.abs(a),
    to_real=lambda s, a: a,
    from_real=lambda s, x: x,
    costs=True,
    scales=True,
    minimised_by="linear algebra",
    products=LINEAR,
)
