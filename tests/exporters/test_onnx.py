"""Exported ONNX files compute in onnxruntime what the model computes."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from exported_c import check_layer
from layer_cases import CASES, MECHANICS_LAYERS, make_layer, randomised
from random_classifiers import KINDS, WORDS, classifier
from torch import nn
from torch.utils._pytree import tree_leaves
from wide_layers import build, over

from rrnn.arithmetic import ALONG_FAMILY, SEMIRING_FOLDS, Op
from rrnn.automata import Cell, family, linear, one, parameter, score, step
from rrnn.errors import ExportError
from rrnn.exporters import export, initial_states
from rrnn.exporters.onnx_nodes import ALONG, OPSET, ROWS, Graph
from rrnn.nn import RationalRNN
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.zoo import MODELS, get_cell, layer

RATIONAL = [name for name, model in MODELS.items() if model.rational]


def session(model: Any, folder: Path, **options: Any) -> onnxruntime.InferenceSession:
    """Export a model, check the file, and load it."""
    (path,) = export(model, folder / "model.onnx", **options)
    onnx.checker.check_model(str(path), full_check=True)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def compare(got: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Compare the outputs of a session with (output, state) of a layer."""
    tensors = [t for t in tree_leaves(expected) if t is not None and t.numel()]
    assert len(got) == len(tensors)
    for a, b in zip(got, tensors, strict=True):
        assert a.shape == tuple(b.shape)
        np.testing.assert_allclose(a, b.detach().numpy(), rtol=tolerance, atol=tolerance)


def small(name: str, **options: Any) -> nn.Module:
    """Return a layer of the zoo with weights small enough for scores of about 1."""
    net = randomised(layer(name, 5, 4, **options))
    factor = 0.3 if "DeltaNet" in name else 0.7  # the delta rule is stable for keys of at most length one
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(factor)
    return net.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", RATIONAL)
def test_every_rational_model_of_the_zoo(name: str, tmp_path: Path) -> None:
    net = small(name)
    run = session(net, tmp_path, lengths=True)
    for steps, batch in ((7, 3), (2, 1)):
        x = torch.randint(0, 5, (steps, batch)) if name == "ISAN" else torch.randn(steps, batch, 5)
        lengths = torch.tensor([steps, 1, 0][:batch])
        feeds = {"input": x.numpy(), "lengths": lengths.numpy(), **initial_states(run, batch)}
        compare(run.run(None, feeds), net(x, lengths=lengths))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_cell(name: str, tmp_path: Path) -> None:
    """Cells of all semirings, with windows, learned initial weights, several outputs; in float64, to 1e-9."""
    net, x = make_layer(name).eval(), torch.randn(6, 2, 4, dtype=torch.float64)
    run = session(net, tmp_path)
    compare(run.run(None, {"input": x.numpy(), **initial_states(run, 2)}), net(x), 1e-9)


WIDE = ["linear-attention", "RetNet", "GLA", "HGRN2", "Mamba", "Mamba-2", "Mamba-3", "RWKV-6", "S4D"]


@pytest.mark.parametrize(
    "name", [n if n in ("Mamba", "RetNet") else pytest.param(n, marks=pytest.mark.slow) for n in WIDE]
)
def test_families_of_states(name: str, tmp_path: Path) -> None:
    """With heads and groups, whole and step by step, padded; in float64, to 1e-9."""
    net, x = build(name).eval(), torch.randn(6, 3, 12, dtype=torch.float64)
    lengths = torch.tensor([6, 2, 0])
    run = session(net, tmp_path, lengths=True)
    feeds = {"input": x.numpy(), "lengths": lengths.numpy(), **initial_states(run, 3)}
    compare(run.run(None, feeds), net(x, lengths=lengths), 1e-9)
    run = session(net, tmp_path)
    states, outputs, ends = initial_states(run, 3), [], []
    for t in range(6):
        ends = run.run(None, {"input": x[t : t + 1].numpy(), **states})
        states, outputs = {"state_0_0": ends[1]}, [*outputs, ends[0]]
    compare([np.concatenate(outputs), ends[1]], net(x), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "semiring", ["real", "log", "max-plus", "min-plus", "max-times", "complex", "signed-log"]
)
def test_families_over_any_semiring(semiring: str, tmp_path: Path) -> None:
    cells = [(over(semiring), 6), (get_cell("F"), 3)]  # side by side with units that have no family
    net = randomised(RationalRNN(cells, 4, heads=3, dtype=torch.float64, num_layers=2)).eval()
    x = torch.randn(6, 2, 4, dtype=torch.float64)
    run = session(net, tmp_path)
    compare(run.run(None, {"input": x.numpy(), **initial_states(run, 2)}), net(x), 1e-9)


