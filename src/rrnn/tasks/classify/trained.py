"""A classifier with its words and labels: what a training gives and `rrnn.load` reads."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.errors import CellError, DataError, RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.spelling import spell_vocabulary
from rrnn.tasks.data.cleaning import split_text, tokenise
from rrnn.tasks.runs import CELL, Run
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.tasks.workers import one_cpu_thread
from rrnn.zoo import get_cell, get_model

FACTS = "facts"
"""The key of a run's configuration that holds what was found rather than asked for."""
EMBEDDING = "embedding"
"""The checkpoint with fixed word vectors, written once."""

WINDOW = 2048
"""Texts read ahead: those of like lengths among them share a batch."""
_WINDOW_CHARACTERS = 2**22
_BATCH_TOKENS = 2048


class Prediction(NamedTuple):
    """The likeliest label and the probability of each; None and nothing for a text without words."""

    label: str | None
    probabilities: dict[str, float]


class TrainedClassifier:
    """`module` is the network, a `TextClassifier`; texts become words as those of its data did."""

    def __init__(
        self, module: TextClassifier, vocabulary: Vocabulary, labels: Sequence[str], config: ClassifyConfig
    ) -> None:
        self.module, self.vocabulary, self.labels, self.config = module, vocabulary, list(labels), config

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.module.parameters())
        return (
            f"<TrainedClassifier: {self.config.cell}, {self.config.layers} × {self.config.hidden_size} units, "
            f"{parameters:,} parameters, {len(self.vocabulary):,} words, labels {', '.join(self.labels)}>"
        )

    def to(self, device: torch.device | str) -> TrainedClassifier:
        self.module.to(device)
        return self

    def tokenise(self, text: str) -> list[str]:
        """The words of a text, as the data's were made, no more than the model reads. What the vocabulary lacks is
        taken apart: a model of texts whose words came apart from punctuation may meet one where "good," is a word."""
        words: list[str] = []
        for word in tokenise(text, self.config.cleaning or "text"):
            words += [word] if word in self.vocabulary else split_text(word) or [word]
        return words[: self.config.max_tokens]

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Their numbers. Where letters are read, words that the vocabulary lacks have numbers after it."""
        spelling = self.module.spelling
        return self.vocabulary.encode(words) if spelling is None else spelling.encode(self.vocabulary, words)

    def predict(self, texts: Iterable[str]) -> list[Prediction]:
        """The label of each text, with probabilities."""
        return list(self.stream(_texts(texts)))

    def stream(self, texts: Iterable[str], window: int = WINDOW) -> Iterator[Prediction]:
        """The same, one after another, for any number of texts: at most `window` are held at a time."""
        for some in _windows(texts, window):
            ids = [self.encode(self.tokenise(text)) for text in some]
            rows = self.probabilities(ids)
            best = rows.argmax(1).tolist()
            for text, label, row in zip(ids, best, rows.tolist(), strict=True):
                if len(text):
                    yield Prediction(self.labels[label], dict(zip(self.labels, row, strict=True)))
                else:
                    yield Prediction(None, {})

    def probabilities(self, texts: Sequence[np.ndarray]) -> np.ndarray:
        """(texts, labels) of words' numbers, in batches of like lengths."""
        answer = np.zeros((len(texts), len(self.labels)), np.float32)
        device = self.module.embedding.device

        def fill(rows: list[int]) -> None:
            ids, lengths = _padded([texts[row] for row in rows])
            with torch.inference_mode():
                logits = self.module(ids.to(device), lengths.to(device))
                answer[rows] = logits.softmax(-1).cpu().numpy()

        _side_by_side(fill, list(_batches([len(text) for text in texts])), device)
        return answer


def _side_by_side(
    function: Callable[[list[int]], None], batches: Sequence[list[int]], device: torch.device
) -> None:
    """On a CPU a batch a thread, not several threads on a batch: those would wait for one another at every operation,
    which on a busy machine takes several times as long as the work."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(batches) < 2:
        for batch in batches:
            function(batch)
        return
    with one_cpu_thread(), ThreadPoolExecutor(min(threads, len(batches))) as pool:
        list(pool.map(function, reversed(batches)))  # long texts first: the last to end are quick ones


def _texts(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise DataError("predict takes a list of texts; got one text: write predict([text])")
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"a text to classify is a str; got {type(text).__name__}")
        yield text


def _windows(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of at most so many texts, or of few long ones."""
    some, characters = [], 0
    for text in texts:
        some.append(text)
        characters += len(text)
        if len(some) >= size or characters >= _WINDOW_CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Texts' numbers, short ones first, so many at a time that a batch is neither tiny nor large."""
    some: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if some and (len(some) + 1) * lengths[i] > _BATCH_TOKENS:
            yield some
            some = []
        some.append(i)
    if some:
        yield some


def _padded(texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """(ids (T, B), lengths (B)); at least one step, for texts without words."""
    ids = np.zeros((len(texts), max(1, *map(len, texts))), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    return torch.from_numpy(ids).T.contiguous(), torch.tensor([len(text) for text in texts])


# ---- runs ------------------------------------------------------------------------------------------------------------


def cell_of(config: ClassifyConfig) -> Cell | None:
    """The cell that the configuration names; None for a model of the zoo that is no cell, as LSTM."""
    try:
        is_cell = get_model(config.cell).is_cell
    except CellError:  # a file's name, or a mistake, which get_cell explains
        is_cell = True
    return get_cell(config.cell) if is_cell else None


def load_run(run: Run) -> TrainedClassifier:
    """The best model of a run, on the CPU."""
    found = run.load("best")
    if found is None:
        raise RunError(f"the run in {run.folder} has no checkpoint yet: train it further first")
    if found.note:
        warnings.warn(found.note, stacklevel=3)
    config, labels = read_config(run), run.config[FACTS]["labels"]
    vocabulary = Vocabulary.load(run.vocabulary_path)
    text = run.cell_text
    cell = Cell.from_text(text, str(run.folder / CELL)) if text is not None else None
    fixed = run.load(EMBEDDING)
    vectors = fixed.tensors["embedding"] if fixed else None
    if config.fine_tune:
        vectors = found.tensors["embedding"]
    elif config.vectors is not None and vectors is None:
        raise RunError(f"the run in {run.folder} has lost its word vectors, {EMBEDDING}.safetensors")
    try:
        spellings = spell_vocabulary(vocabulary) if config.characters else None
        module = TextClassifier(
            config, len(vocabulary), len(labels), vectors=vectors, spellings=spellings, cell=cell
        )
        module.load_state_dict(found.tensors)
    except RuntimeError as error:
        raise RunError(f"the weights in {run.folder} do not fit its configuration: {error}") from None
    return TrainedClassifier(module.eval(), vocabulary, labels, config)


def read_config(run: Run) -> ClassifyConfig:
    return ClassifyConfig.from_dict({k: v for k, v in run.config.items() if k not in (FACTS, "rrnn")})


def classify_run(folder: str | Path) -> Run:
    """A run that holds a text classifier."""
    run = Run.open(folder)
    if run.config["task"] != ClassifyConfig.task:
        raise RunError(f"the run in {folder} is of the task {run.config['task']!r}, not a text classifier")
    return run
