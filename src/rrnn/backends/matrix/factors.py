"""What the matrix schedule reads and writes, whichever device runs it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NONE, SCALAR, VECTOR = 0, 1, 2
"""Decays: none, one number per head, one per state."""
HARSH = 3
"""One number per state, for kernels of harsh segments."""
MILD = 40.0
"""A segment is *mild* if the running sums of log-decays of its chunks stay below this: decays between the middle of a
chunk and any step, at most exp(MILD), overflow nowhere, so one product gives all pairs of steps. Others are *harsh*."""


class Walk(NamedTuple):
    """The sizes of a kernel that walks through a segment: states and units of its tile, warps, stages of its loads, and
    the most registers of a thread (0: what the compiler chooses), with fewer of which more programs run on a
    multiprocessor."""

    states: int
    units: int
    warps: int
    stages: int
    registers: int = 0


class Tiles(NamedTuple):
    """The sizes of a call: steps of a chunk and of a segment, which is a number of chunks, and those of kernels."""

    chunk: int
    segment: int
    enter: Walk
    outputs: Walk
    queries: Walk
    keys: Walk
    values: Walk | None
    """None: the kernel of keys' gradients covers all states, and computes those of values, too."""
    block: tuple[int, int] | None = None
    """The states and units of a block, if heads are cut into blocks; None: they are not."""
    mild: float = MILD
    join: tuple[int, int, int, int] = (4, 64, 2, 4)

    @property
    def kernels(self) -> bool:
        """Whether kernels run; otherwise torch's matrix products do."""
        return self.outputs.warps > 0


class Factors(NamedTuple):
    """What the recurrence reads: queries and keys (T, B, H or groups, N), values (T, B, H, U), and log-decays
    (T, B, H, N), (T, B, H) or None. The last axes of queries, keys and values are side by side. `sequences` says where
    packed sequences lie, as in `CellCall`; B is 1 then."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor | None
    mask: Tensor | None
    sequences: Tensor | None = None
    summed: bool = False
    """Whether log-decays come as running sums from the start of each chunk."""
    harsh: Tensor | None = None
    """With running sums of a decay per state: which segments (segments, B, H) are not mild."""
    weights: Tensor | None = None
    """With a decay per head: by which numbers (T, B, H) values enter."""
    skips: Tensor | None = None
    """With a decay per head: by which numbers (T, B, H) values are added to outputs. Both lie in memory like g, if that
    comes as running sums."""

    @property
    def decay(self) -> int:
        return NONE if self.g is None else SCALAR if self.g.dim() == 3 else VECTOR

    @property
    def parts_of_decay(self) -> bool:
        """Whether kernels give parts of log-decays' gradients, which are sums of these from each step to the end of its
        chunk. In such sums, what keys take away cancels what queries add, and leaves the rounding errors of both.
        Kernels of a decay per head avoid that at full precision, and give the gradients themselves."""
        return self.decay == VECTOR or not full_precision(self.v.dtype)

    @property
    def columns(self) -> int:
        """The number of sequences."""
        return self.v.shape[1] if self.sequences is None else self.sequences.shape[0]


class FactorGradients(NamedTuple):
    """Where the gradients of queries, keys and values are written; those of keys and queries are per head, even where
    heads share them."""

    q: Tensor
    k: Tensor
    v: Tensor


class StepGradients(NamedTuple):
    """The gradients of log-decays, weights and skips, None where there are none. Those of weights and skips are sums
    over a first axis; so are those of log-decays that come as running sums (see `Factors.parts_of_decay`)."""

    decay: Tensor | None
    weights: Tensor | None = None
    skips: Tensor | None = None


def through_tf32() -> bool:
    """Return whether the user's setting lets products of float32 go through TF32. (Once fp32_precision has been set,
    torch refuses to answer by the older name.)"""
    precision: str | None = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    return bool(torch.backends.cuda.matmul.allow_tf32) if precision is None else precision == "tf32"


def full_precision(dtype: torch.dtype) -> bool:
    """Return whether inputs of a dtype are multiplied as float32, not rounded to bfloat16 or TF32."""
    return dtype == torch.float32 and not through_tf32()


def padded(size: int) -> int:
    """Return the next power of two, at least 16, the least that tensor cores multiply."""
    return max(16, 1 << (size - 1).bit_length())


def sums_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of running sums of log-decays, for inputs of a dtype. A decay from one step to another is the
    exponential of a difference of two sums, so it errs by what these are rounded by, however large they are."""
    return torch.float64 if full_precision(dtype) else torch.float32


def new_steps(like: Tensor, T: int, B: int, H: int, N: int, dtype: torch.dtype) -> Tensor:
    """Return an empty tensor for numbers of steps (T, B, H, N). With N = 1, the steps of a head lie side by side."""
    if N > 1:
        return like.new_empty((T, B, H, N), dtype=dtype)
    return like.new_empty((B, H, 1, T), dtype=dtype).permute(3, 0, 1, 2)


def count_segments(steps: int, sequences: Tensor | None, length: int) -> int:
    """Return the number of places for segments of so many steps."""
    return -(-steps // length) if sequences is None else steps // length + sequences.shape[0]


def segments_of(sequences: Tensor, total: int, length: int) -> tuple[Tensor, Tensor]:
    """Cut packed sequences into segments of so many steps, without waiting for the device. Return for each segment its
    first step, the one behind its last, its sequence's number and first step, (total // length + n, 4), and for each
    sequence its first segment and the one behind its last, (n, 2). Sequence i begins with segment
    ⌊its first step / length⌋ + i, as states are saved; segments that no sequence reaches are empty."""
    n, device = sequences.shape[0], sequences.device
    begin, end = sequences[sequences[:, 0].argsort(), 1:].unbind(1)
    starts = begin // length + torch.arange(n, device=device)
    slots = torch.arange(total // length + n, device=device)
    owner = (torch.searchsorted(starts, slots, right=True) - 1).clamp(0)
    first = begin[owner] + (slots - starts[owner]).clamp(0) * length
    stop = torch.minimum(first + length, end[owner])
    table = torch.stack([torch.minimum(first, stop), stop, owner, begin[owner]], 1)
    return table, torch.stack([starts, starts + (end - begin + length - 1) // length], 1)
