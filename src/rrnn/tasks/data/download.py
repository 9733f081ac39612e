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
    """Return the folders that may contain data sets, each in a folder of its name: `$RRNN_DATA`, then the cache."""
    chosen = os.environ.get("RRNN_DATA")
    return [*([Path(chosen).expanduser()] if chosen else []), _cache()]


def _cache() -> Path:
    if chosen := os.environ.get("RRNN_CACHE"):
        return Path(chosen) / "data"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rrnn" / "data"


def get_source(name: str) -> Source:
    """Return the catalogue entry of a data set."""
    if name not in SOURCES:
        raise DataError(f"there is no data set {name!r} to download: the data sets are {', '.join(SOURCES)}")
    return SOURCES[name]


def files_at(source: Source, folder: Path) -> tuple[File, ...] | None:
    """Return the files of the data set in this folder, or None if it is not complete."""
    for layout in source.layouts:
        if all((folder / file.name).is_file() for file in layout):
            return layout
    return None


def find(name: str) -> Path:
    """Return the folder of a data set, or raise an error that says how to get it."""
    source = get_source(name)
    for root in folders():
        if files_at(source, root / name):
            return root / name
    looked = " and ".join(str(root / name) for root in folders())
    raise DataError(
        f"{name} is not downloaded. Run: rrnn data get {name}\n(Its files are not in {looked}.)\n"
        f"{help_by_hand(source, folders()[0] / name)}"
    )


def get(name: str, to: str | Path | None = None, report: Report | None = None) -> Path:
    """Return the folder of a data set, after downloading it into `to` (default: the cache) if it is missing.

    Every file is checked against its SHA-256 before it is moved into place; a failure leaves nothing behind.
    """
    source = get_source(name)
    for root in [Path(to).expanduser()] if to is not None else folders():
        if files_at(source, root / name):
            return root / name
    target = (Path(to).expanduser() if to is not None else _cache()) / name
    if to is None and not _cache().parent.exists():
        # compiled kernels are stored there, too, and are trusted only in a folder that belongs to the user alone
        _cache().parent.mkdir(parents=True, mode=0o700)
    try:
        download(source, target, report)
    except DataError as error:
        raise DataError(f"{error}\n{help_by_hand(source, target)}") from None
    return target


def help_by_hand(source: Source, folder: Path) -> str:
    """Return instructions to download a data set by hand."""
    lines = [f"Or put these files into {folder}:"]
    for file in source.files:
        origin = file.addresses[0]
        lines.append(f"  {file.name}, {'in the archive' if origin.member else 'from'} {origin.url}")
    return "\n".join(lines)


def check(folder: Path, files: tuple[File, ...]) -> dict[str, bool | None]:
    """Return for each file whether it matches its checksum; None if no checksum is known."""
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
"""Is called with the address, the number of bytes so far, and the total number, if it is known."""

_CHUNK = 2**16
_TIMEOUT = 30  # seconds without a byte
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; rrnn)"}  # some hosts refuse Python's own


class _Failed(Exception):
    """Is raised when a download from one address fails; the next address may work."""


def download(source: Source, target: Path, report: Report | None = None) -> None:
    """Download all files of a data set into `target`."""
    with _workplace(target) as place:
        files, archives = place / "files", place / "archives"
        for folder in (files, archives):
            shutil.rmtree(folder, ignore_errors=True)  # left by a killed download
            folder.mkdir()
        shelf = _Archives(archives, report)
        for file in source.files:
            _fetch_file(source.name, file, files, shelf, report)
        if not target.exists():
            files.rename(target)
            return
        for path in files.iterdir():  # beside the existing files
            path.replace(target / path.name)


@contextmanager
def _workplace(target: Path) -> Iterator[Path]:
    """Create a folder beside the target that is locked for this process, and remove it at the end."""
    place = target.with_name(f".{target.name}.part")
    parent_is_new = not target.parent.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / "lock").open("w")
    except OSError as error:
        raise DataError(f"cannot write to {target.parent}: {error.strerror}; choose another folder") from None
    with lock:
        _lock(lock, target)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            if parent_is_new and not any(target.parent.iterdir()):
                target.parent.rmdir()


def _lock(file: IO[str], target: Path) -> None:
    """Lock a file until this process ends in any way. Some file systems have no locks."""
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


class _Archives:
    """Downloads each archive once, though several files come from it. One that failed is not tried again."""

    def __init__(self, folder: Path, report: Report | None) -> None:
        self.folder, self.report = folder, report
        self.found: dict[str, Path | _Failed] = {}

    def get(self, address: Address) -> Path:
        """Return the downloaded archive."""
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


def _fetch_file(name: str, file: File, folder: Path, shelf: _Archives, report: Report | None) -> None:
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
    raise DataError(f"{name}: {file.name} could not be downloaded; nothing was changed:\n{listed}")


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
        with error:  # it keeps the connection open
            raise _Failed(f"the server answered {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _Failed(f"no connection ({error.reason})") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Failed(f"the download was interrupted ({type(error).__name__}: {error})") from None
    if total is not None and done != total:
        raise _Failed(f"the download was interrupted after {done} of {total} bytes")
    _verify(path, sha256)


def _verify(path: Path, sha256: str | None) -> None:
    if sha256 is None:
        return
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != sha256:
        raise _Failed(f"the file has SHA-256 {digest}, but {sha256} was expected")


def _extract(archive: Path, member: str, path: Path) -> None:
    """Extract one file from a zip or tar by its name; its folder in the archive is never used as a path."""
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
                    raise _Failed(f"{member} is not a regular file in the archive")
                with path.open("wb") as out:
                    shutil.copyfileobj(stream, out)
    except (zipfile.BadZipFile, zlib.error, tarfile.TarError, EOFError, OSError) as error:
        raise _Failed(f"the archive is damaged ({error})") from None


def _is_called(name: str, member: str) -> bool:
    return name.rsplit("/", 1)[-1] == member


def _first(names: list[str], member: str) -> str:
    if not names:
        raise _Failed(f"the archive does not contain {member}")
    return names[0]
