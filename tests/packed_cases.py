"""Compare packed sequences with a call for each sequence: outputs, states, and every gradient."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from layer_cases import inputs
from torch import Tensor
from torch.utils._pytree import tree_leaves

import rrnn
from rrnn.nn import RationalRNN
from rrnn.nn.sequences import State, transform


def offsets_of(lengths: Sequence[int]) -> Tensor:
    """Return the offsets of sequences of these lengths."""
    return torch.tensor([0, *lengths]).cumsum(0)


def tensors(state: State) -> list[Tensor]:
    """Return all tensors of a state."""
    return [t for t in tree_leaves(state) if t is not None]


def one_by_one(
    layer: RationalRNN, x: Tensor, state: State, lengths: Sequence[int]
) -> tuple[Tensor, list[Tensor]]:
    """Return (output, tensors of the state) of a call for each sequence."""
    offsets, found = offsets_of(lengths).tolist(), []
    for i, (begin, end) in enumerate(pairwise(offsets)):
        own = transform(lambda t, i=i: t[:, i : i + 1], state)
        out, after = layer(x[begin:end].unsqueeze(0 if layer.batch_first else 1), own)
        found.append((out.flatten(0, 1), tensors(after)))
    outputs, states = zip(*found, strict=True)
    return torch.cat(outputs), [torch.cat(parts, 1) for parts in zip(*states, strict=True)]


def compare(
    layer: RationalRNN,
    lengths: Sequence[int],
    backend: str = "native",
    *,
    slow_backend: str = "reference",
    exact: RationalRNN | None = None,
    tolerance: float = 1e-9,
    flips: float = 0.0,
) -> None:
    """Hold a layer's packed call on a backend against separate calls of `exact`, a layer with the same weights, on the
    reference backend. `flips` is the share of a gradient's numbers that may differ: where two paths are equally good up
    to rounding, a maximum may take the other one, and the gradient goes there."""
    exact = exact or layer
    grads, results = [], []
    for own, name in ((layer, backend), (exact, slow_backend)):
        weight = own.layers[0].weight
        x = inputs(sum(lengths), own.input_size).to(weight.device, weight.dtype).requires_grad_()
        first = transform(
            lambda t: (t + inputs(*t.shape, seed=1).to(t.device, t.dtype)).detach().requires_grad_(),
            own.init_state(len(lengths)),
        )
        with rrnn.use_backend(name):
            if own is layer and name == backend and not results:
                out, after = own(x, first, cu_seqlens=offsets_of(lengths).to(x.device))
                states = tensors(after)
            else:
                out, states = one_by_one(own, x, first, lengths)
            loss = torch.stack([_weighted(t) for t in (out, *states)]).sum()
            wanted = [x, *own.parameters(), *tensors(first)]
            grads.append(torch.autograd.grad(loss, wanted, allow_unused=True))
        results.append([out, *states])
    _close(results, tolerance)
    _close(grads, tolerance, flips)


def _weighted(t: Tensor) -> Tensor:
    """Return a sum in which every element has a weight of its own; infinite ones have none."""
    weights = inputs(*t.shape, seed=2).to(t.device)
    return (torch.where(t.isfinite(), t, 0.0).double() * weights).sum()


def _close(pair: Sequence[Sequence[Tensor | None]], tolerance: float, flips: float = 0.0) -> None:
    for got, expected in zip(*pair, strict=True):
        if got is None or expected is None:
            assert all(t is None or not t.any() for t in (got, expected))
            continue
        got, expected = got.double().cpu(), expected.double().cpu()
        near = torch.isclose(got, expected, rtol=tolerance, atol=tolerance)
        if (~near).sum() > flips * near.numel():
            torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
