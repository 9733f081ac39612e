"""Membership, checks, conversion, lookup and identity of the semirings."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrnn.errors import RRNNError, SemiringError
from rrnn.semirings import COUNTING, LOG, MAX_PLUS, REAL, SEMIRINGS, get_semiring

INF, NAN = math.inf, math.nan
OUTSIDE: dict[str, list[Any]] = {
    "real": [INF, -INF, NAN],
    "max-plus": [INF, NAN],
    "log": [INF, NAN],
    "min-plus": [-INF, NAN],
    "max-times": [-1.0, -1e-300, INF, -INF, NAN],
    "boolean": [0.5, 2.0, -1.0, INF, NAN],
    "counting": [-1, 0.5, 1e-9, INF, NAN],
}
INSIDE: dict[str, list[Any]] = {
    "real": [0.0, -0.0, 1.0, -1e308, 1e308, 5e-324],
    "max-plus": [-INF, 0.0, -1e308, 1e308],
    "log": [-INF, 0.0, -1e308, 1e308],
    "min-plus": [INF, 0.0, -1e308, 1e308],
    "max-times": [0.0, 1.0, 1e308, 5e-324],
    "boolean": [0.0, 1.0],
    "counting": [0, 1, 2**62],
}


@pytest.mark.parametrize("name", SEMIRINGS)
def test_membership(name: str) -> None:
    semiring = SEMIRINGS[name]
    for value in [*INSIDE[name], semiring.zero, semiring.one]:
        assert semiring.contains(value)
        assert semiring.check(value) == value
        assert semiring.numbers(semiring.tensor([value])) == [value]
    for value in OUTSIDE[name]:
        assert not semiring.contains(value)
        fix = "Find what made it" if value != value else "Use a number of that set"
        with pytest.raises(SemiringError, match=f"start weight .* is outside .* {fix}|must be a number"):
            semiring.check(value, "start weight")
        with pytest.raises(SemiringError, match=f"{name} semiring's set"):
            semiring.tensor([semiring.one, float(value)])
    assert list(semiring.t_contains(torch.tensor(OUTSIDE[name], dtype=torch.float64))) == [False] * len(
        OUTSIDE[name]
    )


@pytest.mark.parametrize("name", SEMIRINGS)
@pytest.mark.parametrize(
    "junk", ["seven", None, [1.0, "a"], 1j, object()], ids=lambda junk: type(junk).__name__
)
def test_junk_is_a_semiring_error(name: str, junk: Any) -> None:
    semiring = SEMIRINGS[name]
    with pytest.raises(SemiringError):
        semiring.check(junk)
    with pytest.raises(SemiringError):
        semiring.tensor([junk])


def test_numbers_too_large_for_the_type() -> None:
    assert COUNTING.check(10**400) == 10**400
    for call in (
        lambda: REAL.check(10**400),
        lambda: COUNTING.tensor([10**400]),
        lambda: COUNTING.tensor([2**64]),
    ):
        with pytest.raises(SemiringError):
            call()
    with pytest.raises(SemiringError, match="inf"):
        REAL.tensor([1e300], dtype=torch.float32)


def test_conversion_keeps_graph_shape_and_exactness() -> None:
    weights = torch.tensor([[0.5, 2.0]], dtype=torch.float32, requires_grad=True)
    assert REAL.tensor(weights) is weights
    assert REAL.tensor(weights, torch.float64).dtype == torch.float64
    assert REAL.tensor(weights, torch.float64).requires_grad
    assert REAL.tensor(torch.tensor([1, 2])).dtype == torch.float64
    assert REAL.tensor([0.1]).item() == 0.1  # not rounded through float32
    assert COUNTING.tensor([2**53 + 1]).tolist() == [2**53 + 1]  # not rounded through float64
    assert COUNTING.tensor([2.0**40, 3.0]).tolist() == [2**40, 3]
    assert COUNTING.tensor(torch.tensor([3.0])).dtype == torch.int64
    assert MAX_PLUS.numbers(MAX_PLUS.tensor([[-INF, 0.0], [1.0, 2.0]])) == [[-INF, 0.0], [1.0, 2.0]]
    assert MAX_PLUS.tensor([]).shape == (0,)
    for semiring in SEMIRINGS.values():
        assert semiring.tensor(torch.tensor([True])).dtype == semiring.dtype
        with pytest.raises(SemiringError, match="complex"):
            semiring.tensor(torch.tensor([1j]))


@pytest.mark.parametrize("name", SEMIRINGS)
def test_zeros_and_ones(name: str) -> None:
    semiring = SEMIRINGS[name]
    assert semiring.zeros(2, 3).tolist() == [[semiring.zero] * 3] * 2
    assert semiring.ones(2).tolist() == [semiring.one] * 2
    assert semiring.ones(1).dtype == semiring.zeros(1).dtype == semiring.dtype
    assert semiring.zero != semiring.one
    assert semiring.zero in (0.0, -INF, INF)  # a true infinity, never a large number


@pytest.mark.parametrize("name", SEMIRINGS)
def test_instances_are_singletons(name: str) -> None:
    semiring = SEMIRINGS[name]
    assert pickle.loads(pickle.dumps(semiring)) is semiring
    assert copy.copy(semiring) is semiring and copy.deepcopy({"s": semiring})["s"] is semiring
    assert get_semiring(name) is semiring and get_semiring(semiring) is semiring
    assert get_semiring(name.upper().replace("-", "_")) is semiring
    assert name in repr(semiring)


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(SemiringError, match="Did you mean 'max-plus'"):
        get_semiring("maxplus")
    with pytest.raises(RRNNError, match="there are real, max-plus"):
        get_semiring("quantum")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_membership_agrees_on_scalars_and_tensors(value: float) -> None:
    for semiring in SEMIRINGS.values():
        assert semiring.contains(value) == bool(semiring.t_contains(torch.tensor(value, dtype=torch.float64)))


def test_closeness() -> None:
    for semiring in SEMIRINGS.values():
        assert semiring.close(semiring.zero, semiring.zero) and semiring.close(semiring.one, semiring.one)
        assert not semiring.close(semiring.zero, semiring.one)
    assert REAL.close(1e20, 1e20 * (1 + 1e-12)) and not REAL.close(1e20, 1.001e20)
    assert not LOG.close(-INF, -1e308)
    assert COUNTING.close(10**400, 10**400) and not COUNTING.close(10**400, 10**400 + 1)
