"""The tasks of the language benchmark say what they should; its trainings run, resume and become a table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def drawn(task: str, length: int, count: int = 400) -> tuple[list[tuple[int, ...]], list[int]]:
    from languages import TASKS

    x, y = TASKS[task].draw(np.random.default_rng(length), length, count)
    assert x.shape == (length, count) and y.shape == (count,)
    assert set(np.unique(x)) <= set(range(TASKS[task].symbols))
    return [tuple(column) for column in x.T.tolist()], y.tolist()


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_labels(length: int) -> None:
    from languages import PERMUTATIONS

    for strings, labels, right in (
        (*drawn("parity", length), lambda s: s.count(1) % 2),
        (*drawn("modulo3", length), lambda s: sum(s) % 3),
        (*drawn("recall", length), lambda s: s[0]),
    ):
        assert labels == [right(s) for s in strings]
        assert len(set(labels)) == max(labels) + 1
    for string, label in zip(*drawn("S3", length), strict=True):
        points = (0, 1, 2)
        for symbol in string:
            points = tuple(PERMUTATIONS[symbol][p] for p in points)
        assert PERMUTATIONS[label] == points


@pytest.mark.parametrize("length", [2, 4, 10, 40])
def test_hard_negatives(length: int) -> None:
    """A string is labelled 1 if and only if it is aⁿbⁿ, and the others differ little from it."""
    half = length // 2
    right = (0,) * half + (1,) * half
    strings, labels = drawn("anbn", length, 1000)
    assert labels == [int(s == right) for s in strings]
    assert 400 < sum(labels) < 600
    wrong = {s for s, label in zip(strings, labels, strict=True) if not label}
    assert max(sum(a != b for a, b in zip(s, right, strict=True)) for s in wrong) <= 2
    sorted_ones = {s for s in wrong if list(s) == sorted(s)}
    assert sorted_ones and (length == 2 or wrong - sorted_ones)
    assert length < 10 or any(s.count(0) == half for s in wrong)  # as many a's as b's, in another order


def options(file: Path, **changes: Any) -> argparse.Namespace:
    given = {"tasks": ["parity"], "models": ["B", "ring2"], "steps": 3, "settings": 2, "seeds": 2}
    return argparse.Namespace(**(given | {"workers": 1, "device": "cpu", "json": file} | changes))


def test_resuming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import languages

    monkeypatch.setattr(languages, "LENGTHS", (42,))
    monkeypatch.setattr(languages, "TESTED", 20)
    file = tmp_path / "r.json"
    rows = languages.run(options(file))
    assert len(rows) == 2 * (2 + 2)
    kept = json.loads(file.read_text())
    kept["rows"] = kept["rows"][:-3]
    file.write_text(json.dumps(kept))
    trained = []
    real = languages.train
    monkeypatch.setattr(languages, "train", lambda job: trained.append(job.key) or real(job))
    again = languages.run(options(file))
    assert len(trained) == 3
    assert [{**r, "seconds": 0} for r in again] == [
        {**r, "seconds": 0} for r in rows
    ]  # nothing else is random
    head, *body = languages.table(again)
    assert head[-1] == "42" and [row[1] for row in body] == ["B", "ring2"] and "/" in body[0][-1]
    best = languages.best_setting(rows, "parity", "B")
    assert best in [languages.setting(0), languages.setting(1)]


def test_chance_correction() -> None:
    from languages import TASKS, corrected

    assert corrected(1.0, TASKS["S3"]) == 1 and corrected(1 / 6, TASKS["S3"]) == 0
    assert corrected(0.25, TASKS["parity"]) == -0.5


@pytest.mark.slow
@pytest.mark.parametrize("model", ["B-signed", "ring2"])
def test_cells_that_count_learn_parity(model: str) -> None:
    """At lengths up to 40 within 500 steps, where B does not."""
    from languages import Job, train

    rates = {"B-signed": (0.01, 1.0), "ring2": (0.03, 1.0)}
    assert train(Job("parity", model, "search", 0, *rates[model], 500, "cpu"))["within"] > 0.9
