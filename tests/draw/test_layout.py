"""Where things stand: as in the paper's figures, and readable."""

from __future__ import annotations

import itertools

import pytest
from drawings import random_cell

from rrnn.automata import Cell, linear, one
from rrnn.draw import diagram_of
from rrnn.draw.layout import Scene, layers, scene
from rrnn.zoo import get_cell


def drawn(cell: Cell | str) -> Scene:
    return scene(diagram_of(get_cell(cell) if isinstance(cell, str) else cell))


def test_f_as_in_the_paper() -> None:
    at = {key: shape.center for key, shape in drawn("F").shapes.items()}
    assert at["q0"].y == at["q1"].y == at["q2"].y < at["q3"].y
    assert at["q0"].x < at["q1"].x == at["q3"].x < at["q2"].x


@pytest.mark.parametrize("n", [1, 2, 4, 10])
def test_chains_are_straight(n: int) -> None:
    picture = drawn(f"ngram{n}")
    centers = [shape.center for shape in picture.shapes.values()]
    steps = [b.x - a.x for a, b in itertools.pairwise(centers)]
    assert {c.y for c in centers} == {0}
    assert (
        max(steps) - min(steps) < 1e-6 and 100 < steps[0] < 200
    )  # evenly, and neither cramped nor stretched
    for route in picture.routes:
        assert route.bend == 0
        assert route.loop in (None, 90.0)  # above


def test_columns_by_distance() -> None:
    cell = Cell("D").initial("a").arc("a", "b", one).arc("a", "c", one).arc("b", "d", one).arc("c", "d", one)
    diagram = diagram_of(cell.arc("e", "d", one).final("d"))
    assert layers(diagram) == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}
    at = {key: shape.center for key, shape in scene(diagram).shapes.items()}
    assert at["a"].x < at["b"].x == at["c"].x < at["d"].x < at["e"].x


def test_arcs_both_ways_are_bent() -> None:
    cell = Cell("T").initial("q0").arc("q0", "q1", linear("u")).arc("q1", "q0", linear("v")).final("q1")
    there, back = drawn(cell).routes
    assert there.bend == back.bend > 0  # each to its own left: they do not meet
    middle = [r.curve.at(0.5).y for r in (there, back)]
    assert middle[1] - middle[0] > 40


def test_an_arc_goes_around_a_state_in_its_way() -> None:
    cell = Cell("S").initial("q0").arc("q0", "q1", one).arc("q1", "q2", one).arc("q2", "q0", one).final("q2")
    picture = drawn(cell)
    back = picture.routes[2]
    assert min(picture.shapes["q1"].distance(*p) for p in back.curve.points(100)) > 5


def test_a_shortcut_keeps_the_chain_in_a_row() -> None:
    cell = Cell("S").initial("q0").final("q5")
    for i in range(5):
        cell = cell.arc(f"q{i}", f"q{i + 1}", linear(f"u{i}"))
    cell = cell.arc("q0", "q2", one).arc("q3", "q5", one)
    assert len({shape.center.y for shape in drawn(cell).shapes.values()}) <= 2


def test_circles_have_one_size() -> None:
    assert len({shape.radius for shape in drawn("F").shapes.values()}) == 1
    assert all(shape.stretch == 0 for shape in drawn("F").shapes.values())


def test_equal_automata_give_equal_pictures() -> None:
    one_, other = (drawn(random_cell(5, 5, 0.4)) for _ in range(2))
    assert one_ == other


def test_one_state() -> None:
    cell = Cell("One").initial("q").loop("q", one).final("q")
    assert drawn(cell).misplaced == 0
