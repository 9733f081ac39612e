"""Read files that users name, whatever they contain: never endlessly, and with errors that name the file.

Files that are not text or JSON, pipes and devices without an end, and files larger than the memory raise a
`FormatError`; errors of the disk stay `OSError`s.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import stat
import sys
from collections.abc import Iterator
from typing import IO, Any

from rrnn.errors import FormatError

PathLike = str | os.PathLike[str]

MAX_UNSIZED = 2**28
"""The most bytes to read as a whole from a pipe or a device, which may have no end."""
MAX_LINE = 2**26
"""The most bytes of a line."""

_CHUNK = 2**22
_OPENFST_BINARY = b"\xd6\xfd\xb2\x7e"  # how such files start; never UTF-8


def read_bytes(path: PathLike) -> bytes:
    """Read a whole file."""
    source = os.fspath(path)
    with named_errors(source), open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not status.st_size:  # the size of what lies in /proc is 0, too
            return read_all(file, source, MAX_UNSIZED)
        if status.st_size > max_bytes():
            raise _too_large(source, max_bytes())
        return file.read()


def read_all(file: IO[bytes] | gzip.GzipFile, source: str, most: int | None = None) -> bytes:
    """Read an open file to its end; raise if it has more than `most` bytes (default: half of the memory)."""
    most, parts, size = max_bytes() if most is None else most, [], 0
    while part := file.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(source, most)
    return b"".join(parts)


def read_text(path: PathLike) -> str:
    """Read a UTF-8 file without its byte order mark; raise an error with the line of the first undecodable byte."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(_not_utf8(error), source=os.fspath(path), line=line) from None


def read_json(path: PathLike) -> Any:
    """Read a JSON file; raise a ValueError that says what is wrong with it."""
    return parse_json(read_bytes(path).decode("utf-8"))


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raise a ValueError if it is not JSON, or nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def stream_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines one by one, so that a file of any length can be read; `-` is the standard input."""
    source = os.fspath(path)
    with named_errors(source), contextlib.ExitStack() as stack:
        file = sys.stdin.buffer if source == "-" else stack.enter_context(open(path, "rb"))
        for number, line in enumerate(bounded_lines(file, source), 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(_not_utf8(error), source=source, line=number) from None
            yield text.removesuffix("\n").removesuffix("\r")


def bounded_lines(file: IO[bytes], source: str) -> Iterator[bytes]:
    """Yield the lines of an open file with their ends; raise if one is too long to be a line of text."""
    number = 1
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise FormatError(
                f"a line has at most {MAX_LINE:,} bytes; this one is longer. Is it a text file?",
                source=source,
                line=number,
            )
        yield line
        number += 1


@contextlib.contextmanager
def named_errors(source: str) -> Iterator[None]:
    """Add the file's name to errors of the disk: Python names it if opening fails, but not if reading does."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = source
        raise


def max_bytes() -> int:
    """Return the size of the largest file that is read as a whole: half of the machine's memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 2**33


def _too_large(source: str, most: int) -> FormatError:
    why = (
        "a pipe or a device may have no end; save its content as a file to read more"
        if most == MAX_UNSIZED
        else "this is half of the machine's memory"
    )
    return FormatError(
        f"at most {most:,} bytes can be read at once, and there are more: {why}.", source=source
    )


def _not_utf8(error: UnicodeDecodeError) -> str:
    if error.object.startswith(_OPENFST_BINARY):
        return "this is a binary OpenFst file. Convert it to text first: `fstprint --acceptor`"
    return (
        f"a text file must be UTF-8, but it has the byte {error.object[error.start]:#04x}. "
        "Is it a binary file, or in another encoding?"
    )
