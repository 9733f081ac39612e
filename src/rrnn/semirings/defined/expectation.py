"""The expectation semiring (Eisner 2002): a weight p and a value r = p·v, so that a sum over paths gives Σp and Σp·v.

⟨p, r⟩ ⊕ ⟨q, t⟩ = ⟨p + q, r + t⟩ and ⟨p, r⟩ ⊗ ⟨q, t⟩ = ⟨pq, pt + qr⟩: a path's value is the sum of its arcs' values.
"""

from rrnn.semirings.epsilon_closure import by_norm
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import Pairs


def _star(s, a):
    star = s.div(1.0, s.sub(1.0, a[0]))
    return star, s.mul(s.mul(star, star), a[1])


EXPECTATION = Semiring(
    "expectation",
    components=("p", "r"),
    zero=(0.0, 0.0),
    one=(1.0, 0.0),
    plus=lambda s, a, b: (s.add(a[0], b[0]), s.add(a[1], b[1])),
    times=lambda s, a, b: (s.mul(a[0], b[0]), s.add(s.mul(a[0], b[1]), s.mul(a[1], b[0]))),
    star=_star,
    star_exists=lambda s, a: s.gt(1.0, s.abs(a[0])),
    star_domain="|p| < 1",
    converges=by_norm(lambda s, a: s.abs(a[0])),
    set_description="pairs ⟨p, r⟩ of finite numbers",
    has_gradient=True,
    strength=lambda s, a: s.abs(a[0]),
    magnitude=lambda s, a: s.abs(a[0]),
    to_real=lambda s, a: a[0],
    from_real=lambda s, x: (x, s.mul(x, 0.0)),
    scales=True,
    constructors={
        "pair": (("p", "r"), lambda s, p, r: (p, r)),
        "valued": (("p", "v"), lambda s, p, v: (p, s.mul(p, v))),
    },
    products=Pairs(),
)
