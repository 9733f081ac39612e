"""The interface of layers that are no `RationalRNN`: layouts, lengths, masks, streaming. torch's own layers in it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rrnn.errors import ShapeError
from rrnn.nn.layout import TimeFirst
from rrnn.nn.masks import zero_padding


class Recurrent(nn.Module, ABC):
    """A recurrent layer that is called like a `RationalRNN`. A subclass defines `init_state` and `run`.

    Every tensor of its state has the shape (…, batch, units).
    """

    input_size: int
    hidden_size: int
    batch_first: bool

    @abstractmethod
    def init_state(self, batch_size: int | None = None) -> Any:
        """Return the state before the first step, without a batch dimension if `batch_size` is None."""

    @abstractmethod
    def run(self, x: Tensor, state: Any, mask: Tensor | None) -> tuple[Tensor, Any]:
        """Return (output, state) for x (T, B, I), which is zero at padded steps; mask (T, B) is True at valid steps."""

    def forward(
        self,
        input: Tensor,
        hx: Any = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Return (output, state) for a sequence (T, I) or a batch (T, B, I), or (B, T, I) with batch_first.

        Padding, given by `lengths` or `mask`, leaves the state unchanged and outputs zeros.
        """
        if not isinstance(input, Tensor) or input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            came = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(
                f"expected input with {self.input_size} features, (time, features) or a batch of these; got {came}"
            )
        given = TimeFirst(input, 1, self.batch_first, lengths, mask)
        first = self.init_state(given.x.shape[1]) if hx is None else given.state_in(hx)
        out, state = self.run(zero_padding(given.x, given.mask), first, given.mask)
        return given.output(zero_padding(out, given.mask)), given.state_out(state)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return (output, state) after one step with the input x_t (B, I), or (I,) without a batch."""
        time = 1 if self.batch_first and x_t.dim() == 2 else 0
        out, state = self(x_t.unsqueeze(time), state)
        return out.squeeze(time), state


def keep(mask: Tensor | None, t: int, new: Tensor, old: Tensor) -> Tensor:
    """Return the new state (B, H), but the old one where step t is padding."""
    return new if mask is None else torch.where(mask[t].unsqueeze(-1), new, old)


def check_sizes(**sizes: Any) -> None:
    """Raise unless every size is a positive integer."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ShapeError(f"{name} must be a whole number above 0; got {value!r}")


class _Torch(Recurrent):
    """The base class to name before one of torch's layers, so that this `forward` is found first and calls torch's."""

    num_layers: int
    bidirectional: bool

    def init_state(self, batch_size: int | None = None) -> Any:
        count = self.num_layers * (2 if self.bidirectional else 1)
        batch = () if batch_size is None else (batch_size,)
        h = next(self.parameters()).new_zeros(count, *batch, self.hidden_size)
        return (h, torch.zeros_like(h)) if isinstance(self, nn.LSTM) else h

    def forward(self, input: Any, hx: Any = None, **padding: Any) -> tuple[Any, Any]:
        if not isinstance(input, PackedSequence):
            return super().forward(input, hx, **padding)
        if padding:
            raise ShapeError("a PackedSequence has its own lengths: leave out lengths= and mask=")
        return self._torch(input, hx)

    def run(self, x: Tensor, state: Any, mask: Tensor | None) -> tuple[Tensor, Any]:
        if not x.shape[0]:
            return x.new_zeros(0, x.shape[1], self.hidden_size * (2 if self.bidirectional else 1)), state
        if mask is None:
            return self._torch(x, state)
        # Move valid steps to the front. A packed sequence needs at least one step, so an empty one keeps a padded step.
        features = x.shape[-1]
        order = torch.argsort(~mask, dim=0, stable=True).unsqueeze(-1)
        lengths = mask.sum(0).cpu()
        packed = pack_padded_sequence(
            x.gather(0, order.expand(-1, -1, features)), lengths.clamp_min(1), enforce_sorted=False
        )
        out, end = self._torch(packed, state)
        out, _ = pad_packed_sequence(out, total_length=x.shape[0])
        rank = (mask.cumsum(0) - 1).clamp_min(0).unsqueeze(-1)
        some = mask.any(0).unsqueeze(-1)
        ends, starts = (t if isinstance(t, tuple) else (t,) for t in (end, state))
        kept = tuple(torch.where(some, new, old) for new, old in zip(ends, starts, strict=True))
        return out.gather(0, rank.expand(-1, -1, out.shape[-1])), kept if isinstance(end, tuple) else kept[0]

    def _torch(self, x: Any, state: Any) -> Any:
        """Call torch's forward with time first: `Recurrent.forward` has already handled batch_first."""
        before, self.batch_first = self.batch_first, False
        try:
            return super(Recurrent, self).forward(x, state)  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            self.batch_first = before


class LSTM(_Torch, nn.LSTM):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`nn.LSTM` with lengths=, mask= and step."""


class GRU(_Torch, nn.GRU):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`nn.GRU` with lengths=, mask= and step."""


class RNN(_Torch, nn.RNN):  # pyright: ignore[reportIncompatibleMethodOverride]
    """`nn.RNN`, the Elman network, with lengths=, mask= and step."""
