"""Data sets by name: what they are, where they lie, where they come from."""

from __future__ import annotations

import os
from pathlib import Path

from rrnn.errors import DataError


def folders() -> list[Path]:
    """Where data sets are looked for, each in a folder of its own name: `$RRNN_DATA`, then the user's cache."""
    chosen = os.environ.get("RRNN_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rrnn" / "data"
    return [*([Path(chosen)] if chosen else []), cache]


def find(name: str) -> Path:
    """The folder of a data set."""
    for folder in folders():
        if (folder / name).is_dir():
            return folder / name
    raise DataError(f"{name} is not at hand; looked in {', '.join(map(str, folders()))}")
