"""Choose the curve of each arc.

An arc is straight where it can be and bent where another one goes back; a loop is above its state if there is room.
Each arc has a few possible curves. The router chooses one after the other, each time the best one given all others,
until nothing changes. Costs count crossings, states passed too closely and arcs that leave a state too close together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from rrnn.draw.diagram import Diagram
from rrnn.draw.geometry import (
    Bezier,
    Box,
    Point,
    Shape,
    angle_between,
    bounds,
    label_size,
    polar,
    touches,
)

# ---- possible curves --------------------------------------------------------------------------------------------


BENDS = (0.0, 26.0, 44.0, 66.0, 92.0, 124.0, 165.0, 220.0)
"""How far the middle of an arc may lie off the straight line, in pixels."""
LOOP_ANGLES = (90, 270, 180, 0, 135, 45, 225, 315)
LOOP_PRICES = (0.0, 0.7, 1.4, 1.4, 1.8, 1.8, 2.0, 2.0)
LOOP_OPENING, LOOP_LENGTH = 24.0, 52.0
HEAD_LENGTH, HEAD_WIDTH = 9.0, 7.0
CLEARANCE = 9.0
"""The distance that an arc keeps from states that it does not touch."""
PIECES = 9
"""The number of segments that stand for a curve in tests of distance."""


Piece = tuple[float, float, float, float, float, float, float, float]
"""A segment from x, y to x, y, and its bounds: left, right, top, bottom."""

Manner = tuple[float, float | None]
"""How an arc runs: its bend, and the direction of a loop."""


@dataclass(frozen=True)
class Route:
    """A possible curve of an arc, from outline to outline, with its price apart from other arcs."""

    source: Hashable
    target: Hashable
    curve: Bezier
    pieces: tuple[Piece, ...]
    """The segments that stand for the curve."""
    box: Box
    leaves: float
    """The angle at which it leaves its source, seen from the centre of the state."""
    enters: float
    price: float
    bend: float = 0.0
    loop: float | None = None
    """The direction of a loop."""
    label_room: Box | None = None
    """The natural place of a loop's label."""

    @property
    def manner(self) -> Manner:
        return self.bend, self.loop

    @property
    def head(self) -> tuple[Point, Point, Point]:
        """The arrow head: its tip and the two other corners."""
        tip = self.curve.d
        dx, dy = self.curve.direction(1)
        base = tip.plus(-HEAD_LENGTH * dx, -HEAD_LENGTH * dy)
        half = HEAD_WIDTH / 2
        return tip, base.plus(-half * dy, half * dx), base.plus(half * dy, -half * dx)


def bends(source: Hashable, target: Hashable, shapes: dict[Hashable, Shape]) -> list[Route]:
    """Return the possible curves between two states: the straight line, and bends to either side."""
    a, b = shapes[source].center, shapes[target].center
    length = math.dist(a, b)
    dx, dy = (b.x - a.x) / length, (b.y - a.y) / length
    options: list[Route] = []
    for size in BENDS:
        if size > max(0.8 * length, BENDS[2]):
            break
        for bend in (size, -size) if size else (0.0,):
            # (dy, −dx) points to the left of the arc; the middle of a curve is at ¾ of its control points.
            ox, oy = dy * bend / 0.75, -dx * bend / 0.75
            k = 0.3 * length
            curve = Bezier(a, a.plus(k * dx + ox, k * dy + oy), b.plus(-k * dx + ox, -k * dy + oy), b)
            clipped = _clipped(curve, shapes[source], shapes[target])
            price = (0.6 + size / 45 + (0.05 if bend < 0 else 0)) if size else 0.0
            options.append(_priced(source, target, clipped, price, shapes, bend=bend))
    return options


def _clipped(curve: Bezier, source: Shape, target: Shape) -> Bezier:
    """Return the part of the curve outside both states, so that the arrow's tip touches the target."""

    (ax, ay), (bx, by), (cx, cy), (dx, dy) = curve

    def crossing(shape: Shape, inside: float, outside: float) -> float:
        for _ in range(26):
            middle = t = (inside + outside) / 2
            s = 1 - t
            u, v, w, z = (
                s * s * s,
                3 * s * s * t,
                3 * s * t * t,
                t * t * t,
            )  # `curve.at(t)`, which is called too often
            x, y = u * ax + v * bx + w * cx + z * dx, u * ay + v * by + w * cy + z * dy
            if shape.distance(x, y) < 1.0:
                inside = middle
            else:
                outside = middle
        return outside

    return curve.between(crossing(source, 0.0, 0.5), crossing(target, 1.0, 0.5))


