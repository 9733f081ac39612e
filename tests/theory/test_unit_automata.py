"""Layers read as automata: a unit's WFSA scores every prefix as the unit does."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from cell_calls import cell
from hypothesis import given
from hypothesis import strategies as st
from layer_cases import CASES, inputs, make_layer
from torch import nn

from rrnn import zoo
from rrnn.automata import Cell, linear, one, parameter, score, sigmoid, tanh
from rrnn.errors import AutomatonError, ShapeError
from rrnn.nn import RationalRNN
from rrnn.theory import scores, to_wfsa
from rrnn.zoo.mixing import ISAN, LinearElman

VECTORS = inputs(3, 4, seed=9)
STRING = (0, 2, 1, 1, 0)


@pytest.mark.parametrize("name", sorted(CASES))
def test_units_are_automata(name: str) -> None:
    layer = make_layer(name)
    found = scores(layer, VECTORS[list(STRING)])
    semirings = [cell.semiring_name for cell, width in layer.cells for _ in range(width)]
    for unit in range(layer.hidden_size):
        machine = to_wfsa(layer, unit, VECTORS)
        assert machine.semiring.name == semirings[unit]
        torch.testing.assert_close(found[:, unit].detach(), machine.prefix_scores(STRING)[1:])


def test_arcs_of_no_path() -> None:
    """q2 leads nowhere: the layer has no numbers for the arc to it."""
    cell = Cell("dead").initial("q0").loop("q0", one).arc("q0", "q1", linear("u"))
    cell = cell.loop("q1", sigmoid(linear("f", bias=True)))
    cell = cell.arc("q0", "q2", linear("g") * sigmoid(parameter("r"))).final("q1").output(tanh(score))
    layer, x = RationalRNN(cell, 3, 4, dtype=torch.float64), inputs(5, 3)
    machine = to_wfsa(layer.eval(), 2, x)
    torch.testing.assert_close(scores(layer, x)[:, 2].detach(), machine.prefix_scores(range(5))[1:])


def test_units_of_mixed_layers_are_counted_through() -> None:
    """Biases fixed at zero, symbols with names, an input() of its own unit where sizes agree."""
    cells = [(cell(name), 2) for name in ("B", "SRU", "B-max-plus")]
    layer = RationalRNN(cells, 6, bias=False, dtype=torch.float64)
    vectors = dict(zip("abc", inputs(3, 6, seed=4), strict=True))
    found = scores(layer, torch.stack([vectors[a] for a in "abca"]).unsqueeze(1).expand(-1, 2, -1))
    assert found.shape == (4, 2, 6)
    for unit in range(6):
        machine = to_wfsa(layer, unit, vectors)
        torch.testing.assert_close(found[:, 1, unit].detach(), machine.prefix_scores("abca")[1:])


# ---- windows: states for histories ----------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("symbols", [1, 2, 3])
def test_a_qrnn_has_two_states_a_history(window: int, symbols: int) -> None:
    """2·(n + n² + … + nᴷ⁻¹) + 1 states; without a window B's two."""
    layer, vectors = qrnn(window), inputs(symbols, 4)
    machine = to_wfsa(layer, 1, vectors)
    histories = sum(symbols**length for length in range(1, window))
    assert machine.num_states == (2 * histories + 1 if window > 1 else 2)
    assert len(machine.initial) == 1 and len(machine.final) == max(histories, 1)


def qrnn(window: int) -> RationalRNN:
    layer = zoo.layer("QRNN2", 4, 2, window=window, dtype=torch.float64)
    torch.manual_seed(window)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_()
    return layer


def test_the_first_symbol_counts() -> None:
    """c₁ = u₁: the arcs of the empty history, which the paper's text leaves out."""
    layer, vectors = qrnn(2), dict(zip("ab", inputs(2, 4), strict=True))
    machine = to_wfsa(layer, 0, vectors)
    (start,) = machine.initial
    weights = {(arc.symbol, arc.target): arc.weight for arc in machine.arcs if arc.source == start}
    assert start == ("q0", ()) and weights["a", ("q0", ("a",))] == 1
    first = scores(layer, torch.stack([vectors["a"]]))[0, 0].item()
    assert weights["a", ("q1", ("a",))] == pytest.approx(first) and first != 0


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(0, 2), max_size=9), st.integers(0, 99))
def test_windows_of_any_length(window: int, symbols: int, string: list[int], seed: int) -> None:
    layer, vectors = qrnn(window), inputs(symbols, 4, seed=seed)
    string = [a % symbols for a in string]
    machine = to_wfsa(layer, 0, vectors)
    found = scores(layer, vectors[string])[:, 0].detach()
    torch.testing.assert_close(machine.prefix_scores(tuple(string))[1:], found)


def test_only_the_weights_need_histories() -> None:
    """What the output alone sees does not make the automaton larger."""
    layer = make_layer("windowed")  # f sees three inputs
    assert to_wfsa(layer, 0, VECTORS).num_states == 2 * (3 + 9) + 1
    reading = zoo.get_cell("B").output(sigmoid(linear("o", window=3)) * score)
    assert to_wfsa(RationalRNN(reading, 4, 2), 0, VECTORS).num_states == 2


