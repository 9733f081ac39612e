"""Read the numbers of runs for a report. Missing ones are left out, never guessed."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from rrnn.automata import Cell
from rrnn.errors import RunError
from rrnn.files import read_bytes, read_json
from rrnn.tasks.runs import CELL, LOADERS, TOKENIZER, Run, no_run, runs_in
from rrnn.tasks.training import Record

FACTS, RESULT = "facts", "result.json"


@dataclass(frozen=True)
class RunKind:
    """How the runs of a task are measured, and under which keys their files have the figures."""

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
        """Return the best of the values of the metric."""
        return min(values) if self.aim == "min" else max(values)


KINDS = {
    "lm": RunKind(
        "Language models", "perplexity", "min", "dev_ppl", "test_ppl", "tokens_per_s", "hidden_size"
    ),
    "classify": RunKind(
        "Text classifiers", "accuracy, %", "max", "dev_accuracy", "test", "examples_per_s", "hidden_size"
    ),
}


@dataclass(frozen=True)
class RunSummary:
    """A run with its records and results, under the name that the report gives it."""

    name: str
    run: Run
    records: list[Record]
    result: dict[str, Any]
    """The content of result.json; empty until the training has ended."""

    @property
    def kind(self) -> RunKind:
        return KINDS[self.run.config["task"]]

    @property
    def data(self) -> str:
        """The name of the data, without the folder of a user's file: the configuration has that. Perplexities are per
        token, so language models with different tokens have different data."""
        config = self.run.config
        name = str(config.get("data", "?"))
        name = Path(name).name if "/" in name else name
        if config["task"] == "lm" and config.get("tokenizer") is not None:
            return f"{name}, by the tokenizer {self._tokenizer_digest()}"
        return f"{name}, by characters" if config.get("level") == "char" else name

    def _tokenizer_digest(self) -> str:
        path = self.run.folder / TOKENIZER
        return hashlib.sha256(read_bytes(path)).hexdigest()[:6] if path.exists() else "?"

    @cached_property
    def cell(self) -> Cell | None:
        """The run's cell, or None if its model has none, as an LSTM."""
        text = self.run.cell_text
        return None if text is None else Cell.from_text(text, str(self.run.folder / CELL))

    @property
    def model(self) -> str:
        """The model's name in the zoo; for a user's cell, the name in its text."""
        name = str(self.run.config.get("cell", "?"))
        if self.cell is None:
            return name.upper()
        return self.cell.name if "/" in name or name.endswith(".cell") else name

    @property
    def shape(self) -> str:
        """Layers and units, as "2 × 150"."""
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
        """Return (epoch, value) for the epochs that have the value."""
        pairs = ((number(record, "epoch"), number(record, key)) for record in self.records)
        return [(epoch, value) for epoch, value in pairs if epoch is not None and value is not None]

    def by_time(self) -> list[tuple[float, float]]:
        """Return (seconds of training so far, validation metric) for each epoch."""
        points, seconds = [], 0.0
        for record in self.records:
            seconds += number(record, "seconds") or 0.0
            value = number(record, self.kind.dev)
            if value is not None:
                points.append((seconds, value))
        return points

    @property
    def best(self) -> tuple[float, float] | None:
        """(epoch, value) of the epoch with the best validation metric."""
        points = self.curve(self.kind.dev)
        return next((p for p in points if p[1] == self.kind.best([v for _, v in points])), None)

    @property
    def dev(self) -> float | None:
        return None if self.best is None else self.best[1]

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
    """Return the value if it is a finite number, else None: files may contain anything."""
    value = values.get(key)
    right = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if right else None


def read_runs(folders: Sequence[str | Path]) -> list[RunSummary]:
    """Read each run once, in the order given. A folder that is not a run stands for the runs below it.

    Raise a `RunError` for a folder without any run.
    """
    if not folders:
        raise RunError("there is no run to report on: name run folders, as in rrnn report runs/*")
    found = (run for folder in folders for run in _runs(Path(folder)))
    distinct = list({run.resolve(): run for run in found}.values())
    names = short_names([path.resolve() for path in distinct])
    return [_read(folder, name) for folder, name in zip(distinct, names, strict=True)]


def _runs(folder: Path) -> list[Path]:
    if folder.is_file():
        raise RunError(f"{folder} is a file, and runs are folders: name a run folder")
    found = runs_in(folder)
    if not found:
        raise no_run(folder)
    return found


def _read(folder: Path, name: str) -> RunSummary:
    run = Run.open(folder)
    task = run.config["task"]
    if task not in KINDS:
        raise RunError(f"the run in {folder} has the task {task!r}; reports cover {', '.join(LOADERS)}")
    records = run.records()
    result = _result(folder / RESULT)
    if result.get("epochs") != len(records):
        result = {}  # it is older: the run was resumed for more epochs
    return RunSummary(name, run, records, result)


def _result(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path) if path.exists() else {}
    except ValueError as error:
        raise RunError(f"{path} is damaged: it is not JSON ({error})") from None
    return found if isinstance(found, dict) else {}


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path, with as many parts before it as are needed to tell the paths apart."""
    depth = 1
    while True:
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names) or depth > max(len(folder.parts) for folder in folders):
            return names
        depth += 1
