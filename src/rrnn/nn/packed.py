"""Packed sequences: several of different lengths end to end in one row of steps, without padding.

Offsets say where they begin: sequence i has the steps offsets[i] to offsets[i + 1], as flash-attention's `cu_seqlens`
have it. Layers compute with (total, 1, …); states have one entry per sequence. Nothing here waits for a device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rrnn.backends.interface import captured, sequence_table
from rrnn.errors import ShapeError


class Packed:
    """Where n packed sequences lie in a row of `total` steps."""

    def __init__(self, offsets: Tensor, total: int, table: Tensor) -> None:
        """Keep checked offsets (n + 1) on the input's device, and the table that kernels read."""
        self.offsets, self.total, self.table = offsets, total, table
        self.count = offsets.shape[0] - 1
        self._owners: Tensor | None = None

    @staticmethod
    def of(offsets: Tensor | Sequence[int], total: int, device: torch.device) -> Packed:
        """Check a caller's `cu_seqlens` for an input of so many steps."""
        offsets = check_offsets(offsets, total, device).to(device, torch.int64)
        return Packed(offsets, total, sequence_table(offsets, total))

    def flipped(self) -> Packed:
        """Return the same sequences in a row that is read from its end: the last one comes first."""
        number, begin, end = self.table.unbind(1)
        table = torch.stack([self.count - 1 - number, self.total - end, self.total - begin], 1)
        return Packed(self.total - self.offsets.flip(0), self.total, table)

    @property
    def owners(self) -> Tensor:
        """The number of the sequence that each step belongs to, (total,)."""
        if self._owners is None:
            steps = torch.arange(self.total, device=self.offsets.device)
            found = torch.searchsorted(self.offsets, steps, right=True) - 1
            self._owners = found.clamp(0, max(self.count - 1, 0))  # offsets on a GPU are not checked
        return self._owners

    def shared_dropout(self, drop: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return x (rows, 1, I) with one mask for all steps of a sequence. `drop` makes masks of ones (1, n, I). Rows
        before the packed ones are the histories of a `PackedWindow`."""
        before, numbers = x.shape[0] - self.total, torch.arange(self.count, device=x.device)
        rows = self.owners
        if before:
            rows = torch.cat([numbers.repeat(before // self.count), rows])
        return x * drop(x.new_ones(1, self.count, x.shape[-1]))[0].index_select(0, rows).unsqueeze(1)


class PackedWindow:
    """Earlier inputs of the same sequence, and before them those that its state remembers: `sequences.Window` for
    packed sequences."""

    def __init__(self, x: Tensor, history: Tensor, packed: Packed) -> None:
        """Join x (total, 1, I) to the histories (K−1, n, I), oldest first."""
        self.packed, self.remembered = packed, history.shape[0]
        self.reach = self.remembered * packed.count  # rows of `inputs` before the first step
        self.inputs = torch.cat([history.to(x.dtype).flatten(0, 1).unsqueeze(1), x])

    def lag(self, k: int, inputs: Tensor | None = None) -> Tensor:
        """Return (total, 1, I): at each step the input k steps earlier in its sequence."""
        owners = self.packed.owners
        steps = torch.arange(self.packed.total, device=owners.device) - self.packed.offsets[owners]
        return self._take(owners, steps - k, self.inputs if inputs is None else inputs)

    def latest(self) -> Tensor:
        """Return the last K−1 inputs of every sequence, (K−1, n, I), the next histories."""
        n, offsets = self.packed.count, self.packed.offsets
        numbers = torch.arange(n, device=offsets.device)
        back = torch.arange(-self.remembered, 0, device=offsets.device).unsqueeze(1)
        steps = (offsets[1:] - offsets[:-1]) + back
        rows = self._take(numbers.expand_as(steps).flatten(), steps.flatten(), self.inputs)
        return rows.view(self.remembered, n, -1)

    def _take(self, owners: Tensor, steps: Tensor, inputs: Tensor) -> Tensor:
        """Return rows of `inputs`: for each owner its own step number `steps`, of its history if that is below 0."""
        here = self.reach + self.packed.offsets[owners] + steps
        there = (self.remembered + steps) * self.packed.count + owners
        return inputs.index_select(0, torch.where(steps >= 0, here, there))


def check_offsets(offsets: Tensor | Sequence[int], total: int, device: torch.device) -> Tensor:
    """Return a caller's offsets, checked. On a GPU their values are not: looking would wait for the device."""
    rule = f"cu_seqlens holds n + 1 offsets of n sequences in the {total} steps of the input: 0, …, {total}"
    if not isinstance(offsets, Tensor):
        try:
            offsets = torch.tensor(list(offsets))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ShapeError(
                f"{rule}; got {type(offsets).__name__}. Pass an int32 or int64 tensor."
            ) from error
    if offsets.dtype not in (torch.int32, torch.int64) and offsets.numel():
        raise ShapeError(f"{rule}, int32 or int64; got {offsets.dtype}. Write cu_seqlens.int().")
    if offsets.dim() != 1 or not offsets.shape[0]:
        raise ShapeError(
            f"{rule}; got shape {tuple(offsets.shape)}. Without sequences it is [0]; of lengths it is "
            "torch.nn.functional.pad(lengths.cumsum(0), (1, 0))."
        )
    if offsets.device.type != "cpu" and offsets.device != device:
        raise ShapeError(
            f"cu_seqlens is on {offsets.device} and the input on {device}: cu_seqlens must be there too, or on the "
            f"CPU. Write cu_seqlens.to(input.device)."
        )
    if offsets.device.type != "cpu" or captured():
        return offsets
    values = offsets.tolist()
    falls = next((i for i in range(1, len(values)) if values[i] < values[i - 1]), None)
    if values[0] != 0:
        raise ShapeError(
            f"{rule}; the first is {values[0]}, not 0. Of lengths it is "
            "torch.nn.functional.pad(lengths.cumsum(0), (1, 0))."
        )
    if falls is not None:
        raise ShapeError(
            f"{rule}, none below the one before it; cu_seqlens[{falls}] is {values[falls]} after {values[falls - 1]}. "
            "Pass cumulative sums, not lengths."
        )
    if values[-1] != total:
        raise ShapeError(
            f"{rule}; the last is {values[-1]}. Cut the input, input[:cu_seqlens[-1]], or end with its length."
        )
    return offsets
