"""benchmarks/wide.py at tiny shapes: rivals agree, and the result file has its rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
        (name, run) for name in ("Mamba", "GLA", "GLA") for run in ("forward", "forward_backward")
    ]
    assert all(row["ms"] > 0 and row["ratio"] > 0 for row in rows)


def test_models_on_a_gpu_are_compared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = import_module("cuda_wide")
    monkeypatch.setattr(cuda, "SMALL", (5, 2))
    for name, (shape, _) in cuda.MODELS.items():
        small = shape._replace(states=min(shape.states, 4), heads=min(shape.heads, 2))
        assert cuda.check(name, small, torch.float32, "cpu") < 1e-4


def test_instructions_are_counted(tmp_path: Path) -> None:
    """Kernels are compiled for a GPU in a process of its own: here they are interpreted."""
    folder, file = Path(import_module("wide").__file__ or "").parent, tmp_path / "counters.json"
    env = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "wide_counters.py", "--only", "S4D", "--json", str(file)]
    subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    forward, backward = json.loads(file.read_text())["rows"]
    assert (
        backward["instructions"] > forward["instructions"] > forward["FP"] > 60
    )  # 8 complex states a thread
    assert forward["registers"] <= 255 and forward["issue"] >= forward["instructions"]
