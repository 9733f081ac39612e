"""The builder: constants fold, zero and one vanish, equal things are computed once."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rrnn.errors import ProgramError
from rrnn.ir import Op, builder
from rrnn.ir.builder import Builder
from rrnn.semirings import SEMIRINGS, get_semiring

MEANING = {op: op.value.meaning for op in Op if op.value.meaning}
UNARY = [op for op in MEANING if op.arity == 1]
BINARY = [op for op in MEANING if op.arity == 2]


def make(semiring: str = "real") -> tuple[Builder, int, int]:
    """Return a builder and two elements that it knows nothing of."""
    b = Builder(get_semiring(semiring))
    size = b.semiring.size
    x, y = (b.element(b.leaf(Op.PREACT, k * size + c) for c in range(size)) for k in range(2))
    return b, x, y


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.text)
def test_constants_fold(op: Op) -> None:
    b, *_ = make()
    n = b.emit(op, b.const(0.5))
    assert b.value(n) == MEANING[op](0.5)


def test_what_is_not_a_number_stays_to_be_computed() -> None:
    b, *_ = make()
    n = b.emit(Op.LOG, b.const(-1.0))
    assert b.value(n) is None
    assert b.instructions[n].op is Op.LOG


def test_equal_things_are_computed_once() -> None:
    b, x, y = make()
    assert b.emit(Op.MUL, x, y) == b.emit(Op.MUL, x, y)
    assert b.leaf(Op.PREACT, 0) == x
    assert b.emit(Op.MUL, y, x) != b.emit(Op.MUL, x, y)  # order is kept: a max's first argument wins ties
    assert b.const(0.0) == b.const(-0.0)


def test_real_identities() -> None:
    b, x, _ = make()
    zero, one = b.const(0.0), b.const(1.0)
    assert b.emit(Op.ADD, x, zero) == b.emit(Op.ADD, zero, x) == x
    assert b.emit(Op.SUB, x, zero) == x
    assert b.emit(Op.MUL, x, one) == b.emit(Op.MUL, one, x) == b.emit(Op.DIV, x, one) == x
    assert b.emit(Op.MUL, x, zero) == b.emit(Op.MUL, zero, x) == zero


@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_semiring_identities(semiring: str) -> None:
    b, x, y = make(semiring)
    assert b.plus(x, b.zero) == b.plus(b.zero, x) == x
    assert b.times(x, b.one) == b.times(b.one, x) == x
    assert b.times(x, b.zero) == b.times(b.zero, x) == b.zero
    assert b.sum([]) == b.zero
    assert b.sum([b.zero, x, b.zero]) == x
    assert b.sum([x, y]) == b.plus(x, y)
    if b.semiring.selective:
        assert b.plus(x, x) == x


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "log"])
def test_an_infinite_zero_absorbs_sums(semiring: str) -> None:
    b, x, _ = make(semiring)
    assert b.emit(Op.ADD, b.zero, x) == b.emit(Op.ADD, x, b.zero) == b.zero


def test_boolean_ends() -> None:
    b, x, _ = make("boolean")
    assert b.plus(x, b.one) == b.plus(b.one, x) == b.one
    assert b.times(x, b.zero) == b.times(b.zero, x) == b.zero


@pytest.mark.parametrize("semiring", SEMIRINGS)
@given(data=st.data())
def test_simplifying_never_changes_a_value(semiring: str, data: st.DataObject) -> None:
    # Any op on any mixture of leaves and constants gives, after simplification, what it gives without.
    ring = get_semiring(semiring)
    number = {"boolean": st.sampled_from([0.0, 1.0]), "counting": st.integers(0, 3).map(float)}.get(
        semiring, st.sampled_from([0.0, 0.5, 1.0, 2.0] if ring.values[0].low == 0 else [-1.0, 0.0, 0.5, 1.0])
    )
    b = Builder(ring)
    constants = {*ring.numbers_of(ring.zero), *ring.numbers_of(ring.one)}
    value: dict[int, float] = {b.const(x): x for x in constants}
    for k in range(2):
        leaf, constant = data.draw(number), data.draw(number)
        value |= {b.leaf(Op.PREACT, k): leaf, b.const(constant): constant}
    op = data.draw(st.sampled_from([op for op in BINARY if op is not Op.SHARE]))
    args = [data.draw(st.sampled_from(sorted(value))) for _ in range(2)]
    expected = MEANING[op](*(value[a] for a in args))
    assume(not math.isnan(expected))  # 0 · ∞ is where an identity and the arithmetic may differ
    n = b.emit(op, *args)
    got = value[n] if n in value else b.value(n)
    if got is None:
        instruction = b.instructions[n]
        got = MEANING[instruction.op](*(value[a] for a in instruction.args))
    assert got == expected


def test_star() -> None:
    b, x, _ = make()
    half = b.star(b.const(0.5))
    assert b.value(half) == 2.0
    assert b.instructions[b.star(x)].op is Op.DIV
    b, *_ = make("log")
    assert b.value(b.star(b.const(math.log(0.5)))) == pytest.approx(math.log(2.0), rel=1e-15)
    for semiring in ("max-plus", "min-plus", "max-times", "boolean"):
        b, x, _ = make(semiring)
        assert b.star(x) == b.one


def test_finishing_drops_dead_code_and_renumbers() -> None:
    b, x, y = make()
    b.emit(Op.MUL, y, y)
    h = b.emit(Op.TANH, x)
    program, number = b.finish(
        "tiny",
        projections=("a", "b"),
        parameters=(),
        states=(),
        initial=(),
        outputs=[("score", 0, x), ("output", 0, h)],
    )
    assert [i.op for i in program.instructions] == [Op.PREACT, Op.TANH]
    assert number == {x: 0, h: 1}


def test_hostile_sizes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MAX_WORK", 50)
    b, x, _ = make()
    with pytest.raises(ProgramError, match="at most 50 operations"):
        for _ in range(100):
            x = b.emit(Op.TANH, x)


def test_a_choice_that_is_known_is_made() -> None:
    b = Builder(get_semiring("real"))
    x, y = b.leaf(Op.PREACT, 0), b.leaf(Op.PREACT, 1)
    assert b.emit(Op.WHERE, b.const(0.0), x, y) == y and b.emit(Op.WHERE, b.const(2.0), x, y) == x
