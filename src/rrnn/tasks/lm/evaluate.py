"""Perplexity of a text: one continuous stream at batch 1, every token predicted from all before it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rrnn.errors import DataError
from rrnn.tasks.lm.loss import token_losses
from rrnn.tasks.lm.model import LanguageModel
from rrnn.tasks.lm.precision import Precision, products

CHUNK = 8192  # steps at a time: what is between them is carried, so it changes nothing but memory


class Score(NamedTuple):
    loss: float  # nats a token
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


@torch.no_grad()
def evaluate(
    model: LanguageModel, ids: Tensor, *, chunk: int = CHUNK, precision: Precision = "fp32"
) -> Score:
    """The first token is predicted from the start symbol, each other one from the tokens before it."""
    if not len(ids):
        raise DataError("there is nothing to evaluate: the text has no tokens")
    device, before = model.embedding.device, model.training
    ids = ids.to(device)
    inputs = torch.cat([ids.new_tensor([model.start]), ids[:-1]])
    total, state = torch.zeros((), dtype=torch.float64, device=device), model.rnn.init_state(1)
    model.eval()
    try:
        with products(precision):
            for words, targets in zip(inputs.split(chunk), ids.split(chunk), strict=True):
                hidden, state = model(words.unsqueeze(1), state)
                losses = token_losses(
                    hidden.squeeze(1), model.embedding, model.bias, targets, model.vocabulary
                )
                total += losses.sum(dtype=torch.float64)
    finally:
        model.train(before)
    return Score(float(total) / len(ids), len(ids))
