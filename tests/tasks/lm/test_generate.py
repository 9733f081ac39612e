"""Sampling word by word."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from rrnn.errors import RunError
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.trained import generate

WORDS = 12


@pytest.fixture(params=["F", "lstm"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(WORDS, 8, 2, cell=request.param)
    with torch.no_grad():
        model.bias[:WORDS].copy_(torch.linspace(2, 0, WORDS))  # the start symbol would be the likeliest
    return model


def test_a_seed_gives_the_same_words_again(model: LanguageModel) -> None:
    first = list(generate(model, [3, 4], length=30, seed=5))
    assert first == list(generate(model, [3, 4], length=30, seed=5))
    assert first != list(generate(model, [3, 4], length=30, seed=6))
    assert len(first) == 30


def test_the_likeliest_by_hand(model: LanguageModel) -> None:
    model.eval()
    ids, expected = [0, 3], []
    for _ in range(6):
        scores = model.scores(model(torch.tensor(ids).unsqueeze(1))[0])[-1, 0]
        expected.append(int(scores[1:].argmax()) + 1)
        ids.append(expected[-1])
    assert list(generate(model, [3], length=6, temperature=0)) == expected
    assert list(generate(model, [3], length=6, top_k=1, seed=0)) == expected
    assert list(generate(model, [3], length=6, temperature=1e-4, seed=0)) == expected


def test_words_that_never_come(model: LanguageModel) -> None:
    words = set(generate(model, length=300, temperature=3.0, seed=0, forbidden=[2, 5]))
    assert words == set(range(WORDS)) - {0, 2, 5}


def test_top_k_and_frequencies(model: LanguageModel) -> None:
    """The first word's frequencies are the softmax's over the k likeliest."""
    model.eval()
    scores = model.scores(model(torch.tensor([[0]]))[0])[0, 0].detach()
    scores[0] = -torch.inf
    best = scores.topk(3).indices.tolist()
    drawn = [next(generate(model, length=1, temperature=0.7, top_k=3, seed=seed)) for seed in range(300)]
    assert set(drawn) <= set(best)
    expected = (scores[best] / 0.7).softmax(0)
    for word, share in zip(best, expected.tolist(), strict=True):
        assert abs(drawn.count(word) / 300 - share) < 0.1


def test_more_words_than_there_are(model: LanguageModel) -> None:
    """k beyond the vocabulary, and beyond what is not forbidden: as without k."""
    words = list(generate(model, length=20, seed=3, forbidden=[2, 5]))
    assert list(generate(model, length=20, seed=3, forbidden=[2, 5], top_k=10**9)) == words
    drawn = list(generate(model, length=100, seed=3, forbidden=[2, 5], top_k=WORDS - 1))
    assert set(drawn) <= set(range(WORDS)) - {0, 2, 5}


def test_it_streams_without_end(model: LanguageModel) -> None:
    assert len(list(islice(generate(model, seed=1), 5))) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "at least 0"),
        ({"temperature": float("nan")}, "at least 0"),
        ({"top_k": 0}, "at least 1"),
        ({"seed": 2**64}, "at most 64 bits"),
        ({"seed": -(2**63) - 1}, "at most 64 bits"),
        ({"prompt": [99]}, "below 12"),
        ({"forbidden": range(WORDS)}, "all words are forbidden"),
    ],
)
def test_what_cannot_be_drawn(model: LanguageModel, options: dict, message: str) -> None:
    with pytest.raises(RunError, match=message):
        generate(model, **options)
