"""Make random automata to draw, and find what overlaps in a picture."""

from __future__ import annotations

import math
import random
from itertools import combinations

from rrnn.automata import Cell, linear, one, parameter, sigmoid
from rrnn.draw.geometry import Box
from rrnn.draw.layout import Scene


def random_cell(seed: int, states: int, density: float) -> Cell:
    """Return a chain of `states` states, in which each other arc exists with probability `density`."""
    rng = random.Random(seed)
    cell = Cell(f"R{seed}").initial("q0")
    for i in range(states):
        for j in range(states):
            if j == i + 1 or rng.random() < density:
                cell = cell.arc(f"q{i}", f"q{j}", linear(f"u_{i}_{j}") if rng.random() < 0.8 else one)
            elif i < j and rng.random() < 0.06:
                cell = cell.epsilon(f"q{i}", f"q{j}", sigmoid(parameter(f"r_{i}_{j}")))
    return cell.final(f"q{states - 1}", sigmoid(parameter("p")))


def collisions(scene: Scene) -> list[str]:
    """Return what overlaps, by the definition: boxes are compared with boxes, and curves point by point."""
    found: list[str] = []
    labels = {f"label {i}": box for i, box in enumerate(scene.labels)}
    states = {f"state {key}": shape.box for key, shape in scene.shapes.items()}
    for (one_, a), (other, b) in combinations([*labels.items(), *states.items()], 2):
        if _overlap(a, b):
            found.append(f"{one_} with {other}")
    for i, route in enumerate(scene.routes):
        points = [route.curve.at(k / 300) for k in range(301)] + list(route.head)
        for name, box in labels.items():
            if any(box.left <= x <= box.right and box.top <= y <= box.bottom for x, y in points):
                found.append(f"{name} with arc {i}")
        for key, shape in scene.shapes.items():
            if key not in (route.source, route.target) and any(shape.distance(*p) < 2 for p in points):
                found.append(f"state {key} with arc {i}")
    for (i, r), (j, s) in combinations(enumerate(scene.routes), 2):
        if (r.source, r.target) == (s.target, s.source) and math.dist(r.curve.at(0.5), s.curve.at(0.5)) < 12:
            found.append(f"arc {i} with arc {j}, which goes back")
    return found


def _overlap(a: Box, b: Box) -> bool:
    return min(a.right, b.right) > max(a.left, b.left) and min(a.bottom, b.bottom) > max(a.top, b.top)
