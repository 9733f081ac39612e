"""`rrnn doctor`, as users call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import rrnn
from rrnn.backends.registry import TABLE, resolve
from rrnn.cli import main
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
