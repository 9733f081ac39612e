"""Load the weights of public implementations into layers that compute the same.

`from_sru` reads state dicts of the public SRU (version 1), `from_qrnn` those of Salesforce's pytorch-qrnn, `from_mamba`
and `from_mamba2` those of `transformers`. The results agree in evaluation mode; pass dropout and zoneout of the
original as options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rrnn.errors import FormatError
from rrnn.nn import Block, BlockStack, RationalLayer, RationalRNN
from rrnn.nn.arguments import positive
from rrnn.nn.block_parts import PartNorm
from rrnn.nn.layer_weights import Projection
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


# ---- blocks of transformers ------------------------------------------------------------------------------------------


def from_mamba(state: Mapping[str, Tensor], *, eps: float = 1e-5, **options: Any) -> Block | BlockStack:
    """Build Mamba blocks from a state dict of `transformers`: of a `MambaMixer`, a `MambaBlock`, a `MambaModel` or a
    `MambaForCausalLM`.

    A mixer becomes a `Block` without norm and residual connection, a block a `Block`, and a model a `BlockStack` with
    its last norm; `embeddings.weight` and `lm_head.weight` remain yours (see docs/blocks.md). Sizes are those of the
    weights. `eps` is the configuration's layer_norm_epsilon. Other options are those of `Block`: batch_first=True reads
    (batch, time, size), as `transformers` does.
    """
    return _blocks(state, _mamba_block, eps, options)


def from_mamba2(
    state: Mapping[str, Tensor], *, groups: int = 1, eps: float = 1e-5, **options: Any
) -> Block | BlockStack:
    """Build Mamba-2 blocks from a state dict of `transformers`, as `from_mamba` does for Mamba.

    `groups` is the configuration's n_groups, which the weights do not show, and `eps` its layer_norm_epsilon. A
    configuration with a time_step_limit other than (0, ∞) gives different results here.
    """
    return _blocks(state, _mamba2_block, eps, {"groups": groups, **options})


Mixer = Mapping[str, Tensor]


def _blocks(
    state: Mapping[str, Tensor], build: Callable[..., Block], eps: float, options: dict[str, Any]
) -> Block | BlockStack:
    """Build the blocks of a mixer, a block or a model."""
    if not isinstance(state, Mapping):
        raise FormatError(f"a state dict maps names to tensors; got {type(state).__name__}")
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise FormatError(
                f"a state dict maps names to tensors; {name} has the type {type(value).__name__}"
            )
    state = {key.removeprefix("backbone."): value.detach() for key, value in state.items()}
    options["eps"] = eps
    depths = sorted({int(m[1]) for key in state if (m := re.match(r"layers\.(\d+)\.", key))})
    if not depths:
        return _block(state, build, options)
    if depths != list(range(len(depths))):
        raise FormatError(f"expected layers 0, 1, 2, …; got {', '.join(map(str, depths))}")
    first = options.pop("batch_first", False)
    blocks = [_block(_below(state, f"layers.{i}."), build, options) for i in depths]
    norm, last = None, state.get("norm_f.weight")
    if last is not None:
        norm = PartNorm("rms", blocks[0].size, 1, eps, last.device, last.dtype)
        norm.weight.data.copy_(last)
    return BlockStack.of(blocks, norm, batch_first=first)


def _block(state: Mapping[str, Tensor], build: Callable[..., Block], options: dict[str, Any]) -> Block:
    """Build one block, with its norm and residual connection if the state dict has a norm around the mixer."""
    mixer = _below(state, "mixer.")
    if not mixer:
        return build(state, {"norm": None, "residual": False, **options})
    block = build(mixer, options)
    assert block.norm is not None
    _fill(block.norm.weight, state, "norm.weight")
    return block


def _below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def _sizes(mixer: Mixer, dimensions: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return the shapes of a mixer's tensors: name → how many dimensions it has."""
    missing = [name for name in dimensions if name not in mixer]
    if missing:
        raise FormatError(
            f"expected the state dict of a mixer, a block or a model, with {', '.join(dimensions)}; {missing[0]} is "
            f"missing from {', '.join(list(mixer)[:6]) or 'nothing'}"
        )
    for name, count in dimensions.items():
        if mixer[name].dim() != count:
            raise FormatError(
                f"{name} must have {count} dimensions; got the shape {tuple(mixer[name].shape)}"
            )
    return [tuple(mixer[name].shape) for name in dimensions]


