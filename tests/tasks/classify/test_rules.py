"""Classifiers that start from rules: exact before training, trained, stored and loaded; mistakes in files of rules."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_classifier import tiny_config, tiny_dataset

import rrnn
from rrnn.cli import main
from rrnn.errors import DataError, FormatError, RunError
from rrnn.tasks.classify.deletion import logits_without_each
from rrnn.tasks.classify.experiment import train
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.classify.model import TextClassifier
from rrnn.tasks.classify.prepare import Prepared, prepare
from rrnn.tasks.classify.rules import STRENGTH, parse_rules, read_rules
from rrnn.tasks.classify.trained import TrainedClassifier

RULES = """
# good comes before bad
yes   ^[^bad]* good
no\tbad [^good]* $
no    ^[^good bad]* bad
no
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tiny.rules"
    path.write_text(RULES, encoding="utf-8")
    return str(path)


def tiny(file: str, **changes: Any) -> Prepared:
    return prepare(tiny_config(rules=file, **changes), tiny_dataset())


def untrained(data: Prepared) -> TrainedClassifier:
    module = TextClassifier(
        data.config, len(data.vocabulary), 2, spellings=data.spellings, rules=data.rule_units
    )
    return TrainedClassifier(module.eval(), data.vocabulary, data.labels, data.config)


def says_yes(words: list[str]) -> bool:
    """Apply the rules by Python's own regular expressions."""
    text = " ".join(words)
    yes = bool(re.search(r"^((?!bad\b)\S+ )*?good\b", text))
    ends, starts = (
        re.search(r"bad( (?!good\b)\S+)*$", text),
        re.search(r"^((?!(good|bad)\b)\S+ )*bad\b", text),
    )
    return yes and not (ends or starts)


@pytest.mark.parametrize("changes", [{}, {"readout": "linear", "pooling": "max"}, {"characters": 3}])
def test_untrained_classifiers_are_their_rules(file: str, changes: dict[str, Any]) -> None:
    """Both rules may match: then the default decides. The logits are those of the rules, whatever the layers are."""
    data = tiny(file, **changes)
    model, texts = untrained(data), [e.tokens for e in tiny_dataset(1, (200, 1, 1)).train]
    p = model.probabilities([model.encode(words) for words in texts])
    assert p.argmax(1).tolist() == [says_yes(words) for words in texts]
    odds = np.log(p[:, 1] / p[:, 0])
    expected = {STRENGTH / 2, -3 * STRENGTH / 2, -STRENGTH / 2}
    assert {min(expected, key=lambda e: abs(e - o)) for o in odds} == expected
    assert max(min(abs(e - o) for e in expected) for o in odds) < 1e-4
    unknown = model.predict(["unheard-of good words"])[0]
    assert unknown.label == "yes"


@pytest.mark.slow
def test_a_run_keeps_its_rules(file: str, tmp_path: Path) -> None:
    data = tiny(file, epochs=4)
    assert "rules for yes, no with 2 words" in data.about
    result = train(data.config, tmp_path / "run", data=data)
    assert result.summary.dev >= 90
    before, after = untrained(data).module.rules, result.model.module.rules
    assert before is not None and after is not None
    for a, b in zip(before.parameters(), after.parameters(), strict=True):
        assert not torch.equal(a, b)  # the rules are trained, too
    Path(file).unlink()  # the run has a copy
    loaded = rrnn.load(tmp_path / "run")
    texts = [model_text(e.tokens) for e in tiny_dataset(2).train]
    assert loaded.predict(texts) == result.model.predict(texts)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["facts"]["rules"] == RULES and stored["rules"] == file


def model_text(tokens: list[str]) -> str:
    return " ".join(tokens)


def test_other_rules_do_not_resume(file: str, tmp_path: Path) -> None:
    data = tiny(file, epochs=1)
    train(data.config, tmp_path / "run", data=data)
    Path(file).write_text("yes good\n", encoding="utf-8")
    with pytest.raises(RunError, match="rules"):
        train(data.config, tmp_path / "run", data=tiny(file, epochs=2), resume=True)


def test_rules_are_read_back(file: str) -> None:
    """`rule_machine` is the automaton of a unit: before training that of the pattern, afterwards the learnt one."""
    data, words = tiny(file), ["good", "bad", "film", "unheard-of"]
    machine = untrained(data).rule_machine("yes", words)
    expected = rrnn.from_regex("^[^bad]* good", words, match="contains", semiring="real")
    assert machine.equivalent(expected)
    learnt = train(data.config, data=data).model
    assert not learnt.rule_machine("yes", words).equivalent(expected)
    x, ids = learnt.module.embed(torch.tensor([[2], [3]])), torch.tensor([[2], [3]])
    assert learnt.module.rules is not None
    scores, _ = learnt.module.rules.layer(learnt.module.rules.inputs(x, ids))
    pair = [data.vocabulary.words[i] for i in (2, 3)]
    score = learnt.rule_machine("yes", pair).score(tuple(pair)).item()
    assert score == pytest.approx(scores[-1, 0, 0].item(), rel=1e-5)
    with pytest.raises(DataError, match="no rule of 'maybe'; its rules: those of yes, no"):
        learnt.rule_machine("maybe", words)


