"""From texts to numbers: a data set, its vocabulary and its word vectors, as a training needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.data.labelled import Dataset, Example, load_dataset
from rrnn.tasks.vocabulary import Vocabulary

PADDING, UNKNOWN = "<pad>", "<unk>"
Split = tuple[list[np.ndarray], list[int]]


@dataclass(frozen=True)
class Prepared:
    """All that a training reads. `vectors` (words, numbers), row 0 zeros; None: embeddings are trained."""

    config: ClassifyConfig
    labels: list[str]
    vocabulary: Vocabulary
    vectors: Tensor | None
    splits: dict[str, Split]
    about: dict[str, Any]
    """What a user should know of the data: sizes, skipped rows, how many words have a vector."""


def prepare(config: ClassifyConfig, dataset: Dataset | None = None) -> Prepared:
    """Read what the configuration names (or take the data set as given)."""
    dataset = dataset or read_dataset(config)
    if config.vectors is None:
        tokens = (token for example in dataset.train for token in example.tokens)
        vocabulary, vectors, about = Vocabulary.build(tokens, (PADDING, UNKNOWN), UNKNOWN), None, {}
    else:
        vocabulary, vectors, about = _with_vectors(config, dataset)
    splits = {
        name: _numbers(examples, vocabulary, config.max_tokens)
        for name, examples in (("train", dataset.train), ("dev", dataset.dev), ("test", dataset.test))
    }
    about |= {name: len(split[1]) for name, split in splits.items()} | {"words": len(vocabulary)}
    return Prepared(config, dataset.labels, vocabulary, vectors, splits, about)


def read_dataset(config: ClassifyConfig) -> Dataset:
    raise NotImplementedError


def _with_vectors(config: ClassifyConfig, dataset: Dataset) -> tuple[Vocabulary, Tensor, dict[str, Any]]:
    """The words of all splits that have a vector (they are not trained, so the test set teaches nothing), and UNK."""
    raise NotImplementedError


def _numbers(examples: list[Example], vocabulary: Vocabulary, most: int | None) -> Split:
    texts = [vocabulary.encode(example.tokens[:most]) for example in examples]
    return texts, [example.label for example in examples]


def check(dataset: Dataset) -> None:
    """What would make a training meaningless."""
    for name in ("train", "dev", "test"):
        if not getattr(dataset, name):
            raise DataError(f"the {name} split of {dataset.name} is empty")
    present = {example.label for example in dataset.train}
    if len(present) < 2:
        raise DataError(
            f"a classifier needs two classes at least; {dataset.name} has {len(present)} in training"
        )


def as_tensor(matrix: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float32))
