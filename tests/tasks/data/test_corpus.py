"""Corpora: tokens in three splits, `</s>` after every line."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rrnn.errors import DataError, FormatError
from rrnn.tasks.data.corpus import load_corpus, paragraphs, python_reference, split_by_topic

needs_data = pytest.mark.skipif("RRNN_DATA" not in os.environ, reason="needs RRNN_DATA")


def write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_bytes(text.encode())
    return folder


def test_a_folder(tmp_path: Path) -> None:
    corpus = load_corpus(write(tmp_path, train=" a b \n\nc\x85d\n", dev="a\r\nb", test="c\n"))
    assert corpus.train == ["a", "b", "</s>", "</s>", "c", "d", "</s>"]  # 0x85 is a blank, no line's end
    assert corpus.valid == ["a", "</s>", "b", "</s>"]
    assert corpus.test == ["c", "</s>"]


def test_characters_keep_every_blank(tmp_path: Path) -> None:
    corpus = load_corpus(write(tmp_path, train="  a b\n", valid="a\n"), level="char")
    assert corpus.train == [" ", " ", "a", " ", "b", "</s>"]
    assert corpus.test == []


def test_text_nobody_tokenised(tmp_path: Path) -> None:
    corpus = load_corpus(write(tmp_path, train="Don’t stop, x_1!\n", valid="a\n"), tokens="text")
    assert corpus.train == ["Do", "n't", "stop", ",", "x_1", "!", "</s>"]


def test_one_file_is_cut_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text("".join(f"{i}\n" for i in range(25)))
    corpus = load_corpus(tmp_path / "all.txt")
    numbers = [[int(token) for token in part[::2]] for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(part) for part in numbers] == [21, 2, 2]
    assert [*numbers[0], *numbers[1], *numbers[2]] == list(range(25))
    (tmp_path / "short.txt").write_text("a\n")
    with pytest.raises(DataError, match="too few"):
        load_corpus(tmp_path / "short.txt")


def test_files_by_split_and_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x y\n"))
    corpus = load_corpus({"train": tmp_path / "a.gz", "valid": str(tmp_path / "a.gz")})
    assert corpus.train == corpus.valid == ["x", "y", "</s>"]
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x y\n" * 100)[:-9])
    with pytest.raises(DataError, match="truncated or damaged"):
        load_corpus({"train": tmp_path / "a.gz", "valid": tmp_path / "a.gz"})


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no file for dev and train"),
        ({"train.txt": b"a"}, "no file for dev"),
        ({"train.txt": b"a", "a-train.txt": b"a", "valid.txt": b"b"}, "two files for train"),
        ({"train.txt": b"", "valid.txt": b"b"}, "train.txt: the file is empty"),
    ],
)
def test_wrong_folders(files: dict[str, bytes], message: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_corpus(tmp_path)


def test_wrong_names(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*'nonsense'"):
        load_corpus("nonsense")
    with pytest.raises(DataError, match="not trian"):
        load_corpus({"trian": tmp_path})
    with pytest.raises(DataError, match="valid is missing"):
        load_corpus({"train": tmp_path})
    with pytest.raises(DataError, match="'byte'"):
        load_corpus("python", level="byte")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "line", "message"), [(b"a\nb\xe9\n", 2, "0xe9"), (b"a\nb\n\x00\n", 3, "binary")]
)
def test_bytes_that_are_no_text(content: bytes, line: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes(content)
    (tmp_path / "valid.txt").write_bytes(b"a\n")
    with pytest.raises(FormatError, match=message) as caught:
        load_corpus(tmp_path)
    assert caught.value.line == line and "train.txt" in str(caught.value)


def test_utf16_and_byte_order_marks_are_read(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_bytes("ä\n".encode("utf-16"))
    (tmp_path / "valid.txt").write_bytes("ä\n".encode("utf-8-sig"))
    corpus = load_corpus(tmp_path)
    assert corpus.train == corpus.valid == ["ä", "</s>"]


def test_closed_and_open_vocabularies(tmp_path: Path) -> None:
    closed = load_corpus(write(tmp_path, train="a a b\n", valid="a b\n"))
    assert closed.vocabulary().words == ["<s>", "a", "b", "</s>"] and closed.vocabulary().unknown is None
    opened = load_corpus(write(tmp_path, train="a a b\nc a\n", valid="a d\n")).vocabulary()
    assert opened.words == ["<s>", "<unk>", "a", "</s>"] and opened.unknown == "<unk>"
    prepared = load_corpus(write(tmp_path, train="a a <unk>\n", valid="a\n")).vocabulary()
    assert prepared.words == ["<s>", "a", "<unk>", "</s>"] and prepared.unknown == "<unk>"


def test_the_embedded_corpus() -> None:
    corpus = load_corpus()
    sizes = [len(corpus.train), len(corpus.valid), len(corpus.test)]
    assert sum(sizes) > 50_000
    assert [round(size / sum(sizes), 2) for size in sizes] == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    assert corpus.train.count("</s>") == len(python_reference()["train"])
    vocabulary = corpus.vocabulary()
    assert sum(word not in vocabulary for word in corpus.test) < 0.1 * sizes[2]
    text = " ".join(
        [*corpus.train, *corpus.valid, *corpus.test]
    )  # which split has what depends on the version
    assert "The expression" in text and "*****" not in text


def test_a_python_without_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    python_reference.cache_clear()
    with pytest.raises(DataError, match="no language reference"):
        load_corpus()


def test_the_embedded_corpus_does_not_test_on_what_it_trained() -> None:
    """Long topics repeat short ones: no sentence of some length may be in two splits."""
    reference = python_reference()
    sentences = {split: {line for line in lines if len(line) > 3} for split, lines in reference.items()}
    assert not sentences["train"] & (sentences["valid"] | sentences["test"])
    assert not sentences["valid"] & sentences["test"]


def test_the_embedded_corpus_is_the_same_in_every_process() -> None:
    code = (
        "import hashlib; from rrnn.tasks.data.corpus import load_corpus;"
        "c = load_corpus(); print(hashlib.sha256(repr((c.train, c.valid, c.test)).encode()).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        digests.add(subprocess.check_output([sys.executable, "-c", code], env=environment))
    assert len(digests) == 1


def test_topics_without_repeats() -> None:
    topics = {
        "short": "One thing.\n",
        "long": "Other things of\nthe world.  More of them here.\n\nOne thing.\n",
    }
    splits = split_by_topic(topics)
    assert splits == {
        "train": ["Other things of the world.", "More of them here."],
        "valid": ["One thing."],
        "test": [],
    }


def test_paragraphs() -> None:
    text = "Title\n*****\n\nA non-\nvirtual, long\nline.\n\n   +---+\n   | a | b |\n   +---+\n\n   | \"x\"\n   | 'y'\n"
    assert paragraphs(text) == ["Title", "A non-virtual, long line.", "a | b", "| \"x\" | 'y'"]


@needs_data
def test_ptb() -> None:
    corpus = load_corpus("ptb")
    assert [len(corpus.train), len(corpus.valid), len(corpus.test)] == [929589, 73760, 82430]
    vocabulary = corpus.vocabulary()
    assert (
        len(vocabulary) == 10001 and vocabulary.words[0] == "<s>"
    )  # the 10000 of the corpus, and a start symbol
    assert corpus.train[:3] == ["aer", "banknote", "berlitz"]
    assert load_corpus("ptb", "char").train[:5] == list("aer b")
