"""From texts to numbers: a data set, its vocabulary and its word vectors, as a training needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.spelling import encode, spell, spell_vocabulary
from rrnn.tasks.data.labelled import Dataset, Example, load_dataset
from rrnn.tasks.data.vectors import read_vectors
from rrnn.tasks.vocabulary import Vocabulary

PADDING, UNKNOWN = SPECIAL = "<pad>", "<unk>"
Split = tuple[list[np.ndarray], list[int]]


@dataclass(frozen=True)
class Prepared:
    """All that a training reads. `vectors` (words, numbers), row 0 zeros; None: embeddings are trained. `spelled`:
    words with letters alone, whose numbers come after the vocabulary."""

    config: ClassifyConfig
    labels: list[str]
    vocabulary: Vocabulary
    vectors: Tensor | None
    splits: dict[str, Split]
    about: list[str]
    """What a user should know of the data, a line each: sizes, skipped rows, how many words have a vector."""
    spelled: tuple[str, ...] = ()

    @property
    def spellings(self) -> Tensor | None:
        """The letters of all words, for a model that reads them."""
        if not self.config.characters:
            return None
        return torch.cat([spell_vocabulary(self.vocabulary), spell(self.spelled)])

    def of(self, config: ClassifyConfig) -> Prepared:
        """The same data for another training."""
        return replace(self, config=config.replace(cleaning=self.config.cleaning))


def prepare(config: ClassifyConfig, dataset: Dataset | None = None) -> Prepared:
    """Read what the configuration names, or take the data set as given. The answer's configuration says how texts
    became words, so that others can be read in the same way."""
    dataset = dataset or read_dataset(config)
    config = config.replace(cleaning=dataset.cleaning)
    about = [dataset.summary()]
    if config.vectors is None:
        tokens = (token for example in dataset.train for token in example.tokens)
        vocabulary, vectors = Vocabulary.build(tokens, SPECIAL, UNKNOWN), None
    else:
        vocabulary, vectors, coverage = _with_vectors(config, dataset)
        about.append(coverage)
    spelled: dict[str, int] = {}

    def numbers(words: Sequence[str]) -> np.ndarray:
        return (
            encode(vocabulary, words, spelled, len(vocabulary))
            if config.characters
            else vocabulary.encode(words)
        )

    splits = {
        name: ([numbers(e.tokens[: config.max_tokens]) for e in examples], [e.label for e in examples])
        for name, examples in _splits(dataset).items()
    }
    return Prepared(config, dataset.labels, vocabulary, vectors, splits, about, tuple(spelled))


def read_dataset(config: ClassifyConfig) -> Dataset:
    """The configuration's data set."""
    files = {"dev": config.dev, "test": config.test}
    given = {split: path for split, path in files.items() if path is not None}
    return load_dataset(
        {"train": config.data, **given} if given else config.data,
        split_seed=config.split_seed,
        cleaning=config.cleaning,
        text_column=config.text_column,
        label_column=config.label_column,
        encoding=config.encoding,
        skip_broken=config.skip_broken,
    )


def _splits(dataset: Dataset) -> dict[str, list[Example]]:
    """Those that have examples: a user's files need none for test."""
    named = {"train": dataset.train, "dev": dataset.dev, "test": dataset.test}
    return {name: examples for name, examples in named.items() if examples}


def _with_vectors(config: ClassifyConfig, dataset: Dataset) -> tuple[Vocabulary, Tensor, str]:
    """The words of the data that have a vector, those of the test set included (nothing is learned of them), or all
    words of the file; one vector for all other words, the direction of the mean; and, where config.unknown says so, a
    random direction for each word of the data without a vector, as in the authors' code."""
    assert config.vectors is not None
    parts = _splits(dataset).values()
    used = Counter(token for examples in parts for example in examples for token in example.tokens)
    wanted = None if config.vector_words == "all" else used
    vectors = read_vectors(config.vectors, wanted, width=config.embedding_size)
    coverage = vectors.coverage(used)
    if not coverage.known_types:
        raise DataError(f"{config.vectors} has a vector for none of the {len(used)} words of {dataset.name}")
    known = [word for word in vectors.words if word not in SPECIAL]
    strange = sorted(used.keys() - {*known, *SPECIAL}) if config.unknown == "own" else []
    rows, _ = vectors.unit().align(known)
    own = np.random.default_rng(0).standard_normal((len(strange), vectors.width))
    matrix = np.concatenate([np.zeros((1, vectors.width)), rows.mean(0, keepdims=True), rows, own])
    matrix *= config.vector_length / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    vocabulary = Vocabulary([*SPECIAL, *known, *strange], UNKNOWN)
    return vocabulary, torch.from_numpy(matrix.astype(np.float32)), f"{config.vectors}: {coverage}"
