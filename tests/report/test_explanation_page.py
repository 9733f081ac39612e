"""Explanations as pages: whole, self-contained, with the numbers of the explanation and nothing taken for HTML."""

from __future__ import annotations

import re

import pytest
from random_classifiers import KINDS, TEXT, classifier

from rrnn import zoo
from rrnn.automata import score
from rrnn.report import explanation_page
from rrnn.report.pages import signed
from rrnn.tasks.classify.explanations import Explanation, explain


def test_a_unit_that_keeps_nothing_has_no_share() -> None:
    """C consumes two words, so one word has no path."""
    found = explain(classifier(cell="C"), "good")
    assert found.units and all(unit.paths == () and unit.covered is None for unit in found.units)
    shown = explanation_page([("good", found)])
    assert "nan" not in shown and "of the total path weight" not in shown


@pytest.mark.parametrize("kind", ["one layer", "both directions", "max-plus", "LSTM"])
def test_a_page_is_whole_and_calls_nobody(kind: str) -> None:
    model = classifier(cleaning="none", **KINDS[kind])
    hostile = 'good <script>alert("x")</script> & not'
    found = explain(model, hostile)
    text = explanation_page([(hostile, found)], None if kind == "LSTM" else zoo.get_cell("F"))
    assert "<script" not in text and "&lt;script&gt;" in text
    assert not re.search(r"<(?![a-z/!])|&(?!#?\w+;)", text)  # words may come apart: no bare < or & either
    links = re.findall(r"""(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/)""", text)
    assert not links
    assert text.count("<svg") == (kind != "LSTM")
    for word in found.words:
        shown = f"{word.without:+.2f}".replace("-", "−")
        assert (shown if abs(word.without) >= 0.005 else shown[1:]) in text
    assert not re.search(r"[+−]0\.0+\b(?!\d)", text)  # zero has no sign
    balance = {
        tag: text.count(f"<{tag}>") + text.count(f"<{tag} ") - text.count(f"</{tag}>")
        for tag in ("p", "span", "table", "td", "section", "h2")
    }
    assert not any(balance.values()), balance


def test_kinds_of_contributions_are_named() -> None:
    exact = explain(classifier(template=zoo.get_cell("F").output(score), readout="linear"), TEXT)
    shown = explanation_page([("x", exact)])
    assert "(exact)</h3>" in shown and "first-order" not in shown
    assert "(first-order)" in explanation_page([("x", explain(classifier(), TEXT))])
    units = {True: "adds (exact)", False: "adds (first-order)"}
    for bent in ({"readout": "linear"}, {}):  # no sums over words, but the units' outputs make up the margin
        found = explain(classifier(cell="B-max-plus", **bent), TEXT, units=99)
        assert found.exact == bool(bent)
        shown = explanation_page([("x", found)])
        assert units[bool(bent)] in shown and units[not bent] not in shown
        rest = found.margin - sum(unit.adds for unit in found.units)
        same = explain(classifier(cell="B-max-plus", **bent), "it was", target=found.target, units=99)
        constant = same.margin - sum(unit.adds for unit in same.units)
        assert (rest == pytest.approx(constant, abs=1e-5)) == bool(bent)  # the read-out's bias
    assert isinstance(exact, Explanation)


def test_control_characters_are_written_out() -> None:
    found = explain(classifier(cleaning="none"), "not \x1b[2J\x07 \u202egood")
    assert all(c.isprintable() for c in explanation_page([("x", found)]).replace("\n", ""))


def test_signed_numbers() -> None:
    assert [signed(x) for x in (0.5, -0.25, 0.0, -0.0001)] == ["+0.500", "−0.250", "0.000", "0.000"]
    assert signed((0.5, -1.0), 1) == "⟨+0.5, −1.0⟩"
