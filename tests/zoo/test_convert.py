"""Weights of public layers: what we load computes what their code computes, written down here from its layouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from layer_cases import inputs
from torch import Tensor, nn

import rrnn
from rrnn.errors import FormatError, ShapeError
from rrnn.nn import Block, BlockStack
from rrnn.zoo.convert import from_mamba, from_mamba2, from_qrnn, from_sru


def public_sru(state: dict[str, Tensor], x: Tensor, d: int, directions: int, g=torch.tanh) -> Tensor:
    """SRU, version 1: u = x W is viewed as (time, batch, direction, unit, k)."""
    depth = 0
    while f"rnn_lst.{depth}.weight" in state:
        weight, bias = state[f"rnn_lst.{depth}.weight"], state[f"rnn_lst.{depth}.bias"]
        k = weight.shape[1] // d // directions
        u = (x @ weight).view(x.shape[0], x.shape[1], directions, d, k)
        forget_bias, reset_bias = bias.view(2, directions, d)
        forget, reset = (u[..., 1] + forget_bias).sigmoid(), (u[..., 2] + reset_bias).sigmoid()
        carried = x.view(x.shape[0], x.shape[1], directions, d) if k == 3 else u[..., 3]
        h = torch.empty_like(forget)
        for di in range(directions):
            c = torch.zeros_like(forget[0, :, 0])
            for t in range(x.shape[0]) if di == 0 else reversed(range(x.shape[0])):
                f, r = forget[t, :, di], reset[t, :, di]
                c = (c - u[t, :, di, :, 0]) * f + u[t, :, di, :, 0]
                h[t, :, di] = g(c) * r + carried[t, :, di] * (1 - r)
        x, depth = h.reshape(x.shape[0], x.shape[1], -1), depth + 1
    return x


@pytest.mark.parametrize(("size", "directions"), [(3, 1), (4, 1), (4, 2), (6, 2)])
def test_sru(size: int, directions: int) -> None:
    d, state = 3, {}
    for depth in range(2):
        n_in = size if depth == 0 else d * directions
        k = 3 if n_in == d * directions else 4
        state[f"rnn_lst.{depth}.weight"] = inputs(n_in, directions * d * k, seed=depth)
        state[f"rnn_lst.{depth}.bias"] = inputs(2 * directions * d, seed=7 + depth)
    x = inputs(5, 2, size, seed=3)
    layer = from_sru(state, bidirectional=directions == 2)
    torch.testing.assert_close(layer(x)[0], public_sru(state, x, d, directions))
    plain = from_sru(state, bidirectional=directions == 2, activation="identity")
    torch.testing.assert_close(plain(x)[0], public_sru(state, x, d, directions, lambda c: c))


def public_qrnn(state: dict[str, Tensor], x: Tensor, windows: list[int], output_gate: bool = True) -> Tensor:
    """pytorch-qrnn: the source is [x_t, x_{t−1}], F the input gate."""
    for depth, window in enumerate(windows):
        weight, bias = state[f"layers.{depth}.linear.weight"], state[f"layers.{depth}.linear.bias"]
        before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
        y = (x if window == 1 else torch.cat([x, before], 2)) @ weight.T + bias
        z, f, *o = y.chunk(3 if output_gate else 2, dim=2)
        z, f, outputs = z.tanh(), f.sigmoid(), []
        c = torch.zeros_like(z[0])
        for t in range(x.shape[0]):
            c = f[t] * z[t] + (1 - f[t]) * c
            outputs.append(o[0][t].sigmoid() * c if output_gate else c)
        x = torch.stack(outputs)
    return x


@pytest.mark.parametrize("windows", [[1, 1], [2, 2], [2, 1], [2]])
@pytest.mark.parametrize("output_gate", [True, False])
def test_qrnn(windows: list[int], output_gate: bool) -> None:
    units, size, state = 3, 4, {}
    rows = (3 if output_gate else 2) * units
    for depth, window in enumerate(windows):
        n_in = units if depth else size
        state[f"layers.{depth}.linear.weight"] = inputs(rows, window * n_in, seed=depth)
        state[f"layers.{depth}.linear.bias"] = inputs(rows, seed=7 + depth)
    x = inputs(5, 2, size, seed=3)
    window = windows if len(set(windows)) > 1 else windows[0]
    layer = from_qrnn(state, window=window, output_gate=output_gate)
    torch.testing.assert_close(layer(x)[0], public_qrnn(state, x, windows, output_gate))


def test_what_cannot_be_read() -> None:
    with pytest.raises(FormatError, match="a weight and a bias for each layer"):
        from_sru({"weight": inputs(3, 9)})
    with pytest.raises(FormatError, match="Check bidirectional="):
        from_sru({"rnn_lst.0.weight": inputs(4, 9), "rnn_lst.0.bias": inputs(6)})
    wrong = [[(4, 8), (4,), (3, 8), (4,)], [(4, 8), (4,), (2, 8), (6,)], [(4, 8), (5,)], [(4, 8), (1,)]]
    for shapes in wrong:  # of a layer's input, a bias, a first bias, a bias too short for any unit
        names = [f"rnn_lst.{i}.{name}" for i in range(len(shapes) // 2) for name in ("weight", "bias")]
        with pytest.raises(FormatError, match="SRU's weight must be"):
            from_sru({name: inputs(*shape) for name, shape in zip(names, shapes, strict=True)})
    with pytest.raises(
        FormatError, match=r"the weight must be a matrix and the bias a vector; got \(12,\) and \(6,\)"
    ):
        from_sru({"rnn_lst.0.weight": inputs(12), "rnn_lst.0.bias": inputs(6)})
    with pytest.raises(FormatError, match="Check window="):
        from_qrnn({"layers.0.linear.weight": inputs(9, 5), "layers.0.linear.bias": inputs(8)}, window=2)
    with pytest.raises(FormatError, match="one for each of the 1 layers"):
        from_qrnn({"layers.0.linear.weight": inputs(9, 4), "layers.0.linear.bias": inputs(9)}, window=[2, 1])


# ---- blocks of transformers ------------------------------------------------------------------------------------------

MAMBA: list[dict[str, Any]] = [
    {},
    {"use_conv_bias": False, "conv_kernel": 2, "expand": 1},
    {"use_bias": True, "time_step_rank": 5, "layer_norm_epsilon": 1e-2},
]
MAMBA2: list[dict[str, Any]] = [
    {"n_groups": 1, "chunk_size": 8},
    {"n_groups": 2, "use_conv_bias": False, "conv_kernel": 3},
    {"n_groups": 4, "use_bias": True, "expand": 1, "head_dim": 4, "layer_norm_epsilon": 1e-2},
]


def transformers_model(kind: str, options: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    """Return a small model of transformers with random weights, and what our conversion of it is."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "state_size": 6, "num_hidden_layers": 2, "vocab_size": 11, **options}
    given = {"eps": options.get("layer_norm_epsilon", 1e-5), "batch_first": True, **more}
    if kind == "Mamba":
        model = transformers.MambaForCausalLM(transformers.MambaConfig(**sizes))
        convert: Any = from_mamba
    else:
        sizes = {"num_heads": 8, "head_dim": 8, **sizes}
        model = transformers.Mamba2ForCausalLM(transformers.Mamba2Config(**sizes))
        convert, given = from_mamba2, {"groups": options["n_groups"], **given}
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    return model.eval(), lambda module: convert(module.state_dict(), **given)


