"""Soft-pattern tasks: the automaton says what a plain definition says, and nothing else gives a label away."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrnn.errors import DataError
from rrnn.tasks.data.labelled import Example, load_dataset
from rrnn.tasks.data.synthetic import NAMES, generate, get_task


def has_not_good(words: tuple[str, ...]) -> bool:
    return "not" in words and "good" in words[words.index("not") :]


def has_more_a(words: tuple[str, ...]) -> bool:
    return words.count("a") > words.count("b")


def ends_near_x(k: int, words: tuple[str, ...]) -> bool:
    return "x" in words[-(k + 1) :]


DEFINITIONS = {
    "synthetic:not-good": has_not_good,
    "synthetic:more-a-than-b": has_more_a,
    "synthetic:ends-within-3": lambda words: ends_near_x(3, words),
    "synthetic:ends-within-0": lambda words: ends_near_x(0, words),
}


@pytest.mark.parametrize("name", DEFINITIONS)
@given(data=st.data())
def test_the_automaton_agrees_with_the_definition(name: str, data: st.DataObject) -> None:
    task = get_task(name)
    special = [word for word in ("not", "good", "a", "b", "x") if word in task.automaton.alphabet]
    words = st.lists(st.sampled_from([*special, *special, "the", "film"]), max_size=8).map(tuple)
    texts = data.draw(st.lists(words, min_size=1, max_size=8))
    assert task.labels(texts) == [DEFINITIONS[name](text) for text in texts]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_generated_texts(name: str) -> None:
    splits = generate(name, seed=1, sizes=(400, 100, 101))
    assert [len(rows) for rows in splits.values()] == [400, 100, 101]
    rows = [row for part in splits.values() for row in part]
    assert all((row.label == "yes") == DEFINITIONS[name](tuple(row.text.split())) for row in rows)
    assert len({row.text for row in rows}) == len(rows)  # so nothing in test is in train
    for part in splits.values():
        assert abs(2 * sum(row.label == "yes" for row in part) - len(part)) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_texts(name: str) -> None:
    first, again, other = (generate(name, seed, sizes=(50, 0, 0))["train"] for seed in (5, 5, 6))
    assert first == again != other


def accuracy_of_counts(train: list[Example], test: list[Example], words: tuple[str, ...]) -> float:
    """The best guess from how often each special word occurs."""
    votes: dict[tuple[int, ...], Counter[int]] = {}
    for example in train:
        votes.setdefault(tuple(map(example.tokens.count, words)), Counter())[example.label] += 1
    guesses = {key: counts.most_common(1)[0][0] for key, counts in votes.items()}
    keys = [tuple(map(example.tokens.count, words)) for example in test]
    return mean(guesses.get(key, 0) == example.label for key, example in zip(keys, test, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "low", "high"),
    [
        ("synthetic:not-good", ("not", "good"), 0.5, 0.68),  # the order of words decides
        ("synthetic:more-a-than-b", ("a",), 0.5, 0.8),  # one count is not enough,
        ("synthetic:more-a-than-b", ("a", "b"), 1.0, 1.0),  # both are
        ("synthetic:ends-within-3", ("x",), 0.4, 0.6),  # the place of a word decides
    ],
)
def test_distractors(name: str, words: tuple[str, ...], low: float, high: float) -> None:
    data = load_dataset(name)
    assert low <= accuracy_of_counts(data.train, data.test, words) <= high
    lengths = [mean(len(e.tokens) for e in data.train if e.label == label) for label in (0, 1)]
    assert lengths[0] == pytest.approx(lengths[1], abs=0.5)


def test_as_a_data_set() -> None:
    data = load_dataset("synthetic:not-good", split_seed=2)
    assert [len(data.train), len(data.dev), len(data.test)] == [2000, 500, 1000]
    assert data.labels == ["no", "yes"] and data.skipped == {}
    with pytest.raises(DataError, match=r"'synthetic:no-good'.*synthetic:not-good"):
        load_dataset("synthetic:no-good")
