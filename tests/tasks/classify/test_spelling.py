"""Features of words' letters: against loops in float64, unseen padding, words that nobody has met."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_classifier import tiny, tiny_config

import rrnn
from rrnn.tasks.classify import model as spelling
from rrnn.tasks.classify import trained
from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.model import LETTERS, Spelling, TextClassifier, encode, spell, spell_vocabulary
from rrnn.tasks.classify.prepare import prepare
from rrnn.tasks.classify.trained import TrainedClassifier
from rrnn.tasks.data.labelled import Dataset, Example
from rrnn.tasks.vocabulary import Vocabulary

EDGE = 257
LONG = "anti" + "dis" * 7 + "arianism"


def test_words_are_bytes_between_edges() -> None:
    table = spell(["bad", "ö", LONG, ""]).tolist()
    assert table[0] == [EDGE, *(ord(c) + 1 for c in "bad"), EDGE, *[0] * (LETTERS - 3)]
    assert table[1][:4] == [EDGE, 0xC3 + 1, 0xB6 + 1, EDGE]
    assert table[2] == [EDGE, *(ord(c) + 1 for c in LONG[:9] + LONG[-9:]), EDGE]
    assert table[3][:3] == [EDGE, EDGE, 0]
    assert spell(["\udc80"]).shape == (1, LETTERS + 2)  # half of a character, as broken files have it


def test_the_largest_answer_to_each_filter() -> None:
    torch.manual_seed(0)
    words = ["<pad>", "<unk>", "bad", "unwatchable", LONG]
    letters_of = Spelling(spell_vocabulary(Vocabulary(words, "<unk>")), 5).double()
    ids = torch.tensor([[2, 4, 3], [1, 0, 2]])
    weight, bias = letters_of.filters.weight, letters_of.filters.bias

    def slow(word: str) -> torch.Tensor:
        row = [0] * (LETTERS + 2) if word.startswith("<") else spell([word])[0].tolist()
        letters = [letters_of.letters[letter] for letter in row]
        windows = [torch.cat(letters[i : i + 3]) for i in range(len(letters) - 2)]
        return torch.stack([weight @ window + bias for window in windows]).max(0).values.tanh()

    expected = torch.stack([torch.stack([slow(words[i]) for i in row]) for row in ids.tolist()])
    torch.testing.assert_close(letters_of(ids), expected)
    letters_of(ids).sum().backward()
    assert letters_of.letters.grad is not None and not letters_of.letters.grad[0].any()  # padding stays 0


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "pooling": "max"}, {"cell": "LSTM"}])
def test_a_batch_equals_each_text_alone(options: dict[str, Any]) -> None:
    config = tiny_config(characters=4, **options)
    words = ["<pad>", "<unk>", "a", "film", "dull", "good"]
    net = TextClassifier(config, len(words), 2, spellings=spell(words)).eval()
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
        net = TextClassifier(config, len(words), 2, vectors=vectors, spellings=spell(words))
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
    assert model.module.spelling is not None and len(model.module.spelling.new) == 2
    other_name = TrainedClassifier(model.module, model.vocabulary, model.labels, model.config)
    assert chances(other_name, "film abc") != chances(
        other_name, "film cba"
    )  # who shares the module adds to it, too
    assert (
        chances(model, "good xyz") == chances(other_name, "good xyz") and chances(model, "good zzz") == other
    )
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert chances(twin, "good unwatchable") == one
    alone = rrnn.load(folder).predict(["zzz good", "good unwatchable", "a film"])
    assert alone[1].probabilities["yes"] == pytest.approx(dict(zip(model.labels, one, strict=True))["yes"])


def test_a_stream_of_new_words_does_not_fill_the_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spelling, "MOST_NEW", 3)
    model = rrnn.load(folder)
    numbers = model.encode([f"new{i}" for i in range(5)]).tolist()
    first = len(model.vocabulary)
    assert numbers == [first, first + 1, first + 2, 1, 1]
    assert model.encode(["new9", "new1"]).tolist() == [1, first + 1]
    assert np.isfinite(chances(model, "new9 new1")).all()


def test_unknown_words_have_numbers_of_their_own() -> None:
    vocabulary, new = Vocabulary(["<pad>", "<unk>", "a"], "<unk>"), {}
    words = ["b", "a", "c", "<unk>", "b", "d"]
    assert encode(vocabulary, words, new, 3, most=2).tolist() == [3, 2, 4, 1, 3, 1]
    assert list(new) == ["b", "c"]
    assert encode(vocabulary, [], new, 3).tolist() == []


@pytest.mark.parametrize("vectors", [False, True])
def test_training_and_prediction_read_unknown_words_alike(tmp_path: Path, vectors: bool) -> None:
    """Of dev and test, and, with vectors, of the training texts; what is evaluated is what a loaded model does."""
    texts = ["bad zyx film", "good wvu film", "good zyx", "bad tsr"]
    examples = [Example(text.split(), "good" in text) for text in texts]
    dataset = Dataset("letters", examples[:2] * 8, examples[2:], examples[2:], labels=["no", "yes"])
    config = tiny_config(epochs=2, characters=3, embedding_size=None)
    if vectors:
        (tmp_path / "vectors.txt").write_text("bad 1 0\ngood 0 1\nfilm 1 1\n")
        config = config.replace(vectors=str(tmp_path / "vectors.txt"))
    data = prepare(config, dataset)
    assert set(data.spelled) == ({"zyx", "wvu", "tsr"} if vectors else {"tsr"})
    assert prepare(config.replace(characters=0), dataset).spelled == ()
    result = train(config, tmp_path / "run", data=data)
    for model in (result.model, rrnn.load(tmp_path / "run")):
        ids = [model.encode(example.tokens) for example in dataset.test]
        again = model.probabilities(ids)
        with torch.no_grad():
            numbers, lengths = trained._padded(data.splits["test"][0])
            expected = result.model.module(numbers, lengths).softmax(-1).numpy()
        np.testing.assert_allclose(again, expected, rtol=1e-5)


def test_added_words_are_as_if_there_from_the_start() -> None:
    torch.manual_seed(0)
    vocabulary = Vocabulary(["<pad>", "<unk>", *"abcdefgh"], "<unk>")
    words = [*vocabulary.words, *(f"{i:x}word" for i in range(10, 6000))]
    whole = Spelling(spell(words), 3)
    torch.manual_seed(0)
    grown = Spelling(spell(vocabulary.words), 3)
    for first, last in ((10, 11), (11, 3000), (3000, 6000)):
        assert grown.encode(vocabulary, words[first:last]).tolist() == list(range(first, last))
        assert torch.equal(grown(torch.arange(last)), whole(torch.arange(last)))
