"""What every format shares: strict text in, whole files out, numbers without surprises."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import reprlib
import sys
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rrnn.errors import FormatError

if TYPE_CHECKING:
    from rrnn.semirings import Semiring
    from rrnn.wfsa.machine import WFSA

PathLike = str | os.PathLike[str]

# Nineteen digits hold every int64 and parse in no time; `int` also takes "1_000" and a megabyte of nines.
_NATURAL = re.compile(r"[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"([+-]?)inf(?:inity)?", re.IGNORECASE)
_OPENFST_BINARY = b"\xd6\xfd\xb2\x7e"  # how such files start; never UTF-8

_BRIEF = reprlib.Repr()  # bounded in depth too: a file may nest lists a thousand deep
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 60
_BRIEF.maxlevel = 3


def read_text(path: PathLike) -> str:
    """The file as UTF-8 text, without a byte order mark; undecodable bytes are an error with their line."""
    data = Path(path).read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError(_not_utf8(error), source=os.fspath(path), line=line) from None


def lines_of(text: str) -> list[str]:
    """Lines as editors and OpenFst count them. `splitlines` would also break at \\f, \\x1c, U+2028, ..."""
    return [line.removesuffix("\r") for line in text.split("\n")]


def stream_lines(path: PathLike) -> Iterator[str]:
    """The lines one by one, so that a file of any length can be read; `-` is the standard input."""
    source = os.fspath(path)
    with contextlib.ExitStack() as stack:
        file: BinaryIO = sys.stdin.buffer if source == "-" else stack.enter_context(open(path, "rb"))
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(_not_utf8(error), source=source, line=number) from None
            yield text.removesuffix("\n").removesuffix("\r")


def _not_utf8(error: UnicodeDecodeError) -> str:
    if error.object.startswith(_OPENFST_BINARY):
        return "this is a binary OpenFst file; print it as text first: `fstprint --acceptor`"
    return (
        f"a text file must be UTF-8, but it has the byte {error.object[error.start]:#04x}. "
        "Is it a binary file, or in another encoding?"
    )


def write_text(path: PathLike, text: str) -> None:
    """All of the text or nothing: it is written beside the target and then renamed onto it."""
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
    """Fields between blanks and tabs only: other white space may be part of a symbol's name."""
    return [field for field in line.replace("\t", " ").split(" ") if field]


def natural(token: str) -> int | None:
    """A non-negative integer of at most 19 digits, or None."""
    return int(token) if _NATURAL.fullmatch(token) else None


def number(token: str) -> float | None:
    """A decimal number or a written infinity, or None; a finite text that overflows float64 is None too.

    Integers stay integers: a count above 2⁵³ is no float64.
    """
    if _NATURAL.fullmatch(token):
        return int(token)
    if sign := _INFINITY.fullmatch(token):
        return -math.inf if sign[1] == "-" else math.inf
    if not _NUMBER.fullmatch(token):
        return None
    value = float(token)
    return value if math.isfinite(value) else None


def indexed_arcs(wfsa: WFSA) -> Iterator[tuple[int, int, int, Any]]:
    """Arcs as (source, symbol, target, weight) with indices, −1 for ε, and the weight as a Python element."""
    columns = (wfsa.arc_source, wfsa.arc_symbol, wfsa.arc_target)
    return zip(*(column.tolist() for column in columns), wfsa.semiring.numbers(wfsa.arc_weight), strict=True)


def require_plain_numbers(semiring: Semiring, format: str, source: str | None = None) -> None:
    """Raise where a format, which stores a weight as one number, cannot hold the weights of a semiring."""
    if semiring.components:
        raise FormatError(
            f"{format} stores a weight as one number; one over {semiring.name} has {semiring.size} "
            f"({', '.join(semiring.components)}). Use JSON, which stores them all: a file name that ends in .json.",
            source=source,
        )


def plain_name(symbol: Hashable) -> str:
    """A symbol as one field of a line: a string as it is, an integer as its digits; others have none."""
    name = symbol if isinstance(symbol, str) else str(symbol) if type(symbol) is int else ""
    if fields_of(name) != [name] or "\n" in name or "\r" in name:
        raise FormatError(
            "in this format a symbol is an integer or a non-empty string without blanks, tabs and line ends; "
            f"got {shown(symbol)}. JSON carries the others."
        )
    return name


def brief(error: Exception) -> str:
    """An error's message, without its middle when a file's own names make it a page long."""
    text = str(error)
    return text if len(text) <= 1000 else f"{text[:600]} … {text[-300:]}"


def shown(token: object) -> str:
    """A token for a message: quoted, and cut when it is long, whatever a file or a user put there."""
    try:
        return _BRIEF.repr(token)
    except ValueError:  # an integer with more digits than Python prints
        return f"a very long {type(token).__name__}"
