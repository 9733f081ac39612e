"""benchmarks/wide.py at tiny shapes: rivals agree, and the result file has its rows."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow


def test_it_runs(tmp_path: Path) -> None:
    import_module("wide").main(
        ["--small", "--rounds", "1", "--threads", "1", "--json", str(tmp_path / "wide.json")]
    )
    rows = json.loads((tmp_path / "wide.json").read_text())["rows"]
    assert [(row["name"], row["pass"]) for row in rows] == [
        (name, run) for name in ("Mamba", "GLA") for run in ("forward", "forward_backward")
    ]
    assert all(row["ms"] > 0 and row["ratio"] > 0 for row in rows)


def test_models_on_a_gpu_are_compared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = import_module("cuda_wide")
    monkeypatch.setattr(cuda, "SMALL", (5, 2))
    for name, (shape, _) in cuda.MODELS.items():
        small = shape._replace(states=min(shape.states, 4), heads=min(shape.heads, 2))
        assert cuda.check(name, small, torch.float32, "cpu") < 1e-4
