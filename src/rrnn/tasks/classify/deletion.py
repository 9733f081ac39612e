"""Compute a classifier's logits without each word of a text in turn.

The definition runs the whole model on every shortened text (`logits_by_definition`), so its cost grows with the square
of the length. `logits_without_each` starts before the deleted word, from the state that the whole text has there, and
stops where the state has become that of the whole text again: what follows is then the same. Its cost grows with the
length times the memory of the layers. Layers that read a text in both directions take the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.nn.sequences import transform
from rrnn.tasks.classify.model import TextClassifier

CHUNK = 32
"""Words that are deleted, and steps that run, at a time."""
_AGREE = (
    1e-6  # largest difference of two states that count as the same, relative to the largest number of a state
)
_TOKENS = 2**14  # in a batch of shortened texts


@torch.no_grad()
def logits_without_each(module: TextClassifier, ids: Tensor, chunk: int = CHUNK) -> tuple[Tensor, Tensor]:
    """Return the logits (C) of a text (T), and those (T, C) of the text without each of its words.

    They agree with the definition up to rounding: in about six digits.
    """
    if module.config.bidirectional or len(ids) <= 2 * chunk:
        return logits_by_definition(module, ids)
    whole = _Whole(module, ids, chunk)
    rows = [whole.without(start) for start in range(0, len(ids), chunk)]
    return whole.logits(whole.outputs)[0], torch.cat(rows)


@torch.no_grad()
def logits_by_definition(module: TextClassifier, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return what `logits_without_each` returns, by running the model on every shortened text."""
    texts = [ids, *(torch.cat([ids[:i], ids[i + 1 :]]) for i in range(len(ids)))]
    whole, *shorter = _logits(module, texts)
    return whole, torch.stack(shorter)


def _logits(module: TextClassifier, texts: list[Tensor]) -> Iterator[Tensor]:
    """Yield the logits of each text. Texts run in batches, since a long text has many shorter ones."""
    steps = max(1, *(len(text) for text in texts))
    size = max(1, _TOKENS // steps)
    for start in range(0, len(texts), size):
        some = texts[start : start + size]
        padded = torch.nn.utils.rnn.pad_sequence([F.pad(t, (0, steps - len(t))) for t in some])
        yield from module(padded, torch.tensor([len(t) for t in some], device=padded.device))


class _Whole:
    """The whole text: its outputs, and its states before the first word of every chunk and after it."""

    def __init__(self, module: TextClassifier, ids: Tensor, chunk: int) -> None:
        self.module, self.chunk = module, chunk
        self.x = module.embed(ids).unsqueeze(1)  # (T, 1, I)
        self.before: list[Any] = []
        self.after: list[Any] = []
        state, found = None, []
        for start in range(0, len(ids), chunk):
            self.before.append(state)
            first, state = module.run_layers(self.x[start : start + 1], state)
            self.after.append(state)
            rest, state = module.run_layers(self.x[start + 1 : start + chunk], state)
            found += [first, rest]
        self.outputs = torch.cat(found)

    def without(self, start: int) -> Tensor:
        """Return the logits without each word of the chunk that begins at `start`."""
        steps, number = len(self.x) - 1, start // self.chunk
        count = min(self.chunk, len(self.x) - start)
        there = torch.arange(steps, device=self.x.device)
        rows = there + (
            there >= start
        )  # where all deleted words are forgotten, the next word's output is the same
        if self.module.config.pooling == "last":
            rows = rows[-1:]
        outputs = self.outputs[rows].expand(-1, count, -1).clone()
        alive = torch.arange(count, device=self.x.device)
        state = transform(lambda t: t.expand(*t.shape[:-2], count, -1).contiguous(), self.before[number])
        for now in range(start, steps, self.chunk):
            until = min(now + self.chunk, steps)
            if now == start:
                words = there[now:until].unsqueeze(1)
                x = self.x[:, 0][words + (words >= start + alive)]
            else:  # all read the same words, so that the first layer's product is computed once
                x = self.x[now + 1 : until + 1].expand(-1, len(alive), -1)
            piece, state = self.module.run_layers(x, state)
            into = outputs[now - steps : (until - steps) or None] if len(rows) > 1 else outputs
            if len(rows) > 1 or until == steps:
                into[:, alive] = piece[-len(into) :]
            number += 1
            if until < steps:
                changed = ~_agree(state, self.after[number])
                alive, state = alive[changed], transform(lambda t, kept=changed: t[..., kept, :], state)
            if not len(alive):
                break
        return self.logits(outputs)

    def logits(self, outputs: Tensor) -> Tensor:
        """Return the logits (B, C) of the last layer's outputs (T, B, H), none of them padding."""
        lengths = torch.full((outputs.shape[1],), len(outputs), device=outputs.device)
        mask = torch.ones(outputs.shape[:2], dtype=torch.bool, device=outputs.device)
        return self.module.readout(self.module.pool(outputs, mask, lengths))


def _agree(states: Any, other: Any) -> Tensor:
    """Return for each sequence of the states whether it agrees with the single sequence of the other."""
    answers: list[Tensor] = []
    for a, b in zip(_tensors(states), _tensors(other), strict=True):
        if a.numel():
            gap = torch.where(a == b, 0.0, (a - b).abs()).movedim(-2, 0).flatten(1)
            largest = torch.where(b.isfinite(), b.abs(), 0.0).amax()
            answers.append((gap <= _AGREE * largest).all(1))
    return torch.stack(answers).all(0)


def _tensors(state: Any) -> list[Tensor]:
    """Return the tensors of a state."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    transform(keep, state)
    return found
