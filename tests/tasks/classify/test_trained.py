"""The report of an evaluation: its table of the confusion fits the terminal, however many labels there are."""

from __future__ import annotations

import pytest

from rrnn.tasks.classify.trained import Report


def report(labels: int, name: str = "label-{}") -> Report:
    names = [name.format(i) for i in range(labels)]
    confusion = [[100 * (i == j) + j for j in range(labels)] for i in range(labels)]
    return Report(texts=9, accuracy=50.0, macro_f1=40.0, loss=0.5, labels=names, confusion=confusion)


def test_few_labels_stand_above_their_columns() -> None:
    text = report(2, "l{}").to_text("test", 80)
    assert text == report(2, "l{}").to_text("test") and "   l0    l1  ← predicted" in text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("labels", [8, 20, 77])
def test_many_labels_fit(labels: int, width: int) -> None:
    text = report(labels, "a-rather-long-label-{}").to_text("test", width)
    lines = text.splitlines()[1:]
    assert max(map(len, lines)) <= width
    numbers = [line.split() for line in lines if line[0] == " "]
    assert [n for line in numbers for n in line] == [str(i) for i in range(1, labels + 1)]
    shown = sum(len(line.split()) - 2 for line in lines[1:] if line[0] != " ")
    assert shown == labels * labels  # every count is there
    assert max(map(len, report(labels).to_text("test").splitlines())) > width or labels == 8
