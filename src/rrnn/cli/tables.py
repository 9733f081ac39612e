"""Format plain tables with aligned columns, for the screen and for pipes."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Return a table with columns as wide as their widest cell, without trailing spaces."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        (indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    )
