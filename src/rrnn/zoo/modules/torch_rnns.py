"""torch's own LSTM, GRU and Elman network, with the masks and steps that other layers have. Parameters, state dicts and
states are torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from rrnn.errors import ShapeError
from rrnn.zoo.modules.recurrent import Recurrent


class _Torch(Recurrent):
    """To stand before one of torch's layers in a class's bases: its `forward` comes first, and calls torch's."""

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
        # Valid steps first, wherever they are. A packed sequence has one step at least: an empty one lends its padding.
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
        """torch's forward, time first whatever batch_first is: `Recurrent` has seen to it."""
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
