"""Result files, read; tables, written as Markdown. For tables.py and goals.py beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
BOTH = "forward_backward"

Row = dict[str, Any]


@cache
def results(name: str) -> dict[str, Any] | None:
    """A result file; None where it was never measured."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def rows(file: str, **wanted: Any) -> list[Row]:
    """The rows of a file whose values are these; a tuple stands for any of its values."""
    data = results(file)
    assert data is not None, f"docs/results/{file}.json is missing"
    return [
        row
        for row in data["rows"]
        if all(row.get(k) in (v if isinstance(v, tuple) else (v,)) for k, v in wanted.items())
    ]


def row(file: str, **wanted: Any) -> Row:
    (found,) = rows(file, **wanted)
    return found


def table(head: str, body: Iterable[Iterable[object]]) -> str:
    """Markdown; columns of numbers are those whose title ends with `:`."""
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
    """A model's name as the zoo has it: the paper's tables say RRNN(F) and RRNN(B) m+."""
    name = model.replace("RRNN(", "").replace(")", "").strip()
    return f"{name.removesuffix('m+').strip()}-max-plus" if name.endswith("m+") else name
