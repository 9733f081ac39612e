"""Load the weights of public SRU and QRNN implementations into layers that compute the same.

`from_sru` reads state dicts of the public SRU (version 1), `from_qrnn` those of Salesforce's pytorch-qrnn. The results
agree in evaluation mode; pass dropout and zoneout of the original as options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rrnn.errors import FormatError
from rrnn.nn import RationalLayer, RationalRNN
from rrnn.nn.rows import Projection
from rrnn.zoo.gated import qrnn, sru


def from_sru(
    state: Mapping[str, Tensor], *, bidirectional: bool = False, activation: str = "tanh", **options: Any
) -> RationalRNN:
    """Build a `RationalRNN` from the state dict of a public SRU, version 1: `rnn_lst.I.weight` and `rnn_lst.I.bias`.

    A weight has the shape (inputs, directions · units · k) and is multiplied from the right; its columns are ordered by
    direction, then unit, then x̃, f, r and, if k = 4, the projection of the input for the highway. A bias has
    2 · directions · units entries: those of f, then those of r. With k = 3 the highway carries the input itself, which
    then has the size of the output.
    """
    layers = _layers(state, r"(?:.*\.)?rnn_lst\.(\d+)\.(weight|bias)")
    n = 2 if bidirectional else 1
    units = max(1, layers[0]["bias"].numel() // (2 * n))
    inputs = layers[0]["weight"].shape[0]
    rnn = _rnn(sru(activation), inputs, units, len(layers), layers[0]["weight"], bidirectional, options)
    for depth, layer in enumerate(layers):
        weight, bias, size = layer["weight"], layer["bias"], _direction(rnn, depth, 0).input_size
        k, rest = divmod(weight.shape[1], n * units)
        fits = k == 4 or (k == 3 and size == n * units)
        if rest or not fits or weight.shape[0] != size or bias.shape != (2 * n * units,):
            raise FormatError(
                f"layer {depth}: SRU's weight must be ({size}, {n} · {units} · k) with k = 4, or 3 if "
                f"inputs and outputs have equal sizes, and its bias ({2 * n * units},); got "
                f"{tuple(weight.shape)} and {tuple(bias.shape)}. Check bidirectional=."
            )
        bias = bias.view(2, n, units)
        columns = weight.view(-1, n, units, k).permute(1, 3, 2, 0)  # (direction, k, unit, input)
        for d in range(n):
            ours = _direction(rnn, depth, d)
            x, f, r, *carried = columns[d]
            if k == 3 and n == 2:  # each direction carries its own half of the input
                carried = [torch.eye(n * units, dtype=weight.dtype)[d * units : (d + 1) * units]]
            _write(ours.projection(0, "x"), [x])
            _write(ours.projection(0, "f"), [f], bias[0, d])
            _write(ours.projection(0, "r"), [r], bias[1, d])
            if (projected := ours.own_projection("input")) is not None:
                _write(projected, carried)
    return rnn


def from_qrnn(
    state: Mapping[str, Tensor], *, window: int | Sequence[int] = 1, output_gate: bool = True, **options: Any
) -> RationalRNN:
    """Build a `RationalRNN` from the state dict of a pytorch-qrnn QRNN: `layers.I.linear.weight` and `….bias`.

    A weight has the shape (3 · units, window · inputs), or (2 · units, …) without an output gate: rows of Z, F and O;
    columns of the input, then of the one before it. `window` is one number for all layers or a list (the first layer of
    a public QRNN may have another window; smaller ones are filled up with zeros here). Its F is the *input* gate,
    c = F ⊙ Z + (1 − F) ⊙ c': since 1 − σ(a) = σ(−a), its rows and biases change sign. A model trained with zoneout p
    scales F by 1 − p in evaluation, which no weights of f can express: such a model gives different results here.
    """
    layers = _layers(state, r"(?:.*\.)?layers\.(\d+)\.linear\.(weight|bias)")
    windows = [window] * len(layers) if isinstance(window, int) else list(window)
    if len(windows) != len(layers):
        raise FormatError(
            f"window must be one number, or one for each of the {len(layers)} layers; got {windows}"
        )
    first, gates, pooling = layers[0]["weight"], 3 if output_gate else 2, "fo" if output_gate else "f"
    inputs, units = first.shape[1] // windows[0], first.shape[0] // gates
    rnn = _rnn(qrnn(max(windows), pooling), inputs, units, len(layers), first, False, options)
    for depth, (layer, reach) in enumerate(zip(layers, windows, strict=True)):
        weight, bias, ours = layer["weight"], layer["bias"], _direction(rnn, depth, 0)
        size = ours.input_size
        if weight.shape != (gates * units, reach * size) or bias.shape != (gates * units,):
            raise FormatError(
                f"layer {depth}: QRNN's weight must be ({gates} · {units}, {reach} · {size}), its bias "
                f"({gates * units},); got {tuple(weight.shape)} and {tuple(bias.shape)}. Check window= and "
                "output_gate=."
            )
        for i, name in enumerate("zfo"[:gates]):
            rows = slice(i * units, (i + 1) * units)
            sign = -1 if name == "f" else 1
            lags = [sign * weight[rows, k * size : (k + 1) * size] for k in range(reach)]
            lags += [torch.zeros_like(lags[0])] * (max(windows) - reach)
            _write(ours.projection(0, name), lags, sign * bias[rows])
    return rnn


def _layers(state: Mapping[str, Tensor], pattern: str) -> list[dict[str, Tensor]]:
    """Return the tensors of each layer by the last part of their names."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, tensor in state.items():
        if m := re.fullmatch(pattern, key):
            found.setdefault(int(m[1]), {})[m[2]] = tensor.detach()
    complete = sorted(found) == list(range(len(found))) and all(len(each) == 2 for each in found.values())
    if not found or not complete:
        raise FormatError(
            f"expected a weight and a bias for each layer, under names like {pattern!r}; "
            f"got {', '.join(list(state)[:6]) or 'nothing'}"
        )
    for i, each in sorted(found.items()):
        if each["weight"].dim() != 2 or each["bias"].dim() != 1:
            shapes = " and ".join(str(tuple(each[name].shape)) for name in ("weight", "bias"))
            raise FormatError(f"layer {i}: the weight must be a matrix and the bias a vector; got {shapes}")
    return [found[i] for i in range(len(found))]


def _rnn(
    cell: Any, inputs: int, units: int, depth: int, like: Tensor, both: bool, options: dict[str, Any]
) -> RationalRNN:
    options = {"dtype": like.dtype, "device": like.device, "bidirectional": both} | options
    return RationalRNN(cell, inputs, units, depth, **options)


def _direction(rnn: RationalRNN, depth: int, direction: int) -> RationalLayer:
    layer = (rnn.reverse_layers if direction else rnn.layers)[depth]
    assert isinstance(layer, RationalLayer)
    return layer


@torch.no_grad()
def _write(projection: Projection, weights: Sequence[Tensor], bias: Tensor | None = None) -> None:
    """Set a projection's matrices (units, inputs), one per lag, and its bias."""
    for lag, weight in enumerate(weights):
        projection.weight(lag).copy_(weight)
    if bias is not None:
        assert projection.bias is not None
        projection.bias.copy_(bias)
