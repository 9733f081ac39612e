"""What a report reads of runs: their numbers, with what is missing left out rather than guessed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.tasks.runs import CELL, CONFIG, LOADERS, METRICS, Run, runs_in
from rrnn.tasks.training import Record

FACTS, RESULT = "facts", "result.json"


@dataclass(frozen=True)
class Kind:
    """What the runs of a task are measured by, and under which keys they say so."""

    title: str
    metric: str
    aim: Literal["min", "max"]
    dev: str  # in a record of metrics.jsonl
    test: str  # in result.json
    speed: str
    units: str  # in the configuration

    @property
    def rate(self) -> str:
        return self.speed.removesuffix("_per_s") + "/s"

    def best(self, values: Sequence[float]) -> float:
        return min(values) if self.aim == "min" else max(values)


KINDS = {
    "lm": Kind("Language models", "perplexity", "min", "dev_ppl", "test_ppl", "tokens_per_s", "hidden_size"),
    "classify": Kind(
        "Text classifiers", "accuracy, %", "max", "dev_accuracy", "test", "examples_per_s", "hidden_size"
    ),
}


@dataclass(frozen=True)
class Reported:
    """A run under the name that the report calls it by."""

    name: str
    run: Run
    records: list[Record]
    result: dict[str, Any]
    """result.json; empty while the training has not come to its end."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.run.config["task"]]

    @property
    def data(self) -> str:
        """A user's file by its name alone: where it lies is in the configuration."""
        config = self.run.config
        name = str(config.get("data", "?"))
        name = Path(name).name if "/" in name else name
        return f"{name}, by characters" if config.get("level") == "char" else name

    @cached_property
    def cell(self) -> Cell | None:
        """None where the run's model is no cell, as an LSTM."""
        text = self.run.cell_text
        return None if text is None else Cell.from_text(text, str(self.run.folder / CELL))

    @property
    def model(self) -> str:
        """As the zoo calls it; a user's cell by the name that its text has."""
        name = str(self.run.config.get("cell", "?"))
        if self.cell is None:
            return name.upper()
        return self.cell.name if "/" in name or name.endswith(".cell") else name

    @property
    def shape(self) -> str:
        """ "2 × 150", layers and units."""
        config = self.run.config
        both = " ⇄" if config.get("bidirectional") else ""
        return f"{config.get('layers', '?')} × {config.get(self.kind.units, '?')}{both}"

    @property
    def parameters(self) -> float | None:
        facts = self.run.config.get(FACTS)
        return number(self.result, "parameters") or number(
            facts if isinstance(facts, dict) else {}, "parameters"
        )

    def curve(self, key: str) -> list[tuple[float, float]]:
        """(epoch, value) of the epochs that have the value."""
        pairs = ((number(record, "epoch"), number(record, key)) for record in self.records)
        return [(epoch, value) for epoch, value in pairs if epoch is not None and value is not None]

    def by_time(self) -> list[tuple[float, float]]:
        """(seconds of training so far, value on dev)."""
        points, seconds = [], 0.0
        for record in self.records:
            seconds += number(record, "seconds") or 0.0
            value = number(record, self.kind.dev)
            if value is not None:
                points.append((seconds, value))
        return points

    @property
    def best(self) -> tuple[float, float] | None:
        """(epoch, value) of the epoch that is best on dev."""
        points = self.curve(self.kind.dev)
        return next((p for p in points if p[1] == self.kind.best([v for _, v in points])), None)

    @property
    def test(self) -> float | None:
        return number(self.result, self.kind.test)

    @property
    def seconds(self) -> float | None:
        return sum(value for _, value in self.curve("seconds")) if self.records else None

    @property
    def speed(self) -> float | None:
        values = [value for _, value in self.curve(self.kind.speed)]
        return statistics.median(values) if values else None


def number(values: dict[str, Any], key: str) -> float | None:
    """A finite number; files may hold anything."""
    value = values.get(key)
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if right else None


def read_runs(folders: Sequence[str | Path]) -> list[Reported]:
    """Each run once, in the order given: of a folder that is none, those in it, at any depth. Or an error that says
    which holds no run."""
    if not folders:
        raise RunError("there is no run to report on: name the folders of runs, as in rrnn report runs/*")
    found = (run for folder in folders for run in _runs(Path(folder)))
    distinct = list({run.resolve(): run for run in found}.values())
    names = short_names([path.resolve() for path in distinct])
    return [_read(folder, name) for folder, name in zip(distinct, names, strict=True)]


def _runs(folder: Path) -> list[Path]:
    if folder.is_file():
        raise RunError(f"{folder} is a file, and runs are folders: name the folder of a run")
    found = runs_in(folder)
    if not found:
        what = f"there is no {CONFIG} in it" if folder.is_dir() else "there is no such folder"
        raise RunError(f"{folder} holds no run: {what}")
    return found


def _read(folder: Path, name: str) -> Reported:
    run = Run.open(folder)
    task = run.config["task"]
    if task not in KINDS:
        raise RunError(
            f"the run in {folder} is of the task {task!r}, and reports are on {', '.join(LOADERS)}"
        )
    records = _records(run)
    result = _result(folder / RESULT)
    if result.get("epochs") != len(records):
        result = {}  # of an earlier end: the run was resumed for more epochs
    return Reported(name, run, records, result)


def _records(run: Run) -> list[Record]:
    records = run.records()
    if not all(isinstance(record, dict) for record in records):
        raise RunError(
            f"{run.folder / METRICS} is damaged: each line is a JSON object, the record of an epoch"
        )
    return records


def _result(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise RunError(f"{path} is damaged: it is not JSON ({error})") from None
    return found if isinstance(found, dict) else {}


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, with as many before it as it takes to tell them apart."""
    depth = 1
    while True:
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names) or depth > max(len(folder.parts) for folder in folders):
            return names
        depth += 1