# ---- units that mix -------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.text("abc", max_size=9))
def test_isan_has_2d_states(units: int, string: str) -> None:
    torch.manual_seed(units)
    layer = ISAN(3, units, dtype=torch.float64)
    found = scores(layer, torch.tensor(["abc".index(a) for a in string], dtype=torch.int64)).detach()
    for unit in range(units):
        machine = to_wfsa(layer, unit, "abc")
        assert machine.num_states == 2 * units
        assert list(machine.initial) == [f"q{i}" for i in range(units + 1, 2 * units + 1)]  # the second half
        assert machine.final == {f"q{unit + 1}": 1}
        torch.testing.assert_close(machine.prefix_scores(string)[1:], found[:, unit])


def test_isan_symbols_by_number_and_some_of_them() -> None:
    layer = ISAN(3, 2, batch_first=True, dtype=torch.float64)
    found = scores(layer, torch.tensor([[0, 2, 2]]).T)[:, 0, 1].detach()
    torch.testing.assert_close(to_wfsa(layer, 1).prefix_scores((0, 2, 2))[1:], found)
    machine = to_wfsa(layer, 1, {"z": 2, "x": 0})
    assert machine.alphabet == ("z", "x")
    torch.testing.assert_close(machine.prefix_scores("xzz")[1:], found)


@pytest.mark.parametrize("bias", [False, True])
def test_linear_elman(bias: bool) -> None:
    layer = LinearElman(4, 3, bias=bias, dtype=torch.float64)
    found = scores(layer, VECTORS[list(STRING)]).detach()
    for unit in range(3):
        machine = to_wfsa(layer, unit, VECTORS)
        torch.testing.assert_close(machine.prefix_scores(STRING)[1:], found[:, unit])
        assert machine.score_by_paths(STRING) == pytest.approx(found[-1, unit].item())


# ---- what has no automaton ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, model in zoo.MODELS.items() if model.open])
def test_open_models_say_why(name: str) -> None:
    with pytest.raises(
        AutomatonError, match=r"has no automaton. It is not rational over real, log"
    ) as caught:
        to_wfsa(zoo.layer(name, 4, 4), 0, VECTORS)
    assert zoo.MODELS[name].open in str(caught.value)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_torch_s_own_layers_are_open(kind: Any) -> None:
    with pytest.raises(AutomatonError, match=f"{kind.__name__} has no automaton.*Proposition 1.*hypothesi"):
        to_wfsa(kind(4, 4), 0, VECTORS)


def test_the_proof_does_not_cover_relu() -> None:
    with pytest.raises(AutomatonError, match=r"RNN has no automaton. It is not shown to be rational"):
        to_wfsa(nn.RNN(4, 4, nonlinearity="relu"), 0, VECTORS)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: to_wfsa(make_layer("F"), 3, VECTORS),
            ShapeError,
            "unit must be a number from 0 to 2; got 3",
        ),
        (
            lambda: to_wfsa(make_layer("F"), 0, VECTORS[:, :2]),
            ShapeError,
            "the vector of 0 must have shape (4,); got (2,)",
        ),
        (
            lambda: to_wfsa(make_layer("F"), 0, {"a": [1.0]}),
            ShapeError,
            "the vector of 'a' must have shape (4,); got list",
        ),
        (
            lambda: to_wfsa(make_layer("F"), 0, {}),
            ShapeError,
            "an alphabet has at least one symbol; this one is empty. Pass {symbol: vector, …}",
        ),
        (
            lambda: to_wfsa(make_layer("F", num_layers=2), 0, VECTORS, layer=1),
            AutomatonError,
            "layer 1 reads the hidden states below it, real vectors that depend on the whole string so far",
        ),
        (
            lambda: to_wfsa(make_layer("windowed"), 0, inputs(41, 4)),
            AutomatonError,
            "41 symbols and a window of 3 need about 211,929 arcs, but at most 200,000 are allowed. Pass fewer",
        ),
        (
            lambda: to_wfsa(make_layer("F"), 0),
            ShapeError,
            "alphabet is missing: pass a mapping from symbol to input",
        ),
        (lambda: to_wfsa(ISAN(3, 2), 2), ShapeError, "unit must be a number from 0 to 1; got 2"),
        (
            lambda: to_wfsa(ISAN(3, 2), 0, VECTORS),
            ShapeError,
            "names of its 3 symbols, or a mapping from name",
        ),
        (
            lambda: to_wfsa(ISAN(3, 2), 0, "ab"),
            ShapeError,
            "names of its 3 symbols, or a mapping from name to ",
        ),
        (
            lambda: to_wfsa(ISAN(3, 2), 0, {"a": 3}),
            ShapeError,
            "symbols are numbered from 0 to 2; 'a' has 3",
        ),
        (lambda: to_wfsa(LinearElman(4, 2), 0), ShapeError, "alphabet is missing"),
        (
            lambda: to_wfsa(nn.Linear(4, 4), 0, VECTORS),
            AutomatonError,
            "expected a RationalRNN, an ISAN or a LinearElman layer; got Linear",
        ),
        (lambda: scores(nn.LSTM(4, 4), VECTORS), AutomatonError, "LSTM has no automaton"),
        (
            lambda: scores(make_layer("F"), VECTORS[0]),
            ShapeError,
            "expected input with 4 features, (time, features) or (time, batch, features); got shape (4,)",
        ),
    ],
)
def test_mistakes_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()
