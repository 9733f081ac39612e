"""Text classifiers of every kind with random weights, for tests that explain them."""

from __future__ import annotations

from typing import Any

from layer_cases import randomised

from rrnn.automata import Cell
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.spelling import spell_vocabulary
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.vocabulary import Vocabulary

WORDS = ["not", "very", "good", "a", "film"]
TEXT = "a film not very good"


def classifier(
    labels: tuple[str, ...] = ("no", "yes"), template: Cell | None = None, **options: Any
) -> TrainedClassifier:
    """A small model with random weights."""
    config = ClassifyConfig(**{"hidden_size": 4, "embedding_size": 3, "layers": 1, **options})
    vocabulary = Vocabulary.build(WORDS, specials=("<pad>",), unknown="<unk>")
    spellings = spell_vocabulary(vocabulary) if config.characters else None
    module = TextClassifier(config, len(vocabulary), len(labels), spellings=spellings, cell=template)
    return TrainedClassifier(randomised(module, 3).eval(), vocabulary, labels, config)


KINDS: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"layers": 2},
    "both directions": {"bidirectional": True, "layers": 2, "pooling": "mean"},
    "max": {"pooling": "max"},
    "attention": {"pooling": "attention", "bidirectional": True},
    "windows": {"cell": "QRNN2", "readout": "linear"},
    "highway": {"cell": "SRU", "layers": 2},
    "max-plus": {"cell": "B-max-plus", "layers": 2},
    "SoPa": {"cell": "SoPa2", "pooling": "max"},
    "LSTM": {"cell": "LSTM", "layers": 2},
    "letters": {"characters": 3, "layers": 2},
    "three labels": {"labels": ("bad", "so-so", "fine")},
}
