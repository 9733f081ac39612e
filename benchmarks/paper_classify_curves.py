"""Accuracy on dev over the epochs, of the final trainings of every row in a folder of `paper_classify.py`.

    python benchmarks/paper_classify_curves.py docs/results/classify -o docs/results/classify/curves.svg

A panel for each data set and label. A model's line is the best so far, the mean over its final trainings; those that
have ended keep their best. (Needs matplotlib.)
"""

from __future__ import annotations

import statistics
from itertools import accumulate
from pathlib import Path
from typing import Any

from paper_classify_table import rows_of
from svg import main, pyplot, save

COLUMNS = 3


def best_so_far(curves: list[list[float]]) -> list[float]:
    """The mean of the curves' running maxima, as long as the longest of them."""
    longest = max(map(len, curves))
    running = ([*accumulate(curve, max)] for curve in curves)
    kept = [run + run[-1:] * (longest - len(run)) for run in running]
    return [statistics.fmean(values) for values in zip(*kept, strict=True)]


def draw(folder: Path, path: Path) -> None:
    panels: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row, evidence in rows_of(folder):
        curves = [line["curve"] for line in evidence.finals() if line.get("curve")]
        if curves:
            panels.setdefault((row["dataset"], row["label"]), {})[row["model"]] = best_so_far(curves)
    if not panels:
        raise SystemExit(f"there are no final trainings in {folder}")
    plt = pyplot()
    models = list(dict.fromkeys(model for lines in panels.values() for model in lines))
    colours = dict(zip(models, plt.get_cmap("tab10").colors, strict=False))
    high = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(high, COLUMNS, squeeze=False, figsize=(3.2 * COLUMNS, 2.5 * high))
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for ((data, label), lines), axis in zip(panels.items(), axes.flat, strict=False):
        draw_panel(axis, lines, colours)
        axis.set_title(f"{data}, {label}" if label else data, loc="left", fontsize=9)
    for axis in axes[:, 0]:
        axis.set_ylabel("best on dev so far, %")
    handles = [plt.Line2D([], [], color=colours[model], label=model) for model in models]
    figure.supxlabel("epoch", fontsize=9)
    figure.legend(handles=handles, loc="upper center", ncols=len(models), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / (2.5 * high)))
    save(figure, path)


def draw_panel(axis: Any, lines: dict[str, list[float]], colours: dict[str, Any]) -> None:
    for model, values in lines.items():
        axis.plot(range(1, len(values) + 1), values, linewidth=1.2, color=colours[model])
    ends = [values[-1] for values in lines.values()]
    axis.set_ylim(statistics.median(ends) - 8, max(ends) + 1)  # not down to chance
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter("{x:.0f}")
    axis.grid(True, linewidth=0.3)


if __name__ == "__main__":
    main(__doc__, draw)
