"""Layers read as automata: a unit's WFSA scores every prefix as the unit does."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from calls import cell
from layers import CASES, inputs, make_layer

from rrnn.errors import CellError, ShapeError
from rrnn.nn import RationalRNN
from rrnn.theory import scores, to_wfsa

VECTORS = inputs(3, 4, seed=9)
STRING = (0, 2, 1, 1, 0)
WINDOWS = {"windowed", "odd", "mixed"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - WINDOWS))
def test_units_are_automata(name: str) -> None:
    layer = make_layer(name)
    found = scores(layer, VECTORS[list(STRING)])
    for unit in range(layer.hidden_size):
        machine = to_wfsa(layer, unit, VECTORS)
        assert machine.semiring.name == layer.cells[0][0].semiring_name
        torch.testing.assert_close(found[:, unit].detach(), machine.prefix_scores(STRING)[1:])


def test_units_of_mixed_layers_are_counted_through() -> None:
    """Biases fixed at zero, symbols with names, an input() of its own unit where sizes agree."""
    cells = [(cell(name), 2) for name in ("B", "SRU", "B-max-plus")]
    layer = RationalRNN(cells, 6, bias=False, dtype=torch.float64)
    vectors = dict(zip("abc", inputs(3, 6, seed=4), strict=True))
    found = scores(layer, torch.stack([vectors[a] for a in "abca"]).unsqueeze(1).expand(-1, 2, -1))
    assert found.shape == (4, 2, 6)
    for unit in range(6):
        machine = to_wfsa(layer, unit, vectors)
        torch.testing.assert_close(found[:, 1, unit].detach(), machine.prefix_scores("abca")[1:])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: to_wfsa(make_layer("F"), 3, VECTORS), ShapeError, "units are numbered from 0 to 2; got 3"),
        (
            lambda: to_wfsa(make_layer("F"), 0, VECTORS[:, :2]),
            ShapeError,
            "the vector of 0 must have shape (4,); got (2,)",
        ),
        (
            lambda: to_wfsa(make_layer("F"), 0, {"a": [1.0]}),
            ShapeError,
            "the vector of 'a' must have shape (4,); got list",
        ),
        (
            lambda: to_wfsa(make_layer("windowed"), 0, VECTORS),
            CellError,
            "sees a window of 3",
        ),
        (
            lambda: scores(make_layer("F"), VECTORS[0]),
            ShapeError,
            "expected input with 4 features, (time, features) or (time, batch, features); got shape (4,)",
        ),
    ],
)
def test_mistakes_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()
