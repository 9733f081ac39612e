"""Ship a model: write layers, language models and classifiers as ONNX files or as plain C, or models for transformers.

`export(model, "model.onnx")` needs the extra `rrnn[onnx]`, `export(model, "folder", format="hf")` the extra `rrnn[hf]`;
`export(model, "model.c")` needs nothing else. The packages of an extra are imported only when its format is written.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrnn.errors import ExportError
from rrnn.tasks.checkpoints import write_atomic

if TYPE_CHECKING:
    from torch import nn

    from rrnn.tasks.vocabulary import Vocabulary

ONNX_PACKAGES = ("onnx", "onnx_ir")
"""What writing an ONNX file imports."""
FORMATS = ("onnx", "c", "hf")


def export(
    model: Any,
    path: str | Path,
    *,
    format: str | None = None,
    lengths: bool | None = None,
    states: bool | None = None,
    vocabulary: bool = True,
    name: str | None = None,
) -> list[Path]:
    """Write a model to a file that runs elsewhere, and return the files written.

    `model` is a run's model (`rrnn.load`), its network, a `RationalRNN`, or one of the affine layers ISAN and
    LinearElman. The end of `path` chooses the format, or `format` does: "onnx" for ONNX operators of opset 18 with
    dynamic batch and time, "c" for one C99 file, with its header beside it, which runs one sequence step by step, "hf"
    for a folder that transformers loads after `import rrnn.hf` (models of runs only).

    - `lengths` (ONNX): whether the graph takes the lengths of padded sequences; a classifier always does.
    - `states` (ONNX): whether the graph takes states to begin with. By default it does, except for classifiers and
      bidirectional layers. `initial_states` returns the first ones.
    - `vocabulary`: whether to include the words and labels of a run's model: in an ONNX file's metadata, with the
      tokenizer if it was trained with one, or as arrays.
    - `name` (C): what names in the C file begin with; by default the file's own name.

    A model that cannot be exported raises an `ExportError`, and no file is written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".") if format is None else format
    if kind not in FORMATS:
        given = f"{path.name!r} ends in neither" if format is None else f"got format={format!r}"
        raise ExportError(
            f"a model is exported to .onnx or .c, or to a folder with format='hf'; {given}. Name the output "
            "model.onnx or model.c, or add --format hf"
        )
    if not path.parent.is_dir():
        raise ExportError(f"there is no folder {path.parent} to write {path.name} to: create it first")
    if kind == "hf":
        if lengths is not None or states is not None or name is not None:
            raise ExportError("lengths, states and name are options of ONNX and C files: leave them out")
        from rrnn.hf import save_folder

        return save_folder(model, path, vocabulary=vocabulary)
    module, words, labels = _parts(model, vocabulary)
    if kind == "c":
        if lengths or states:
            raise ExportError(
                "lengths and states are options of ONNX files: a C model always keeps its state"
            )
        from rrnn.exporters.c_models import c_sources

        header = path.with_suffix(".h")
        texts = c_sources(module, _c_name(path, name), header.name, words, labels)
        files = {path: texts[".c"].encode(), header: texts[".h"].encode()}
    else:
        if name is not None:
            raise ExportError("name is an option of C files: an ONNX file has no prefix. Leave it out")
        tokenizer = getattr(model, "tokenizer", None) if vocabulary else None
        text = None if tokenizer is None else tokenizer.text
        files = {path: _onnx_bytes(module, lengths, states, words, labels, text)}
    for place in files:
        if place.is_dir():
            raise ExportError(f"{place} is a folder, so no file can be written there: choose another name")
    for place, data in files.items():  # last, so that a failure leaves no file behind
        write_atomic(place, data)
    return list(files)


def initial_states(session: Any, batch_size: int = 1) -> dict[str, np.ndarray]:
    """Return the states before the first step that an exported graph takes, by input name, for a batch.

    `session` is an `onnxruntime.InferenceSession` of an exported file. Every run returns the next states as outputs:
    `next_state_0_0` is what `state_0_0` takes in the next call.
    """
    from_meta = session.get_modelmeta().custom_metadata_map.get("rrnn.first_states")
    if from_meta is None:
        raise ExportError("this ONNX file has no first states: it was not written by rrnn.export")
    types = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    inputs = {given.name: types.get(given.type, np.float32) for given in session.get_inputs()}
    return {
        state: np.repeat(np.expand_dims(_numbers(first).astype(inputs[state]), -2), batch_size, -2)
        for state, first in json.loads(from_meta).items()
    }


def _numbers(first: Any) -> np.ndarray:
    """Return nested lists of numbers, or of texts like "-inf", as an array."""
    return np.array([_numbers(part) for part in first] if isinstance(first, list) else float(first))


def onnx_translations() -> dict[Any, Any]:
    """Return the translation table with which torch exports a model that contains a `RationalRNN`:
    `torch.onnx.export(model, …, dynamo=True, custom_translation_table=rrnn.onnx_translations())`."""
    _require((*ONNX_PACKAGES, "onnxscript"))
    from rrnn.exporters.torch_onnx import TRANSLATIONS

    return dict(TRANSLATIONS)


# ---- parts of a model ------------------------------------------------------------------------------------------------


def _parts(model: Any, vocabulary: bool) -> tuple[nn.Module, Vocabulary | None, list[str] | None]:
    """Return (network, vocabulary, labels); None for what the model lacks, or is left out."""
    from torch import nn

    from rrnn.tasks.classify.trained import TrainedClassifier
    from rrnn.tasks.lm.trained import TrainedLanguageModel

    if isinstance(model, (TrainedClassifier, TrainedLanguageModel)):
        labels = model.labels if isinstance(model, TrainedClassifier) else None
        return model.module, model.vocabulary if vocabulary else None, labels if vocabulary else None
    if isinstance(model, nn.Module):
        return model, None, None
    raise ExportError(
        f"export takes a model: what rrnn.load returns, or a module; got {type(model).__name__}. For a run folder "
        "write rrnn.export(rrnn.load(folder), …)"
    )


def _onnx_bytes(
    module: nn.Module,
    lengths: bool | None,
    states: bool | None,
    words: Vocabulary | None,
    labels: list[str] | None,
    tokenizer: str | None,
) -> bytes:
    """Return an ONNX file."""
    _require(ONNX_PACKAGES)
    import onnx_ir as ir

    from rrnn.exporters.onnx_models import onnx_model

    metadata = {}
    if words is not None:
        metadata["rrnn.vocabulary"] = json.dumps(words.words, ensure_ascii=False)
        metadata["rrnn.unknown"] = json.dumps(words.unknown)
    if tokenizer is not None:
        metadata["rrnn.tokenizer"] = tokenizer
    if labels is not None:
        metadata["rrnn.labels"] = json.dumps(labels, ensure_ascii=False)
    return ir.to_proto(onnx_model(module, lengths, states, metadata)).SerializeToString()


def _require(packages: tuple[str, ...]) -> None:
    """Raise an `ExportError` unless these packages can be imported."""
    for package in packages:
        try:
            import_module(package)
        except ImportError:
            raise ExportError(
                f"writing ONNX needs the package {package}, which is not installed. Run: pip install 'rrnn[onnx]'"
            ) from None


def _c_name(path: Path, name: str | None) -> str:
    """Return what names in a C file begin with."""
    name = path.stem if name is None else name
    if not (name.isascii() and name.isidentifier()):
        raise ExportError(
            f"names in a C file begin with its own name, and {name!r} is no C identifier: choose another one, "
            "--name model"
        )
    return name


__all__ = ["export", "initial_states", "onnx_translations"]
