"""What torch does with modules: compile, export, autocast, devices, dtypes, vmap, data-parallel training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from data_parallel import gradients_of_one, train_in_two_processes
from layer_cases import inputs, make_layer, same_state
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rrnn.automata import Cell, linear, one, score
from rrnn.nn import RationalRNN, State, detach
from rrnn.nn.sequences import transform

SOME = ("F", "B-max-plus", "odd", "mixed")  # real, max-plus, learned λ and windows, everything at once


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_compile_without_graph_breaks(name: str) -> None:
    torch._dynamo.reset()
    options: dict[str, Any] = {"bidirectional": name == "mixed", "skip": "highway", "norm": "layer"}
    layer = make_layer(name, dtype=torch.float32, **options)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = inputs(5, 2, 4, dtype=torch.float32)
    mask = torch.tensor([[1, 0], [1, 1], [0, 1], [1, 1], [1, 0]], dtype=torch.bool)
    state = detach(layer.init_state(2))
    for given in ({}, {"hx": state, "lengths": torch.tensor([5, 2])} if name == "F" else {"mask": mask}):
        expected, end = layer(x, **given)
        out, after = compiled(x, **given)
        torch.testing.assert_close(out, expected)
        same_state(after, end)
        parameters = list(layer.parameters())
        grads = [torch.autograd.grad((o**2).sum(), parameters) for o in (expected, out)]
        torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.slow
def test_compile_steps() -> None:
    torch._dynamo.reset()
    layer = make_layer("F", dtype=torch.float32).eval()
    step = torch.compile(layer.step, fullgraph=True, backend="aot_eager")
    x = inputs(4, 2, 4, dtype=torch.float32)
    expected, _ = layer(x)
    with torch.no_grad():
        state = layer.init_state(2)
        for t in range(4):
            out, state = step(x[t], state)
            torch.testing.assert_close(out, expected[t])


@pytest.mark.slow
def test_compile_any_length_once() -> None:
    """A kernel serves all lengths: with dynamic shapes nothing is compiled anew."""
    torch._dynamo.reset()
    layer = make_layer("F", dtype=torch.float32)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=False):
        for steps, batch in ((5, 2), (7, 3)):
            x = inputs(steps, batch, 4, dtype=torch.float32)
            torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    with torch._dynamo.config.patch(error_on_recompile=True):
        x = inputs(40, 4, 4, dtype=torch.float32)
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])


class Masked(nn.Module):
    """torch.export wants tensors in a fixed order."""

    def __init__(self, layer: RationalRNN) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, mask: Tensor, state: State) -> tuple[Tensor, State]:
        return self.layer(x, state, mask=mask)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["F", "mixed"])
def test_export_with_dynamic_time_and_batch_reloads_elsewhere(name: str, tmp_path: Path) -> None:
    layer = make_layer(name, dtype=torch.float32)
    module = Masked(layer).eval()
    steps, batch = torch.export.Dim("steps", min=2), torch.export.Dim("batch")

    def arguments(t: int, b: int) -> tuple[Tensor, Tensor, State]:
        mask = inputs(t, b) > -0.5
        return inputs(t, b, 4, dtype=torch.float32), mask, detach(layer.init_state(b))

    given = arguments(5, 2)
    along = transform(lambda _: {1: batch}, given[2])  # pyright: ignore[reportArgumentType]
    shapes = ({0: steps, 1: batch}, {0: steps, 1: batch}, along)
    with torch.no_grad():
        exported = torch.export.export(module, given, dynamic_shapes=shapes)
    x, mask, state = arguments(8, 3)
    expected = module(x, mask, state)
    out, end = exported.module()(x, mask, state)
    torch.testing.assert_close(out, expected[0])
    same_state(end, expected[1])

    torch.export.save(exported, tmp_path / "layer.pt2")
    plain = [torch.utils._pytree.tree_leaves(t) for t in (x, mask, state, expected[0].detach())]
    torch.save(plain, tmp_path / "data.pt")
    code = (
        "import sys, torch, rrnn.nn\n"
        "from torch.utils._pytree import tree_unflatten\n"
        "exported = torch.export.load(sys.argv[1] + '/layer.pt2')\n"
        "(x,), (mask,), state, (expected,) = torch.load(sys.argv[1] + '/data.pt')\n"
        "(args, _), spec = tree_unflatten([x, mask, *state], exported.call_spec.in_spec), None\n"
        "out, end = exported.module()(*args)\n"
        "torch.testing.assert_close(out, expected)\n"
        "assert isinstance(end[0], rrnn.nn.LayerState)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_autocast(name: str) -> None:
    """Products in bfloat16, states in float32."""
    layer = make_layer(name, num_layers=2, skip="highway", dtype=torch.float32)
    x = inputs(5, 2, 4, dtype=torch.float32)
    exact, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = layer(x)
        pieces, middle = layer(x[:3])
        rest, _ = layer(x[3:], middle)
    assert out.dtype == torch.bfloat16
    assert all(s.dtype == torch.float32 for each in state for s in each.states)
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)
    torch.testing.assert_close(torch.cat([pieces, rest]), out)
    out.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_layers(dtype: torch.dtype) -> None:
    layer = make_layer("mixed", dtype=torch.float32)
    x = inputs(5, 2, 4, dtype=torch.float32)
    exact, _ = layer(x)
    layer.to(dtype)
    out, state = layer(x.to(dtype))
    assert out.dtype == dtype and all(s.dtype == torch.float32 for s in state[0].states)
    torch.testing.assert_close(out.float(), exact, rtol=0.1, atol=0.1)


def test_default_dtype() -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        layer = RationalRNN(make_layer("F").cells, 4)
        out, state = layer(torch.randn(3, 2, 4))
    finally:
        torch.set_default_dtype(before)
    assert out.dtype == state[0].states[0].dtype == layer.layers[0].weight.dtype == torch.float64


@pytest.mark.parametrize("name", ["F", "GLA:states=16", "HGRN2", "Mamba-2"])
def test_shapes_alone(name: str) -> None:
    """On the meta device and with fake tensors nothing is computed, and kernels see no memory."""
    assert RationalRNN(name, 6, 6).to("meta")(torch.empty(4, 2, 6, device="meta"))[0].shape == (4, 2, 6)
    with FakeTensorMode():
        x = torch.randn(4, 2, 6, requires_grad=True)
        out, _ = RationalRNN(name, 6, 6)(x)
        out.sum().backward()
    assert out.shape == (4, 2, 6) and x.grad is not None and x.grad.shape == x.shape


@pytest.mark.parametrize("name", ["mixed", "odd"])
def test_meta_device(name: str) -> None:
    """Shapes without numbers: a layer can be built there, run, and filled later."""
    layer = make_layer(name, device="meta", bidirectional=True, norm="layer", skip="residual")
    out, state = layer(torch.empty(5, 2, 4, dtype=torch.float64, device="meta"))
    assert out.device.type == "meta" and out.shape == (5, 2, 2 * layer.hidden_size)
    assert state[0].states[0].device.type == "meta"
    real = layer.to_empty(device="cpu")
    real.reset_parameters()
    assert real(inputs(5, 2, 4))[0].isfinite().all()


def test_vmap_over_an_ensemble() -> None:
    from torch.func import functional_call, stack_module_state, vmap

    layers = [make_layer("F"), make_layer("F")]
    with torch.no_grad():
        layers[1].layers[0].weight.mul_(0.5)
    params, buffers = stack_module_state(layers)
    x = inputs(5, 2, 4)
    out = vmap(lambda p, b: functional_call(layers[0], (p, b), (x,))[0])(params, buffers)
    for i, layer in enumerate(layers):
        torch.testing.assert_close(out[i], layer(x)[0])


def test_truncated_backpropagation() -> None:
    layer = make_layer("F")
    _, state = layer(inputs(3, 2, 4))
    assert state[0].states[0].requires_grad
    cut = detach(state)
    assert not cut[0].states[0].requires_grad
    layer(inputs(3, 2, 4), cut)[0].sum().backward()


def test_nothing_to_do() -> None:
    """No steps, no sequences."""
    layer = make_layer("mixed", num_layers=2, bidirectional=True)
    for steps, batch in ((0, 2), (3, 0)):
        out, end = layer(inputs(steps, batch, 4), lengths=[steps] * batch)
        assert out.shape == (steps, batch, 2 * layer.hidden_size)
        out.sum().backward()
        same_state(end, layer.init_state(batch))


def test_written_for_lstm() -> None:
    """The calls that code written for `nn.LSTM` makes."""
    layer = make_layer("F", num_layers=2, batch_first=True, bidirectional=True)
    layer.flatten_parameters()
    out, hidden = layer(inputs(2, 5, 4))
    assert out.shape == (2, 5, 6) and len(hidden) == 4
    assert (layer.input_size, layer.hidden_size, layer.num_layers) == (4, 3, 2)
    assert (layer.bidirectional, layer.batch_first, layer.bias, layer.dropout) == (True, True, True, 0.0)
    layer = make_layer("F", num_layers=2)
    out, hidden = layer(inputs(5, 2, 4))
    out, hidden = layer(inputs(5, 2, 4), hidden)
    assert out.shape == (5, 2, 3) and len(hidden) == 2


@pytest.mark.slow
def test_data_parallel_training(tmp_path: Path) -> None:
    """Two processes give the gradients of one on the joint batch."""
    for parallel in train_in_two_processes(str(tmp_path)):
        torch.testing.assert_close(parallel, gradients_of_one())


def test_repr_of_several_components_and_outputs() -> None:
    complex_b = (
        Cell("complex_b", "complex").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).final("q1")
    )
    layer = RationalRNN(
        [(complex_b, 3), (complex_b.renamed("re").output(score.re), 2)], 4, bidirectional=True
    )
    lines = [line.strip() for line in repr(layer).splitlines()]
    assert "3 × complex_b: 2 states (1 stored), 2 arcs, complex semiring ⟨re, im⟩, 2 outputs a unit" in lines
    assert "2 × re: 2 states (1 stored), 2 arcs, complex semiring ⟨re, im⟩" in lines
    assert "output_size: 16" in lines and layer.output_size == 16
    assert "output_size" not in repr(RationalRNN(complex_b.output(score.re), 4, 3, bidirectional=True))
