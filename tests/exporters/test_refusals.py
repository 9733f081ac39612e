"""What cannot be exported is refused with a reason and a way out, and leaves no file behind."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_cases import make_layer
from random_classifiers import classifier
from torch import nn

from rrnn.errors import ExportError
from rrnn.exporters import export
from rrnn.nn import Block
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.rules import RuleUnits, parse_rules
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.lm.model import LanguageModel
from rrnn.zoo import get_cell, layer


def broken() -> nn.Module:
    net = make_layer("F")
    with torch.no_grad():
        net.layers[0].weight[0, 0] = torch.nan  # pyright: ignore[reportIndexIssue, reportArgumentType]
    return net


def with_rules() -> TrainedClassifier:
    model = classifier()
    rules = parse_rules("yes good\n")
    module = TextClassifier(
        model.config,
        len(model.vocabulary),
        2,
        rules=partial(RuleUnits, rules, model.vocabulary, model.labels),
    )
    return TrainedClassifier(module.eval(), model.vocabulary, model.labels, model.config)


BAD: dict[str, tuple[Any, str]] = {
    "torch's LSTM": (lambda: nn.LSTM(3, 4), "LSTM is not a layer.*torch.onnx.export"),
    "LSTM of the zoo": (lambda: layer("LSTM", 3, 4), "LSTM is not a layer.*torch.onnx.export"),
    "SRU-v2": (lambda: layer("SRU-v2", 3, 4), "SRUv2 is not a layer"),
    "LSTM language model": (lambda: LanguageModel(5, 4, cell="lstm"), "torch's LSTM is not a layer"),
    "block": (lambda: Block(get_cell("F"), 4), "a block .*is not a layer.*onnx_translations"),
    "block classifier": (lambda: classifier(block="auto"), "a block .*is not a layer.*onnx_translations"),
    "LSTM classifier": (lambda: classifier(cell="LSTM"), "LSTM is not a layer"),
    "letters": (lambda: classifier(characters=3), "characters"),
    "rules": (with_rules, "starts from rules"),
    "half precision": (lambda: make_layer("F").half(), r"float32.*float16.*model\.float\(\)"),
    "a NaN": (broken, "NaN"),
    "no model": (lambda: "runs/lm", "str.*rrnn.load"),
}


@pytest.mark.parametrize("ending", [".onnx", ".c"])
@pytest.mark.parametrize("name", BAD)
def test_models_that_cannot_be_exported(name: str, ending: str, tmp_path: Path) -> None:
    make, message = BAD[name]
    if name == "half precision" and ending == ".c":
        pytest.skip("C files hold float32 whatever the model has")
    with pytest.raises(ExportError, match=message):
        export(make(), tmp_path / f"model{ending}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("model.pt", {}, r"\.onnx or \.c"),
        ("nowhere/model.onnx", {}, "no folder.*create it"),
        ("model.onnx", {"name": "x"}, "name is an option of C"),
        ("model.c", {"lengths": True}, "options of ONNX"),
        ("my-model.c", {}, "no C identifier.*--name"),
    ],
)
def test_options_that_do_not_fit(path: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=message):
        export(make_layer("F"), tmp_path / path, **options)
    assert not list(tmp_path.iterdir())


def test_a_bidirectional_layer_takes_no_state(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="bidirectional layer takes no state"):
        export(make_layer("F", bidirectional=True), tmp_path / "model.onnx", states=True)
    with pytest.raises(ExportError, match=r"reads its input from the end.*\.onnx"):
        export(make_layer("F", bidirectional=True), tmp_path / "model.c")
    with pytest.raises(ExportError, match="leave out lengths and states"):
        export(classifier(), tmp_path / "model.onnx", states=True)


def test_a_folder_in_the_way_leaves_no_half_of_an_export(tmp_path: Path) -> None:
    (tmp_path / "model.h").mkdir()
    with pytest.raises(ExportError, match=r"model\.h is a folder"):
        export(make_layer("F"), tmp_path / "model.c")
    assert not (tmp_path / "model.c").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    with pytest.raises(ExportError, match=r"onnx_ir.*pip install 'rrnn\[onnx\]'"):
        export(make_layer("F"), tmp_path / "model.onnx")


@pytest.mark.slow
def test_c_needs_nothing_of_onnx(tmp_path: Path) -> None:
    code = (
        "import sys, rrnn, rrnn.exporters\n"
        f"rrnn.export(rrnn.RationalRNN(rrnn.get_cell('F'), 2, 2), {str(tmp_path / 'm.c')!r})\n"
        "print([m for m in sys.modules if m.startswith('onnx')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
