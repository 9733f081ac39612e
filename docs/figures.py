"""Read the result files and write Markdown tables: shared by tables.py and the modules beside it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
BOTH = "forward_backward"
NOTHING = "*No results are committed yet.*\n"

Row = dict[str, Any]

TABLES: dict[str, Callable[[], str]] = {}
"""What stands between `<!-- table: NAME -->` and `<!-- end -->` on the pages, by NAME."""


def named(function: Callable[[], str]) -> Callable[[], str]:
    """Register a function as the table of its name, with - for _."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


@cache
def results(name: str) -> dict[str, Any] | None:
    """Return a result file, or None if it does not exist."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def rows(file: str, **wanted: Any) -> list[Row]:
    """Return the rows of a file with the given values; a tuple stands for any of its members."""
    data = results(file)
    assert data is not None, f"docs/results/{file}.json is missing"
    return [
        row
        for row in data["rows"]
        if all(row.get(k) in (v if isinstance(v, tuple) else (v,)) for k, v in wanted.items())
    ]


def row(file: str, **wanted: Any) -> Row:
    """Return the one row of a file with the given values."""
    (found,) = rows(file, **wanted)
    return found


def table(head: str, body: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table. Columns whose title ends with `:` are aligned to the right."""
    titles = [title.strip() for title in head.split("|")]
    lines = [[title.rstrip(":") for title in titles], ["---:" if t.endswith(":") else "---" for t in titles]]
    lines += [[str(value) for value in line] for line in body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def size(shape: list[int]) -> str:
    return "×".join(map(str, shape))


def us(ms: float) -> str:
    return f"{1000 * ms:.1f}" if ms < 0.1 else f"{1000 * ms:,.0f}"


def dtype(name: str) -> str:
    return {"float32": "fp32", "bfloat16": "bf16"}.get(name, name)


def unique(values: Iterable[Any]) -> list[Any]:
    return list({str(value): value for value in values}.values())


def plain(model: str) -> str:
    """Return a model's name in the zoo; the paper's tables call them RRNN(F) and RRNN(B) m+."""
    name = model.replace("RRNN(", "").replace(")", "").strip()
    return f"{name.removesuffix('m+').strip()}-max-plus" if name.endswith("m+") else name


def number(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def signed(value: float, digits: int = 1) -> str:
    return f"{round(value, digits) + 0:+.{digits}f}"  # no -0.0


def interval(low: float, high: float) -> str:
    """Write an interval with two digits, so that it shows on which side of 0 it ends."""
    return f"{signed(low, 2)} to {signed(high, 2)}"


def span(values: Iterable[float], digits: int = 1) -> str:
    """Write the least and the greatest value, or the one where both look the same."""
    ordered = sorted(values)
    least, greatest = number(ordered[0], digits), number(ordered[-1], digits)
    return least if least == greatest else f"{least} to {greatest}"


def paragraph(text: str) -> str:
    """Wrap a paragraph or an item of a list, however its source is broken into lines."""
    words = " ".join(text.split())
    return (
        textwrap.fill(words, 120, subsequent_indent="  " * words.startswith("- "), break_on_hyphens=False)
        + "\n"
    )
