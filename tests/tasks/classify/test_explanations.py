"""Explanations of text classifiers: what they say of words and units is so, for every kind of model."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from random_classifiers import KINDS, TEXT, classifier

from rrnn import zoo
from rrnn.automata import Cell, Expr, linear, one, score, sigmoid, tanh
from rrnn.errors import DataError, RunError
from rrnn.tasks.classify.examples import text_phrases
from rrnn.tasks.classify.explanations import explain
from rrnn.tasks.classify.trained import TrainedClassifier


def margin(model: TrainedClassifier, text: str, target: str) -> float:
    """Straight from the probabilities: log-odds, of several labels with the mean of the others' logarithms."""
    chances = model.predict([text])[0].probabilities
    logs = {name: torch.tensor(p).double().log().item() for name, p in chances.items()}
    others = [value for name, value in logs.items() if name != target]
    return logs[target] - sum(others) / len(others)


@pytest.mark.parametrize("kind", KINDS)
def test_deleting_a_word_costs_what_it_says(kind: str) -> None:
    model = classifier(**KINDS[kind])
    for target in (None, model.labels[0]):
        found = explain(model, TEXT, target=target)
        assert found.label == model.predict([TEXT])[0].label
        assert found.target == (target or found.label)
        assert found.margin == pytest.approx(margin(model, TEXT, found.target), abs=1e-5)
        for i, word in enumerate(found.words):
            shorter = " ".join(w for j, w in enumerate(TEXT.split()) if j != i)
            expected = found.margin - margin(model, shorter, found.target)
            assert word.without == pytest.approx(expected, abs=1e-5)
        json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("max-plus", "SoPa", "LSTM")])
def test_what_words_add_makes_up_the_margin(kind: str) -> None:
    found = explain(classifier(**KINDS[kind]), TEXT)
    adds = [word.adds for word in found.words if word.adds is not None]
    assert len(adds) == 5 and not found.exact
    assert found.base is not None and found.unexplained is not None
    assert found.base + sum(adds) + found.unexplained == pytest.approx(found.margin, abs=1e-5)


def test_first_order_is_right_for_small_scores() -> None:
    """The smaller the scores, the less the tanh and the MLP bend: what is left falls with their square."""
    left = []
    for size in (0.1, 0.05):
        model = classifier(layers=1)
        with torch.no_grad():
            layer = model.module.layers[0].layers[0]
            for name in layer.programs[0].projections:
                if name.startswith("u"):
                    layer.projection(0, name).weight().mul_(size)
        found = explain(model, TEXT)
        assert found.unexplained is not None
        left.append(abs(found.unexplained))
    assert left[1] < 0.6 * left[0] and left[0] < 0.01


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_linear_read_out_on_scores_is_exact(pooling: str) -> None:
    model = classifier(template=zoo.get_cell("F").output(score), readout="linear", pooling=pooling)
    found = explain(model, TEXT)
    assert found.exact and found.unexplained == pytest.approx(0.0, abs=1e-6)
    for bent in ({"readout": "mlp"}, {"readout": "linear", "layers": 2}):
        assert not explain(
            classifier(template=zoo.get_cell("F").output(score), pooling=pooling, **bent), TEXT
        ).exact


def test_units_are_the_strongest_with_what_they_found() -> None:
    model = classifier()
    found = explain(model, TEXT, units=3, paths=2)
    sizes = [abs(unit.adds) for unit in found.units]
    assert sizes == sorted(sizes, reverse=True) and len(found.units) == 3
    every = explain(model, TEXT, units=99)
    assert len(every.units) == 4
    total = sum(word.adds or 0.0 for word in every.words)
    assert sum(unit.adds for unit in every.units) == pytest.approx(total)
    for unit in found.units:
        assert unit.slope * unit.score == pytest.approx(unit.adds, rel=1e-5)  # one step counts, the last
        assert len(unit.paths) == 2 and unit.direction == "forward" and unit.cell == "F"
        assert 0 < (unit.covered or 0) <= 1
        assert all(set(phrase.tokens) <= {"ε", *TEXT.split()} for phrase in unit.phrases)


@pytest.mark.parametrize("cell", ["Mamba:states=3", "GLA:states=3", "S4D:states=3"])
def test_phrases_and_paths_of_families_are_listed_once(cell: str) -> None:
    for unit in explain(classifier(cell=cell), TEXT, paths=4).units:
        for found in (unit.phrases, unit.paths):
            texts = [each.text for each in found]
            assert len(texts) == len(set(texts))
        assert len(unit.paths) == 4


