"""`TextClassifier`: embeddings, layers of any cell, pooling, read-out.

ids (T, B) ── embedding, letters ── dropout ──▶ layers ──▶ outputs (T, B, H) ── pooling ── read-out ──▶ logits (B, C)

`Spelling` learns features from the letters of words: endings, prefixes, and words that have no vector.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.nn import BlockStack
from rrnn.nn.dropout import Drops, dropping
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.rules import RuleUnits
from rrnn.tasks.configs import AUTO, OFF
from rrnn.tasks.vocabulary import Vocabulary
from rrnn.zoo import block_settings, get_cell
from rrnn.zoo import layer as build_layer

UNKNOWN_ID = 1
"""The id of the unknown word, which comes after the padding, 0, in all vocabularies of classifiers."""
LETTERS = 18
"""Bytes of a word that are read; a longer word is cut in the middle."""
_EDGE = 257  # 0 is padding, 1 to 256 are bytes
_SIZE, _WINDOW = 16, 3
_ROOM = 4096
MOST_NEW = 2**16
"""The largest number of new words whose letters a model stores, so that a stream of texts does not fill the memory."""
_ADDING = threading.Lock()


def spell(words: Iterable[str]) -> Tensor:
    """Return (words, LETTERS + 2) int16: the UTF-8 bytes of each word between two edge marks, then zeros."""
    rows = [_bytes(word) for word in words]
    table = np.zeros((len(rows), LETTERS + 2), np.int16)
    for row, letters in zip(table, rows, strict=True):
        row[: len(letters) + 2] = [_EDGE, *(letter + 1 for letter in letters), _EDGE]
    return torch.from_numpy(table)


def spell_vocabulary(vocabulary: Vocabulary) -> Tensor:
    """Spell all words of a vocabulary. The padding and the unknown word have no letters."""
    table = spell(vocabulary.words)
    table[: UNKNOWN_ID + 1] = 0
    return table


def encode(
    vocabulary: Vocabulary, words: Sequence[str], new: dict[str, int], first: int, most: float = math.inf
) -> np.ndarray:
    """Return the ids of words for a model that reads letters. A word that the vocabulary lacks gets an id from `first`
    on, which is stored in `new`, so that it has letters of its own. After `most` of them, others are unknown."""
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
    """Features of a word from its letters: filters over three letters each, and their maximum over the word (dos Santos
    and Zadrozny 2014)."""

    spellings: Tensor

    def __init__(self, spellings: Tensor, features: int) -> None:
        """`spellings` is what `spell` returns: one row per word."""
        super().__init__()
        # Not stored with the weights: it follows from the vocabulary.
        self.register_buffer("spellings", spellings, persistent=False)
        self.first, self.new = len(spellings), dict[str, int]()
        self.letters = nn.Parameter(torch.randn(_EDGE + 1, _SIZE))
        self.filters = nn.Linear(_WINDOW * _SIZE, features)
        with torch.no_grad():
            self.letters[0] = 0

    def encode(self, vocabulary: Vocabulary, words: Sequence[str]) -> np.ndarray:
        """Return the ids of words, and store the letters of those that the vocabulary lacks."""
        with _ADDING:
            met = len(self.new)
            ids = encode(vocabulary, words, self.new, self.first, MOST_NEW)
            if met < len(self.new):
                self._add(self.first + met, list(islice(self.new, met, None)))
        return ids

    def _add(self, start: int, words: Sequence[str]) -> None:
        table, stop = self.spellings, start + len(words)
        if stop > len(table):  # leave room for more, since copying a large table is slow
            table = torch.cat([table, table.new_zeros(max(len(words), _ROOM), table.shape[1])])
        table[start:stop] = spell(words).to(table.device)
        self.spellings = table

    def forward(self, ids: Tensor) -> Tensor:
        """Return features (…, features) in [-1, 1] of word ids (…)."""
        letters = F.embedding(self.spellings[ids].int(), self.letters, padding_idx=0)
        steps = letters.shape[-2] - _WINDOW + 1
        windows = torch.cat([letters[..., start : start + steps, :] for start in range(_WINDOW)], -1)
        return self.filters(windows).amax(-2).tanh()


# ---- the model -------------------------------------------------------------------------------------------------------


EMBEDDING_SIZE = 50
_SEEDING = threading.Lock()
"""Layers draw their initial weights from torch's global generator, so models are built one at a time."""


