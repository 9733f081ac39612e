"""{0, 1} with or and and: is there a path. Numbers, not bools, so that one code serves all semirings."""

from rrnn.arithmetic.ranges import TRUTH
from rrnn.semirings.epsilon_closure import always
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import SELECTIVE

BOOLEAN = Semiring(
    "boolean",
    zero=0.0,
    one=1.0,
    plus=lambda s, a, b: s.max(a, b),
    times=lambda s, a, b: s.min(a, b),
    star=lambda s, a: s.max(1.0, a),
    star_exists=lambda s, a: s.ge(a, 0.0),
    star_domain="every a",
    converges=always,
    values=TRUTH,
    set_description="{0, 1}",
    weights_fix="may be other than 0 and 1, and the boolean semiring needs weights that are provably one "
    "of the two: use one, zero or step(…)",
    plus_symbol="∨",
    times_symbol="∧",
    infix={"max": "∨", "min": "∧"},
    selective=True,
    one_absorbs=True,
    strength=lambda s, a: a,
    to_real=lambda s, a: a,
    from_real=lambda s, x: x,
    support_only=True,
    costs=True,
    minimised_by="determinisation",
    products=SELECTIVE,
)
