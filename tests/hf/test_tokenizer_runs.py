"""Runs that were trained with a tokenizer.json, as folders for transformers and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_classifier
from tiny_lm import train_tiny, write_corpus
from tiny_tokenizers import KINDS, write_tokenizer
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import rrnn
from rrnn.errors import ExportError
from rrnn.exporters import export
from rrnn.hf import from_transformers
from rrnn.tasks.classify.experiment import train as train_classifier


@pytest.mark.parametrize("kind", KINDS)
def test_a_language_model_with_a_tokenizer(kind: str, tmp_path: Path) -> None:
    """Its folder has the run's tokenizer, which adds the start symbol and nothing else."""
    given = write_tokenizer(tmp_path / "given.json", kind)
    data = write_corpus(tmp_path / "corpus.txt")
    model = train_tiny(tmp_path / "run", data, epochs=1, tokenizer=str(given)).model
    export(rrnn.load(tmp_path / "run"), tmp_path / "out", format="hf")
    assert str(tmp_path) not in (tmp_path / "out" / "config.json").read_text()
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in (
        "anna likes",
        "naïve café, for a text that is longer than the file's own limit of tokens",
        "",
    ):
        expected = model.vocabulary.encode(["<s>", *model.tokenise(text)][:-1]).tolist()
        assert tokenizer(text)["input_ids"] == expected
    batch = tokenizer(["anna likes", "ben and carl like tea"], return_tensors="pt", padding=True)
    out = found.generate(**batch, max_new_tokens=5, do_sample=False)
    drawn = tokenizer.convert_ids_to_tokens(out[0][batch["input_ids"].shape[1] :])
    expected = list(model.stream("anna likes", length=5, top_k=1))
    if "</s>" in expected:  # where transformers stops
        expected = expected[: expected.index("</s>") + 1]
    assert drawn[: len(expected)] == expected
    again = from_transformers(tmp_path / "out")
    for text in ("anna likes tea", "literally </s> and <s>"):
        assert again.perplexity(text) == pytest.approx(model.perplexity(text))
    with pytest.raises(ExportError, match="a file beside it: give the model's folder"):
        from_transformers(found, model.vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifier_with_a_tokenizer(kind: str, tmp_path: Path) -> None:
    given = write_tokenizer(tmp_path / "given.json", kind)
    data = tmp_path / "texts.txt"
    data.write_text("".join(f"{i % 2} a {'good' if i % 2 else 'bad'} film {i}\n" for i in range(40)))
    config = tiny_classifier.tiny_config(data=str(data), epochs=1, pooling="mean", bidirectional=True)
    model = train_classifier(config.replace(tokenizer=str(given)), tmp_path / "run").model
    export(model, tmp_path / "out", format="hf")
    found = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["A film, not very good!", "good", "bad café"]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    again = from_transformers(tmp_path / "out")
    for logits in (
        found(**batch).logits,
        found(batch["input_ids"]).logits,
    ):  # with its mask, and by the padding
        for prediction, other, row in zip(
            model.predict(texts), again.predict(texts), logits.softmax(-1).tolist(), strict=True
        ):
            assert list(prediction.probabilities.values()) == pytest.approx(row, abs=1e-5)
            assert list(other.probabilities.values()) == pytest.approx(row, abs=1e-5)
