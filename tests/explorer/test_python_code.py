"""The Python code of a cell: executing it gives an equal cell and a layer of it."""

from __future__ import annotations

from typing import Any

import pytest

from rrnn.automata import Cell
from rrnn.explorer.python_code import HIDDEN_SIZE, INPUT_SIZE, to_python
from rrnn.zoo import CELLS, get_cell


def executed(cell: Cell) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(to_python(cell), names)
    return names


@pytest.mark.parametrize("name", CELLS)
def test_zoo(name: str) -> None:
    cell = get_cell(name)
    names = executed(cell)
    assert [value for value in names.values() if isinstance(value, Cell)] == [cell]
    assert (names["layer"].input_size, names["layer"].hidden_size) == (INPUT_SIZE, HIDDEN_SIZE)
    assert ("from_text" in to_python(cell)) == cell.to_text().startswith("rrnn-cell 2")
    read = Cell.from_text(cell.to_text())  # texts give every definition a name
    assert executed(read)[cell.name] == cell


ODD = """rrnn-cell 1
cell layer
semiring complex
epsilon_limit 2 not after last
a = 0.5
b = max(linear("a"), 2 * 3) - a
lambda = -(b * abs(b))
where = tanh(lambda)
states q0 q1
initial q0
loop q0 : one
arc q0 -> q1 : complex(lambda, b / 2)
arc+ q0 -> q1 : polar(a, where(b, 1, input()))
loop q1 : polar(where, -0.25)
epsilon q0 -> q1 : polar(parameter("e"), 1e-7)
final q1 : complex(0.5, 2)
output score.re, score.im
"""


def test_words_of_python_and_functions_without_a_python_form() -> None:
    cell = Cell.from_text(ODD)
    code = to_python(cell)
    assert (
        'call("max", linear("a"), (as_expr(2) * 3))' in code and ".limit_epsilon(2, after_last=False)" in code
    )
    assert executed(cell)["layer_"] == cell


def test_states_in_an_order_that_the_builder_cannot_give() -> None:
    cell = Cell.from_text(get_cell("B").to_text().replace("states q0 q1", "states q1 q0"))
    assert "Cell.from_text" in to_python(cell) and executed(cell)["B"] == cell
