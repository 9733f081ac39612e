"""Compiled kernels on disk: one private folder, content-hashed names, atomic writes, nothing trusted unchecked.

An entry is one file: the payload, then a line with the SHA-256 of (key, payload). Loaders of libraries ignore that
line, and to Python it is a comment. A file that is stale, truncated, changed, owned by someone else or writable by
others is not used but built again. If the folder cannot be used at all, a temporary one takes its place for the life of
the process, and a warning says so.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path


def cache_folder() -> Path:
    """Return `$RRNN_CACHE` or `~/.cache/rrnn`, made private to the user; a temporary folder if that is not possible."""
    try:
        folder = wanted_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = folder.resolve()
    except OSError as error:
        return _instead_of(error.filename, error.strerror)
    except RuntimeError as error:  # a user without a home
        return _instead_of("a folder", str(error))
    if _private(folder):
        return folder
    return _instead_of(
        str(folder),
        "it is owned or writable by others, so its files cannot be trusted; chmod 700 makes it yours alone",
    )


def wanted_folder() -> Path:
    """Return where the cache is meant to be."""
    if chosen := os.environ.get("RRNN_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rrnn"


@cache
def _instead_of(folder: str, why: str) -> Path:
    """Return the temporary folder in place of one that cannot be used, and warn about it once."""
    warnings.warn(
        f"rrnn cannot keep compiled kernels in {folder} ({why}). Each process compiles them anew, in a temporary "
        "folder. Set RRNN_CACHE to a folder of your own.",
        RuntimeWarning,
        stacklevel=2,
    )
    return _temporary()


@cache
def _temporary() -> Path:
    """Return a private folder that lives as long as this process."""
    owner, made = os.getpid(), Path(tempfile.mkdtemp(prefix="rrnn-"))

    def remove() -> None:
        if os.getpid() == owner:  # not when a forked child ends
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return made


def _private(path: Path) -> bool:
    """Return whether a file or folder belongs to the user, and only the user may write it."""
    if not hasattr(os, "getuid"):  # Windows: per-user folders carry their own access lists
        return True
    info = path.lstat()
    return info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cached(key: str, suffix: str, build: Callable[[], bytes]) -> Path:
    """Return the file of this key, built if there is no good one. Safe with many processes at once."""
    digest = hashlib.sha256(key.encode()).digest()
    name, folder = f"{digest.hex()[:32]}{suffix}", cache_folder()
    for place in (folder, _temporary()) if _temporary.cache_info().currsize else (folder,):
        if _good(place / name, digest):
            return place / name
    payload = build()
    content = payload + _seal(digest, payload)
    try:
        return _write(folder / name, content)
    except OSError as error:  # read-only, or full: what is there can still be used
        return _write(_instead_of(str(folder), error.strerror or "") / name, content)


def _write(path: Path, content: bytes) -> Path:
    """Write a file completely or not at all, however many processes write it at once."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".building-", suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as file:  # mkstemp made it readable and writable by its owner alone
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _seal(digest: bytes, payload: bytes) -> bytes:
    """Return the last line of an entry: a hash of its key and payload."""
    return f"\n# {hashlib.sha256(digest + payload).hexdigest()}\n".encode()


def _good(path: Path, digest: bytes) -> bool:
    """Return whether an entry can be trusted: private, complete and unchanged."""
    try:
        if not _private(path) or path.is_symlink():
            return False
        content = path.read_bytes()
    except OSError:
        return False
    size = len(_seal(digest, b""))
    return len(content) > size and content[-size:] == _seal(digest, content[:-size])
