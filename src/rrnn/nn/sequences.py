"""Sequences as callers pass them, and as layers compute with them: layouts, padding, windows, carried states.

Callers may put time or batch first, leave the batch out, and mark padding by lengths or by a mask. Layers compute with
(time, batch, …).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import _register_namedtuple

from rrnn.backends.interface import captured
from rrnn.errors import ShapeError

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
                    "both lengths= and mask= are given: leave out lengths=, which the mask replaces"
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


def check_mask(mask: Tensor, shape: tuple[int, ...], layout: str) -> Tensor:
    """Return a user's mask, checked to be bool (True at valid steps) and of the input's own leading shape."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ShapeError(
            f"mask must be a bool tensor, True at valid steps; got {got}. Write mask.bool(), or ids != padding_id."
        )
    if mask.dim() != len(shape) or any(a != b for a, b in zip(mask.shape, shape, strict=True)):
        raise ShapeError(
            f"expected mask of shape {shape}, {layout} as the input; got {tuple(mask.shape)}. "
            "Transpose it, or check batch_first."
        )
    return mask


def mask_of_lengths(lengths: Tensor | Sequence[int], steps: int, batch: int, device: torch.device) -> Tensor:
    """Return a mask (T, B) that is True at the first `lengths[b]` steps of each sequence."""
    if not isinstance(lengths, Tensor):
        given = list(lengths)
        lengths = torch.tensor(given) if given else torch.zeros(0, dtype=torch.int64)
    if lengths.dim() != 1 or lengths.shape[0] != batch:
        raise ShapeError(f"expected {batch} lengths, one per sequence; got shape {tuple(lengths.shape)}")
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ShapeError(f"lengths must be whole numbers; got {lengths.dtype}")
    # Only on the CPU: on a GPU, looking at values would wait for the device, and a compiler cannot look.
    if lengths.device.type == "cpu" and not captured() and batch:
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > steps:
            raise ShapeError(
                f"lengths must lie between 0 and the {steps} steps of the input; got {low if low < 0 else high}"
            )
    return torch.arange(steps, device=device).unsqueeze(1) < lengths.to(device)


def zero_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x with zeros at padded steps, whatever they held: 0 · NaN would reach the weights' gradients through a
    product."""
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


class Window:
    """Earlier inputs: the valid ones of this call, and before them those that the state remembers."""

    def __init__(self, x: Tensor, history: Tensor, mask: Tensor | None, prefix: bool) -> None:
        """Join x (T, B, I) to the history (K−1, B, I), oldest first. `prefix` says that valid steps come before all
        padding."""
        self.steps, self.reach = x.shape[0], history.shape[0]
        self.inputs = torch.cat([history.to(x.dtype), x])  # (K−1+T, B, I)
        self.mask, self.prefix = mask, prefix
        if mask is not None:
            # order[r] is where in `inputs` the valid input number r − (K−1) stands
            times = torch.argsort(~mask, dim=0, stable=True) + self.reach
            remembered = torch.arange(self.reach, device=x.device).unsqueeze(1).expand(-1, x.shape[1])
            self.order = torch.cat([remembered, times])

    def lag(self, k: int, inputs: Tensor | None = None) -> Tensor:
        """Return (T, B, I): at each valid step the input k valid steps earlier; anything finite elsewhere."""
        start, inputs = self.reach - k, self.inputs if inputs is None else inputs
        if self.mask is None or self.prefix:
            return inputs[start : start + self.steps]
        rank = self.mask.cumsum(0) - 1
        return self._take(self.order.gather(0, (rank + start).clamp_min(0)), inputs)

    def latest(self) -> Tensor:
        """Return the last K−1 valid inputs, the next history."""
        if self.mask is None:
            return self.inputs[self.steps :].clone()  # a view would keep the whole piece alive
        ranks = self.mask.sum(0) + torch.arange(self.reach, device=self.inputs.device).unsqueeze(1)
        return self._take(self.order.gather(0, ranks), self.inputs)

    def _take(self, where: Tensor, inputs: Tensor) -> Tensor:
        return inputs.gather(0, where.unsqueeze(-1).expand(-1, -1, inputs.shape[-1]))


class LayerState(NamedTuple):
    """The state of one direction of one layer. Its first value is λ of the automaton, not zeros: ask `init_state` for
    it."""

    states: tuple[Tensor, ...]
    """Per cell the stored states (S, batch, units), in float32 (float64 for a float64 layer)."""
    history: Tensor | None = None
    """The last K−1 valid inputs (K−1, batch, input_size), oldest first, if a projection has a window of K > 1."""


# Named tuples are pytrees already; the registered name lets torch.export save graphs that take and return them.
_register_namedtuple(LayerState, serialized_type_name="rrnn.nn.LayerState")


class BlockState(NamedTuple):
    """The state of one block."""

    layer: LayerState
    """The state of the cell's layer."""
    tail: Tensor | None = None
    """The last K − 1 valid inputs of a convolution over K steps (K − 1, batch, channels), oldest first."""


_register_namedtuple(BlockState, serialized_type_name="rrnn.nn.BlockState")

State = tuple[LayerState, ...]
"""The state of a whole `RationalRNN`: layer by layer, in each the forward and then the backward direction."""


S = TypeVar("S")


def transform(function: Callable[[Tensor], Tensor], state: S) -> S:
    """Return the state with every tensor replaced by the function's result. A state is made of tensors, None, tuples
    (named ones too) and lists."""
    if isinstance(state, (tuple, list)):
        parts = [function(part) if isinstance(part, Tensor) else transform(function, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return function(state) if isinstance(state, Tensor) else state


def detach(state: State) -> State:
    """Return the state without its graph, as truncated backpropagation carries it over."""
    return transform(lambda t: t.detach(), state)


def reorder(state: State, order: Tensor | None) -> State:
    """Return the state with its sequences in another order: index `order` along the batch."""
    return state if order is None else transform(lambda t: t.index_select(1, order), state)
