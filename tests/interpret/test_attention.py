"""Attention maps: weight times value is the mass, weights are those of the papers, and values are found in any cell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from interpret.test_entry_maps import layer_of
from layer_cases import inputs, make_layer, randomised
from torch import Tensor

from rrnn import zoo
from rrnn.automata import Cell, exp, input, linear, one, parameter, sigmoid, tanh
from rrnn.errors import AutomatonError
from rrnn.interpret import attention_map, entry_map, read
from rrnn.interpret.attention import shared_head, values_of
from rrnn.interpret.moves import moves_of
from rrnn.nn import RationalRNN
from rrnn.zoo import wide

VALUES = {
    "B": ("u",),
    "SRU": ("x",),
    "GLA": ("v",),
    "linear-attention": ("v",),
    "RetNet": ("v",),
    "HGRN2": ("v",),
    "Mamba": ("input",),
    "Mamba-2": ("input",),
    "S4D": ("input",),
}


@pytest.mark.parametrize("name", VALUES)
def test_the_value_is_found_in_the_cell(name: str) -> None:
    assert values_of(moves_of(zoo.get_cell(name))) == VALUES[name]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    "name", ["B", "SRU", "GLA", "linear attention", "RetNet", "HGRN2", "Mamba", "Mamba-2", "S4D"]
)
def test_weight_times_value_is_the_mass(name: str, backward: bool) -> None:
    rnn, x, lengths = layer_of(name, bidirectional=True), inputs(5, 2, 4), [5, 3]
    reading = read(rnn, x, lengths=lengths, backward=backward)
    found, whole = attention_map(reading), entry_map(reading)
    for d, unit in enumerate(reading.units):
        torch.testing.assert_close(found.mass(unit), whole.mass[:, :, :, d], rtol=1e-10, atol=1e-14)
    shared = name not in ("B", "SRU", "Mamba", "S4D")
    assert set(found.shared) == {shared}
    assert len(found.heads) == (rnn.heads if shared else rnn.hidden_size)
    assert sorted(unit for head in found.heads for unit in head) == list(range(rnn.hidden_size))
    sizes = found.share.abs().sum(1)[:3]
    torch.testing.assert_close(sizes, torch.ones_like(sizes))


def masked(weights: Tensor) -> Tensor:
    return weights.tril()


def test_linear_attention_and_gla_are_their_papers() -> None:
    """φ(q_t)·φ(k_s) for one, q_t·(∏α ⊙ k_s) for the other, from the projections of the layer itself."""
    x = inputs(6, 4)
    for name in ("linear attention", "GLA"):
        layer = layer_of(name)
        found = attention_map(read(layer, x))
        first: Any = layer.layers[0]
        values = first.leaf_values(x.unsqueeze(1))[0]
        n = 2 if name == "linear attention" else 3
        k, q = (
            torch.stack([values[f"{c}_{i}"][:, 0] for i in range(n)], -1).detach() for c in "kq"
        )  # (T, D, N)
        if name == "GLA":
            gates = torch.stack([values[f"alpha_{i}"][:, 0] for i in range(n)], -1).detach()
            decay = (torch.nn.functional.logsigmoid(gates) / 16).cumsum(0)
            q, k = q * n**-0.5 * decay.exp(), k / decay.exp()
        else:
            q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
        for h, units in enumerate(found.heads):
            expected = masked(q[:, units[0]] @ k[:, units[0]].T)
            torch.testing.assert_close(found.weight[:, :, 0, h], expected)


def test_gates_make_a_moving_average_of_b() -> None:
    """(1 − f_s)·∏f: never negative, and with what is left of the start they add up to one."""
    found = attention_map(read(make_layer("B"), inputs(6, 4)))
    assert (found.weight >= 0).all()
    assert (found.weight.sum(1) <= 1 + 1e-12).all()


def test_some_units_of_a_head() -> None:
    reading = read(layer_of("GLA"), inputs(5, 4))
    whole, some = attention_map(reading), attention_map(reading.of_units([1, 2]))
    assert some.heads == ((1,), (2,)) and whole.heads == ((0, 1), (2, 3))
    torch.testing.assert_close(some.weight, whole.weight)
    assert whole.head_of(3) == 1 and some.rows(0) == whole.rows(0)
    assert (
        shared_head(reading, 2) == (1, (2, 3)) and shared_head(read(make_layer("F"), inputs(5, 4)), 0) is None
    )


def test_a_layer_of_several_cells() -> None:
    cells = [(wide.gla(2), 4), (wide.mamba(2), 4)]
    layer = randomised(RationalRNN(cells, 4, dtype=torch.float64, heads=2))
    reading = read(layer, inputs(5, 4))
    found, whole = attention_map(reading), entry_map(reading)
    assert found.shared == (True, True, False, False, False, False) and found.heads[1] == (2, 3)
    for unit in range(8):
        torch.testing.assert_close(found.mass(unit), whole.mass[:, :, :, unit])


def entering(weight: Any, loop: Any = 0.5) -> Cell:
    return Cell("some").initial("q0").loop("q0", one).arc("q0", "q1", weight).loop("q1", loop).final("q1")


@pytest.mark.parametrize(
    "cell",
    [
        entering(tanh(linear("u"))),  # no multiple of the value
        entering(linear("u") + 1),
        entering(linear("u") * linear("u")),
        entering(linear("u"), sigmoid(linear("u"))),  # the loop depends on it, too
        entering(parameter("r")),  # no input
        zoo.get_cell("F"),  # two entries with a value each
        zoo.get_cell("B-max-plus"),
    ],
)
def test_where_weight_and_value_cannot_be_told_apart(cell: Cell) -> None:
    layer = RationalRNN(cell, 4, 4, dtype=torch.float64)
    with pytest.raises(AutomatonError, match=r"the weights with which paths enter \w+ over .* Use entry_map"):
        attention_map(read(layer, inputs(3, 4)))


def test_a_product_of_values_is_a_value() -> None:
    cell = entering(-(exp(linear("k")) * linear("u") * input()) / 2)
    layer = randomised(RationalRNN(cell, 3, 3, dtype=torch.float64))
    reading = read(layer, inputs(4, 3))
    found = attention_map(reading)
    assert values_of(reading.parts[0].moves) == ("u", "input")
    torch.testing.assert_close(found.mass(1), entry_map(reading).mass[..., 1])
