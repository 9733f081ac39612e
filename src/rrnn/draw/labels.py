"""Place labels beside their arcs, clear of every arc, state and other label."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from rrnn.draw.geometry import Box, Segment, Shape, bounds, distance, segments_of, touches
from rrnn.draw.routing import Route

ALONG = (0.5, 0.44, 0.56, 0.38, 0.62, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8, 0.14, 0.86)
GAPS = (4.0, 8.0, 13.0)
MARGIN, BETWEEN, BESIDE = 2.5, 5.0, 14.0
"""The free space that a label needs on every side, that two labels need between them, and that they should have:
stacked labels of different arcs are easily mistaken for one another."""
PIECES = 20


class LabelPlace(NamedTuple):
    """A possible place of a label."""

    price: float
    box: Box
    doubtful: bool
    """Whether another arc is as near as the one that the label belongs to."""


class LabelPlaces(NamedTuple):
    """The places of all labels, in the order of the arcs."""

    boxes: list[Box]
    failed: list[int]
    """The labels that found no free place."""
    doubtful: list[int]


def place_labels(
    routes: list[Route], sizes: list[tuple[float, float]], shapes: dict[Hashable, Shape]
) -> LabelPlaces:
    """Return a box for the label of each arc, clear of everything else where possible."""
    lines = [_line(route) for route in routes]
    options = [_choices(i, routes[i], sizes[i], lines, shapes) for i in range(len(routes))]
    chosen: dict[int, LabelPlace] = {}
    # Labels with the fewest choices come first. One that finds no place pushes out those in its way, a limited
    # number of times.
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
            # Later pushes look further down the list, so as not to try the same place again and again.
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
    return LabelPlaces(boxes, sorted(failed), sorted(doubtful))


class ArcLine(NamedTuple):
    """An arc with its head as segments, and a box around them with some margin."""

    box: Box
    segments: list[Segment]


def _line(route: Route) -> ArcLine:
    points = route.curve.points(PIECES if route.bend or route.loop is not None else 1)
    _, left, right = route.head
    segments = segments_of(points) + segments_of((left, right))
    return ArcLine(bounds([*points, left, right]).grown(MARGIN), segments)


def _choices(
    index: int, route: Route, size: tuple[float, float], lines: list[ArcLine], shapes: dict[Hashable, Shape]
) -> list[LabelPlace]:
    """Return the places that touch no arc and no state, the best one first."""
    found: list[LabelPlace] = []
    states = [shape.box.grown(MARGIN) for shape in shapes.values()]
    for price, box in _boxes(route, size):
        if any(box.overlaps(state) for state in states):
            continue
        if any(
            box.overlaps(line.box) and touches(box, line.segments, MARGIN if j != index else 1.0)
            for j, line in enumerate(lines)
        ):
            continue
        # A label should be nearer to its own arc than to any other, so that nobody has to guess.
        x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        own = 1.1 * distance(x, y, lines[index].segments) + 3
        around = Box(x - own, y - own, x + own, y + own)
        doubtful = sum(
            around.overlaps(line.box) and distance(x, y, line.segments) < own
            for j, line in enumerate(lines)
            if j != index
        )
        found.append(LabelPlace(round(price + 3.0 * doubtful, 6), box, doubtful > 0))
    return sorted(found, key=lambda c: c.price)


def _boxes(route: Route, size: tuple[float, float]) -> Iterator[tuple[float, Box]]:
    """Yield possible places as (price, box), the natural one first."""
    w, h = size
    if route.loop is not None and route.label_room is not None:
        yield 0.0, route.label_room
    for gap in GAPS:
        for t in ALONG:
            p = route.curve.at(t)
            dx, dy = route.curve.direction(t)
            for side in (1, -1):
                nx, ny = side * dy, side * -dx  # side 1 is left of the arc's direction
                reach = gap + abs(nx) * w / 2 + abs(ny) * h / 2
                price = 8 * abs(t - 0.5) + gap / 4 + (0.0 if side == _preferred(route, dx, dy) else 1.2)
                yield price, Box.around(p.plus(nx * reach, ny * reach), w, h)


def _preferred(route: Route, dx: float, dy: float) -> int:
    """Return the side where a label looks best: outside a bend, above a level line, right of a steep one."""
    if route.bend:
        return 1 if route.bend > 0 else -1
    if route.loop is not None:
        return 1
    if abs(dx) > 0.35:
        return 1 if dx > 0 else -1
    return 1 if dy > 0 else -1
