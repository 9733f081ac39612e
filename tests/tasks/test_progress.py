"""What a training shows of itself."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from toy_task import ToyTask

from rrnn.tasks.plots import plot_losses
from rrnn.tasks.progress import Clock, LiveProgress, PlainProgress, describe, duration, show_progress
from rrnn.tasks.training import fit

RECORD = {"epoch": 7, "train_loss": 4.0, "lr": 0.5, "seconds": 1.0, "tokens_per_s": 12345.6}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines() -> None:
    assert describe({**RECORD, "dev_ppl": 60.123, "dev_loss": 4.1}) == (
        "epoch   7  train ppl 54.60  dev ppl 60.12  lr 0.5  12,346 tokens/s"
    )
    assert describe({"epoch": 1, "train_loss": 0.5, "dev_accuracy": 0.875}) == (
        "epoch   1  train loss 0.5000  dev accuracy 0.8750"
    )
    assert "train ppl ∞" in describe({**RECORD, "train_loss": 100.0, "dev_ppl": 1.0})


def test_time_left_is_of_this_sitting() -> None:
    now = 100.0
    clock = Clock(10, 4, lambda: now)  # resumed after four epochs
    assert clock.left(4) == ""
    now += 30
    assert clock.left(5) == "2:30 left"
    assert clock.left(4.5) == "5:30 left"
    assert clock.left(10) == ""
    assert [duration(s) for s in (3, 59.6, 3723)] == ["0:03", "1:00", "1:02:03"]


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    progress = show_progress(stream)
    assert isinstance(progress, PlainProgress)
    fit(ToyTask(), epochs=2, progress=progress)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 and "\x1b" not in stream.getvalue()
    assert lines[0].startswith("epoch   1  train loss") and lines[0].endswith("best  0:00 left")


def test_a_long_epoch_has_lines_of_its_own() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.every = 0.0
    fit(ToyTask(), epochs=1, progress=progress, checkpoint_seconds=0)
    assert stream.getvalue().startswith("epoch 1: step 1/2  loss ")
    progress = PlainProgress(stream, perplexity=True)
    progress.every = 0.0
    progress.begin(2, [])
    progress.step(1, 1, 4, 4.0, 1234.5)
    assert "epoch 1: step 1/4  ppl 54.60  1,234 tokens/s  0:00 left\n" in stream.getvalue()


def test_a_terminal_has_a_bar_and_the_lines() -> None:
    stream = Terminal()
    progress = show_progress(stream)
    assert isinstance(progress, LiveProgress)
    fit(ToyTask(), epochs=2, progress=progress, checkpoint_seconds=0)
    assert "epoch   2  train loss" in stream.getvalue() and "epoch 2/2" in stream.getvalue()


def test_the_bar_ends_when_training_fails() -> None:
    progress = show_progress(Terminal())
    assert isinstance(progress, LiveProgress)
    with pytest.raises(Exception, match="became inf"):
        fit(ToyTask(explode_at=1), epochs=2, progress=progress)
    assert progress.bar.finished or not progress.bar.live.is_started


def test_without_rich_lines_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(show_progress(Terminal()), PlainProgress)


@pytest.mark.parametrize("dev", [{"dev_loss": 4.0, "dev_ppl": 54.6}, {"dev_accuracy": 0.5}])
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_plot(tmp_path: Path, dev: dict[str, float], epochs: int) -> None:
    """Two curves, in one panel if both are losses; a single epoch is seen as points."""
    records = [{**RECORD, **dev, "epoch": epoch} for epoch in range(1, epochs + 1)]
    assert plot_losses(records, tmp_path) == f"loss plot: {tmp_path / 'loss.svg'}"
    assert [path.name for path in tmp_path.iterdir()] == ["loss.svg"]
    text = (tmp_path / "loss.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    assert text.count('class="curve thin"') == 2 + 2  # the curves, and their samples in the legend
    assert text.count('class="axis"') == (1 if "dev_loss" in dev else 2)
    assert text.count('class="dot"') == (2 if epochs == 1 else 0)
    assert all(name.replace("_", " ") in text for name in ("train_loss", next(iter(dev))))


def test_a_plot_leaves_out_what_is_not_finite(tmp_path: Path) -> None:
    plot_losses([{**RECORD, "dev_accuracy": value, "epoch": 1} for value in (float("inf"), 0.5)], tmp_path)
    text = (tmp_path / "loss.svg").read_text(encoding="utf-8")
    assert "inf" not in text and "nan" not in text


def test_no_plot_says_why(tmp_path: Path) -> None:
    assert "no epoch yet" in plot_losses([], tmp_path)
    assert not list(tmp_path.iterdir())
