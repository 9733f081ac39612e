"""Word vectors from files: GloVe and word2vec text, word2vec binary, npz; gzip or not."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rrnn.errors import DataError
from rrnn.tasks.data import sources
from rrnn.tasks.data.vector_files import Wanted, read_stream


@dataclass(frozen=True)
class Coverage:
    """How much of a text has vectors, by different words (types) and by running words (tokens)."""

    types: int
    known_types: int
    tokens: int
    known_tokens: int
    missing: list[tuple[str, int]]
    """The most frequent words without a vector, and how often they occur."""

    def __str__(self) -> str:
        types, tokens = self.known_types / max(self.types, 1), self.known_tokens / max(self.tokens, 1)
        missing = ", ".join(f"{word} ({count})" for word, count in self.missing[:5])
        return (
            f"vectors for {self.known_types} of {self.types} words ({types:.1%}), {tokens:.1%} of the running text"
            + (f"; most frequent without one: {missing}" if missing else "")
        )


@dataclass(frozen=True)
class Vectors:
    """Words and their vectors, the rows of a float32 matrix."""

    words: list[str]
    matrix: np.ndarray

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.words) != len(self.matrix):
            raise DataError(
                f"{len(self.words)} words need as many rows, but a matrix of {self.matrix.shape} came"
            )

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def unit(self) -> Vectors:
        """The same words with vectors of length one; a vector of zeros stays one."""
        lengths = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        return Vectors(self.words, self.matrix / np.where(lengths > 0, lengths, 1))

    def beside(self, other: Vectors) -> Vectors:
        """The words of both, each with its two vectors one after the other; zeros stand for the one that is missing.
        Lengths are left alone: bring both to one first (`unit`), or the longer ones will outweigh the others."""
        words = list(dict.fromkeys([*self.words, *other.words]))
        return Vectors(words, np.concatenate([each.align(words)[0] for each in (self, other)], axis=1))

    def align(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """(a row for each of these words, zeros for those without a vector; which words have one)"""
        rows = np.array([self._rows.get(word, -1) for word in words], np.int64)
        known = rows >= 0
        matrix = np.zeros((len(rows), self.width), np.float32)
        matrix[known] = self.matrix[rows[known]]
        return matrix, known

    def coverage(self, tokens: Iterable[str] | Mapping[str, int]) -> Coverage:
        """Of a text, or of its words' counts."""
        counts = Counter(tokens)
        missing = Counter({word: count for word, count in counts.items() if word not in self._rows})
        return Coverage(
            types=len(counts),
            known_types=len(counts) - len(missing),
            tokens=counts.total(),
            known_tokens=counts.total() - missing.total(),
            missing=missing.most_common(20),
        )

    def save(self, path: str | Path) -> None:
        """Write npz, whole or not at all: the quickest to read, and a large file's few wanted words stay small."""
        path = Path(path)
        if path.suffix != ".npz":
            raise DataError(f"vectors are saved as .npz, not as {path.name}")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.npz")
        try:
            words = np.array([word.encode() for word in self.words])
            np.savez(temporary, words=words, vals=self.matrix)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def read_vectors(
    path: str | Path, words: Collection[str] | None = None, *, width: int | None = None
) -> Vectors:
    """Read a file of vectors, or `glove` as `rrnn data` knows it.

    With `words`, only theirs are kept, and the others' numbers not even read. A word that occurs twice keeps its
    first vector. `width` is what the caller needs: another one is an error.
    """
    path = _resolve(path)
    wanted = Wanted(words)
    found = _read_npz(path, wanted) if zipfile.is_zipfile(path) else read_stream(path, wanted)
    vectors = Vectors([word.decode("utf-8", "replace") for word in found[0]], found[1])
    if width is not None and vectors.width != width:
        raise DataError(f"{path}: vectors of width {width} are needed, but these have {vectors.width}")
    finite = np.isfinite(vectors.matrix).all(axis=1)
    if not finite.all():
        word = vectors.words[int(np.argmin(finite))]
        raise DataError(f"{path}: the vector of {word!r} holds a NaN or an infinite number")
    return vectors


def _resolve(path: str | Path) -> Path:
    if str(path) == "glove" and not Path(path).is_file():
        folder = sources.find("glove")
        found = [*sorted(folder.glob("glove*.npz")), *sorted(folder.glob("glove*.txt*"))]
        if not found:
            raise DataError(f"{folder} has no file glove*.npz or glove*.txt")
        return found[0]
    path = Path(path).expanduser()
    if not path.is_file():
        what = "is a folder; name the file in it" if path.is_dir() else "does not exist"
        raise DataError(f"a file of word vectors is needed, but {path} {what}")
    return path


def _read_npz(path: Path, wanted: Wanted) -> tuple[list[bytes], np.ndarray]:
    """Arrays `words` (bytes or str) and `vals`. Pickled arrays are never loaded: they can run code."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words, values = arrays["words"], arrays["vals"]
    except KeyError:
        raise DataError(
            f"{path}: an npz of vectors has the arrays words and vals; a zip of a text file must be unpacked first"
        ) from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: this npz cannot be read ({error}); save words as bytes, without pickle"
        ) from None
    if words.ndim != 1 or words.dtype.kind not in "SU" or values.ndim != 2 or len(words) != len(values):
        raise DataError(
            f"{path}: words must be a list of byte strings with a row of vals each, but they are "
            f"{words.dtype}{list(words.shape)} and {values.dtype}{list(values.shape)}"
        )
    spelled = words.tolist() if words.dtype.kind == "S" else [word.encode() for word in words.tolist()]
    kept: dict[bytes, int] = {}
    for row, word in enumerate(spelled):
        if word in wanted and word not in kept:
            kept[word] = row
    return list(kept), values[list(kept.values())].astype(np.float32)
