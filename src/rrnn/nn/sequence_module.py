"""The front of modules that read sequences: any layout, padding, packed sequences, single steps; time first inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rrnn.errors import ShapeError
from rrnn.nn.arguments import check_input
from rrnn.nn.sequences import OneStep, TimeFirst, reorder, transform, zero_padding


class SequenceModule(nn.Module):
    """A module over time. A subclass has `run`, `init_time_first` and `check_state`, all of them time first."""

    input_size: int
    batch_first: bool = False

    def run(self, x: Tensor, state: Any, mask: Tensor | None, prefix: bool) -> tuple[Tensor, Any]:
        """Return (output, state) of x (T, B, I), with zeros at padded steps; `prefix`: padding comes last."""
        raise NotImplementedError

    def init_time_first(self, batch: int) -> Any:
        """Return the state before the first step of a batch."""
        raise NotImplementedError

    def check_state(self, state: Any, batch: tuple[int, ...]) -> Any:
        """Return a caller's state, checked; `batch` is () for an unbatched one."""
        raise NotImplementedError

    def init_state(self, batch_size: int | None = None) -> Any:
        """Return the state before the first step; without `batch_size` for unbatched input."""
        state = self.init_time_first(1 if batch_size is None else batch_size)
        return state if batch_size is not None else transform(lambda t: t.squeeze(-2), state)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Any, Any]:
        """Return (output, state) of a sequence (T, I), a batch (T, B, I), or (B, T, I) with `batch_first`, or a
        `PackedSequence`. `hx` continues an earlier call; `lengths` (B) or `mask` (the input's leading shape, True at
        valid steps) mark padding, which changes no state and outputs zeros."""
        if isinstance(input, PackedSequence):
            if lengths is not None or mask is not None:
                raise ShapeError("a PackedSequence has its own lengths: leave out lengths= and mask=")
            return self._forward_packed(input, hx)
        self._check(input, (2, 3))
        given = TimeFirst(input, 1, self.batch_first, lengths, mask)
        out, state = self._run_given(given, hx)
        return given.output(out), given.state_out(state)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return (output, state) of one step: x_t (B, I), or (I,) without a batch."""
        self._check(x_t, (1, 2))
        given = OneStep(x_t)
        out, state = self._run_given(given, state)
        return given.output(out), given.state_out(state)

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        """Run on a packed batch, and pack the output the same way."""
        data, sizes, order, back = packed
        self._check(data, (2,))
        # The data are packed longest first: the state is put in that order and back, the output stays packed.
        x, lengths = pad_packed_sequence(PackedSequence(data, sizes))
        given = TimeFirst(x, lengths=lengths)
        first = None if hx is None else reorder(self.check_state(hx, given.batch), order)
        out, state = self.run(zero_padding(x, given.mask), first, given.mask, given.prefix)
        data = pack_padded_sequence(out, lengths).data
        return PackedSequence(data, sizes, order, back), reorder(state, back)

    def _run_given(self, given: TimeFirst, state: Any) -> tuple[Tensor, Any]:
        first = None if state is None else given.state_in(self.check_state(state, given.batch))
        return self.run(zero_padding(given.x, given.mask), first, given.mask, given.prefix)

    def _check(self, x: Any, dims: tuple[int, ...]) -> None:
        check_input(
            x, dims, self.input_size, next(p for p in self.parameters() if torch.is_floating_point(p))
        )
