"""What every benchmark here shares: fair timing, a table to read, and the result file.

A result file is `{"meta": {command, commit, versions, hardware}, "rows": [...]}`; a row has "name", "cell",
"semiring", "shape" ([T, B, D]), "dtype", "backend", "pass", "ms", "gb_per_s", "percent_of_copy", "baseline" and
"ratio" (the baseline's time over ours), as far as they apply.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import rrnn
from rrnn.cli.bench import best_of, busy

__all__ = ["Row", "best_of", "meta", "print_table", "warn_if_busy", "write"]

Row = dict[str, Any]


def warn_if_busy() -> None:
    """Say so when others are using the machine: the figures would measure them too."""
    if warning := busy():
        print(warning)


def print_table(rows: list[list[str]]) -> None:
    """The first row is the head; numbers are aligned to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells))
        if number == 0:
            print("  ".join("-" * w for w in widths))


def write(path: Path, rows: list[Row], **more: Any) -> None:
    """The result file; `more` goes into its meta."""
    path.write_text(json.dumps({"meta": meta() | more, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def meta() -> dict[str, Any]:
    return {
        "command": " ".join(["python", *sys.argv]),
        "commit": _commit(),
        "versions": {
            "rrnn": rrnn.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "hardware": {"cpu": _cpu(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


def _commit() -> str | None:
    if told := os.environ.get("RRNN_COMMIT"):  # where the code was copied without its history
        return told
    try:
        here = Path(__file__).parent
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=True
        )
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
