"""Plot results as SVG files, with the plotter of the reports (`rrnn.draw.charts`).

    python benchmarks/plots.py roofline docs/results/kernels-h200.json -o docs/results/kernels-h200.svg
    python benchmarks/plots.py lm docs/results/lm-ptb -o docs/results/lm-ptb/curves.svg
    python benchmarks/plots.py classify docs/results/classify -o docs/results/classify/curves.svg

`roofline` takes the file of `kernels.py --device cuda`. It shows the GB/s of each kernel over the bytes that it must
move, below two roofs: the bandwidth of a copy, and the time of the shortest kernel.

`lm` takes a folder of `paper_lm.py`. It shows the dev perplexity of every run by epoch, a panel for each model size. A
run's curve is that of its best weights at each epoch, the current or the averaged ones.

`classify` takes a folder of `paper_classify.py`. It shows the best dev accuracy so far by epoch, a panel for each data
set and label. A model's curve is the mean of its final trainings; those that have ended keep their best value.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import accumulate
from pathlib import Path
from typing import Any

from paper_classify_table import rows_of

from rrnn.draw.charts import COLOURS, Axis, Marker, Panel, Series, figure

GREY = COLOURS - 1
PASSES: dict[str, Marker] = {"forward": "up", "backward": "down", "forward_backward": "circle"}
PEERS: dict[str, tuple[int, Marker]] = {
    "fla hgrn fused": (GREY, "cross"),
    "fla hgrn chunk": (GREY, "plus"),
    "accelerated-scan warp": (GREY - 1, "cross"),
}
SIZES = {"10m": "10M parameters", "24m": "24M parameters", "": ""}
"""Model sizes, by what a run's name contains."""
ROOM = 1.35
"""The highest perplexity shown, relative to the best one. Runs that stay above it appear in the legend only."""


# ---- roofline --------------------------------------------------------------------------------------------------------


def bytes_of(row: dict[str, Any]) -> float:
    """Return the bytes that the kernel must move: its GB/s were computed from them."""
    return row["gb_per_s"] * row["ms"] * 1e6


def roof(size: float, copy: float, least: float) -> float:
    """Return the highest possible GB/s for `size` bytes, given the bandwidth of a copy and the shortest kernel's ms."""
    return min(copy, size / least / 1e6)


def roofline(data: dict[str, Any]) -> str:
    """Return the roofline as SVG, a panel for each dtype."""
    rows = [row for row in data["rows"] if row.get("layout") != "own" and "error" not in row]
    copy, least = data["meta"]["copy_gb_per_s"], data["meta"]["least_kernel_ms"]
    names = list(dict.fromkeys(row["name"] for row in rows if "layout" not in row))
    groups: dict[str, dict[tuple[int, Marker], list[tuple[float, float]]]] = {}
    for row in rows:
        look = PEERS.get(row["backend"], (GREY, "cross"))
        if "layout" not in row:
            look = names.index(row["name"]), PASSES[row["pass"]]
        points = groups.setdefault(row["dtype"], {}).setdefault(look, [])
        points.append((bytes_of(row), row["gb_per_s"]))
    sizes = [bytes_of(row) for row in rows]
    x = Axis("bytes that must move", log=True, low=min(sizes) / 2, high=max(sizes) * 2)
    y = Axis("GB/s", log=True, low=min(row["gb_per_s"] for row in rows) / 1.3, high=copy * 1.2)
    corner = copy * least * 1e6
    above = Series(
        "", GREY, [(size, roof(size, copy, least)) for size in sorted({x.low, corner, x.high} - {None})]
    )
    panels = [
        Panel([above, *(Series("", c, points, marker=m) for (c, m), points in looks.items())], x, y, dtype)
        for dtype, looks in groups.items()
    ]
    there = {row["backend"] for row in rows if "layout" in row}
    legend = [Series(name, i, marker="circle") for i, name in enumerate(names)]
    legend += [Series(name.replace("_", " + "), GREY, marker=marker) for name, marker in PASSES.items()]
    legend += [
        Series(f"{name}, from (T,B,D)", c, marker=m) for name, (c, m) in PEERS.items() if name in there
    ]
    gpu = data["meta"].get("device", {}).get("gpu", "")
    title = f"{gpu}: copy {copy:.0f} GB/s, shortest kernel {1e3 * least:.1f} µs"
    return figure(panels, title=title, columns=len(panels), width=500, height=400, legend=legend)


# ---- language models -------------------------------------------------------------------------------------------------


def language_models(folder: Path) -> str:
    """Return the dev perplexities by epoch as SVG, a panel for each model size."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for path in sorted(folder.glob("*/metrics.jsonl")):
        name = path.parent.name
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        points = [(record["epoch"], record["dev_ppl"]) for record in records]
        panels.setdefault(next(size for size in SIZES if size in name), {})[name] = points
    if not panels:
        raise SystemExit(f"there are no runs in {folder}")
    drawn = [_perplexities(SIZES[size], runs) for size, runs in sorted(panels.items())]
    return figure(drawn, title="Perplexity on the development set", width=520, height=320)


def _perplexities(title: str, runs: dict[str, list[tuple[float, float]]]) -> Panel:
    """Return a panel of the runs, the best one first, each with its best perplexity in the legend."""
    best = {name: min(value for _, value in points) for name, points in runs.items()}
    series = [
        Series(f"{name.replace('-seed-', ', seed ')}: {best[name]:.1f}", i, runs[name])
        for i, name in enumerate(sorted(runs, key=best.__getitem__))
    ]
    lowest = min(best.values())
    limits = Axis("dev perplexity", low=lowest * 0.99, high=lowest * ROOM)
    return Panel(series, Axis("epoch", low=0.0, whole=True), limits, title, legend=True)


# ---- classifiers -----------------------------------------------------------------------------------------------------


def best_so_far(curves: list[list[float]]) -> list[float]:
    """Return the mean of the running maxima of the curves, as long as the longest of them."""
    longest = max(map(len, curves))
    running = ([*accumulate(curve, max)] for curve in curves)
    kept = [run + run[-1:] * (longest - len(run)) for run in running]
    return [statistics.fmean(values) for values in zip(*kept, strict=True)]


def classifiers(folder: Path) -> str:
    """Return the best dev accuracies so far as SVG, a panel for each data set and label."""
    curves: dict[str, dict[str, list[float]]] = {}
    for row, evidence in rows_of(folder):
        finals = [line["curve"] for line in evidence.finals() if line.get("curve")]
        if finals:
            title = ", ".join(filter(None, (row["dataset"], row["label"])))
            curves.setdefault(title, {})[row["model"]] = best_so_far(finals)
    if not curves:
        raise SystemExit(f"there are no final trainings in {folder}")
    models = list(dict.fromkeys(model for lines in curves.values() for model in lines))
    panels = []
    for title, lines in curves.items():
        ends = [values[-1] for values in lines.values()]
        y = Axis(low=statistics.median(ends) - 8, high=max(ends) + 1)  # not down to chance
        series = [Series(m, models.index(m), list(enumerate(values, 1))) for m, values in lines.items()]
        panels.append(Panel(series, Axis("epoch", log=True), y, title))
    legend = [Series(model, i) for i, model in enumerate(models)]
    title = "Best accuracy on the development set so far, in %"
    return figure(panels, title=title, columns=min(3, len(panels)), legend=legend)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["roofline", "lm", "classify"])
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    if args.kind == "roofline":
        text = roofline(json.loads(args.source.read_text(encoding="utf-8")))
    else:
        text = {"lm": language_models, "classify": classifiers}[args.kind](args.source)
    args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
