"""Write WFSAs as Graphviz dot, for pictures. Dot files have rounded weights, so they are not read back.

Initial states are bold, with their initial weight beside their name if it is not one; final states are double circles,
with their final weight. The label of an arc is `symbol / weight`; a weight of one is left out. A weight of several
components is written ⟨0.5, −0.25⟩.
"""

from __future__ import annotations

import math
from typing import Any

from rrnn.wfsa.automaton import indexed_arcs
from rrnn.wfsa.io.files import PathLike, write_text
from rrnn.wfsa.machine import WFSA


def save_dot(wfsa: WFSA, path: PathLike, *, digits: int = 4) -> None:
    """Write a WFSA as dot, with the given number of significant digits."""
    write_text(path, to_dot(wfsa, digits=digits))


def to_dot(wfsa: WFSA, *, digits: int = 4) -> str:
    """Return the dot text of a WFSA."""
    ring, one, zero = wfsa.semiring, wfsa.semiring.one, wfsa.semiring.zero

    def with_weight(text: str, weight: Any) -> str:
        return text if weight == one else f"{text} / {_number(weight, digits)}"

    lines = ["digraph WFSA {", "  rankdir=LR;", "  node [shape=circle];"]
    for q, (state, initial, final) in enumerate(
        zip(wfsa.states, ring.numbers(wfsa.initial_weight), ring.numbers(wfsa.final_weight), strict=True)
    ):
        label, style = _printable(state), ""
        if initial != zero:
            style += ", style=bold"
            label = label if initial == one else f"{_number(initial, digits)} / {label}"
        if final != zero:
            style += ", shape=doublecircle"
            label = with_weight(label, final)
        lines.append(f"  {q} [label={_quoted(label)}{style}];")
    for q, a, r, weight in indexed_arcs(wfsa):
        label = with_weight("ε" if a < 0 else _printable(wfsa.alphabet[a]), weight)
        lines.append(f"  {q} -> {r} [label={_quoted(label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _number(weight: Any, digits: int) -> str:
    if isinstance(weight, tuple):
        return f"⟨{', '.join(_number(number, digits) for number in weight)}⟩"
    if math.isinf(weight):
        return "∞" if weight > 0 else "−∞"
    return f"{weight:.{digits}g}".replace("-", "−")


def _printable(name: object) -> str:
    """Return a name as text; the empty string and invisible characters are written as in Python."""
    text = str(name)
    return text if text.isprintable() and text.strip() else repr(name)


def _quoted(text: str) -> str:
    """Return a quoted dot string. In labels a backslash starts an escape (\\n, \\l), so it is escaped, too."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
