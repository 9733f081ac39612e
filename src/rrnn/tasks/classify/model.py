"""`TextClassifier`: embeddings, layers of any cell, pooling, read-out.

ids (T, B) ── embedding, letters ── dropout ──▶ layers ──▶ outputs (T, B, H) ── pooling ── read-out ──▶ logits (B, C)
"""

from __future__ import annotations

import math
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rrnn.automata import Cell
from rrnn.nn.dropout import Drops
from rrnn.tasks.classify.config import ClassifyConfig
from rrnn.tasks.classify.spelling import UNKNOWN_ID, Spelling
from rrnn.zoo import layer as build_layer

EMBEDDING_SIZE = 50
_SEEDING = threading.Lock()
"""Layers draw their first weights from torch's global generator: one model at a time."""


class TextClassifier(nn.Module):
    """The paper's classifier with any cell in it.

    Dropout masks come from a generator of the model's own, `generator`, not from torch's global one: trainings side by
    side do not disturb each other, and a resumed one goes on with the same masks.
    """

    def __init__(
        self,
        config: ClassifyConfig,
        words: int,
        classes: int,
        *,
        vectors: Tensor | None = None,
        spellings: Tensor | None = None,
        cell: Cell | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """`vectors` (words, numbers) are fixed unless config.fine_tune says otherwise; row 0 is the padding's.
        `spellings` are all words', for config.characters. `cell` stands in for config.cell, which may be a file's."""
        super().__init__()
        self.config, self.classes = config, classes
        with _SEEDING, torch.random.fork_rng(devices=[]):
            # On the CPU, so that every device starts from the same weights, and not by torch.manual_seed, which would
            # change a GPU's generators, too.
            torch.default_generator.manual_seed(config.seed)
            self._build(config, words, vectors, spellings, cell)
        self.to(device)
        self.generator = torch.Generator(device=device)
        self.generator.manual_seed(config.seed)

    def _build(
        self,
        config: ClassifyConfig,
        words: int,
        vectors: Tensor | None,
        spellings: Tensor | None,
        cell: Cell | None,
    ) -> None:
        length = 1.0 if vectors is None else config.vector_length
        size = (config.embedding_size or EMBEDDING_SIZE) if vectors is None else vectors.shape[1]
        self.trained = vectors is None or config.fine_tune
        if vectors is None:
            vectors = torch.randn(words, size) / math.sqrt(size)  # about unit length, as given vectors have
            vectors[0] = 0
        if self.trained:
            self.embedding = nn.Parameter(vectors.clone())
        else:  # not among the weights: every checkpoint would hold it again
            self.register_buffer("embedding", vectors, persistent=False)
        self.spelling: Spelling | None = None
        if config.characters:
            assert spellings is not None
            self.spelling = Spelling(spellings, config.characters)
            self.loudness = length / math.sqrt(size)  # of a vector's numbers, and so of the letters'
            size += config.characters
        layers = []
        for _ in range(config.layers):
            layers.append(build_layer(cell or config.cell, size, config.hidden_size, **self._directions()))
            size = getattr(layers[-1], "output_size", config.hidden_size * (2 if config.bidirectional else 1))
        self.layers = nn.ModuleList(layers)
        if config.pooling == "attention":
            self.attention = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 1, bias=False))
        if config.readout == "linear":
            self.readout: nn.Module = nn.Linear(size, self.classes)
        else:
            self.readout = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, self.classes))

    def _directions(self) -> dict[str, Any]:
        """Only where asked for: not every model of the zoo has two."""
        return {"bidirectional": True} if self.config.bidirectional else {}

    def embed(self, ids: Tensor) -> Tensor:
        """(…, numbers) of words' numbers (…): what the first layer reads."""
        if self.spelling is None:
            return F.embedding(ids, self.embedding)
        known = ids.where(ids < len(self.embedding), UNKNOWN_ID)  # others have letters alone
        return torch.cat([F.embedding(known, self.embedding), self.spelling(ids) * self.loudness], -1)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """(B, classes) of ids (T, B), whose first `lengths` (B) are text and whose other steps are padding, id 0."""
        c, mask = self.config, None
        if c.bidirectional or c.pooling != "last":
            mask = torch.arange(ids.shape[0], device=ids.device).unsqueeze(1) < lengths
        return self.readout(self.pool(self.outputs(ids, mask), mask, lengths))

    def outputs(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        """(T, B, H) of the last layer. `mask` (T, B), where there is text, is for layers of two directions."""
        c, drops = self.config, Drops(self.generator)
        x = self.embed(ids)
        if self.training and c.word_dropout:
            x = x * drops(x.new_ones(ids.shape), c.word_dropout).unsqueeze(-1)
        # Padding comes last: what reads from left to right has seen no padding where there is text.
        padding = {"mask": mask} if c.bidirectional else {}
        for depth, layer in enumerate(self.layers):
            if self.training:
                x = drops(x, c.vertical_dropout if depth else c.embedding_dropout, c.recurrent_dropout)
            x, _ = layer(x, **padding)
        return drops(x, c.vertical_dropout) if self.training else x

    def pool(self, h: Tensor, mask: Tensor | None, lengths: Tensor) -> Tensor:
        """(B, H) of outputs (T, B, H): one vector a text. The last one needs no mask."""
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
