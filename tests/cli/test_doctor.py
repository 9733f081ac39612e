"""`rrnn doctor`, as users call it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import rrnn
from rrnn.backends.registry import TABLE, resolve
from rrnn.cli import bench, doctor, main
from rrnn.ir import lower


def run(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["doctor", *args]) == 0
    return capsys.readouterr().out


def test_what_it_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RRNN_DATA", raising=False)
    out = run(capsys)
    assert out.startswith(f"rrnn {rrnn.__version__}, torch {torch.__version__}, python 3.")
    assert "\nbackend    device\n" in out and "RRNN_DATA is not set." in out
    assert all(f"\n{name} " in out for name in TABLE)
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_json_names_the_backend_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(run(capsys, "--json"))
    assert facts["torch"] == torch.__version__ and "cpu" in facts["devices"]
    here = {each["backend"]: each for each in facts["backends"] if each["device"] == "cpu"}
    assert list(here) == list(TABLE) and here["reference"]["why_not"] is None
    program = lower(rrnn.get_cell("F")).program
    default = resolve("auto", torch.device("cpu"), torch.float32, [program]).name
    assert [name for name, each in here.items() if each["default"]] == [default]
    assert all(each["default"] is False for each in here.values() if each["why_not"])


def test_data(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RRNN_DATA", str(tmp_path))
    assert run(capsys).endswith(f"RRNN_DATA is {tmp_path}\n")
    monkeypatch.setenv("RRNN_DATA", str(tmp_path / "nowhere"))
    assert "nowhere, but there is no such folder" in run(capsys)
    assert json.loads(run(capsys, "--json"))["data"] == str(tmp_path / "nowhere")


@pytest.fixture
def quick_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kernel_rows", "layer_rows"):
        monkeypatch.setattr(doctor, name, partial(getattr(bench, name), shape=(4, 2, 8), seconds=0.0))


def test_bench(quick_bench: None, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--bench")
    for cell in bench.CELLS:
        for words in ("forward   cpu     float32", "training  cpu     float32", "cpu     float32"):
            assert f"\n{cell:<10}  {words}" in out
    assert out.count(" %\n") == 2 * len(bench.CELLS) and "nn.LSTM, ms  times as fast" in out
    assert max(map(len, out.splitlines())) <= 120


def test_bench_as_json(quick_bench: None, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "--bench", "--json"))["bench"]
    assert [(row["cell"], row["training"]) for row in found["kernels"]] == [
        (cell, training) for cell in bench.CELLS for training in (False, True)
    ]
    for row in found["kernels"]:
        tensors = {"B": (3, 8), "F": (5, 14), "B-max-plus": (3, 8)}[row["cell"]][row["training"]]
        assert row["gb_per_s"] * row["ms"] * 1e6 == pytest.approx(
            tensors * 4 * 2 * 8 * 4
        )  # bytes that must move
        assert row["of_copy"] > 0
    for row in found["layers"]:
        assert row["ratio"] == pytest.approx(row["lstm_ms"] / row["ms"])


def test_rivals_take_turns_until_time_is_up() -> None:
    calls: list[str] = []
    rivals = {name: partial(calls.append, name) for name in "ab"}
    best = bench.best_of(rivals, 1000, 1, seconds=0.0, wait=lambda: calls.append("."))
    assert calls == list("a.b.a.b.") and all(
        0 < ms < 1e3 for ms in best.values()
    )  # a round to warm up, and one
    assert len(bench.best_of({"a": lambda: None}, 3)) == 1


def test_a_gpu_is_described_by_what_chooses_its_kernels(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = SimpleNamespace(
        name="NVIDIA L4",
        total_memory=23 << 30,
        multi_processor_count=58,
        shared_memory_per_block_optin=99 << 10,
        shared_memory_per_multiprocessor=100 << 10,
        L2_cache_size=48 << 20,
        memory_clock_rate=6_251_000,
        memory_bus_width=192,
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: given)
    words = "58 multiprocessors, 99 KB shared memory, 48 MB L2 cache, 300 GB/s"
    assert f"NVIDIA L4, 23 GiB, {words}" in run(capsys)
