"""Word vectors: every format gives the same words and numbers, and what is wrong is named with its line."""

from __future__ import annotations

import gzip
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rrnn.errors import DataError, FormatError
from rrnn.tasks.data.labelled import load_dataset
from rrnn.tasks.data.vector_files import _parse_plain, parse_decimals
from rrnn.tasks.data.vectors import Vectors, read_vectors

needs_data = pytest.mark.skipif("RRNN_DATA" not in os.environ, reason="needs RRNN_DATA")

WORDS = ["the", "é", "2", ". . .", "at name@domain.com", "-", "3.5"]
MATRIX = np.random.default_rng(0).standard_normal((len(WORDS), 5)).round(5).astype(np.float32)


def as_text(words: list[str] = WORDS, matrix: np.ndarray = MATRIX, separator: str = " ") -> str:
    rows = zip(words, matrix, strict=True)
    return "".join(separator.join([word, *(f"{x:.5f}" for x in row.tolist())]) + "\n" for word, row in rows)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_binary(words: list[str], matrix: np.ndarray, end: bytes) -> bytes:
    head = f"{len(words)} {matrix.shape[1]}\n".encode()
    rows = zip(words, matrix, strict=True)
    return head + b"".join(word.encode() + b" " + row.astype("<f4").tobytes() + end for word, row in rows)


FORMATS = {
    "glove": as_text(),
    "header": f"{len(WORDS)} 5\n" + as_text(),
    "blanks at line ends": as_text().replace("\n", " \r\n"),
    "tabs": as_text(separator="\t"),
    "no line end at the end": as_text().rstrip("\n"),
    "exponents": as_text().replace("0.", "0.0", 1).replace(" ", " +", 1) + "tiny 1e-05 -2E-3 3 .5 7.\n",
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", FORMATS)
def test_text(kind: str, packed: bool, tmp_path: Path) -> None:
    content = FORMATS[kind].encode()
    vectors = read_vectors(write(tmp_path / "v.txt", gzip.compress(content) if packed else content))
    assert vectors.words[: len(WORDS)] == WORDS and vectors.matrix.dtype == np.float32
    if kind == "exponents":
        np.testing.assert_allclose(vectors.matrix[-1], [1e-5, -2e-3, 3, 0.5, 7], rtol=1e-6)
    else:
        np.testing.assert_array_equal(vectors.matrix, MATRIX)


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_binary(end: bytes, packed: bool, tmp_path: Path) -> None:
    words = [word.replace(" ", "_") for word in WORDS]
    content = as_binary(words, MATRIX, end)
    vectors = read_vectors(write(tmp_path / "v.bin", gzip.compress(content) if packed else content))
    assert vectors.words == words
    np.testing.assert_array_equal(vectors.matrix, MATRIX)
    assert read_vectors(tmp_path / "v.bin", {"2"}).words == ["2"]
    write(tmp_path / "cut.bin", content[:-3])
    with pytest.raises(DataError, match=r"7 vectors of 5 .* ends after 6"):
        read_vectors(tmp_path / "cut.bin")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("spelling", [bytes, str])
def test_npz(dtype: type, spelling: type, tmp_path: Path) -> None:
    words = np.array([word.encode() if spelling is bytes else word for word in WORDS])
    np.savez(tmp_path / "v.npz", words=words, vals=MATRIX.astype(dtype))
    vectors = read_vectors(tmp_path / "v.npz")
    assert vectors.words == WORDS and vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, MATRIX.astype(dtype).astype(np.float32))


def test_wanted_words_only(tmp_path: Path) -> None:
    whole = read_vectors(write(tmp_path / "v.txt", FORMATS["header"]))
    some = read_vectors(tmp_path / "v.txt", {". . .", "é", "absent"})
    assert some.words == ["é", ". . ."]
    np.testing.assert_array_equal(some.matrix, whole.align(["é", ". . ."])[0])
    whole.save(tmp_path / "v.npz")
    assert read_vectors(tmp_path / "v.npz", ["3.5", "the"]).words == ["the", "3.5"]
    none = read_vectors(tmp_path / "v.txt", [])
    assert len(none) == 0 and none.matrix.shape == (0, 5)


def test_many_lines_in_batches(tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).standard_normal((200, 7)).round(5).astype(np.float32)
    words = [f"w{i}" for i in range(200)]
    vectors = read_vectors(write(tmp_path / "v.txt", as_text(words, matrix)))
    assert vectors.words == words
    np.testing.assert_array_equal(vectors.matrix, matrix)


def test_the_first_of_two_wins(tmp_path: Path) -> None:
    vectors = read_vectors(write(tmp_path / "v.txt", "a 1.0 2.0\nb 1.0 3.0\na 5.0 6.0\n"))
    assert vectors.words == ["a", "b"] and vectors.matrix[0].tolist() == [1, 2]


BAD_FILES = {
    "": (1, "a word and its numbers"),
    "a b c\n": (1, "a word and its numbers"),
    "a 1.0 2.0\nb 1.0 2.0\nc 1.0\n": (3, "have 2 numbers, but this line has 1"),
    "a 1.0 2.0\nb 1.0 2.0\nc 1.0 2.5 3.0\n": (3, "have 2 numbers, but this line has 3"),
    "a 1.0 2.0\nb 1.0 2.0x\nc 1.0 2.5\n": (2, "is not a number"),
    "a 1.0 2.0\nb  2.0\nc 1.0 2.5\n": (2, "this line has 1"),
    "3 2\na 1.0 2.0\nb 1.0 2.0 \nc 1.5 x\n": (4, "'x' is not a number"),
    "3 2\na 1.0 2.0\nb 1.0 2.0\n": (None, "announces 3 vectors, but there are 2"),
    "3 3\na 1.0 2.0\n": (2, "have 3 numbers, but this line has 2"),
    "a 1.0 nan\n": (None, "'a' contains a NaN"),
}