CASES = [("Mamba", options) for options in MAMBA] + [("Mamba-2", options) for options in MAMBA2]


@pytest.mark.parametrize("kind, options", CASES)
@torch.no_grad()
def test_blocks_of_transformers(kind: str, options: dict[str, Any]) -> None:
    """A mixer, a block and a model of transformers, in float32, equal what they are converted to, up to rounding."""
    model, convert = transformers_model(kind, options)
    x = inputs(3, 21, 32, dtype=torch.float32)
    layer = model.backbone.layers[0]
    for theirs, expected in ((layer.mixer, layer.mixer(x)), (layer, layer(x))):
        ours = convert(theirs)
        assert isinstance(ours, Block)
        with rrnn.use_backend("reference"):
            torch.testing.assert_close(ours(x)[0], expected, rtol=1e-5, atol=1e-5)
    stack = convert(model)
    assert isinstance(stack, BlockStack) and stack.num_layers == 2
    ids = torch.randint(0, 11, (2, 13), generator=torch.Generator().manual_seed(0))
    with rrnn.use_backend("reference"):
        hidden, _ = stack(model.backbone.embeddings(ids))
    torch.testing.assert_close(model.lm_head(hidden), model(ids).logits, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind, options", [CASES[0], CASES[4]])
@torch.no_grad()
def test_converted_blocks_stream(kind: str, options: dict[str, Any]) -> None:
    """A prompt followed by single steps gives what transformers gives for the whole text, on the fastest backend."""
    model, convert = transformers_model(kind, options)
    stack, ids = convert(model), torch.arange(14).remainder(11).view(1, -1)
    x = model.backbone.embeddings(ids)
    out, state = stack(x[:, :9])
    outputs = [out]
    for t in range(9, 14):
        out, state = stack.step(x[:, t], state)
        outputs.append(out.unsqueeze(1))
    expected = model(ids).logits
    torch.testing.assert_close(model.lm_head(torch.cat(outputs, 1)), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind, options", [CASES[0], CASES[3]])
def test_converted_blocks_have_the_same_gradients(kind: str, options: dict[str, Any]) -> None:
    model, convert = transformers_model(kind, options)
    layer: nn.Module = model.backbone.layers[0]
    ours, found = convert(layer), []
    for module in (layer, ours):
        x = inputs(2, 7, 32, dtype=torch.float32).requires_grad_()
        out = module(x)
        out = out if isinstance(out, Tensor) else out[0]
        out.square().sum().backward()
        found.append(
            [x.grad, module.out_proj.weight.grad if module is ours else layer.mixer.out_proj.weight.grad]
        )
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_converted() -> None:
    model, _ = transformers_model("Mamba-2", MAMBA2[1])
    state = model.state_dict()
    with pytest.raises(FormatError, match="groups must divide the 8 heads and the 12 rows of B; got 3"):
        from_mamba2(state, groups=3)
    with pytest.raises(FormatError, match=r"with in_proj.weight, .* dt_proj.weight is missing"):
        from_mamba(state)
    with pytest.raises(FormatError, match="is missing from nothing"):
        from_mamba2({})
    with pytest.raises(FormatError, match="expected layers 0, 1, 2, …; got 1"):
        from_mamba2({key: value for key, value in state.items() if ".layers.0." not in key})
    with pytest.raises(ShapeError, match="groups must be a whole number above 0; got 0"):
        from_mamba2(state, groups=0)
    with pytest.raises(FormatError, match="names to tensors; D has the type int"):
        from_mamba({"D": 3})  # type: ignore[dict-item]
    for name, shape, message in (
        ("in_proj.weight", (5,), r"in_proj.weight must have 2 dimensions; got the shape \(5,\)"),
        ("in_proj.weight", (5, 8), r"in_proj.weight must have .* rows; got 5"),
        ("conv1d.bias", (5,), r"conv1d.bias must have .* rows; got 5"),
    ):
        with pytest.raises(FormatError, match=message):
            from_mamba2(dict(state) | {f"backbone.layers.0.mixer.{name}": torch.ones(shape)}, groups=2)
    wrong = dict(state) | {"backbone.layers.0.mixer.D": torch.ones(3)}
    with pytest.raises(FormatError, match=r"D must have the shape \(8,\); got \(3,\)"):
        from_mamba2(wrong, groups=2)
