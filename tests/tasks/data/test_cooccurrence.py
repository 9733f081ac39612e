"""Vectors of one's own texts, against a dense computation that is written down as it is defined."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rrnn.errors import DataError
from rrnn.tasks.data.vectors import SMOOTHING, Vectors, _information, _neighbours, cooccurrence_vectors

WORDS = list("abcdefg")


def neighbours(
    texts: list[list[str]], words: list[str], window: int, contexts: list[str]
) -> dict[tuple[str, str], float]:
    found = Counter[tuple[str, str]]()
    for text in texts:
        for i, word in enumerate(text):
            for j, other in enumerate(text):
                if word in words and other in contexts and 0 < abs(i - j) <= window:
                    found[word, other] += 1 / abs(i - j)  # type: ignore[assignment]
    return dict(found)


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=9), min_size=1, max_size=6), st.integers(1, 4))
def test_neighbours_and_information_are_as_defined(texts: list[list[str]], window: int) -> None:
    words, contexts = WORDS[:5], WORDS[:3]  # f and g are too rare, d and e count as words but not as contexts
    counted = _neighbours(texts, words, window, len(contexts))
    expected = neighbours(texts, words, window, contexts)
    dense = counted.to_dense()
    for i, word in enumerate(words):
        for j, other in enumerate(contexts):
            assert float(dense[i, j]) == pytest.approx(expected.get((word, other), 0), abs=1e-5)
    information = _information(counted).to_dense()
    of_context = {c: sum(v for (_, o), v in expected.items() if o == c) ** SMOOTHING for c in contexts}
    for i, word in enumerate(words):
        total = sum(value for (w, _), value in expected.items() if w == word)
        for j, other in enumerate(contexts):
            value = expected.get((word, other), 0.0)
            share = of_context[other] / (sum(of_context.values()) or 1)
            mutual = max(math.log(value / total / share), 0) if value else 0.0
            assert float(information[i, j]) == pytest.approx(mutual, abs=1e-4)


def sentences(count: int = 600) -> list[list[str]]:
    """Adjectives of two kinds, each among its own neighbours."""
    draw = np.random.default_rng(0)
    kinds = (
        (["good", "great", "fine"], ["laugh", "smile", "joy"]),
        (["bad", "awful", "dull"], ["yawn", "sleep", "bore"]),
    )
    answer = []
    for _ in range(count):
        first, second = kinds[draw.integers(2)]
        answer.append(["so", draw.choice(first), "they", draw.choice(second)])
    return [[str(word) for word in text] for text in answer]


def test_words_with_the_same_neighbours_have_similar_vectors() -> None:
    vectors = cooccurrence_vectors(sentences(), 4)
    assert np.linalg.norm(vectors.matrix, axis=1) == pytest.approx(1, abs=1e-5)
    rows, known = vectors.align(["good", "great", "fine", "bad", "awful", "dull"])
    assert known.all()
    similar = rows @ rows.T
    assert similar[:3, :3].min() > similar[:3, 3:].max() + 0.3
    assert similar[3:, 3:].min() > similar[:3, 3:].max() + 0.3


def test_the_same_whenever_it_is_called_and_nobody_else_s_chance_is_touched() -> None:
    torch.manual_seed(7)
    first = cooccurrence_vectors(sentences(), 3)
    drawn = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3), drawn)
    assert np.array_equal(cooccurrence_vectors(sentences(), 3).matrix, first.matrix)


def test_rare_words_have_none_and_texts_are_no_neighbours() -> None:
    texts = [*sentences(), ["once"], *(["lonely"] for _ in range(9))]
    vectors = cooccurrence_vectors(texts, 3, window=3)
    assert "once" not in vectors and "lonely" in vectors
    assert vectors.align(["lonely"])[0].any() == 0  # nothing stands beside it
    assert vectors.words[0] in {"so", "they"}


def test_an_empty_word_is_no_gap_between_texts() -> None:
    counted = _neighbours([["a", ""], ["b"]] * 5, ["a", "", "b"], 2, 3).to_dense()
    assert counted[1, 0] == 5 and not counted[2].any()


def test_few_contexts_and_common_words_only() -> None:
    vectors = cooccurrence_vectors(sentences(), 1, contexts=2, least=300)
    assert set(vectors.words) == {"so", "they"} and vectors.matrix.shape == (2, 1)


@pytest.mark.parametrize(
    ("width", "window", "contexts"), [(400, 5, 900), (0, 5, 900), (3, 0, 900), (3, 5, 3)]
)
def test_what_cannot_be_is_said(width: int, window: int, contexts: int) -> None:
    with pytest.raises(DataError, match=f"contexts={contexts}, 14 words .* and window={window}"):
        cooccurrence_vectors(sentences(), width, window=window, contexts=contexts)


def test_beside() -> None:
    one = Vectors(["a", "b"], np.array([[1.0, 2], [3, 4]], np.float32))
    other = Vectors(["c", "b"], np.array([[5.0], [6]], np.float32))
    both = one.beside(other)
    assert both.words == ["a", "b", "c"]
    assert both.matrix.tolist() == [[1, 2, 0], [3, 4, 6], [0, 0, 5]]
    twice = Vectors(["c", "c"], np.array([[5.0], [6]], np.float32))
    assert one.beside(twice).words == ["a", "b", "c"]
