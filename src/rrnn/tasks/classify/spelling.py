"""What a word's letters say, learned beside its vector: of endings and prefixes, and of words without a vector."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.tasks.vocabulary import Vocabulary

UNKNOWN_ID = 1
"""The number of the word that stands for all others: in vocabularies here it comes after the padding, 0."""
LETTERS = 18
"""Bytes of a word that are read; of a longer one, as many from either end."""
_EDGE = 257  # 0 is padding, 1 to 256 are bytes
_SIZE, _WINDOW = 16, 3
_ROOM = 4096
MOST_NEW = 2**16
"""Words that a model learns the letters of when it meets them, so that a stream of texts does not fill the memory."""
_ADDING = threading.Lock()


def spell(words: Iterable[str]) -> Tensor:
    """(words, LETTERS + 2) int16: a word's UTF-8 bytes between two edges, then zeros."""
    rows = [_bytes(word) for word in words]
    table = np.zeros((len(rows), LETTERS + 2), np.int16)
    for row, letters in zip(table, rows, strict=True):
        row[: len(letters) + 2] = [_EDGE, *(letter + 1 for letter in letters), _EDGE]
    return torch.from_numpy(table)


def spell_vocabulary(vocabulary: Vocabulary) -> Tensor:
    """Of all its words. The padding and the word that stands for others have no letters."""
    table = spell(vocabulary.words)
    table[: UNKNOWN_ID + 1] = 0
    return table


def encode(
    vocabulary: Vocabulary, words: Sequence[str], new: dict[str, int], first: int, most: float = math.inf
) -> np.ndarray:
    """Words' numbers where letters are read: those that the vocabulary lacks have numbers from `first` on, so that each
    has letters of its own. They are kept in `new`; beyond `most` of them others are unknown."""
    ids = vocabulary.encode(words)
    for place in np.flatnonzero(ids == UNKNOWN_ID).tolist():
        word = words[place]
        if word not in new and word not in vocabulary and len(new) < most:
            new[word] = first + len(new)
        ids[place] = new.get(word, UNKNOWN_ID)
    return ids


def _bytes(word: str) -> bytes:
    letters = word.encode("utf-8", "replace")
    return letters if len(letters) <= LETTERS else letters[: LETTERS // 2] + letters[-LETTERS // 2 :]


class Spelling(nn.Module):
    """Filters over every three letters of a word; what a word keeps of each is its largest answer (dos Santos and
    Zadrozny 2014)."""

    spellings: Tensor

    def __init__(self, spellings: Tensor, features: int) -> None:
        """`spellings` are `spell`'s, a row a word."""
        super().__init__()
        # Not among the weights: it follows from the vocabulary.
        self.register_buffer("spellings", spellings, persistent=False)
        self.first, self.new = len(spellings), dict[str, int]()
        self.letters = nn.Parameter(torch.randn(_EDGE + 1, _SIZE))
        self.filters = nn.Linear(_WINDOW * _SIZE, features)
        with torch.no_grad():
            self.letters[0] = 0

    def encode(self, vocabulary: Vocabulary, words: Sequence[str]) -> np.ndarray:
        """Their numbers; of those that the vocabulary lacks it learns the letters."""
        with _ADDING:
            met = len(self.new)
            ids = encode(vocabulary, words, self.new, self.first, MOST_NEW)
            if met < len(self.new):
                self._add(self.first + met, list(islice(self.new, met, None)))
        return ids

    def _add(self, start: int, words: Sequence[str]) -> None:
        table, stop = self.spellings, start + len(words)
        if stop > len(table):  # with room for more: the table may be large
            table = torch.cat([table, table.new_zeros(max(len(words), _ROOM), table.shape[1])])
        table[start:stop] = spell(words).to(table.device)
        self.spellings = table

    def forward(self, ids: Tensor) -> Tensor:
        """(…, features) in [-1, 1] of words' numbers (…)."""
        letters = F.embedding(self.spellings[ids].int(), self.letters, padding_idx=0)
        steps = letters.shape[-2] - _WINDOW + 1
        windows = torch.cat([letters[..., start : start + steps, :] for start in range(_WINDOW)], -1)
        return self.filters(windows).amax(-2).tanh()
