"""The tab *Score*: Forward on a string, position by position, and the paths that it adds up."""

from __future__ import annotations

import math
from typing import Any

from rrnn.draw.automaton_diagrams import state_text, symbol_text, weight_text
from rrnn.draw.richtext import plain
from rrnn.errors import RRNNError
from rrnn.explorer.machines import machine_of, read_string
from rrnn.explorer.pictures import picture
from rrnn.wfsa import EPSILON, WFSA, Path

PATHS = 12


def score(machine: dict[str, Any], string: str) -> dict[str, Any]:
    """Return the table of Forward, the score of every prefix, and the best paths.

    Arcs, paths and the picture's arrows refer to states by their numbers in "states".
    """
    wfsa = machine_of(machine)
    symbols = read_string(wfsa, string)
    ring = wfsa.semiring
    drawn = picture(wfsa)
    place = wfsa.state_index
    arrows = {(q, p): i for i, (q, p) in enumerate(map(tuple, drawn.get("edges", [])))}
    arcs = [
        [
            place[a.source],
            None if a.symbol is EPSILON else plain(symbol_text(a.symbol)),
            place[a.target],
            _number(a.weight),
        ]
        for a in wfsa.arcs
        if a.weight != ring.zero
    ]
    return {
        "semiring": {
            **{"name": ring.name, "plus": ring.plus_symbol, "times": ring.times_symbol},
            **{"zero": _number(ring.zero), "one": _number(ring.one)},
        },
        "states": [plain(state_text(q)) for q in wfsa.states],
        "initial": _numbers(ring.numbers(wfsa.initial_weight)),
        "final": _numbers(ring.numbers(wfsa.final_weight)),
        "string": [plain(symbol_text(s)) for s in symbols],
        "arcs": [[*arc, arrows.get((arc[0], arc[2]))] for arc in arcs],
        "table": [_numbers(ring.numbers(row)) for row in wfsa.forward(symbols)],
        "prefixes": _numbers(ring.numbers(wfsa.prefix_scores(symbols))),
        "picture": drawn,
        **_paths(wfsa, symbols, arrows),
    }


def _paths(wfsa: WFSA, symbols: tuple[Any, ...], arrows: dict[tuple[int, ...], int]) -> dict[str, Any]:
    try:
        best = wfsa.k_best(symbols, PATHS)
    except RRNNError as error:  # with a cycle of ε-arcs, there may be a score but no best path
        return {"paths": [], "count": None, "why": str(error)}
    return {
        "paths": [_path(wfsa, path, arrows) for path in best],
        "count": _count(wfsa, symbols),
        "why": None,
    }


def _path(wfsa: WFSA, path: Path, arrows: dict[tuple[int, ...], int]) -> dict[str, Any]:
    place = wfsa.state_index
    return {
        "weight": _number(path.weight),
        "size": _size(wfsa, path.weight),
        "states": [place[q] for q in path.states],
        "symbols": [None if a.symbol is EPSILON else plain(symbol_text(a.symbol)) for a in path.arcs],
        "weights": [_number(a.weight) for a in path.arcs],
        "edges": [arrows.get((place[a.source], place[a.target])) for a in path.arcs],
    }


def _size(wfsa: WFSA, weight: Any) -> float:
    """Return the length of a path's bar; 0 for semirings without comparable magnitudes, such as logarithms."""
    ring = wfsa.semiring
    if ring.components and not ring.cancels:
        return 0.0
    size = float(ring.magnitude(weight) if ring.components else abs(weight))
    return size if math.isfinite(size) else 0.0


def _count(wfsa: WFSA, symbols: tuple[Any, ...]) -> int | None:
    """Return how many paths derive the string; None if there are too many to count."""
    try:
        return int(wfsa.with_semiring("boolean").with_semiring("counting").score(symbols))
    except RRNNError:
        return None


def _numbers(values: Any) -> list[float | str]:
    return [_number(value) for value in values]


def _number(value: Any) -> float | str:
    """Return a weight for JSON: a number, or a text for several components, ⟨0.5, −0.25⟩, and for infinities."""
    if isinstance(value, tuple):
        return plain(weight_text(value, 4))
    value = float(value)
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
