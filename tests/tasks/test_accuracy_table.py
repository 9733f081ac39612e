from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path

import pytest
from tiny_classifier import tiny_config

from rrnn.errors import RunError
from rrnn.tasks.classify.experiment import Summary
from rrnn.tasks.paper_tables import (
    accuracies_to_json,
    accuracies_to_markdown,
    accuracy_table,
    paired,
    t_quantile,
)


def add_run(folder: Path, cell: str, seed: int, test: float | None, data: str = "sst") -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(cell=cell, data=data).to_dict()))
    summary = Summary(cell, data, seed, 3, 9, test or 50.0, test, 1000, 1.0)
    (folder / "result.json").write_text(json.dumps(asdict(summary)))


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_students_quantiles(freedom: int, value: float) -> None:
    """Against printed tables."""
    assert t_quantile(freedom) == pytest.approx(value, abs=1e-3)


def test_paired_interval() -> None:
    gains = [1.0, 2.0, 3.0, 2.0, 2.0]
    found = paired(gains, "LSTM")
    half = 2.776445 * statistics.stdev(gains) / 5**0.5
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2.0 - half, 2.0 + half), abs=1e-4)


def test_the_papers_table_without_runs() -> None:
    rows = accuracy_table([])
    text = accuracies_to_markdown(rows)
    assert len(rows) == 20 and "86.5 ± 0.6" in text and "RRNN(B) m+" in text and "CI" not in text


def test_runs_stand_beside_the_paper(tmp_path: Path) -> None:
    for seed, (f, lstm) in enumerate([(81.0, 80.0), (82.0, 79.0), (83.0, 81.0)]):
        add_run(tmp_path / "f" / f"seed-{seed}", "f", seed, f)
        add_run(tmp_path / "lstm" / f"seed-{seed}", "LSTM", seed, lstm)
    add_run(tmp_path / "mine", "SRU", 0, None, data="mine")
    rows = {(row.data, row.model): row for row in accuracy_table([tmp_path])}
    row = rows["sst", "F"]
    assert row.test == 82 and row.deviation == 1 and row.paper == (86.5, 0.6) and row.seeds == (0, 1, 2)
    assert row.difference is not None and row.difference.mean == 2 and row.difference.seeds == 3
    assert rows["sst", "LSTM"].difference is None
    assert rows["mine", "SRU"].test is None and rows["mine", "SRU"].dev == 50
    text = accuracies_to_markdown(list(rows.values()))
    assert "82.0 ± 1.0" in text and "+2.0 [-0.5, +4.5]" in text and "to LSTM, 95 % CI" in text
    assert json.loads(json.dumps(accuracies_to_json(list(rows.values()))))[0]["data"] == "amazon"


def test_only_seeds_that_both_have_are_compared(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        add_run(tmp_path / f"f-{seed}", "F", seed, 80.0 + seed)
    for seed, test in ((3, 10.0), (2, 81.0), (1, 80.0)):
        add_run(tmp_path / f"lstm-{seed}", "LSTM", seed, test)
    rows = {(row.data, row.model): row for row in accuracy_table([tmp_path, tmp_path / "f-0"])}
    found = rows["sst", "F"].difference
    assert found is not None and (found.seeds, found.mean, found.low, found.high) == (2, 1.0, 1.0, 1.0)
    assert rows["sst", "F"].test == 81  # of all its seeds


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished training"):
        accuracy_table([tmp_path])
    with pytest.raises(RunError, match="is not a folder"):
        accuracy_table([tmp_path / "none"])
    add_run(tmp_path / "a", "F", 0, 80.0)
    with pytest.raises(RunError, match="the reference must be one of"):
        accuracy_table([tmp_path], reference="G")
    add_run(tmp_path / "b", "F", 0, 80.0)
    with pytest.raises(RunError, match="with seed 0: give one"):
        accuracy_table([tmp_path])
