"""The benchmark of classifiers at its smallest: it runs, and its file has its form."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "classify.py"


def test_trainings_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["--data", "synthetic:not-good", "--vectors", "", "--settings", "2", "--epochs", "1"]
    out = tmp_path / "out.json"
    monkeypatch.setattr(
        sys, "argv", [str(SCRIPT), *args, "--device", "cpu", "--threads", "2", "--json", str(out)]
    )
    runpy.run_path(str(SCRIPT), run_name="__main__")
    found = json.loads(out.read_text())
    assert found["meta"]["versions"] and found["meta"]["commit"]
    (row,) = found["rows"]
    assert row["trainings"] == 2 and row["failed"] == 0 and row["threads"] == 2 and row["epochs"] == 2
    assert row["trainings_per_minute"] == pytest.approx(60 * 2 / row["seconds"], rel=0.1)
