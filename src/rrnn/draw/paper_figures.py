"""Draw the figures of the paper: the automata B, C, D₁ and F with the labels that they have there.

B, C and F are the cells of the zoo, whose weights u, f, r and p the paper's figures call μ, φ, γ and ρ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rrnn.draw.automaton_diagrams import cell_diagram
from rrnn.draw.diagram import Diagram, Edge, Node
from rrnn.draw.richtext import ALPHA, Span, argument, for_all, name_text, roman
from rrnn.zoo import get_cell

GREEK_NAMES = {"u": "mu", "f": "phi", "r": "gamma", "p": "rho"}
D1_WEIGHTS = {
    ("q1", "q1"): None,
    ("q1", "q2"): "eta_1",
    ("q2", "q2"): "mu_1_1",
    ("q2", "q3"): "mu_2_1",
    ("q3", "q2"): "mu_1_2",
    ("q3", "q3"): "mu_2_2",
    ("q4", "q3"): "eta_2",
    ("q4", "q4"): None,
}


def cell_figure(name: str) -> Diagram:
    """Return the figure of B, C or F."""

    def rename(weight: str) -> str:
        return GREEK_NAMES[weight[0]] + weight[1:]

    diagram = cell_diagram(get_cell(name), legend=False, rename=rename)
    return replace(diagram, title=_title(name))


def d1() -> Diagram:
    """Return the figure of the first dimension of a two-dimensional ISAN. (In D₂ the final state is q₃ instead.)"""
    nodes = tuple(Node(f"q{i}", name_text(f"q{i}"), initial=i in (1, 4), final=i == 2) for i in (1, 2, 3, 4))
    one = (*for_all(), Span("/"), *roman("1"))
    edges = tuple(
        Edge(*ends, (one if name is None else (*ALPHA, Span("/"), *argument(name_text(name))),))
        for ends, name in D1_WEIGHTS.items()
    )
    places = {node.key: (float(i), 0.0) for i, node in enumerate(nodes)}
    return Diagram(_title("D₁"), nodes, edges, places=places)


FIGURES: dict[str, Callable[[], Diagram]] = {
    "B": partial(cell_figure, "B"),
    "C": partial(cell_figure, "C"),
    "D1": d1,
    "F": partial(cell_figure, "F"),
}
"""Name → what makes the figure."""


def _title(name: str) -> str:
    return f"The weighted automaton {name} of Rational Recurrences (Peng et al., 2018)"
