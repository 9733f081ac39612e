"""Nothing overlaps: no label touches an arc, a state or another label, in any picture."""

from __future__ import annotations

import random
from typing import Any

import pytest
from drawings import collisions, random_cell

from rrnn.automata import Cell, concatenate, interpolate, union
from rrnn.draw import diagram_of
from rrnn.draw.layout import scene
from rrnn.draw.paper_figures import FIGURES
from rrnn.draw.routing import Router
from rrnn.wfsa import WFSA
from rrnn.zoo import CELLS, get_cell

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", [*CELLS, "F+o", "ngram1", "ngram2", "ngram10"])
def test_the_zoo(name: str) -> None:
    assert collisions(scene(diagram_of(get_cell(name)))) == []


@pytest.mark.parametrize("name", FIGURES)
def test_the_paper(name: str) -> None:
    assert collisions(scene(FIGURES[name]())) == []


@pytest.mark.parametrize("compose", [union, concatenate, interpolate])
def test_composed_cells(compose) -> None:
    assert collisions(scene(diagram_of(compose(get_cell("F"), get_cell("C"))))) == []


SPECIMENS = [(seed, 2 + seed % 5, (0.15, 0.3, 0.5)[seed % 3]) for seed in range(20)]


@pytest.mark.parametrize(("seed", "states", "density"), SPECIMENS)
def test_random_cells(seed: int, states: int, density: float) -> None:
    assert collisions(scene(diagram_of(random_cell(seed, states, density)))) == []


def test_all_arcs_of_six_states() -> None:
    assert collisions(scene(diagram_of(random_cell(0, 6, 1.0)))) == []


def test_all_arcs_of_eight_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even so dense an automaton is drawn without overlaps, and without trying every spread with all curves."""
    routers: list[Router] = []

    class Counted(Router):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            routers.append(self)

    monkeypatch.setattr("rrnn.draw.layout.Router", Counted)
    assert collisions(scene(diagram_of(random_cell(0, 8, 1.0)))) == []
    assert len(routers) <= 8


@pytest.mark.parametrize("states", [8, 12])
def test_larger_cells(states: int) -> None:
    assert collisions(scene(diagram_of(random_cell(states, states, 0.08)))) == []


@pytest.mark.parametrize("seed", range(4))
def test_random_wfsas(seed: int) -> None:
    rng = random.Random(seed)
    alphabet = ["a", "b", "the", "word"][: 2 + seed % 3]
    arcs = [
        (q, a, r, rng.uniform(-1, 1))
        for q in range(4)
        for a in alphabet
        for r in range(4)
        if rng.random() < 0.3
    ]
    machine = WFSA(
        alphabet=alphabet, arcs=[*arcs, (0, "a", 9, 1e-7)], initial={0: 0.5}, final={9: 1 / 3, 1: 2}
    )
    assert collisions(scene(diagram_of(machine))) == []


def test_long_names() -> None:
    start, end = "the_beginning_of_it_all", "a_state_whose_name_is_far_too_long_for_a_circle"
    cell = Cell("L").initial(start, 0.5).loop(start, 0.5).arc(start, end, 1.0).arc(end, start, 3.0)
    assert collisions(scene(diagram_of(cell.loop(end, 0.25).final(end, 0.125)))) == []
