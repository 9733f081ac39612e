"""Word vectors of one's own texts: which words stand near which.

Published vectors are of news and encyclopaedias, where *dull* stands beside *sharp*; in reviews it stands beside
*boring*. `cooccurrence_vectors` factors the positive pointwise mutual information of words and their neighbours (Levy,
Goldberg and Dagan 2015): a minute for a few million words. `Vectors.beside` puts what it finds next to published ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.data.vectors import Vectors

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
