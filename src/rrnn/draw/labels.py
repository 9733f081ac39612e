"""Where labels go: beside their arcs, clear of every arc, state and other label."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import pairwise
from typing import NamedTuple

from rrnn.draw.geometry import Box, Shape, bounds
from rrnn.draw.routing import Route

ALONG = (0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8, 0.14, 0.86)
GAPS = (4.0, 8.0, 13.0)
MARGIN, BETWEEN, BESIDE = 2.5, 5.0, 14.0
"""Free space that a label needs on every side, that two labels need, and that they like: stacked labels of
different arcs are easily taken for one another."""
PIECES = 20


class Choice(NamedTuple):
    price: float
    box: Box
    doubtful: bool
    """Is another arc as near as the one it belongs to?"""


class Placing(NamedTuple):
    boxes: list[Box]
    failed: list[int]
    """Labels that found no free place."""
    doubtful: list[int]


def place_labels(
    routes: list[Route], sizes: list[tuple[float, float]], shapes: dict[Hashable, Shape]
) -> Placing:
    """A box for the label of each arc, clear of everything where it can be."""
    lines = [_line(route) for route in routes]
    options = [_choices(i, routes[i], sizes[i], lines, shapes) for i in range(len(routes))]
    chosen: dict[int, Choice] = {}
    # Those with the least freedom first; who finds no place pushes out the others that stand in it, for a while.
    waiting = sorted(range(len(routes)), key=lambda i: (len(options[i]), i), reverse=True)
    pushes = 4 * len(routes)
    failed: list[int] = []
    while waiting:
        i = waiting.pop()
        if not options[i]:
            failed.append(i)
            continue
        rivals = {
            c: [j for j, other in chosen.items() if other.box.grown(BETWEEN).overlaps(c.box)]
            for c in options[i]
        }
        free = [c for c in options[i] if not rivals[c]]
        if free:
            others = [choice.box.grown(BESIDE) for choice in chosen.values()]
            chosen[i] = min(free, key=lambda c: c.price + 1.5 * sum(map(c.box.overlaps, others)))
        elif pushes > 0:
            pushes -= 1
            # not the same place again and again: later pushes look further down the list
            ranked = sorted(options[i], key=lambda c: (len(rivals[c]), c.price))
            taken = ranked[(pushes * 7) % min(len(ranked), 5)]
            chosen[i] = taken
            for j in rivals[taken]:
                del chosen[j]
                waiting.append(j)
        else:
            failed.append(i)
    boxes: list[Box] = []
    for i, route in enumerate(routes):
        boxes.append(chosen[i].box if i in chosen else next(_boxes(route, sizes[i]))[1])
    doubtful = [i for i, choice in chosen.items() if choice.doubtful]
    return Placing(boxes, sorted(failed), sorted(doubtful))


Piece = tuple[float, float, float, float]
"""From x, y to x, y: bare numbers, for the loop that runs most often."""


class Line(NamedTuple):
    """An arc with its head as straight pieces, and a box around them with some margin."""

    box: Box
    pieces: list[Piece]


def _line(route: Route) -> Line:
    points = route.curve.points(PIECES if route.bend or route.loop is not None else 1)
    _, left, right = route.head
    pieces = [(a.x, a.y, b.x, b.y) for a, b in [*pairwise(points), (left, right)]]
    return Line(bounds([*points, left, right]).grown(MARGIN), pieces)


def _touches(box: Box, pieces: list[Piece], margin: float) -> bool:
    """Does a piece come closer to the box than this?"""
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    w, h = box.right - x + margin, box.bottom - y + margin
    for px, py, qx, qy in pieces:
        # Separating axes: level, upright, and across the piece.
        if (px < x - w and qx < x - w) or (px > x + w and qx > x + w):
            continue
        if (py < y - h and qy < y - h) or (py > y + h and qy > y + h):
            continue
        dx, dy = qx - px, qy - py
        if abs(dx * (y - py) - dy * (x - px)) <= abs(dx) * h + abs(dy) * w:
            return True
    return False


def _distance(x: float, y: float, pieces: list[Piece]) -> float:
    """From a point to the nearest piece."""
    best = float("inf")
    for px, py, qx, qy in pieces:
        dx, dy = qx - px, qy - py
        along = (x - px) * dx + (y - py) * dy
        size = dx * dx + dy * dy
        t = 0.0 if along <= 0 else 1.0 if along >= size else along / size
        ox, oy = x - px - t * dx, y - py - t * dy
        best = min(best, ox * ox + oy * oy)
    return best**0.5


def _choices(
    index: int, route: Route, size: tuple[float, float], lines: list[Line], shapes: dict[Hashable, Shape]
) -> list[Choice]:
    """Places that touch no arc and no state, best first."""
    found: list[Choice] = []
    states = [shape.box.grown(MARGIN) for shape in shapes.values()]
    for price, box in _boxes(route, size):
        if any(box.overlaps(state) for state in states):
            continue
        if any(
            box.overlaps(line.box) and _touches(box, line.pieces, MARGIN if j != index else 1.0)
            for j, line in enumerate(lines)
        ):
            continue
        # Nearer to its own arc than to any other, if possible: nobody should have to guess.
        x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        own = 1.1 * _distance(x, y, lines[index].pieces) + 3
        around = Box(x - own, y - own, x + own, y + own)
        doubtful = sum(
            around.overlaps(line.box) and _distance(x, y, line.pieces) < own
            for j, line in enumerate(lines)
            if j != index
        )
        found.append(Choice(round(price + 3.0 * doubtful, 6), box, doubtful > 0))
    return sorted(found, key=lambda c: c.price)


def _boxes(route: Route, size: tuple[float, float]) -> Iterator[tuple[float, Box]]:
    """(price, box) for possible places, the natural one first."""
    w, h = size
    if route.loop is not None and route.label_room is not None:
        yield 0.0, route.label_room
    for gap in GAPS:
        for t in ALONG:
            p = route.curve.at(t)
            dx, dy = route.curve.direction(t)
            for side in (1, -1):
                nx, ny = side * dy, side * -dx  # 1: left of the arc's way
                reach = gap + abs(nx) * w / 2 + abs(ny) * h / 2
                price = 8 * abs(t - 0.5) + gap / 4 + (0.0 if side == _preferred(route, dx, dy) else 1.2)
                yield price, Box.around(p.plus(nx * reach, ny * reach), w, h)


def _preferred(route: Route, dx: float, dy: float) -> int:
    """The outer side of a bend, above a level line, right of a steep one."""
    if route.bend:
        return 1 if route.bend > 0 else -1
    if route.loop is not None:
        return 1
    if abs(dx) > 0.35:
        return 1 if dx > 0 else -1
    return 1 if dy > 0 else -1