@pytest.mark.parametrize("content", BAD_FILES)
def test_bad_text(content: str, tmp_path: Path) -> None:
    line, message = BAD_FILES[content]
    with pytest.raises((DataError, FormatError), match=message) as caught:
        read_vectors(write(tmp_path / "bad.txt", content))
    assert "bad.txt" in str(caught.value) and getattr(caught.value, "line", None) == line


def test_bad_packages(tmp_path: Path) -> None:
    write(tmp_path / "cut.gz", gzip.compress(FORMATS["glove"].encode() * 50)[:-20])
    with pytest.raises(DataError, match="truncated or damaged"):
        read_vectors(tmp_path / "cut.gz")
    np.savez(tmp_path / "a.npz", words=np.array([b"a"]), other=np.zeros((1, 2)))
    with pytest.raises(DataError, match="words and vals"):
        read_vectors(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", words=np.array([b"a", b"b"]), vals=np.zeros((1, 2)))
    with pytest.raises(DataError, match="a row of vals each"):
        read_vectors(tmp_path / "b.npz")
    for wrong in (tmp_path, tmp_path / "absent.txt"):
        with pytest.raises(DataError, match=r"folder|exist"):
            read_vectors(wrong)
    with pytest.raises(DataError, match="must have size 300, but they have 5"):
        read_vectors(write(tmp_path / "v.txt", FORMATS["glove"]), width=300)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    assert pickle.dumps(Trap())
    np.savez(tmp_path / "trap.npz", words=np.array([Trap()], dtype=object), vals=np.zeros((1, 2)))
    with pytest.raises(DataError, match="without pickle"):
        read_vectors(tmp_path / "trap.npz")
    assert not (tmp_path / "sprung").exists()


def test_unit_align_and_coverage() -> None:
    vectors = Vectors(["a", "b", "zero"], np.array([[3, 4], [0, -2], [0, 0]], np.float32))
    np.testing.assert_allclose(vectors.unit().matrix, [[0.6, 0.8], [0, -1], [0, 0]], rtol=1e-6)
    assert vectors.unit().matrix.dtype == np.float32
    matrix, known = vectors.align(["b", "x", "a"])
    assert matrix.tolist() == [[0, -2], [0, 0], [3, 4]] and known.tolist() == [True, False, True]
    text = ["a", "a", "b", "x", "x", "x", "y"]
    coverage = vectors.coverage(text)
    assert coverage == vectors.coverage(Counter(text))
    assert (coverage.types, coverage.known_types, coverage.tokens, coverage.known_tokens) == (4, 2, 7, 3)
    assert coverage.missing == [("x", 3), ("y", 1)]
    assert "2 of 4 words (50.0%), 42.9% of the running text" in str(coverage) and "x (3)" in str(coverage)
    with pytest.raises(DataError, match="2 words need a matrix with as many rows"):
        Vectors(["a", "b"], np.zeros((3, 1), np.float32))


plain = st.decimals(-1000, 1000, places=5).map(lambda x: f"{x:f}".encode()) | st.sampled_from(
    [b"0.0", b"-0.000001", b".5", b"7.", b"123456789.012345"]
)
other = st.floats(allow_nan=False).map(lambda x: repr(x).encode()) | st.integers().map(lambda x: b"%d" % x)


@given(st.lists(plain, min_size=1))
@example([b"-0.1"])
def test_numbers_in_plain_form_are_read_exactly(numbers: list[bytes]) -> None:
    quick = _parse_plain(b" ".join(numbers))
    assert quick is not None and quick.tolist() == [float(number) for number in numbers]


@given(st.lists(plain | other))
def test_numbers_in_any_form_are_read_exactly(numbers: list[bytes]) -> None:
    assert parse_decimals(b"\n".join(numbers)).tolist() == [float(number) for number in numbers]


@pytest.mark.parametrize("text", [b"1.0 x", b"1.0 1.2.3", b".", b"-.", b"1-2.0", b"--1.0", b"1.0-"])
def test_what_is_no_number(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse_decimals(text)


def test_text_is_read_faster_than_number_by_number(tmp_path: Path) -> None:
    """Three times as fast, when the machine is quiet: 100k × 300 in two or three seconds."""
    matrix = np.random.default_rng(0).standard_normal((1000, 300))
    path = write(tmp_path / "v.txt", as_text([f"w{i}" for i in range(1000)], matrix))

    def number_by_number() -> np.ndarray:
        with path.open("rb") as lines:
            return np.array([[float(number) for number in line.split()[1:]] for line in lines], np.float32)

    np.testing.assert_array_equal(read_vectors(path).matrix, number_by_number())
    ours, plain = zip(
        *((cpu_time(lambda: read_vectors(path)), cpu_time(number_by_number)) for _ in range(5)), strict=True
    )
    assert min(ours) < min(plain)


def cpu_time(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@needs_data
def test_glove() -> None:
    """The coverage that is known of this file, with cleaning as it was there."""
    vectors = read_vectors("glove")
    assert (len(vectors), vectors.width) == (96385, 100)
    for name, types, tokens in (("sst", 96.3, 99.0), ("subj", 92.3, 98.5), ("cr", 94.1, 96.8)):
        data = load_dataset(name, cleaning="kim")
        coverage = vectors.coverage(
            token
            for part in (data.train, data.dev, data.test)
            for example in part
            for token in example.tokens
        )
        assert 100 * coverage.known_types / coverage.types == pytest.approx(types, abs=0.6)
        assert 100 * coverage.known_tokens / coverage.tokens == pytest.approx(tokens, abs=0.6)
