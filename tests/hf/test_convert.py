"""Models of runs become models for transformers, and come back, with the same outputs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from layer_cases import randomised
from random_classifiers import KINDS, classifier
from tiny_lm import train_tiny, write_corpus
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import rrnn
from rrnn.errors import ExportError
from rrnn.exporters import export
from rrnn.hf import RRNNConfig, RRNNForCausalLM, from_transformers, to_transformers
from rrnn.hf.tokenizers import tokenizer_of
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.vocabulary import Vocabulary

WORDS = ["<s>", "</s>", "the", "end", "don", "n't", ".", "a-b", "“", '"', "<unk>"]


def language_model(cell: str = "F", **options: Any) -> TrainedLanguageModel:
    torch.manual_seed(0)
    words = Vocabulary(WORDS, unknown="<unk>")
    module = randomised(LanguageModel(len(words), 6, 2, cell=cell)).eval()
    return TrainedLanguageModel(module, words, LMConfig(cell=cell, hidden_size=6, **options))


@pytest.mark.parametrize("cell", ["F", "QRNN2", "B-max-plus", "Mamba"])
def test_language_models(cell: str) -> None:
    model, ids = language_model(cell), torch.randint(0, 11, (6, 2))
    hidden, _ = model.module(ids)
    found = to_transformers(model)
    torch.testing.assert_close(found(ids.T).logits, model.module.scores(hidden).transpose(0, 1))
    again = from_transformers(found, model.vocabulary)
    assert isinstance(again, TrainedLanguageModel) and again.config.tokens == model.config.tokens
    torch.testing.assert_close(again.module(ids)[0], hidden)
    assert again.perplexity("the end") == pytest.approx(model.perplexity("the end"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("LSTM", "letters")])
def test_classifiers(kind: str) -> None:
    model = classifier(**KINDS[kind])
    ids, lengths = torch.randint(2, 7, (6, 4)), torch.tensor([6, 1, 3, 4])
    mask = torch.arange(6).unsqueeze(1) < lengths
    with torch.inference_mode():
        expected = model.module(ids, lengths)
        found = to_transformers(model)
        torch.testing.assert_close(found(ids.T, attention_mask=mask.T).logits, expected)
        again = from_transformers(found, model.vocabulary)
        torch.testing.assert_close(again.module(ids, lengths), expected)
    assert again.labels == model.labels == list(found.config.label2id)


def test_a_run_as_a_folder(tmp_path: Path) -> None:
    """What `rrnn export RUN -o FOLDER --format hf` writes is loaded by transformers alone, with a tokenizer."""
    result = train_tiny(tmp_path / "run", write_corpus(tmp_path / "corpus.txt"), epochs=1)
    model, folder = result.model, tmp_path / "exported"
    files = export(rrnn.load(tmp_path / "run"), folder, format="hf")
    names = {file.name for file in files}
    assert {"config.json", "model.safetensors", "tokenizer.json", "vocabulary.json"} <= names
    assert str(tmp_path) not in (folder / "config.json").read_text()
    found, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    given = tokenizer(["anna likes", "ben and carl like"], return_tensors="pt", padding=True)
    assert given["attention_mask"][0].tolist() == [0, 0, 1, 1, 1]  # padding is on the left
    out = found.generate(**given, max_new_tokens=3, do_sample=False)
    alone = model.generate("anna likes", length=3, top_k=1).split()[2:]
    assert tokenizer.decode(out[0][5:]).replace("</s>", "").split() == alone
    again = from_transformers(folder)
    assert again.perplexity("anna likes tea") == pytest.approx(model.perplexity("anna likes tea"))
    with pytest.raises(ExportError, match="not an empty folder"):
        export(model, folder, format="hf")


def test_classifiers_as_a_folder(tmp_path: Path) -> None:
    model = classifier(cleaning="text")
    export(model, tmp_path / "out", format="hf")
    found = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["A film, not very good!", "good"]
    logits = found(**tokenizer(texts, return_tensors="pt", padding=True)).logits
    for prediction, row in zip(model.predict(texts), logits.softmax(-1).tolist(), strict=True):
        assert list(prediction.probabilities.values()) == pytest.approx(row, abs=1e-5)


TEXTS = ["the end.", "don't", "“a-b” … the  end", "THE e.g. é 3.5 x->y!?!", "tab\tand – dash"]


@pytest.mark.parametrize("options", [{}, {"tokens": "text"}, {"level": "char"}])
def test_tokenizers_split_as_runs_do(options: dict[str, Any]) -> None:
    model = language_model(**options)
    tokenizer = tokenizer_of(model)
    assert tokenizer is not None
    for text in TEXTS:
        expected = model.vocabulary.encode(["<s>", *model.tokenise(text)][:-1]).tolist()
        assert tokenizer(text)["input_ids"] == expected


@pytest.mark.parametrize("cleaning", ["none", "lower", "text"])
def test_tokenizers_split_as_classifiers_do(cleaning: str) -> None:
    model = classifier(cleaning=cleaning)
    tokenizer = tokenizer_of(model)
    assert tokenizer is not None
    for text in ["a Film not very good", "good"]:
        assert tokenizer(text)["input_ids"] == model.encode(model.tokenise(text)).tolist()
    assert tokenizer_of(classifier(cleaning="kim")) is None


def untied() -> RRNNForCausalLM:
    return RRNNForCausalLM(RRNNConfig(vocab_size=11, hidden_size=4, tie_word_embeddings=False))


BAD: dict[str, tuple[Any, str]] = {
    "LSTM": (lambda: to_transformers(language_model("lstm")), "torch's LSTM is not a layer of rational"),
    "an LSTM classifier": (lambda: to_transformers(classifier(cell="LSTM")), "LSTM is not a layer"),
    "blocks": (
        lambda: to_transformers(classifier(block="auto")),
        "a block .*: train a model of a cell, without",
    ),
    "letters": (lambda: to_transformers(classifier(characters=3)), "letters.*characters=0"),
    "a layer": (lambda: to_transformers(rrnn.RationalRNN("F", 2, 2)), "got RationalRNN"),  # pyright: ignore[reportArgumentType]
    "no vocabulary": (lambda: from_transformers(untied()), "give vocabulary="),
    "another vocabulary": (lambda: from_transformers(untied(), Vocabulary(["a"])), "11 tokens.* 1 words"),
    "another head": (lambda: from_transformers(untied(), Vocabulary(WORDS)), "tied output layer"),
    "no folder": (lambda: from_transformers("nowhere"), "nowhere has no vocabulary.json"),
    "options": (
        lambda: from_transformers(
            RRNNForCausalLM(RRNNConfig("GLA", 11, 8, heads=2, norm="layer")), Vocabulary(WORDS)
        ),
        "heads=2, norm='layer'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_converted(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(ExportError, match=message):
        make()


def test_a_failed_export_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(RRNNForCausalLM, "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        export(language_model(), tmp_path / "out", format="hf")
    with pytest.raises(ExportError, match="options of ONNX and C"):
        export(language_model(), tmp_path / "out", format="hf", name="x")
    assert not list(tmp_path.iterdir())


def test_nothing_warns_of_weights(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    export(language_model(), tmp_path / "out", format="hf")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, info = RRNNForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
