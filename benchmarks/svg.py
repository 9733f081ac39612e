"""Plots as SVG files that are the same for the same figures."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any


def pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("svg")
        from matplotlib import pyplot as plt
    except ModuleNotFoundError:
        raise SystemExit("plotting needs matplotlib: pip install matplotlib") from None
    plt.rcParams |= {"svg.hashsalt": "rrnn", "svg.fonttype": "none", "font.size": 9}
    return plt


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main(description: str | None, draw: Callable[[Path, Path], None]) -> None:
    """A script that draws what is in a folder."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", type=Path, required=True)
    arguments = parser.parse_args()
    draw(arguments.folder, arguments.o)
