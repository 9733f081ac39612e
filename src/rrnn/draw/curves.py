"""The curves an arc may take: straight, bent to either side, or a loop in one of eight directions."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

from rrnn.draw.geometry import Bezier, Box, Point, bounds, polar
from rrnn.draw.shapes import Shape

BENDS = (0.0, 26.0, 44.0, 66.0, 92.0, 124.0, 165.0, 220.0)
"""How far the middle of an arc may lie off the straight line."""
LOOP_ANGLES = (90, 270, 180, 0, 135, 45, 225, 315)
LOOP_PRICES = (0.0, 0.7, 1.4, 1.4, 1.8, 1.8, 2.0, 2.0)
LOOP_OPENING, LOOP_LENGTH = 24.0, 52.0
HEAD_LENGTH, HEAD_WIDTH = 9.0, 7.0
CLEARANCE = 9.0
"""An arc keeps this far from states it does not touch."""
PIECES = 9
"""Straight pieces that stand for a curve in tests of distance."""


Manner = tuple[float, float | None]
"""How an arc runs: its bend, its loop's direction."""


@dataclass(frozen=True)
class Route:
    """A possible curve of an arc, from outline to outline, with its price without regard to other arcs."""

    source: Hashable
    target: Hashable
    curve: Bezier
    points: tuple[Point, ...]
    box: Box
    leaves: float
    """The angle at which it leaves its source, seen from the middle of the state."""
    enters: float
    price: float
    bend: float = 0.0
    loop: float | None = None
    """The direction of a loop."""
    label_room: Box | None = None
    """Where a loop's label wants to be."""

    @property
    def manner(self) -> Manner:
        return self.bend, self.loop

    @property
    def head(self) -> tuple[Point, Point, Point]:
        """The arrow head: tip and the two other corners."""
        tip = self.curve.d
        dx, dy = self.curve.direction(1)
        base = tip.plus(-HEAD_LENGTH * dx, -HEAD_LENGTH * dy)
        half = HEAD_WIDTH / 2
        return tip, base.plus(-half * dy, half * dx), base.plus(half * dy, -half * dx)


def bends(source: Hashable, target: Hashable, shapes: dict[Hashable, Shape]) -> list[Route]:
    a, b = shapes[source].center, shapes[target].center
    length = math.dist(a, b)
    dx, dy = (b.x - a.x) / length, (b.y - a.y) / length
    options: list[Route] = []
    for size in BENDS:
        if size > max(0.8 * length, BENDS[2]):
            break
        for bend in (size, -size) if size else (0.0,):
            # (dy, −dx) points to the left of the arc's way; the middle of a curve is at ¾ of its handles
            ox, oy = dy * bend / 0.75, -dx * bend / 0.75
            k = 0.3 * length
            curve = Bezier(a, a.plus(k * dx + ox, k * dy + oy), b.plus(-k * dx + ox, -k * dy + oy), b)
            clipped = _clipped(curve, shapes[source], shapes[target])
            price = (0.6 + size / 45 + (0.05 if bend < 0 else 0)) if size else 0.0
            options.append(_priced(source, target, clipped, price, shapes, bend=bend))
    return options


def _clipped(curve: Bezier, source: Shape, target: Shape) -> Bezier:
    """The part outside both states, the arrow's tip touching the target."""

    def crossing(shape: Shape, inside: float, outside: float) -> float:
        for _ in range(26):
            middle = (inside + outside) / 2
            if shape.distance(curve.at(middle)) < 1.0:
                inside = middle
            else:
                outside = middle
        return outside

    return curve.between(crossing(source, 0.0, 0.5), crossing(target, 1.0, 0.5))


def loops(state: Hashable, shapes: dict[Hashable, Shape], label: tuple[float, float]) -> list[Route]:
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
    for key, shape in shapes.items():
        if key != source and key != target:
            if box.grown(2 * CLEARANCE).overlaps(shape.box):
                # Probes lie closer together than a state is wide, or a curve could slip between them.
                probes = curve.points(math.ceil(math.dist(curve.a, curve.d) / 8) + PIECES)
                distance = min(map(shape.distance, probes))
                price += 500.0 if distance < CLEARANCE else 6.0 if distance < 2 * CLEARANCE else 0.0
            if label_room is not None and label_room.overlaps(shape.box):
                price += 8.0
    angles = [_angle(shapes[key].center, p) for key, p in ((source, curve.a), (target, curve.d))]
    return Route(source, target, curve, points, box, angles[0], angles[1], price, bend, loop, label_room)


def _angle(center: Point, p: Point) -> float:
    return math.degrees(math.atan2(center.y - p.y, p.x - center.x))
