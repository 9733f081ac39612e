"""Word vectors: read from files, or computed from texts.

Files are GloVe and word2vec text, word2vec binary, or npz, compressed with gzip or not. `cooccurrence_vectors` computes
vectors from one's own texts. Published vectors come from news and encyclopaedias, where *dull* stands near *sharp*; in
reviews it stands near *boring*. `Vectors.beside` joins the two.
"""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.data import download
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
        folder = download.find("glove")
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


# ---- vectors of own texts --------------------------------------------------------------------------------------------


SMOOTHING = 0.75  # contexts' frequencies to this power: rare ones would have the highest information of all
MORE = 20  # directions beyond those that are kept: the projection is a random one
ROUNDS = 4  # of power iteration, for the same reason


def cooccurrence_vectors(
    texts: Iterable[Sequence[str]],
    width: int = 100,
    *,
    window: int = 5,
    least: int = 4,
    contexts: int = 10_000,
) -> Vectors:
    """Vectors of unit length for all words that occur at least `least` times, the most frequent first.

    A neighbour d words away counts 1/d, up to `window`; the `contexts` most frequent words count as neighbours.
    """
    texts = list(texts)
    counts = Counter(word for text in texts for word in text)
    words = [word for word, count in counts.most_common() if count >= least]
    if not 0 < width < min(contexts, len(words)) or window < 1:
        raise DataError(
            f"vectors of width {width} need more than {width} contexts and words, and a window of at least 1; got "
            f"contexts={contexts}, {len(words)} words that occur {least} times or more, and window={window}"
        )
    contexts = min(contexts, len(words))
    information = _information(_neighbours(texts, words, window, contexts))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would change a GPU's generators, too
        left, size, _ = torch.svd_lowrank(information, min(width + MORE, contexts), ROUNDS)
    return Vectors(words, (left[:, :width] * size[:width].sqrt()).numpy()).unit()


def _neighbours(texts: Sequence[Sequence[str]], words: Sequence[str], window: int, contexts: int) -> Tensor:
    """How much of a context (column) each word (row) has beside it; sparse."""
    number = {word: i for i, word in enumerate(words)}
    gap = [-1] * window  # so that no word is a neighbour of another text's
    row = torch.tensor([n for text in texts for n in (*(number.get(word, -1) for word in text), *gap)])
    found = _sparse(torch.empty(2, 0, dtype=torch.long), torch.empty(0), (len(words), contexts))
    for distance in range(1, window + 1):
        pairs = torch.stack([row[:-distance], row[distance:]])
        pairs = torch.cat([pairs, pairs.flip(0)], 1)
        pairs = pairs[:, (pairs >= 0).all(0) & (pairs[1] < contexts)]
        weights = torch.full((pairs.shape[1],), 1 / distance)
        found = (found + _sparse(pairs, weights, found.shape)).coalesce()
    return found


def _information(counts: Tensor) -> Tensor:
    """The positive pointwise mutual information of rows and columns; sparse."""
    (rows, columns), values = counts.indices(), counts.values().double()
    of_row = torch.zeros(counts.shape[0], dtype=torch.double).index_add_(0, rows, values)
    of_column = torch.zeros(counts.shape[1], dtype=torch.double).index_add_(0, columns, values) ** SMOOTHING
    information = (values / of_row[rows] / (of_column[columns] / of_column.sum())).log().float()
    above = information > 0
    return _sparse(counts.indices()[:, above], information[above], counts.shape).coalesce()


def _sparse(places: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, tuple(shape), check_invariants=True)
