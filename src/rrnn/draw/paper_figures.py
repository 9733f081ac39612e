"""The paper's figures: the automata B, C, D₁ and F with the labels they have there.

The zoo's cells of the same names say which weight functions the models use; here the weights are μ, φ, γ, ρ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rrnn.automata import Cell, linear, one, parameter
from rrnn.draw.automaton_diagrams import cell_diagram
from rrnn.draw.diagram import Diagram, Edge, Node
from rrnn.draw.richtext import ALPHA, FOR_ALL, Span, Text, argument, name_text, roman


def b() -> Diagram:
    """Two states: soft unigrams."""
    cell = Cell("B").initial("q0").loop("q0", one)
    return _figure(cell.arc("q0", "q1", linear("mu")).loop("q1", linear("phi")).final("q1"))


def c() -> Diagram:
    """Three states: soft bigrams, with gaps."""
    cell = Cell("C").initial("q0").loop("q0", one).arc("q0", "q1", linear("mu1")).loop("q1", linear("phi1"))
    return _figure(cell.arc("q1", "q2", linear("mu2")).loop("q2", linear("phi2")).final("q2"))


def d1() -> Diagram:
    """The first dimension of a two-dimensional ISAN; D₂ has q₃ as its final state instead."""
    nodes = tuple(Node(f"q{i}", name_text(f"q{i}"), initial=i in (1, 4), final=i == 2) for i in (1, 2, 3, 4))
    weights = {
        ("q1", "q1"): None,
        ("q1", "q2"): "eta_1",
        ("q2", "q2"): "mu_1_1",
        ("q2", "q3"): "mu_2_1",
        ("q3", "q2"): "mu_1_2",
        ("q3", "q3"): "mu_2_2",
        ("q4", "q3"): "eta_2",
        ("q4", "q4"): None,
    }
    edges = tuple(Edge(source, target, (_label(name),)) for (source, target), name in weights.items())
    places = {node.key: (float(i), 0.0) for i, node in enumerate(nodes)}
    return Diagram(_title("D₁"), nodes, edges, places=places)


def f() -> Diagram:
    """Four states: unigrams and bigrams, and an ε-arc that skips the first word of a bigram."""
    cell = (
        Cell("F")
        .initial("q0").loop("q0", one)
        .arc("q0", "q1", linear("mu1")).loop("q1", linear("phi1"))
        .arc("q1", "q2", linear("mu2")).loop("q2", linear("phi2"))
        .epsilon("q0", "q3", parameter("gamma")).arc("q3", "q2", linear("mu2"))
        .final("q1", parameter("rho1")).final("q2", parameter("rho2"))
    )  # fmt: skip
    return _figure(cell)


FIGURES: dict[str, Callable[[], Diagram]] = {"B": b, "C": c, "D1": d1, "F": f}
"""Name → figure."""


def _figure(cell: Cell) -> Diagram:
    return replace(cell_diagram(cell, legend=False), title=_title(cell.name))


def _title(name: str) -> str:
    return f"The weighted automaton {name} of Rational Recurrences (Peng et al., 2018)"


def _label(name: str | None) -> Text:
    if name is None:
        return (*FOR_ALL, Span("/"), *roman("1"))
    return (*ALPHA, Span("/"), *argument(name_text(name)))
