"""What all formats share: writing files atomically, and parsing lines, numbers and names. `rrnn.files` reads."""

from __future__ import annotations

import errno
import math
import os
import re
import reprlib
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NoReturn

from rrnn.errors import FormatError, SemiringError
from rrnn.files import PathLike, read_text, stream_lines
from rrnn.semirings import Semiring

__all__ = [
    "PathLike",
    "Source",
    "brief",
    "checked_weight",
    "fields_of",
    "lines_of",
    "natural",
    "number",
    "plain_name",
    "read_text",
    "require_plain_numbers",
    "shown",
    "stream_lines",
    "write_text",
]

# Nineteen digits hold every int64 and are parsed quickly; `int` would also take "1_000" and a megabyte of nines.
_NATURAL = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)

_BRIEF = reprlib.Repr()  # bounded in depth too: a file may nest lists a thousand deep
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 60
_BRIEF.maxlevel = 3


class Source:
    """Name the file in errors; `name` is None for a text that is not from a file."""

    def __init__(self, name: str | None) -> None:
        self.name = name

    def fail(self, message: str, line: int | None = None) -> NoReturn:
        """Raise a `FormatError` that names the file and perhaps the line."""
        raise FormatError(message, source=self.name, line=line)


def lines_of(text: str) -> list[str]:
    """Return the lines as editors and OpenFst count them. `splitlines` would also split at \\f, \\x1c, U+2028, …"""
    return [line.removesuffix("\r") for line in text.split("\n")]


def write_text(path: PathLike, text: str) -> None:
    """Write a file atomically: write the text to a temporary file beside the target, then rename it."""
    target = Path(os.path.realpath(path))  # a link keeps pointing where it did
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:  # half of a surrogate pair in a name
        raise FormatError(
            f"{shown(error.object[error.start])} cannot be written as UTF-8", source=os.fspath(path)
        ) from None
    if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing to replace
        target.write_bytes(data)
        return
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
    temporary = target.with_name(f".rrnn-{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:  # created under the user's umask, unlike `tempfile`
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o7777)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def fields_of(line: str) -> list[str]:
    """Return the fields between blanks and tabs. Other white space may be part of a symbol's name."""
    return [field for field in line.replace("\t", " ").split(" ") if field]


def natural(token: str) -> int | None:
    """Parse a non-negative integer of at most 19 digits; return None for anything else."""
    return int(token) if _NATURAL.fullmatch(token) else None


def number(token: str) -> float | None:
    """Parse a decimal number or an infinity; return None for anything else, and for a number beyond float64.

    Integers stay integers, since a count above 2⁵³ may not be a float64.
    """
    if _NATURAL.fullmatch(token):
        return int(token)
    if sign := _INFINITY.fullmatch(token):
        return -math.inf if sign[1] == "-" else math.inf
    if not _NUMBER.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None


def require_plain_numbers(semiring: Semiring, format: str, source: str | None = None) -> None:
    """Raise if weights of the semiring have several numbers: the format stores a weight as one number."""
    if semiring.components:
        raise FormatError(
            f"{format} stores a weight as one number; a weight over {semiring.name} has {semiring.size} "
            f"({', '.join(semiring.components)}). Use JSON, which stores them all: a file name that ends in .json.",
            source=source,
        )


def checked_weight(weight: Any, semiring: Semiring, what: str = "weight") -> Any:
    """Return a weight as an element of the semiring, or raise unless it also fits the semiring's tensors."""
    value = semiring.check(weight, what)
    if semiring.integers and value >= 2**63:
        size = len(str(int(value)))  # perhaps more than a float can hold
        raise SemiringError(
            f"a {semiring.name} {what} must be below 2⁶³ to fit an int64; got one of {size} digits"
        )
    return value


def plain_name(symbol: Hashable) -> str:
    """Return a symbol as one field of a line: a string itself, or the digits of an integer; raise for others."""
    name = symbol if isinstance(symbol, str) else str(symbol) if type(symbol) is int else ""
    if fields_of(name) != [name] or "\n" in name or "\r" in name:
        raise FormatError(
            "in this format a symbol must be an integer or a non-empty string without blanks, tabs and line ends; "
            f"got {shown(symbol)}. Use JSON for other symbols."
        )
    return name


def brief(error: Exception) -> str:
    """Return an error's message, without its middle if names from a file make it very long."""
    text = str(error)
    return text if len(text) <= 1000 else f"{text[:600]} … {text[-300:]}"


def shown(token: object) -> str:
    """Return a token for a message: quoted, and shortened if it is long."""
    try:
        return _BRIEF.repr(token)
    except ValueError:  # an integer with more digits than Python prints
        return f"a very long {type(token).__name__}"
