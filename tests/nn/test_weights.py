"""A layer's weights by name: views of its parameters, which are packed."""

from __future__ import annotations

import pytest
import torch
from layer_cases import CASES, inputs, make_layer, randomised, windowed

from rrnn.automata import Cell, family, linear, one, parameter
from rrnn.backends import use_backend
from rrnn.errors import CellError
from rrnn.nn import RationalLayer, RationalRNN


def first(rnn: RationalRNN) -> RationalLayer:
    layer = rnn.layers[0]
    assert isinstance(layer, RationalLayer)
    return layer


@pytest.mark.parametrize("input_size", [3, 8])
@pytest.mark.parametrize("name", CASES)
def test_every_parameter_has_one_name(name: str, input_size: int) -> None:
    """Numbering all elements through the names numbers every element of every parameter once."""
    layer = first(make_layer(name, input_size, skip="highway"))
    named = [layer.projection(c, n) for c, p in enumerate(layer.programs) for n in p.projections]
    named += [own for n in ("input", "skip", "gate") if (own := layer.own_projection(n)) is not None]
    views = [p.weight(k) for p in named for k in range(p.window)] + [
        p.bias for p in named if p.bias is not None
    ]
    views += [value for c in range(len(layer.widths)) for value in layer.parameters_of(c).values()]
    total = 0
    with torch.no_grad():
        for view in views:
            view.copy_(torch.arange(total, total + view.numel(), dtype=view.dtype).view_as(view))
            total += view.numel()
    found = torch.cat([p.detach().flatten() for p in layer.parameters()])
    assert sorted(found.tolist()) == list(range(total))


def test_rows_lie_as_the_state_dict_says() -> None:
    """f, z and o in this order; in the matrix of a lag only those whose windows reach so far."""
    layer = first(make_layer("windowed"))
    state = layer.state_dict()
    f, z, o = (layer.projection(0, name) for name in "fzo")
    assert torch.equal(torch.cat([p.weight() for p in (f, z, o)]), state["weight"][:9])
    assert torch.equal(torch.cat([f.weight(1), z.weight(1)]), state["lagged.1"])
    assert torch.equal(f.weight(2), state["lagged.2"])
    assert f.bias is not None and torch.equal(f.bias, state["cells.0.bias.f"])
    assert z.bias is None


def test_units_of_a_mixed_layer() -> None:
    layer = first(make_layer("mixed"))
    assert layer.widths == (3, 2, 1, 2)
    places = [layer.locate(unit) for unit in range(layer.hidden_size)]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (3, 0), (3, 1)]
    with pytest.raises(IndexError):
        layer.locate(8)


@pytest.mark.parametrize("input_size", [4, 8])
def test_values_of_leaves(input_size: int) -> None:
    layer = first(make_layer("mixed", input_size))
    x, history = inputs(5, 2, input_size), inputs(2, 2, input_size, seed=1)
    both, values = torch.cat([history, x]), layer.leaf_values(x, history)
    for c, program in enumerate(layer.programs):
        expected = layer.parameters_of(c)
        for name in program.projections:
            p = layer.projection(c, name)
            expected[name] = sum(both[2 - k : 7 - k] @ p.weight(k).T for k in range(p.window))
            expected[name] = expected[name] + (0 if p.bias is None else p.bias)
        if program.uses_input:
            own, units = layer.own_projection("input"), slice(3, 5)
            assert (own is None) == (input_size == layer.hidden_size)
            expected["input"] = (x if own is None else x @ own.weight().T)[..., units]
        torch.testing.assert_close(values[c], expected)
    zeros = layer.leaf_values(x, torch.zeros_like(history))
    torch.testing.assert_close(layer.leaf_values(x), zeros)


@pytest.mark.parametrize("per", ["unit", "head"])
def test_values_of_leaves_of_families(per: str) -> None:
    """They are those of `numbers_of`, for pairs of states, too, whose source's index comes first."""
    h, g = family("h", 3), family("g", 2)
    matrix, other = (f("m" + f.__name__, over=(h.source, g.target), per=per) for f in (parameter, linear))
    cell = Cell("x").initial("q0").loop("q0", one).arc("q0", h, linear("u", over=h, per="group"))
    cell = cell.mix(h, g, matrix * other).loop(g, parameter("f", over=g)).read(g)
    layer = first(randomised(RationalRNN(cell, 5, 4, heads=2, groups=2, dtype=torch.float64)))
    x = inputs(3, 2, 5)
    (values,) = layer.leaf_values(x)
    for unit in range(4):
        rows, parameters = layer.numbers_of(0, unit)
        assert set(values) == {*rows, *parameters}
        for name, (projection, row) in rows.items():
            torch.testing.assert_close(
                values[name][..., unit], x @ layer.projection(0, projection).weight()[row]
            )
        for name, value in parameters.items():
            torch.testing.assert_close(values[name][unit], value)


def test_biases_are_added_in_the_wanted_precision() -> None:
    layer = first(make_layer("B", dtype=torch.bfloat16))
    x = inputs(5, 2, 4, dtype=torch.bfloat16)
    (values,) = layer.leaf_values(x, dtype=torch.float64)
    product, f = x @ layer.projection(0, "f").weight().T, layer.projection(0, "f")
    assert f.bias is not None and values["f"].dtype == torch.float64
    torch.testing.assert_close(values["f"], product.double() + f.bias.double(), rtol=0, atol=0)


def test_without_biases() -> None:
    layer = first(make_layer("windowed", bias=False, skip="highway"))
    gate = layer.own_projection("gate")
    assert gate is not None and gate.bias is None and layer.projection(0, "f").bias is None


def test_unknown_projections() -> None:
    layer = first(RationalRNN(windowed(), 4, 3))
    with pytest.raises(CellError, match="the projections of windowed in a layer are f, z, o; got 'r'"):
        layer.projection(0, "r")
    assert layer.own_projection("gate") is None
    assert layer.projection(-1, "z").weight(1).shape == (3, 4)


@pytest.mark.parametrize("backend", ["reference", "native"])
def test_a_matrix_without_rows_has_an_empty_gradient(backend: str) -> None:
    """S4D reads the input itself: it has no projections."""
    rnn, x = RationalRNN("S4D:states=2", 4, 4), inputs(5, 2, 4).float()
    with use_backend(backend):
        rnn(x)[0].sum().backward()
        weight = first(rnn).weight
        assert weight.shape == (0, 4) and weight.grad is not None and weight.grad.shape == (0, 4)
        weight.grad = None
        rnn(x)[1][0].states[0].sum().backward()
        assert weight.grad is not None
