"""List and find the runs that the tab *Explain* offers: text classifiers inside one folder, and nothing outside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rrnn.errors import RunError

MAX_RUNS, MAX_CONFIG = 200, 1 << 20
CONFIG, RESULT, CELL = "config.json", "result.json", "cell.cell"
_PART = r"[\w][\w .,+=@-]{0,199}"
_NAME = re.compile(rf"{_PART}(/{_PART})?")
"""A run, or a run in the folder of a search: search-sst-F/seed-0."""


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """Return the name, cell, data and accuracy of each run, newest first."""
    names = [name for name in _candidates(folder) if _is_run(folder, name)]
    names.sort(key=lambda name: (-_written(folder / name), name))
    return [{"name": name} | _facts(folder / name) for name in names[:MAX_RUNS]]


def run_folder(folder: Path, name: str) -> Path:
    """Return the folder of a run by name. A name that leads elsewhere, by dots, slashes or links, is not a run."""
    if not _is_run(folder, name):
        raise RunError(
            f"there is no run {name[:60]!r} in the folder of runs. Choose one from the page's list."
        )
    return (folder / name).resolve()


def _candidates(folder: Path) -> Iterator[str]:
    """Yield the names of everything in the folder, and in those of its folders that are no runs."""
    for path in _inside(folder):
        if path.is_dir() and not (path / CONFIG).exists():
            yield from (f"{path.name}/{inner.name}" for inner in _inside(path))
        else:
            yield path.name


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # deleted just now
        return 0.0


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # the folder does not exist (yet) or is not readable
        return []


def _is_run(folder: Path, name: str) -> bool:
    """Return whether a name is that of a folder with a classifier's configuration and without links out of it."""
    try:
        if not _NAME.fullmatch(name):
            return False
        path = folder.resolve() / name
        if path.resolve(strict=True) != path or not path.is_dir():
            return False
        if not all(file.resolve().is_relative_to(path) for file in path.iterdir()):
            return False
    except (OSError, RuntimeError, ValueError):  # missing, a loop of links, or NUL in the name
        return False
    return _read(path / CONFIG).get("task") == "classify"


def _facts(path: Path) -> dict[str, Any]:
    config, result = _read(path / CONFIG), _read(path / RESULT)
    dev = result.get("dev")
    return {
        "cell": _cell_name(path, str(config.get("cell")))[:100],
        "data": str(config.get("data"))[:100],
        "accuracy": dev if isinstance(dev, float) and 0 <= dev <= 100 else None,
    }


def _cell_name(path: Path, configured: str) -> str:
    """Return the name of a model of the zoo; for a file of the user's, the cell's own name and that of the file."""
    file = re.split(r"[/\\]", configured)[-1]
    if file == configured and not file.endswith(".cell"):
        return configured
    try:
        with (path / CELL).open(encoding="utf-8", errors="replace") as text:
            found = re.search(r"^\s*cell\s+(\w+)", text.read(MAX_CONFIG), re.MULTILINE)
    except OSError:
        return file
    return f"{found[1]} ({file})" if found else file


def _read(path: Path) -> dict[str, Any]:
    """Return the JSON object in a small file; an empty one if it cannot be read."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_CONFIG))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
