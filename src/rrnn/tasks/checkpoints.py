"""Write and read checkpoints: safetensors files with a checksum, which are complete or absent. No pickle is used.

A file holds named tensors and a JSON object, `meta`. When a file is replaced, the old one becomes `NAME.previous`, and
is used if the new one is damaged later.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
from torch import Tensor

from rrnn.errors import RunError
from rrnn.files import parse_json, read_bytes

FORMAT = "rrnn-checkpoint-1"


class Checkpoint(NamedTuple):
    """The content of a checkpoint file."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    note: str | None = None  # a message for the user if a newer, damaged file was skipped


# ---- one file ----------------------------------------------------------------------------------------------------


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file so that readers see the old or the new content, never a part, even if the process dies."""
    _replace(_write_beside(path, data), path)


def encode(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """Return a safetensors file whose metadata hold `meta` and the SHA-256 of header and data."""
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    text = json.dumps(meta, allow_nan=True, sort_keys=True)
    header, data = _split(safetensors.torch.save(copies, {"format": FORMAT, "meta": text}))
    header["__metadata__"]["sha256"] = _digest(header, data)
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)  # the format requires tensors to start at a multiple of eight
    return len(start).to_bytes(8, "little") + start + data


def decode(file: bytes, source: str) -> Checkpoint:
    """Read what `encode` wrote; anything else raises a `RunError` that says what is wrong."""
    try:
        header, data = _split(file)
        metadata = header.get("__metadata__", {})
        if metadata.get("format") != FORMAT:
            raise RunError(
                f"{source} is a safetensors file, but not a checkpoint of rrnn (its format is "
                f"{metadata.get('format')!r}, not {FORMAT!r})"
            )
        if metadata.pop("sha256", None) != _digest(header, data):
            raise RunError(f"{source} is damaged: its checksum does not match its content")
        return Checkpoint(safetensors.torch.load(file), parse_json(metadata["meta"]))
    except (ValueError, KeyError, AttributeError, safetensors.SafetensorError) as error:
        raise RunError(f"{source} is damaged or not a checkpoint: it is not a safetensors file") from error


def _split(file: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return (header, data) of a safetensors file."""
    length = int.from_bytes(file[:8], "little")
    if len(file) < 8 or length > len(file) - 8:
        raise ValueError("shorter than its header says")
    return parse_json(file[8 : 8 + length]), memoryview(file)[8 + length :]


def _digest(header: dict[str, Any], data: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


# ---- a name in a folder --------------------------------------------------------------------------------------------


def path_of(folder: Path, name: str) -> Path:
    """Return the file of the checkpoint of this name."""
    return folder / f"{name}.safetensors"


def save(folder: Path, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Write a checkpoint; the file that had its name becomes NAME.previous. At any moment one of them exists."""
    newest = path_of(folder, name)
    fresh = _write_beside(newest, encode(tensors, meta))
    if newest.exists():
        os.replace(newest, path_of(folder, f"{name}.previous"))
    _replace(fresh, newest)


def load(folder: Path, name: str, *, until: int | None = None) -> Checkpoint | None:
    """Return the newest intact checkpoint of this name, or None if none was ever written.

    With `until`, checkpoints with a larger meta["epoch"] are ignored. If the newest file is damaged, the one before it
    is returned with a `note`; if there is none, an error is raised.
    """
    return _find(folder, name, until)[1]


def settle(folder: Path, name: str, *, until: int | None = None) -> Checkpoint | None:
    """Load a checkpoint and discard the files that `load` skipped, so that nothing can fall back on them later."""
    path, found = _find(folder, name, until)
    newest = path_of(folder, name)
    if path is None:
        newest.unlink(missing_ok=True)
    elif path != newest:
        _replace(path, newest)
    return found


def _find(folder: Path, name: str, until: int | None) -> tuple[Path | None, Checkpoint | None]:
    problems: list[str] = []
    for path in (path_of(folder, name), path_of(folder, f"{name}.previous")):
        try:
            found = decode(read_bytes(path), str(path))
        except FileNotFoundError:
            continue
        except RunError as error:
            problems.append(str(error))
            continue
        if until is None or found.meta["epoch"] <= until:
            note = (
                f"{problems[0]}. The previous checkpoint, {path.name}, is used instead." if problems else None
            )
            return path, found._replace(note=note)
    if problems:
        raise RunError(f"{problems[0]}, and there is no older one. Delete it to continue without it.")
    return None, None


# ---- the disk ----------------------------------------------------------------------------------------------------


def _write_beside(path: Path, data: bytes) -> Path:
    """Write a temporary file beside the path and flush it to the disk. Its name is fixed, so that the next process
    overwrites what a killed one left."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # the disk may be full
        temporary.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error.strerror}. The previous file is unchanged.") from error
    return temporary


def _replace(source: Path, target: Path) -> None:
    os.replace(source, target)
    if os.name == "posix":  # the folder's entry must reach the disk, too
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