def test_states_that_mix_by_a_full_matrix(tmp_path: Path) -> None:
    h = family("h", 3)
    a = parameter("A", over=(h.source, h.target))
    cell = Cell("full").initial("q0").loop("q0", one).arc("q0", h, linear("u")).mix(h, h, a)
    cell = cell.read(h, linear("r", over=h))
    net = randomised(RationalRNN(cell, 4, 5, dtype=torch.float64)).eval()
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    run = session(net, tmp_path)
    compare(run.run(None, {"input": x.numpy(), **initial_states(run, 2)}), net(x), 1e-9)
    if any(i.op is Op.MOVE for i in net._all_layers()[0].programs[0].flat.instructions):
        with pytest.raises(ExportError, match=r"by a weight of its own.*export the model to \.onnx"):
            export(net, tmp_path / "net.c")
        assert not (tmp_path / "net.c").exists()


def test_units_that_share_states_are_refused(tmp_path: Path) -> None:
    net = RationalRNN(get_cell("ISAN", units=3), 4, 3)
    with pytest.raises(ExportError, match="its units share one family of states"):
        export(net, tmp_path / "net.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANICS_LAYERS)
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 2, "skip": "highway", "norm": "layer"},
        {"num_layers": 2, "skip": "residual", "bidirectional": True, "batch_first": True},
        {"bias": False, "norm": nn.LayerNorm, "zoneout": 0.0, "recurrent_dropout": 0.5},
    ],
    ids=["highway", "both directions", "no bias"],
)
def test_options_of_layers(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    net = make_layer(name, dtype=torch.float32, **options).eval()
    torch.manual_seed(0)
    x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 2, 4])
    x = x if net.batch_first else x.transpose(0, 1).contiguous()
    for padded in (False, True):
        run = session(net, tmp_path, lengths=padded)
        feeds = {"input": x.numpy(), **initial_states(run, 3)}
        if padded:
            feeds["lengths"] = lengths.numpy()
        compare(run.run(None, feeds), net(x, lengths=lengths if padded else None))


@pytest.mark.parametrize("name", ["F", "windowed", "mixed"])
def test_streaming_equals_the_whole(name: str, tmp_path: Path) -> None:
    net, x = make_layer(name, dtype=torch.float32, num_layers=2).eval(), torch.randn(6, 2, 4)
    run = session(net, tmp_path)
    states, outputs = initial_states(run, 2), []
    names = [o.name for o in run.get_outputs()]
    ends: Any = []
    for t in range(6):
        ends = run.run(None, {"input": x[t : t + 1].numpy(), **states})
        states = {name.removeprefix("next_"): v for name, v in zip(names[1:], ends[1:], strict=True)}
        outputs.append(ends[0])
    compare([np.concatenate(outputs), *ends[1:]], net(x))


def test_a_graph_that_begins_by_itself(tmp_path: Path) -> None:
    net, x = make_layer("odd", dtype=torch.float32).eval(), torch.randn(4, 2, 4)
    run = session(net, tmp_path, states=False)
    assert [i.name for i in run.get_inputs()] == ["input"]
    compare(run.run(None, {"input": x.numpy()}), net(x))
    assert initial_states(run) == {}


@pytest.mark.parametrize("semiring", ["boolean", "counting"])
def test_a_cell_without_a_gradient(semiring: str, tmp_path: Path) -> None:
    """Only the forward pass travels, so that a cell of hard decisions is exported like any other."""
    cell = Cell("hard", semiring).initial("q0").loop("q0", one).arc("q0", "q1", step(linear("u", bias=True)))
    net = randomised(RationalRNN(cell.loop("q1", step(linear("f"))).final("q1").output(score), 4, 3)).eval()
    x, run = torch.randn(6, 2, 4), session(net, tmp_path)
    compare(run.run(None, {"input": x.numpy(), **initial_states(run, 2)}), net(x), 0.0)
    check_layer(net, tmp_path, 0.0)


