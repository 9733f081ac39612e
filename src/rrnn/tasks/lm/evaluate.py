"""Perplexity of a text: one continuous stream at batch 1, every token predicted from all before it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.lm.loss import token_losses
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.precision import Precision, products

CHUNK = 8192  # tokens at a time: what is between them is carried, so it changes nothing but memory


class Score(NamedTuple):
    loss: float  # nats a token
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


@torch.no_grad()
def evaluate(
    model: LanguageModel, ids: Tensor, *, chunk: int = CHUNK, precision: Precision = "fp32", streams: int = 1
) -> Score:
    """The first token is predicted from the start symbol, each other one from the tokens before it. With several
    `streams` the text is cut into as many pieces, read side by side: only the token before a piece is known to it."""
    if not len(ids):
        raise DataError("there is nothing to evaluate: the text has no tokens")
    device, before = model.embedding.device, model.training
    ids = ids.to(device)
    inputs = torch.cat([ids.new_tensor([model.start]), ids[:-1]])
    streams = min(streams, len(ids))
    length = -(-len(ids) // streams)
    missing = streams * length - len(ids)  # at the end of the last piece: read, and not counted
    inputs, aims = (F.pad(t, (0, missing)).view(streams, length).t() for t in (inputs, ids))
    counted = F.pad(torch.ones_like(ids, dtype=torch.bool), (0, missing)).view(streams, length).t()
    total, state = torch.zeros((), dtype=torch.float64, device=device), model.rnn.init_state(streams)
    model.eval()
    try:
        with products(precision):
            pieces = (t.split(max(1, chunk // streams)) for t in (inputs, aims, counted))
            for words, targets, count in zip(*pieces, strict=True):
                hidden, state = model(words, state)
                losses = token_losses(
                    hidden.flatten(0, 1), model.embedding, model.bias, targets.flatten(), model.vocabulary
                )
                total += (losses * count.flatten()).sum(dtype=torch.float64)
    finally:
        model.train(before)
    return Score(float(total) / len(ids), len(ids))
