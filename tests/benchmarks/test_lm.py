"""The language models' benchmarks on tiny sizes, without a GPU: cases of equal parameters, rows, ratios, files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    import cuda_lm
    import lm

    for module in (lm, cuda_lm):
        monkeypatch.setattr(module, "WORDS", 60)
        monkeypatch.setattr(module, "STEPS", 4)
        monkeypatch.setattr(module, "BATCH", 3)
    monkeypatch.setattr(cuda_lm, "DEVICE", "cpu")
    monkeypatch.setattr(cuda_lm, "TOKENS", {"train": 100, "dev": 20, "test": 20})


def test_where_a_cpus_step_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import lm

    file = tmp_path / "lm.json"
    arguments = ["lm.py", "--hidden-size", "32", "--rounds", "1", "--threads", "1", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", arguments)
    lm.main()
    written = json.loads(file.read_text())
    assert [row["part"] for row in written["rows"]] == list(lm.PARTS)
    for row in written["rows"]:
        assert row["ms"] > 0 and row["ratio"] > 0
        assert 0.9 * row["parameters"] < row["baseline_parameters"] <= row["parameters"]


def test_the_gpus_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    import cuda_lm

    cases = [
        cuda_lm.Case("LSTM 1k", "lstm", 1, like="F 1k"),
        cuda_lm.Case("F 1k", "F", 1, 48),
        cuda_lm.Case("broken 1k", "nobody", 1, 16),
    ]
    monkeypatch.setattr(cuda_lm, "CASES", cases)
    chosen = argparse.Namespace(only=[], precisions=["fp32", "bf16"], profile=False)
    rows = list(cuda_lm.rows_of(chosen, cuda_lm.splits_of(None)))
    assert [(row["name"], row["dtype"]) for row in rows] == [
        (case.name, precision) for precision in ("fp32", "bf16") for case in cases
    ]
    lstm, ours, broken = rows[:3]
    assert lstm["parameters"] <= ours["parameters"] and lstm["shape"][-1] % 16 == 0
    assert ours["baseline"] == "cuDNN LSTM 1k" and ours["ratio"] == lstm["ms"] / ours["ms"]
    assert ours["steps"] == 9 and ours["seconds_per_epoch"] > 0 and ours["test_ppl"] > 1
    assert "nobody" in broken["error"]
    assert len({len(cuda_lm.line(row)) for row in rows}) == 1
