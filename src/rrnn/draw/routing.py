"""How arcs run: straight where they can, bent where another goes back, loops where there is room, above if possible.

Each arc has a few possible curves. They are chosen one after the other, each time the best given the others, until
nothing changes: costs count crossings, states passed too closely and arcs that leave a state too close together.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise

from rrnn.draw.curves import LOOP_OPENING, Manner, Route, bends, loops
from rrnn.draw.diagram import Diagram
from rrnn.draw.geometry import Point, angle_between, segments_cross
from rrnn.draw.shapes import Shape, label_size

ROUNDS = 12


class Router:
    """Chooses curves for states that stand where they stand."""

    def __init__(self, diagram: Diagram, shapes: dict[Hashable, Shape]) -> None:
        self.diagram = diagram
        self.options = [
            loops(e.source, shapes, label_size(e))
            if e.source == e.target
            else bends(e.source, e.target, shapes)
            for e in diagram.edges
        ]
        self.known: dict[tuple[int, int, int, int], float] = {}

    def choose(
        self, start: list[Route] | None = None, dear: dict[tuple[int, Manner], float] | None = None
    ) -> tuple[list[Route], float]:
        """A curve for each edge, and the total price.

        `start` has curves of the same edges to begin with; `dear` adds to the price of (index of an edge, manner),
        for curves that left no room for their label.
        """
        prices = [[route.price for route in routes] for routes in self.options]
        for (i, manner), more in (dear or {}).items():
            prices[i] = [
                p + more * (r.manner == manner) for p, r in zip(prices[i], self.options[i], strict=True)
            ]
        chosen = self._first(start)

        def price(i: int, a: int, limit: float = float("inf")) -> float:
            total = prices[i][a]
            for j, b in enumerate(chosen):
                if total >= limit:  # it cannot become the best
                    break
                if j != i:
                    total += self._together(i, a, j, b)
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
        """Straight, bent where there is an arc back, loops above; or as in `start`."""
        if start is not None:
            known = [{r.manner: a for a, r in enumerate(routes)} for routes in self.options]
            return [known[i].get(r.manner, 0) for i, r in enumerate(start)]
        ends = {(e.source, e.target) for e in self.diagram.edges}
        back = [e.source != e.target and (e.target, e.source) in ends for e in self.diagram.edges]
        return [int(b and len(self.options[i]) > 1) for i, b in enumerate(back)]

    def _together(self, i: int, a: int, j: int, b: int) -> float:
        key = (i, a, j, b) if i < j else (j, b, i, a)
        if key not in self.known:
            self.known[key] = _conflict(self.options[i][a], self.options[j][b])
        return self.known[key]


def _conflict(r: Route, s: Route) -> float:
    """What it costs to draw both."""
    total = 0.0
    if r.box.grown(1).overlaps(s.box):
        total += 3.0 * _crossings(r.points, s.points)
    for one, other in ((r, s), (s, r)):
        room = one.label_room
        if room is not None and room.overlaps(other.box):
            total += 4.0 * any(room.meets_segment(p, q) for p, q in pairwise(other.points))
        if room is not None and other.label_room is not None and one is r:
            total += 4.0 * room.overlaps(other.label_room)
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
        # there and back: room for a label between them, and the same bend for both looks best
        apart = abs(r.bend + s.bend)
        total += 8.0 * max(0.0, 1 - apart / 48) + 40.0 * (apart < 24) + 1.2 * (r.bend != s.bend)
    return total


def _crossings(r: tuple[Point, ...], s: tuple[Point, ...]) -> int:
    """How often two lines of straight pieces cross."""
    count = 0
    pieces = [(c, d, min(c.x, d.x), max(c.x, d.x), min(c.y, d.y), max(c.y, d.y)) for c, d in pairwise(s)]
    for a, b in pairwise(r):
        left, right = (a.x, b.x) if a.x < b.x else (b.x, a.x)
        top, bottom = (a.y, b.y) if a.y < b.y else (b.y, a.y)
        for c, d, low_x, high_x, low_y, high_y in pieces:
            if low_x < right and left < high_x and low_y < bottom and top < high_y:
                count += segments_cross(a, b, c, d)
    return count
