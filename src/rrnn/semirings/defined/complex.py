"""Complex numbers with + and ·, as real and imaginary parts: a pole with a frequency is one state."""

from rrnn.semirings.epsilon_closure import by_norm
from rrnn.semirings.semiring import Semiring
from rrnn.semirings.tensor_products import ComplexNumbers


def _inverse(s, a):
    size = s.add(s.mul(a[0], a[0]), s.mul(a[1], a[1]))
    return s.div(a[0], size), s.neg(s.div(a[1], size))


def _size(s, a):
    return s.sqrt(s.add(s.square(a[0]), s.square(a[1])))


COMPLEX = Semiring(
    "complex",
    components=("re", "im"),
    zero=(0.0, 0.0),
    one=(1.0, 0.0),
    plus=lambda s, a, b: (s.add(a[0], b[0]), s.add(a[1], b[1])),
    times=lambda s, a, b: (
        s.sub(s.mul(a[0], b[0]), s.mul(a[1], b[1])),
        s.add(s.mul(a[0], b[1]), s.mul(a[1], b[0])),
    ),
    star=lambda s, a: _inverse(s, (s.sub(1.0, a[0]), s.neg(a[1]))),
    star_exists=lambda s, a: s.gt(1.0, _size(s, a)),
    star_domain="|a| < 1",
    converges=by_norm(_size),
    set_description="ℂ (finite numbers)",
    plus_symbol="+",
    times_symbol="·",
    has_gradient=True,
    strength=_size,
    magnitude=_size,
    to_real=lambda s, a: s.where(s.eq(a[1], 0.0), a[0], float("nan")),
    from_real=lambda s, x: (x, s.mul(x, 0.0)),
    scales=True,
    constructors={
        "complex": (("re", "im"), lambda s, re, im: (re, im)),
        "polar": (("r", "theta"), lambda s, r, theta: (s.mul(r, s.cos(theta)), s.mul(r, s.sin(theta)))),
    },
    products=ComplexNumbers(),
)
