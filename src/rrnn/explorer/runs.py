"""The runs that *Explain* offers: folders directly inside one folder, and nothing outside it."""

from __future__ import annotations

import re
from pathlib import Path

from rrnn.errors import RunError

MAX_RUNS = 200
_NAME = re.compile(r"[\w][\w .+=@-]{0,199}")


def list_runs(folder: Path) -> list[str]:
    """The names of the runs, the newest first."""
    try:
        found = [path for path in folder.iterdir() if _is_run(path, folder)]
        found.sort(key=lambda path: (-path.stat().st_mtime, path.name))
    except OSError:  # there is no such folder (yet)
        return []
    return [path.name for path in found[:MAX_RUNS]]


def run_folder(folder: Path, name: str) -> Path:
    """The folder of a run by name. A name that leads elsewhere, by dots, slashes or links, is no run."""
    if not _NAME.fullmatch(name) or not _is_run(folder / name, folder):
        raise RunError(
            f"there is no run {name[:60]!r} in the folder of runs. The page lists those there are."
        )
    return (folder / name).resolve()


def _is_run(path: Path, folder: Path) -> bool:
    """A folder with a configuration in it, none of whose files is a link to somewhere else."""
    try:
        inside = path.resolve(strict=True)
        if (
            inside.parent != folder.resolve()
            or not _NAME.fullmatch(path.name)
            or not (path / CONFIG).is_file()
        ):
            return False
        return all(file.resolve().is_relative_to(inside) for file in path.iterdir())
    except (OSError, RuntimeError, ValueError):  # not there, a loop of links, a name with a NUL
        return False


CONFIG = "config.json"
