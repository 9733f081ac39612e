"""`torch.onnx.export` writes models that contain a `RationalRNN`, with dynamic batch and time."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from layer_cases import make_layer, randomised
from torch import Tensor, nn

from rrnn.exporters import onnx_translations
from rrnn.nn import RationalRNN
from rrnn.nn.block_stack import BlockStack
from rrnn.zoo import get_cell

pytestmark = pytest.mark.slow  # torch's exporter takes seconds


class Tagger(nn.Module):
    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 4)
        if name == "block":
            self.rnn = BlockStack(get_cell("GLA", states=5), 8, 2, input_size=4, heads=2, **options)
        elif name == "Mamba-2":
            self.rnn = RationalRNN(get_cell(name, states=5), 4, 12, heads=4, groups=2, **options)
        else:
            self.rnn = make_layer(name, dtype=torch.float32, **options)
        self.readout = nn.Linear(8 if name == "block" else self.rnn.output_size, 3)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        hidden, _ = self.rnn(self.embedding(ids), lengths=lengths)
        return self.readout(hidden)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("F", {"num_layers": 2, "skip": "highway", "norm": "layer"}),
        ("mixed", {}),
        ("B-max-plus", {"bidirectional": True}),
        ("Mamba-2", {}),
        ("block", {}),
    ],
)
def test_a_model_around_a_layer(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = randomised(Tagger(name, **options)).eval()
    ids, lengths = torch.randint(0, 20, (7, 3)), torch.tensor([7, 3, 5])
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    path = tmp_path / "tagger.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(
            model,
            (ids, lengths),
            path,
            dynamo=True,
            input_names=["ids", "lengths"],
            dynamic_shapes=({0: steps, 1: batch}, {0: batch}),
            custom_translation_table=onnx_translations(),
            verbose=False,
        )
    run = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for shape, given in (((7, 3), [7, 3, 5]), ((4, 2), [1, 4]), ((11, 4), [11, 2, 9, 1])):
        ids, lengths = torch.randint(0, 20, shape), torch.tensor(given)
        (got,) = run.run(None, {"ids": ids.numpy(), "lengths": lengths.numpy()})
        expected = model(ids, lengths).detach().numpy()
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-5, atol=1e-5)
