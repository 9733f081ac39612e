"""A diagram as Graphviz dot text, with the same labels as the SVG."""

from __future__ import annotations

from rrnn.draw.diagram import Diagram
from rrnn.draw.text import plain


def write_dot(diagram: Diagram) -> str:
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
    """A dot string; a backslash of a name is not the start of an escape."""
    text = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'
