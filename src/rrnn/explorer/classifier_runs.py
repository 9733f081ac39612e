"""The runs that *Explain* offers: text classifiers in folders inside one folder, and nothing outside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rrnn.errors import RunError

MAX_RUNS, MAX_CONFIG = 200, 1 << 20
CONFIG, RESULT = "config.json", "result.json"
_PART = r"[\w][\w .,+=@-]{0,199}"
_NAME = re.compile(
    rf"{_PART}(/{_PART})?"
)  # a search keeps its runs in a folder of its own: search-sst-F/seed-0


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """What there is to say of each run, the newest first."""
    names = [name for name in _candidates(folder) if _is_run(folder, name)]
    names.sort(key=lambda name: (-_written(folder / name), name))
    return [{"name": name} | _facts(folder / name) for name in names[:MAX_RUNS]]


def run_folder(folder: Path, name: str) -> Path:
    """The folder of a run by name. A name that leads elsewhere, by dots, slashes or links, is no run."""
    if not _is_run(folder, name):
        raise RunError(
            f"there is no run {name[:60]!r} in the folder of runs. The page lists those there are."
        )
    return (folder / name).resolve()


def _candidates(folder: Path) -> Iterator[str]:
    """The names of what lies in the folder, and in folders there that are no runs."""
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
    except OSError:  # there is no such folder (yet), or it is not ours to read
        return []


def _is_run(folder: Path, name: str) -> bool:
    """A folder of that very name with a classifier's configuration, and no link in it that leads out of it."""
    try:
        if not _NAME.fullmatch(name):
            return False
        path = folder.resolve() / name
        if path.resolve(strict=True) != path or not path.is_dir():
            return False
        if not all(file.resolve().is_relative_to(path) for file in path.iterdir()):
            return False
    except (OSError, RuntimeError, ValueError):  # not there, a loop of links, a name with a NUL
        return False
    return _read(path / CONFIG).get("task") == "classify"


def _facts(path: Path) -> dict[str, Any]:
    config, result = _read(path / CONFIG), _read(path / RESULT)
    dev = result.get("dev")
    return {
        "cell": str(config.get("cell"))[:100],
        "data": str(config.get("data"))[:100],
        "accuracy": dev if isinstance(dev, float) and 0 <= dev <= 100 else None,
    }


def _read(path: Path) -> dict[str, Any]:
    """A small JSON object; an empty one where there is none."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_CONFIG))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
