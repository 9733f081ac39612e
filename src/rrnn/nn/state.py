"""What a layer carries from one piece of a sequence to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import _register_namedtuple

from rrnn.errors import ShapeError


class LayerState(NamedTuple):
    """One direction of one layer. Its first value is λ of the automaton, not zeros: ask `init_state` for it."""

    states: tuple[Tensor, ...]
    """Per cell the stored states (S, batch, units), in float32 (float64 for a float64 layer)."""
    history: Tensor | None = None
    """The last K−1 valid inputs (K−1, batch, input_size), oldest first, if a projection has a window of K > 1."""


# Named tuples are pytrees anyway; the name lets torch.export save graphs that take and return them.
_register_namedtuple(LayerState, serialized_type_name="rrnn.nn.LayerState")

State = tuple[LayerState, ...]
"""Of a whole `RationalRNN`: layer by layer, in each the forward and then the backward direction."""


S = TypeVar("S")


def transform(function: Callable[[Tensor], Tensor], state: S) -> S:
    """Return the state with every tensor replaced by the function's result. A state is made of tensors, None, tuples
    (named ones too) and lists."""
    if isinstance(state, (tuple, list)):
        parts = [function(part) if isinstance(part, Tensor) else transform(function, part) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return function(state) if isinstance(state, Tensor) else state


def detach(state: State) -> State:
    """The state without its graph: what truncated backpropagation carries over."""
    return transform(lambda t: t.detach(), state)


def reorder(state: State, order: Tensor | None) -> State:
    """Other sequences first: index `order` along the batch."""
    return state if order is None else transform(lambda t: t.index_select(1, order), state)


def check_state(state: Any, shapes: Sequence[tuple[list[tuple[int, ...]], tuple[int, ...] | None]]) -> State:
    """The state, after checking it against (shapes of states, shape of the history) per layer and direction."""
    fix = "Pass a state that this layer returned, or rnn.init_state(batch_size)."
    if not isinstance(state, (tuple, list)) or isinstance(state, LayerState) or len(state) != len(shapes):
        came = f"{len(state)}" if isinstance(state, (tuple, list)) else type(state).__name__
        came = "one LayerState alone" if isinstance(state, LayerState) else came
        raise ShapeError(
            f"the state is a tuple of {len(shapes)} LayerState (one per layer and direction); got {came}. {fix}"
        )
    checked = []
    for i, (layer, (expected, history)) in enumerate(zip(state, shapes, strict=True)):
        if not isinstance(layer, (tuple, list)) or len(layer) != 2:
            raise ShapeError(
                f"state[{i}] is a LayerState(states, history); got {type(layer).__name__}. {fix}"
            )
        given, last = layer
        if not isinstance(given, (tuple, list)) or len(given) != len(expected):
            raise ShapeError(f"state[{i}].states holds one tensor per cell, {len(expected)} in all. {fix}")
        for c, (tensor, shape) in enumerate(zip(given, expected, strict=True)):
            _check_tensor(tensor, shape, f"state[{i}].states[{c}]", "(stored states, batch, units)", fix)
        if (last is None) != (history is None):
            rule = "None, since no projection has a window" if history is None else f"of shape {history}"
            came = "None" if last is None else "a tensor"
            raise ShapeError(f"state[{i}].history must be {rule}; got {came}. {fix}")
        if history is not None:
            _check_tensor(last, history, f"state[{i}].history", "(window − 1, batch, input_size)", fix)
        checked.append(LayerState(tuple(given), last))
    return tuple(checked)


def _check_tensor(tensor: Any, shape: tuple[int, ...], place: str, meaning: str, fix: str) -> None:
    if not isinstance(tensor, Tensor) or not torch.is_floating_point(tensor):
        came = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ShapeError(f"{place} must be a tensor of floating-point numbers; got {came}. {fix}")
    if len(shape) != tensor.dim() or any(a != b for a, b in zip(shape, tensor.shape, strict=True)):
        meaning = meaning if len(shape) == 3 else meaning.replace("batch, ", "") + " without a batch"
        raise ShapeError(f"expected {place} of shape {shape}, {meaning}; got {tuple(tensor.shape)}. {fix}")
