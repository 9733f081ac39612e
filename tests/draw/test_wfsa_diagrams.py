"""WFSAs as diagrams: one edge for all arcs between two states."""

from __future__ import annotations

from itertools import pairwise

from rrnn.draw import diagram_of, to_svg
from rrnn.draw.automaton_diagrams import LINES
from rrnn.draw.richtext import plain
from rrnn.wfsa import EPSILON, WFSA, automaton_f


def labels(machine: WFSA) -> dict[tuple[object, object], list[str]]:
    return {(e.source, e.target): [plain(line) for line in e.lines] for e in diagram_of(machine).edges}


def circles(machine: WFSA) -> list[list[str]]:
    diagram = diagram_of(machine)
    return [[plain(line) for line in diagram.lines(node)] for node in diagram.nodes]


def test_f() -> None:
    mu, phi = {"a": 0.5, "b": 0.25}, {"a": 2 / 3, "b": 0.9}
    machine = automaton_f("ab", mu, phi, mu, phi, 0.3, 0.5, 0.125)
    assert labels(machine) == {
        ("q0", "q0"): ["∀α/1"],
        ("q0", "q1"): ["a/0.5, b/0.25"],
        ("q1", "q1"): ["a/0.667, b/0.9"],
        ("q1", "q2"): ["a/0.5, b/0.25"],
        ("q2", "q2"): ["a/0.667, b/0.9"],
        ("q0", "q3"): ["ε/0.3"],
        ("q3", "q2"): ["a/0.5, b/0.25"],
    }
    assert circles(machine) == [["q₀"], ["q₁", "ρ=0.5"], ["q₂", "ρ=0.125"], ["q₃"]]


def test_labels_wrap() -> None:
    arcs = [(0, a, 0, 0.125 * i) for i, a in enumerate("abcde", 1)]
    machine = WFSA(alphabet="abcde", arcs=arcs, initial={0: 1}, final={0: 1})
    assert labels(machine) == {(0, 0): ["a/0.125, b/0.25,", "c/0.375, d/0.5,", "e/0.625"]}


def test_a_label_ends_somewhere() -> None:
    arcs = [(0, f"word{i}", 0, i / 7) for i in range(1, 60)]
    machine = WFSA(alphabet=[f"word{i}" for i in range(60)], arcs=arcs, initial={0: 1}, final={0: 1})
    diagram = diagram_of(machine)
    lines = labels(machine)[(0, 0)]
    assert len(lines) == LINES and lines[-1] == "… 52 more"
    assert "word59/8.43" in diagram.description  # nothing is lost to those who hear it


def test_odd_symbols_are_quoted() -> None:
    symbols = ["a b", "", "x,y", "ε", 7, ("t", 1), "it's"]
    arcs = [(0, s, 0, 1.0 + i) for i, s in enumerate(symbols)]
    machine = WFSA(alphabet=symbols, arcs=arcs, initial={0: 1}, final={0: 1})
    text = " ".join(labels(machine)[(0, 0)])
    assert text == "'a b'/1, ''/2, 'x,y'/3, 'ε'/4, 7/5, ('t', 1)/6, \"it's\"/7"


def test_ends_and_zeros() -> None:
    arcs = [(0, "a", 1, -1.0), (1, "a", 0, float("-inf")), (0, EPSILON, 1, -2.0)]
    machine = WFSA("log", alphabet="a", arcs=arcs, initial={0: -0.5, 1: 0.0}, final={1: -0.25})
    assert labels(machine) == {(0, 1): ["a/−1, ε/−2"]}
    assert circles(machine) == [["0", "λ=−0.5"], ["1", "ρ=−0.25"]]


def test_states_of_any_kind() -> None:
    states = [("q0", 1), "", None, "q0", 3]
    arcs = [(a, "x", b, 1.0) for a, b in pairwise(states)]
    machine = WFSA(alphabet="x", arcs=arcs, initial={states[0]: 1}, final={3: 1})
    assert circles(machine) == [["(q₀,1)"], ["''"], ["None"], ["q₀"], ["3"]]


def test_elements_of_several_components() -> None:
    arcs = [(0, "a", 0, complex(-0.0, -1 / 3)), (0, "b", 0, 2.0)]
    machine = WFSA("complex", alphabet="ab", arcs=arcs, initial={0: 1}, final={0: 1j})
    svg = to_svg(machine)
    assert "⟨0, −0.333⟩" in svg and "⟨2, 0⟩" in svg and "⟨0, 1⟩" in svg and "−0," not in svg
