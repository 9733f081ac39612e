"""Describe what is drawn, before anything has a place: states, arcs and their labels. Write it as dot text."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from rrnn.draw.richtext import Span, Text, plain
from rrnn.errors import AutomatonError

BESIDE = 5
"""The number of characters of name and weight that fit in a circle side by side, as q₁/ρ₁."""


@dataclass(frozen=True)
class Node:
    """A state. A weight is None where there is nothing to write: the state is not initial, or its weight is one."""

    key: Hashable
    name: Text
    initial: bool = False
    final: bool = False
    initial_weight: Text | None = None
    final_weight: Text | None = None
    copies: int = 1
    """The number of states that a node stands for: a family is drawn once."""

    @property
    def title(self) -> str:
        """The state in words, for screen readers."""
        words: list[str] = []
        if self.initial:
            words.append(
                "initial" + (f" with weight {plain(self.initial_weight)}" if self.initial_weight else "")
            )
        if self.final:
            words.append("final" + (f" with weight {plain(self.final_weight)}" if self.final_weight else ""))
        what = "state" if self.copies == 1 else f"family of {self.copies} states"
        return f"{what} {plain(self.name)}" + (f", {' and '.join(words)}" if words else "")


@dataclass(frozen=True)
class Edge:
    """All arcs from one state to another, with a label of one line or more."""

    source: Hashable
    target: Hashable
    lines: tuple[Text, ...]
    entries: tuple[Text, ...] = ()
    """The label in full, where `lines` leave something out."""


@dataclass(frozen=True)
class Diagram:
    """Nodes, and at most one edge from one node to another. `places` (column, row) override the layout."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    legend: tuple[Text, ...] = ()
    places: Mapping[Hashable, tuple[float, float]] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        states, arcs = [n.key for n in self.nodes], [(e.source, e.target) for e in self.edges]
        places = [] if self.places is None else [self.places.get(q) for q in states]
        unknown = [q for arc in arcs for q in arc if q not in states]
        problems = {
            "it has no state": not states,
            "a state comes twice": len(set(states)) < len(states),
            f"an edge has an end {unknown[:1]} that is no state": unknown,
            "two edges have the same ends; give one edge several lines": len(set(arcs)) < len(arcs),
            "each state needs a place of its own": None in places or len(set(places)) < len(places),
        }
        for problem, present in problems.items():
            if present:
                raise AutomatonError(
                    f"a diagram has states, and at most one edge from one to another; here {problem}"
                )

    def lines(self, node: Node) -> tuple[Text, ...]:
        """Return the lines in the circle: `q₁/ρ₁` where that fits all states, else the weights below the name."""
        start, end = node.initial_weight, node.final_weight
        if end is not None and all(map(_fits_beside, self.nodes)):
            return ((*node.name, Span("/"), *end),)
        lines = [node.name]
        if start is not None:
            lines.append((Span("λ", italic=True), Span("="), *start))
        if end is not None:
            lines.append((Span("ρ", italic=True), Span("="), *end))
        return tuple(lines)

    def edge_title(self, edge: Edge) -> str:
        """Describe the arcs of an edge in words."""
        names = {node.key: plain(node.name) for node in self.nodes}
        labels = ", ".join(map(plain, edge.entries or edge.lines))
        return f"{names[edge.source]} → {names[edge.target]}: {labels}"

    @property
    def description(self) -> str:
        """The whole picture in words."""
        parts = [*(n.title for n in self.nodes), *map(self.edge_title, self.edges), *map(plain, self.legend)]
        return "; ".join(parts)


def _fits_beside(node: Node) -> bool:
    long = len(plain(node.name)) + len(plain(node.final_weight or ())) > BESIDE
    return node.final_weight is None or not (node.initial_weight or long)


# ---- dot --------------------------------------------------------------------------------------------------------


def write_dot(diagram: Diagram) -> str:
    """Return the diagram as text for Graphviz, with the labels of the SVG."""
    number = {node.key: i for i, node in enumerate(diagram.nodes)}
    lines = ["digraph automaton {", "  rankdir=LR;", "  node [shape=circle];"]
    if diagram.legend:
        lines.append(f"  label={_quoted(*map(plain, diagram.legend))};")
    for node in diagram.nodes:
        shape = ", shape=doublecircle" if node.final else ""
        style = ", style=bold" if node.initial else ""
        lines.append(
            f"  n{number[node.key]} [label={_quoted(*map(plain, diagram.lines(node)))}{shape}{style}];"
        )
    for edge in diagram.edges:
        ends = f"n{number[edge.source]} -> n{number[edge.target]}"
        lines.append(f"  {ends} [label={_quoted(*map(plain, edge.lines))}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(*lines: str) -> str:
    """Return a dot string, in which a backslash of a name does not start an escape."""
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'
