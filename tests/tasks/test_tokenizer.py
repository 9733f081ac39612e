"""Runs whose texts are split by a tokenizer.json: trained, resumed, used, exported; and files that are none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_classifier
from tiny_lm import tiny_config, train_tiny, write_corpus
from tiny_tokenizers import KINDS, write_tokenizer
from tokenizers import Tokenizer as Made

import rrnn
from rrnn.errors import DataError, FormatError, RRNNError, RunError
from rrnn.explorer import explain_tab
from rrnn.report.run_summaries import _read as read_summary
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.examples import choose_examples, strongest_units
from rrnn.tasks.classify.experiment import train as train_classifier
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.classify.folds import cross_validate
from rrnn.tasks.classify.prepare import read_dataset
from rrnn.tasks.classify.trained import TrainedClassifier, evaluate, labelled_texts
from rrnn.tasks.configs import FACTS
from rrnn.tasks.lm.config import LMConfig
from rrnn.tasks.lm.trained import TrainedLanguageModel
from rrnn.tasks.runs import TOKENIZER, Run
from rrnn.tasks.tokenizer import MAX_BYTES, Tokenizer

SPECIALS = ("<s>", "</s>")
SENTENCES = ["a good film", "naïve café — £3.50", "Zebras, 日本 …", "", "  two  blanks", "<s> literally </s>"]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def language(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a language model."""
    here = tmp_path_factory.mktemp(kind)
    tokenizer = write_tokenizer(here / "given.json", kind)
    train_tiny(here / "run", write_corpus(here / "corpus.txt"), tokenizer=str(tokenizer))
    return here / "run"


def write_reviews(path: Path) -> Path:
    rows = [(i % 2, f"The film, n° {i}, is {'not ' * (i % 2)}good") for i in range(80)]
    path.write_text("".join(f"{'no' if label else 'yes'} {text}\n" for label, text in rows), encoding="utf-8")
    return path


def review_config(here: Path, kind: str, **changes: Any) -> ClassifyConfig:
    given = {
        "data": str(write_reviews(here / "reviews.txt")),
        "tokenizer": str(write_tokenizer(here / "given.json", kind)),
    }
    return tiny_classifier.tiny_config(**{**given, "layers": 1, "readout": "linear", **changes})


