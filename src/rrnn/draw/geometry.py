"""Points, boxes and Bézier curves, and the sizes of circles and labels.

The y axis points down, as in SVG; angles are in degrees, anticlockwise on the screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from rrnn.draw.diagram import Diagram, Edge
from rrnn.draw.richtext import Text, width


class Point(NamedTuple):
    x: float
    y: float

    def plus(self, dx: float, dy: float) -> Point:
        return Point(self.x + dx, self.y + dy)


def polar(angle: float, distance: float) -> tuple[float, float]:
    """Return the step (dx, dy) of length `distance` in direction `angle`; 90 is up."""
    radians = math.radians(angle)
    return distance * math.cos(radians), -distance * math.sin(radians)


def angle_between(a: float, b: float) -> float:
    """Return the angle between two directions, from 0 to 180."""
    d = abs(a - b) % 360
    return min(d, 360 - d)


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    @staticmethod
    def around(center: Point, width: float, height: float) -> Box:
        return Box(center.x - width / 2, center.y - height / 2, center.x + width / 2, center.y + height / 2)

    def grown(self, margin: float) -> Box:
        return Box(self.left - margin, self.top - margin, self.right + margin, self.bottom + margin)

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class Bezier(NamedTuple):
    """A cubic Bézier curve from a to d, with control points b and c."""

    a: Point
    b: Point
    c: Point
    d: Point

    def at(self, t: float) -> Point:
        s = 1 - t
        w = (s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t)
        return Point(
            w[0] * self.a.x + w[1] * self.b.x + w[2] * self.c.x + w[3] * self.d.x,
            w[0] * self.a.y + w[1] * self.b.y + w[2] * self.c.y + w[3] * self.d.y,
        )

    def direction(self, t: float) -> tuple[float, float]:
        """Return the unit tangent at t."""
        s = 1 - t
        w = (s * s, 2 * s * t, t * t)
        dx = w[0] * (self.b.x - self.a.x) + w[1] * (self.c.x - self.b.x) + w[2] * (self.d.x - self.c.x)
        dy = w[0] * (self.b.y - self.a.y) + w[1] * (self.c.y - self.b.y) + w[2] * (self.d.y - self.c.y)
        length = math.hypot(dx, dy) or 1.0
        return dx / length, dy / length

    def between(self, t0: float, t1: float) -> Bezier:
        """Return the part from t0 to t1 as a curve of its own (by blossoming)."""

        def blossom(u: float, v: float, w: float) -> Point:
            p = list(self)
            for t in (u, v, w):
                p = [Point(p.x + t * (q.x - p.x), p.y + t * (q.y - p.y)) for p, q in pairwise(p)]
            return p[0]

        return Bezier(blossom(t0, t0, t0), blossom(t0, t0, t1), blossom(t0, t1, t1), blossom(t1, t1, t1))

    def points(self, pieces: int) -> list[Point]:
        return [self.at(i / pieces) for i in range(pieces + 1)]


def bounds(points: list[Point]) -> Box:
    """Return the smallest box around the points."""
    xs, ys = [p.x for p in points], [p.y for p in points]
    return Box(min(xs), min(ys), max(xs), max(ys))


def segments_cross(a: Point, b: Point, c: Point, d: Point) -> bool:
    """Return True if the segments ab and cd cross in their interiors."""

    def side(p: Point, q: Point, r: Point) -> float:
        return (q.x - p.x) * (r.y - p.y) - (q.y - p.y) * (r.x - p.x)

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


Segment = tuple[float, float, float, float]
"""A segment from x, y to x, y: plain floats, since the loops over segments run most often."""


def segments_of(points: Iterable[Point]) -> list[Segment]:
    """Return the segments between successive points."""
    return [(a.x, a.y, b.x, b.y) for a, b in pairwise(points)]


def touches(box: Box, segments: list[Segment], margin: float = 0.0) -> bool:
    """Return True if a segment comes as close to the box as `margin`."""
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    w, h = box.right - x + margin, box.bottom - y + margin
    for px, py, qx, qy in segments:
        # Separating axes: horizontal, vertical, and perpendicular to the segment.
        if (px < x - w and qx < x - w) or (px > x + w and qx > x + w):
            continue
        if (py < y - h and qy < y - h) or (py > y + h and qy > y + h):
            continue
        dx, dy = qx - px, qy - py
        if abs(dx * (y - py) - dy * (x - px)) <= abs(dx) * h + abs(dy) * w:
            return True
    return False


def distance(x: float, y: float, segments: list[Segment]) -> float:
    """Return the distance from a point to the nearest segment."""
    best = float("inf")
    for px, py, qx, qy in segments:
        dx, dy = qx - px, qy - py
        along = (x - px) * dx + (y - py) * dy
        size = dx * dx + dy * dy
        t = 0.0 if along <= 0 else 1.0 if along >= size else along / size
        ox, oy = x - px - t * dx, y - py - t * dy
        best = min(best, ox * ox + oy * oy)
    return best**0.5


# ---- sizes of circles and labels --------------------------------------------------------------------------------


NAME_SIZE, WEIGHT_SIZE, LABEL_SIZE, LEGEND_SIZE = 17.0, 12.5, 15.5, 14.5
LINE = 1.2
"""The distance between lines of text, in ems."""
ASCENT, DESCENT = 0.78, 0.3
"""How far text reaches above and below its baseline, in ems, including subscripts."""

SMALLEST, LARGEST = 21.0, 38.0
"""The smallest and largest radius of a circle. A state that needs more room is drawn wider than high."""
RING = 4.0
"""The distance between the two circles of a final state."""


class Shape(NamedTuple):
    """The outline of a state: a circle, or for a long name two half circles joined by straight lines."""

    center: Point
    radius: float
    stretch: float = 0.0
    """Half the length of the straight lines."""

    @property
    def box(self) -> Box:
        return Box.around(self.center, 2 * (self.radius + self.stretch), 2 * self.radius)

    def distance(self, x: float, y: float) -> float:
        """Return the distance of a point from the outline; it is negative inside."""
        cx, cy = self.center
        if not self.stretch:
            return math.hypot(x - cx, y - cy) - self.radius
        return distance(x, y, [(cx - self.stretch, cy, cx + self.stretch, cy)]) - self.radius


def line_sizes(lines: tuple[Text, ...]) -> list[float]:
    """Return the font sizes of the lines in a circle: the name is large, the weights below it are small."""
    return [NAME_SIZE if i == 0 else WEIGHT_SIZE for i in range(len(lines))]


def node_shapes(diagram: Diagram) -> dict[object, Shape]:
    """Return a shape at the origin for each state; all circles have the same size."""
    room: dict[object, tuple[float, float]] = {}
    corners: dict[object, float] = {}
    for node in diagram.nodes:
        lines = diagram.lines(node)
        sizes = line_sizes(lines)
        wide = max(width(line, size) for line, size in zip(lines, sizes, strict=True))
        inner = 2.5 + (RING if node.final else 0.0)
        room[node.key] = (wide / 2 + inner, (LINE * sum(sizes) - 0.2 * sizes[0]) / 2 + inner)
        corners[node.key] = (width(lines[-1], sizes[-1]) / 2 + inner) if len(lines) > 1 else 0.0
    # The corners of a text's box are mostly empty, so they may come close to the circle.
    needed = {key: math.hypot(w, 0.7 * h) for key, (w, h) in room.items()}
    radius = max([SMALLEST, *(r for r in needed.values() if r <= LARGEST)])
    shapes: dict[object, Shape] = {}
    for key, (w, h) in room.items():
        if needed[key] <= radius:
            shapes[key] = Shape(Point(0, 0), radius)
        else:
            r = max(radius, h + 3)
            shapes[key] = Shape(Point(0, 0), r, max(0.0, w - 0.75 * r, corners[key] - _half_chord(r, h)))
    return shapes


def _half_chord(radius: float, height: float) -> float:
    """Return how far from its centre a circle reaches to the left at a height above or below it."""
    return math.sqrt(max(0.0, radius**2 - height**2))


def label_size(edge: Edge) -> tuple[float, float]:
    """Return the width and height of an arc's label."""
    return block_size(edge.lines, LABEL_SIZE)


def block_size(lines: tuple[Text, ...], size: float) -> tuple[float, float]:
    """Return the width and height of lines of text in a font of this size."""
    height = size * (ASCENT + DESCENT + LINE * (len(lines) - 1))
    return max((width(line, size) for line in lines), default=0.0), height
