"""Which examples and units of classifiers are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from random_classifiers import TEXT, classifier

from rrnn.errors import AutomatonError
from rrnn.tasks.classify.examples import choose_examples, has_words, strongest_units, text_phrases
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.data.labelled import Example


class FakeClassifier:
    """Gives each text the chances that a word of it says."""

    labels = ("no", "yes")
    encode, tokenise = staticmethod(list), staticmethod(str.split)

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


@pytest.mark.parametrize("backward", [False, True])
def test_phrases_of_many_texts(backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of few texts find what one of all does, and name the texts by their own numbers."""
    model = classifier(bidirectional=True, max_tokens=4)
    texts = ["not very good", "", "a film", "good film not very good", "zyx", "very good"]
    whole = text_phrases(model, texts, 3, backward=backward)
    monkeypatch.setattr("rrnn.tasks.classify.examples._PHRASE_TOKENS", 4)
    cut = text_phrases(model, iter(texts), 3, backward=backward)
    assert [unit.unit for unit in cut] == [0, 1, 2, 3]
    for a, b in zip(whole, cut, strict=True):
        for some, those in ((a.positive, b.positive), (a.negative, b.negative)):
            assert [p.text for p in some] == [p.text for p in those]
            assert [p.weight for p in some] == pytest.approx([p.weight for p in those], rel=1e-5)
        for phrase in (*b.positive, *b.negative):
            own = [token for token in phrase.tokens if token != "ε"]
            words = model.tokenise(texts[phrase.sentence])
            assert words[phrase.position : phrase.position + len(own)] == own and len(words) <= 4
    assert any(unit.positive for unit in cut) and text_phrases(model, [""]) == []


def test_an_lstm_looks_for_no_phrases() -> None:
    with pytest.raises(AutomatonError, match="LSTM has no automata inside"):
        text_phrases(classifier(cell="LSTM"), [TEXT])


def test_the_strongest_units_come_first_with_their_phrases() -> None:
    model = classifier()
    dev = [
        Example(text.split(), 0)
        for text in ("a film not very good", "good film", "not good a very good film")
    ]
    found = strongest_units(model, dev, "yes", most=3, top=2)
    assert len(found) == 3 and [unit.adds for unit in found] == sorted((u.adds for u in found), reverse=True)
    totals: dict[int, float] = {}
    for example in dev[::2]:  # the others are too short to be ranked by
        for unit in explain(model, " ".join(example.tokens), target="yes", units=99).units:
            totals[unit.unit] = totals.get(unit.unit, 0.0) + abs(unit.adds)
    for unit in found:
        assert unit.adds == pytest.approx(totals[unit.phrases.unit])
        assert 0 < len(unit.phrases.positive) + len(unit.phrases.negative) <= 4
