"""Options of a layer: dropout, skip connections, norms, biases, initialisation, what it prints."""

from __future__ import annotations

import math

import pytest
import torch
from cell_calls import cell
from layer_cases import inputs, make_layer, windowed
from torch import Tensor, nn

from rrnn import zoo
from rrnn.automata import Cell, linear, one, parameter, sigmoid, tanh
from rrnn.backends import use_backend
from rrnn.errors import CellError, ShapeError
from rrnn.nn import RationalRNN


def relation(layer: RationalRNN, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(x, h without the skip connection, pre-activations of the layer's own rows)."""
    inner = layer.layers[0]
    y = x @ inner.weight.T
    skip, inner.skip = inner.skip, None
    h, _ = inner(x)
    inner.skip = skip
    return x, h, y


@pytest.mark.parametrize("hidden", [4, 3])
def test_residual(hidden: int) -> None:
    layer = make_layer("F", 4, hidden, skip="residual")
    x, h, y = relation(layer, inputs(5, 2, 4))
    torch.testing.assert_close(layer(x)[0], h + (x if hidden == 4 else y[..., -3:]))


@pytest.mark.parametrize("hidden", [4, 3])
def test_highway(hidden: int) -> None:
    layer = make_layer("SRU", 4, hidden, skip="highway")
    x, h, y = relation(layer, inputs(5, 2, 4))
    g = torch.sigmoid(y[..., -hidden:] + layer.layers[0].gate_bias)
    carried = x if hidden == 4 else y[..., -2 * hidden : -hidden]
    torch.testing.assert_close(layer(x)[0], g * h + (1 - g) * carried)


@pytest.mark.parametrize("both", [False, True])
def test_a_size_for_each_layer(both: bool) -> None:
    """Layers of several sizes are those layers one after the other."""
    whole = make_layer("windowed", 4, [3, 6, 2], num_layers=3, bidirectional=both)
    n = whole.num_directions
    assert (whole.hidden_sizes, whole.hidden_size, whole.output_size) == ((3, 6, 2), 3, 2 * n)
    x, size = inputs(5, 2, 4), 4
    out, state = whole(x)
    for depth, units in enumerate((3, 6, 2)):
        one_layer = make_layer("windowed", size, units, bidirectional=both)
        one_layer.layers[0].load_state_dict(whole.layers[depth].state_dict())
        if both:
            one_layer.reverse_layers[0].load_state_dict(whole.reverse_layers[depth].state_dict())
        x, final = one_layer(x)
        for ours, theirs in zip(final, state[depth * n :], strict=False):
            torch.testing.assert_close(ours.states[0], theirs.states[0])
        size = units * n
    torch.testing.assert_close(out, x)
    assert "4, (3, 6, 2), num_layers=3" in repr(whole)
    with pytest.raises(ShapeError, match=r"there are 2 layers .*, and 3 numbers were given"):
        make_layer("B", 4, [3, 6, 2], num_layers=2)
    with pytest.raises(ShapeError, match="hidden_size must be a whole number above 0; got 0"):
        make_layer("B", 4, [3, 0], num_layers=2)


def test_norm() -> None:
    layer = make_layer("B", skip="residual", norm="layer")
    plain = make_layer("B", skip="residual")
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "norm" not in k})
    x = inputs(5, 2, 4)
    norm = layer.layers[0].norm
    torch.testing.assert_close(layer(x)[0], norm(plain(x)[0]))

    made = make_layer("B", num_layers=2, norm=lambda size: nn.RMSNorm(size, dtype=torch.float64))
    assert isinstance(made.layers[1].norm, nn.RMSNorm) and made(x)[0].shape == (5, 2, 3)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_zoneout_keeps_states(backend: str) -> None:
    """In training a forget gate is 1 at random, exactly: the state stays, to the last bit. In evaluation nothing is."""
    torch.manual_seed(0)
    layer, x = zoo.layer("QRNN2-f", 4, 50, zoneout=0.3, dtype=torch.float64), inputs(40, 2, 4)
    with use_backend(backend):
        out, _ = layer(x)
        kept = out[1:] == out[:-1]
        assert 0.27 < kept.double().mean() < 0.33
        assert not (kept == kept[:, :1]).all() and not (kept == kept[..., :1]).all()  # per sequence, per unit
        assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), list(layer.parameters())))
        plain = zoo.layer("QRNN2-f", 4, 50, dtype=torch.float64)
        plain.load_state_dict(layer.state_dict())
        torch.testing.assert_close(layer.eval()(x)[0], plain(x)[0])
        for name in "BCF":  # whatever else they have, their new input is weighted 1 − f
            always, _ = zoo.layer(name, 4, 3, zoneout=1.0, dtype=torch.float64)(x)
            assert not always.any()
    assert "zoneout=0.3" in repr(layer)


