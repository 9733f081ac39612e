"""Perplexity on dev over the epochs, of every run in a folder of `paper_lm.py`.

    python benchmarks/paper_curves.py docs/results/lm-ptb -o docs/results/lm-ptb/curves.svg     (needs matplotlib)

A panel for each size. A run's line is that of its best weights at each epoch: the last ones or an average.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from svg import main, pyplot, save

SIZES = {"10m": "10M parameters", "24m": "24M parameters", "": ""}  # of what is in a name
ROOM = 1.35  # of the best perplexity: what is worse throughout is in the legend alone

Curve = tuple[list[int], list[float]]


def curve(run: Path) -> Curve:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [r["epoch"] for r in records], [r["dev_ppl"] for r in records]


def draw(folder: Path, path: Path) -> None:
    runs = {place.parent.name: curve(place.parent) for place in sorted(folder.glob("*/metrics.jsonl"))}
    if not runs:
        raise SystemExit(f"there are no runs in {folder}")
    panels: dict[str, dict[str, Curve]] = {}
    for name, run in runs.items():
        panels.setdefault(next(size for size in SIZES if size in name), {})[name] = run
    plt = pyplot()
    figure, axes = plt.subplots(len(panels), squeeze=False, figsize=(7.5, 4 * len(panels)))
    for (size, those), axis in zip(sorted(panels.items()), axes.flat, strict=True):
        draw_panel(axis, those)
        axis.set_title(SIZES[size], loc="left")
    axes.flat[-1].set_xlabel("epoch")
    save(figure, path)


def draw_panel(axis: Any, runs: dict[str, Curve]) -> None:
    """The best first, in the legend too."""
    from cycler import cycler
    from matplotlib import rcParams

    axis.set_prop_cycle(cycler(linestyle=["-", "--"]) * rcParams["axes.prop_cycle"])
    for name, (epochs, values) in sorted(runs.items(), key=lambda item: min(item[1][1])):
        label = f"{name.replace('-seed-', ', seed ')}: {min(values):.1f}"
        axis.plot(epochs, values, linewidth=1.2, label=label)
    best = min(min(values) for _, values in runs.values())
    axis.set_yscale("log")
    axis.set_ylim(best * 0.99, best * ROOM)
    for place in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
        place("{x:.0f}")
    axis.set_ylabel("perplexity on dev")
    axis.grid(True, which="both", linewidth=0.3)
    axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


if __name__ == "__main__":
    main(__doc__, draw)
