"""Use a trained text classifier: predict labels, evaluate its accuracy, load a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rrnn.automata import Cell
from rrnn.errors import CellError, DataError, FormatError, RunError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.model import TextClassifier, spell_vocabulary
from rrnn.tasks.classify.prepare import PADDING, read_dataset
from rrnn.tasks.classify.rules import RuleUnits, parse_rules
from rrnn.tasks.classify.scores import macro_f1
from rrnn.tasks.configs import FACTS
from rrnn.tasks.data.labelled_files import Skips, read_rows
from rrnn.tasks.data.text_files import split_text, tokenise
from rrnn.tasks.runs import CELL, Run, load_weights, open_task_run
from rrnn.tasks.threads import cpu_threads
from rrnn.tasks.tokenizer import Tokenizer, check_tokenizer, kept_tokenizer
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.theory import to_wfsa
from rrnn.wfsa import WFSA
from rrnn.zoo import get_cell, get_model

EMBEDDING = "embedding"
"""The name of the checkpoint with fixed word vectors, which is written once."""

WINDOW = 2048
"""Number of texts to read ahead; those of similar length share a batch."""
_WINDOW_CHARACTERS = 2**22
_BATCH_TOKENS = 2048


class Prediction(NamedTuple):
    """The most probable label and the probability of each label; None and {} for a text without words."""

    label: str | None
    probabilities: dict[str, float]


class TrainedClassifier:
    """A text classifier with its vocabulary and labels. `module` is the network, a `TextClassifier`.

    Texts are split into words as those of its training data were: by `tokenizer`, if it was trained with one.
    """

    def __init__(
        self,
        module: TextClassifier,
        vocabulary: Vocabulary,
        labels: Sequence[str],
        config: ClassifyConfig,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.module, self.vocabulary, self.labels, self.config = module, vocabulary, list(labels), config
        self.tokenizer = tokenizer
        check_tokenizer(tokenizer, config)

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.module.parameters())
        words = "words" if self.tokenizer is None else "tokens"
        return (
            f"<TrainedClassifier: {self.config.cell}, {self.config.layers} × {self.config.hidden_size} units, "
            f"{parameters:,} parameters, {len(self.vocabulary):,} {words}, labels {', '.join(self.labels)}>"
        )

    def to(self, device: torch.device | str) -> TrainedClassifier:
        """Move the network to a device, and return this model."""
        self.module.to(device)
        return self

    def tokenise(self, text: str) -> list[str]:
        """Split a text into words as in training, at most as many as the model reads.

        Words that the vocabulary lacks are split further: the training texts may have been tokenised, while in this one
        "good," is a word. (A tokenizer has a token for everything.)
        """
        if self.tokenizer is not None:
            return self.tokenizer.split(text)[: self.config.max_tokens]
        words: list[str] = []
        for word in tokenise(text, self.config.cleaning or "text"):
            words += [word] if word in self.vocabulary else split_text(word) or [word]
        return words[: self.config.max_tokens]

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words. If the model reads letters, words that the vocabulary lacks get ids after it."""
        spelling = self.module.spelling
        return self.vocabulary.encode(words) if spelling is None else spelling.encode(self.vocabulary, words)

    def rule_machine(self, label: str, words: Sequence[str]) -> WFSA:
        """Return the automaton that the rule of a label has become in training, over the given words."""
        rules = self.module.rules
        if rules is None or label not in rules.labels:
            known = "it was trained without" if rules is None else f"those of {', '.join(rules.labels)}"
            raise DataError(f"this classifier has no rule of {label!r}; its rules: {known}")
        ids = torch.as_tensor(self.encode(words), device=self.module.embedding.device)
        with torch.no_grad():
            vectors = rules.inputs(self.module.embed(ids), ids)
        return to_wfsa(rules.layer, rules.labels.index(label), dict(zip(words, vectors, strict=True)))

    def predict(self, texts: Iterable[str]) -> list[Prediction]:
        """Return the label of each text, with probabilities."""
        return list(self.stream(_texts(texts)))

    def stream(self, texts: Iterable[str], window: int = WINDOW) -> Iterator[Prediction]:
        """Yield the prediction for each of any number of texts, holding at most `window` of them at a time."""
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
        """Return the probabilities (texts, labels) of texts given as word ids, in batches of similar length."""
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
    """Call the function for each batch. A CPU uses one thread per batch: several threads on one batch would wait for
    each other at every operation, which on a busy machine takes several times as long as the work."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(batches) < 2:
        for batch in batches:
            function(batch)
        return
    with cpu_threads(1), ThreadPoolExecutor(min(threads, len(batches))) as pool:
        list(pool.map(function, reversed(batches)))  # long texts first, so that the last batches are quick


def _texts(texts: Iterable[str]) -> Iterator[str]:
    if isinstance(texts, str):
        raise DataError("predict takes a list of texts; got one text. Write predict([text])")
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"a text must be a str; got {type(text).__name__}")
        yield text


def _windows(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of at most `size` texts, or of fewer long ones."""
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
    """Yield the indices of texts in batches of limited size, short texts first."""
    some: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if some and (len(some) + 1) * lengths[i] > _BATCH_TOKENS:
            yield some
            some = []
        some.append(i)
    if some:
        yield some


