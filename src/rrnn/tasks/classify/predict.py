"""Predictions for files of any size: texts are read, classified and written a window at a time."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from rrnn.errors import DataError, FormatError
from rrnn.tasks.classify.trained import WINDOW, TrainedClassifier

Format = Literal["csv", "jsonl"]
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


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
    """Write a line for each text of the source (`-`: the standard input): the label and all labels' probabilities.

    A text is a line, or, in a CSV or TSV file and wherever `text_column` is given, a cell of that column. A text
    without words gets no label. Returns how often each label was given; "" stands for none.
    """
    counts: Counter[str] = Counter()
    with _opened(source) as stream:
        texts = read_texts(_decoded(stream, str(source), encoding), source, text_column)
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
    if str(source) == "-":
        yield sys.stdin.buffer
        return
    if source.is_dir():
        raise DataError(f"{source} is a folder; a file of texts is needed here")
    if not source.exists():
        raise DataError(f"{source}: there is no such file")
    with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file:
        yield file  # pyright: ignore[reportReturnType]


def _decoded(stream: Iterable[bytes], source: str, encoding: str) -> Iterator[str]:
    """Lines, split at \\n alone, without their ends."""
    for number, line in enumerate(stream, start=1):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        try:
            yield line.decode(encoding).removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise FormatError(
                f"the text must be {encoding}, but byte 0x{line[error.start]:02x} is not: {error.reason}. Name its "
                "encoding with --encoding",
                source=source,
                line=number,
            ) from None
        except LookupError:
            raise DataError(f"there is no encoding {encoding!r}") from None


def read_texts(lines: Iterator[str], source: Path, text_column: str | None) -> Iterator[str]:
    """The texts of a file: its lines, or a column of a table."""
    suffix = source.with_suffix("").suffix if source.suffix == ".gz" else source.suffix
    delimiter = _DELIMITERS.get(suffix.lower())
    if delimiter is None and text_column is None:
        yield from lines
        return
    column = text_column or "text"
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter or ",", quoting=quoting)
    first = next(reader, None)
    if first is None:
        return
    names = [name.strip() for name in first]
    if column not in names and not column.isdecimal():
        raise FormatError(
            f"the first line names no column {column!r}; it names {', '.join(names)}. Choose with --text-column",
            source=str(source),
            line=1,
        )
    place = names.index(column) if column in names else int(column)
    rows = reader if column in names else _and(first, reader)
    for cells in rows:
        if cells and place >= len(cells):
            raise FormatError(
                f"too few columns: {len(cells)}, and column {column!r} is number {place + 1}",
                source=str(source),
                line=reader.line_num,
            )
        yield cells[place] if cells else ""


def _and(first: list[str], others: Iterable[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from others