def test_explanations_contain_the_rules(file: str) -> None:
    data = tiny(file, layers=1, readout="linear", cell="T-RNN")
    model = train(data.config, data=data).model
    found = explain(model, "a good film")
    assert "The rules add" in found.note and found.base is not None
    adds = [word.adds for word in found.words]
    total = found.base + sum(add for add in adds if add is not None)
    assert total == pytest.approx(found.margin, abs=1e-4)


def test_words_of_rules_get_vectors(tmp_path: Path) -> None:
    """They are in the vocabulary, though no text has them and the file of vectors may not."""
    vectors, table, rules = tmp_path / "v.txt", tmp_path / "t.csv", tmp_path / "r"
    vectors.write_text("good 1 0 0\nbad 0 1 0\nsuperb 0 0 1\n")
    rows = [f"{'good' if i % 2 else 'bad'} film,{'pos' if i % 2 else 'neg'}" for i in range(40)]
    table.write_text("text,label\n" + "\n".join(rows) + "\n")
    rules.write_text("pos good|superb|unheard-of\n")
    config = tiny_config(data=str(table), vectors=str(vectors), embedding_size=3, rules=str(rules))
    data = prepare(config)
    assert data.vectors is not None and data.vectors.shape[0] == len(data.vocabulary)
    assert {"good", "bad", "superb", "unheard-of"} <= set(data.vocabulary.words)
    assert "film" not in data.vocabulary
    own = data.vectors[data.vocabulary.encode(["unheard-of"])[0]]
    assert own.norm().item() == pytest.approx(config.vector_length)
    assert any("not in the training texts: superb, unheard-of" in line for line in data.about)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no rule in this file"),
        ("# nothing\n\nyes\n", "there is no rule in this file"),
        (
            "yes good\nno (bad\n",
            r"x:2: the rule of 'no': in the regular expression, at character 1: this '\('",
        ),
        (
            "yes good\nyes\nno\n",
            "x:3: one label may stand without a pattern, as the default; 'yes' and 'no' do",
        ),
        ("yes a .{9} b\n", "the rule of 'yes': the deterministic machine"),
        (
            "yes a .{7} b\n",
            "all rules of 'yes' together need an automaton of .* states, and a layer takes at most 64",
        ),
        ("yes " + "x" * 2**20, "at most 1,048,576 characters"),
    ],
    ids=range(7),
)
def test_mistakes_in_files(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_rules(text, "x")


def test_other_mistakes(file: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="cannot read the rules"):
        read_rules(tmp_path / "missing")
    (tmp_path / "latin").write_bytes(b"yes \xff\n")
    with pytest.raises(FormatError, match=r"cannot read the rules: .*utf-8"):
        read_rules(tmp_path / "latin")
    Path(file).write_text("yess good\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"labels of the data, no, yes; got 'yess'\. Did you mean 'yes'"):
        tiny(file)


def test_the_command(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path(file).write_text("yes not .* good\nno\n", encoding="utf-8")
    small = ["--hidden-size", "6", "--embedding-size", "5", "--epochs", "1", "--device", "cpu", "--cell", "B"]
    code = main(["classify", "train", "--rules", file, "--out", str(tmp_path / "run"), *small])
    out = capsys.readouterr().out
    assert code == 0 and "with 2 words" in out, out
    code = main(["classify", "train", "--rules", "missing", "--out", str(tmp_path / "other"), *small])
    assert code and "cannot read the rules" in capsys.readouterr().err and not (tmp_path / "other").exists()


def test_long_texts_are_explained_with_their_rules(file: str) -> None:
    """Without each word, as in short texts: the logits are those of the model on the shorter text."""
    model = untrained(tiny(file)).module
    ids = torch.randint(2, 5, (100,), generator=torch.Generator().manual_seed(0))
    whole, rows = logits_without_each(model, ids)
    with torch.no_grad():
        torch.testing.assert_close(whole, model(ids.unsqueeze(1), torch.tensor([100]))[0])
        shorter = torch.cat([ids[:7], ids[8:]]).unsqueeze(1)
        torch.testing.assert_close(rows[7], model(shorter, torch.tensor([99]))[0])