def _padded(texts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return (ids (T, B), lengths (B)), with at least one step, for texts without words."""
    ids = np.zeros((len(texts), max(1, *map(len, texts))), np.int64)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text
    return torch.from_numpy(ids).T.contiguous(), torch.tensor([len(text) for text in texts])


# ---- runs ------------------------------------------------------------------------------------------------------------


def cell_of(config: ClassifyConfig) -> Cell | None:
    """Return the cell that the configuration names; None for a model of the zoo that is not a cell, such as LSTM."""
    try:
        is_cell = get_model(config.cell).is_cell
    except CellError:  # a file name, or an error that get_cell explains
        is_cell = True
    return get_cell(config.cell) if is_cell else None


def classify_run(folder: str | Path) -> Run:
    """Open a run of a text classifier read-only."""
    return open_task_run(folder, ClassifyConfig)


def read_config(run: Run) -> ClassifyConfig:
    """Return the configuration of a run."""
    return ClassifyConfig.from_run(run.config)


def load_run(run: Run) -> TrainedClassifier:
    """Load the best model of a run, on the CPU."""
    best = run.best()
    config, facts = read_config(run), run.config.get(FACTS)
    labels = facts.get("labels") if isinstance(facts, dict) else None
    if not isinstance(labels, list) or len(labels) < 2 or not all(isinstance(label, str) for label in labels):
        raise RunError(
            f"config.json in {run.folder} is damaged: {FACTS}.labels must be a list of two or more texts"
        )
    vocabulary = Vocabulary.load(run.vocabulary_path)
    text = run.cell_text
    cell = Cell.from_text(text, str(run.folder / CELL)) if text is not None else None
    fixed = run.load(EMBEDDING)
    vectors = fixed.tensors["embedding"] if fixed else None
    if config.fine_tune:
        vectors = best.tensors["embedding"]
    elif config.vectors is not None and vectors is None:
        raise RunError(f"the run in {run.folder} has lost its word vectors, {EMBEDDING}.safetensors")
    spellings = spell_vocabulary(vocabulary) if config.characters else None
    text = run.config[FACTS].get("rules")
    rules = None if text is None else partial(RuleUnits, parse_rules(text), vocabulary, labels)
    module = TextClassifier(
        config, len(vocabulary), len(labels), vectors=vectors, spellings=spellings, rules=rules, cell=cell
    )
    load_weights(module, best.tensors, run)
    tokenizer = kept_tokenizer(config, (PADDING,), run.folder, vocabulary)
    return TrainedClassifier(module.eval(), vocabulary, labels, config, tokenizer)


def load(folder: str | Path) -> TrainedClassifier:
    """Load the best text classifier of a run folder, on the CPU."""
    return load_run(classify_run(folder))


# ---- evaluation ------------------------------------------------------------------------------------------------------


SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Report:
    """Accuracy, macro-averaged F1 (both in per cent) and loss of a classifier. `confusion[i][j]` counts texts with
    label i and predicted label j."""

    texts: int
    accuracy: float
    macro_f1: float
    loss: float
    labels: list[str]
    confusion: list[list[int]]

    def to_dict(self) -> dict[str, Any]:
        """Return the report, ready for JSON."""
        return asdict(self)

    def to_text(self, name: str, width: int | None = None) -> str:
        """Return the report as text, with a table of the confusion in lines of up to `width` columns, if given."""
        figures = f"accuracy {self.accuracy:.2f} %, macro-F1 {self.macro_f1:.2f} %, loss {self.loss:.4f}"
        return "\n".join([f"{name}: {figures}, {self.texts} texts", *self._table(width)])

    def _table(self, width: int | None) -> Iterator[str]:
        """Yield the lines of the confusion: a row per label. Where labels do not fit above the columns, they are
        numbered; where that is too wide as well, some columns follow below the others."""
        size, n, end = max(5, *map(len, self.labels)), len(self.labels), "  ← predicted"
        heads, titles, numbered = list(self.labels), list(self.labels), False
        if width is not None and (size + 1) * (n + 1) + len(end) > width:
            numbered, room = True, max(8, width // 3)
            heads = [str(i) for i in range(1, n + 1)]
            size = max(len(str(n)), *(len(str(count)) for row in self.confusion for count in row))
            titles = [f"{i} {_cut(label, room)}" for i, label in enumerate(self.labels, 1)]
        side = max(map(len, titles)) if numbered else size
        per = n if width is None else max(1, (width - side - (0 if numbered else len(end))) // (size + 1))
        for start in range(0, n, per):
            here = slice(start, start + per)
            if numbered and not start:
                yield "columns: predicted labels, by number"
            top = " ".join([" " * side, *(f"{head:>{size}}" for head in heads[here])])
            yield top if numbered else top + end
            for title, counts in zip(titles, self.confusion, strict=True):
                name = f"{title:<{side}}" if numbered else f"{title:>{side}}"
                yield " ".join([name, *(f"{count:>{size}}" for count in counts[here])])


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def evaluate(model: TrainedClassifier, texts: Sequence[Sequence[str]], labels: Sequence[int]) -> Report:
    """Evaluate a classifier on texts that are split into words, and the indices of their labels."""
    ids = [model.encode(words[: model.config.max_tokens]) for words in texts]
    p, truth = model.probabilities(ids), np.asarray(labels)
    confusion = np.zeros((len(model.labels),) * 2, np.int64)
    np.add.at(confusion, (truth, p.argmax(1)), 1)
    chosen = np.maximum(p[np.arange(len(truth)), truth], 1e-12)
    return Report(
        texts=len(truth),
        accuracy=100 * float(np.trace(confusion)) / len(truth),
        macro_f1=macro_f1(
            confusion.diagonal().tolist(), confusion.sum(1).tolist(), confusion.sum(0).tolist()
        ),
        loss=float(-np.log(chosen).mean()),
        labels=model.labels,
        confusion=confusion.tolist(),
    )


def labelled_texts(
    model: TrainedClassifier,
    split: str,
    text_column: str = "text",
    label_column: str = "label",
    encoding: str = "utf-8",
    skips: Skips | None = None,
) -> tuple[list[list[str]], list[int]]:
    """Return (words, label indices) of a split of the model's own data, or of a file. `skips` counts skipped ones."""
    if split in SPLITS:
        dataset = read_dataset(model.config, model.tokenizer)
        if dataset.labels != model.labels:
            raise DataError(
                f"{dataset.name} has changed since the training: it had the labels {', '.join(model.labels)}, and now "
                f"has {', '.join(dataset.labels)}. Name a file of labelled texts"
            )
        examples = getattr(dataset, split)
        if not examples:
            raise DataError(f"{dataset.name} has no {split} examples; name a file of labelled texts")
        return [example.tokens for example in examples], [example.label for example in examples]
    path, skips = Path(split).expanduser(), Skips() if skips is None else skips
    if not path.exists():
        raise DataError(f"{split!r} is neither a file nor one of {', '.join(SPLITS)}")
    texts, labels = [], []
    for row in read_rows(path, text_column, label_column, skips, encoding):
        if row.label not in model.labels:
            raise FormatError(
                f"the label {row.label!r} did not occur in training, which had {', '.join(model.labels)}",
                source=row.source,
                line=row.line,
            )
        if words := model.tokenise(row.text):
            texts.append(words)
            labels.append(model.labels.index(row.label))
        else:
            skips.counts["no text"] += 1
    if not texts:
        raise DataError(f"{path}: no labelled text is left to evaluate")
    return texts, labels
