"""Every law of every semiring, on Python numbers and on tensors, with 0̄, −∞ and large values among them.

Tolerances are those of floating point, not of taste. ⊕ of the selective semirings, boolean and counting is
exact, and so is everything built from it by monotone operations. A sum or product of floats is right up to a
few units in the last place of the largest number that took part, so that is what a law may miss (`slack`).
Overflow is kept out by bounding exponents (a float that overflows has left the set), not by small values.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from rrnn.errors import SemiringError
from rrnn.semirings import SEMIRINGS, Semiring

EPS = sys.float_info.epsilon
NAMES = list(SEMIRINGS)


def signed(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high) | st.floats(low, high).map(lambda a: -a)


# Three factors in [1e-100, 1e100] stay between the smallest float and the largest (1.8e308).
MULTIPLICATIVE = st.sampled_from([0.0, 1.0, 1e-100, 1e100]) | st.floats(1e-100, 1e100) | st.floats(1e-3, 1e3)
# Three summands of at most 5e307 do not overflow.
ADDITIVE = st.sampled_from([0.0, 1.0, -1.0, 1e300, -1e300]) | signed(0.0, 5e307) | signed(0.0, 50.0)

ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "real": MULTIPLICATIVE | MULTIPLICATIVE.map(lambda a: -a),
    "max-plus": ADDITIVE | st.just(-math.inf),
    "log": ADDITIVE | st.just(-math.inf),
    "min-plus": ADDITIVE | st.just(math.inf),
    "max-times": MULTIPLICATIVE,
    "boolean": st.sampled_from([0.0, 1.0]),
    "counting": st.integers(0, 3) | st.integers(0, 2**20),  # three factors fit int64
}
# Where a star exists, and where it does not.
IN_STAR: dict[str, st.SearchStrategy[Any]] = {
    "real": st.floats(-1.0, 1.0, exclude_min=True, exclude_max=True),
    "max-plus": st.floats(-1e300, 0.0) | st.just(-math.inf),
    "log": st.floats(-1e300, -1e-300) | st.just(-math.inf),
    "min-plus": st.floats(0.0, 1e300) | st.just(math.inf),
    "max-times": st.floats(0.0, 1.0),
    "boolean": st.sampled_from([0.0, 1.0]),
    "counting": st.just(0),
}
OUT_OF_STAR: dict[str, st.SearchStrategy[Any]] = {
    "real": signed(1.0, 1e300),
    "max-plus": st.floats(1e-300, 1e300),
    "log": st.floats(0.0, 1e300),
    "min-plus": st.floats(-1e300, -1e-300),
    "max-times": st.floats(math.nextafter(1.0, 2.0), 1e300),
    "counting": st.integers(1, 10**6),
}
ROUNDED_PLUS = {"real", "log"}  # ⊕ rounds; elsewhere it selects or is an integer sum
ROUNDED_TIMES = {"real", "log", "max-plus", "min-plus", "max-times"}


def slack(semiring: Semiring, *arguments: float) -> float:
    """How far two floating-point evaluations of one expression over `arguments` may lie apart."""
    sizes = [abs(a) for a in arguments if math.isfinite(a)]
    if semiring.name == "log":
        return 8 * EPS * (sum(sizes) + 1.0)
    return 8 * EPS * sum(sizes)


def same(semiring: Semiring, a: float, b: float, tolerance: float) -> bool:
    return a == b or (math.isfinite(a) and math.isfinite(b) and abs(a - b) <= tolerance)


def laws(semiring: Semiring, a: float, b: float, c: float, plus: Any, times: Any) -> None:
    """The axioms at one point. `plus` and `times` are the scalar operations or the tensor ones."""
    zero, one = semiring.zero, semiring.one
    plus_slack = slack(semiring, a, b, c) if semiring.name in ROUNDED_PLUS else 0.0
    if semiring.name in ("real", "max-times"):
        times_slack = 8 * EPS * abs(a * b * c)
    else:
        times_slack = slack(semiring, a, b, c) if semiring.name in ROUNDED_TIMES else 0.0

    assert same(semiring, plus(plus(a, b), c), plus(a, plus(b, c)), plus_slack)
    assert plus(a, b) == plus(b, a)
    assert plus(a, zero) == a == plus(zero, a)
    assert same(semiring, times(times(a, b), c), times(a, times(b, c)), times_slack)
    assert times(a, one) == a == times(one, a)
    assert times(a, zero) == zero == times(zero, a)
    left, right = times(a, plus(b, c)), plus(times(a, b), times(a, c))
    assert same(semiring, left, right, spread_slack(semiring, a, b, c))
    left, right = times(plus(a, b), c), plus(times(a, c), times(b, c))
    assert same(semiring, left, right, spread_slack(semiring, c, a, b))
    if semiring.laws.commutative:
        assert times(a, b) == times(b, a)
    if semiring.laws.idempotent:
        assert plus(a, a) == a
    if semiring.laws.selective:
        assert plus(a, b) in (a, b)
    if semiring.laws.non_negative:
        assert a >= 0
    if semiring.laws.has_negation:
        assert plus(a, -a) == zero
    if semiring.laws.has_division and a != zero:
        inverse = 1.0 / a if one == 1.0 else -a
        assert same(semiring, times(a, inverse), one, 2 * EPS)


def spread_slack(semiring: Semiring, a: float, b: float, c: float) -> float:
    """What a ⊗ (b ⊕ c) = a⊗b ⊕ a⊗c may miss: nothing where ⊕ selects, as rounding is monotone."""
    if semiring.name == "real":
        return 8 * EPS * (abs(a * b) + abs(a * c))  # relative to the products, which may cancel in the sum
    return slack(semiring, a, b, c) if semiring.name == "log" else 0.0


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_axioms_and_flags_on_scalars(name: str, data: st.DataObject) -> None:
    semiring = SEMIRINGS[name]
    a, b, c = (data.draw(ELEMENTS[name]) for _ in range(3))
    assert all(semiring.contains(x) for x in (a, b, c))
    laws(semiring, a, b, c, semiring.plus, semiring.times)
    assert semiring.contains(semiring.plus(a, b)) and semiring.contains(semiring.times(a, b))


@given(*[st.integers(0, 10**40)] * 3)
@example(10**400, 1, 0)
def test_counting_is_exact_beyond_floats(a: int, b: int, c: int) -> None:
    counting = SEMIRINGS["counting"]
    assert counting.check(a) == a
    laws(counting, a, b, c, counting.plus, counting.times)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_axioms_and_flags_on_tensors(name: str, data: st.DataObject) -> None:
    """The same laws elementwise, and the tensor operations agree with the scalar ones."""
    semiring = SEMIRINGS[name]
    triples = data.draw(st.lists(st.tuples(*[ELEMENTS[name]] * 3), min_size=1, max_size=6))
    columns = [semiring.tensor(list(column)) for column in zip(*triples, strict=True)]
    a, b, c = columns

    def elementwise(operation: Any) -> Any:
        return lambda x, y: operation(
            torch.as_tensor([x], dtype=semiring.dtype), torch.as_tensor([y], dtype=semiring.dtype)
        ).item()

    for triple in triples:
        laws(semiring, *triple, elementwise(semiring.t_plus), elementwise(semiring.t_times))
    for tensors, scalar in ((semiring.t_plus(a, b), semiring.plus), (semiring.t_times(b, c), semiring.times)):
        left, right = (0, 1) if scalar == semiring.plus else (1, 2)
        for value, triple in zip(semiring.numbers(tensors), triples, strict=True):
            expected = scalar(triple[left], triple[right])
            rounding = slack(semiring, expected) if name == "log" else 0.0  # two libraries' exp and log1p
            assert same(semiring, value, expected, rounding)
    assert bool(semiring.t_contains(semiring.t_plus(a, b)).all())


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_star_is_a_fixed_point(name: str, data: st.DataObject) -> None:
    """a* = 1̄ ⊕ a ⊗ a*, up to rounding of a* itself."""
    semiring = SEMIRINGS[name]
    a = data.draw(IN_STAR[name])
    star = semiring.star(a)
    assert same(
        semiring, star, semiring.plus(semiring.one, semiring.times(a, star)), slack(semiring, star, 1.0)
    )
    assert same(
        semiring, star, semiring.plus(semiring.one, semiring.times(star, a)), slack(semiring, star, 1.0)
    )
    on_tensor = semiring.t_star(torch.tensor([a], dtype=semiring.dtype)).item()
    assert same(semiring, on_tensor, star, slack(semiring, star))


@pytest.mark.parametrize("name", OUT_OF_STAR)
@given(data=st.data())
def test_star_outside_its_domain(name: str, data: st.DataObject) -> None:
    semiring = SEMIRINGS[name]
    a = data.draw(OUT_OF_STAR[name])
    with pytest.raises(SemiringError, match=f"{name} star exists only for"):
        semiring.star(a)
    assert math.isnan(semiring.t_star(torch.tensor([a], dtype=semiring.dtype)).item())


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_sums_and_matrix_products_are_folds(name: str, data: st.DataObject) -> None:
    """`sum`, `product`, `t_sum` and `t_matmul` against folding the two operations."""
    semiring = SEMIRINGS[name]
    n, k, m = (data.draw(st.integers(1, 3)) for _ in range(3))
    left = [[data.draw(ELEMENTS[name]) for _ in range(k)] for _ in range(n)]
    right = [[data.draw(ELEMENTS[name]) for _ in range(m)] for _ in range(k)]
    a, b = semiring.tensor(left), semiring.tensor(right)

    for row, value in zip(left, semiring.numbers(semiring.t_sum(a, 1)), strict=True):
        tolerance = slack(semiring, *row) if name in ROUNDED_PLUS else 0.0
        assert same(semiring, value, semiring.sum(row), tolerance)
    assert torch.equal(semiring.t_sum(a, 1), semiring.t_sum(a, -1))
    products = semiring.numbers(semiring.t_matmul(a, b))
    for i in range(n):
        for j in range(m):
            terms = [semiring.times(left[i][x], right[x][j]) for x in range(k)]
            tolerance = slack(semiring, *terms) if name in ROUNDED_PLUS else 0.0
            assert same(semiring, products[i][j], semiring.sum(terms), tolerance)
    assert semiring.product(()) == semiring.one and semiring.sum(()) == semiring.zero
    assert semiring.product(left[0][:1]) == left[0][0]


@pytest.mark.parametrize("name", NAMES)
def test_empty_sums_are_zero(name: str) -> None:
    semiring = SEMIRINGS[name]
    empty = semiring.zeros(2, 0, 3)
    assert semiring.numbers(semiring.t_sum(empty, 1)) == [[semiring.zero] * 3] * 2
    assert semiring.t_sum(empty, 2).shape == (2, 0)
    assert semiring.t_matmul(semiring.ones(2, 0), semiring.ones(0, 3)).tolist() == [[semiring.zero] * 3] * 2


def test_matrix_products_broadcast_over_batches() -> None:
    for semiring in SEMIRINGS.values():
        a, b = semiring.ones(5, 2, 3), semiring.ones(3, 4)
        assert semiring.t_matmul(a, b).shape == (5, 2, 4)
        assert torch.equal(semiring.t_matmul(a, b)[0], semiring.t_matmul(a[0], b))
