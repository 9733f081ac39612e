"""Place everything: states in columns, a row or a ring, then arcs and labels, spread out until every label has room.

An arrangement gives each state a place in units of the distance between neighbours. Several are made, and the one whose
arcs run best is drawn: a chain with shortcuts reads best in a row, an automaton with arcs between all states in a ring.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from rrnn.draw.diagram import Diagram
from rrnn.draw.geometry import (
    Box,
    Point,
    Shape,
    bounds,
    distance,
    label_size,
    node_shapes,
    segments_cross,
    segments_of,
)
from rrnn.draw.labels import LabelPlaces, place_labels
from rrnn.draw.routing import Manner, Route, Router

Place = tuple[float, float]
Places = dict[Hashable, Place]

SEARCHED = 16
"""Up to so many states, rows are searched; beyond, the order in each column follows the neighbours."""


def arrangements(diagram: Diagram) -> list[tuple[str, Places]]:
    """Return the possible arrangements, each with its name; the first one is preferred."""
    if diagram.places is not None:
        return [("given", dict(diagram.places))]
    columns = layers(diagram)
    found = [("columns", _in_columns(diagram, columns))]
    if 2 < len(diagram.nodes) <= SEARCHED:
        if len(neighbours(diagram)) <= 2 * len(diagram.nodes):  # more arcs could not all pass above and below
            found.append(("row", _in_a_row(diagram)))
        if len(diagram.nodes) > 3:
            found.append(("ring", _in_a_ring(diagram, columns)))
    unique: dict[tuple[Place, ...], tuple[str, Places]] = {}
    for name, places in found:
        unique.setdefault(tuple(places[node.key] for node in diagram.nodes), (name, places))
    return list(unique.values())


def layers(diagram: Diagram) -> dict[Hashable, int]:
    """Return each state's number of arcs from the nearest initial state; unreachable states come last."""
    following = _following(diagram)
    layer: dict[Hashable, int] = {}
    frontier = [node.key for node in diagram.nodes if node.initial]
    while len(layer) < len(following):
        if not frontier:
            frontier = [next(key for key in following if key not in layer)]
        depth = max(layer.values(), default=-1) + 1
        layer |= dict.fromkeys(frontier, depth)
        frontier = [q for q in dict.fromkeys(t for s in frontier for t in following[s]) if q not in layer]
    return layer


def _following(diagram: Diagram) -> dict[Hashable, list[Hashable]]:
    """Return the targets of each state's arcs."""
    following: dict[Hashable, list[Hashable]] = {node.key: [] for node in diagram.nodes}
    for edge in diagram.edges:
        following[edge.source].append(edge.target)
    return following


def neighbours(diagram: Diagram) -> list[tuple[Hashable, Hashable]]:
    """Return the pairs of states with an arc between them, each once."""
    order = {node.key: i for i, node in enumerate(diagram.nodes)}
    pairs = {
        tuple(sorted((e.source, e.target), key=order.__getitem__))
        for e in diagram.edges
        if e.source != e.target
    }
    return sorted(pairs, key=lambda pair: (order[pair[0]], order[pair[1]]))  # type: ignore[return-value]


# ---- columns ---------------------------------------------------------------------------------------------------


