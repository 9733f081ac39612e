"""A diagram with everything in its place: the best arrangement, spread out until every label has room."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rrnn.draw.curves import Manner, Route
from rrnn.draw.diagram import Diagram
from rrnn.draw.geometry import Box, Point, bounds
from rrnn.draw.labels import place_labels
from rrnn.draw.layout import Places, arrangements
from rrnn.draw.routing import Router
from rrnn.draw.shapes import Shape, label_size, node_shapes

SPREADS = (1.0, 1.12, 1.25, 1.4, 1.6, 1.85, 2.15, 2.5, 3.0, 3.6)
TRIES, PATIENCE = 2, 1
"""Routings tried at each distance, and distances tried beyond the first at which all labels have room."""
GAP, RISE = 62.0, 112.0
"""The least distance between neighbours, outline to outline in a row, middle to middle in a column."""
HANDICAPS = {"columns": 0.0, "given": 0.0, "row": 1.0, "ring": 6.0}
"""What an arrangement must be better by to be drawn instead of columns."""


@dataclass(frozen=True)
class Scene:
    diagram: Diagram
    shapes: dict[Hashable, Shape]
    routes: list[Route]
    """As `diagram.edges`."""
    labels: list[Box]
    """As `diagram.edges`."""
    misplaced: int
    """Labels that found no free place (0, unless the automaton is far too dense to be drawn)."""

    @property
    def box(self) -> Box:
        """What the picture covers."""
        boxes = [*(s.box for s in self.shapes.values()), *self.labels]
        boxes += [bounds(r.curve.points(24)) for r in self.routes]
        whole = boxes[0]
        for box in boxes[1:]:
            whole = whole.union(box)
        return whole


def scene(diagram: Diagram) -> Scene:
    """Place everything."""
    sizes = [label_size(e) for e in diagram.edges]
    drafts: list[tuple[float, Places, list[Route]]] = []
    for name, places in arrangements(diagram):
        shapes = _shapes(diagram, places, 1.0)
        routes, price = Router(diagram, shapes).choose()
        placing = place_labels(routes, sizes, shapes)
        price += 3 * len(placing.failed) + len(placing.doubtful) + HANDICAPS[name] + _sprawl(shapes)
        drafts.append((round(price, 6), places, routes))
    scenes: list[Scene] = []
    for _, places, routes in sorted(drafts, key=lambda draft: draft[0]):
        scenes.append(_spread_out(diagram, places, routes))
        if not scenes[-1].misplaced:
            break
    return min(scenes, key=lambda s: s.misplaced)


def _spread_out(diagram: Diagram, places: Places, routes: list[Route]) -> Scene:
    """States moved apart until labels have room; at each distance, arcs whose labels have none try other curves."""
    sizes = [label_size(e) for e in diagram.edges]
    index = {(e.source, e.target): i for i, e in enumerate(diagram.edges)}
    best: tuple[tuple[float, ...], Scene] | None = None
    clear_at: int | None = None
    for step, spread in enumerate(SPREADS):
        if clear_at is not None and step > clear_at + PATIENCE:
            break
        shapes = _shapes(diagram, places, spread)
        router = Router(diagram, shapes)
        dear: dict[tuple[int, Manner], float] = {}
        for _ in range(TRIES):
            routes, _ = router.choose(routes, dear)
            placing = place_labels(routes, sizes, shapes)
            rank = (len(placing.failed), len(placing.doubtful) + 0.7 * step)
            if best is None or rank < best[0]:
                best = rank, Scene(diagram, shapes, routes, placing.boxes, len(placing.failed))
            if not placing.failed and clear_at is None:
                clear_at = step
            if not placing.failed and len(placing.doubtful) <= len(sizes) // 12:
                return best[1]
            for i in (*placing.failed, *placing.doubtful):
                back = index.get((routes[i].target, routes[i].source), i)
                for j, price in ((i, 3.0), (back, 1.5)):
                    key = (j, routes[j].manner)
                    dear[key] = dear.get(key, 0.0) + price
    assert best is not None
    return best[1]


def _shapes(diagram: Diagram, places: Places, spread: float) -> dict[Hashable, Shape]:
    """The states at their places, neighbours in a row far enough apart for a label between them."""
    shapes = node_shapes(diagram)
    across = 2 * max(s.radius + s.stretch for s in shapes.values())
    high = 2 * max(s.radius for s in shapes.values())
    top = min(row for _, row in places.values())
    arcs = [label_size(e) for e in diagram.edges if e.source != e.target]
    loops = [(places[e.source][1] > top, label_size(e)) for e in diagram.edges if e.source == e.target]
    step_x = spread * (across + max(GAP, max((w for w, _ in arcs), default=0.0) + 22))
    step_x = max(step_x, max((w for _, (w, _) in loops), default=0.0) + 14)
    # Loops are above their states: below the top row they need room under the next one.
    step_y = spread * max(RISE, high + max((h + 58 for below, (_, h) in loops if below), default=56.0))
    if _is_ring(places):
        step_y = step_x = max(step_x, step_y)
    return {
        key: shape._replace(center=Point(places[key][0] * step_x, places[key][1] * step_y))
        for key, shape in shapes.items()
    }


def _is_ring(places: Places) -> bool:
    return any(row != round(row) and 2 * row != round(2 * row) for _, row in places.values())


def _sprawl(shapes: dict[Hashable, Shape]) -> float:
    """A long strip is harder to read than a compact picture."""
    box = bounds([s.center for s in shapes.values()])
    return (box.right - box.left + box.bottom - box.top) / 400
