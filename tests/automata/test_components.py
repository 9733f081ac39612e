"""Division, sin, cos, silu, constructors and components: their text, their ranges, and the rules they can break."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rrnn.arithmetic import Range
from rrnn.automata import (
    Cell,
    Expr,
    complex,
    construct,
    cos,
    definitions,
    evaluate,
    exp,
    expr_text,
    from_text,
    linear,
    one,
    pair,
    parameter,
    parse_expr,
    polar,
    range_of,
    relu,
    score,
    sigmoid,
    silu,
    sin,
    softplus,
    step,
    tanh,
    weight_range,
)
from rrnn.automata import expressions as ex
from rrnn.automata.expressions import call
from rrnn.errors import CellError, FormatError
from rrnn.semirings import COMPLEX, REAL, SEMIRINGS

u, v, p = linear("u"), linear("v"), parameter("p")
inf = math.inf


def b_like(semiring: str, weight: Any = one) -> Cell:
    cell = Cell("B", semiring).initial("q0").loop("q0", one).arc("q0", "q1", weight)
    return cell.loop("q1", sigmoid(linear("f"))).final("q1")


# ---- text ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (u / (1 + relu(v)), 'linear("u") / (1 + relu(linear("v")))'),
        (u / exp(v) / 2, 'linear("u") / exp(linear("v")) / 2'),
        (u / (exp(v) / 2), 'linear("u") / (exp(linear("v")) / 2)'),
        (u * (v / 2), 'linear("u") * (linear("v") / 2)'),
        ((u - v) / 2, '(linear("u") - linear("v")) / 2'),
        (-(u / 2), '-(linear("u") / 2)'),
        (sin(u) + cos(v) * silu(p), 'sin(linear("u")) + cos(linear("v")) * silu(parameter("p"))'),
        (complex(u, -1), 'complex(linear("u"), -1)'),
        (polar(sigmoid(u), p), 'polar(sigmoid(linear("u")), parameter("p"))'),
        (pair(1, u * v), 'pair(1, linear("u") * linear("v"))'),
        (construct("signed", 2 * step(u) - 1, v), 'signed(2 * step(linear("u")) - 1, linear("v"))'),
        (tanh(score.re) - score.im, "tanh(score.re) - score.im"),
        (-score.re, "-score.re"),
    ],
    ids=range(13),
)
def test_text_round_trips(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text
    assert parse_expr(text) == expr


def test_a_cell_of_two_components_and_outputs() -> None:
    cell = b_like("complex", complex(u, v)).output(score.re / (1 + score.im * score.im), score.im)
    text = cell.to_text()
    assert "arc q0 -> q1 : complex(u, v)" in text.splitlines()
    assert text.splitlines()[-1] == "output score.re / (1 + score.im * score.im), score.im"
    again = from_text(text)
    assert again == cell and again.output_exprs == cell.output_exprs and len(again.output_exprs) == 2
    assert again.output_expr == cell.output_exprs[0]


def test_the_default_output_is_every_component() -> None:
    cell = b_like("expectation")
    assert cell.output_exprs == (score.p, score.r) and not cell.given_outputs
    assert cell.to_text().endswith("output score.p, score.r\n")
    assert b_like("real").output_exprs == (score,)
    with pytest.raises(CellError, match="output takes at least one expression; got none"):
        cell.output()


def test_several_outputs_of_one_component() -> None:
    cell = b_like("real").output(score, tanh(score))
    assert from_text(cell.to_text()).output_exprs == (score, tanh(score))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score.", "expected a component of the score, as in score.re"),
        ("score.1", "cannot read 'score.1'"),
        ("u.re", "'u' is not defined"),
        ("complex(1)", "complex takes re, im; got 1 arguments"),
        ("complex(1, 2, 3)", "complex takes re, im; got 3 arguments"),
        ("complex()", "expected a number, a name"),
        ("complex(1, 2 3)", r"expected '\)'"),
        (
            "cosh(1)",
            "'cosh' is not a function .*silu, abs, sign of one expression, max, .* of several.*constructors .*complex",
        ),
        ("1 /", "expected a number, a name"),
    ],
)
def test_text_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises((FormatError, CellError), match=message):
        parse_expr(text)


def test_functions_that_came_later_are_no_reserved_words() -> None:
    # A text that was written before they came may define them: a call is told from a name by its bracket.
    cell = b_like("complex", polar(sigmoid(u).named("polar"), cos(v).named("max")))
    text = cell.to_text()
    assert "polar = sigmoid" in text and "polar(polar, max)" in text
    assert from_text(text) == cell


def test_functions_of_several_expressions() -> None:
    text = "max(u, where(gt(v, 0), min(u, v), abs(sign(v))))"
    expr = parse_expr(text, {"u": u, "v": v})
    assert expr_text(expr, {u: "u", v: "v"}) == text
    assert evaluate(expr, {"u": -2.0, "v": 3.0}, "real") == -2.0
    assert evaluate(expr, {"u": -2.0, "v": -3.0}, "real") == 1.0
    with pytest.raises(CellError, match="max takes 2 arguments; got 1"):
        call("max", u)
    with pytest.raises(
        CellError, match="'cosh' is not a function of the cell language; the functions are sigmoid"
    ):
        call("cosh", u)


# ---- ranges ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (sin(u), -1, 1),
        (cos(u) * 2, -2, 2),
        (silu(exp(u)), 0, inf),
        (1 / (1 + exp(u)), 0, 1),
        (sigmoid(u) / (1 + relu(v)), 0, 1),
        (1 / softplus(u), 0, inf),
        (2 / (-1 - sigmoid(u)), -2, -1),
        (u / 2, -inf, inf),
    ],
    ids=range(8),
)
def test_ranges(expr: Expr, low: float, high: float) -> None:
    r = range_of(expr, REAL)
    assert (r.low, r.high) == (low, high)


def test_ranges_of_elements() -> None:
    assert weight_range(complex(sigmoid(u), 2), COMPLEX) == (
        Range(0.0, 1.0, low_open=True, high_open=True),
        Range(2.0, 2.0, True),
    )
    re, im = weight_range(polar(sigmoid(u), v), COMPLEX)
    assert (re.low, re.high, im.low, im.high) == (-1, 1, -1, 1)
    im = weight_range(tanh(u), COMPLEX)[1]  # a real weight
    assert im.low == im.high == 0
    assert range_of(score.re, COMPLEX).low == -inf
    for name, ring in SEMIRINGS.items():
        if ring.components:
            assert weight_range(one, ring) == tuple(Range.of(x) for x in ring.one), name


@pytest.mark.parametrize("divisor", [u, relu(u), tanh(u), sigmoid(u) - sigmoid(v), ex.as_expr(0), u * u])
def test_division_by_what_may_be_zero(divisor: Expr) -> None:
    rule = r"divides by what may be 0 \(it lies between .* and .*\)\. Keep the divisor provably positive: wrap it in"
    with pytest.raises(CellError, match=r"the weight of the arc 'q0' → 'q1' " + rule):
        b_like("real", 1 / divisor)
    with pytest.raises(CellError, match="the output expression " + rule):
        b_like("real").output(score / divisor)
    with pytest.raises(CellError, match="divides by what may be 0"):
        b_like("complex", complex(1, 1 / divisor))


def test_division_by_what_is_never_zero() -> None:
    for divisor in (exp(u), softplus(u), 1 + relu(u), -1 - u * u, ex.as_expr(2), sigmoid(u) + 0.5):
        b_like("real", v / divisor).output(score / divisor).check()


# ---- rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("semiring", "weight", "message"),
    [
        (
            "real",
            complex(u, v),
            r"is made by complex\(…\), a constructor of the complex semiring; this cell is over real",
        ),
        ("real", 1j, r"Build it over that one: Cell\(name, 'complex'\)"),
        (
            "expectation",
            polar(u, v),
            r"made by polar\(…\), a constructor of the complex semiring.* over expectation",
        ),
        ("complex", pair(u, v), "a constructor of the expectation semiring"),
        ("complex", complex(u, v) * 2, r"uses complex\(…\) inside arithmetic; it makes a whole weight"),
        (
            "complex",
            tanh(complex(u, v)),
            "inside arithmetic.*Compute with its arguments, or put it on an arc",
        ),
        ("complex", complex(complex(u, v), 1), "inside arithmetic"),
        ("complex", complex(one, 1), "uses `one` or `zero` inside arithmetic"),
        ("complex", one + 1, "uses `one` or `zero` inside arithmetic"),
        ("complex", complex(score.re, 1), "uses `score`, which exists only after the arcs"),
        ("real", score.re, "reads score.re; over real an output reads the score alone, a number"),
        (
            "signed-log",
            construct("signed", tanh(u), v),
            "may lie outside .*signed-log semiring needs weights",
        ),
        ("signed-log", construct("signed", 2, v), "may lie outside"),
        ("signed-log", construct("signed", 2, 1), r"is \(2.0, 1.0\), outside the signed-log semiring's set"),
        (
            "complex",
            complex(exp(ex.as_expr(1000)), 1),
            r"is \(inf, 1.0\), outside the complex semiring's set",
        ),
    ],
    ids=range(15),
)
def test_weights(semiring: str, weight: Any, message: str) -> None:
    with pytest.raises(CellError, match=rf"the weight of the arc 'q0' → 'q1' .*{message}|{message}"):
        b_like(semiring, weight)


@pytest.mark.parametrize(
    ("semiring", "output", "message"),
    [
        (
            "complex",
            score,
            r"over complex a score has 2 components: read score.re, score.im.*\.output\(score.re, score.im\)",
        ),
        ("complex", tanh(score) * score.re, "over complex a score has 2 components"),
        ("expectation", score + 1, "read score.p, score.r"),
        (
            "complex",
            score.p,
            "the output expression reads score.p; over complex an output reads score.re, score.im",
        ),
        ("real", score.re, "reads score.re; over real an output reads the score alone, a number"),
        ("complex", complex(score.re, 1), r"uses complex\(…\) inside arithmetic|whole weight"),
        ("complex", one, "uses `one` or `zero` inside arithmetic"),
    ],
    ids=range(7),
)
def test_outputs(semiring: str, output: Expr, message: str) -> None:
    with pytest.raises(CellError, match=message):
        b_like(semiring).output(output)


def test_the_semiring_may_change_later() -> None:
    with pytest.raises(CellError, match=r"is made by complex\(…\).* this cell is over real"):
        b_like("complex", complex(u, v)).output(score.re).with_semiring("real").check()
    with pytest.raises(CellError, match="a score has 2 components"):
        b_like("real", u).output(tanh(score)).with_semiring("complex").check()
    b_like("real", u).with_semiring("complex").check()  # real weights stand for real numbers


def test_epsilon_cycles_of_several_components() -> None:
    def ring(semiring: str, weight: Any) -> Cell:
        return b_like(semiring).epsilon("q1", "q1", weight)

    r = parameter("r")
    for semiring, weight in (
        ("complex", complex(0.5, 0.5)),
        ("complex", polar(0.7 * sigmoid(r), p)),
        ("complex", 0.9 * tanh(r)),
        ("expectation", pair(sigmoid(r), 100 * p)),
        ("signed-log", construct("signed", -1, -softplus(r))),
        ("signed-log", 0.9 * tanh(r)),
    ):
        ring(semiring, weight).check()
    for semiring, weight in (
        ("complex", complex(0.8, 0.8)),
        ("complex", polar(r, p)),
        ("expectation", pair(1, 0)),
        ("signed-log", construct("signed", -1, 0)),
        ("signed-log", r),
    ):
        with pytest.raises(CellError, match=f"ε-cycle q1 → q1 whose star .* {semiring} semiring"):
            ring(semiring, weight).check()


def test_a_constructed_weight_is_not_called_after_one_of_its_numbers() -> None:
    turn = polar(sigmoid(linear("f")), parameter("theta"))
    cell = Cell("X", "complex").initial("q0").loop("q0", turn).final("q0")
    names = {str(expr_text(e)): name for e, name in definitions(cell).items()}
    assert names == {'sigmoid(linear("f"))': "f", 'parameter("theta")': "theta"}  # the angle, not the weight
    assert from_text(cell.to_text()) == cell
