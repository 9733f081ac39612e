"""Find data sets by name, and download them.

A download is complete or absent: everything is written to a hidden folder beside the target, checked, and then moved
into place. The hidden folder is removed when the download ends, whether it succeeds or fails. A folder that a killed
process left has no lock any more, and the next download clears it.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rrnn.errors import DataError
from rrnn.tasks.data.catalogue import SOURCES, Address, File, Source

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


# ---- downloads -------------------------------------------------------------------------------------------------------


try:
    import fcntl
except ImportError:  # Windows: two downloads of one data set at once are not kept apart there
    fcntl = None

Report = Callable[[str, int, int | None], None]
"""Called with what is being fetched, bytes so far and bytes in all, if known."""

_CHUNK = 2**16
_TIMEOUT = 30  # seconds without a byte
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; rrnn)"}  # some hosts refuse Python's own


class _Failed(Exception):
    """One address did not give the file; the next may."""


def download(source: Source, target: Path, report: Report | None = None) -> None:
    """Fetch all files of a data set into `target`."""
    with _workplace(target) as place:
        files, archives = place / "files", place / "archives"
        for folder in (files, archives):
            shutil.rmtree(folder, ignore_errors=True)  # what a killed download left
            folder.mkdir()
        shelf = _Shelf(archives, report)
        for file in source.files:
            _fetch_file(source.name, file, files, shelf, report)
        if not target.exists():
            files.rename(target)
            return
        for path in files.iterdir():  # beside the files that are there
            path.replace(target / path.name)


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """A folder beside the target, ours alone while we are in it."""
    place = target.with_name(f".{target.name}.part")
    parent_is_new = not target.parent.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("w")
    except OSError as error:
        raise DataError(
            f"{target.parent} cannot be written to: {error.strerror}; choose another folder"
        ) from None
    with lock:
        _lock(lock, target)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            if parent_is_new and not any(target.parent.iterdir()):
                target.parent.rmdir()


def _lock(file: IO[str], target: Path) -> None:
    """The system gives the lock back when its process ends, however it ends. Some file systems have none."""
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DataError(
            f"another process is downloading {target.name} to {target.parent}: wait for it"
        ) from None
    except OSError:
        return


class _Shelf:
    """Archives, each fetched once, though several files come out of it; one that failed is not tried again."""

    def __init__(self, folder: Path, report: Report | None) -> None:
        self.folder, self.report = folder, report
        self.found: dict[str, Path | _Failed] = {}

    def get(self, address: Address) -> Path:
        if address.url not in self.found:
            path = self.folder / str(len(self.found))
            try:
                _fetch(address.url, path, address.sha256, self.report)
                self.found[address.url] = path
            except _Failed as failure:
                self.found[address.url] = failure
        found = self.found[address.url]
        if isinstance(found, _Failed):
            raise found
        return found


def _fetch_file(name: str, file: File, folder: Path, shelf: _Shelf, report: Report | None) -> None:
    path = folder / file.name
    failures = []
    for address in file.addresses:
        try:
            if address.member is None:
                _fetch(address.url, path, file.sha256, report)
            else:
                _extract(shelf.get(address), address.member, path)
                _verify(path, file.sha256)
            return
        except _Failed as failure:
            failures.append(f"  {address.url}: {failure}")
            path.unlink(missing_ok=True)
    listed = "\n".join(failures)
    raise DataError(f"{name}: {file.name} could not be downloaded, and nothing was kept:\n{listed}")


def _fetch(url: str, path: Path, sha256: str | None, report: Report | None) -> None:
    request = urllib.request.Request(url, headers=_HEADERS)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer, path.open("wb") as out:
            length = answer.headers.get("Content-Length")
            total = int(length) if length is not None and length.isdigit() else None
            done = 0
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
                done += len(chunk)
                if report:
                    report(url, done, total)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            raise _Failed(f"the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Failed(f"no connection ({error.reason})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"the transfer broke off ({type(error).__name__}: {error})") from None
    if total is not None and done != total:
        raise _Failed(f"the transfer broke off after {done} of {total} bytes")
    _verify(path, sha256)


def _verify(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        raise _Failed(f"what came has SHA-256 {digest}, but {sha256} is right")


def _extract(archive: Path, member: str, path: Path) -> None:
    """One file out of a zip or tar, by its own name: its folder in the archive is never used as a path here."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                names = [name for name in packed.namelist() if _is_called(name, member)]
                with packed.open(_first(names, member)) as stream, path.open("wb") as out:
                    shutil.copyfileobj(stream, out)
        else:
            with tarfile.open(archive) as packed:
                names = [name for name in packed.getnames() if _is_called(name, member)]
                stream = packed.extractfile(_first(names, member))
                if stream is None:
                    raise _Failed(f"{member} is no plain file in the archive")
                with path.open("wb") as out:
                    shutil.copyfileobj(stream, out)
    except (zipfile.BadZipFile, zlib.error, tarfile.TarError, EOFError, OSError) as error:
        raise _Failed(f"the archive is damaged ({error})") from None


def _is_called(name: str, member: str) -> bool:
    return name.rsplit("/", 1)[-1] == member


def _first(names: list[str], member: str) -> str:
    if not names:
        raise _Failed(f"the archive has no {member}")
    return names[0]
