"""The model: padding, first weights, dropouts, streaming; torch's layers with our interface."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rrnn.errors import CellError
from rrnn.tasks.lm.model import MULTIPLE, Dropouts, LanguageModel, TorchRNN, language_cell
from rrnn.zoo import get_cell

CELLS = ["F", "B", "C", "B-max-plus", "SRU", "QRNN2", "minGRU", "lstm", "gru"]
WORDS = 70


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("embedding", [None, 8])
def test_word_by_word_is_the_same(cell: str, embedding: int | None) -> None:
    torch.manual_seed(0)
    model = LanguageModel(WORDS, 12, 2, embedding_size=embedding, cell=cell).eval()
    ids = torch.randint(WORDS, (9, 3))
    hidden, _ = model(ids)
    state, rows = None, []
    for word in ids:
        scores, state = model.step(word, state)
        rows.append(scores)
    torch.testing.assert_close(torch.stack(rows), model.scores(hidden), rtol=1e-4, atol=1e-5)
    first, carried = model(ids[:4])
    second, _ = model(ids[4:], carried)
    torch.testing.assert_close(torch.cat([first, second]), hidden, rtol=1e-4, atol=1e-5)


def test_padding_is_zero_and_never_scored() -> None:
    model = LanguageModel(WORDS, 12)
    assert len(model.embedding) == 2 * MULTIPLE
    assert not model.embedding[WORDS:].any()
    assert model.scores(torch.randn(4, 12)).shape == (4, WORDS)


@pytest.mark.parametrize("cell", ["F", "lstm", "gru"])
def test_first_weights_are_the_recipes(cell: str) -> None:
    torch.manual_seed(0)
    model = LanguageModel(WORDS, 48, 2, cell=cell, dropouts=Dropouts(variational=0.19))
    bound = math.sqrt(3 / 48)
    for name, p in model.named_parameters():
        real = p[:WORDS] if name in ("embedding", "bias") else p
        if p.dim() > 1:
            assert 0.95 * bound < real.abs().max() <= bound
            assert abs(real.mean()) < 0.05 * bound
        else:
            assert not real.any()
    torch.manual_seed(0)
    scaled = LanguageModel(WORDS, 48, 2, cell=cell, dropouts=Dropouts(variational=0.19), scale_rnn=True)
    assert torch.equal(scaled.embedding, model.embedding)
    for p, q in zip(scaled.rnn.parameters(), model.rnn.parameters(), strict=True):
        torch.testing.assert_close(p, q * 0.9)
    torch.manual_seed(0)
    larger = LanguageModel(WORDS, 48, 2, cell=cell, rnn_gain=3.0)
    assert torch.equal(larger.embedding, model.embedding)
    for p, q in zip(larger.rnn.parameters(), model.rnn.parameters(), strict=True):
        torch.testing.assert_close(p, q * 3)


@pytest.mark.parametrize("cell", ["F", "lstm"])
def test_an_embedding_of_another_size(cell: str) -> None:
    """Words and the last layer have it; matrices start by the size of what they read."""
    torch.manual_seed(0)
    model = LanguageModel(WORDS, 48, 3, embedding_size=27, cell=cell)
    assert model.rnn.hidden_sizes == (48, 48, 27)
    assert model(torch.randint(WORDS, (5, 2)))[0].shape == (5, 2, 27)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            bound = math.sqrt(3 / p.shape[1])
            assert 0.95 * bound < p.abs().max() <= bound, name
    assert [p.shape[1] for name, p in model.named_parameters() if name.endswith(("weight", "weight_ih"))] == [
        27,
        48,
        48,
    ]
    same = LanguageModel(WORDS, 48, 3, embedding_size=48, cell=cell)
    assert same.state_dict().keys() == LanguageModel(WORDS, 48, 3, cell=cell).state_dict().keys()


@pytest.mark.parametrize("cell", ["F", "lstm"])
def test_a_gain_leaves_biases_alone(cell: str) -> None:
    model = LanguageModel(WORDS, 8, 2, cell=cell, forget_bias=1.5, rnn_gain=3.0)
    largest = {float(p.detach().max()) for p in model.rnn.parameters() if p.dim() == 1}
    assert largest == {0.0, 1.5}


def test_output_gates_may_begin_open() -> None:
    model = LanguageModel(WORDS, 8, 2, cell="B-max-plus", output_bias=4.0)
    found = {name: set(p.tolist()) for name, p in model.rnn.named_parameters() if p.dim() == 1}
    assert found == {
        f"layers.{n}.cells.0.bias.{gate}": {first} for n in (0, 1) for gate, first in (("f", 0.0), ("o", 4.0))
    }
    for cell, message in (
        ("gru", r"output_bias=4\.0 needs a cell"),
        ("minGRU", "minGRU has none with a bias"),
    ):
        with pytest.raises(CellError, match=message):
            LanguageModel(WORDS, 8, cell=cell, output_bias=4.0)


def test_output_gate() -> None:
    assert language_cell("F") == get_cell("F+o")
    assert language_cell("F+o") == get_cell("F+o")
    assert language_cell("F", output_gate=False) == get_cell("F")
    assert language_cell("minGRU") == get_cell("minGRU")  # has none
    with pytest.raises(CellError, match="no cell"):
        language_cell("nobody")


def test_gate_biases_of_torchs_lstm() -> None:
    rnn = TorchRNN("lstm", 3, 4, forget_bias=1.0, output_bias=2.0)
    total = rnn.layers[0].bias_ih + rnn.layers[0].bias_hh  # pyright: ignore
    assert total.tolist() == [0] * 4 + [1] * 4 + [0] * 4 + [2] * 4


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_torchs_layers_are_torchs(kind: str) -> None:
    torch.manual_seed(0)
    ours = TorchRNN(kind, 5, 6, 2)  # pyright: ignore
    theirs = (nn.LSTM if kind == "lstm" else nn.GRU)(5, 6, 2)
    for i, layer in enumerate(ours.layers):
        for name, p in layer.named_parameters():
            getattr(theirs, f"{name}_l{i}").data.copy_(p)
    x = torch.randn(7, 3, 5)
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])


# ---- dropout ---------------------------------------------------------------------------------------------------------


class Spy(nn.Module):
    """In the place of the layers: keeps what it is given."""

    def forward(self, x: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        self.seen = x
        return torch.ones_like(x), state


def spied(**dropouts: float) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(WORDS, 40, dropouts=Dropouts(**dropouts))  # pyright: ignore
    model.rnn = Spy()  # pyright: ignore
    with torch.no_grad():
        model.embedding.fill_(1.0)
    return model


def test_output_dropout() -> None:
    model = spied(output=0.6)
    ids = torch.randint(WORDS, (30, 20))
    hidden, _ = model(ids)
    assert abs((hidden == 0).float().mean() - 0.6) < 0.02
    torch.testing.assert_close(hidden.max(), torch.tensor(1 / (1 - 0.6)))
    model.eval()
    assert bool((model(ids)[0] == 1).all())


@pytest.mark.parametrize("cell", ["B", "lstm"])
@pytest.mark.parametrize("streamed", [False, True])
def test_embedding_dropout_is_what_the_first_layer_sees(cell: str, streamed: bool) -> None:
    torch.manual_seed(0)
    model = LanguageModel(WORDS, 40, 2, cell=cell, dropouts=Dropouts(embedding=0.3))
    seen: list[torch.Tensor] = []
    model.rnn.layers[0].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model.embedding.fill_(1.0)
    ids = torch.randint(WORDS, (30, 20))
    model.step(ids.flatten()) if streamed else model(ids)
    model.eval()
    model(ids)
    assert abs((seen[0] == 0).float().mean() - 0.3) < 0.02
    torch.testing.assert_close(seen[0].max(), torch.tensor(1 / 0.7))
    assert bool((seen[1] == 1).all())


def test_locked_masks_are_the_same_at_all_steps() -> None:
    model = spied(embedding=0.5, output=0.5, locked=True)
    hidden, _ = model(torch.randint(WORDS, (5, 20)))
    for values in (model.rnn.seen, hidden):
        assert torch.equal(values, values[:1].expand_as(values))
        assert 0.4 < (values == 0).float().mean() < 0.6


def test_word_dropout_drops_a_word_everywhere() -> None:
    model = spied(word=0.4)
    ids = torch.randint(WORDS, (50, 20))
    model(ids)
    dropped = model.rnn.seen[..., 0] == 0
    for word in range(WORDS):
        here = dropped[ids == word]
        assert bool(here.all()) or not bool(here.any())
    assert 0.2 < dropped.float().mean() < 0.6


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_variational_and_between_dropout_of_torchs_layers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    rnn = TorchRNN(kind, 30, 30, 2, dropout=0.5, recurrent_dropout=0.25)  # pyright: ignore
    seen = []
    for layer in rnn.layers:
        layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    rnn(torch.ones(20, 10, 30))
    assert torch.equal(seen[0], seen[0][:1].expand_as(seen[0]))  # one mask for all steps
    assert 0.2 < (seen[0] == 0).float().mean() < 0.3
    always = (seen[1] == 0).all(0).float().mean()
    assert 0.2 < always < 0.3  # what the mask per sequence drops
    assert 0.55 < (seen[1] == 0).float().mean() < 0.7  # 1 − 0.75 · 0.5
    rnn.eval()
    assert torch.equal(rnn(torch.ones(2, 1, 30))[0], rnn(torch.ones(2, 1, 30))[0])