def _in_columns(diagram: Diagram, layer: dict[Hashable, int]) -> Places:
    columns: list[list[Hashable]] = [[] for _ in range(max(layer.values()) + 1)]
    for node in diagram.nodes:
        columns[layer[node.key]].append(node.key)
    pairs = neighbours(diagram)
    if len(diagram.nodes) > SEARCHED:
        return _by_neighbours(columns, pairs)
    importance = {node.key: 1 - i / len(diagram.nodes) for i, node in enumerate(diagram.nodes)}
    starts: list[Places] = [
        {q: (c, r) for c, column in enumerate(columns) for r, q in enumerate(column)},
        {
            q: (c, r - (len(column) - 1) // 2)
            for c, column in enumerate(columns)
            for r, q in enumerate(column)
        },
    ]

    def cost(places: Places) -> float:
        return _untidiness(places, pairs) + 0.02 * sum(
            (abs(row) + 0.3 * (row < 0)) * importance[q] for q, (_, row) in places.items()
        )

    return min((_improved(start, cost, _row_moves) for start in starts), key=cost)


def _untidiness(places: Places, pairs: list[tuple[Hashable, Hashable]]) -> float:
    """Return the price of steep, crossing and hidden arcs, as if all of them were straight."""
    rows = [row for _, row in places.values()]
    total = 0.8 * (max(rows) - min(rows))
    lines = [(Point(*places[u]), Point(*places[v])) for u, v in pairs]
    for (a, b), (u, v) in zip(lines, pairs, strict=True):
        steps = abs(a.y - b.y) - (a.x == b.x)
        total += steps + 0.2 * steps * steps
        for q, place in places.items():
            if q != u and q != v and distance(*place, segments_of((a, b))) < 0.3:
                total += 4
    for (a, b), (c, d) in itertools.combinations(lines, 2):
        total += 4 * segments_cross(a, b, c, d)
    return round(total, 9)


def _row_moves(places: Places) -> Iterator[Places]:
    """Yield changes: a state in another row, two states of a column exchanged, a column moved up or down."""
    rows = [row for _, row in places.values()]
    taken = set(places.values())
    for q, (column, _) in places.items():
        for new in range(math.floor(min(rows)) - 1, math.ceil(max(rows)) + 2):
            if (column, new) not in taken:
                yield places | {q: (column, new)}
    for p, q in itertools.combinations(places, 2):
        if places[p][0] == places[q][0]:
            yield places | {p: places[q], q: places[p]}
    for column in sorted({column for column, _ in places.values()}):
        for step in (-1, 1):
            yield {q: (c, r + step if c == column else r) for q, (c, r) in places.items()}


def _improved(
    places: Places, cost: Callable[[Places], float], moves: Callable[[Places], Iterator[Places]]
) -> Places:
    """Make the best move again and again, until none helps."""
    best = cost(places)
    for _ in range(200):
        choices = list(moves(places))
        values = [cost(choice) for choice in choices]
        if not values or min(values) >= best - 1e-9:
            break
        best = min(values)
        places = choices[values.index(best)]
    return places


def _by_neighbours(columns: list[list[Hashable]], pairs: list[tuple[Hashable, Hashable]]) -> Places:
    """Sort each column by the mean row of its states' neighbours, several times over."""
    near: dict[Hashable, list[Hashable]] = {q: [] for column in columns for q in column}
    for u, v in pairs:
        near[u].append(v)
        near[v].append(u)
    places: Places = {}

    def put(c: int, column: list[Hashable]) -> None:
        for r, q in enumerate(column):
            places[q] = (c, r - (len(column) - 1) / 2)

    for c, column in enumerate(columns):
        put(c, column)
    for _ in range(6):
        for c, column in enumerate(columns):
            mean = {q: sum(places[p][1] for p in near[q]) / (len(near[q]) or 1) for q in column}
            put(c, sorted(column, key=lambda q: (round(mean[q], 9), column.index(q))))
    return places


# ---- a row, a ring ---------------------------------------------------------------------------------------------


def _in_a_row(diagram: Diagram) -> Places:
    """Place states in a row, depth first along the first arcs: the backbone of a chain with shortcuts."""
    following = _following(diagram)
    order = {node.key: i for i, node in enumerate(diagram.nodes)}
    seen: dict[Hashable, None] = {}
    todo = [node.key for node in reversed(diagram.nodes)]
    todo += [node.key for node in reversed(diagram.nodes) if node.initial]
    while todo:
        q = todo.pop()
        if q not in seen:
            seen[q] = None
            todo += sorted(following[q], key=order.__getitem__, reverse=True)
    return {q: (i, 0) for i, q in enumerate(seen)}


def _in_a_ring(diagram: Diagram, layer: dict[Hashable, int]) -> Places:
    """Place states on a circle, the first one on the left, so that arcs are short and few of them cross."""
    keys = sorted((node.key for node in diagram.nodes), key=lambda q: layer[q])
    pairs = neighbours(diagram)
    n = len(keys)
    radius = 0.5 / math.sin(math.pi / n)

    def spot(i: int) -> Place:
        # clockwise from the left, so that the first neighbours are at the top
        angle = math.pi - 2 * math.pi * i / n
        return round(radius * math.cos(angle), 6), round(-radius * math.sin(angle), 6)

    def cost(places: Places) -> float:
        lines = [(Point(*places[u]), Point(*places[v])) for u, v in pairs]
        crossings = sum(segments_cross(a, b, c, d) for (a, b), (c, d) in itertools.combinations(lines, 2))
        length = sum(math.dist(a, b) for a, b in lines)
        backwards = sum(0.05 * max(0.0, places[e.source][0] - places[e.target][0]) for e in diagram.edges)
        return round(2 * crossings + length + backwards, 6)

    def moves(places: Places) -> Iterator[Places]:
        for p, q in itertools.combinations(keys[1:], 2):
            yield places | {p: places[q], q: places[p]}

    return _improved({q: spot(i) for i, q in enumerate(keys)}, cost, moves)


# ---- the whole scene --------------------------------------------------------------------------------------------


SPREADS = (1.0, 1.12, 1.25, 1.4, 1.6, 1.85, 2.15, 2.5, 3.0, 3.6, 4.3, 5.2)
TRIES, PATIENCE = 2, 1
"""The routings tried at each spread, and the spreads tried beyond the first one at which all labels have room."""
HOPELESS, STRIDE = 0.4, 3
"""If more than this share of the labels has no room, the next spread to try is so many steps further."""
GAP, RISE = 62.0, 112.0
"""The least distance between neighbours: from outline to outline in a row, between centres in a column."""
HANDICAPS = {"columns": 0.0, "given": 0.0, "row": 1.0, "ring": 6.0}
"""By how much an arrangement must be better than columns to be drawn instead."""


@dataclass(frozen=True)
class Scene:
    """A diagram with everything in its place."""

    diagram: Diagram
    shapes: dict[Hashable, Shape]
    routes: list[Route]
    """The curves, in the order of `diagram.edges`."""
    labels: list[Box]
    """The labels' boxes, in the order of `diagram.edges`."""
    misplaced: int
    """The number of labels that found no free place: 0, unless the automaton is far too dense to be drawn."""

    @property
    def box(self) -> Box:
        """The box around the whole picture."""
        boxes = [*(s.box for s in self.shapes.values()), *self.labels]
        boxes += [bounds(r.curve.points(24)) for r in self.routes]
        left, top, right, bottom = zip(*boxes, strict=True)
        return Box(min(left), min(top), max(right), max(bottom))


def scene(diagram: Diagram) -> Scene:
    """Place all states, arcs and labels of a diagram."""
    sizes = [label_size(e) for e in diagram.edges]
    drafts: list[tuple[float, Places, list[Route], int]] = []
    for name, places in arrangements(diagram):
        shapes = _shapes(diagram, places, 1.0)
        routes, price = Router(diagram, shapes).choose()
        placing = place_labels(routes, sizes, shapes)
        price += 3 * len(placing.failed) + len(placing.doubtful) + HANDICAPS[name] + _sprawl(shapes)
        drafts.append((round(price, 6), places, routes, _stride(placing, sizes)))
    scenes: list[Scene] = []
    for _, places, routes, stride in sorted(drafts, key=lambda draft: draft[0]):
        scenes.append(_spread_out(diagram, places, routes, stride if stride > 1 else 0))
        if not scenes[-1].misplaced:
            break
    return min(scenes, key=lambda s: s.misplaced)


def _stride(placing: LabelPlaces, sizes: list[tuple[float, float]]) -> int:
    """Return how many spreads further to go: several if most labels lack room, whatever the curves."""
    return STRIDE if len(placing.failed) > HOPELESS * len(sizes) else 1


def _spread_out(diagram: Diagram, places: Places, routes: list[Route], step: int) -> Scene:
    """Move states apart until labels have room; at each spread, arcs whose labels have none try other curves.

    `step` is the number of the first spread to try.
    """
    sizes = [label_size(e) for e in diagram.edges]
    index = {(e.source, e.target): i for i, e in enumerate(diagram.edges)}
    best: tuple[tuple[float, ...], Scene] | None = None
    clear_at: int | None = None
    while step < len(SPREADS) and (clear_at is None or step <= clear_at + PATIENCE):
        shapes = _shapes(diagram, places, SPREADS[step])
        router = Router(diagram, shapes)
        extra: dict[tuple[int, Manner], float] = {}
        stride = 1
        for _ in range(TRIES):
            routes, _ = router.choose(routes, extra)
            placing = place_labels(routes, sizes, shapes)
            rank = (len(placing.failed), len(placing.doubtful) + 0.7 * step)
            if best is None or rank < best[0]:
                best = rank, Scene(diagram, shapes, routes, placing.boxes, len(placing.failed))
            if not placing.failed and clear_at is None:
                clear_at = step
            if not placing.failed and len(placing.doubtful) <= len(sizes) // 12:
                return best[1]
            stride = _stride(placing, sizes)
            if stride > 1:
                break
            for i in (*placing.failed, *placing.doubtful):
                back = index.get((routes[i].target, routes[i].source), i)
                for j, price in ((i, 3.0), (back, 1.5)):
                    key = (j, routes[j].manner)
                    extra[key] = extra.get(key, 0.0) + price
        step += stride
    assert best is not None
    return best[1]


def _shapes(diagram: Diagram, places: Places, spread: float) -> dict[Hashable, Shape]:
    """Return the states at their places, far enough apart for a label between neighbours in a row."""
    shapes = node_shapes(diagram)
    across = 2 * max(s.radius + s.stretch for s in shapes.values())
    high = 2 * max(s.radius for s in shapes.values())
    top = min(row for _, row in places.values())
    arcs = [label_size(e) for e in diagram.edges if e.source != e.target]
    loops = [(places[e.source][1] > top, label_size(e)) for e in diagram.edges if e.source == e.target]
    step_x = spread * (across + max(GAP, max((w for w, _ in arcs), default=0.0) + 22))
    step_x = max(step_x, max((w for _, (w, _) in loops), default=0.0) + 14)
    # Loops are above their states, so those below the top row need room under the row above.
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
    """Return the price of size: a long strip is harder to read than a compact picture."""
    box = bounds([s.center for s in shapes.values()])
    return (box.right - box.left + box.bottom - box.top) / 400
