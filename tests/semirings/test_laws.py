"""Every law of every semiring, on Python numbers and on tensors, with 0̄, −∞ and large values among them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from semiring_elements import (
    ELEMENTS,
    IN_STAR,
    OUT_OF_STAR,
    log_scale,
    plus_slack,
    same,
    slack,
    spread_slack,
    times_slack,
)

from rrnn.errors import SemiringError
from rrnn.semirings import SEMIRINGS, Semiring

NAMES = list(SEMIRINGS)


def laws(ring: Semiring, a: Any, b: Any, c: Any, plus: Any, times: Any) -> None:
    """Assert the axioms at one point. `plus` and `times` are the scalar operations or the tensor ones."""
    zero, one = ring.zero, ring.one
    scale = log_scale(ring, (a,), (b,), (c,))
    assert same(ring, plus(plus(a, b), c), plus(a, plus(b, c)), plus_slack(ring, a, b, c), scale)
    assert plus(a, b) == plus(b, a)
    assert plus(a, zero) == a == plus(zero, a)
    scale = log_scale(ring, (a, b, c))
    assert same(ring, times(times(a, b), c), times(a, times(b, c)), times_slack(ring, a, b, c), scale)
    assert times(a, one) == a == times(one, a)
    assert times(a, zero) == zero == times(zero, a)
    scale = log_scale(ring, (a, b), (a, c))
    left, right = times(a, plus(b, c)), plus(times(a, b), times(a, c))
    assert same(ring, left, right, spread_slack(ring, a, b, c), scale)
    scale = log_scale(ring, (a, c), (b, c))
    left, right = times(plus(a, b), c), plus(times(a, c), times(b, c))
    assert same(ring, left, right, spread_slack(ring, c, a, b), scale)
    if ring.commutative:
        assert times(a, b) == times(b, a)
    if ring.selective:
        assert plus(a, b) in (a, b) and plus(a, a) == a
    if ring.one_absorbs:
        assert plus(one, a) == one
    if ring.cancels:
        assert plus(a, times(ring.from_real(-1.0), a)) == zero
    assert all(r.contains(x) for r, x in zip(ring.values, ring.numbers_of(a), strict=True))


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
        return lambda x, y: semiring.numbers(operation(semiring.tensor([x]), semiring.tensor([y])))[0]

    for triple in triples:
        laws(semiring, *triple, elementwise(semiring.t_plus), elementwise(semiring.t_times))
    for tensors, scalar in ((semiring.t_plus(a, b), semiring.plus), (semiring.t_times(b, c), semiring.times)):
        left, right = (0, 1) if scalar == semiring.plus else (1, 2)
        for value, triple in zip(semiring.numbers(tensors), triples, strict=True):
            expected = scalar(triple[left], triple[right])
            used = (triple[left], triple[right])
            scale = (
                log_scale(semiring, *((x,) for x in used))
                if scalar == semiring.plus
                else log_scale(semiring, used)
            )
            rounding = {
                "log": slack(semiring, expected),
                "signed-log": slack(semiring, *used),
            }  # two libraries' exp
            assert same(semiring, value, expected, rounding.get(name, 0.0), scale)
    assert bool(semiring.t_contains(semiring.t_plus(a, b)).all())


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_star_is_a_fixed_point(name: str, data: st.DataObject) -> None:
    """a* = 1̄ ⊕ a ⊗ a*, up to rounding of a* itself."""
    semiring = SEMIRINGS[name]
    a = data.draw(IN_STAR[name])
    star = semiring.star(a)
    tolerance, scale = slack(semiring, star, semiring.one), log_scale(semiring, (star,))
    for product in (semiring.times(a, star), semiring.times(star, a)):
        assert same(semiring, star, semiring.plus(semiring.one, product), tolerance, scale)
    (on_tensor,) = semiring.numbers(semiring.t_star(semiring.tensor([a])))
    assert same(semiring, on_tensor, star, slack(semiring, star), scale)


@pytest.mark.parametrize("name", OUT_OF_STAR)
@given(data=st.data())
def test_star_outside_its_domain(name: str, data: st.DataObject) -> None:
    semiring = SEMIRINGS[name]
    a = data.draw(OUT_OF_STAR[name])
    with pytest.raises(SemiringError, match=f"{name} star exists only for"):
        semiring.star(a)
    (on_tensor,) = semiring.numbers(semiring.t_star(semiring.tensor([a])))
    assert all(math.isnan(x) for x in semiring.numbers_of(on_tensor))


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
        scale = log_scale(semiring, *((x,) for x in row))
        assert same(semiring, value, semiring.sum(row), plus_slack(semiring, *row), scale)
    assert torch.equal(semiring.t_sum(a, 1), semiring.t_sum(a, -1))
    products = semiring.numbers(semiring.t_matmul(a, b))
    for i in range(n):
        for j in range(m):
            terms = [semiring.times(left[i][x], right[x][j]) for x in range(k)]
            scale = log_scale(semiring, *((x,) for x in terms))
            assert same(semiring, products[i][j], semiring.sum(terms), plus_slack(semiring, *terms), scale)
    assert semiring.product(()) == semiring.one and semiring.sum(()) == semiring.zero
    assert semiring.product(left[0][:1]) == left[0][0]


@pytest.mark.parametrize("name", NAMES)
def test_empty_sums_are_zero(name: str) -> None:
    semiring = SEMIRINGS[name]
    empty = semiring.zeros(2, 0, 3)
    assert semiring.numbers(semiring.t_sum(empty, 1)) == [[semiring.zero] * 3] * 2
    assert semiring.t_sum(empty, 2).shape[:2] == (2, 0)
    product = semiring.t_matmul(semiring.ones(2, 0), semiring.ones(0, 3))
    assert semiring.numbers(product) == [[semiring.zero] * 3] * 2


def test_matrix_products_broadcast_over_batches() -> None:
    for semiring in SEMIRINGS.values():
        a, b = semiring.ones(5, 2, 3), semiring.ones(3, 4)
        assert semiring.t_matmul(a, b).shape[:3] == (5, 2, 4)
        assert torch.equal(semiring.t_matmul(a, b)[0], semiring.t_matmul(a[0], b))
