"""kill -9 at any moment, then resume: the weights come out as if nothing had happened, to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import toy_task
from torch import Tensor
from toy_task import train

from rrnn.tasks.checkpoints import path_of
from rrnn.tasks.runs import Run

TIMES = ("seconds", "tokens_per_s")  # what two sittings may disagree about


def result(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], list[dict[str, Any]]]:
    run = Run.open(folder)
    last, best = run.load("last"), run.load("best")
    assert last and best
    records = [{k: v for k, v in record.items() if k not in TIMES} for record in run.records()]
    return last.tensors, best.tensors, records


def assert_same_result(folder: Path, other: Path) -> None:
    for ours, theirs in zip(result(folder)[:2], result(other)[:2], strict=True):
        assert ours.keys() == theirs.keys()
        assert all(ours[name].equal(theirs[name]) for name in ours)
    ours, theirs = result(folder)[2], result(other)[2]
    assert [record["epoch"] for record in ours] == [1, 2, 3]
    assert [{**record, "train_loss": 0} for record in ours] == [
        {**record, "train_loss": 0} for record in theirs
    ]
    assert [r["train_loss"] for r in ours] == pytest.approx([r["train_loss"] for r in theirs])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(folder)
    return folder


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_at_any_moment_ends_as_if_it_were_not(tmp_path: Path, undisturbed: Path) -> None:
    subprocess.run([sys.executable, toy_task.__file__, str(tmp_path)], check=True)
    folders = sorted(tmp_path.iterdir())
    assert len(folders) > 60
    for folder in folders:
        assert_same_result(folder, undisturbed)


@pytest.mark.parametrize("seconds", [0.0, None])
def test_sittings_of_one_epoch_each(tmp_path: Path, undisturbed: Path, seconds: float | None) -> None:
    for epochs in (1, 2, 3):
        train(tmp_path / "run", epochs=epochs, seconds=seconds)
    assert_same_result(tmp_path / "run", undisturbed)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, undisturbed: Path) -> None:
    folder = tmp_path / "run"
    train(folder, epochs=2)
    damaged = bytearray(path_of(folder, "last").read_bytes())
    damaged[-3] ^= 1
    path_of(folder, "last").write_bytes(damaged)
    notes = Notes()
    train(folder, progress=notes)
    assert "damaged" in notes.text and "last.previous.safetensors, is used" in notes.text
    assert_same_result(folder, undisturbed)


class Notes(toy_task.Progress):
    text = ""

    def note(self, text: str) -> None:
        self.text += text
