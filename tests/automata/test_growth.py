"""The warning of loops whose states provably grow without bound."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from rrnn.automata import (
    Cell,
    complex,
    construct,
    exp,
    linear,
    log_sigmoid,
    one,
    pair,
    parameter,
    sigmoid,
    softplus,
)
from rrnn.automata import expressions as ex
from rrnn.errors import CellError, GrowthWarning
from rrnn.ir import lower
from rrnn.nn import RationalRNN
from rrnn.zoo import CELLS, get_cell

u = linear("u")


def loop(semiring: str, weight: Any) -> Cell:
    cell = (
        Cell("X", semiring).initial("q0").loop("q0", one).arc("q0", "q1", 1 if semiring == "boolean" else one)
    )
    return cell.loop("q1", weight).final("q1")


@pytest.mark.parametrize("name", ["F", "B", "C"])
def test_gates_over_max_plus_are_no_logarithms(name: str) -> None:
    """One warning, however many loops there are and however often the cell is used; it names the line that asked."""
    with pytest.warns(GrowthWarning) as caught:
        cell = get_cell(name).with_semiring("max-plus")
        cell.check()
        lower(cell)
        RationalRNN(cell, 2, 3)
    assert len(caught) == 1 and caught[0].filename == __file__
    message, gate = str(caught[0].message), "f" if name == "B" else "f1"
    assert f"cell {name!r}: the loop at 'q1' has the weight sigmoid(linear(\"{gate}\", bias=True))" in message
    states = "its state grows" if name == "B" else "their states grow"
    assert f"which over max-plus is always stronger than one (0), so {states} without bound" in message
    assert f'use those of the real weights, as log_sigmoid(linear("{gate}", bias=True))' in message
    assert ('log_sigmoid(linear("f2", bias=True))' in message) == (name != "B")


def test_weights_that_do_not_fit_are_no_matter_of_growth() -> None:
    cell = loop("complex", complex(2, u))
    with pytest.raises(CellError, match="a constructor of the complex semiring"):
        cell.with_semiring("real").check()


@pytest.mark.parametrize("name", CELLS)
def test_no_cell_of_the_zoo_grows(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_cell(name).check()


@pytest.mark.parametrize(
    ("semiring", "weight"),
    [
        ("real", 1.5),
        ("real", -1.5),
        ("real", 1 + exp(u)),
        ("max-plus", 0.5),
        ("max-plus", softplus(u)),
        ("log", sigmoid(u)),
        ("min-plus", -1),
        ("min-plus", log_sigmoid(u)),
        ("max-times", 1 + sigmoid(u)),
        ("complex", complex(2, u)),
        ("expectation", pair(2, u)),
        ("signed-log", construct("signed", -1, 1)),
    ],
    ids=range(12),
)
def test_loops_that_grow(semiring: str, weight: Any) -> None:
    one_of_it = str(Cell("X", semiring).semiring.one)
    with pytest.warns(GrowthWarning, match=f"over {semiring} is always stronger than one") as caught:
        loop(semiring, weight).check()
    assert len(caught) == 1
    assert f"({one_of_it})" in str(caught[0].message) or semiring not in (
        "complex",
        "expectation",
        "signed-log",
    )


@pytest.mark.parametrize(
    ("semiring", "weight"),
    [
        ("real", one),
        ("real", 1),
        ("real", u),
        ("real", 2 * sigmoid(u)),
        ("real", 1 + u),
        ("max-plus", log_sigmoid(u)),
        ("max-plus", one),
        ("max-plus", u),
        ("min-plus", softplus(u)),
        ("max-times", exp(u)),
        ("boolean", one),
        ("counting", 2),  # counts are there to grow
        ("complex", complex(u, 1)),
        ("complex", one),
        ("signed-log", u),
    ],
    ids=range(15),
)
def test_loops_that_may_stay_bounded(semiring: str, weight: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(semiring, weight).check()


def test_arcs_that_are_no_loops_may_be_strong() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Cell("X").initial("q0", 3).arc("q0", "q1", 5).epsilon("q1", "q2", 7).final(
            "q2", parameter("p")
        ).check()
        Cell("X").initial("q0").epsilon("q0", "q0", ex.as_expr(2)).loop("q0", one).final("q0").limit_epsilon(
            2
        ).check()
