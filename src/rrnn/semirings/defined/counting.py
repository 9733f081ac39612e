"""Natural numbers with + and ·: how many paths.

Exact for Python integers of any size. Tensors are int64, which wrap around silently beyond 2⁶³ − 1.
"""

import math

from rrnn.arithmetic import Range
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import ADDITIVE

COUNTING = Semiring(
    "counting",
    zero=0,
    one=1,
    plus=lambda s, a, b: s.add(a, b),
    times=lambda s, a, b: s.mul(a, b),
    star=lambda s, a: s.add(a, 1),  # only 0 has a star: 1
    star_exists=lambda s, a: s.eq(a, 0),
    star_domain="a = 0",
    values=Range(0.0, math.inf, True, high_open=True),
    set_description="ℕ (0, 1, 2, …)",
    weights_fix="may be other than 0, 1, 2, …, and the counting semiring needs weights that are provably "
    "natural numbers: use whole numbers and step(…)",
    plus_symbol="+",
    times_symbol="·",
    strength=lambda s, a: a,
    to_real=lambda s, a: a,
    from_real=lambda s, x: x,
    integers=True,
    minimised_by="exact linear algebra",
    products=ADDITIVE,
)
