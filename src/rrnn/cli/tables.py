"""Plain tables: aligned columns that read well on a screen and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> str:
    """Columns as wide as they need to be, the last one ragged."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        (indent + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    )
