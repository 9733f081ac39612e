"""docs/zoo.md lists every model, and shows the picture and the equations of every cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rrnn.ir.equations import equations
from rrnn.zoo import CELLS, MODELS, get_cell

PAGE = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    (row,) = re.findall(rf"^\| \[?`{re.escape(name)}`[^|]* \|.*$", PAGE, flags=re.MULTILINE)
    _, _, paper, _, automaton, options, recurrence, _ = (part.strip() for part in row.split("|"))
    model = MODELS[name]
    known = model.proved.replace("Proposition 1", "[Proposition 1](theory.md#proposition-1)") or "open"
    assert paper == model.paper and recurrence == ("rational" if model.rational else known)
    if name in CELLS:
        cell = get_cell(name)
        assert automaton == f"{cell.state_count} states, {cell.semiring_name}"
        assert options == ", ".join(f"`{option}`" for option in model.options)


@pytest.mark.parametrize("name", [n for n in CELLS if n not in ("SoPa4-real", "SoPa4-max-times")])
def test_picture_and_equations(name: str) -> None:
    picture = f"![The automaton of {name}](pictures/zoo/{name}.svg)"
    assert f"{picture}\n\n```\n{equations(get_cell(name))}```\n" in PAGE
