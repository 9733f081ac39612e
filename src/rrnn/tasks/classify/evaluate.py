"""How good a trained classifier is: accuracy, loss, and which labels it takes for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rrnn.errors import DataError, FormatError
from rrnn.tasks.classify.prepare import read_dataset
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.rows import Skips, read_rows

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class Report:
    """`confusion[i][j]`: how many texts with label i were taken for label j."""

    texts: int
    accuracy: float
    loss: float
    labels: list[str]
    confusion: list[list[int]]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self, name: str) -> str:
        lines = [f"{name}: accuracy {self.accuracy:.2f} %, loss {self.loss:.4f}, {self.texts} texts"]
        width = max(5, *map(len, self.labels))
        lines.append(
            " ".join([" " * width, *(f"{label:>{width}}" for label in self.labels)]) + "  ← taken for"
        )
        for label, counts in zip(self.labels, self.confusion, strict=True):
            lines.append(" ".join([f"{label:>{width}}", *(f"{count:>{width}}" for count in counts)]))
        return "\n".join(lines)


def evaluate(model: TrainedClassifier, texts: Sequence[Sequence[str]], labels: Sequence[int]) -> Report:
    """Of texts that are words already, and their labels' numbers."""
    ids = [model.encode(words[: model.config.max_tokens]) for words in texts]
    p, truth = model.probabilities(ids), np.asarray(labels)
    confusion = np.zeros((len(model.labels),) * 2, np.int64)
    np.add.at(confusion, (truth, p.argmax(1)), 1)
    chosen = np.maximum(p[np.arange(len(truth)), truth], 1e-12)
    return Report(
        texts=len(truth),
        accuracy=100 * float(np.trace(confusion)) / len(truth),
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
    """(words, labels' numbers) of a split of the model's own data, or of a file; `skips` counts what is left out."""
    if split in SPLITS:
        dataset = read_dataset(model.config)
        if dataset.labels != model.labels:
            raise DataError(
                f"{dataset.name} has changed since the training, which had the labels {', '.join(model.labels)}; now "
                f"it has {', '.join(dataset.labels)}. Name a file of labelled texts"
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
