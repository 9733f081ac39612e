"""The layouts of inputs, masks and states that callers may use, and the one of layers: (time, batch, …)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torch import Tensor

from rrnn.errors import ShapeError
from rrnn.nn.masks import check_mask, mask_of_lengths
from rrnn.nn.state import transform

S = TypeVar("S")


class TimeFirst:
    """A caller's input and padding, time first and with a batch, and the way back for outputs and states.

    `features` is how many dimensions one step of one sequence has: 1 for vectors, 0 for symbols. The caller of this
    class has checked that `input` has as many, a time, and perhaps a batch.
    """

    x: Tensor
    """(T, B, …)"""
    mask: Tensor | None = None
    """(T, B), True at valid steps; None without padding."""
    prefix: bool = False
    """Whether valid steps are known to come before all padding."""

    def __init__(
        self,
        input: Tensor,
        features: int = 1,
        batch_first: bool = False,
        lengths: Tensor | Sequence[int] | None = None,
        mask: Tensor | None = None,
    ) -> None:
        self.batched = input.dim() == features + 2
        self.swapped = batch_first and self.batched
        self.x = input.transpose(0, 1) if self.swapped else input if self.batched else input.unsqueeze(1)
        if mask is not None:
            if lengths is not None:
                raise ShapeError(
                    "both lengths= and mask= are given; a mask says it all, so leave out lengths="
                )
            self.mask = self._checked(mask, tuple(input.shape[: input.dim() - features])).to(input.device)
        elif lengths is not None:
            if not self.batched:
                raise ShapeError("lengths= is for batches; an input without a batch can have a mask=")
            self.mask = mask_of_lengths(lengths, self.x.shape[0], self.x.shape[1], input.device)
            self.prefix = True

    def _checked(self, mask: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a caller's mask, which has the layout of the input, as (T, B)."""
        names = "(batch, time)" if self.swapped else "(time, batch)" if self.batched else "(time,)"
        mask = check_mask(mask, shape, names)
        return mask.T if self.swapped else mask if self.batched else mask.unsqueeze(1)

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch in the shapes of the caller's states: (B,), or () without a batch."""
        return (self.x.shape[1],) if self.batched else ()

    def state_in(self, state: S) -> S:
        """Return a caller's state with a batch. Every tensor of a state is (…, batch, units)."""
        return state if self.batched else transform(lambda t: t.unsqueeze(-2), state)

    def state_out(self, state: S) -> S:
        """Return a layer's state as the caller has states: without a batch if the input has none."""
        return state if self.batched else transform(lambda t: t.squeeze(-2), state)

    def output(self, out: Tensor) -> Tensor:
        """Return a layer's output (T, B, …) in the layout of the input."""
        return out.transpose(0, 1) if self.swapped else out if self.batched else out.squeeze(1)


class OneStep(TimeFirst):
    """One step as a sequence of length 1: x_t (B, …), or without a batch (…)."""

    def __init__(self, x_t: Tensor, features: int = 1) -> None:
        self.batched = x_t.dim() == features + 1
        self.x = x_t.unsqueeze(0) if self.batched else x_t.view(1, 1, *x_t.shape)

    def output(self, out: Tensor) -> Tensor:
        """Return a layer's output (1, B, units) without its time, and without a batch if the step has none."""
        return out.squeeze(0) if self.batched else out.view(-1)
