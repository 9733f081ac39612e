"""Read files of word vectors: text with or without a header line, and word2vec's binary format.

These files run to gigabytes, so an unwanted line is dropped after a glance, and numbers are parsed many at once.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from rrnn.errors import DataError, FormatError
from rrnn.files import bounded_lines, named_errors

_BATCH = 64  # lines whose numbers are parsed at once, about as many as fit into the cache
_CHUNK = 2**24
_LOOK = 20  # lines that decide the size of the vectors

Found = tuple[list[bytes], np.ndarray]


class Wanted:
    """The words to keep; all if None."""

    def __init__(self, words: Collection[str] | None) -> None:
        self._spelled = None if words is None else {word.encode("utf-8", "replace") for word in words}

    def __contains__(self, word: bytes) -> bool:
        return self._spelled is None or word in self._spelled


def read_stream(path: Path, wanted: Wanted) -> Found:
    """Return the words and the matrix of a text or binary file, compressed or not."""
    try:
        with named_errors(str(path)), _open(path) as file:
            lines = bounded_lines(file, str(path))
            first = next(lines, b"")
            header = _header(first)
            if header is None:
                return _read_text(path, wanted, chain([first], lines), 1, None)
            second = next(lines, b"")
            if _numbers_at_end(second, _separator(second)) == 0:
                return _read_binary(path, wanted, file, second, *header)
            return _read_text(path, wanted, chain([second], lines), 2, header)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the gzip file is truncated or damaged ({error}); get it again") from None


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def _header(line: bytes) -> tuple[int, int] | None:
    """Read the header `<number of words> <size>` of word2vec and fastText, if there is one."""
    parts = line.split()
    if len(parts) == 2 and all(part.isdigit() and len(part) < 19 for part in parts):
        return int(parts[0]), int(parts[1])
    return None


# ---- text ---------------------------------------------------------------------------------------------------------


def _read_text(
    path: Path, wanted: Wanted, lines: Iterator[bytes], start: int, header: tuple[int, int] | None
) -> Found:
    head = list(islice(lines, _LOOK))
    separator = _separator(head[0])
    if header is None:
        widths = Counter(_numbers_at_end(line, separator) for line in head if line.strip())
        width = widths.most_common(1)[0][0] if widths else 0
        if width == 0:
            raise FormatError(
                "a line of a vector file is a word and its numbers", source=str(path), line=start
            )
    else:
        width = header[1]

    rows = _TextRows(path, width)
    total = 0
    for number, line in enumerate(chain(head, lines), start=start):
        line = line.rstrip()
        if not line:
            continue
        total += 1
        if line.count(separator) == width:
            word, _, numbers = line.partition(separator)
        else:
            word, numbers = _split_odd(line, separator, width, path, number)
        if word in wanted:
            rows.add(word, numbers, number)
    if header is not None and total < header[0]:
        raise DataError(
            f"{path}: the first line announces {header[0]} vectors, but there are {total}: the file is truncated"
        )
    return rows.finish()


class _TextRows:
    """Collects words and their numbers as text, and parses the numbers one batch at a time."""

    def __init__(self, path: Path, width: int) -> None:
        self.path, self.width = path, width
        self.words: dict[bytes, None] = {}
        self.parsed: list[np.ndarray] = []
        self.waiting: list[tuple[int, bytes]] = []  # line, its numbers

    def add(self, word: bytes, numbers: bytes, line: int) -> None:
        """Add a line, unless its word was there before."""
        if word in self.words:
            return
        self.words[word] = None
        self.waiting.append((line, numbers))
        if len(self.waiting) == _BATCH:
            self._parse()

    def finish(self) -> Found:
        """Return the words and the matrix."""
        self._parse()
        return list(self.words), np.concatenate([np.empty((0, self.width), np.float32), *self.parsed])

    def _parse(self) -> None:
        try:
            numbers = parse_decimals(b"\n".join(text for _, text in self.waiting))
            self.parsed.append(numbers.reshape(len(self.waiting), self.width).astype(np.float32))
        except ValueError:
            self._blame()
        self.waiting = []

    def _blame(self) -> NoReturn:
        """Raise an error that names the line with an invalid or missing number."""
        for line, text in self.waiting:
            count = len(text.split())
            if count != self.width:
                _wrong_width(self.path, line, self.width, count)
            for number in text.split():
                try:
                    float(number)
                except ValueError:
                    shown = number.decode("utf-8", "replace")
                    raise FormatError(
                        f"{shown!r} is not a number", source=str(self.path), line=line
                    ) from None
        raise AssertionError("each line of the batch can be read, but not all of them together")


def _separator(line: bytes) -> bytes:
    return b"\t" if line.count(b"\t") > line.count(b" ") else b" "


def _numbers_at_end(line: bytes, separator: bytes) -> int:
    """Return how many numbers follow the word of a line, which may itself be a number or contain blanks."""
    parts = line.rstrip().split(separator)
    for count, part in enumerate(reversed(parts[1:])):
        if not _is_number(part):
            return count
    return len(parts) - 1


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _split_odd(line: bytes, separator: bytes, width: int, path: Path, number: int) -> tuple[bytes, bytes]:
    """Split a line whose word contains blanks (GloVe 840B has `. . .`), or raise an error for a wrong size."""
    found = _numbers_at_end(line, separator)
    parts = line.rsplit(separator, width)
    tail = parts[0].split(separator)[-1]
    if found < width or (b"." in tail and tail.strip(b".") and _is_number(tail)):
        _wrong_width(path, number, width, found)
    return parts[0], separator.join(parts[1:])


def _wrong_width(path: Path, line: int, width: int, found: int) -> NoReturn:
    raise FormatError(
        f"the vectors of this file have {width} numbers, but this line has {found}: is it truncated?",
        source=str(path),
        line=line,
    )


# ---- binary -------------------------------------------------------------------------------------------------------


def _read_binary(path: Path, wanted: Wanted, file: IO[bytes], rest: bytes, count: int, width: int) -> Found:
    """Read `count` times a word, a blank, `width` little-endian floats, and perhaps a line end."""
    words: dict[bytes, None] = {}
    rows: list[bytes] = []
    buffer, position = rest, 0
    for done in range(count):
        blank = buffer.find(b" ", position)
        while blank < 0 or len(buffer) < blank + 1 + 4 * width:
            more = file.read(_CHUNK)
            if not more:
                raise DataError(
                    f"{path}: the first line announces {count} vectors of {width} binary numbers, but the file ends "
                    f"after {done}: it is truncated, or not a word2vec file"
                )
            buffer, position = buffer[position:] + more, 0
            blank = buffer.find(b" ")
        word = buffer[position:blank].lstrip(b"\n")
        position = blank + 1 + 4 * width
        if word in wanted and word not in words:
            words[word] = None
            rows.append(buffer[blank + 1 : position])
    matrix = np.frombuffer(b"".join(rows), "<f4").reshape(len(rows), width)
    return list(words), matrix.astype(np.float32)


# ---- decimals --------------------------------------------------------------------------------------------------------


_POINT, _MINUS, _ZERO = b".-0"


def parse_decimals(text: bytes) -> np.ndarray:
    """Parse all numbers of a text, separated by blanks and line ends, as float64; raise ValueError if one is invalid.

    Parsing many numbers at once is several times as fast as one by one.
    """
    quick = _parse_plain(text)
    return np.array([float(number) for number in text.split()]) if quick is None else quick


def _parse_plain(text: bytes) -> np.ndarray | None:
    """Parse numbers of the form -12.345, grouped by the position of the point; return None if there is another form."""
    raw = np.frombuffer(text, np.uint8)
    blank = raw <= ord(" ")
    edges = np.flatnonzero(np.diff(blank, prepend=True, append=True))
    starts, ends = edges[::2], edges[1::2]
    points = np.flatnonzero(raw == _POINT)
    if len(starts) == 0 or len(points) != len(starts) or not np.all((starts <= points) & (points < ends)):
        return None
    negative = raw[starts] == _MINUS
    digits = raw - np.uint8(_ZERO)
    others = np.count_nonzero(blank) + len(points) + np.count_nonzero(negative)
    whole = points - starts - negative  # digits before the point
    length = whole + ends - points
    # 15 digits are exact in float64, so that one division rounds correctly
    if np.count_nonzero(digits < 10) + others != len(raw) or length.min() < 2 or length.max() > 16:
        return None

    numbers = np.empty(len(starts))
    keys = whole * 32 + length
    for key in np.flatnonzero(np.bincount(keys)):
        chosen = np.flatnonzero(keys == key)
        numbers[chosen] = _parse_alike(digits, starts[chosen] + negative[chosen], *divmod(int(key), 32))
    return np.where(negative, -numbers, numbers)


def _parse_alike(digits: np.ndarray, starts: np.ndarray, whole: int, length: int) -> np.ndarray:
    """Parse numbers of `length` characters with `whole` digits before the point."""
    places = length - 1 - whole
    powers = np.concatenate([np.arange(length - 2, places - 1, -1), [0], np.arange(places - 1, -1, -1)])
    worth = 10.0**powers
    worth[whole] = 0  # the point itself
    windows = np.lib.stride_tricks.sliding_window_view(digits, length)[starts]
    return windows.astype(np.float64) @ worth / 10.0**places
