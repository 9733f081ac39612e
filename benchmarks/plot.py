"""A roofline of `kernels.py --device cuda`: GB/s over the bytes that must move, under two roofs, the copy bandwidth and
the time that the smallest kernel takes.

    python benchmarks/plot.py docs/results/kernels-h200.json -o docs/results/kernels-h200.svg     (needs matplotlib)
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from svg import pyplot

PASSES = {"forward": "^", "backward": "v", "forward_backward": "o"}
PEER_COLOURS = {"fla hgrn fused": "0.75", "fla hgrn chunk": "0.6", "accelerated-scan warp": "0.4"}


def bytes_of(row: dict[str, Any]) -> float:
    """That must move: what GB/s was computed from."""
    return row["gb_per_s"] * row["ms"] * 1e6


def roof(size: float, copy: float, least: float) -> float:
    """GB/s that this many bytes can reach: never faster than one kernel, never wider than the memory."""
    return min(copy, size / least / 1e6)


def draw(data: dict[str, Any], path: Path) -> None:
    plt = pyplot()
    rows = [row for row in data["rows"] if "error" not in row]
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    ours = list(dict.fromkeys(row["name"] for row in rows if "layout" not in row))
    colours = dict(zip(ours, plt.get_cmap("tab10").colors, strict=False))
    copy, least = data["meta"]["copy_gb_per_s"], data["meta"]["least_kernel_ms"]
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(5.5 * len(dtypes) + 2.5, 4.5), sharey=True, squeeze=False
    )
    for axis, dtype in zip(axes[0], dtypes, strict=True):
        here = [row for row in rows if row["dtype"] == dtype]
        sizes = sorted(bytes_of(row) for row in here)
        grid = [sizes[0] * 0.5 * (sizes[-1] / sizes[0] * 4) ** (i / 99) for i in range(100)]
        axis.plot(grid, [roof(s, copy, least) for s in grid], color="black", linewidth=1, zorder=0)
        for row in here:
            peer = row.get("layout")
            if peer and peer != "from (T,B,D)":
                continue
            axis.scatter(
                bytes_of(row),
                row["gb_per_s"],
                marker="x" if peer else PASSES[row["pass"]],
                s=18,
                color=PEER_COLOURS.get(row["backend"], "0.5") if peer else colours[row["name"]],
                linewidths=0.8,
            )
        axis.set(xscale="log", yscale="log", title=dtype, xlabel="bytes that must move")
    axes[0][0].set_ylabel("GB/s")
    labels = [
        plt.Line2D([], [], marker="o", linestyle="", color=c, label=name) for name, c in colours.items()
    ]
    labels += [
        plt.Line2D([], [], marker=m, linestyle="", color="black", label=name.replace("_", " + "))
        for name, m in PASSES.items()
    ]
    there = {row["backend"] for row in rows if "layout" in row}
    labels += [
        plt.Line2D([], [], marker="x", linestyle="", color=c, label=f"{name}, from (T,B,D)")
        for name, c in PEER_COLOURS.items()
        if name in there
    ]
    axes[0][-1].legend(
        handles=labels, fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False
    )
    gpu = data["meta"].get("device", {}).get("gpu", "")
    figure.suptitle(f"{gpu}: copy {copy:.0f} GB/s, least kernel {1e3 * least:.1f} µs")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("json", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    draw(json.loads(arguments.json.read_text(encoding="utf-8")), arguments.output)


if __name__ == "__main__":
    main()
