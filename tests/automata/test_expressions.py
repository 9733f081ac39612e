"""Expressions are values: operators, names, equality, bounds."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cell_language_strategies import expressions
from hypothesis import given

from rrnn import automata
from rrnn.automata import (
    Expr,
    complex,
    expr_text,
    input,
    linear,
    one,
    parameter,
    polar,
    score,
    sigmoid,
    tanh,
    zero,
)
from rrnn.automata import expressions as ex
from rrnn.errors import CellError

u, f = linear("u"), sigmoid(linear("f", bias=True))


def test_operators_take_numbers_on_either_side() -> None:
    assert 1 - f == ex.Binary("-", ex.Number(1.0), f)
    assert f - 1 == ex.Binary("-", f, ex.Number(1.0))
    assert 2 * u + u * 2 == ex.Binary(
        "+", ex.Binary("*", ex.Number(2.0), u), ex.Binary("*", u, ex.Number(2.0))
    )
    assert 1 + u == ex.as_expr(1) + u
    assert 1 / u == ex.Binary("/", ex.Number(1.0), u) and u / 2 == ex.Binary("/", u, ex.Number(2.0))
    assert -u == ex.Call("neg", u)
    assert "score" * f == score * f
    assert tanh("score") == tanh(score)


@pytest.mark.parametrize("number", [3, 3.0, Fraction(3), np.float32(3), np.int64(3), ex.Number(3.0)])
def test_numbers_of_any_kind(number: Any) -> None:
    assert ex.as_expr(number) == ex.Number(3.0)


def test_minus_of_a_number_is_a_number() -> None:
    assert -ex.as_expr(2) == ex.Number(-2.0)
    assert str(-ex.as_expr(0)) == str(ex.Number(0.0))  # no −0, which would be equal but print otherwise


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), -float("inf"), 10**400, 10**10_000], ids=range(5)
)
def test_numbers_must_be_finite(bad: Any) -> None:
    with pytest.raises(CellError, match=r"must be finite .* got .* Use `zero`"):
        ex.as_expr(bad)


@pytest.mark.parametrize("bad", ["scores", None, True, [1.0], b"score", object()])
def test_other_things_are_no_weights(bad: Any) -> None:
    with pytest.raises(CellError, match="a weight is an expression, a number or"):
        ex.as_expr(bad)
    with pytest.raises(CellError):
        tanh(u + bad)


def test_complex_numbers_are_complex_weights() -> None:
    assert ex.as_expr(1 - 2j) == complex(1, -2)
    with pytest.raises(CellError, match="must be finite"):
        ex.as_expr(1j * float("inf"))


def test_constructors() -> None:
    assert polar(u, 1) == ex.Construct("polar", (u, ex.as_expr(1))) != complex(u, 1)
    assert polar(u, 1).children == (u, ex.as_expr(1))
    for call, message in (
        (
            lambda: ex.construct("spherical", 1, 2),
            "no semiring has a constructor 'spherical'; the constructors are complex, polar",
        ),
        (lambda: polar(1), "polar takes r, theta; got 1 arguments"),
        (lambda: complex(1, "im"), "a weight is an expression, a number"),
    ):
        with pytest.raises(CellError, match=message):
            call()
    with pytest.raises(AttributeError, match="no attribute 'spherical'"):
        automata.spherical  # noqa: B018


def test_components_of_the_score() -> None:
    assert ex.score.re == ex.Component(ex.score, "re") != ex.score.im
    with pytest.raises(AttributeError):
        ex.score.real  # noqa: B018
    assert pickle.loads(pickle.dumps(ex.score.re)) == ex.score.re


def test_no_truth_value() -> None:
    with pytest.raises(CellError, match=r"no truth value.*step"):
        bool(u)


def test_equality_ignores_labels() -> None:
    assert f.named("gate") == f
    assert hash(f.named("gate")) == hash(f)
    assert (1 - f.named("gate")) * u == ((1 - f) * u).named("weight")
    assert f.named("gate").label == "gate" and f.label is None
    assert len({f, f.named("a"), f.named("b"), u}) == 2


def test_inequality() -> None:
    different: list[Expr] = [
        one, zero, score, input(), u, linear("u", bias=True), linear("u", window=2), linear("v"), parameter("u"),
        ex.Number(0.0), ex.Number(1.0), -u, sigmoid(u), tanh(u), u + f, f + u, u - f, u * f,
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    assert all((a == b) == (i == j) for i, a in enumerate(different) for j, b in enumerate(different))
    assert one != 1 and u != "u"


@given(expressions())
def test_copies_are_equal(expr: Expr) -> None:
    for twin in (copy.deepcopy(expr), pickle.loads(pickle.dumps(expr))):
        assert twin == expr and hash(twin) == hash(expr) and twin.size == expr.size
    assert expr.size == len(list(ex.walk(expr)))


def test_pickles_cross_processes() -> None:
    # Hashes of strings are random in each process: one that travelled would make equal expressions unequal.
    code = (
        "import pickle, sys; from rrnn.automata import linear, sigmoid\n"
        "e = pickle.loads(sys.stdin.buffer.read()); s = sigmoid(linear('f', bias=True))\n"
        "assert e == s and hash(e) == hash(s) and e in {s: 1}"
    )
    hash(f)
    subprocess.run([sys.executable, "-c", code], input=pickle.dumps(f), check=True)


def test_immutable() -> None:
    with pytest.raises(AttributeError):
        f.label = "x"  # type: ignore[misc]


def test_walk_gives_children_first() -> None:
    assert [expr_text(e) for e in ex.walk((1 - f) * u)] == [
        "1",
        'linear("f", bias=True)',
        'sigmoid(linear("f", bias=True))',
        '1 - sigmoid(linear("f", bias=True))',
        'linear("u")',
        '(1 - sigmoid(linear("f", bias=True))) * linear("u")',
    ]


def test_depends_on_input() -> None:
    assert ex.depends_on_input(1 - f) and ex.depends_on_input(tanh(input()))
    assert not ex.depends_on_input(sigmoid(parameter("r")) * 2 + one)


def test_size_is_bounded() -> None:
    huge = u
    with pytest.raises(CellError, match="at most 2000 operations"):
        for _ in range(20):
            huge = huge * huge


def test_depth_is_bounded() -> None:
    deep = u
    with pytest.raises(CellError, match=r"at most 100 operations deep.*in pairs"):
        for _ in range(5000):
            deep = deep + 1
    assert deep.depth == ex.MAX_DEPTH and hash(deep) and expr_text(deep)


@pytest.mark.parametrize("name", ["u", "_", "φ1", "f_2", "lambda", "A" * 64, "é"])
def test_good_names(name: str) -> None:
    assert linear(name) == ex.Linear(name)
    assert parameter(name) == ex.Parameter(name)
    assert u.named(name).label == name


@pytest.mark.parametrize(
    "name",
    ["", "1u", "u v", "u-v", "u.v", "A" * 65, "ﬁ", "e\u0301", "a·b", 'u"', "\0", "\ud800", None, 3, u],
    ids=repr,
)
def test_bad_names(name: Any) -> None:
    for use in (linear, parameter, u.named):
        with pytest.raises(CellError, match="must be an identifier of at most 64 letters, digits and _"):
            use(name)


@pytest.mark.parametrize("name", ["input", "score"])
def test_leaves_are_not_called_input_or_score(name: str) -> None:
    for use in (linear, parameter):
        with pytest.raises(CellError, match=f"cannot be '{name}'"):
            use(name)


@pytest.mark.parametrize("window", [0, -1, 1001, 1.5, True, "2", None])
def test_bad_windows(window: Any) -> None:
    with pytest.raises(CellError, match="window must be a whole number from 1 to 1000; got"):
        linear("u", window=window)
