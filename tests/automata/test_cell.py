"""The builder: cells are values, and a mistake that one arc shows is raised at that arc."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from rrnn.automata import (
    Cell,
    exp,
    input,
    linear,
    log,
    one,
    parameter,
    relu,
    score,
    sigmoid,
    softplus,
    sqrt,
    step,
    tanh,
    zero,
)
from rrnn.automata.cell import MAX_ARCS, MAX_STATES
from rrnn.errors import AutomatonError, CellError, SemiringError

u, f = linear("u"), sigmoid(linear("f", bias=True))
r = sigmoid(parameter("r"))
Build = Callable[[Cell], Cell]


def b(semiring: str = "real") -> Cell:
    return (
        Cell("B", semiring).initial("q0").loop("q0", one).arc("q0", "q1", f).loop("q1", f)
        .final("q1").output(tanh("score"))
    )  # fmt: skip


def test_reading() -> None:
    cell = b()
    assert cell.states == ("q0", "q1")
    assert [(a.source, a.target, a.epsilon) for a in cell.arcs] == [
        ("q0", "q0", False),
        ("q0", "q1", False),
        ("q1", "q1", False),
    ]
    assert cell.initials == (("q0", one),) and cell.finals == (("q1", one),)
    assert cell.output_expr == tanh(score)
    assert cell.semiring.name == "real"
    assert repr(cell) == "<Cell B: 2 states, 3 arcs, real>"
    assert list(cell.expressions()) == [one, one, f, f, one, tanh(score)]
    assert [place for place, _ in cell.weights()][:2] == [
        "the initial weight of 'q0'",
        "the weight of the arc 'q0' → 'q0'",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.initial("q1", 0.5),
        lambda c: c.final("q0"),
        lambda c: c.arc("q1", "q0", u),
        lambda c: c.epsilon("q1", "q0", r),
        lambda c: c.output(score),
        lambda c: c.limit_epsilon(2),
        lambda c: c.renamed("C"),
        lambda c: c.with_semiring("log"),
    ],
)
@pytest.mark.filterwarnings("ignore::rrnn.errors.GrowthWarning")
def test_methods_leave_the_cell_as_it_was(change: Build) -> None:
    cell, before = b(), b()
    assert change(cell) != before
    assert cell == before and hash(cell) == hash(before)


def test_fields_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        b().name = "C"  # type: ignore[misc]


def test_equality() -> None:
    assert b() == b() and hash(b()) == hash(b())
    assert b() != "B"
    # a name that would be printed anyway makes no difference; another does, since equations print it
    named = (
        Cell("B").initial("q0").loop("q0", one).arc("q0", "q1", f.named("f")).loop("q1", f)
        .final("q1").output(tanh("score"))
    )  # fmt: skip
    assert named == b()
    other = (
        Cell("B").initial("q0").loop("q0", one).arc("q0", "q1", f.named("g")).loop("q1", f)
        .final("q1").output(tanh("score"))
    )  # fmt: skip
    assert other != b()


def test_cells_with_names_in_conflict_can_be_compared() -> None:
    def conflict(w: Any) -> Cell:
        return Cell("x").initial("q0").arc("q0", "q1", f.named("a")).loop("q1", w.named("a")).final("q1")

    assert conflict(u) == conflict(u) and hash(conflict(u)) == hash(conflict(u))
    assert conflict(u) != conflict(tanh(u)) and conflict(u) != b()


def test_copies() -> None:
    hash(b())
    for twin in (copy.deepcopy(b()), pickle.loads(pickle.dumps(b()))):
        assert twin == b() and twin.check() == b()


def test_semirings_by_name_or_object() -> None:
    from rrnn.semirings import LOG

    assert Cell("x", "max_plus").semiring_name == "max-plus"
    assert Cell("x", LOG).semiring is LOG
    with pytest.raises(SemiringError, match=r"unknown semiring 'rael'.*Did you mean 'real'"):
        Cell("x", "rael")


def test_parallel_arcs_with_a_merge_rule() -> None:
    cell = b().arc("q0", "q1", u, merge="plus").epsilon("q0", "q1", r).epsilon("q0", "q1", r, merge="plus")
    assert len(cell.arcs) == 6


X = Cell("X")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        # names
        (lambda: Cell("a b"), "a cell's name must be an identifier .* got 'a b'"),
        (lambda: Cell(""), "a cell's name must be an identifier"),
        (lambda: b().renamed("1"), "a cell's name must be an identifier"),
        (lambda: X.initial("q 0"), "a state's name must be an identifier .* got 'q 0'"),
        (lambda: X.final("q-0"), "a state's name must be an identifier"),
        (lambda: X.arc("q0", 1, u), "a state's name must be an identifier .* got 1"),  # type: ignore[arg-type]
        (lambda: X.loop(["q0"], u), "a state's name must be an identifier"),  # type: ignore[arg-type]
        (lambda: X.initial({}), "a state's name must be an identifier"),  # type: ignore[arg-type]
        (lambda: X.epsilon("", "q", r), "a state's name must be an identifier"),
        # twice
        (lambda: b().initial("q0", 0.5), "one initial weight; 'q0' is given a second. Remove one"),
        (lambda: b().final("q1"), "one final weight; 'q1' is given a second"),
        (lambda: b().arc("q0", "q1", u), "arc 'q0' → 'q1' is given twice. Pass merge=\"plus\""),
        (lambda: b().loop("q1", u), "arc 'q1' → 'q1' is given twice"),
        (lambda: b().epsilon("q0", "q1", r).epsilon("q0", "q1", r), "ε-arc 'q0' → 'q1' is given twice"),
        (lambda: b().arc("q0", "q1", u, merge="max"), "merge is None or \"plus\" .*; got 'max'"),
        # weights that see the input before there is one
        (lambda: X.initial("q0", u), "the initial weight of 'q0' depends on the input.*parameter"),
        (lambda: X.final("q0", 2 * tanh(u)), "the final weight of 'q0' depends on the input"),
        (lambda: X.epsilon("q0", "q1", input()), "the ε-arc 'q0' → 'q1' depends on the input"),
        # the words of the language in the wrong place
        (lambda: X.loop("q0", 1 - one), "`one` or `zero` inside arithmetic.*Write the number 1 or 0"),
        (lambda: X.loop("q0", tanh(zero)), "`one` or `zero` inside arithmetic"),
        (lambda: X.output(one), "the output expression uses `one` or `zero`"),
        (lambda: X.output(score + zero), "the output expression uses `one` or `zero`"),
        (
            lambda: X.loop("q0", score * u),
            "uses `score`, which exists only after the arcs.*output expression",
        ),
        (lambda: X.loop("q0", "score"), "uses `score`"),
        (lambda: X.loop("q0", "u"), "a weight is an expression, a number"),
        (lambda: X.loop("q0", None), "a weight is an expression, a number"),  # type: ignore[arg-type]
        # numbers
        (lambda: X.loop("q0", float("nan")), "must be finite .* got nan"),
        (lambda: X.initial("q0", float("inf")), "must be finite .* got inf"),
        (lambda: X.loop("q0", 10**400), "must be finite"),
        (
            lambda: X.loop("q0", log(u)),
            "takes log of what may be negative .*-inf.*sigmoid, exp, softplus or relu",
        ),
        (
            lambda: X.final("q0", sqrt(tanh(parameter("p")))),
            "takes sqrt of what may be negative .*as low as -1",
        ),
        (lambda: X.output(log(score)), "the output expression takes log of what may be negative"),
        # limits
        (lambda: X.limit_epsilon(-1), "whole number from 0 to 64; got -1"),
        (lambda: X.limit_epsilon(65), "whole number from 0 to 64; got 65"),
        (lambda: X.limit_epsilon(True), "whole number from 0 to 64; got True"),
        (lambda: X.limit_epsilon(1.0), "whole number from 0 to 64"),  # type: ignore[arg-type]
    ],
)
def test_mistakes(build: Callable[[], Cell], message: str) -> None:
    with pytest.raises(CellError, match=message) as caught:
        build()
    assert isinstance(caught.value, AutomatonError)


@pytest.mark.parametrize(
    ("semiring", "weight"),
    [
        ("real", log(relu(u) * 0)),
        ("real", exp(linear("u") * 0 + 1000)),
        ("min-plus", log(relu(-exp(u)))),
        ("max-times", -1),
        ("max-times", 0.5 - 1 * step(u) * 0 - 1),
        ("counting", 1.5),
        ("counting", -1),
        ("boolean", 2),
        ("boolean", 0.5),
    ],
)
def test_known_weights_outside_the_set(semiring: str, weight: Any) -> None:
    with pytest.raises(CellError, match=f"outside the {semiring} semiring's set .* Its zero is"):
        Cell("X", semiring).loop("q0", weight)


@pytest.mark.parametrize("weight", [u, u * f, tanh(u), 0.4 - f, -relu(u), u - u])
def test_max_times_needs_a_proof(weight: Any) -> None:
    with pytest.raises(CellError, match=r"may be negative .*provably non-negative: wrap it in sigmoid, exp"):
        Cell("X", "max-times").loop("q0", weight)


@pytest.mark.parametrize(
    "weight", [f, 1 - f, exp(u), softplus(u), relu(u), u * u, f * exp(u), 3, 0, one, zero]
)
def test_max_times_proofs(weight: Any) -> None:
    Cell("X", "max-times").loop("q0", weight)


@pytest.mark.parametrize("weight", [u, f, 2 * step(u), step(u) + step(linear("v")), 0.5 * step(u), 1 - f])
def test_boolean_needs_a_proof(weight: Any) -> None:
    with pytest.raises(CellError, match=r"provably one of the two: use one, zero or step\(…\)"):
        Cell("X", "boolean").loop("q0", weight)


@pytest.mark.parametrize("weight", [step(u), 1 - step(u), step(u) * step(f - 0.5), 0, 1, one, zero])
def test_boolean_proofs(weight: Any) -> None:
    Cell("X", "boolean").loop("q0", weight)


@pytest.mark.parametrize("weight", [u, f, step(u) - 1, 0.5 * step(u), exp(step(u))])
def test_counting_needs_a_proof(weight: Any) -> None:
    with pytest.raises(CellError, match="provably natural numbers: use whole numbers and step"):
        Cell("X", "counting").loop("q0", weight)


@pytest.mark.parametrize("weight", [step(u), 2 * step(u) + 3, 0, 7, one, zero])
def test_counting_proofs(weight: Any) -> None:
    Cell("X", "counting").loop("q0", weight)


@pytest.mark.parametrize("semiring", ["real", "log", "max-plus", "min-plus"])
def test_signed_semirings_take_anything(semiring: str) -> None:
    Cell("X", semiring).loop("q0", u).arc("q0", "q1", -1.5).loop("q1", tanh(u) - softplus(u)).loop("q2", zero)


def test_minus_infinity_is_a_weight_where_it_is_zero() -> None:
    Cell("X", "log").loop("q0", log(relu(u))).epsilon("q0", "q1", log(relu(-exp(parameter("p")))))


def test_too_many_states_and_arcs() -> None:
    with pytest.raises(CellError, match=f"at most {MAX_STATES} states"):
        cell = X
        for i in range(MAX_STATES + 1):
            cell = cell.initial(f"q{i}")
    with pytest.raises(CellError, match=f"at most {MAX_ARCS} arcs"):
        X._with(arcs=b().arcs * MAX_ARCS)
    big = u
    for _ in range(9):
        big = big * big
    with pytest.raises(CellError, match="at most 50000 operations in its expressions"):
        cell = X
        for _ in range(60):
            cell = cell.loop("q0", big, merge="plus")
