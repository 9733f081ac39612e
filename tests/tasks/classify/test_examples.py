"""Which examples and units of classifiers are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rrnn.tasks.classify.examples import choose_examples, has_words
from rrnn.tasks.data.labelled import Example


class FakeClassifier:
    """Gives each text the chances that a word of it says."""

    labels = ("no", "yes")
    encode = staticmethod(list)

    def __init__(self, word: int = 0) -> None:
        self.word = word
        self.config = type("Config", (), {"max_tokens": None})

    def probabilities(self, texts: Sequence[list[str]]) -> np.ndarray:
        yes = np.array([float(text[self.word]) for text in texts])
        return np.stack([1 - yes, yes], 1)


def example(label: int, *chances: float, length: int = 5) -> Example:
    return Example([*map(str, chances), *["word"] * (length - len(chances))], label)


def test_examples_are_right_ones_of_each_label_and_the_worst() -> None:
    model: Any = FakeClassifier()
    long, no, also_no = example(1, 0.9, length=50), example(0, 0.1), example(0, 0.2)
    near, yes, worst = example(1, 0.45), example(1, 0.8), example(0, 0.95)
    assert choose_examples([long, no, also_no, near, yes, worst], [model]) == [no, yes, worst]
    assert choose_examples([long, no, also_no], [model]) == [no]  # nothing is wrong here
    assert choose_examples([long], [model]) == [long]  # better a long one than none
    assert choose_examples([near], [model]) == [near] and choose_examples([], [model]) == []


def test_examples_of_several_models() -> None:
    models: list[Any] = [FakeClassifier(0), FakeClassifier(1)]
    split, both, right = example(1, 0.99, 0.01), example(1, 0.4, 0.4), example(0, 0.1, 0.2)
    # Wrong twice comes before surely wrong once; of the label yes no text is better than that one.
    assert choose_examples([both, split, right], models) == [right, split, both]
    assert choose_examples([split, right], models) == [right, split]


def test_texts_without_words_for_a_model_are_no_examples() -> None:
    """Another cleaning than its data's leaves nothing of some texts."""
    strict, lax = (
        type("Model", (), {"tokenise": staticmethod(f)})()
        for f in (lambda t: t.strip(".").split(), str.split)
    )
    models: list[Any] = [lax, strict]
    assert has_words(example(0, 0.5), models) and not has_words(Example(["..."], 0), models)
