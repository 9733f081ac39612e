"""Features of words' letters: against loops in float64, unseen padding, words that nobody has met."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_texts import tiny, tiny_config

import rrnn
from rrnn.tasks.classify import trained
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.prepare import prepare
from rrnn.tasks.classify.spelling import LETTERS, Spelling, spell
from rrnn.tasks.classify.train import train
from rrnn.tasks.classify.trained import TrainedClassifier

EDGE = 257
LONG = "anti" + "dis" * 7 + "arianism"


def test_words_are_bytes_between_edges() -> None:
    table = spell(["<pad>", "bad", "ö", LONG, ""], silent=1).tolist()
    assert table[0] == [0] * (LETTERS + 2)
    assert table[1] == [EDGE, *(ord(c) + 1 for c in "bad"), EDGE, *[0] * (LETTERS - 3)]
    assert table[2][:4] == [EDGE, 0xC3 + 1, 0xB6 + 1, EDGE]
    assert table[3] == [EDGE, *(ord(c) + 1 for c in LONG[:9] + LONG[-9:]), EDGE]
    assert table[4][:3] == [EDGE, EDGE, 0]
    assert spell(["\udc80"]).shape == (1, LETTERS + 2)  # half of a character, as broken files have it


def test_the_largest_answer_to_each_filter() -> None:
    torch.manual_seed(0)
    words = ["<pad>", "<unk>", "bad", "unwatchable", LONG]
    spelling = Spelling(spell(words, silent=2), 5).double()
    ids = torch.tensor([[2, 4, 3], [1, 0, 2]])
    weight, bias = spelling.filters.weight, spelling.filters.bias

    def slow(word: str) -> torch.Tensor:
        row = spell([word], silent=word.startswith("<"))[0].tolist()
        letters = [spelling.letters[letter] for letter in row]
        windows = [torch.cat(letters[i : i + 3]) for i in range(len(letters) - 2)]
        return torch.stack([weight @ window + bias for window in windows]).max(0).values.tanh()

    expected = torch.stack([torch.stack([slow(words[i]) for i in row]) for row in ids.tolist()])
    torch.testing.assert_close(spelling(ids), expected)
    spelling(ids).sum().backward()
    assert spelling.letters.grad is not None and not spelling.letters.grad[0].any()  # padding stays 0


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "pooling": "max"}, {"cell": "LSTM"}])
def test_a_batch_equals_each_text_alone(options: dict[str, Any]) -> None:
    config = tiny_config(characters=4, **options)
    words = ["<pad>", "<unk>", "a", "film", "dull", "good"]
    net = TextClassifier(config, len(words), 2, spellings=spell(words, silent=2)).eval()
    texts = [[2, 3, 4], [5], [1, 3]]
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts])
    together = net(ids, torch.tensor([len(text) for text in texts]))
    for row, text in enumerate(texts):
        alone = net(torch.tensor(text).unsqueeze(1), torch.tensor([len(text)]))
        torch.testing.assert_close(together[row], alone[0])


def test_letters_are_as_loud_as_vectors() -> None:
    """Whatever the vectors' length is: neither drowns the other."""
    words = [*("<pad>", "<unk>"), *(f"word{i}" for i in range(50))]
    for length in (1.0, 5.0):
        config = tiny_config(characters=40, vectors="given", vector_length=length)
        vectors = length * torch.nn.functional.normalize(torch.randn(len(words), 100))
        net = TextClassifier(config, len(words), 2, vectors=vectors, spellings=spell(words, silent=2))
        given, learned = net.embed(torch.arange(2, 52)).split([100, 40], -1)
        assert 0.3 < learned.square().mean().sqrt() / given.square().mean().sqrt() < 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(epochs=4, characters=5)
    train(config, path := tmp_path_factory.mktemp("runs") / "run", data=tiny(config, vectors=True))
    return path


def chances(model: TrainedClassifier, text: str) -> list[float]:
    return list(model.predict([text])[0].probabilities.values())


def test_new_words_have_letters(folder: Path) -> None:
    model = rrnn.load(folder)
    one, other = chances(model, "good unwatchable"), chances(model, "good zzz")
    assert one != other and chances(model, "good unwatchable") == one  # whoever was met in between
    assert model.encode(["good", "zzz", "<unk>", "zzz"]).tolist() == [
        *model.vocabulary.encode(["good"]),
        len(model.vocabulary) + 1,
        1,
        len(model.vocabulary) + 1,
    ]
    assert model.module.spelling is not None and model.module.spelling.words == len(model.vocabulary) + 2
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert chances(twin, "good unwatchable") == one
    alone = rrnn.load(folder).predict(["zzz good", "good unwatchable", "a film"])
    assert alone[1].probabilities["yes"] == pytest.approx(dict(zip(model.labels, one, strict=True))["yes"])


def test_a_stream_of_new_words_does_not_fill_the_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained, "_NEW_WORDS", 3)
    model = rrnn.load(folder)
    numbers = model.encode([f"new{i}" for i in range(5)]).tolist()
    first = len(model.vocabulary)
    assert numbers == [first, first + 1, first + 2, 1, 1]
    assert model.encode(["new9", "new1"]).tolist() == [1, first + 1]
    assert np.isfinite(chances(model, "new9 new1")).all()


def test_words_without_a_vector_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("0 bad zyx film\n1 good wvu film\n" * 20)
    (tmp_path / "vectors.txt").write_text("bad 1 0\ngood 0 1\nfilm 1 1\n")
    config = tiny_config(
        data=str(tmp_path / "train.txt"), vectors=str(tmp_path / "vectors.txt"), embedding_size=None
    )
    assert "zyx" not in prepare(config).vocabulary
    data = prepare(config.replace(characters=3))
    assert data.vectors is not None and data.spellings is not None
    zyx, wvu, unknown = data.vocabulary.encode(["zyx", "wvu", "<unk>"])
    assert zyx != wvu and (data.vectors[[zyx, wvu]] == data.vectors[unknown]).all()
    assert (data.spellings[zyx] != data.spellings[wvu]).any() and not data.spellings[unknown].any()
    assert prepare(config).spellings is None


def test_added_words_are_as_if_there_from_the_start() -> None:
    torch.manual_seed(0)
    words = [f"{i:x}word" for i in range(6000)]
    spelling = Spelling(spell(words), 3)
    torch.manual_seed(0)
    grown = Spelling(spell(words[:10]), 3)
    for first, last in ((10, 11), (11, 3000), (3000, 6000)):
        grown.add(words[first:last])
        assert torch.equal(grown(torch.arange(last)), spelling(torch.arange(last)))
