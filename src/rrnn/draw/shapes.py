"""Sizes of what is drawn: circles that hold their names, labels that hold their lines."""

from __future__ import annotations

import math
from typing import NamedTuple

from rrnn.draw.diagram import Diagram, Edge
from rrnn.draw.geometry import Box, Point, distance_to_segment
from rrnn.draw.text import Text, width

NAME_SIZE, WEIGHT_SIZE, LABEL_SIZE, LEGEND_SIZE = 17.0, 12.5, 15.5, 14.5
LINE = 1.2
"""Distance of lines of text, in ems."""
ASCENT, DESCENT = 0.78, 0.3
"""How far text reaches above and below its line, in ems, subscripts included."""

SMALLEST, LARGEST = 21.0, 38.0
"""Radii of circles. What needs more is drawn longer than high."""
RING = 4.0
"""Distance of the two circles of a final state."""


class Shape(NamedTuple):
    """A circle, or for a long name two half circles joined by straight lines."""

    center: Point
    radius: float
    stretch: float = 0.0
    """Half the length of the straight lines."""

    @property
    def box(self) -> Box:
        return Box.around(self.center, 2 * (self.radius + self.stretch), 2 * self.radius)

    def distance(self, p: Point) -> float:
        """From the outline; negative inside."""
        x, y = self.center
        if not self.stretch:
            return math.hypot(p.x - x, p.y - y) - self.radius
        ends = Point(x - self.stretch, y), Point(x + self.stretch, y)
        return distance_to_segment(p, *ends) - self.radius


def line_sizes(lines: tuple[Text, ...]) -> list[float]:
    """Font sizes of the lines in a circle: the name is large, weights below it are small."""
    return [NAME_SIZE if i == 0 else WEIGHT_SIZE for i in range(len(lines))]


def node_shapes(diagram: Diagram) -> dict[object, Shape]:
    """A shape at the origin for each state, circles all of one size."""
    room: dict[object, tuple[float, float]] = {}
    for node in diagram.nodes:
        lines = diagram.lines(node)
        sizes = line_sizes(lines)
        wide = max(width(line, size) for line, size in zip(lines, sizes, strict=True))
        inner = 2.5 + (RING if node.final else 0.0)
        room[node.key] = (wide / 2 + inner, (LINE * sum(sizes) - 0.2 * sizes[0]) / 2 + inner)
    # Text in a circle: the corners of its box are empty enough to come close to the outline.
    needed = {key: math.hypot(w, 0.7 * h) for key, (w, h) in room.items()}
    radius = max([SMALLEST, *(r for r in needed.values() if r <= LARGEST)])
    shapes: dict[object, Shape] = {}
    for key, (w, h) in room.items():
        if needed[key] <= radius:
            shapes[key] = Shape(Point(0, 0), radius)
        else:
            r = max(radius, h + 3)
            shapes[key] = Shape(Point(0, 0), r, max(0.0, w - 0.75 * r))
    return shapes


def label_size(edge: Edge) -> tuple[float, float]:
    """Width and height of an arc's label."""
    return block_size(edge.lines, LABEL_SIZE)


def block_size(lines: tuple[Text, ...], size: float) -> tuple[float, float]:
    height = size * (ASCENT + DESCENT + LINE * (len(lines) - 1))
    return max((width(line, size) for line in lines), default=0.0), height
