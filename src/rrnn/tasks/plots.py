"""A run's curves, as a picture beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrnn.tasks.training import Record

PLOT = "loss.png"


def plot_losses(records: Sequence[Record], folder: Path) -> str:
    """Writes FOLDER/loss.png. Says what was done, or why not."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure  # not pyplot: no windows, no global state
    except ModuleNotFoundError:
        return "no loss plot: matplotlib is not installed (pip install matplotlib)"
    if not records:
        return "no loss plot: there is no epoch yet"
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left: Any = figure.subplots()
    left.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    epochs = [record["epoch"] for record in records]
    marker = "o" if len(epochs) == 1 else ""  # one point makes no line
    left.plot(epochs, [r["train_loss"] for r in records], marker=marker, label="train loss", color="C0")
    axis = left
    if "dev_loss" in records[0]:
        left.plot(epochs, [r["dev_loss"] for r in records], marker=marker, label="dev loss", color="C1")
    else:
        axis = left.twinx()
        key = next(key for key in records[0] if key.startswith("dev_"))
        name = key.replace("_", " ")
        axis.plot(epochs, [r[key] for r in records], marker=marker, label=name, color="C1")
    left.set_xlabel("epoch")
    left.set_ylabel("loss")
    lines = [*left.get_lines(), *(axis.get_lines() if axis is not left else [])]
    left.legend(lines, [line.get_label() for line in lines], frameon=False)
    temporary = folder / f".{PLOT}.part"
    figure.savefig(temporary, format="png", dpi=120)
    temporary.replace(folder / PLOT)
    return f"loss plot: {folder / PLOT}"