def _split(mixer: Mixer, name: str, parts: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the rows of a mixer's tensor in parts of these sizes."""
    if len(mixer[name]) != sum(parts):
        raise FormatError(f"{name} must have {' + '.join(map(str, parts))} rows; got {len(mixer[name])}")
    return mixer[name].split(list(parts))


def _mixer_options(mixer: Mixer, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a block that a mixer's tensors decide."""
    like = mixer["in_proj.weight"]
    return {
        "conv": mixer["conv1d.weight"].shape[-1],
        "conv_bias": "conv1d.bias" in mixer,
        "bias": "in_proj.bias" in mixer,
        "dtype": like.dtype,
        "device": like.device,
        **options,
    }


def _mamba_block(mixer: Mixer, options: dict[str, Any]) -> Block:
    names = {"in_proj.weight": 2, "conv1d.weight": 3, "A_log": 2, "dt_proj.weight": 2, "x_proj.weight": 2}
    (_, size), _, (units, states), (_, rank), _ = _sizes(mixer, names)
    options = {"low_rank": {"delta": rank}, **_mixer_options(mixer, options)}
    block = Block(f"Mamba:states={states}", size, units, **options)
    layer, conv = block.layer, block.conv
    assert conv is not None and block.in_proj is not None
    delta = layer.projection(0, "delta")
    x = _split(mixer, "x_proj.weight", [rank, states, states])
    for target, rows in zip((delta, *(layer.projection(0, n) for n in "BC")), x, strict=True):
        _fill(target.right(), {"x_proj.weight": rows}, "x_proj.weight")
    assert delta.left is not None and delta.bias is not None
    parameters = layer.parameters_of(0)
    for target, name in (
        (delta.left, "dt_proj.weight"),
        (delta.bias, "dt_proj.bias"),
        (parameters["A_log"].T, "A_log"),
        (parameters["D"], "D"),
    ):
        _fill(target, mixer, name)
    _fill_around(block, mixer)
    _fill_linear(block.in_proj, mixer, "in_proj")
    return block


def _mamba2_block(mixer: Mixer, options: dict[str, Any]) -> Block:
    names = {"in_proj.weight": 2, "conv1d.weight": 3, "A_log": 1, "norm.weight": 1}
    (_, size), (channels, *_), (heads,), (units,) = _sizes(mixer, names)
    groups = positive(options["groups"], "groups")
    states, rest = divmod(channels - units, 2 * groups)
    if rest or states < 1 or heads % groups:
        raise FormatError(
            f"groups must divide the {heads} heads and the {(channels - units) // 2} rows of B; got {groups}. It is "
            "n_groups of the model's configuration."
        )
    options = {"heads": heads, **_mixer_options(mixer, options)}
    block = Block(f"Mamba-2:states={states}", size, units, **options)
    layer, conv = block.layer, block.conv
    assert conv is not None and block.in_proj is not None and block.output_norm is not None
    # Theirs has the rows z, x, B, C, Δ; ours has z in in_proj, and Δ, B, C, x in the layer.
    parts = [units, units, groups * states, groups * states, heads]
    source = {key: _split(mixer, key, parts) for key in ("in_proj.weight", "in_proj.bias") if key in mixer}
    shared = dict(zip("zxBC", source["in_proj.weight"], strict=False)) | {
        "delta": source["in_proj.weight"][-1]
    }
    for target, name in ((layer.projection(0, n), n) for n in ("delta", "B", "C")):
        _fill(target.weight(), shared, name)
    read = layer.own_projection("input")
    assert read is not None
    _fill(read.weight(), shared, "x")
    _fill(block.in_proj.weight, shared, "z")
    if "in_proj.bias" in source:
        z, x, b, c, delta = source["in_proj.bias"]
        assert block.projection_bias is not None and block.in_proj.bias is not None
        _fill(block.projection_bias, {"in_proj.bias": torch.cat([delta, b, c, x])}, "in_proj.bias")
        _fill(block.in_proj.bias, {"in_proj.bias": z}, "in_proj.bias")
    bias, parameters = layer.projection(0, "delta").bias, layer.parameters_of(0)
    assert bias is not None
    _fill(bias, mixer, "dt_bias")
    for name in ("A_log", "D"):
        _fill(parameters[name], mixer, name)
    _fill(block.output_norm.weight, mixer, "norm.weight")
    _fill_around(block, mixer, [units, groups * states, groups * states])
    return block


def _fill_around(block: Block, mixer: Mixer, parts: Sequence[int] | None = None) -> None:
    """Set the convolution, whose channels x, B, C move to B, C, x if `parts` says how many there are, and the output
    projection."""
    assert block.conv is not None
    for target, name in ((block.conv.weight, "conv1d.weight"), (block.conv.bias, "conv1d.bias")):
        if target is None:
            continue
        value = mixer[name]
        if parts is not None:
            x, *others = _split(mixer, name, parts)
            value = torch.cat([*others, x])
        value = value.squeeze(1).flip(-1).T if value.dim() == 3 else value
        _fill(target, {name: value}, name)
    _fill_linear(block.out_proj, mixer, "out_proj")


def _fill_linear(target: nn.Linear, mixer: Mixer, name: str) -> None:
    _fill(target.weight, mixer, f"{name}.weight")
    if target.bias is not None:
        _fill(target.bias, mixer, f"{name}.bias")


@torch.no_grad()
def _fill(target: Tensor, mixer: Mixer, name: str) -> None:
    """Set a tensor of a block from one of a mixer."""
    value = mixer.get(name)
    if value is None or value.shape != target.shape:
        got = "it is missing" if value is None else f"got {tuple(value.shape)}"
        raise FormatError(f"{name} must have the shape {tuple(target.shape)}; {got}. Check groups=.")
    target.copy_(value)
