from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_classifier import tiny_config

from rrnn.tasks.classify.model import TextClassifier

TEXTS = [[2, 3, 4], [5], [2, 2, 6, 7, 3, 4, 5], [3, 4]]


def padded(texts: list[list[int]], steps: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.zeros(steps, len(texts), dtype=torch.int64)
    for column, text in enumerate(texts):
        ids[: len(text), column] = torch.tensor(text)
    return ids, torch.tensor([len(text) for text in texts])


def model(**options: Any) -> TextClassifier:
    return TextClassifier(tiny_config(**options), words=8, classes=3)


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["F", "LSTM", "QRNN2"])
def test_a_batch_equals_each_text_alone(cell: str, bidirectional: bool, pooling: str) -> None:
    """Whatever the padding: nothing of it is seen."""
    net = model(cell=cell, bidirectional=bidirectional, pooling=pooling).eval()
    together = net(*padded(TEXTS))
    for row, text in enumerate(TEXTS):
        alone = net(torch.tensor(text).unsqueeze(1), torch.tensor([len(text)]))
        torch.testing.assert_close(together[row], alone[0])


@pytest.mark.parametrize("pooling", ["last", "mean", "max", "attention"])
def test_a_text_without_words_is_finite(pooling: str) -> None:
    net = model(pooling=pooling).eval()
    assert net(*padded([[], [2]])).isfinite().all()


def test_linear_readout_reads_the_units_themselves() -> None:
    net = model(readout="linear", layers=1).eval()
    ids, lengths = padded([[2, 3, 4]])
    outputs, _ = net.layers[0](net.embedding[ids])
    expected = outputs[2] @ net.readout.weight.T + net.readout.bias
    torch.testing.assert_close(net(ids, lengths), expected)


def test_variational_masks_are_the_same_at_all_steps() -> None:
    net = model(recurrent_dropout=0.5, embedding_dropout=0.0, vertical_dropout=0.0).train()
    net.embedding.data.fill_(1.0)
    seen: list[torch.Tensor] = []
    net.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    net(*padded([[2, 3, 4], [2, 3, 4]], steps=3))
    (x,) = seen
    assert ((x == 0) | (x == 2)).all() and (x == 0).any() and (x == 2).any()
    assert (x == x[0]).all()
    assert (x[0, 0] != x[0, 1]).any()  # a mask for each text


def test_words_are_dropped_whole() -> None:
    net = model(word_dropout=0.5, recurrent_dropout=0.0, embedding_dropout=0.0, vertical_dropout=0.0).train()
    net.embedding.data.fill_(1.0)
    seen: list[torch.Tensor] = []
    net.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    net(*padded([[2, 2, 2, 2, 2, 2, 2, 2]] * 4, steps=8))
    (x,) = seen
    assert ((x == 0) | (x == 2)).all() and (x == x[:, :, :1]).all()
    assert (x[:, :, 0] != x[:1, :, 0]).any() and (x[:, :, 0] != x[:, :1, 0]).any()  # a mask for each place


@pytest.mark.parametrize("kind", ["word", "embedding", "vertical", "recurrent"])
def test_each_dropout_acts_in_training_alone(kind: str) -> None:
    off = {f"{name}_dropout": 0.0 for name in ("word", "embedding", "vertical", "recurrent")}
    net = model(**off | {f"{kind}_dropout": 0.5})
    batch = padded(TEXTS)
    net.train()
    assert (net(*batch) != net(*batch)).any()
    net.eval()
    assert (net(*batch) == net(*batch)).all()


def test_dropout_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    model().train()(*padded(TEXTS))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_new_model_leaves_the_generators_of_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    torch.manual_seed(5)
    assert seeds == [5]
    model()
    assert seeds == [5]


def test_a_seed_decides_the_first_weights() -> None:
    first, same, other = (model(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_fixed_vectors_are_no_weights_and_tuned_ones_are() -> None:
    vectors = torch.randn(8, 6)
    fixed = TextClassifier(tiny_config(), 8, 2, vectors=vectors)
    assert "embedding" not in fixed.state_dict() and not fixed.embedding.requires_grad
    tuned = TextClassifier(tiny_config(vectors="some", fine_tune=True), 8, 2, vectors=vectors)
    assert "embedding" in tuned.state_dict() and tuned.embedding.requires_grad
