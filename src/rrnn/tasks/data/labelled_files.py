"""Read files of labelled texts: lines with a label in front, tables (CSV, TSV), or texts and labels in two files."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rrnn.errors import DataError, FormatError
from rrnn.tasks.data.text_files import read_lines

_LONGEST = 2**30  # characters per cell: Python's own limit is too small for long documents
SKIP = "skip such rows (skip_broken=True, --skip-broken True)"
_TAB = re.compile(r" *[^ \t]+\t")  # a label that ends with a tab, not a blank


@dataclass(frozen=True, slots=True)
class Row:
    """A text and its label as they were written, and where."""

    text: str
    label: str
    source: str
    line: int


@dataclass
class Skips:
    """Counts skipped rows by reason. A broken row raises an error, unless `lenient`."""

    lenient: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def broken(self, reason: str, fix: str, source: str, line: int) -> None:
        """Count a broken row, or raise an error."""
        if not self.lenient:
            raise FormatError(f"{reason}; {fix}", source=source, line=line)
        self.counts[reason.split(",")[0]] += 1


def skipped(counts: Mapping[str, int]) -> str:
    """Describe how many rows were skipped, and why."""
    reasons = ", ".join(f"{reason}: {count}" for reason, count in counts.items())
    return f"{sum(counts.values())} rows skipped ({reasons})"


@dataclass(frozen=True)
class Table:
    """How to read a table. Columns are named in its first line, or, without a header, are numbers from 0."""

    text: str | int = "text"
    label: str | int = "label"
    delimiter: str = ","

    @classmethod
    def of(cls, path: Path, text: str | int, label: str | int) -> Table | None:
        """Return how to read a file, by its name; None for a file that is not a table."""
        suffix = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
        delimiter = {".csv": ",", ".tsv": "\t", ".tab": "\t"}.get(suffix.lower())
        return None if delimiter is None else cls(text, label, delimiter)


def read_rows(
    path: Path, text_column: str | int, label_column: str | int, skips: Skips, encoding: str
) -> Iterator[Row]:
    """Read the rows of a user's file: a table, or lines with a label in front."""
    table = Table.of(path, text_column, label_column)
    if table is None:
        check_no_columns(text_column, label_column, str(path))
        return read_labelled_lines(path, skips, encoding)
    return read_table(path, table, skips, encoding)


def check_no_columns(text_column: str | int, label_column: str | int, source: str) -> None:
    """Raise if columns are named for data that is not a table."""
    for name, column in (("text", text_column), ("label", label_column)):
        if column != name:
            raise DataError(
                f"{source} is not a table, so it has no column {column!r}. Name the file .csv or .tsv if it is one, or "
                f"leave out {name}_column (--{name}-column)."
            )


def read_labelled_lines(path: Path, skips: Skips, encoding: str = "utf-8") -> Iterator[Row]:
    """Read lines of the form `<label> <text>`, as in sst, subj and cr, with a blank or a tab after the label."""
    for line, content in enumerate(read_lines(path, encoding), start=1):
        label, _, text = content.strip(" ").partition("\t" if _TAB.match(content) else " ")
        if not label:
            skips.counts["blank line"] += 1
            continue
        yield Row(text, label, str(path), line)


def read_table(path: Path, table: Table, skips: Skips, encoding: str = "utf-8") -> Iterator[Row]:
    """Read the rows of a table that have a text and a label."""
    columns: list[int] | None = None
    wanted = {str(table.text), str(table.label)}
    for line, cells in read_cells(read_lines(path, encoding), wanted, table.delimiter, str(path)):
        if columns is None:
            columns, is_header = find_columns(cells, (table.text, table.label), str(path))
            if is_header:
                continue
        if not cells:
            skips.counts["blank line"] += 1
        elif len(cells) <= max(columns):
            skips.broken(
                f"too few columns, {len(cells)} where at least {max(columns) + 1} are needed",
                f"fix the row, or {SKIP}",
                str(path),
                line,
            )
        elif not cells[columns[1]].strip():
            skips.broken("no label", f"fill it in, or {SKIP}", str(path), line)
        else:
            yield Row(cells[columns[0]], cells[columns[1]].strip(), str(path), line)


def read_cells(
    lines: Iterable[str], names: set[str], delimiter: str, source: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its first line, cells) of each row. CSV has quotes as in RFC 4180, so a cell may span lines; in
    TSV a quote is an ordinary character. `names` are the columns to look for in the first line."""
    lines = iter(lines)
    first = next(lines, None)
    if first is None:
        return
    reader = csv.reader(
        (f"{line}\n" for line in chain([first], lines)),
        delimiter=_delimiter(first, names, delimiter),
        quoting=csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE,
        strict=True,
    )
    start = 1
    while (cells := _next(reader, source, start)) is not None:
        yield start, cells
        start = reader.line_num + 1


def _delimiter(first: str, names: set[str], usual: str) -> str:
    """Return the delimiter with which the first line names the columns, or the usual one; spreadsheets also use `;`."""
    for delimiter in (usual, ",", ";", "\t"):
        if names <= {name.strip(' "') for name in first.split(delimiter)}:
            return delimiter
    return usual


def _next(reader: Iterator[list[str]], source: str, line: int) -> list[str] | None:
    limit = csv.field_size_limit(_LONGEST)
    try:
        return next(reader, None)
    except csv.Error as error:
        raise FormatError(
            f"the row that starts here is not valid CSV: {error}. Is there an unclosed quote?",
            source=source,
            line=line,
        ) from None
    finally:
        csv.field_size_limit(limit)


def find_columns(first: Sequence[str], wanted: Sequence[str | int], source: str) -> tuple[list[int], bool]:
    """Return the indices of the wanted columns, given by name or number, and whether the first row is a header."""
    names = [name.strip() for name in first]
    if all(name in names for name in wanted):
        return [names.index(str(name)) for name in wanted], True
    if all(str(name).isdecimal() and len(str(name)) < 19 for name in wanted):
        return [int(name) for name in wanted], False
    missing = next(name for name in wanted if name not in names)
    shown = ", ".join(name if len(name) <= 30 else f"{name[:30]}…" for name in names)
    raise FormatError(
        f"the first line names no column {missing!r}; it names {shown or 'nothing'}. Give the names of the columns, "
        "or, if the file has no header, their numbers from 0",
        source=source,
        line=1,
    )


def read_pair(texts: Path, labels: Path, encoding: str = "utf-8") -> Iterator[Row]:
    """Read texts from one file and their labels from the same lines of another, as in elec-*.txt.tok and elec-*.cat."""
    lines, categories = read_lines(texts, encoding), read_lines(labels)
    if len(lines) != len(categories):
        raise DataError(
            f"{texts} has {len(lines)} texts, but {labels} has {len(categories)} labels; the numbers must be equal"
        )
    for number, (text, label) in enumerate(zip(lines, categories, strict=True), start=1):
        yield Row(text, label.strip(), str(texts), number)
