"""The table of semirings in docs/semirings.md says what their definitions say."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from documented_code import ROOT

from rrnn.arithmetic import FLOATS
from rrnn.semirings import SEMIRINGS, Semiring, get_semiring

PAGE = (ROOT / "docs" / "semirings.md").read_text(encoding="utf-8")
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in re.findall(r"^\| (`[\w-]+` \|.*) \|$", PAGE.partition("### ")[0], re.M)
    for cells in [[cell.strip() for cell in line.split("|")]]
}
NUMBERS: dict[str, list[Any]] = {
    "boolean": [0.0, 1.0],
    "counting": [0, 1, 2, 5],
    "max-times": [0.0, 0.5, 3.0],
}
"""Elements to try; else some of either sign."""


def test_the_table_has_all_semirings() -> None:
    assert set(ROWS) == set(SEMIRINGS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row(name: str) -> None:
    ring = get_semiring(name)
    described, plus, times, zero, one, components, gradient, _ = ROWS[name]
    assert described == ring.set_description
    assert (zero, one) == (_shown(ring.zero), _shown(ring.one))
    assert components == ", ".join(ring.components)
    assert gradient == ("yes" if ring.has_gradient else "no")
    for text, operation in ((plus, ring.plus), (times, ring.times)):
        for a in _elements(ring):
            for b in _elements(ring):
                assert _close(_read(ring, operation(a, b)), _calculated(text, _read(ring, a), _read(ring, b)))


def _elements(ring: Semiring) -> list[Any]:
    numbers = NUMBERS.get(ring.name, [-2.0, 0.0, 0.25, 3.0])
    if not ring.components:
        return numbers
    if ring.name == "signed-log":
        return [ring.from_real(x) for x in numbers]
    return [(x, y) for x in numbers for y in (-1.0, 0.5)]


def _read(ring: Semiring, a: Any) -> Any:
    """The element as the page writes it: a complex number, a real number, a pair."""
    return complex(*a) if ring.name == "complex" else ring.to_real(a) if ring.name == "signed-log" else a


def _calculated(text: str, a: Any, b: Any) -> Any:
    code = text.strip("`").translate(str.maketrans("⟨⟩·", "()*"))
    names: dict[str, Any] = {"a": a, "b": b, "max": max, "min": min, "logaddexp": FLOATS.logaddexp}
    if isinstance(a, tuple):
        names |= dict(zip("prqt", (*a, *b), strict=True))
    return eval(code, {"__builtins__": {}}, names)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(_close(x, y) for x, y in zip(a, b, strict=True))
    return abs(a - b) <= 1e-12


def _shown(element: Any) -> str:
    if isinstance(element, tuple):
        return f"⟨{', '.join(map(_shown, element))}⟩"
    return {math.inf: "+∞", -math.inf: "−∞"}.get(element, f"{element:g}")