@pytest.fixture(scope="module")
def classifier(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a text classifier."""
    here = tmp_path_factory.mktemp(kind)
    train_classifier(review_config(here, kind), here / "run")
    return here / "run"


# ---- the file --------------------------------------------------------------------------------------------------------


def test_tokens_and_ids_are_those_of_the_package(kind: str, tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "t.json", kind)
    ours, theirs = Tokenizer.read(path, SPECIALS), Made.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    for text in SENTENCES[:-1]:
        tokens = ours.split(text)
        assert ours.vocabulary.encode(tokens).tolist() == theirs.encode(text, add_special_tokens=False).ids
        assert set(tokens) <= set(ours.vocabulary.words)
    size = theirs.get_vocab_size()
    assert ours.vocabulary.words[:size] == [theirs.id_to_token(n) for n in range(size)]
    assert set(ours.vocabulary.words[size:]) == ({*SPECIALS} if kind != "unigram" else set())
    unknown = {"byte-level": None, "word-piece": "[UNK]", "unigram": "<unk>"}[kind]
    assert ours.vocabulary.unknown == unknown


def test_pieces_are_the_joined_text(kind: str, tmp_path: Path) -> None:
    """Token by token, with characters of several bytes whole, and nothing lost at the end of a line."""
    made = Tokenizer.read(write_tokenizer(tmp_path / "t.json", kind), SPECIALS)
    line, rest = "a very", ["good naïve café — £3.50", "日本 film"]
    tokens = [*made.split(f"{line} {rest[0]}")[len(made.split(line)) :], "</s>", *made.split(rest[1])]
    pieces = list(made.pieces(line, iter(tokens), "</s>"))
    text = line + "".join(pieces)
    assert text.split("\n") == [
        made.join(made.split(f"{line} {rest[0]}")),
        made.join(made.split(rest[1])),
    ]
    if kind == "byte-level":
        assert text == f"{line} {rest[0]}\n{rest[1]}" and not any("\ufffd" in piece for piece in pieces)


def test_an_incomplete_character_at_the_end_is_shown(tmp_path: Path) -> None:
    made = Tokenizer.read(write_tokenizer(tmp_path / "t.json"), SPECIALS)
    first, *_ = made.split("日")
    assert "".join(made.pieces("", iter(["a", first]), "</s>")) == "a\ufffd"
    assert "".join(made.pieces("", iter(["a", first, "</s>", "b"]), "</s>")) == "a\ufffd\nb"
    assert len(list(made.pieces("", iter([first] * 50), "</s>"))) > 3  # it does not wait for ever


def cut(content: dict[str, Any], **changes: Any) -> str:
    return json.dumps(content | changes)


BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no JSON": (lambda c: "vocab", "a tokenizer is a JSON file"),
    "cut off": (lambda c: json.dumps(c)[:500], "a tokenizer is a JSON file"),
    "nested": (lambda c: "[" * 100_000, "nested too deeply"),
    "bytes": (lambda c: b"\xff\xfe\x00", "a tokenizer is a JSON file.*utf-8"),
    "a list": (lambda c: "[]", 'a JSON object with a "model".*save_pretrained'),
    "a configuration": (lambda c: '{"model_type": "gpt2"}', 'a JSON object with a "model"'),
    "no kind": (lambda c: cut(c, model={"type": "GPT"}), "no tokenizer.json that the package tokenizers can"),
    "no tokens": (
        lambda c: cut(c, model={"type": "BPE", "vocab": {}, "merges": []}, added_tokens=[]),
        "none",
    ),
    "a gap": (
        lambda c: cut(c, model={"type": "BPE", "vocab": {"a": 0, "b": 7}, "merges": []}, added_tokens=[]),
        "ids of a tokenizer's 4 tokens must be 0 to 3, but none has the id",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_are_no_tokenizer(case: str, tmp_path: Path) -> None:
    make, message = BAD[case]
    data = make(json.loads(KINDS["byte-level"]().to_str()))
    path = tmp_path / "given.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with pytest.raises(FormatError, match=message) as caught:
        train_tiny(tmp_path / "run", write_corpus(tmp_path / "corpus.txt"), tokenizer=str(path))
    assert str(path) in str(caught.value) and not (tmp_path / "run").exists()


def test_files_that_are_not_there_or_have_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"there is no such file. A tokenizer is a tokenizer\.json"):
        Tokenizer.read(tmp_path / "missing.json", SPECIALS)
    with pytest.raises(DataError, match=r"is a folder\. Name the file in it"):
        Tokenizer.read(tmp_path, SPECIALS)
    monkeypatch.setattr("rrnn.tasks.tokenizer.MAX_BYTES", 1000)
    with pytest.raises(FormatError, match="at most 1,000 bytes"):
        Tokenizer.read("/dev/zero", SPECIALS)
    with pytest.raises(FormatError, match="at most 1,000 bytes"):
        Tokenizer.read(write_tokenizer(tmp_path / "t.json"), SPECIALS)
    assert MAX_BYTES == 2**28


def test_without_the_package_its_extra_is_named(
    language: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What needs no text works all the same."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    model = rrnn.load(language)
    with pytest.raises(DataError, match=r"tokenizers.*pip install 'rrnn\[hf\]'"):
        model.perplexity("anna likes tea")
    rrnn.export(model, tmp_path / "model.c")
    rrnn.export(model, tmp_path / "model.onnx")


def test_the_package_is_not_imported_without_a_tokenizer() -> None:
    code = (
        "import sys, rrnn.tasks.lm.trained, rrnn.tasks.classify.trained; print('tokenizers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---- language models -------------------------------------------------------------------------------------------------


def test_a_language_model_is_resumed_from_its_own_copy(language: Path) -> None:
    given = language.parent / "given.json"
    assert (language / TOKENIZER).read_bytes() == given.read_bytes()
    config = json.loads((language / "config.json").read_text())
    assert config["tokenizer"] == TOKENIZER
    whole = rrnn.load(language)
    before, data = whole.module.state_dict(), language.parent / "corpus.txt"
    content = given.read_bytes()
    given.unlink()
    try:
        resumed = train_tiny(language, data, tokenizer=str(given))
        assert all((resumed.model.module.state_dict()[name] == before[name]).all() for name in before)
        again = LMConfig.from_file(language / "config.json")
        assert again.tokenizer == str(language / TOKENIZER)
    finally:
        given.write_bytes(content)


def test_another_tokenizer_is_another_training(language: Path, kind: str, tmp_path: Path) -> None:
    other = write_tokenizer(tmp_path / "other.json", "unigram" if kind != "unigram" else "word-piece")
    with pytest.raises(RunError, match=r"the tokenizer differs from tokenizer\.json"):
        train_tiny(language, language.parent / "corpus.txt", tokenizer=str(other))
    with pytest.raises(RunError, match="tokenizer: was"):
        train_tiny(language, language.parent / "corpus.txt")


def test_a_language_model_reads_and_writes_text(language: Path) -> None:
    model: TrainedLanguageModel = rrnn.load(language)
    assert model.tokenizer is not None and "tokens>" in repr(model)
    text = "anna and ben like tea"
    ids = model.vocabulary.encode([*model.tokenizer.split(text), "</s>"])
    assert model.vocabulary.encode(model.tokenise(text)).tolist() == ids.tolist()
    assert np.isfinite(model.perplexity(text)) and model.read_split("dev")
    written = model.generate("anna likes", length=30, seed=3)
    assert written.startswith("anna likes") and "Ġ" not in written and "▁" not in written
    assert written == model.generate("anna likes", length=30, seed=3)


def test_a_changed_copy_is_found_out(language: Path, kind: str) -> None:
    path = language / TOKENIZER
    content = path.read_bytes()
    try:
        write_tokenizer(path, "unigram" if kind != "unigram" else "word-piece")
        with pytest.raises(FormatError, match="not the tokenizer that the model was trained with"):
            rrnn.load(language).perplexity("anna likes tea")
        path.unlink()
        with pytest.raises(DataError, match="there is no such file"):
            rrnn.load(language)
    finally:
        path.write_bytes(content)


def test_perplexities_of_different_tokens_are_not_compared(language: Path, kind: str, tmp_path: Path) -> None:
    title = read_summary(language, "run").data
    assert re.fullmatch(r"corpus\.txt, by the tokenizer [0-9a-f]{6}", title)
    train_tiny(tmp_path / "words", language.parent / "corpus.txt", epochs=1)
    assert read_summary(tmp_path / "words", "run").data == "corpus.txt"


@pytest.mark.parametrize("option", [{"level": "char"}, {"tokens": "text"}, {"max_words": 50}])
def test_options_of_language_models_that_contradict_it(option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"and so does {next(iter(option))}: leave out one of them"):
        tiny_config(tmp_path, tokenizer="t.json", **option)


# ---- classifiers -----------------------------------------------------------------------------------------------------


def test_a_classifier_predicts_and_explains(classifier: Path, kind: str) -> None:
    model: TrainedClassifier = rrnn.load(classifier)
    assert (classifier / TOKENIZER).exists() and str(classifier.parent / "given.json") not in (
        classifier / "config.json"
    ).read_text()
    assert model.tokenizer is not None and model.vocabulary.words.count("<pad>") == 1
    texts, labels = labelled_texts(model, "test")
    assert evaluate(model, texts, labels).texts == len(labels)
    text = "The film is not good"
    (prediction,) = model.predict([text])
    explained = explain(model, text)
    assert explained.probabilities == pytest.approx(prediction.probabilities)
    assert [word.token for word in explained.words] == model.tokenise(text)
    assert all(word.known for word in explained.words)
    assert [
        word["token"] for word in explain_tab.explain(str(classifier), text, None)["words"]
    ] == model.tokenise(text)
    short = TrainedClassifier(
        model.module, model.vocabulary, model.labels, model.config.replace(max_tokens=3), model.tokenizer
    )
    assert short.tokenise(text) == model.tokenise(text)[:3]
    with pytest.raises(DataError, match="trained with a tokenizer, which is missing"):
        TrainedClassifier(model.module, model.vocabulary, model.labels, model.config)


def test_examples_and_units_of_a_classifier(classifier: Path) -> None:
    """They are chosen from whole words, which the model splits itself."""
    model: TrainedClassifier = rrnn.load(classifier)
    dev = read_dataset(model.config.replace(tokenizer=None, cleaning="none")).dev
    assert choose_examples(dev, [model])
    assert strongest_units(model, dev, "yes", most=2, top=1)


def test_a_classifier_is_resumed(kind: str, tmp_path: Path) -> None:
    config = review_config(tmp_path, kind, epochs=2)
    train_classifier(config, tmp_path / "run")
    whole = train_classifier(config.replace(epochs=3), tmp_path / "whole")
    (tmp_path / "given.json").unlink()
    resumed = train_classifier(config.replace(epochs=3), tmp_path / "run", resume=True)
    assert resumed.history[-1]["train_loss"] == whole.history[-1]["train_loss"]
    facts = Run.open(tmp_path / "run").config[FACTS]
    assert facts["data_sha256"] == Run.open(tmp_path / "whole").config[FACTS]["data_sha256"]


def test_folds_keep_a_copy_each(tmp_path: Path) -> None:
    config = review_config(tmp_path, "word-piece", epochs=1, folds=2)
    cross_validate(config, tmp_path / "folds")
    for number in (1, 2):
        assert (tmp_path / "folds" / f"fold-{number}" / TOKENIZER).exists()
    cross_validate(config, tmp_path / "folds", resume=True)  # finished ones are only read
    write_tokenizer(tmp_path / "given.json", "unigram")
    with pytest.raises(RunError, match="trained with another setting: tokenizer"):
        cross_validate(config, tmp_path / "folds", resume=True)


@pytest.mark.slow
def test_a_search_keeps_a_copy(tmp_path: Path) -> None:
    from rrnn.tasks.classify.search import search_classifier

    config = review_config(tmp_path, "word-piece", epochs=1)
    search_classifier(config, tmp_path / "search", trials=1, seeds=1)
    best = ClassifyConfig.from_file(tmp_path / "search" / "best.json")
    assert best.tokenizer == str(tmp_path / "search" / TOKENIZER)
    assert rrnn.load(tmp_path / "search" / "seed-0").predict(["not good"])
    other = config.replace(tokenizer=str(write_tokenizer(tmp_path / "other.json", "unigram")))
    with pytest.raises(RunError, match="begun with another configuration:\n  tokenizer"):
        search_classifier(other, tmp_path / "search", trials=2, seeds=0)


@pytest.mark.parametrize(
    "option", [{"cleaning": "lower"}, {"vectors": "v.txt"}, {"characters": 4}, {"rules": "rules.txt"}]
)
def test_options_of_classifiers_that_contradict_it(option: dict[str, Any]) -> None:
    with pytest.raises(RunError, match=f"{next(iter(option))} .*: leave out one of them"):
        ClassifyConfig(tokenizer="t.json", **option)


def test_every_error_is_ours(tmp_path: Path) -> None:
    """What the package raises while it splits is named, too: here, a model without its unknown token."""
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "[UNK]"}
    (tmp_path / "t.json").write_text(json.dumps({"version": "1.0", "model": model, "added_tokens": []}))
    made = Tokenizer.read(tmp_path / "t.json", SPECIALS)
    assert made.split("a") == ["a"]
    with pytest.raises(RRNNError, match=r"cannot split a text.*\[UNK\]"):
        made.split("zebra")
