"""Cells from cells: structure. What the compositions compute is tested on machines, in tests/wfsa."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rrnn.automata import (
    Cell,
    concatenate,
    interpolate,
    linear,
    log_sigmoid,
    one,
    parameter,
    relabel,
    scale,
    score,
    sigmoid,
    step,
    tanh,
    union,
    zero,
)
from rrnn.automata.cell_algebra import times
from rrnn.errors import CellError
from rrnn.semirings import LOG, MAX_TIMES, REAL

f, u, r = sigmoid(linear("f", bias=True)), linear("u"), sigmoid(parameter("r"))


def b(name: str = "B", semiring: str = "real") -> Cell:
    return (
        Cell(name, semiring).initial("q0").loop("q0", one).arc("q0", "q1", f).loop("q1", 0.5)
        .final("q1", 2.0).output(tanh(score))
    )  # fmt: skip


def test_times() -> None:
    assert times(REAL, f, u) == f * u and times(LOG, f, u) == f + u and times(MAX_TIMES, f, f) == f * f
    assert times(REAL, one, u) == u == times(LOG, u, one)
    assert times(REAL, zero, u) == zero == times(LOG, u, zero)


def test_scale() -> None:
    assert dict(scale(b(), r).finals)["q1"] == b().finals[0][1] * r
    assert dict(scale(b(semiring="log"), r).finals)["q1"] == b().finals[0][1] + r
    assert scale(b(), one) == b()
    with pytest.raises(CellError, match="the final weight of 'q1' depends on the input"):
        scale(b(), u)


def test_union() -> None:
    both = union(b(), b("C"))
    assert both.name == "B_or_C"
    assert both.states == ("q0", "q1", "q0_", "q1_")
    assert both.initials == (("q0", one), ("q0_", one))
    assert [(a.source, a.target) for a in both.arcs[3:]] == [("q0_", "q0_"), ("q0_", "q1_"), ("q1_", "q1_")]
    assert both.output_expr == tanh(score)
    assert union(b(), b(), "X").name == "X"
    assert union(both, both).states[4:] == ("q0__", "q1__", "q0___", "q1___")
    assert union(b(), b("C"), output=score).output_expr == score
    assert union(b(), b("C").output(score), output="score").output_expr == score


def test_concatenate() -> None:
    both = concatenate(b(), b("C"))
    assert both.name == "B_then_C"
    assert both.initials == (("q0", one),)
    assert [q for q, _ in both.finals] == ["q1_"]
    assert [(a.source, a.target, a.weight) for a in both.arcs if a.epsilon] == [
        ("q1", "q0_", b().finals[0][1])
    ]


def test_interpolate() -> None:
    both = interpolate(b(), b("C"))
    assert both.name == "B_with_C"
    assert [w for _, w in both.finals] == [b().finals[0][1] * sigmoid(parameter(p)) for p in ("p1", "p2")]
    logs = interpolate(b(semiring="log"), b(semiring="log"))
    assert [w for _, w in logs.finals] == [b().finals[0][1] + log_sigmoid(parameter(p)) for p in ("p1", "p2")]
    costs = interpolate(b(semiring="min-plus"), b(semiring="min-plus"))
    assert [w for _, w in costs.finals] == [
        b().finals[0][1] + -log_sigmoid(parameter(p)) for p in ("p1", "p2")
    ]
    given = interpolate(b(), b("C"), 0.25, r)
    assert [w for _, w in given.finals] == [b().finals[0][1] * 0.25, b().finals[0][1] * r]


def test_interpolation_learns_weights_of_its_own() -> None:
    twice = interpolate(interpolate(b(), b()), b().loop("q1", linear("p4"), merge="plus"))
    used = {w.right.argument.name for _, w in twice.finals}  # type: ignore[attr-defined]
    assert used == {"p3", "p5"}


def test_names_of_results_stay_short() -> None:
    cell = b("B" * 40)
    for combine in (union, concatenate, interpolate):
        assert len(combine(cell, cell).check().name) == 64


def test_clashing_labels_are_kept_apart() -> None:
    a = Cell.from_text(b().to_text())
    other = Cell("C").initial("q0").arc("q0", "q1", tanh(u).named("f")).final("q1").output(tanh(score))
    text = union(a, other).to_text()
    assert 'f = sigmoid(linear("f", bias=True))' in text and 'f_ = tanh(linear("u"))' in text
    assert Cell.from_text(text) == union(a, other)
    assert union(a, a).to_text().count("sigmoid") == 1  # equal expressions share their name


@pytest.mark.parametrize("combine", [union, concatenate, interpolate])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: b(semiring="log"), "compose over one semiring; got real and log"),
        (lambda c: c.output(score), "different output expressions: pass output="),
        (lambda c: c.limit_epsilon(2), "epsilon_limit"),
        (
            lambda c: Cell("C").initial("q0").loop("q0", linear("f")).final("q0").output(tanh(score)),
            r"uses the name 'f' in two ways.*relabel\(cell, prefix=\"b_\"\)",
        ),
    ],
)
def test_mistakes(combine: Callable[..., Cell], change: Callable[[Cell], Cell], message: str) -> None:
    with pytest.raises(CellError, match=message):
        combine(b(), change(b("C")))


@pytest.mark.parametrize("combine", [union, concatenate, interpolate])
def test_only_cells_make_cells(combine: Callable[..., Cell]) -> None:
    for given in ((b(), "C"), (object(), b())):
        with pytest.raises(CellError, match=r"makes a cell from cells; got (str|object).*get_cell"):
            combine(*given)
    for call in (lambda: scale("B", one), lambda: relabel("B", prefix="b_")):  # pyright: ignore[reportArgumentType]
        with pytest.raises(CellError, match="makes a cell from cells; got str"):
            call()


def test_a_limit_on_epsilon() -> None:
    limited = b().limit_epsilon(1, after_last=False)
    assert union(limited, limited).epsilon_limit == 1 and not union(limited, limited).epsilon_after_last
    with pytest.raises(CellError, match=r"epsilon_limit would count those too.*then call .limit_epsilon"):
        concatenate(limited, limited)
    with pytest.raises(
        CellError, match=r"same epsilon_limit; got 1 and 1 .*after the last symbol: False and True"
    ):
        union(limited, b().limit_epsilon(1))


def test_default_weights_fit_no_boolean_cell() -> None:
    cell = Cell("X", "boolean").initial("q0").loop("q0", step(u)).final("q0")
    with pytest.raises(CellError, match="provably one of the two"):
        interpolate(cell, cell)
    assert interpolate(cell, cell, one, step(parameter("r"))).check()


def test_relabel() -> None:
    cell = relabel(b(), {"q1": "end"}, prefix="b_")
    assert cell.states == ("q0", "end")
    assert 'linear("b_f", bias=True)' in cell.to_text()
    assert relabel(b()) == b()
    assert relabel(Cell("X").initial("q0").loop("q0", u.named("w")).final("q0"), prefix="a_").arcs[
        0
    ].weight.label == ("a_w")
    apart = union(b(), relabel(b(), prefix="b_"))
    assert 'linear("f", bias=True)' in apart.to_text() and 'linear("b_f", bias=True)' in apart.to_text()


@pytest.mark.parametrize(
    ("states", "prefix", "message"),
    [
        ({"q7": "x"}, "", "unknown state 'q7': cell 'B' has q0, q1"),
        ({"q0": "q1"}, "", "two states of cell 'B' would get the same name"),
        ({"q0": "q 0"}, "", "a state's name must be an identifier"),
        ({}, "1", "a projection's name must be an identifier"),
        ({}, "x" * 64, "a projection's name must be an identifier"),
    ],
)
def test_relabel_mistakes(states: dict[str, str], prefix: str, message: str) -> None:
    with pytest.raises(CellError, match=message):
        relabel(b(), states, prefix)
    assert relabel(b(), {"q0": "q1", "q1": "q0"}).states == ("q1", "q0")
