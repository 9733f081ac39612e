"""Checkpoints: safetensors files that are whole or not there, with a checksum over all they hold. No pickle.

A file carries named tensors and a JSON object, `meta`. Each name keeps the file before it as `NAME.previous`: a file
that was damaged later is passed over for that one.
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

FORMAT = "rrnn-checkpoint-1"


class Checkpoint(NamedTuple):
    tensors: dict[str, Tensor]
    meta: dict[str, Any]
    note: str | None = None  # what the user should know: that a newer one was passed over, and why


# ---- one file ----------------------------------------------------------------------------------------------------


def write_atomic(path: Path, data: bytes) -> None:
    """Whoever looks, or whenever the process dies, sees the old file or the new one, never a part."""
    _replace(_write_beside(path, data), path)


def encode(tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> bytes:
    """A safetensors file whose metadata hold `meta` and the SHA-256 of header and data."""
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    text = json.dumps(meta, allow_nan=True, sort_keys=True)
    header, data = _split(safetensors.torch.save(copies, {"format": FORMAT, "meta": text}))
    header["__metadata__"]["sha256"] = _digest(header, data)
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)  # the format wants tensors to begin at a multiple of eight
    return len(start).to_bytes(8, "little") + start + data


def decode(file: bytes, source: str) -> Checkpoint:
    """What `encode` wrote; anything else is a `RunError` that says what is wrong."""
    try:
        header, data = _split(file)
        metadata = header.get("__metadata__", {})
        if metadata.get("format") != FORMAT:
            raise RunError(
                f"{source} is a safetensors file but no checkpoint of rrnn (its format is "
                f"{metadata.get('format')!r}, not {FORMAT!r})"
            )
        if metadata.pop("sha256", None) != _digest(header, data):
            raise RunError(f"{source} is damaged: its checksum does not fit what it holds")
        return Checkpoint(safetensors.torch.load(file), json.loads(metadata["meta"]))
    except (ValueError, KeyError, AttributeError, safetensors.SafetensorError) as error:
        raise RunError(f"{source} is damaged or no checkpoint: it is not a safetensors file") from error


def _split(file: bytes) -> tuple[dict[str, Any], memoryview]:
    """(header, data) of a safetensors file."""
    length = int.from_bytes(file[:8], "little")
    if len(file) < 8 or length > len(file) - 8:
        raise ValueError("shorter than its header says")
    return json.loads(file[8 : 8 + length]), memoryview(file)[8 + length :]


def _digest(header: dict[str, Any], data: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


# ---- a name in a folder --------------------------------------------------------------------------------------------


def path_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


def save(folder: Path, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """The new file takes the name; the one that had it becomes NAME.previous. Between the two there is always one."""
    newest = path_of(folder, name)
    fresh = _write_beside(newest, encode(tensors, meta))
    if newest.exists():
        os.replace(newest, path_of(folder, f"{name}.previous"))
    _replace(fresh, newest)


def load(folder: Path, name: str, *, until: int | None = None) -> Checkpoint | None:
    """The newest good checkpoint of that name (with `until`: whose meta["epoch"] is at most that), None if none was
    ever written. A damaged one is passed over for the one before it, which `note` says; without that, an error."""
    return _find(folder, name, until)[1]


def settle(folder: Path, name: str, *, until: int | None = None) -> Checkpoint | None:
    """`load`, for who goes on writing: what it passed over gives way, so that nothing later can fall back on it."""
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
            found = decode(path.read_bytes(), str(path))
        except FileNotFoundError:
            continue
        except RunError as error:
            problems.append(str(error))
            continue
        if until is None or found.meta["epoch"] <= until:
            note = f"{problems[0]}. The checkpoint before it, {path.name}, is used." if problems else None
            return path, found._replace(note=note)
    if problems:
        raise RunError(f"{problems[0]}, and there is no older one. Delete it to go on without it.")
    return None, None


# ---- the disk ----------------------------------------------------------------------------------------------------


def _write_beside(path: Path, data: bytes) -> Path:
    """A temporary file that is on the disk, not just on its way. One name for each: what a killed process left is
    overwritten by the next."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # a full disk, for one
        temporary.unlink(missing_ok=True)
        raise RunError(
            f"cannot write {path}: {error.strerror}. What was there before is untouched."
        ) from error
    return temporary


def _replace(source: Path, target: Path) -> None:
    os.replace(source, target)
    if os.name == "posix":  # the folder's entry has to reach the disk, too
        handle = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
