"""The two functions of this folder, and what they share."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path

from rrnn.automata import Cell
from rrnn.draw.cells import cell_diagram
from rrnn.draw.diagram import Diagram
from rrnn.draw.dot import write_dot
from rrnn.draw.scene import scene
from rrnn.draw.svg import write_svg
from rrnn.errors import AutomatonError, FormatError
from rrnn.wfsa import WFSA

MAX_STATES, MAX_EDGES = 70, 200
"""Beyond this a picture says nothing, and finding room for its labels takes minutes."""


class SVG(str):
    """An SVG picture: a string that notebooks show as a picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, whole or not at all."""
        return save(path, self)


def to_svg(
    x: Cell | WFSA | Diagram,
    highlight: Iterable[Hashable | tuple[Hashable, Hashable]] | None = None,
    *,
    legend: bool = True,
) -> SVG:
    """The automaton as SVG: bold circles are initial, double circles final, arcs say `symbol/weight`.

    `highlight` names states, and arcs as (source, target), to colour, such as those of a best path. `legend=False`
    leaves out the definitions below a cell. Equal automata give equal pictures, byte for byte.
    """
    diagram = diagram_of(x, legend=legend)
    if len(diagram.nodes) > MAX_STATES or len(diagram.edges) > MAX_EDGES:
        raise AutomatonError(
            f"a picture has at most {MAX_STATES} states and {MAX_EDGES} arrows; this automaton has "
            f"{len(diagram.nodes)} and {len(diagram.edges)}. to_dot gives text for programs that draw more."
        )
    return SVG(write_svg(scene(diagram), _marked(diagram, highlight or ())))


def to_dot(x: Cell | WFSA | Diagram, *, legend: bool = True) -> str:
    """The automaton as text for Graphviz, with the labels of `to_svg`."""
    return write_dot(diagram_of(x, legend=legend))


def diagram_of(x: Cell | WFSA | Diagram, *, legend: bool = True) -> Diagram:
    """States, arcs and labels of what can be drawn."""
    match x:
        case Diagram():
            return x
        case Cell():
            return cell_diagram(x, legend=legend)
        case WFSA():
            from rrnn.draw.machines import wfsa_diagram

            return wfsa_diagram(x)
    raise AutomatonError(f"a cell, a WFSA or a Diagram can be drawn; got {type(x).__name__}")


def _marked(diagram: Diagram, items: Iterable[Hashable]) -> frozenset[tuple[Hashable, ...]]:
    """States as (state,), arcs as (source, target). A tuple that is itself a state counts as that state."""
    states = {node.key for node in diagram.nodes}
    arcs = {(edge.source, edge.target) for edge in diagram.edges}
    marked: set[tuple[Hashable, ...]] = set()
    for item in items:
        if item in states:
            marked.add((item,))
        elif isinstance(item, tuple) and item in arcs:
            marked.add(item)
        else:
            raise AutomatonError(
                f"highlight names states and arcs (source, target) of the automaton; it has no {item!r}"
            )
    return frozenset(marked)


def save(path: str | os.PathLike[str], text: str) -> Path:
    """Write a picture or its dot text, whole or not at all; what cannot be written is a `FormatError`."""
    from rrnn.wfsa.io.files import write_text

    try:
        write_text(path, text)
    except (OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        why = getattr(error, "strerror", None) or error  # a path with a NUL in it is a ValueError
        raise FormatError(
            f"cannot write the picture: {why}. Name a file in a folder that exists and that you may write to.",
            source=os.fspath(path),
        ) from None
    return Path(path)
