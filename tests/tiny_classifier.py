"""Make a small labelled data set, and the configuration of a classifier that trains on it in a second."""

from __future__ import annotations

import random
from typing import Any

import torch

from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.data.labelled import Dataset, Example

WORDS = ["bad", "good", "film", "the", "a", "dull", "fine", "plot"]


def tiny_config(**changes: Any) -> ClassifyConfig:
    small = ClassifyConfig(hidden_size=8, embedding_size=6, batch_size=8, epochs=3, lr=1e-2, device="cpu")
    return small.replace(**changes)


def tiny_dataset(seed: int = 0, sizes: tuple[int, int, int] = (60, 20, 20), longest: int = 20) -> Dataset:
    """Return random texts of 1 to `longest` words; the label is whether `good` comes before `bad`."""
    rng = random.Random(seed)

    def example() -> Example:
        tokens = rng.choices(WORDS, k=rng.randint(1, longest))
        places = {word: tokens.index(word) if word in tokens else 99 for word in ("good", "bad")}
        return Example(tokens, int(places["good"] < places["bad"]))

    train, dev, test = ([example() for _ in range(size)] for size in sizes)
    return Dataset("tiny", train, dev, test, labels=["no", "yes"])


def tiny(config: ClassifyConfig, *, vectors: bool = False) -> Prepared:
    data = prepare(config, tiny_dataset())
    if not vectors:
        return data
    torch.manual_seed(0)
    matrix = torch.nn.functional.normalize(torch.randn(len(data.vocabulary), 12))
    matrix[0] = 0
    return Prepared(data.config, data.labels, data.vocabulary, matrix, data.splits, data.about)
