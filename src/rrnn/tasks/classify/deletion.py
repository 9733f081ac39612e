"""Compute a classifier's logits without each word of a text in turn.

The definition runs the whole model on every shortened text (`logits_by_definition`), so its cost grows with the square
of the length. `logits_without_each` starts before the deleted word, from the state that the whole text has there, and
stops where the state has become that of the whole text again: what follows is then the same. Its cost grows with the
length times the memory of the layers. In layers that read a text in both directions, a deleted word changes a window
around it (`_BothWays`). Blocks and LSTMs that read in both directions, and classifiers with rules, take the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rrnn.nn import RationalRNN
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
    both_ways = module.config.bidirectional
    unsplit = both_ways and not all(isinstance(layer, RationalRNN) for layer in module.layers)
    if len(ids) <= 2 * chunk or unsplit or module.rules is not None:  # rules read the whole text
        return logits_by_definition(module, ids)
    whole = (_BothWays if both_ways else _Whole)(module, ids, chunk)
    rows = [whole.without(start) for start in range(0, len(ids), chunk)]
    return _logits_of(module, whole.outputs)[0], torch.cat(rows)


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
        state = _repeated(self.before[number], count)
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
        return _logits_of(self.module, outputs)


class _BothWays:
    """The whole text in layers of two directions: the inputs of each layer, and its states at the ends of chunks.

    Without a word, a layer's outputs differ in a window around it. The window is run alone, from the states that the
    whole text has at its two ends, and widened until both directions leave it in the states of the whole text.
    """

    def __init__(self, module: TextClassifier, ids: Tensor, chunk: int) -> None:
        self.module, self.size = module, chunk
        self.ends = [*range(0, len(ids), chunk), len(ids)]
        """Where chunks begin, and the end of the text."""
        x = module.embed(ids).unsqueeze(1)  # (T, 1, I)
        self.inputs, self.forward, self.backward = [x], [], []
        self.reach = [(0, 0)] * len(module.layers)
        """By how many chunks to widen a window at first: one less than the last one needed."""
        for layer in module.layers:
            self.forward.append(self._states(layer, x, range(len(self.ends) - 1), 0))
            self.backward.append(self._states(layer, x, range(len(self.ends) - 1)[::-1], 1)[::-1])
            x, _ = layer(x)
            self.inputs.append(x)
        self.outputs = x

    def _states(self, layer: Any, x: Tensor, chunks: range, direction: int) -> list[Any]:
        """Return the states of one direction at the ends of chunks, in the order in which it passes them."""
        state = layer.init_state(1)
        found = [state[direction]]
        for n in chunks:
            both = (found[-1], state[1]) if direction == 0 else (state[0], found[-1])
            found.append(layer(x[self.ends[n] : self.ends[n + 1]], both)[1][direction])
        return found

    def without(self, start: int) -> Tensor:
        """Return the logits without each word of the chunk that begins at `start`."""
        first = start // self.size
        last, count = first + 1, self.ends[first + 1] - start
        words = torch.arange(start, self.ends[last] - 1, device=self.outputs.device).unsqueeze(1)
        deleted = torch.arange(start, start + count, device=self.outputs.device)
        changed = self.inputs[0][:, 0][words + (words >= deleted)]  # in the chunk, which is one word shorter
        for depth, layer in enumerate(self.module.layers):
            changed, first, last = self._window(depth, layer, changed, first, last)
        outputs = self._around(self.outputs, changed, first, last, 0, len(self.ends) - 1, ends_only=True)
        return _logits_of(self.module, outputs)

    def _window(
        self, depth: int, layer: Any, changed: Tensor, first: int, last: int
    ) -> tuple[Tensor, int, int]:
        """Return a layer's outputs in the chunks from `first` to `last`, where they may differ from the whole text's.
        `changed` holds its inputs in the given chunks."""
        left, right, more = max(0, first - self.reach[depth][0]), last + self.reach[depth][1], 1
        right = min(right, len(self.ends) - 1)
        while True:
            x = self._around(self.inputs[depth], changed, first, last, left, right)
            begin = (self.forward[depth][left], self.backward[depth][right])
            out, (ahead, back) = layer(x, _repeated(begin, changed.shape[1]))
            ends_left = left == 0 or bool(_agree(back, self.backward[depth][left]).all())
            ends_right = right == len(self.ends) - 1 or bool(_agree(ahead, self.forward[depth][right]).all())
            if ends_left and ends_right:
                self.reach[depth] = (max(0, first - left - 1), max(0, right - last - 1))
                return out, left, right
            left = left if ends_left else max(0, left - more)
            right = right if ends_right else min(len(self.ends) - 1, right + more)
            more *= 2

    def _around(
        self,
        whole: Tensor,
        changed: Tensor,
        first: int,
        last: int,
        left: int,
        right: int,
        ends_only: bool = False,
    ) -> Tensor:
        """Return the rows of chunks `left` to `right`: the whole text's, but `changed` from `first` to `last`."""
        count = changed.shape[1]
        before = whole[self.ends[left] : self.ends[first]].expand(-1, count, -1)
        after = whole[self.ends[last] : self.ends[right]].expand(-1, count, -1)
        if ends_only and self.module.config.pooling == "last":
            before, after = before[:1], after[-1:]
        return torch.cat([before, changed, after])


def _repeated(states: Any, count: int) -> Any:
    """Return the states of one sequence for `count` sequences."""
    return transform(lambda t: t.expand(*t.shape[:-2], count, -1).contiguous(), states)


def _logits_of(module: TextClassifier, outputs: Tensor) -> Tensor:
    """Return the logits (B, C) of the last layer's outputs (T, B, H), none of them padding."""
    lengths = torch.full((outputs.shape[1],), len(outputs), device=outputs.device)
    mask = torch.ones(outputs.shape[:2], dtype=torch.bool, device=outputs.device)
    return module.readout(module.pool(outputs, mask, lengths))


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
