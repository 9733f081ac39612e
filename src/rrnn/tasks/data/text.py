"""Text files as lines: plain or gzip, split at \\n only, and errors that name the line where bytes are no text."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from rrnn.errors import DataError, FormatError

UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """The lines of a file, without their ends. Only \\n (or \\r\\n) ends a line: latin-1 texts hold 0x85, which
    `str.splitlines` would cut at."""
    path = Path(path)
    data = _read_bytes(path)
    if data[:2] in UTF16:
        encoding = "utf-16"
    try:
        text = data.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except LookupError:
        raise DataError(
            f"Python knows no encoding {encoding!r}; utf-8, latin-1 and cp1252 are usual"
        ) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(
            f"the text must be {error.encoding}, but byte 0x{data[error.start]:02x} is not: "
            f"{error.reason}. Convert the file (iconv -f latin1 -t utf-8), or name its encoding",
            source=str(path),
            line=line,
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError("a text has no NUL characters: is this file binary?", source=str(path), line=line)
    lines = text.split("\n")
    if lines[-1] == "":  # what follows the last line's end
        lines.pop()
    if not lines:
        raise DataError(f"{path}: the file is empty; a text with at least one line is needed")
    return [line.removesuffix("\r") for line in lines]


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"{path} is a folder; a file is needed here")
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is cut or damaged ({error}); fetch it again") from None