def test_zoneout_needs_forget_gates() -> None:
    with pytest.raises(CellError, match=r"zoneout=0.1 opens forget gates.*minGRU has none"):
        zoo.layer("minGRU", 4, 3, zoneout=0.1)
    with pytest.raises(
        CellError, match=r"zoneout=0.1 opens.*the loop of minLSTM at q1 then has the weight 0\.\d+, not 1"
    ):
        zoo.layer("minLSTM", 4, 3, zoneout=0.1)
    bare = (
        Cell("X")
        .initial("q0")
        .loop("q0", one)
        .arc("q0", "q1", linear("u"))
        .loop("q1", linear("f"))
        .final("q1")
    )
    with pytest.raises(
        CellError, match=r"the loop of X at q1 then has the weight 1e\+04, not 1: a forget gate is"
    ):
        RationalRNN(bare, 4, 3, zoneout=0.1)
    RationalRNN(bare, 4, 3)
    learned = (
        Cell("Y")
        .initial("q0")
        .loop("q0", one)
        .arc("q0", "q1", linear("u"))
        .loop("q1", sigmoid(parameter("f")))
    )
    with pytest.raises(CellError, match=r"zoneout=0.1 opens forget gates, projections called f.* Y has none"):
        RationalRNN(learned.final("q1"), 4, 3, zoneout=0.1)
    with pytest.raises(ShapeError, match="zoneout is a probability"):
        zoo.layer("B", 4, 3, zoneout=2)


def test_variational_dropout() -> None:
    """One mask per sequence and call, the same at all steps; none in eval mode."""
    torch.manual_seed(0)
    # f ≈ 0 and u = x: the output shows what each step saw
    layer = RationalRNN(cell("B"), 50, 50, recurrent_dropout=0.4, dtype=torch.float64)
    with torch.no_grad():
        layer.layers[0].weight[:50] = 0
        layer.layers[0].weight[50:] = torch.eye(50)
        layer.layers[0].projection(0, "f").bias.fill_(-60)
    x = torch.full((4, 8, 50), 0.1, dtype=torch.float64)
    out, _ = layer(x)
    seen = (out.atanh() / 0.1).round(decimals=6)
    assert set(seen.unique().tolist()) == {0.0, round(1 / 0.6, 6)}
    assert (seen == seen[0]).all()  # over time
    assert 0.3 < (seen[0] == 0).double().mean() < 0.5
    assert len({tuple(row) for row in seen[0].tolist()}) == 8  # each sequence its own
    again, _ = layer(x)
    assert not torch.equal(out, again)
    layer.eval()
    torch.testing.assert_close(layer(x)[0], x.tanh())


def test_variational_dropout_reaches_remembered_inputs() -> None:
    """A window's older inputs are dropped by the mask of the call that reads them, and the history holds them whole."""
    layer = RationalRNN(windowed(), 4, 3, recurrent_dropout=1.0, dtype=torch.float64)
    other = RationalRNN(windowed(), 4, 3, dtype=torch.float64)
    other.load_state_dict(layer.state_dict())
    x = inputs(3, 2, 4)
    _, state = layer(x)
    torch.testing.assert_close(state[0].history, x[1:])
    torch.testing.assert_close(layer(x, state)[0], other(0 * x, other(0 * x)[1])[0])


def test_dropout_between_layers() -> None:
    torch.manual_seed(0)
    layer = make_layer("B", 4, 64, num_layers=2, dropout=0.5)
    seen: list[Tensor] = []
    layer.layers[1].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    layer.layers[0].register_forward_hook(lambda _, __, result: seen.append(result[0]))
    x = inputs(6, 8, 4)
    out, _ = layer(x)
    before, after = seen
    kept = after != 0
    assert 0.4 < kept.double().mean() < 0.6 and not torch.equal(kept[0], kept[1])
    torch.testing.assert_close(after[kept], 2 * before[kept])
    assert out.ne(0).all()  # the last layer's output is whole
    layer.eval()
    seen.clear()
    layer(x)
    torch.testing.assert_close(seen[0], seen[1])


def test_input_dropout() -> None:
    """Of the first layer's input alone, seen by all that reads it: here a skip connection."""
    torch.manual_seed(0)
    layer = RationalRNN(cell("B"), 50, 50, 2, input_dropout=0.3, skip="residual")
    seen: list[Tensor] = []
    for each in layer.layers:
        each.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    layer.layers[0].register_forward_hook(lambda _, __, result: seen.append(result[0]))
    layer(torch.ones(6, 8, 50))
    first, output, second = seen
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    assert abs(float((first == 0).float().mean()) - 0.3) < 0.03 and not torch.equal(first[0], first[1])
    assert torch.equal(second, output)


