"""Batches of equal padded length, prepared once: a step of an epoch is one row of a table that lies on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rrnn.backends.triton.backend import has_kernels, on_device

BLOCK = 512  # of texts and steps in one program of a kernel


class Batch(NamedTuple):
    """`rows` (B,) are examples' numbers, −1 where the batch is not full; all are padded to `steps`."""

    rows: Tensor
    steps: int


class Texts:
    """Examples on a device: all tokens in one row, and where each example begins."""

    def __init__(
        self, texts: Sequence[np.ndarray], labels: Sequence[int], device: torch.device | str = "cpu"
    ) -> None:
        self.lengths = np.array([len(text) for text in texts], dtype=np.int64)
        self.padded = np.array([pad_length(n) for n in self.lengths.tolist()], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]]) if len(texts) else np.zeros(0)
        flat = np.concatenate([*texts, np.zeros(1, dtype=np.int64)])  # never empty, so that indexing is safe
        self.tokens = torch.from_numpy(flat.astype(np.int64)).to(device)
        self.starts = torch.from_numpy(starts.astype(np.int64)).to(device)
        self.sizes = torch.from_numpy(self.lengths).to(device)
        self.labels = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(device)

    def __len__(self) -> int:
        return len(self.lengths)

    def gather(
        self, rows: Tensor, steps: int, kernels: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(ids (T, B), lengths (B), labels (B), weights (B): 0 where a row is −1). Only device work."""
        if has_kernels(rows.device) if kernels is None else kernels:
            return self._gather_at_once(rows, steps)
        there = rows >= 0
        rows = rows.clamp_min(0)
        lengths = torch.where(there, self.sizes[rows], 0)
        time = torch.arange(steps, device=rows.device).unsqueeze(1)
        where = (self.starts[rows] + time).clamp_max(len(self.tokens) - 1)
        ids = torch.where(time < lengths, self.tokens[where], 0)
        return ids, lengths, self.labels[rows], there.to(torch.float32)

    def _gather_at_once(self, rows: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        from rrnn.tasks.classify.kernels import gather

        batch = len(rows)
        ids, (lengths, labels) = rows.new_empty(steps, batch), rows.new_empty(2, batch)
        weights = torch.empty(batch, device=rows.device)
        run: Any = gather[(-(-max(steps, 1) * batch // BLOCK),)]
        given = (rows, self.tokens, self.starts, self.sizes, self.labels)
        with on_device(rows.device):
            run(*given, ids, lengths, labels, weights, steps, batch, BLOCK=BLOCK, enable_fp_fusion=True)
        return ids, lengths, labels, weights

    def epoch(self, batch: int, seed: int, epoch: int) -> list[Batch]:
        """A shuffled epoch, the same for the same (seed, epoch): texts of about equal length share a batch, batches
        come in any order."""
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(self))
        order = order[np.argsort(self.padded[order], kind="stable")]
        count = -(-len(order) // batch)
        return self._batches(order, batch, rng.permutation(count))

    def in_order(self, batch: int, tokens: int) -> list[Batch]:
        """Each example once, short ones first; at most `batch`, and about `tokens` with padding: no more than twice as
        many, unless a single one has."""
        order, found, start = np.argsort(self.lengths, kind="stable"), [], 0
        while start < len(order):
            size = max(1, min(batch, tokens // int(self.padded[order[start]])))
            while size > 1 and size * self.padded[order[start : start + size][-1]] > 2 * tokens:
                size //= 2  # a much longer one is among them; halves, since each size is a graph of its own
            rows = order[start : start + size]
            found += self._batches(rows, size, np.arange(1))
            start += size
        return found

    def _batches(self, order: np.ndarray, batch: int, turns: np.ndarray) -> list[Batch]:
        filled = np.full(len(turns) * batch, -1, dtype=np.int64)
        filled[: len(order)] = order
        table = filled.reshape(-1, batch)[turns]
        on_device = torch.from_numpy(table).to(self.tokens.device)
        steps = np.where(table >= 0, self.padded[table], 0).max(1, initial=0)
        return [Batch(rows, n) for rows, n in zip(on_device, steps.tolist(), strict=True)]


def pad_length(n: int) -> int:
    """A few lengths stand for all: multiples of 8, and from 128 on of a sixteenth to an eighth of the length. The
    training step of each is one CUDA graph."""
    unit = 1 << max(3, n.bit_length() - 4)
    return max(unit, -(-n // unit) * unit)
