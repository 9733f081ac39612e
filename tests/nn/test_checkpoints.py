"""Checkpoints of the past still load and still mean the same: names, shapes, row order, arithmetic.

Each file holds a layer's state dict, an input `test.x`, its output `test.out`, and as metadata the cells' texts and the
options. `pytest --update-golden` writes the files that are missing; it never rewrites one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cell_calls import CORE
from layer_cases import CASES, inputs, make_layer
from safetensors import safe_open
from safetensors.torch import save_file

from rrnn.automata import Cell
from rrnn.backends import use_backend
from rrnn.nn import RationalRNN

FOLDER = Path(__file__).with_name("checkpoints")
ALL: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "skip": "highway", "norm": "layer"}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in (*CORE, "F+o", "windowed", "odd")},
    "mixed-all-options": ("mixed", ALL),
    "F-without-biases": ("F", {"bias": False, "skip": "residual"}),
}


def write(path: Path, name: str, options: dict[str, Any]) -> None:
    layer = make_layer(name, 3, 2, dtype=torch.float32, **options)
    x = inputs(4, 2, 3, dtype=torch.float32)
    tensors = {k: v.contiguous() for k, v in layer.state_dict().items()}
    tensors |= {"test.x": x, "test.out": layer(x)[0].detach().contiguous()}
    cells = [[cell.to_text(), units] for cell, units in layer.cells]
    path.parent.mkdir(exist_ok=True)
    save_file(tensors, path, {"cells": json.dumps(cells), "options": json.dumps(options)})


@pytest.mark.parametrize("checkpoint", CHECKPOINTS)
def test_old_checkpoints(checkpoint: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{checkpoint}.safetensors"
    name, options = CHECKPOINTS[checkpoint]
    if not path.exists() and request.config.getoption("--update-golden"):
        with use_backend("reference"):
            write(path, name, options)
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (it is no dict)
        metadata = file.metadata()
    x, expected = tensors.pop("test.x"), tensors.pop("test.out")
    cells = [(Cell.from_text(text), units) for text, units in json.loads(metadata["cells"])]
    for again in (cells, CASES[name]()):
        hidden = sum(units for _, units in cells)
        layer = RationalRNN(again, 3, hidden, **json.loads(metadata["options"]))
        layer.load_state_dict(tensors)  # strict: no name is missing, none is new
        torch.testing.assert_close(layer(x)[0], expected)


def test_every_checkpoint_is_tested() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CHECKPOINTS)
