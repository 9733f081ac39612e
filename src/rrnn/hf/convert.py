"""Convert trained models to models for transformers and back, with the same weights and outputs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel
from transformers.utils import logging

from rrnn.errors import ExportError
from rrnn.hf.config import RRNNConfig
from rrnn.hf.models import RRNNForCausalLM, RRNNForSequenceClassification
from rrnn.hf.tokenizers import tokenizer_of
from rrnn.nn import RationalRNN
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.prepare import PADDING
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.corpus import END
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import LanguageModel, title_of
from rrnn.tasks.lm.trained import SPECIALS, TrainedLanguageModel
from rrnn.tasks.tokenizer import kept_tokenizer
from rrnn.tasks.vocabulary import Vocabulary

VOCABULARY = "vocabulary.json"
"""The file of a model's folder that holds its words, as in a run."""

Trained = TrainedLanguageModel | TrainedClassifier


def to_transformers(model: Trained) -> RRNNForCausalLM | RRNNForSequenceClassification:
    """Return a run's model (`rrnn.load`) as a model for transformers, with the same outputs."""
    if isinstance(model, TrainedLanguageModel):
        return _language_model(model)
    if isinstance(model, TrainedClassifier):
        return _classifier(model)
    raise ExportError(
        f"models of runs are converted, what rrnn.load returns; got {type(model).__name__}. To begin with a new model "
        "write RRNNForCausalLM(RRNNConfig(…))"
    )


def from_transformers(
    model: PreTrainedModel | str | Path, vocabulary: Vocabulary | None = None
) -> TrainedLanguageModel | TrainedClassifier:
    """Return a model for transformers, or that of a folder, as what `rrnn.load` returns. `vocabulary` is by default the
    folder's own."""
    folder = None
    if isinstance(model, (str, Path)):
        folder = Path(model)
        if vocabulary is None:
            if not (folder / VOCABULARY).exists():
                raise ExportError(
                    f"{folder} has no {VOCABULARY}, so the words of its tokens are not known: give vocabulary="
                )
            vocabulary = Vocabulary.load(folder / VOCABULARY)
        architectures = AutoConfig.from_pretrained(folder).architectures or []
        kind = RRNNForCausalLM if "RRNNForCausalLM" in architectures else RRNNForSequenceClassification
        model = kind.from_pretrained(folder)
    if not isinstance(model, (RRNNForCausalLM, RRNNForSequenceClassification)):
        raise ExportError(
            f"only models of rrnn.hf are converted, RRNNForCausalLM and RRNNForSequenceClassification; got "
            f"{type(model).__name__}"
        )
    if vocabulary is None:
        raise ExportError("a model's words are not part of it: give vocabulary=Vocabulary([…])")
    if len(vocabulary) != model.config.vocab_size:
        raise ExportError(
            f"the model has {model.config.vocab_size} tokens and the vocabulary {len(vocabulary)} words: give the "
            "vocabulary that the model was trained with"
        )
    _check_options(model.config)
    run = getattr(model.config, "run", None)
    if folder is None and run and run.get("tokenizer"):
        raise ExportError(
            "this model was trained with a tokenizer, which is a file beside it: give the model's folder instead"
        )
    if isinstance(model, RRNNForCausalLM):
        return _to_language_model(model, vocabulary, run, folder)
    return _to_classifier(model, vocabulary, run, folder)


