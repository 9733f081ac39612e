"""Perplexity over one stream: every token, whatever the pieces; against one step after another."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.lm.model import Dropouts, LanguageModel
from rrnn.tasks.lm.trained import Score, evaluate

WORDS = 50


@torch.no_grad()
def by_steps(model: LanguageModel, ids: Tensor) -> float:
    """The definition: the start symbol, then word after word."""
    model.eval()
    total, state, word = 0.0, None, model.start
    for target in ids.tolist():
        scores, state = model.step(torch.tensor([word]), state)
        total -= float(scores.double().log_softmax(-1)[0, target])
        word = target
    return total / len(ids)


def make(cell: str, device: str = "cpu") -> LanguageModel:
    torch.manual_seed(0)
    drops = Dropouts(0.5, 0.5, 0.5, 0.5, 0.5)
    return LanguageModel(WORDS, 16, 2, cell=cell, start=3, dropouts=drops).to(device)


@pytest.mark.parametrize("cell", ["F", "B-max-plus", "QRNN2", "lstm", "gru"])
def test_pieces_and_steps_agree(cell: str) -> None:
    model, ids = make(cell), torch.randint(WORDS, (83,))
    expected = by_steps(model, ids)
    model.train()
    for chunk in (1000, 83, 10, 1):
        score = evaluate(model, ids, chunk=chunk)
        assert score.tokens == 83
        assert math.isclose(score.loss, expected, rel_tol=1e-5)
    assert model.training


@pytest.mark.parametrize("cell", ["F", "QRNN2", "lstm"])
@pytest.mark.parametrize("streams", [2, 5, 83, 1000])
def test_streams_side_by_side_are_pieces_without_a_past(cell: str, streams: int) -> None:
    model, ids = make(cell).eval(), torch.randint(WORDS, (83,))
    before = torch.cat([torch.tensor([model.start]), ids[:-1]])
    expected, length = 0.0, -(-83 // min(streams, 83))
    for words, targets in zip(before.split(length), ids.split(length), strict=True):
        with torch.no_grad():
            hidden, _ = model(words.unsqueeze(1), model.rnn.init_state(1))
            scores = model.scores(hidden.squeeze(1)).log_softmax(-1)
        expected -= float(scores.gather(1, targets.unsqueeze(1)).sum())
    for chunk in (1000, 3):
        score = evaluate(model, ids, streams=streams, chunk=chunk)
        assert score.tokens == 83 and math.isclose(score.loss, expected / 83, rel_tol=1e-5)


def test_as_much_at_a_time_in_many_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = make("F"), []
    read = model.read
    monkeypatch.setattr(
        model, "read", lambda x, ids, state: (sizes.append(ids.numel()), read(x, ids, state))[1]
    )
    for streams in (1, 4, 20):
        evaluate(model, torch.randint(WORDS, (83,)), streams=streams, chunk=12)
    assert max(sizes) == 20 and sizes[:7] == [12] * 6 + [11]  # at least a step


def test_one_token_counts() -> None:
    model = make("F")
    assert evaluate(model, torch.tensor([7])).tokens == 1


def test_nothing_to_evaluate() -> None:
    with pytest.raises(DataError, match="no tokens"):
        evaluate(make("F"), torch.tensor([], dtype=torch.long))


def test_a_huge_loss_is_an_infinite_perplexity() -> None:
    assert Score(1e4, 1).perplexity == math.inf
    assert math.isclose(Score(math.log(50), 1).perplexity, 50)


@pytest.mark.gpu
@pytest.mark.parametrize("cell", ["F", "B-max-plus", "lstm"])
def test_on_a_gpu(cell: str) -> None:
    ids = torch.randint(WORDS, (5000,))
    expected = evaluate(make(cell), ids).loss
    for chunk in (8192, 700):
        loss = evaluate(make(cell, "cuda"), ids, chunk=chunk).loss
        assert math.isclose(loss, expected, rel_tol=1e-5)
