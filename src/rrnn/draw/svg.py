"""Draw automata as SVG in the style of the paper's figures, for light and dark pages and for screen readers."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable
from html import escape
from pathlib import Path

from rrnn.automata import Cell
from rrnn.draw.automaton_diagrams import diagram_of
from rrnn.draw.diagram import Diagram, Node, write_dot
from rrnn.draw.geometry import (
    ASCENT,
    LABEL_SIZE,
    LEGEND_SIZE,
    LINE,
    RING,
    Bezier,
    Box,
    Point,
    Shape,
    block_size,
    line_sizes,
)
from rrnn.draw.layout import Scene, scene
from rrnn.draw.richtext import SUB_DROP, SUB_SIZE, Text
from rrnn.draw.routing import HEAD_LENGTH, Route
from rrnn.errors import AutomatonError, FormatError
from rrnn.wfsa import WFSA
from rrnn.wfsa.io.files import write_text

MAX_STATES, MAX_EDGES = 70, 200
"""A larger picture would be unreadable, and finding room for its labels would take minutes."""


class SVG(str):
    """An SVG picture: a string that notebooks show as a picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file, whole or not at all."""
        return save(path, self)


def to_svg(
    x: Cell | WFSA | Diagram,
    highlight: Iterable[Hashable | tuple[Hashable, Hashable]] | None = None,
    *,
    legend: bool = True,
) -> SVG:
    """Draw an automaton as SVG: bold circles are initial, double circles final, labels are `symbol/weight`.

    `highlight` lists the states, and the arcs as (source, target), to colour, such as those of a best path.
    `legend=False` leaves out the definitions below a cell. Equal automata give the same bytes.
    """
    diagram = diagram_of(x, legend=legend)
    if len(diagram.nodes) > MAX_STATES or len(diagram.edges) > MAX_EDGES:
        raise AutomatonError(
            f"a picture has at most {MAX_STATES} states and {MAX_EDGES} arrows; this automaton has "
            f"{len(diagram.nodes)} and {len(diagram.edges)}. Use to_dot, and Graphviz, for larger ones."
        )
    return SVG(write_svg(scene(diagram), _marked(diagram, highlight or ())))


def to_dot(x: Cell | WFSA | Diagram, *, legend: bool = True) -> str:
    """Return the automaton as dot text for Graphviz, with the labels of `to_svg`."""
    return write_dot(diagram_of(x, legend=legend))


def _marked(diagram: Diagram, items: Iterable[Hashable]) -> frozenset[tuple[Hashable, ...]]:
    """Return highlighted states as (state,) and arcs as (source, target). A tuple that is a state counts as one."""
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
                f"highlight lists states and arcs (source, target) of the automaton; it has no {item!r}"
            )
    return frozenset(marked)


def save(path: str | os.PathLike[str], text: str) -> Path:
    """Write a picture or its dot text, whole or not at all. Raise a `FormatError` if the file cannot be written."""
    try:
        write_text(path, text)
    except (OSError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        why = getattr(error, "strerror", None) or error  # a path with a NUL raises a ValueError
        raise FormatError(
            f"cannot write the picture: {why}. Name a file in a folder that exists and that you may write to.",
            source=os.fspath(path),
        ) from None
    return Path(path)


# ---- SVG elements -----------------------------------------------------------------------------------------------


MARGIN = 14.0
# Every rule names the class of the picture, so that it cannot reach anything else in a page.
STYLE = """
.rrnn-fsa{color-scheme:light dark}
.rrnn-fsa text{font-family:serif;fill:#1b1b1b;stroke:#fff;stroke-width:3px;stroke-linejoin:round;paint-order:stroke}
.rrnn-fsa .paper{fill:#fff}
.rrnn-fsa .state,.rrnn-fsa .arc{fill:none;stroke:#1b1b1b;stroke-width:1.3px}
.rrnn-fsa .initial{stroke-width:3px}
.rrnn-fsa .head{fill:#1b1b1b;stroke:none}
.rrnn-fsa .on .state,.rrnn-fsa .on .arc{stroke:#c2330f}
.rrnn-fsa .on .arc{stroke-width:2.2px}
.rrnn-fsa .on .head,.rrnn-fsa .on text{fill:#c2330f}
@media (prefers-color-scheme:dark){
.rrnn-fsa text{fill:#e6e6e6;stroke:#16181d}
.rrnn-fsa .paper{fill:#16181d}
.rrnn-fsa .state,.rrnn-fsa .arc{stroke:#e6e6e6}
.rrnn-fsa .head{fill:#e6e6e6}
.rrnn-fsa .on .state,.rrnn-fsa .on .arc{stroke:#ff8a66}
.rrnn-fsa .on .head,.rrnn-fsa .on text{fill:#ff8a66}
}
""".strip()


def write_svg(scene: Scene, highlight: frozenset[tuple[Hashable, ...]] = frozenset()) -> str:
    """Return a scene as SVG text. `highlight` contains states as (key,) and arcs as (source, target)."""
    picture = scene.box
    legend = scene.diagram.legend
    legend_width, legend_height = block_size(legend, LEGEND_SIZE) if legend else (0.0, -MARGIN)
    wide = max(picture.right - picture.left, legend_width)
    left = (picture.left + picture.right - wide) / 2
    view = Box(
        left - MARGIN, picture.top - MARGIN, left + wide + MARGIN, picture.bottom + 2 * MARGIN + legend_height
    )
    width, height = view.right - view.left, view.bottom - view.top
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rrnn-fsa" role="img" width="{_n(width)}" '
        f'height="{_n(height)}" viewBox="{_n(view.left)} {_n(view.top)} {_n(width)} {_n(height)}">',
        f"<title>{escape(scene.diagram.title)}</title>",
        f"<desc>{escape(scene.diagram.description)}</desc>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" x="{_n(view.left)}" y="{_n(view.top)}" width="{_n(width)}" '
        f'height="{_n(height)}" rx="6"/>',
    ]
    for node in scene.diagram.nodes:
        out += _stack(scene.shapes[node.key]) if node.copies > 1 else []
    for edge, route in zip(scene.diagram.edges, scene.routes, strict=True):
        out += _group(_arc(route), (edge.source, edge.target) in highlight)
    for node in scene.diagram.nodes:
        out += _group(
            _state(node, scene.diagram.lines(node), scene.shapes[node.key]), (node.key,) in highlight
        )
    for edge, box in zip(scene.diagram.edges, scene.labels, strict=True):
        text = _lines(edge.lines, LABEL_SIZE, (box.left + box.right) / 2, box.top)
        out += _group(text, (edge.source, edge.target) in highlight)
    if legend:
        start = (view.left + view.right - legend_width) / 2
        out += _lines(legend, LEGEND_SIZE, start, picture.bottom + MARGIN, anchor="start")
    return "\n".join([*out, "</svg>"]) + "\n"


def _n(value: float) -> str:
    """Write a coordinate with at most two decimals, and without a minus before zero."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _group(lines: list[str], on: bool) -> list[str]:
    return ['<g class="on">', *lines, "</g>"] if on else lines


def _arc(route: Route) -> list[str]:
    tip, left, right = route.head
    # The line ends inside the head: otherwise it would make the tip blunt.
    body = _shortened(route.curve, 0.8 * HEAD_LENGTH)
    straight = route.loop is None and not route.bend
    notch = Point(
        tip.x + 0.72 * ((left.x + right.x) / 2 - tip.x), tip.y + 0.72 * ((left.y + right.y) / 2 - tip.y)
    )
    return [
        f'<path class="arc" d="{_path(body, straight)}"/>',
        f'<path class="head" d="M{_p(tip)} L{_p(left)} L{_p(notch)} L{_p(right)} Z"/>',
    ]


def _shortened(curve: Bezier, by: float) -> Bezier:
    """Return the curve without the points that are closer to its end than `by`."""
    low, high = 0.5, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if math.dist(curve.at(middle), curve.d) > by else (low, middle)
    return curve.between(0.0, low)


def _path(curve: Bezier, straight: bool) -> str:
    if straight:
        return f"M{_p(curve.a)} L{_p(curve.d)}"
    return f"M{_p(curve.a)} C{_p(curve.b)} {_p(curve.c)} {_p(curve.d)}"


def _p(point: Point) -> str:
    return f"{_n(point.x)},{_n(point.y)}"


STACK = 3.0
"""The distance between the circles of a family."""


def _stack(shape: Shape) -> list[str]:
    """Return the circles behind that of a family, and what hides them. Arcs are drawn later: their heads are seen."""
    out = []
    for k in (2, 1, 0):
        behind = shape._replace(center=shape.center.plus(STACK * k, -STACK * k))
        out.append(_outline(behind, 0.0, "paper"))
        out += [_outline(behind, 0.0, "state")] if k else []
    return out


def _state(node: Node, lines: tuple[Text, ...], shape: Shape) -> list[str]:
    out = [_outline(shape, 0.0, "state initial" if node.initial else "state")]
    if node.final:
        out.append(_outline(shape, RING + (1 if node.initial else 0), "state"))
    sizes = line_sizes(lines)
    y = shape.center.y - sum(LINE * s for s in sizes[1:]) / 2
    for i, (line, size) in enumerate(zip(lines, sizes, strict=True)):
        if i:
            y += LINE * (size + sizes[i - 1]) / 2
        out.append(_text(line, size, shape.center.x, y + 0.3 * size))
    return out


def _outline(shape: Shape, inset: float, kind: str) -> str:
    r = shape.radius - inset
    if not shape.stretch:
        return f'<circle class="{kind}" cx="{_n(shape.center.x)}" cy="{_n(shape.center.y)}" r="{_n(r)}"/>'
    x, y = shape.center.x - shape.stretch - r, shape.center.y - r
    size = f'width="{_n(2 * (shape.stretch + r))}" height="{_n(2 * r)}"'
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" {size} rx="{_n(r)}"/>'


def _lines(lines: tuple[Text, ...], size: float, x: float, top: float, anchor: str = "middle") -> list[str]:
    return [_text(line, size, x, top + size * (ASCENT + LINE * i), anchor) for i, line in enumerate(lines)]


def _text(text: Text, size: float, x: float, y: float, anchor: str = "middle") -> str:
    """Return a <text> element. A subscript is moved down by `dy`, and what follows it back up."""
    spans, lowered = "", False
    for span in text:
        marks = ' font-style="italic"' if span.italic else ""
        if span.sub != lowered:
            marks += f' dy="{_n((SUB_DROP if span.sub else -SUB_DROP) * size)}"'
            lowered = span.sub
        if span.sub:
            marks += f' font-size="{_n(SUB_SIZE * size)}"'
        if span.bar:
            marks += ' text-decoration="overline"'
        content = escape(span.text)
        spans += f"<tspan{marks}>{content}</tspan>" if marks else content
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" text-anchor="{anchor}" xml:space="preserve">'
        f"{spans}</text>"
    )
