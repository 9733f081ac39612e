"""Deleting words fast gives what the definition gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rrnn.nn.product import linear
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.deletion import logits_by_definition, logits_without_each
from rrnn.tasks.classify.model import TextClassifier

WORDS = 30


def classifier(cell: str = "F", *, gain: float = 1.0, **options: Any) -> TextClassifier:
    config = ClassifyConfig(data="none", cell=cell, hidden_size=6, embedding_size=5, **options)
    model = TextClassifier(config, WORDS, 3).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(gain)
    return model


def text(length: int) -> torch.Tensor:
    return torch.randint(2, WORDS, (length,), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@pytest.mark.parametrize("gain", [1.0, 4.0])  # gates that forget at once, and gates that are open or closed
@pytest.mark.parametrize("cell", ["F", "B-max-plus", "QRNN3", "LSTM"])
def test_as_the_definition(cell: str, gain: float, pooling: str) -> None:
    model = classifier(cell, gain=gain, pooling=pooling)
    for length in (1, 2, 8, 9, 17, 40):
        ids = text(length)
        whole, rows = logits_without_each(model, ids, 4)
        expected, by_definition = logits_by_definition(model, ids)
        torch.testing.assert_close(whole, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rows, by_definition, rtol=1e-5, atol=1e-5)
        effects = (by_definition - expected).abs()
        assert length < 8 or effects.max() > 1e-4  # there is something to agree about


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@pytest.mark.parametrize("gain", [1.0, 4.0])
@pytest.mark.parametrize("cell", ["F", "B-max-plus", "QRNN3", "LSTM"])
def test_both_directions(cell: str, gain: float, pooling: str) -> None:
    model = classifier(cell, gain=gain, pooling=pooling, bidirectional=True)
    for length in (1, 8, 9, 10, 17, 40):
        whole, rows = logits_without_each(model, text(length), 4)
        expected, by_definition = logits_by_definition(model, text(length))
        torch.testing.assert_close(whole, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(rows, by_definition, rtol=1e-5, atol=1e-5)


def test_the_work_of_both_directions_grows_with_the_length() -> None:
    model, steps = classifier(bidirectional=True), [0]
    for layer in model.layers:
        layer.register_forward_pre_hook(
            lambda _, args: steps.__setitem__(0, steps[0] + args[0].shape[0] * args[0].shape[1])
        )
    work = []
    for length in (200, 800):
        steps[0] = 0
        logits_without_each(model, text(length), 8)
        work.append(steps[0])
    assert work[1] < 5 * work[0] and work[1] < 800 * 400


def test_the_work_grows_with_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with its square: words are forgotten."""
    model, steps = classifier(), [0]
    run = model.run_layers

    def counted(x: torch.Tensor, states: Any = None) -> Any:
        steps[0] += x.shape[0] * x.shape[1]
        return run(x, states)

    monkeypatch.setattr(model, "run_layers", counted)
    work = []
    for length in (200, 800):
        steps[0] = 0
        logits_without_each(model, text(length), 8)
        work.append(steps[0])
    assert work[1] < 5 * work[0] and work[1] < 800 * 100


def test_a_batch_of_one_sequence_is_multiplied_once() -> None:
    weight, x = torch.randn(7, 5), torch.randn(3, 1, 5)
    with torch.no_grad():
        y = linear(x.expand(-1, 4, -1), weight)
    assert y.shape == (3, 4, 7) and y.stride(1) == 0
    torch.testing.assert_close(y, x.expand(-1, 4, -1) @ weight.T)
