"""Words and their numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrnn.errors import DataError, FormatError
from rrnn.tasks.vocabulary import Vocabulary

TEXT = ["b", "a", "a", "c", "b", "a", "d", "</s>"]


def test_frequent_words_come_first_and_ties_in_order_of_appearance() -> None:
    vocabulary = Vocabulary.build(TEXT)
    assert vocabulary.words == ["<s>", "a", "b", "c", "d", "</s>"]
    assert vocabulary.encode(["a", "d"]).tolist() == [1, 4]
    assert vocabulary.encode(["a"]).dtype == np.int64
    assert vocabulary.decode(np.array([2, 0])) == ["b", "<s>"]
    assert len(vocabulary) == 6 and "a" in vocabulary and "x" not in vocabulary


def test_a_word_outside() -> None:
    with pytest.raises(DataError, match=r"'x'.*unknown='<unk>'"):
        Vocabulary.build(TEXT).encode(["a", "x"])
    open_one = Vocabulary.build(TEXT, unknown="<unk>")
    assert open_one.words[:2] == ["<s>", "<unk>"]
    assert open_one.encode(["x", "a"]).tolist() == [1, 2]
    assert open_one.number("y") == 1
    with pytest.raises(DataError, match="between 0 and"):
        open_one.decode([99])


def test_rare_words_are_dropped_only_for_an_unknown_word() -> None:
    assert Vocabulary.build(TEXT, unknown="<unk>", min_count=2).words == ["<s>", "<unk>", "a", "b"]
    assert Vocabulary.build(TEXT, unknown="<unk>", max_size=3).words == ["<s>", "<unk>", "a"]
    with pytest.raises(DataError, match="drop 3 of 5 words"):
        Vocabulary.build(TEXT, min_count=2)
    with pytest.raises(DataError, match="no room"):
        Vocabulary.build(TEXT, unknown="<unk>", max_size=2)


def test_an_unknown_word_of_the_text_keeps_its_rank_and_is_never_dropped() -> None:
    text = ["a", "a", "<unk>", "b"]
    assert Vocabulary.build(text, (), "<unk>").words == ["a", "<unk>", "b"]
    assert Vocabulary.build(text, (), "<unk>", min_count=2).words == ["a", "<unk>"]
    assert Vocabulary.build(["a", "a", "b", "b", "<unk>"], (), "<unk>", max_size=2).words == ["a", "<unk>"]


@given(st.lists(st.text(max_size=3)), st.integers(1, 3))
def test_round_trip(tokens: list[str], min_count: int) -> None:
    vocabulary = Vocabulary.build(tokens, unknown="<unk>", min_count=min_count)
    decoded = vocabulary.decode(vocabulary.encode(tokens))
    assert decoded == [word if word in vocabulary else "<unk>" for word in tokens]
    always = ("<s>", "<unk>")
    assert all((word in vocabulary) == (word in always or tokens.count(word) >= min_count) for word in tokens)


def test_files(tmp_path: Path) -> None:
    vocabulary = Vocabulary.build(["ü", "\x85", "a b", "\u2028"], unknown="<unk>")
    vocabulary.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == vocabulary
    assert [path.name for path in tmp_path.iterdir()] == ["v.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "JSON"),
        ("[]", "format"),
        (json.dumps({"format": "rrnn-vocabulary", "version": 9}), "version 1, not 9"),
        (json.dumps({"format": "rrnn-vocabulary", "version": 1, "words": [1]}), "strings"),
        (json.dumps({"format": "rrnn-vocabulary", "version": 1, "words": ["a", "a"]}), "twice"),
        (json.dumps({"format": "rrnn-vocabulary", "version": 1, "words": ["a"], "unknown": "b"}), "'b'"),
    ],
)
def test_foreign_files(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(content)
    with pytest.raises(FormatError, match=message) as caught:
        Vocabulary.load(tmp_path / "v.json")
    assert str(tmp_path / "v.json") in str(caught.value)
