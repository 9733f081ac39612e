"""Strings files, as in the PAutomaC competition: each line is the length of a string, then its symbols.

    3 20          optional header: number of strings, size of the alphabet
    2 7 4         the string 7 4
    0             the empty string
    4 1 1 19 0

Symbols are separated by blanks or tabs. Blank lines are allowed only at the end: the empty string is `0`.

**The header.** A first line of two integers `n k` with n ≠ 1 can only be a header. `1 k` may also be the
string of one symbol k; it is read as a header if exactly one string follows and all of its symbols are
integers below k, as the header would promise. Pass `header=True` or `header=False` if it could be both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from rrnn.errors import FormatError
from rrnn.wfsa.io.files import PathLike, fields_of, natural, plain_name, shown, stream_lines, write_text

_INTEGER = re.compile(r"-?[0-9]{1,18}")


class StringLine(NamedTuple):
    """Hold one string of a file and its line."""

    line: int
    symbols: tuple[str, ...]


class StringsFile:
    """Read a strings file lazily: iterate over it (once) to get its `StringLine`s.

    `count` and `alphabet_size` are the numbers of the header, or None if there is no header.
    """

    def __init__(self, path: PathLike, *, header: bool | None = None) -> None:
        self.source = os.fspath(path)
        numbered: Iterator[tuple[int, str]] = iter(enumerate(stream_lines(path), 1))
        first = list(islice(numbered, 3))  # enough to tell a header from a string
        self.count: int | None = None
        self.alphabet_size: int | None = None
        if first and (header if header is not None else _is_header([line for _, line in first])):
            sizes = [natural(field) for field in fields_of(first[0][1])]
            if len(sizes) != 2 or sizes[0] is None or sizes[1] is None:
                raise self.error("the header must be two numbers `N |Σ|`; got " + shown(first[0][1]), 1)
            self.count, self.alphabet_size = sizes[0], sizes[1]
            first.pop(0)
        self._lines = chain(first, numbered)

    def __iter__(self) -> Iterator[StringLine]:
        found, end, blank = 0, 1, 0
        for line, text in self._lines:
            end = line
            fields = fields_of(text)
            if not fields:
                blank = blank or line
                continue
            if blank:
                raise self.error(
                    "there must be no blank line between strings; write the empty string as `0`", blank
                )
            found += 1
            yield StringLine(line, self._parse(fields, line))
        if self.count is not None and found != self.count:
            raise self.error(
                f"the header promises {self.count} strings, but the file has {found}. If the first line is a string "
                "and not a header, pass header=False (--header no).",
                end,
            )

    def _parse(self, fields: list[str], line: int) -> tuple[str, ...]:
        length = natural(fields[0])
        if length is None:
            raise self.error(f"a string must start with its length, a number; got {shown(fields[0])}", line)
        if length != len(fields) - 1:
            raise self.error(
                f"the length is {length}, but {len(fields) - 1} symbols follow. "
                "Each line must be `length s1 s2 …`.",
                line,
            )
        return tuple(fields[1:])

    def error(self, message: str, line: int) -> FormatError:
        """Return an error that names the file and the line."""
        return FormatError(message, source=self.source, line=line)


def _is_header(lines: list[str]) -> bool:
    """Return whether the first of the (at most three) lines is a header."""
    sizes = [natural(field) for field in fields_of(lines[0])]
    if len(sizes) != 2 or sizes[0] is None or sizes[1] is None:
        return False
    if sizes[0] != 1:
        return True
    rest = [fields_of(line) for line in lines[1:]]
    if not rest or not rest[0] or any(rest[1:]):  # not exactly one string after it
        return False
    symbols = [natural(field) for field in rest[0][1:]]
    return all(symbol is not None and symbol < sizes[1] for symbol in symbols)


def symbol_reader(alphabet: Iterable[Hashable]) -> Callable[[str], Hashable | None]:
    """Return a function from a token of a strings file to its symbol: the string itself, or else the integer.

    The function returns None for a token that names no symbol (None itself cannot be written in such a file).
    """
    symbols = tuple(alphabet)
    texts = {symbol for symbol in symbols if isinstance(symbol, str)}
    integers = {symbol for symbol in symbols if type(symbol) is int}

    def read(token: str) -> Hashable | None:
        if token in texts:
            return token
        value = int(token) if _INTEGER.fullmatch(token) else None
        return value if value in integers else None

    return read


def load_strings(
    path: PathLike, *, alphabet: Iterable[Hashable] | None = None, header: bool | None = None
) -> list[tuple[Hashable, ...]]:
    """Read all strings of a file. With an alphabet, tokens become its symbols (strings first, then integers)."""
    file = StringsFile(path, header=header)
    if alphabet is None:
        return [string.symbols for string in file]
    reader = symbol_reader(alphabet)
    return [read_symbols_of(string, reader, file) for string in file]


def read_symbols_of(
    string: StringLine, reader: Callable[[str], Hashable | None], file: StringsFile
) -> tuple[Hashable, ...]:
    """Return the symbols of a string; raise an error with its line if the reader does not know one."""
    symbols = []
    for position, token in enumerate(string.symbols, 1):
        symbol = reader(token)
        if symbol is None:
            raise file.error(
                f"symbol {shown(token)} (number {position} of the string) is not in the alphabet", string.line
            )
        symbols.append(symbol)
    return tuple(symbols)


def save_strings(
    strings: Iterable[Sequence[Hashable]],
    path: PathLike,
    *,
    alphabet_size: int | None = None,
) -> None:
    """Write a strings file; if the size of the alphabet is given, the file has a header."""
    rows = [[plain_name(symbol) for symbol in string] for string in strings]
    lines = [" ".join([str(len(row)), *row]) for row in rows]
    if alphabet_size is not None:
        lines.insert(0, f"{len(rows)} {alphabet_size}")
    elif rows and len(rows[0]) == 1 and _is_header(lines[:3]):
        raise FormatError(
            f"without a header, the first string {rows[0]} would be read as a header. Pass alphabet_size=.",
            source=os.fspath(path),
        )
    write_text(path, "".join(line + "\n" for line in lines))
