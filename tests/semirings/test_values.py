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

from rrnn.arithmetic import TENSORS
from rrnn.errors import RRNNError, SemiringError
from rrnn.semirings import (
    COMPLEX,
    COUNTING,
    LOG,
    MAX_PLUS,
    REAL,
    SEMIRINGS,
    Semiring,
    get_semiring,
    register_semiring,
)

INF, NAN = math.inf, math.nan
OUTSIDE: dict[str, list[Any]] = {
    "real": [INF, -INF, NAN],
    "max-plus": [INF, NAN],
    "log": [INF, NAN],
    "min-plus": [-INF, NAN],
    "max-times": [-1.0, -1e-300, INF, -INF, NAN],
    "boolean": [0.5, 2.0, -1.0, INF, NAN],
    "counting": [-1, 0.5, 1e-9, INF, NAN],
    "complex": [(INF, 0.0), (0.0, -INF), (NAN, 0.0), (0.0, NAN)],
    "expectation": [(INF, 0.0), (0.5, -INF), (NAN, 0.0), (0.5, NAN)],
    "signed-log": [(0.5, 0.0), (2.0, 0.0), (1.0, INF), (NAN, 0.0), (1.0, NAN)],
}
INSIDE: dict[str, list[Any]] = {
    "real": [0.0, -0.0, 1.0, -1e308, 1e308, 5e-324],
    "max-plus": [-INF, 0.0, -1e308, 1e308],
    "log": [-INF, 0.0, -1e308, 1e308],
    "min-plus": [INF, 0.0, -1e308, 1e308],
    "max-times": [0.0, 1.0, 1e308, 5e-324],
    "boolean": [0.0, 1.0],
    "counting": [0, 1, 2**62],
    "complex": [(0.0, 0.0), (-1e308, 1e308), (0.0, 5e-324)],
    "expectation": [(0.0, 0.0), (0.5, -1e308), (-1.0, 5e-324)],
    "signed-log": [(0.0, -INF), (1.0, 0.0), (-1.0, 1e308), (1.0, -1e308)],
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
        nan = any(math.isnan(x) for x in semiring.numbers_of(value))
        fix = "Find what produced it" if nan else "Use a number of that set"
        with pytest.raises(SemiringError, match=f"start weight .* is outside .* {fix}|must be a number"):
            semiring.check(value, "start weight")
        with pytest.raises(SemiringError, match=f"{name} semiring's set"):
            semiring.tensor([semiring.one, value if semiring.components else float(value)])
    assert list(semiring.t_contains(torch.tensor(OUTSIDE[name], dtype=torch.float64))) == [False] * len(
        OUTSIDE[name]
    )


COMPOUND = [name for name, ring in SEMIRINGS.items() if ring.components]


@pytest.mark.parametrize("name", COMPOUND)
def test_elements_of_several_components(name: str) -> None:
    ring = SEMIRINGS[name]
    assert ring.size == len(ring.components) == len(ring.zero) == len(ring.one) == len(ring.values)
    assert ring.check(2) == ring.from_real(2.0) and ring.check([1.0, 0.0]) == (1.0, 0.0)  # a list will do
    for few_or_many in ((1.0,), (1.0, 0.0, 0.0), "12", ()):
        with pytest.raises(SemiringError, match=r"a weight must be 2 numbers \('.*', '.*'\) in .*; got"):
            ring.check(few_or_many)
    for shape in ([1.0, 0.0, 0.0], [[1.0]], 1.0, torch.zeros(2, 3)):
        with pytest.raises(
            SemiringError, match=f"the last dimension must be that of {', '.join(ring.components)}"
        ):
            ring.tensor(shape)
    rows = ring.tensor([[ring.zero, ring.one], [ring.one, ring.one]])
    assert rows.shape == (2, 2, 2)
    assert ring.numbers(rows) == [[ring.zero, ring.one], [ring.one, ring.one]]
    assert ring.numbers(rows[0, 1]) == ring.one
    assert torch.equal(ring.bind(ring.unbind(rows)), rows)
    assert ring.is_zero(rows).tolist() == [[True, False], [False, False]]
    chosen = ring.where(torch.tensor([[True, False], [True, True]]), rows, ring.zeros(2, 2))
    assert ring.numbers(chosen) == [[ring.zero, ring.zero], [ring.one, ring.one]]


def test_complex_numbers_are_elements_of_complex_alone() -> None:
    assert COMPLEX.check(1 + 2j) == (1.0, 2.0)
    assert COMPLEX.numbers(COMPLEX.tensor(torch.tensor([1 + 2j, -1j]))) == [(1.0, 2.0), (0.0, -1.0)]
    assert COMPLEX.times((0.0, 1.0), (0.0, 1.0)) == (-1.0, 0.0)
    for name, ring in SEMIRINGS.items():
        if name != "complex":
            with pytest.raises(SemiringError):
                ring.check(1j)
            with pytest.raises(SemiringError, match="complex"):
                ring.tensor(torch.tensor([[1j]]))


READ = {
    "real": 0.25,
    "max-times": 0.25,
    "boolean": 1.0,
    "counting": 3,
    "log": math.log(0.25),
    "max-plus": math.log(0.25),
    "min-plus": -math.log(0.25),
    "complex": (0.25, 0.0),
    "expectation": (0.25, 0.0),
    "signed-log": (1.0, math.log(0.25)),
}


@pytest.mark.parametrize("name", SEMIRINGS)
def test_which_real_number_an_element_stands_for(name: str) -> None:
    ring = SEMIRINGS[name]
    x = {"boolean": 1.0, "counting": 3}.get(name, 0.25)
    assert ring.reads_reals
    assert ring.close(ring.from_real(x), READ[name]) and ring.to_real(READ[name]) == pytest.approx(x)
    assert ring.to_log(READ[name]) == pytest.approx(math.log(x))
    again = ring.from_log(ring.to_log(READ[name]))
    assert ring.close(again, READ[name]) or again == pytest.approx(3)  # exp(log(3)) is not quite whole
    assert ring.to_real(ring.one) == 1.0 and ring.to_real(ring.zero) == 0.0
    assert ring.from_real(0.0) == ring.zero and ring.from_real(1.0) == ring.one
    tensors = ring.unbind(ring.tensor([READ[name]]))
    assert ring.to_real(tensors, TENSORS).tolist() == pytest.approx([x])
    if ring.cancels:
        assert ring.to_real(ring.from_real(-0.25)) == -0.25
        assert ring.magnitude(ring.from_real(-0.25)) == pytest.approx(0.25)
    assert math.isnan(COMPLEX.to_real((0.5, 0.5)))


@pytest.mark.parametrize("name", SEMIRINGS)
def test_ranks_add_up_along_a_path(name: str) -> None:
    ring = SEMIRINGS[name]
    a, b = (ring.from_real(x) for x in ((1.0, 1.0) if name == "boolean" else (2, 4)))
    assert ring.ranks and ring.rank(ring.one) == 0.0
    assert ring.rank(ring.times(a, b)) == pytest.approx(ring.rank(a) + ring.rank(b), rel=1e-15)
    assert ring.strength(ring.zero) < ring.strength(ring.one)
    if ring.selective:
        best = ring.plus(a, b)
        assert ring.strength(best) == max(ring.strength(a), ring.strength(b))


def test_a_name_stands_for_one_definition() -> None:
    copy_of_real = Semiring(
        "real", zero=0.0, one=1.0, plus=lambda s, a, b: s.add(a, b), times=lambda s, a, b: s.mul(a, b)
    )
    assert register_semiring(copy_of_real) is REAL and SEMIRINGS["real"] is REAL
    other = Semiring(
        "real", zero=0.0, one=1.0, plus=lambda s, a, b: s.max(a, b), times=lambda s, a, b: s.mul(a, b)
    )
    with pytest.raises(
        SemiringError, match=r"'real' is defined already, as .*add a b.*; got another .*max a b.*another name"
    ):
        register_semiring(other)
    with pytest.raises(SemiringError, match=r"'real' is not registered.*register_semiring"):
        get_semiring(other)
    with pytest.raises(SemiringError, match=r"the zero of semiring 'x' must have 2 component\(s\); got 0.0"):
        Semiring("x", components=("a", "b"), zero=0.0, one=(1.0, 1.0), plus=max, times=min)


@pytest.mark.parametrize("name", SEMIRINGS)
@pytest.mark.parametrize(
    "junk", ["seven", None, [1.0, "a"], 1j, object()], ids=lambda junk: type(junk).__name__
)
def test_junk_is_a_semiring_error(name: str, junk: Any) -> None:
    semiring = SEMIRINGS[name]
    if name == "complex" and junk == 1j:
        junk = (1j, 1.0)
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
        assert semiring.tensor(torch.tensor([True] * semiring.size)).dtype == semiring.dtype


@pytest.mark.parametrize("name", SEMIRINGS)
def test_zeros_and_ones(name: str) -> None:
    semiring = SEMIRINGS[name]
    assert semiring.numbers(semiring.zeros(2, 3)) == [[semiring.zero] * 3] * 2
    assert semiring.numbers(semiring.ones(2)) == [semiring.one] * 2
    assert semiring.ones(1).dtype == semiring.zeros(1).dtype == semiring.dtype
    assert semiring.zero != semiring.one
    # a true infinity, never a large number
    assert all(z in (0.0, -INF, INF) for z in semiring.numbers_of(semiring.zero))
    assert semiring.infinities == {z for z in semiring.numbers_of(semiring.zero) if z}


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
    with pytest.raises(RRNNError, match="there are boolean, complex, counting"):
        get_semiring("quantum")


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_membership_agrees_on_scalars_and_tensors(value: float) -> None:
    for semiring in SEMIRINGS.values():
        for other in semiring.numbers_of(semiring.one)[1:] or (None,):
            element = value if other is None else (value, other)
            tensor = torch.tensor(element, dtype=torch.float64)
            assert semiring.contains(element) == bool(semiring.t_contains(tensor))


def test_closeness() -> None:
    for semiring in SEMIRINGS.values():
        assert semiring.close(semiring.zero, semiring.zero) and semiring.close(semiring.one, semiring.one)
        assert not semiring.close(semiring.zero, semiring.one)
    assert REAL.close(1e20, 1e20 * (1 + 1e-12)) and not REAL.close(1e20, 1.001e20)
    assert not LOG.close(-INF, -1e308)
    assert COUNTING.close(10**400, 10**400) and not COUNTING.close(10**400, 10**400 + 1)


def _defined(**changes: Any) -> Semiring:
    given: dict[str, Any] = {
        "zero": 0.0,
        "one": 1.0,
        "plus": lambda s, a, b: a + b,
        "times": lambda s, a, b: a * b,
    }
    return Semiring("mine", **{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"plus": lambda s, a, b: s.frob(a, b)},
            r"`plus` of semiring 'mine' .* 'frob' is not an operation of the table",
        ),
        ({"plus": lambda a, b: a + b}, r"`plus` .* must take an arithmetic and two elements"),
        ({"times": lambda s, a, b: (a, b)}, "`times` .* must return a number, as its components say"),
        ({"one": 2.0}, r"in semiring 'mine', 1̄ ⊗ 1̄ must be 2.0; it is 4.0. Check zero, one and `times`"),
        ({"zero": 1.0, "one": 0.0}, "0̄ ⊕ 1̄ must be 0.0; it is 1.0"),
        (
            {
                "components": ("a", "b"),
                "zero": (0.0, 0.0),
                "one": (1.0, 1.0),
                "plus": lambda s, a, b: a[0] + b[0],
            },
            "`plus` .* must return a tuple of 2 numbers",
        ),
        (
            {"components": ("a", "b"), "zero": (0.0,), "one": (1.0, 1.0)},
            r"the zero .* must have 2 component\(s\)",
        ),
    ],
    ids=range(7),
)
def test_definitions_that_cannot_be_right(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SemiringError, match=message):
        register_semiring(_defined(**changes))
    assert "mine" not in SEMIRINGS


def test_only_semirings_are_registered() -> None:
    with pytest.raises(SemiringError, match=r"register_semiring takes a rrnn\.Semiring"):
        register_semiring("real")  # type: ignore[arg-type]
