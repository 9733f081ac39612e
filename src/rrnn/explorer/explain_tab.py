"""The tab *Explain*: why a trained classifier predicts a label for a sentence."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from rrnn import __version__
from rrnn.automata import Cell
from rrnn.automata.unroll import written_states
from rrnn.errors import DataError, RunError
from rrnn.explorer.pictures import picture
from rrnn.interpret.paths import finite
from rrnn.tasks.classify.explanations import explain as explain_text
from rrnn.tasks.classify.trained import TrainedClassifier, classify_run, load_run
from rrnn.zoo.models import MODELS

MAX_TEXT, MAX_WORDS = 4000, 200
UNITS, PATHS = 5, 3
MAP_WORDS = 60
"""Words of a text up to which the page shows where paths enter: the pictures have a cell for every two words."""


def explain(folder: str, text: str, target: str | None) -> dict[str, Any]:
    """Return an explanation as JSON with a picture of each cell; paths refer to its states and arrows by number."""
    if len(text) > MAX_TEXT:
        raise DataError(f"the page explains texts of up to {MAX_TEXT} characters; got {len(text)}")
    best = Path(folder) / "best.safetensors"
    model = _model(folder, best.stat().st_mtime_ns if best.exists() else 0)
    words = len(model.tokenise(text))
    if words > MAX_WORDS:
        raise DataError(
            f"the page explains texts of up to {MAX_WORDS} words; got {words}. Use `rrnn explain` for longer ones."
        )
    maps = UNITS if words <= MAP_WORDS else 0
    found = explain_text(model, text, target=target, units=UNITS, paths=PATHS, maps=maps)
    cells = {unit.cell: _cell(model, unit.cell) for unit in found.units}
    pictures = {name: picture(cell) for name, cell in cells.items()}
    drawn = [
        {
            "units": each.units,
            "direction": each.direction,
            "says": each.says,
            "svg": each.picture(found.tokens),
        }
        for each in found.maps
    ]
    answer = found.to_json() | {"pictures": pictures, "labels": model.labels, "maps": drawn}
    for unit, shown in zip(found.units, answer["units"], strict=True):
        for own, path in zip(unit.paths, shown["paths"], strict=True):
            path |= _drawn(cells[unit.cell], pictures[unit.cell], path) | {"adds": unit.added_by(own.weight)}
    return finite(answer)


@lru_cache(maxsize=2)
def _model(folder: str, written: int) -> TrainedClassifier:
    """Load the model of a run. `written`, the time of its weights, makes the cache reload it after more training."""
    run = classify_run(folder)
    if run.cell_text is None and run.config.get("cell") not in MODELS:
        raise RunError(
            "this run has no file cell.cell, and its configuration does not name a model of the zoo"
        )
    try:
        return load_run(run)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise RunError(f"rrnn {__version__} cannot read the files of this run ({error!r})") from None


def _cell(model: TrainedClassifier, name: str) -> Cell:
    first = model.module.layers[0]
    return next(cell for layer in first.layers for cell in layer.cell_types if cell.name == name)  # type: ignore[union-attr]


def _drawn(cell: Cell, drawn: dict[str, Any], path: dict[str, Any]) -> dict[str, Any]:
    """Return the states and arrows of a path by their numbers in the picture, which draws a family once."""
    place, states = {q: i for i, q in enumerate(cell.states)}, written_states(cell)
    arrows = {tuple(ends): i for i, ends in enumerate(drawn.get("edges", []))}
    visited = [states[path["start"]]]
    for step in path["steps"]:
        # A path that is read out ends in no state of the picture: it ends in the state that was read.
        visited.append(states.get(step["target"]) or _read_after(cell, visited[-1]))
    numbers = [place[q] for q in visited]
    return {"states": numbers, "edges": [arrows.get(ends) for ends in pairwise(numbers)]}


def _read_after(cell: Cell, state: str) -> str:
    """Return the state that is read when a path goes on from a state: itself, if it is read."""
    read = [q for q, _ in cell.reads]
    return (
        state
        if state in read
        else next(a.target for a in cell.arcs if a.source == state and a.target in read)
    )
