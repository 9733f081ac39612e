"""A file of trainings: a line of JSON for what they share, then one for each, appended when it ends."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrnn.errors import RunError
from rrnn.tasks.runs import CONFIG, Run

Line = dict[str, Any]


@dataclass
class Evidence:
    """The first of `lines` is the head: what must be the same whenever trainings are added, and facts."""

    path: Path
    lines: list[Line]

    @classmethod
    def read(cls, path: Path) -> Evidence:
        """A last line that was not written to its end is left out."""
        whole = path.read_bytes().rpartition(b"\n")[0]
        try:
            return cls(path, [json.loads(line) for line in whole.splitlines()])
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}. Cut it before the broken line") from None

    @classmethod
    def open(cls, path: Path, head: Line, facts: Line, defaults: Line | None = None) -> Evidence:
        """To add to it. A file whose head says otherwise is of other trainings; `defaults`, as nested as it, are of
        options that may be younger than the file."""
        head = json.loads(json.dumps(head))
        found = cls.read(path) if path.exists() else cls(path, [])
        if found.lines:
            found._check_head(head, defaults or {})
            with path.open("r+b") as file:  # so that what is appended begins a line of its own
                file.truncate(path.read_bytes().rfind(b"\n") + 1)
        else:
            path.write_bytes(b"")
            found.append(head | facts)
        return found

    def _check_head(self, head: Line, defaults: Line) -> None:
        now = _flat(head)
        known = {key: value for key, value in _flat(defaults).items() if key in now}
        was = known | _flat({key: self.head.get(key) for key in head})
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        if keys:
            changes = ", ".join(f"{key} {was.get(key)!r}, not {now.get(key)!r}" for key in keys)
            raise RunError(
                f"{self.path} was begun with other options: {changes}. Give this variant a --label of its own, or "
                "move the file away"
            )

    @property
    def head(self) -> Line:
        return self.lines[0]

    def append(self, line: Line) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        self.lines.append(line)

    def take(self, key: Line, answer: Line | Exception | None) -> None:
        """What came of a training: its line, an error, or nothing, where it was too late to begin."""
        if isinstance(answer, Exception):
            print(f"{self.path.stem} {key}: {type(answer).__name__}: {answer}", flush=True)
        elif answer is not None:
            self.append(answer)
            told = {
                name: answer.get(name) for name in ("dev", "test", "held_out", "epochs", "seconds", "error")
            }
            print(self.path.stem, *(f"{k}={v}" for k, v in (key | told).items() if v is not None), flush=True)

    def has(self, key: Line) -> bool:
        return any(key.items() <= {k: line.get(k) for k in key}.items() for line in self.lines)

    def settings(self) -> list[Line]:
        return [line for line in self.lines if line["kind"] == "setting"]

    def best(self, count: int) -> list[Line]:
        """So many settings, the best on dev first; of equal ones the first drawn."""
        tried = sorted(self.settings(), key=lambda line: line["number"])
        return sorted((line for line in tried if "dev" in line), key=lambda line: -line["dev"])[:count]

    def chosen(self) -> Line | None:
        """The setting that is best on dev; if some were trained again, the one of them that is best on average; if some
        were judged by held-out parts of the training texts, the best of them there."""
        best = self.best(len(self.lines))
        again = self._again()
        judged = self._held_out() or {
            n: [line["dev"], *again[n]] for line in best if (n := line["number"]) in again
        }
        among = [line for line in best if line["number"] in judged] or best[:1]
        return max(among, key=lambda line: statistics.fmean(judged.get(line["number"], [0.0])), default=None)

    def _again(self) -> dict[int, list[float]]:
        """Each setting's accuracies on dev elsewhere; one whose loss became NaN is out."""
        found: dict[int, list[float]] = {}
        for line in self.lines:
            if line["kind"] == "again":
                found.setdefault(line["number"], []).append(line.get("dev", -math.inf))
        return found

    def _held_out(self) -> dict[int, list[float]]:
        """Each setting's accuracies on parts of the training texts, of those that have them all: others cannot be
        compared yet. Finer parts, with more to train on, count alone."""
        found: dict[tuple[int, int], list[float]] = {}
        for line in self.lines:
            if line["kind"] == "held out":
                key = line["parts"], line["number"]
                found.setdefault(key, []).append(line.get("held_out", -math.inf))
        whole = {key: values for key, values in found.items() if len(values) == key[0]}
        finest = max((parts for parts, _ in whole), default=0)
        return {number: values for (parts, number), values in whole.items() if parts == finest}

    def finals(self) -> list[Line]:
        """The final trainings of the chosen setting: others are of a time when fewer settings had been tried."""
        best = self.chosen()
        found = [line for line in self.lines if line["kind"] == "final" and best is not None]
        return [line for line in found if best is not None and line["number"] == best["number"]]


def _flat(line: Line) -> Line:
    nested = {
        f"{key}.{k}": v for key, value in line.items() if isinstance(value, dict) for k, v in value.items()
    }
    return {key: value for key, value in line.items() if not isinstance(value, dict)} | nested


def seconds_before(folder: Path) -> float:
    """Which the run in the folder trained before it was killed, without evaluations; 0 where there is none."""
    records = Run.open(folder).records() if (folder / CONFIG).exists() else ()
    return sum(record["seconds"] for record in records)


def changes_of(pairs: Iterable[str]) -> dict[str, Any]:
    """Of KEY=VALUE …"""
    return {key: _value_of(text) for key, _, text in (pair.partition("=") for pair in pairs)}


def _value_of(text: str) -> Any:
    """JSON, or else the text itself; lists become tuples, as in configurations."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value
