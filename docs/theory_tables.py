"""The tables of docs/theory.md."""

from __future__ import annotations

import re
from functools import cache
from statistics import mean

from figures import Row, named, rows, table

from rrnn.errors import RRNNError
from rrnn.theory import power
from rrnn.zoo import get_cell

TASKS = {"parity": "modulo 2", "modulo3": "modulo 3", "S3": "group", "recall": "first", "anbn": None}
"""The tasks of benchmarks/languages.py, and what rrnn.theory.power calls them. It has no task for aⁿbⁿ."""
SHOWN = ("60", "100", "200", "500")


@named
def rank() -> str:
    body = []
    for row in rows("rank"):
        upper = "none known" if row["upper"] is None else f"{row['upper']} ({row['upper_kind']})"
        if row["minimal"]:
            verdict = "minimal"
        elif row["upper"] is None:
            verdict = row["verdict"].partition(";")[0]
        else:
            verdict = "rational"
        size = "" if row["log10"] is None else f"{row['log10']:.1f}"
        body.append((f"`{row['name']}`", row["semiring"], row["lower"], upper, size, verdict))
    return table("model | semiring | at least: | at most | log₁₀ of the determinant: | verdict", body)


@cache
def _known(model: str) -> dict[str, str]:
    """Return what is proved of one unit of a model, by task: thresholds with a margin, at all lengths."""
    try:
        statements = power(get_cell(model)).statements
    except RRNNError:  # the LSTM is no cell
        return {}
    texts = {s.task: s.text for s in statements if s.notion == "margin"}
    return {task: re.sub(r" \(w\d+\)", "", text) for task, text in texts.items()}


@named
def languages() -> str:
    def share(values: list[float]) -> str:
        return " / ".join(str(round(100 * x)).replace("-", "−") for x in (mean(values), max(values)))

    final: dict[tuple[str, str], list[Row]] = {}
    for row in rows("languages-cpu", stage="final"):
        final.setdefault((row["task"], row["model"]), []).append(row)
    body = []
    for name, task in TASKS.items():
        for (_, model), own in sorted(item for item in final.items() if item[0][0] == name):
            columns = [[r["within"] for r in own], *([r["beyond"][n] for r in own] for n in SHOWN)]
            known = _known(model).get(task, "–") if task else "–"
            body.append((name, f"`{model}`", known, *map(share, columns)))
    head = "task | model | one unit, with a margin, all lengths | 1–40: | "
    return table(head + " | ".join(f"{n}:" for n in SHOWN), body)


@named
def associative_recall() -> str:
    """Show how much layers of several sizes of state remember."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows("recall-h200", stage="final"):
        found.setdefault((row["model"], row["state"]), []).append(row)
    body = []
    for (model, state), own in found.items():
        right = [100 * row["accuracy"] for row in own]
        figures = (f"{value:.1f}" for value in (mean(right), min(right), max(right)))
        body.append(
            (f"`{model}`", own[0]["width"], state, f"{own[0]['parameters']:,}", own[0]["lr"], *figures)
        )
    head = "model | width: | numbers in a state: | parameters: | learning rate:"
    return table(f"{head} | right answers, %: | worst seed: | best:", body)
