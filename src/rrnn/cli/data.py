"""`rrnn data`: list data sets, find their folders, and download them."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from rrnn.cli.shared import table
from rrnn.errors import DataError
from rrnn.tasks.data import download, synthetic
from rrnn.tasks.data.catalogue import File, Source

_VERDICTS = {True: "correct", False: "WRONG: it differs from the known checksum", None: "no known checksum"}
TERMINATED = 143  # 128 + SIGTERM, as a shell reports it


def _shown(metavar: str) -> Any:
    """Let the help show an argument by this name, not by its type and an empty default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


@dataclass
class List:
    """List all data sets, or describe some of them: files, checksums and addresses."""

    names: Annotated[list[str], tyro.conf.Positional, _shown("[NAME …]")] = field(default_factory=list)
    """Data sets to describe."""
    check: bool = False
    """Compare the downloaded files with their checksums; exit with 1 if one is wrong."""


def list_(options: List) -> int:
    """Run `rrnn data list`."""
    chosen = [download.get_source(name) for name in options.names] or list(download.SOURCES.values())
    if options.names:
        print("\n\n".join(_describe(source) for source in chosen))
    else:
        print(_overview())
    if not options.check:
        return 0
    verdicts = [(source, file, verdict) for source in chosen for file, verdict in _verdicts(source)]
    print()
    print(
        table(("set", "file", "check"), [(s.name, file, _VERDICTS[verdict]) for s, file, verdict in verdicts])
    )
    return int(any(verdict is False for _, _, verdict in verdicts))


def _overview() -> str:
    rows = [("python", "built in", "the language reference that ships with Python: 75k words and signs")]
    rows += [
        (name, "built in", f"synthetic texts, half of which {about}")
        for name, about in synthetic.NAMES.items()
    ]
    for source in download.SOURCES.values():
        place = _place(source)
        rows.append((source.name, str(place[0]) if place else "not downloaded", source.about))
    return table(("name", "where", "what"), rows)


def _place(source: Source) -> tuple[Path, tuple[File, ...]] | None:
    for root in download.folders():
        if files := download.files_at(source, root / source.name):
            return root / source.name, files
    return None


def _verdicts(source: Source) -> list[tuple[str, bool | None]]:
    place = _place(source)
    return list(download.check(*place).items()) if place else []


def _describe(source: Source) -> str:
    place = _place(source)
    where = str(place[0]) if place else f"not downloaded. Run: rrnn data get {source.name}"
    lines = [f"{source.name}: {source.about}", f"licence: {source.licence}", f"where: {where}"]
    for file in source.files:
        lines.append(_describe_file(file))
        for address in file.addresses:
            known = f" (archive, sha256 {address.sha256 or 'not known'})" if address.member else ""
            lines.append(f"  from {address.url}{known}")
    for layout in source.others:
        lines.append("or these files instead:")
        lines += [f"  {_describe_file(file)}" for file in layout]
    return "\n".join(lines)


def _describe_file(file: File) -> str:
    size = f", {file.size} bytes" if file.size else ""
    return f"{file.name}{size}, sha256 {file.sha256 or 'not known'}"


@dataclass
class PathOf:
    """Print the folder of a data set, for scripts: `cat $(rrnn data path ptb)/ptb.test.txt`."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """The data set."""


def path(options: PathOf) -> None:
    """Run `rrnn data path`."""
    print(download.find(options.name))


@dataclass
class Get:
    """Download data sets and verify their checksums. Data sets that are already there are not changed."""

    names: Annotated[list[str], tyro.conf.Positional, _shown("NAME …")]
    """Data sets to download."""
    to: Annotated[Path | None, _shown("FOLDER")] = None
    """The folder for the data sets, which RRNN_DATA can then name (default: the user's cache)."""


def get(options: Get) -> None:
    """Run `rrnn data get`."""
    chosen = [download.get_source(name) for name in options.names]  # report a wrong name before any download
    if not chosen:
        raise DataError(f"give the data sets to download: {', '.join(download.SOURCES)}")
    with _terminable():
        for source in chosen:
            folder = download.get(source.name, options.to, _Progress())
            print(f"{source.name}: {folder}")
            files = download.files_at(source, folder) or ()
            if files is source.files and not all(file.verifiable for file in files):
                print(f"{source.name}: no checksum is known for these files, so they could not be verified")


@contextmanager
def _terminable() -> Iterator[None]:
    """Turn SIGTERM into an exception inside this context, so that incomplete downloads are removed."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(TERMINATED)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # only the main thread may handle signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Progress:
    """Shows the number of downloaded bytes on a terminal, a few times per second."""

    def __init__(self) -> None:
        self.shown = 0.0

    def __call__(self, url: str, done: int, total: int | None) -> None:
        if not sys.stderr.isatty():
            return
        finished = done == total
        if finished or time.monotonic() - self.shown > 0.2:
            self.shown = time.monotonic()
            of = f" of {total / 1e6:.1f}" if total else ""
            end = "\n" if finished else "\r"
            print(f"{url.rsplit('/', 1)[-1]}: {done / 1e6:.1f}{of} MB", end=end, file=sys.stderr, flush=True)
