"""Compiled kernels on disk: one private folder, content-hashed names, atomic writes, nothing trusted unchecked.

An entry is one file: the payload followed by a line with the SHA-256 of (key, payload), which both a loader of
libraries and Python (a comment) ignore. A file that is stale, cut short, changed,
owned by someone else or writable by others is not used; it is built again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from rrnn.errors import BackendError


def cache_folder() -> Path:
    """`$RRNN_CACHE`, or `~/.cache/rrnn`; made private to the user, and refused when it is not."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("RRNN_CACHE") or Path(base) / "rrnn")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BackendError(
            f"cannot make the kernel cache folder {folder}: {error}. Set RRNN_CACHE."
        ) from None
    if not _private(folder):
        raise BackendError(
            f"the kernel cache folder {folder} is owned or writable by others, so its files cannot be trusted. "
            "Make it yours alone (chmod 700), or set RRNN_CACHE to a private folder."
        )
    return folder


def _private(path: Path) -> bool:
    if not hasattr(os, "getuid"):  # Windows: per-user folders carry their own access lists
        return True
    info = path.lstat()
    return info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def cached(key: str, suffix: str, build: Callable[[], bytes]) -> Path:
    """The file of this key, built if there is no good one. Safe with many processes at once."""
    digest = hashlib.sha256(key.encode()).digest()
    path = cache_folder() / f"{digest.hex()[:32]}{suffix}"
    if _good(path, digest):
        return path
    payload = build()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".building-", suffix=suffix)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(payload + _seal(digest, payload))
        os.chmod(temporary, 0o600)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _seal(digest: bytes, payload: bytes) -> bytes:
    return f"\n# {hashlib.sha256(digest + payload).hexdigest()}\n".encode()


def _good(path: Path, digest: bytes) -> bool:
    try:
        if not _private(path) or path.is_symlink():
            return False
        content = path.read_bytes()
    except OSError:
        return False
    size = len(_seal(digest, b""))
    return len(content) > size and content[-size:] == _seal(digest, content[:-size])
