"""Data sets by name: where they lie, and how they get there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rrnn.errors import DataError
from rrnn.tasks.data.catalogue import SOURCES, File, Source
from rrnn.tasks.data.download import Report, download

__all__ = ["SOURCES", "check", "files_at", "find", "folders", "get", "get_source", "help_by_hand"]


def folders() -> list[Path]:
    """Where data sets are looked for, each in a folder of its own name: `$RRNN_DATA`, then the user's cache."""
    chosen = os.environ.get("RRNN_DATA")
    return [*([Path(chosen).expanduser()] if chosen else []), _cache()]


def _cache() -> Path:
    if chosen := os.environ.get("RRNN_CACHE"):
        return Path(chosen) / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rrnn" / "data"


def get_source(name: str) -> Source:
    if name not in SOURCES:
        raise DataError(f"data sets with files are {', '.join(SOURCES)}; {name!r} is none of them")
    return SOURCES[name]


def files_at(source: Source, folder: Path) -> tuple[File, ...] | None:
    """The files that make this folder hold the data set, or None."""
    for layout in source.layouts:
        if all((folder / file.name).is_file() for file in layout):
            return layout
    return None


def find(name: str) -> Path:
    """The folder of a data set, or an error that says how to get it."""
    source = get_source(name)
    for root in folders():
        if files_at(source, root / name):
            return root / name
    looked = " and ".join(str(root / name) for root in folders())
    raise DataError(
        f"{name} is not at hand: {looked} {'have' if len(folders()) > 1 else 'has'} not got its files. "
        f"`rrnn data get {name}` downloads them.\n{help_by_hand(source, folders()[0] / name)}"
    )


def get(name: str, to: str | Path | None = None, report: Report | None = None) -> Path:
    """The folder of a data set, downloaded into `to` (or the user's cache) unless it is at hand.

    Every file is checked against its SHA-256 before it takes its place; a failure leaves nothing behind.
    """
    source = get_source(name)
    for root in [Path(to).expanduser()] if to is not None else folders():
        if files_at(source, root / name):
            return root / name
    target = (Path(to).expanduser() if to is not None else _cache()) / name
    if to is None and not _cache().parent.exists():
        # compiled kernels are kept there, too, and are trusted only in a folder that is the user's alone
        _cache().parent.mkdir(parents=True, mode=0o700)
    try:
        download(source, target, report)
    except DataError as error:
        raise DataError(f"{error}\n{help_by_hand(source, target)}") from None
    return target


def help_by_hand(source: Source, folder: Path) -> str:
    """Which files belong where."""
    lines = [f"To do it by hand, put into {folder}:"]
    for file in source.files:
        origin = file.addresses[0]
        lines.append(f"  {file.name}, {'out of' if origin.member else 'from'} {origin.url}")
    return "\n".join(lines)


def check(folder: Path, files: tuple[File, ...]) -> dict[str, bool | None]:
    """File → is it what it should be? None where no checksum is known."""
    verdicts: dict[str, bool | None] = {}
    for file in files:
        with (folder / file.name).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest() if file.sha256 else None
        verdicts[file.name] = None if digest is None else digest == file.sha256
    return verdicts
