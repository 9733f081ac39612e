"""kill -9 at any moment, then resume: the weights come out as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tiny_lm
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


def assert_same_result(folder: Path, other: Path, epochs: int = 3) -> None:
    for ours, theirs in zip(result(folder)[:2], result(other)[:2], strict=True):
        assert ours.keys() == theirs.keys()
        assert all(ours[name].equal(theirs[name]) for name in ours)
    ours, theirs = result(folder)[2], result(other)[2]
    assert [record["epoch"] for record in ours] == list(range(1, epochs + 1))
    assert [{**record, "train_loss": 0} for record in ours] == [
        {**record, "train_loss": 0} for record in theirs
    ]
    assert [r["train_loss"] for r in ours] == pytest.approx([r["train_loss"] for r in theirs])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    train(folder)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("program", "every", "kills"), [(toy_task, 1, 40), (tiny_lm, 31, 4)], ids=["toy", "language-model"]
)
def test_a_process_killed_at_any_moment_ends_as_if_it_were_not(
    tmp_path: Path, program: ModuleType, every: int, kills: int
) -> None:
    """The toy before each of its effects on the disk and on itself, a language model before some."""
    folder = tmp_path / "runs"
    command = [sys.executable, str(program.__file__), str(folder), str(every)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    folders = sorted(folder.iterdir())
    assert len(folders) > kills
    for killed in folders:
        assert_same_result(killed, folder / "0")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs kill -9")
def test_the_command_killed_from_outside(tmp_path: Path) -> None:
    """As a user would: the process dies wherever it happens to be, and --resume needs no other option."""
    data, folder = tiny_lm.write_corpus(tmp_path / "text.txt"), tmp_path / "run"
    config = tmp_path / "config.json"
    config.write_text(json.dumps(tiny_lm.tiny_config(data, epochs=400).to_dict()))
    command = [sys.executable, "-m", "rrnn", "lm", "train", "--out", str(folder)]
    with subprocess.Popen([*command, "--config", str(config)], stdout=subprocess.DEVNULL) as process:
        metrics = folder / "metrics.jsonl"
        while not metrics.exists() or metrics.read_bytes().count(b"\n") < 3:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    before = Run.open(folder).load("last")
    assert before
    epochs = before.meta["epoch"] + 2
    subprocess.run([*command, "--resume", "--epochs", str(epochs)], check=True, stdout=subprocess.DEVNULL)
    tiny_lm.train_tiny(tmp_path / "undisturbed", data, epochs=epochs)
    assert_same_result(folder, tmp_path / "undisturbed", epochs)


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