def test_max_plus_shows_paths_and_says_why_nothing_adds_up() -> None:
    found = explain(classifier(cell="B-max-plus"), TEXT)
    assert all(word.adds is None for word in found.words) and found.units
    assert "Scores over max-plus are not sums" in found.note
    for unit in found.units:
        assert unit.covered is None and unit.paths[0].weight == pytest.approx(unit.score)


def test_what_is_no_automaton_says_so() -> None:
    found = explain(classifier(cell="LSTM"), TEXT)
    assert found.units == () and "LSTM has no automata inside" in found.note


def test_unknown_words_and_one_word() -> None:
    found = explain(classifier(), "good Zyx")
    assert [(w.token, w.known) for w in found.words] == [("good", True), ("zyx", False)]
    assert len(explain(classifier(), "good").words) == 1  # without it there is an empty text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: explain(m, " "), "there is no word in this text"),
        (lambda m: explain(m, 3), "the text to explain must be a str; got int"),
        (lambda m: explain(m, "good", target="maybe"), "the labels of this model are no, yes; got 'maybe'"),
        (
            lambda m: explain(m, "good", units=-1),
            "units must be a positive integer, how many to show; got -1",
        ),
        (
            lambda m: explain(m, "good", paths=1.5),
            "paths must be a positive integer, how many to show; got 1.5",
        ),
        (
            lambda m: explain(m.module, "good"),
            "a text classifier, as rrnn.load returns it, can be explained; got TextClassifier",
        ),
        (
            lambda m: text_phrases(m.module, ["good"]),
            "a text classifier, as rrnn.load returns it, can be explained; got TextCla",
        ),
        (lambda m: text_phrases(m, "not good"), "takes a list of texts; got one text"),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        call(classifier())


def test_control_characters_are_written_out() -> None:
    """They would be obeyed by a terminal, or reorder what is read."""
    model = classifier(cleaning="none")
    found = explain(model, "not \x1b[2J\x07 \u202egood 👩\u200d👧 \x9b31m")
    shown = json.dumps(found.to_json(), ensure_ascii=False)
    assert found.tokens[0] == "not" and "\\x1b" in "".join(found.tokens)
    assert all(c.isprintable() for c in shown.replace("\n", ""))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_ran_away(value: float) -> None:
    model = classifier(template=zoo.get_cell("F").output(score), readout="linear")
    with torch.no_grad():
        model.module.layers[0].layers[0].weight[0] = value  # type: ignore[index, union-attr]
    with pytest.raises(RunError, match=r"finite logits; this model gives nan, nan\. .* train it again"):
        explain(model, TEXT)


def several(semiring: str, *outputs: Expr) -> Cell:
    """B with one number or several of each unit."""
    gate = sigmoid(linear("f", bias=True))
    cell = (
        Cell("several", semiring).initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).loop("q1", gate)
    )
    return cell.final("q1").output(*outputs)


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True, "layers": 2, "pooling": "mean"}], ids=["one", "both"]
)
def test_cells_of_several_components(options: dict[str, Any]) -> None:
    """Paths and scores are shown, phrases are not; what each word is worth is found by deleting it."""
    model = classifier(template=several("complex", score.re, tanh(score.im)), **options)
    found = explain(model, TEXT)
    assert "over complex are not single numbers" in found.note and found.words[0].adds is None
    assert len(found.units) == (5 if options else 4)
    for unit in found.units:
        assert not unit.phrases and unit.paths and isinstance(unit.score, tuple) and len(unit.score) == 2
        assert unit.covered is not None and 0 < unit.covered <= 1
    adds = sum(unit.adds for unit in explain(model, TEXT, units=99).units)
    assert math.isfinite(adds) and adds
    json.dumps(found.to_json(), allow_nan=False)


def test_several_outputs_of_real_scores() -> None:
    """With a linear readout, what words add and the base are the margin, over both outputs."""
    model = classifier(template=several("real", score, 2 * score), readout="linear")
    found = explain(model, TEXT)
    assert found.base is not None and found.unexplained == pytest.approx(0.0, abs=1e-5)
    adds = sum(word.adds or 0.0 for word in found.words)
    assert found.margin == pytest.approx(found.base + adds, abs=1e-5)
    units = explain(model, TEXT, units=99).units
    assert sum(unit.adds for unit in units) == pytest.approx(adds, abs=1e-5)
