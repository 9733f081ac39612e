"""Show how a training is going: a live line on a terminal, plain lines elsewhere, and a plot of the losses."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from rrnn.draw.charts import Axis, Panel, Series, figure
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.training import Progress, Record


def show_progress(stream: IO[str] | None = None, *, perplexity: bool = False) -> Progress:
    """Return the progress display that suits a stream (default: stdout). With `perplexity`, losses are shown as
    perplexities, and speed in tokens per second."""
    out = sys.stdout if stream is None else stream
    if out.isatty():
        try:
            return LiveProgress(out, perplexity)
        except ModuleNotFoundError:  # no rich
            pass
    return PlainProgress(out, perplexity)


class PlainProgress(Progress):
    """Prints one line per epoch, and in long epochs one per minute."""

    every = 60.0

    def __init__(self, stream: IO[str], perplexity: bool = False) -> None:
        self.stream, self.perplexity = stream, perplexity

    def begin(self, epochs: int, history: list[Record]) -> None:
        self.clock = Clock(epochs, len(history))
        self._last = time.monotonic()

    def step(self, epoch: int, done: int, steps: int, loss: float, speed: float) -> None:
        if time.monotonic() - self._last >= self.every:
            self._last = time.monotonic()
            numbers = _numbers(loss, speed, self.perplexity)
            left = self.clock.left(epoch - 1 + done / steps)
            self.note(f"epoch {epoch}: step {done}/{steps}  {numbers}  {left}".rstrip())

    def epoch(self, record: Record, is_best: bool) -> None:
        self._last = time.monotonic()
        self.note(
            f"{describe(record)}{'  best' if is_best else ''}  {self.clock.left(record['epoch'])}".rstrip()
        )

    def note(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


class LiveProgress(Progress):
    """Shows a progress bar for the epoch below the lines of `PlainProgress`."""

    def __init__(self, stream: IO[str], perplexity: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        self.perplexity = perplexity
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} steps"),
            TextColumn("{task.fields[numbers]}"),
            console=Console(file=stream, highlight=False),
            transient=True,
        )

    def begin(self, epochs: int, history: list[Record]) -> None:
        self.epochs, self.clock = epochs, Clock(epochs, len(history))
        self.line = self.bar.add_task("", total=None, numbers="")
        self.bar.start()

    def step(self, epoch: int, done: int, steps: int, loss: float, speed: float) -> None:
        numbers = f"{_numbers(loss, speed, self.perplexity)}  {self.clock.left(epoch - 1 + done / steps)}"
        title = f"epoch {epoch}/{self.epochs}"
        self.bar.update(self.line, description=title, total=steps, completed=done, numbers=numbers)

    def epoch(self, record: Record, is_best: bool) -> None:
        self.note(f"{describe(record)}{'  best' if is_best else ''}")

    def note(self, text: str) -> None:
        self.bar.console.print(text, markup=False)

    def end(self) -> None:
        self.bar.stop()


class Clock:
    """Estimates the remaining time from the duration of the epochs since the training was started or resumed."""

    def __init__(self, epochs: int, done: float, now: Callable[[], float] = time.monotonic) -> None:
        self.epochs, self.first, self.now, self.start = epochs, done, now, now()

    def left(self, done: float) -> str:
        """Return the remaining time as text, or "" if there is no estimate."""
        if done <= self.first or done >= self.epochs:
            return ""
        return f"{duration((self.now() - self.start) / (done - self.first) * (self.epochs - done))} left"


def duration(seconds: float) -> str:
    """Format a duration: 1:02:03, 2:03, 0:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def describe(record: Record) -> str:
    """Format a record as a line, with losses as perplexities if it has a dev perplexity."""
    parts = [f"epoch {record['epoch']:3}"]
    if "dev_ppl" in record:
        parts.append(f"train ppl {_perplexity(record['train_loss'])}")
    else:
        parts.append(f"train loss {record['train_loss']:.4f}")
    for key, value in record.items():
        if key.startswith("dev_") and not (key.startswith(("dev_loss", "dev_ppl_")) and "dev_ppl" in record):
            name = key.removeprefix("dev_").replace("macro_f1", "macro-F1")
            parts.append(f"dev {name} {_number(value)}")
    if "lr" in record:
        parts.append(f"lr {record['lr']:.3g}")
    parts += [
        f"{value:,.0f} {key.removesuffix('_per_s')}/s"
        for key, value in record.items()
        if key.endswith("_per_s")
    ]
    return "  ".join(parts)


def _numbers(loss: float, speed: float, perplexity: bool) -> str:
    if perplexity:
        return f"ppl {_perplexity(loss)}  {speed:,.0f} tokens/s"
    return f"loss {loss:.4f}  {speed:,.0f}/s"


def _perplexity(loss: float) -> str:
    return f"{math.exp(loss):.2f}" if loss < 50 else "∞"


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


# ---- the loss plot ---------------------------------------------------------------------------------------------------


PLOT = "loss.svg"


def plot_losses(records: Sequence[Record], folder: Path) -> str:
    """Write the training and validation curves to FOLDER/loss.svg, and return a line that says so."""
    if not records:
        return "no loss plot: there is no epoch yet"

    def series(name: str, colour: int, key: str) -> Series:
        points = [(record["epoch"], record[key]) for record in records]
        return Series(name, colour, [(x, y) for x, y in points if math.isfinite(y)])

    epochs = Axis("epoch", whole=True)
    losses = [series("train loss", 0, "train_loss")]
    panels = [Panel(losses, epochs, Axis(), "Loss")]
    if "dev_loss" in records[0]:
        losses.append(series("dev loss", 1, "dev_loss"))
    else:
        key = next(key for key in records[0] if key.startswith("dev_"))
        name = key.replace("_", " ")
        panels.append(Panel([series(name, 1, key)], epochs, Axis(), name.capitalize()))
    legend = [each for panel in panels for each in panel.series]
    picture = figure(
        panels, title=f"Training of {folder.name}", columns=len(panels), width=480, legend=legend
    )
    write_atomic(folder / PLOT, picture.encode())
    return f"loss plot: {folder / PLOT}"