# ---- ops -------------------------------------------------------------------------------------------------------------


def test_there_is_a_row_for_every_op() -> None:
    elements = (Op.ELEMENT, Op.COMPONENT, Op.PLUS, Op.TIMES)  # flat programs have none
    assert set(ROWS) == {op for op in Op if not op.leaf and op not in (*elements, *ALONG_FAMILY)}
    assert {*ALONG, Op.FIRST, Op.MOVE, *SEMIRING_FOLDS} == set(
        ALONG_FAMILY
    )  # `first` is in gradients only, `move` is a transpose


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.text)
def test_rows_agree_with_the_meaning_of_ops(op: Op) -> None:
    numbers = [-math.inf, -30.0, -1.5, -1e-4, 0.0, 0.25, 2.0, 40.0, math.inf]
    cases = np.array(list(product(numbers, repeat=op.arity)), np.float64).T
    g = Graph(np.dtype(np.float64))
    inputs = [g.input(f"x{k}", ("n",)) for k in range(op.arity)]
    out = g.add("Identity", ROWS[op](g, *inputs))
    out.name, out.shape, out.type = "y", ir.Shape(["n"]), ir.TensorType(ir.DataType.DOUBLE)
    model = ir.Model(g.finish("op", inputs, [out]), ir_version=8)
    run = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (got,) = run.run(None, {f"x{k}": row for k, row in enumerate(cases)})
    meaning = op.value.meaning
    assert meaning is not None
    expected = [meaning(*case) for case in cases.T.tolist()]
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6, atol=1e-12)


# ---- models ----------------------------------------------------------------------------------------------------------


def language_model(cell: str = "F", layers: int = 2) -> TrainedLanguageModel:
    words = Vocabulary(["<s>", "</s>", "a", "b", "“c”\\"], unknown=None)
    module = randomised(
        LanguageModel(len(words), 6, layers, embedding_size=4 if layers > 1 else None, cell=cell)
    ).eval()
    return TrainedLanguageModel(module, words, LMConfig(cell=cell, hidden_size=6))


@pytest.mark.parametrize("cell", ["F", "QRNN2", "B-max-plus"])
def test_language_models(cell: str, tmp_path: Path) -> None:
    model = language_model(cell)
    run = session(model, tmp_path)
    ids = torch.randint(0, 5, (6, 2))
    hidden, state = model.module(ids)
    feeds = {"ids": ids.numpy(), **initial_states(run, 2)}
    compare(run.run(None, feeds), (model.module.scores(hidden), state))
    about = run.get_modelmeta().custom_metadata_map
    assert json.loads(about["rrnn.vocabulary"]) == model.vocabulary.words
    left_out = session(model, tmp_path, vocabulary=False, lengths=True)
    assert "rrnn.vocabulary" not in left_out.get_modelmeta().custom_metadata_map
    assert "lengths" in [i.name for i in left_out.get_inputs()]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("LSTM", "letters")])
def test_classifiers(kind: str, tmp_path: Path) -> None:
    model = classifier(**KINDS[kind])
    run = session(model, tmp_path)
    ids = torch.randint(0, len(model.vocabulary), (6, 4))
    lengths = torch.tensor([6, 1, 3, 0])
    with torch.inference_mode():
        expected = model.module(ids, lengths)
    compare(run.run(None, {"ids": ids.numpy(), "lengths": lengths.numpy()}), expected)
    about = run.get_modelmeta().custom_metadata_map
    assert json.loads(about["rrnn.labels"]) == list(model.labels)
    assert set(WORDS) < set(json.loads(about["rrnn.vocabulary"]))


def test_the_opset_is_stated(tmp_path: Path) -> None:
    (path,) = export(make_layer("F"), tmp_path / "f.onnx")
    model = onnx.load(path)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", OPSET)]
    steps = {d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim}
    assert {"time", "batch"} <= steps
