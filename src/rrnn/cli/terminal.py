"""Text and tables that fit the terminal."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest


def terminal_width() -> int | None:
    """Return the number of columns of the terminal, or of COLUMNS; None if the output goes to a file or a pipe."""
    if not os.environ.get("COLUMNS") and not (sys.stdout is not None and sys.stdout.isatty()):
        return None
    return shutil.get_terminal_size().columns


def paragraph(text: str, indent: str = "") -> str:
    """Return a text in lines that fit the terminal, at most 100 columns wide; all but the first are indented."""
    return textwrap.fill(
        text, min(terminal_width() or 80, 100), subsequent_indent=indent, break_on_hyphens=False
    )


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "", in_files: int | None = None
) -> str:
    """Return a table without trailing spaces. Its columns are as wide as their widest cell; if the terminal is too
    narrow for that, the widest ones are narrower, and their cells have several lines. `in_files` is the width to
    fit into, if words are short enough, where the output goes to a file or a pipe; by default there is none."""
    lines = [header, *rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    breaks = _SPACES if terminal_width() is None else _BREAKS
    words = [max(len(word) for cell in column for word in breaks.split(cell)) for column in columns]
    room = (terminal_width() or in_files or 10**6) - len(indent) - 2 * (len(header) - 1)
    # Break lines between words if that is enough; in files never within them, so that programs find names whole.
    for least in (words,) if terminal_width() is None else (words, [1] * len(words)):
        while sum(widths) > room and (wide := [i for i, width in enumerate(widths) if width > least[i]]):
            widths[max(wide, key=widths.__getitem__)] -= 1
    return "\n".join(
        (indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(part, widths, strict=True))).rstrip()
        for line in lines
        for part in zip_longest(*map(_wrapped, line, widths), fillvalue="")
    )


_SPACES = re.compile(r"\s+")
_BREAKS = re.compile(r"\s+|(?<=\w-)(?=\w)")  # where textwrap breaks lines


def _wrapped(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else textwrap.wrap(cell, width)
