"""Plot the curves of a run into its folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rrnn.draw.charts import Axis, Panel, Series, figure
from rrnn.tasks.checkpoints import write_atomic
from rrnn.tasks.training import Record

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
