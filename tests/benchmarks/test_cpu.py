"""The CPU benchmarks on tiny shapes: the rivals compute what the cells compute, and result files have their form."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.mark.parametrize("name", ["B", "B max-plus", "C", "F", "log-B"])
def test_rivals_compute_the_same_and_differentiate_the_same(name: str) -> None:
    from kernels import Bench
    from rivals import cases

    (case,) = (case for case in cases() if case.name == name)
    bench = Bench.make(case, (6, 2, 18), "cpu", torch.float64)
    bench.params = bench.params.detach().double().requires_grad_()
    bench.state = torch.randn_like(bench.state).double()
    inputs = (bench.x, bench.params)
    ours, eager = bench.ours(), bench.eager()
    torch.testing.assert_close(ours, eager)
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs, bench.grad), torch.autograd.grad(eager, inputs, bench.grad)
    )


def run(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str
) -> list[dict[str, Any]]:
    from importlib import import_module

    file = tmp_path / "results.json"
    monkeypatch.setattr(sys, "argv", [f"{module}.py", *arguments, "--json", str(file)])
    import_module(module).main()
    written = json.loads(file.read_text())
    assert {"command", "commit", "versions", "hardware", "others_used_cores"} <= written["meta"].keys()
    for row in written["rows"]:
        assert {"name", "cell", "semiring", "shape", "dtype", "backend", "pass", "ms"} <= row.keys()
        assert row["pass"] in ("forward", "backward", "forward_backward") and row["ms"] > 0
        assert ("ratio" in row) == ("baseline" in row)
    return written["rows"]


def test_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shapes", "5,2,18", "--rounds", "1", "--threads", "1", "--cells", "B", "log-B"]
    rows = run("kernels", monkeypatch, tmp_path, *options)
    timed = [row for row in rows if "ratio" in row]
    assert len(timed) == 4 and {row["baseline"] for row in timed} == {"eager"}
    assert all(row["percent_of_copy"] > 0 and row["gb_per_s"] > 0 for row in timed)
    assert len([row for row in rows if row["name"].startswith("first compile")]) == 4
    printed = capsys.readouterr().out
    assert "least ratio" in printed and "others used" in printed


def test_layers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import layers

    monkeypatch.setattr(layers, "CELLS", ("B",))
    monkeypatch.setattr(layers, "STREAM", 18)
    rows = run("layers", monkeypatch, tmp_path, "--shapes", "3,2,18", "--rounds", "1", "--threads", "1")
    assert [row["baseline"] for row in rows] == [
        *("nn.LSTM", "nn.GRU", "nn.LSTM, equal parameters", "nn.GRU, equal parameters"),
        "its matrix product alone",
    ]
    capsys.readouterr()


def test_rivals_of_equal_parameters() -> None:
    from layers import of_equal_parameters, parameters

    for kind in (torch.nn.LSTM, torch.nn.GRU):
        for wanted in (50_000, 500_000):
            assert abs(parameters(of_equal_parameters(kind, 100, wanted)) - wanted) < 0.02 * wanted


def test_a_watch_counts_others_and_not_us(monkeypatch: pytest.MonkeyPatch) -> None:
    import quiet

    used, own, clock = iter([100.0, 103.0]), iter([10.0, 12.0]), iter([0.0, 2.0])
    monkeypatch.setattr(quiet, "_used", lambda: next(used))
    monkeypatch.setattr(quiet, "_own", lambda: next(own))
    monkeypatch.setattr(quiet.time, "perf_counter", lambda: next(clock))
    with quiet.Watch() as watch:
        pass
    assert watch.others == 0.5 and watch.busy and "busy" in watch.note


def test_export(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--shapes", "3,2,8", "--models", "20,8,1", "--rounds", "1", "--cells", "F"]
    rows = run("export", monkeypatch, tmp_path, *options)
    assert [row["backend"] for row in rows if row["kind"] == "step"] == ["C", "onnxruntime", "torch"]
    assert all(row["bytes"] > 0 for row in rows if row["kind"] == "step")
    assert {row["backend"] for row in rows if row["kind"] == "layer"} >= {
        "onnxruntime",
        "nn.LSTM, onnxruntime",
    }
    assert "onnxruntime" in capsys.readouterr().out
