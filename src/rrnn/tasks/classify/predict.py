"""Classify files of any size: texts are read, classified and written one window at a time."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Literal

from rrnn.errors import DataError, FormatError
from rrnn.files import MAX_LINE, named_errors
from rrnn.tasks.classify.trained import WINDOW, TrainedClassifier
from rrnn.tasks.data.labelled_files import Table, find_columns, read_cells
from rrnn.tasks.data.text_files import UTF16, check_encoding, undecodable

Format = Literal["csv", "jsonl"]
_CHUNK = 2**20


def predict_file(
    model: TrainedClassifier,
    source: Path,
    out: IO[str],
    *,
    format: Format = "csv",
    text_column: str | None = None,
    encoding: str = "utf-8",
    window: int = WINDOW,
) -> Counter[str]:
    """Classify each text of a file (`-`: standard input), write a line with its label and all probabilities, and
    return how often each label was predicted.

    A text is a line, or, in a CSV or TSV file or if `text_column` is given, a cell of that column. A text without words
    gets no label, which is counted as "".
    """
    counts: Counter[str] = Counter()
    with _opened(source) as stream:
        texts = read_texts(_lines(_decoded(stream, str(source), encoding), str(source)), source, text_column)
        rows = enumerate(model.stream(texts, window), start=1)
        write = csv.writer(out, lineterminator="\n").writerow
        if format == "csv":
            write(["row", "label", *(f"p({label})" for label in model.labels)])
        for number, (label, probabilities) in rows:
            counts[label or ""] += 1
            if format == "csv":
                numbers = (f"{probabilities[name]:.6f}" if probabilities else "" for name in model.labels)
                write([number, label, *numbers])
            else:
                rounded = {name: round(p, 6) for name, p in probabilities.items()}
                line = {"row": number, "label": label, "probabilities": rounded or None}
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
    return counts


@contextmanager
def _opened(source: Path) -> Iterator[IO[bytes]]:
    """Open the source as bytes, decompressed if it is a gzip file."""
    if str(source) == "-" and sys.stdin is None:
        raise DataError("standard input is closed: name a file")
    if source.is_dir():
        raise DataError(f"{source} is a folder; name a file of texts")
    if str(source) != "-" and not source.exists():
        raise DataError(f"{source}: there is no such file")
    with nullcontext(sys.stdin.buffer) if str(source) == "-" else source.open("rb") as file:
        with named_errors(str(source)):
            packed = isinstance(file, io.BufferedReader) and file.peek(2)[:2] == b"\x1f\x8b"
        try:
            with gzip.open(file) if packed else nullcontext(file) as stream:
                yield stream  # pyright: ignore[reportReturnType]
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(
                f"{source}: the gzip file is truncated or damaged ({error}); get it again"
            ) from None


def _lines(texts: Iterable[str], source: str) -> Iterator[str]:
    """Yield lines, without their ends, as they arrive. Only \\n (or \\r\\n) ends a line."""
    begun: list[str] = []
    number, size = 1, 0
    for text in texts:
        *whole, rest = text.split("\n")
        for line in whole:
            yield "".join([*begun, line]).removesuffix("\r")
            begun = []
            number += 1
            size = 0
        begun.append(rest)
        size += len(rest)
        if size > MAX_LINE:
            raise FormatError(
                f"a text has at most {MAX_LINE:,} characters; this one is longer. Is it a text file?",
                source=source,
                line=number,
            )
    if last := "".join(begun):
        yield last.removesuffix("\r")


def _decoded(stream: IO[bytes], source: str, encoding: str) -> Iterator[str]:
    """Yield the decoded text, at most one line at a time."""
    check_encoding(encoding)
    with named_errors(source):
        some = stream.readline(_CHUNK)
    encoding = "utf-16" if some[:2] in UTF16 else encoding
    decoder = codecs.getincrementaldecoder(encoding)()
    some, number = some.removeprefix(codecs.BOM_UTF8), 1
    while True:
        try:
            text = decoder.decode(some, final=not some)
        except UnicodeError as error:
            raise FormatError(
                f"the text must be {encoding}, but {undecodable(error)}. Give its encoding with --encoding",
                source=source,
                line=number,
            ) from None
        yield text
        if not some:
            return
        number += text.count("\n")
        with named_errors(source):
            some = stream.readline(_CHUNK)


def read_texts(lines: Iterator[str], source: Path, text_column: str | None) -> Iterator[str]:
    """Yield the texts of a file: its lines, or a column of a table."""
    table = Table.of(source, text_column or "text", "")
    if table is None and text_column is None:
        yield from lines
        return
    column, delimiter = text_column or "text", table.delimiter if table else ","
    place: int | None = None
    for line, cells in read_cells(lines, {column}, delimiter, str(source)):
        if place is None:
            (place,), is_header = find_columns(cells, [column], str(source))
            if is_header:
                continue
        if cells and place >= len(cells):
            raise FormatError(
                f"too few columns: {len(cells)}, and column {column!r} is number {place + 1}",
                source=str(source),
                line=line,
            )
        yield cells[place] if cells else ""