def test_one_layer_cannot_drop_between_layers() -> None:
    with pytest.warns(UserWarning, match="dropout acts between layers, so with one layer"):
        RationalRNN(cell("B"), 4, 3, dropout=0.5)


def test_without_biases() -> None:
    layer = make_layer("F", bias=False, skip="highway")
    names = [n for n, _ in layer.named_parameters()]
    assert names == ["layers.0.weight", *(f"layers.0.cells.0.parameter.{p}" for p in ("r", "p1", "p2"))]
    other = make_layer("F", skip="highway")
    for n, p in other.named_parameters():
        p.data = torch.zeros_like(p) if "bias" in n else layer.get_parameter(n).data
    x = inputs(5, 2, 4)
    torch.testing.assert_close(layer(x)[0], other(x)[0])


def test_initialisation() -> None:
    torch.manual_seed(0)
    layer = RationalRNN(cell("F"), 200, 100, num_layers=2, forget_bias=1.5)
    for depth, size in enumerate((200, 100)):
        weight, bound = layer.layers[depth].weight, math.sqrt(3 / size)
        assert weight.shape == (400, size) and weight.abs().max() <= bound
        assert weight.abs().max() > 0.99 * bound and abs(weight.mean()) < 0.01
        values = {n: p for n, p in layer.layers[depth].cells[0].named_parameters()}
        assert {n: set(p.tolist()) for n, p in values.items()} == {
            **{f"bias.{f}": {1.5} for f in ("f1", "f2")},
            **{f"parameter.{p}": {0.0} for p in ("r", "p1", "p2")},
        }
    before = layer.layers[0].weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.layers[0].weight, before)


def test_initialisation_of_windows() -> None:
    torch.manual_seed(0)
    layer = RationalRNN(windowed(), 100, 50).layers[0]
    for name, window in {"f": 3, "z": 2, "o": 1}.items():
        projection = layer.projection(0, name)
        assert projection.window == window
        for k in range(window):
            assert 0.98 < projection.weight(k).abs().max() / math.sqrt(3 / (100 * window)) <= 1
    assert layer.lagged["1"].shape == (100, 100) and layer.lagged["2"].shape == (50, 100)
    out = layer(torch.randn(30, 20, 100))[0]
    assert out.std() > 0.05


def test_gates_may_begin_open() -> None:
    layer = RationalRNN(zoo.get_cell("F+o"), 4, 3, num_layers=2, forget_bias=1.5, output_bias=4.0)
    for each in layer.layers:
        first = {n: set(p.tolist()) for n, p in each.cells[0].bias.named_parameters()}
        assert first == {"f1": {1.5}, "f2": {1.5}, "o": {4.0}}
    with pytest.raises(CellError, match=r"called o, o1, o2, … or output…, and F has none with a bias"):
        RationalRNN(zoo.get_cell("F"), 4, 3, output_bias=4.0)


def test_forget_bias_needs_a_forget_gate() -> None:
    plain = (
        Cell("plain")
        .initial("q0")
        .loop("q0", one)
        .arc("q0", "q1", linear("u"))
        .final("q1")
        .output(tanh("score"))
    )
    with pytest.raises(CellError, match="plain has none with a bias"):
        RationalRNN(plain, 4, 3, forget_bias=1.0)
    with pytest.raises(CellError, match="B has none with a bias"):
        RationalRNN(cell("B"), 4, 3, bias=False, forget_bias=1.0)


def test_repr() -> None:
    text = repr(
        RationalRNN([(cell("F"), 3), (cell("B-max-plus"), 2)], 4, num_layers=2, recurrent_dropout=0.1)
    )
    assert "4, 5, num_layers=2, recurrent_dropout=0.1\n" in text
    assert "3 × F: 4 states (2 stored), 7 arcs, real semiring\n" in text
    assert "2 × B_max_plus: 2 states (1 stored), 3 arcs, max-plus semiring\n" in text


def test_layers_by_name() -> None:
    layer = zoo.layer("F+o", 4, 3, num_layers=2)
    assert isinstance(layer, RationalRNN) and layer.cells == ((cell("F+o"), 3),)
    mixed = zoo.layer([("B", 2), (cell("C"), 3)], 4)
    assert mixed.hidden_size == 5 and [c.name for c, _ in mixed.cells] == ["B", "C"]


def test_parameters_may_be_called_anything() -> None:
    """One is called "training", as an attribute of every module is."""
    layer = make_layer("odd")
    assert not any(module.training for module in layer.eval().modules())
    assert all(module.training for module in layer.train().modules())