def loops(state: Hashable, shapes: dict[Hashable, Shape], label: tuple[float, float]) -> list[Route]:
    """Return the possible loops of a state, with room for a label of this size."""
    options: list[Route] = []
    for angle, price in zip(LOOP_ANGLES, LOOP_PRICES, strict=True):
        shape = shapes[state]
        side = math.cos(math.radians(angle))
        center = shape.center.plus(shape.stretch * (0 if abs(side) < 1e-9 else math.copysign(1, side)), 0)
        near, far = shape.radius + 1, shape.radius + LOOP_LENGTH
        curve = Bezier(
            center.plus(*polar(angle + LOOP_OPENING, near)),
            center.plus(*polar(angle + LOOP_OPENING - 3, far)),
            center.plus(*polar(angle - LOOP_OPENING + 3, far)),
            center.plus(*polar(angle - LOOP_OPENING, near)),
        )
        top = curve.at(0.5)
        dx, dy = polar(angle, 1)
        reach = 4 + abs(dx) * label[0] / 2 + abs(dy) * label[1] / 2
        room = Box.around(top.plus(reach * dx, reach * dy), *label)
        options.append(_priced(state, state, curve, price, shapes, loop=float(angle), label_room=room))
    return options


def _priced(
    source: Hashable,
    target: Hashable,
    curve: Bezier,
    price: float,
    shapes: dict[Hashable, Shape],
    *,
    bend: float = 0.0,
    loop: float | None = None,
    label_room: Box | None = None,
) -> Route:
    points = tuple(curve.points(PIECES if bend or loop is not None else 1))
    box = bounds(list(points))
    around, probes = box.grown(2 * CLEARANCE), None
    for key, shape in shapes.items():
        if key != source and key != target:
            if around.overlaps(shape.box):
                # Probes lie closer together than a state is wide, or a curve could slip between them.
                probes = probes or curve.points(math.ceil(math.dist(curve.a, curve.d) / 8) + PIECES)
                distance = min(shape.distance(x, y) for x, y in probes)
                price += 500.0 if distance < CLEARANCE else 6.0 if distance < 2 * CLEARANCE else 0.0
            if label_room is not None and label_room.overlaps(shape.box):
                price += 8.0
    angles = [_angle(shapes[key].center, p) for key, p in ((source, curve.a), (target, curve.d))]
    pieces = tuple(
        (a.x, a.y, b.x, b.y, min(a.x, b.x), max(a.x, b.x), min(a.y, b.y), max(a.y, b.y))
        for a, b in pairwise(points)
    )
    return Route(source, target, curve, pieces, box, angles[0], angles[1], price, bend, loop, label_room)


def _angle(center: Point, p: Point) -> float:
    return math.degrees(math.atan2(center.y - p.y, p.x - center.x))


# ---- the choice -------------------------------------------------------------------------------------------------


ROUNDS = 12


