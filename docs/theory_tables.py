"""The tables of docs/theory.md."""

from __future__ import annotations

from figures import named, rows, table


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