class TextClassifier(nn.Module):
    """The paper's text classifier with any cell.

    Dropout masks come from the model's own `generator`, not from torch's global one, so that concurrent trainings do
    not disturb each other, and a resumed training continues with the same masks.
    """

    def __init__(
        self,
        config: ClassifyConfig,
        words: int,
        classes: int,
        *,
        vectors: Tensor | None = None,
        spellings: Tensor | None = None,
        rules: Callable[[int], RuleUnits] | None = None,
        cell: Cell | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """`vectors` (words, size) are fixed unless config.fine_tune is set; row 0 is the padding. `spellings` are those
        of all words, for config.characters. `rules` builds the units of config.rules for the size of an embedded word.
        `cell` replaces config.cell, which may name a file."""
        super().__init__()
        self.config, self.classes = config, classes
        with _SEEDING, torch.random.fork_rng(devices=[]):
            # On the CPU, so that every device starts from the same weights. torch.manual_seed would also change the
            # generators of a GPU.
            torch.default_generator.manual_seed(config.seed)
            self._build(config, words, vectors, spellings, rules, cell)
        self.to(device)
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(config.seed)

    def _build(
        self,
        config: ClassifyConfig,
        words: int,
        vectors: Tensor | None,
        spellings: Tensor | None,
        rules: Callable[[int], RuleUnits] | None,
        cell: Cell | None,
    ) -> None:
        length = 1.0 if vectors is None else config.vector_length
        size = (config.embedding_size or EMBEDDING_SIZE) if vectors is None else vectors.shape[1]
        self.trained = vectors is None or config.fine_tune
        if vectors is None:
            vectors = torch.randn(words, size) / math.sqrt(size)  # about unit length, as given vectors
            vectors[0] = 0
        if self.trained:
            self.embedding = nn.Parameter(vectors.clone())
        else:  # not stored with the weights, or every checkpoint would contain it
            self.register_buffer("embedding", vectors, persistent=False)
        self.spelling: Spelling | None = None
        if config.characters:
            assert spellings is not None
            self.spelling = Spelling(spellings, config.characters)
            self.loudness = length / math.sqrt(
                size
            )  # scale of the elements of a vector, and of the features of letters
            size += config.characters
        self.rules = None if rules is None else rules(size)
        self.layers = nn.ModuleList()
        if config.block != OFF:
            self.layers.append(self._blocks(config, size, cell or get_cell(config.cell)))
            size = config.hidden_size
        else:
            for _ in range(config.layers):
                made = build_layer(cell or config.cell, size, config.hidden_size, **self._layer_options())
                size = getattr(made, "output_size", config.hidden_size * (2 if config.bidirectional else 1))
                self.layers.append(made)
        if config.pooling == "attention":
            self.attention = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 1, bias=False))
        if config.readout == "linear":
            self.readout: nn.Module = nn.Linear(size, self.classes)
        else:
            self.readout = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, self.classes))
        if self.rules is not None:  # at first, the rules alone decide
            last = self.readout if isinstance(self.readout, nn.Linear) else self.readout[-1]
            for parameter in last.parameters():
                nn.init.zeros_(parameter)

    def _layer_options(self) -> dict[str, Any]:
        """Return the options of layers that are needed: not every model of the zoo has them."""
        c, given = self.config, {}
        given |= {"bidirectional": True} if c.bidirectional else {}
        given |= {"heads": c.heads} if c.heads is not None else {}
        return given | ({"groups": c.head_groups} if c.head_groups != 1 else {})

    def _blocks(self, config: ClassifyConfig, size: int, cell: Cell) -> BlockStack:
        """Return blocks of a cell that read embedded words of this size. Their dropouts are those between layers."""
        settings = block_settings(config.cell if config.block == AUTO else config.block, cell)
        return BlockStack(
            cell,
            config.hidden_size,
            config.layers,
            input_size=size,
            heads=config.heads,
            groups=config.head_groups,
            dropout=config.vertical_dropout,
            recurrent_dropout=config.recurrent_dropout,
            **settings,
        )

    def embed(self, ids: Tensor) -> Tensor:
        """Return the embedded words (…, size), the input of the first layer, of word ids (…)."""
        if self.spelling is None:
            return F.embedding(ids, self.embedding)
        known = ids.where(ids < len(self.embedding), UNKNOWN_ID)  # others are known by their letters only
        return torch.cat([F.embedding(known, self.embedding), self.spelling(ids) * self.loudness], -1)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return logits (B, classes) of ids (T, B): `lengths` (B) steps of text, then padding, id 0."""
        c, mask = self.config, None
        if c.bidirectional or c.pooling != "last":
            mask = torch.arange(ids.shape[0], device=ids.device).unsqueeze(1) < lengths
        logits = self.readout(self.pool(self.outputs(ids, mask), mask, lengths))
        return logits if self.rules is None else logits + self.rules(self.embed(ids), ids, lengths)

    def outputs(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return the outputs (T, B, H) of the last layer. Bidirectional layers need `mask` (T, B), true for text."""
        c, drops = self.config, Drops(self.generator)
        x = self.embed(ids)
        if self.training and c.word_dropout:
            x = x * drops(x.new_ones(ids.shape), c.word_dropout).unsqueeze(-1)
        # Padding comes last: a layer that reads from left to right has seen no padding where there is text.
        padding = {"mask": mask} if c.bidirectional else {}
        shared = c.recurrent_dropout if c.block == OFF else 0.0  # blocks drop their own inputs
        for depth, layer in enumerate(self.layers):
            if self.training:
                x = drops(x, c.vertical_dropout if depth else c.embedding_dropout, shared)
            with dropping(drops):
                x, _ = layer(x, **padding)
        return drops(x, c.vertical_dropout) if self.training else x

    def run_layers(self, x: Tensor, states: Sequence[Any] | None = None) -> tuple[Tensor, list[Any]]:
        """Return the outputs (T, B, H) of the last layer on embedded words (T, B, I), without dropout, and all states.
        `states` continue an earlier call, in one direction."""
        found: list[Any] = []
        for layer, state in zip(self.layers, states or [None] * len(self.layers), strict=True):
            x, last = layer(x, state)
            found.append(last)
        return x, found

    def pool(self, h: Tensor, mask: Tensor | None, lengths: Tensor) -> Tensor:
        """Return one vector per text (B, H) of outputs (T, B, H). Pooling "last" needs no mask."""
        how = self.config.pooling
        if how == "last":
            return self._last(h, lengths)
        assert mask is not None
        here = mask.unsqueeze(-1)
        if how == "mean":
            return torch.where(here, h, 0.0).sum(0) / lengths.clamp_min(1).unsqueeze(-1)
        if how == "max":
            return torch.where(here | ~mask.any(0).view(1, -1, 1), h, -torch.inf).amax(0)
        scores = torch.where(here, self.attention(h), torch.finfo(h.dtype).min)
        return (scores.softmax(0) * torch.where(here, h, 0.0)).sum(0)

    def _last(self, h: Tensor, lengths: Tensor) -> Tensor:
        last = (lengths - 1).clamp_min(0).view(1, -1, 1).expand(1, -1, h.shape[-1])
        if not self.config.bidirectional:
            return h.gather(0, last).squeeze(0)
        half = h.shape[-1] // 2  # the backward direction ends at the first word
        return torch.cat([h.gather(0, last).squeeze(0)[:, :half], h[0, :, half:]], -1)
