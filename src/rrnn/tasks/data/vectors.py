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
    """How much of a text has vectors, counted in distinct words (types) and in running words (tokens)."""

    types: int
    known_types: int
    tokens: int
    known_tokens: int
    missing: list[tuple[str, int]]
    """The most frequent words without a vector, with their counts."""

    def __str__(self) -> str:
        types, tokens = self.known_types / max(self.types, 1), self.known_tokens / max(self.tokens, 1)
        missing = ", ".join(f"{word} ({count})" for word, count in self.missing[:5])
        return (
            f"vectors for {self.known_types} of {self.types} words ({types:.1%}), {tokens:.1%} of the running text"
            + (f"; most frequent without one: {missing}" if missing else "")
        )


@dataclass(frozen=True)
class Vectors:
    """Words and their vectors, which are the rows of a float32 matrix."""

    words: list[str]
    matrix: np.ndarray

    def __post_init__(self) -> None:
        if self.matrix.ndim != 2 or len(self.words) != len(self.matrix):
            raise DataError(
                f"{len(self.words)} words need a matrix with as many rows; got {self.matrix.shape}"
            )

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._rows

    @property
    def width(self) -> int:
        """The size of a vector."""
        return self.matrix.shape[1]

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def unit(self) -> Vectors:
        """Return the same words with vectors of length one; a zero vector stays zero."""
        lengths = np.linalg.norm(self.matrix, axis=1, keepdims=True)
        return Vectors(self.words, self.matrix / np.where(lengths > 0, lengths, 1))

    def beside(self, other: Vectors) -> Vectors:
        """Return the words of both with concatenated vectors, and zeros for a missing one. Lengths are unchanged: call
        `unit` on both first, or the longer vectors will dominate."""
        words = list(dict.fromkeys([*self.words, *other.words]))
        return Vectors(words, np.concatenate([each.align(words)[0] for each in (self, other)], axis=1))

    def align(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return (a row for each of these words, or zeros; which words have a vector)."""
        rows = np.array([self._rows.get(word, -1) for word in words], np.int64)
        known = rows >= 0
        matrix = np.zeros((len(rows), self.width), np.float32)
        matrix[known] = self.matrix[rows[known]]
        return matrix, known

    def coverage(self, tokens: Iterable[str] | Mapping[str, int]) -> Coverage:
        """Return the coverage of a text, or of its word counts."""
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
        """Write an npz file, completely or not at all. It is the fastest format to read."""
        path = Path(path)
        if path.suffix != ".npz":
            raise DataError(f"vectors are saved as .npz; got {path.name}")
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
    """Read a file of word vectors, or `glove`, the data set of that name.

    With `words`, only their vectors are read. A word that occurs twice keeps its first vector. If `width` is given,
    vectors of another size are an error.
    """
    path = _resolve(path)
    wanted = Wanted(words)
    found = _read_npz(path, wanted) if zipfile.is_zipfile(path) else read_stream(path, wanted)
    vectors = Vectors([word.decode("utf-8", "replace") for word in found[0]], found[1])
    if width is not None and vectors.width != width:
        raise DataError(f"{path}: the vectors must have size {width}, but they have {vectors.width}")
    finite = np.isfinite(vectors.matrix).all(axis=1)
    if not finite.all():
        word = vectors.words[int(np.argmin(finite))]
        raise DataError(f"{path}: the vector of {word!r} contains a NaN or an infinite number")
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
        what = "is a folder; give the file in it" if path.is_dir() else "does not exist"
        raise DataError(f"word vectors must be a file, but {path} {what}")
    return path


def _read_npz(path: Path, wanted: Wanted) -> tuple[list[bytes], np.ndarray]:
    """Read the arrays `words` (bytes or str) and `vals`. Pickled arrays are never loaded, since they can run code."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words, values = arrays["words"], arrays["vals"]
    except KeyError:
        raise DataError(
            f"{path}: an npz file of vectors has the arrays words and vals; unpack a zip of a text file first"
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


SMOOTHING = (
    0.75  # power of the contexts' frequencies; without it, rare contexts would have the highest information
)
MORE = 20  # directions beyond those that are kept, since the projection is random
ROUNDS = 4  # rounds of power iteration, for the same reason


def cooccurrence_vectors(
    texts: Iterable[Sequence[str]],
    width: int = 100,
    *,
    window: int = 5,
    least: int = 4,
    contexts: int = 10_000,
) -> Vectors:
    """Compute vectors of unit length for all words that occur at least `least` times, the most frequent first.

    This factors the positive pointwise mutual information of words and their neighbours (Levy, Goldberg and Dagan
    2015), and takes a minute for a few million words. A neighbour d words away counts 1/d, up to `window`; only the
    `contexts` most frequent words count as neighbours.
    """
    texts = list(texts)
    counts = Counter(word for text in texts for word in text)
    words = [word for word, count in counts.most_common() if count >= least]
    if not 0 < width < min(contexts, len(words)) or window < 1:
        raise DataError(
            f"vectors of size {width} need more than {width} contexts and words, and a window of at least 1; got "
            f"contexts={contexts}, {len(words)} words that occur {least} times or more, and window={window}"
        )
    contexts = min(contexts, len(words))
    information = _information(_neighbours(texts, words, window, contexts))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # torch.manual_seed would also change the generators of a GPU
        left, size, _ = torch.svd_lowrank(information, min(width + MORE, contexts), ROUNDS)
    return Vectors(words, (left[:, :width] * size[:width].sqrt()).numpy()).unit()


def _neighbours(texts: Sequence[Sequence[str]], words: Sequence[str], window: int, contexts: int) -> Tensor:
    """Return the sparse matrix of how often each context (column) is near each word (row)."""
    number = {word: i for i, word in enumerate(words)}
    gap = [-1] * window  # so that words of different texts are no neighbours
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
    """Return the sparse positive pointwise mutual information of rows and columns."""
    (rows, columns), values = counts.indices(), counts.values().double()
    of_row = torch.zeros(counts.shape[0], dtype=torch.double).index_add_(0, rows, values)
    of_column = torch.zeros(counts.shape[1], dtype=torch.double).index_add_(0, columns, values) ** SMOOTHING
    information = (values / of_row[rows] / (of_column[columns] / of_column.sum())).log().float()
    above = information > 0
    return _sparse(counts.indices()[:, above], information[above], counts.shape).coalesce()


def _sparse(places: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.sparse_coo_tensor(places, values, tuple(shape), check_invariants=True)