class Router:
    """Chooses the curves of all arcs between states whose places are fixed."""

    def __init__(self, diagram: Diagram, shapes: dict[Hashable, Shape]) -> None:
        self.diagram = diagram
        self.options = [
            loops(e.source, shapes, label_size(e))
            if e.source == e.target
            else bends(e.source, e.target, shapes)
            for e in diagram.edges
        ]
        # by (edge, option): the price of drawing it together with another (edge, option)
        self.known: list[list[dict[tuple[int, int], float]]] = [
            [{} for _ in routes] for routes in self.options
        ]

    def choose(
        self, start: list[Route] | None = None, extra: dict[tuple[int, Manner], float] | None = None
    ) -> tuple[list[Route], float]:
        """Return a curve for each edge, and the total price.

        `start` has curves of the same edges to begin with. `extra` adds to the price of (index of an edge, manner),
        for curves that left no room for their label.
        """
        prices = [[route.price for route in routes] for routes in self.options]
        for (i, manner), more in (extra or {}).items():
            prices[i] = [
                p + more * (r.manner == manner) for p, r in zip(prices[i], self.options[i], strict=True)
            ]
        chosen = self._first(start)

        def price(i: int, a: int, limit: float = float("inf")) -> float:
            total, known = prices[i][a], self.known[i][a]
            for other in enumerate(chosen):
                if total >= limit:  # it cannot be the best any more
                    break
                if other[0] != i:
                    more = known.get(other)
                    total += self._together(i, a, *other) if more is None else more
            return round(total, 6)

        for _ in range(ROUNDS):
            before = list(chosen)
            for i in range(len(chosen)):
                best = price(i, chosen[i])
                for a in sorted(range(len(prices[i])), key=lambda a: (prices[i][a], a)):
                    if a != chosen[i] and prices[i][a] < best and (value := price(i, a, best)) < best - 1e-6:
                        best, chosen[i] = value, a
            if chosen == before:
                break
        total = sum(prices[i][a] for i, a in enumerate(chosen))
        total += sum(self._together(i, chosen[i], j, chosen[j]) for i in range(len(chosen)) for j in range(i))
        return [self.options[i][a] for i, a in enumerate(chosen)], round(total, 6)

    def _first(self, start: list[Route] | None) -> list[int]:
        """Return the first choice: that of `start`, or straight lines, bends where an arc goes back, loops above."""
        if start is not None:
            known = [{r.manner: a for a, r in enumerate(routes)} for routes in self.options]
            return [known[i].get(r.manner, 0) for i, r in enumerate(start)]
        ends = {(e.source, e.target) for e in self.diagram.edges}
        back = [e.source != e.target and (e.target, e.source) in ends for e in self.diagram.edges]
        return [int(b and len(self.options[i]) > 1) for i, b in enumerate(back)]

    def _together(self, i: int, a: int, j: int, b: int) -> float:
        known = self.known[i][a]
        if (j, b) not in known:
            known[j, b] = self.known[j][b][i, a] = _conflict(self.options[i][a], self.options[j][b])
        return known[j, b]


def _conflict(r: Route, s: Route) -> float:
    """Return the price of drawing both curves."""
    total = 0.0
    if r.box.grown(1).overlaps(s.box):
        total += 3.0 * _crossings(r.pieces, s.pieces)
    for one, other in ((r, s), (s, r)):
        room = one.label_room
        if room is not None and room.overlaps(other.box):
            total += 4.0 * touches(room, [piece[:4] for piece in other.pieces])
        if room is not None and other.label_room is not None and one is r:
            total += 4.0 * room.overlaps(other.label_room)
    if r.source in (s.source, s.target) or r.target in (s.source, s.target):
        total += _conflict_at_a_state(r, s)
    return total


def _conflict_at_a_state(r: Route, s: Route) -> float:
    """Return the price of two curves that begin or end at the same state."""
    total = 0.0
    for key, angle in ((r.source, r.leaves), (r.target, r.enters)):
        for other_key, other_angle in ((s.source, s.leaves), (s.target, s.enters)):
            if key == other_key:
                apart = angle_between(angle, other_angle)
                total += 3.5 * max(0.0, 1 - apart / 24)
    for one, other in ((r, s), (s, r)):
        if one.loop is not None:
            for key, angle in ((other.source, other.leaves), (other.target, other.enters)):
                if key == one.source and angle_between(angle, one.loop) < LOOP_OPENING:
                    total += 10.0
    if r.source == s.target and r.target == s.source and r.loop is None:
        # An arc and its way back need room for a label between them, and look best with the same bend.
        apart = abs(r.bend + s.bend)
        total += 8.0 * max(0.0, 1 - apart / 48) + 40.0 * (apart < 24) + 1.2 * (r.bend != s.bend)
    return total


def _crossings(r: tuple[Piece, ...], s: tuple[Piece, ...]) -> int:
    """Return how often two polylines cross. This is where most of the time goes, so no point or box is made."""
    count = 0
    for ax, ay, bx, by, left, right, top, bottom in r:
        ux, uy = bx - ax, by - ay
        for cx, cy, dx, dy, low_x, high_x, low_y, high_y in s:
            if low_x < right and left < high_x and low_y < bottom and top < high_y:
                # the ends of each segment lie on different sides of the other one
                vx, vy = dx - cx, dy - cy
                if (ux * (cy - ay) - uy * (cx - ax)) * (ux * (dy - ay) - uy * (dx - ax)) < 0:
                    count += (vx * (ay - cy) - vy * (ax - cx)) * (vx * (by - cy) - vy * (bx - cx)) < 0
    return count
