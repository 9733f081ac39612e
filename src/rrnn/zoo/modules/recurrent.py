"""What layers that are no `RationalRNN` share with it: layouts, lengths, masks, streaming."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rrnn.errors import ShapeError
from rrnn.nn.sequences import TimeFirst, zero_padding


class Recurrent(nn.Module, ABC):
    """A recurrent layer. A subclass says how it runs on checked input: `run`, `init_state`.

    Every tensor of its state is (…, batch, units), as a `RationalRNN`'s.
    """

    input_size: int
    hidden_size: int
    batch_first: bool

    @abstractmethod
    def init_state(self, batch_size: int | None = None) -> Any:
        """The state before the first step; None: for unbatched input."""

    @abstractmethod
    def run(self, x: Tensor, state: Any, mask: Tensor | None) -> tuple[Tensor, Any]:
        """(output, state) of x (T, B, I), zeros at padded steps; mask (T, B), True at valid steps."""

    def forward(
        self,
        input: Tensor,
        hx: Any = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """(output, state) of a sequence (T, I) or a batch (T, B, I), or (B, T, I) with batch_first. Padding, which
        `lengths` or `mask` say, changes no state and outputs zeros."""
        if not isinstance(input, Tensor) or input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            came = tuple(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise ShapeError(
                f"expected input with {self.input_size} features, (time, features) or a batch of such; got {came}"
            )
        given = TimeFirst(input, 1, self.batch_first, lengths, mask)
        first = self.init_state(given.x.shape[1]) if hx is None else given.state_in(hx)
        out, state = self.run(zero_padding(given.x, given.mask), first, given.mask)
        return given.output(zero_padding(out, given.mask)), given.state_out(state)

    def step(self, x_t: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(output, state) of one step: x_t (B, I), or (I,) without a batch."""
        time = 1 if self.batch_first and x_t.dim() == 2 else 0
        out, state = self(x_t.unsqueeze(time), state)
        return out.squeeze(time), state


def keep(mask: Tensor | None, t: int, new: Tensor, old: Tensor) -> Tensor:
    """The new state (B, H), and the old one where step t is padded."""
    return new if mask is None else torch.where(mask[t].unsqueeze(-1), new, old)


def positive(**sizes: Any) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ShapeError(f"{name} must be a whole number above 0; got {value!r}")