def save_folder(model: Trained, folder: Path, *, vocabulary: bool = True) -> list[Path]:
    """Write a run's model to a folder that `from_pretrained` loads, completely or not at all; return the files.

    Beside the model it holds the vocabulary, and a tokenizer.json where the text is split in a way that one can say.
    """
    converted = to_transformers(model)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ExportError(f"{folder} exists and is not an empty folder: choose another one")
    place = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        place.chmod(0o755)
        with _no_progress_bars():
            converted.save_pretrained(place)
        if vocabulary:
            model.vocabulary.save(place / VOCABULARY)
            tokenizer = tokenizer_of(model)
            if tokenizer is not None:
                tokenizer.save_pretrained(place)
        place.replace(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return sorted(folder.iterdir())


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing bars for files that take no time."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


# ---- to transformers -------------------------------------------------------------------------------------------------


def _one_cell(rnn: nn.Module) -> dict[str, Any]:
    """Return the options of `RRNNConfig` that describe a layer."""
    if not isinstance(rnn, RationalRNN):
        raise ExportError(
            f"{title_of(rnn)} is not a layer of rational recurrences, and models for transformers are made of these: "
            "train a model of a cell, without block"
        )
    ((cell, units),) = rnn.cells
    first = rnn._all_layers()[0]
    return {
        "cell": cell,
        "hidden_size": units,
        "heads": rnn.heads,
        "groups": rnn.groups,
        "low_rank": rnn.low_rank or None,
        "bias": rnn.bias,
        "skip": rnn.skip,
        "norm": None if first.norm is None else "layer",
    }


def _language_model(model: TrainedLanguageModel) -> RRNNForCausalLM:
    module, words, run = model.module, model.vocabulary, model.config
    end = words.number(END) if END in words else None
    config = RRNNConfig(
        vocab_size=module.vocabulary,
        num_hidden_layers=run.layers,
        embedding_size=module.embedding.shape[1],
        embedding_dropout=run.embedding_dropout or 0.0,
        layer_dropout=run.between_dropout if run.layers > 1 else 0.0,
        recurrent_dropout=run.recurrent_dropout,
        output_dropout=run.output_dropout or 0.0,
        forget_bias=0.0,
        bos_token_id=module.start,
        eos_token_id=end,
        pad_token_id=module.start if end is None else end,
        **_one_cell(module.rnn),
        run=_run(run),
    )
    found = RRNNForCausalLM(config)
    tensors = {
        "backbone.embeddings.weight": module.embedding[: module.vocabulary],
        "lm_head.weight": module.embedding[: module.vocabulary],
        "lm_head.bias": module.bias[: module.vocabulary],
    }
    for name, value in module.rnn.state_dict().items():
        _, depth, rest = name.split(".", 2)
        tensors[f"backbone.layers.{depth}.layers.0.{rest}"] = value
    _load(found, tensors)
    assert found.generation_config is not None
    if words.unknown is not None:
        found.generation_config.suppress_tokens = [words.number(words.unknown)]  # as `rrnn lm generate`
    return found


def _classifier(model: TrainedClassifier) -> RRNNForSequenceClassification:
    module, run = model.module, model.config
    for what, given, option in (
        ("letters", module.spelling, "characters=0"),
        ("rules", module.rules, "no rules"),
    ):
        if given is not None:
            raise ExportError(
                f"a classifier with {what} cannot be exported to transformers: they are computed outside the layers. "
                f"Train one with {option}"
            )
    config = RRNNConfig(
        vocab_size=len(module.embedding),
        num_hidden_layers=run.layers,
        embedding_size=module.embedding.shape[1],
        bidirectional=run.bidirectional,
        embedding_dropout=run.embedding_dropout,
        layer_dropout=run.vertical_dropout,
        recurrent_dropout=run.recurrent_dropout,
        output_dropout=run.vertical_dropout,
        pooling=run.pooling,
        readout=run.readout,
        pad_token_id=0 if model.tokenizer is None else model.vocabulary.number(PADDING),
        id2label=dict(enumerate(model.labels)),
        label2id={label: n for n, label in enumerate(model.labels)},
        **_one_cell(module.layers[0]),
        run=_run(run),
    )
    found = RRNNForSequenceClassification(config)
    tensors = {"backbone.embeddings.weight": module.embedding}
    for name, value in module.state_dict().items():
        part, _, rest = name.partition(".")
        place = {"layers": "backbone.layers", "attention": "attention", "readout": "score"}.get(part)
        if place is not None:
            tensors[f"{place}.{rest}"] = value
    _load(found, tensors)
    return found


def _run(config: LMConfig | ClassifyConfig) -> dict[str, Any]:
    """Return a run's configuration, ready for config.json, without the names of files: they say nothing elsewhere."""
    values = config.to_dict()
    return {name: Path(v).name if isinstance(v, str) and "/" in v else v for name, v in values.items()}


def _load(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    model.load_state_dict({name: value.detach().cpu() for name, value in tensors.items()})
    model.eval()


# ---- from transformers -----------------------------------------------------------------------------------------------


def _check_options(config: RRNNConfig) -> None:
    """Raise an `ExportError` for options that models of runs do not have."""
    plain = {"heads": 1, "groups": 1, "low_rank": None, "bias": True, "skip": None, "norm": None}
    wrong = [
        f"{name}={getattr(config, name)!r}" for name, value in plain.items() if getattr(config, name) != value
    ]
    if wrong:
        raise ExportError(
            f"models of runs have no {', '.join(wrong)}: use the model with transformers, or its layers alone"
        )


def _to_language_model(
    model: RRNNForCausalLM, words: Vocabulary, run: Mapping[str, Any] | None, folder: Path | None
) -> TrainedLanguageModel:
    c, cell = model.config, model.config.build_cell()
    if not (c.tie_word_embeddings and c.head_bias):
        raise ExportError(
            "language models of runs have a tied output layer with a bias; this one has another"
        )
    own = {"cell": cell.name, "layers": c.num_hidden_layers, "hidden_size": c.hidden_size}
    config = LMConfig.from_run({"task": LMConfig.task, **(run or {}), **own})
    start = 0 if c.bos_token_id is None else c.bos_token_id
    module = LanguageModel(c.vocab_size, c.hidden_size, c.num_hidden_layers, cell=cell, start=start)
    tensors = {name: torch.zeros_like(value) for name, value in module.state_dict().items()}
    for name, value in model.state_dict().items():
        if name.startswith("backbone.layers."):
            depth, rest = name.removeprefix("backbone.layers.").split(".layers.0.", 1)
            tensors[f"rnn.layers.{depth}.{rest}"] = value
    tensors["embedding"][: c.vocab_size] = model.lm_head.weight.detach()
    tensors["bias"][: c.vocab_size] = model.lm_head.bias.detach()
    _load(module, tensors)
    tokenizer = None if folder is None else kept_tokenizer(config, SPECIALS, folder, words)
    return TrainedLanguageModel(module, words, config, tokenizer)


def _to_classifier(
    model: RRNNForSequenceClassification,
    words: Vocabulary,
    run: Mapping[str, Any] | None,
    folder: Path | None,
) -> TrainedClassifier:
    c, cell = model.config, model.config.build_cell()
    own = {
        name: getattr(c, name)
        for name in ("hidden_size", "embedding_size", "bidirectional", "pooling", "readout")
    }
    own |= {"cell": cell.name, "layers": c.num_hidden_layers, "vectors": None}
    fixed = {"vector_length", "vector_words", "unknown", "fine_tune", "rules"}  # what goes with word vectors
    given = {name: value for name, value in (run or {}).items() if name not in fixed}
    config = ClassifyConfig.from_run({"task": ClassifyConfig.task, **given, **own})
    module = TextClassifier(config, c.vocab_size, len(c.id2label or {}), cell=cell)
    places = {"backbone.layers": "layers", "attention": "attention", "score": "readout"}
    weights = model.state_dict()
    tensors = {"embedding": weights["backbone.embeddings.weight"]}
    for name, value in weights.items():
        for theirs, ours in places.items():
            if name.startswith(f"{theirs}."):
                tensors[ours + name.removeprefix(theirs)] = value
    _load(module, tensors)
    names: dict[Any, str] = dict(c.id2label or {})
    labels = [str(names[n]) for n in range(len(names))]
    tokenizer = None if folder is None else kept_tokenizer(config, (PADDING,), folder, words)
    return TrainedClassifier(module, words, labels, config, tokenizer)
