"""Projections of low rank: a layer whose matrix is a product computes what a layer with the whole matrix does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from layer_cases import inputs, randomised, slow_layer, windowed

from rrnn import RationalRNN, theory
from rrnn.errors import CellError, ShapeError

CASES: dict[str, tuple[Any, dict[str, int], dict[str, Any]]] = {
    "first": ("Mamba:states=3", {"delta": 2}, {}),
    "middle": ("SRU", {"f": 1}, {"skip": "highway"}),
    "last": ("GLA:states=3", {"alpha": 2, "q": 3}, {"heads": 2}),
    "both directions": ("F", {"f1": 2, "u2": 1}, {"bidirectional": True, "num_layers": 2}),
    "beside a window": (windowed(), {"o": 2}, {}),
    "side by side": ([("B", 2), ("SRU", 4)], {"f": 2}, {"zoneout": 0.5}),
}


def pair(name: str) -> tuple[RationalRNN, RationalRNN]:
    """Return a layer with projections of low rank, and one with whole matrices that computes the same."""
    cell, ranks, options = CASES[name]
    units = None if isinstance(cell, list) else 6
    low = randomised(RationalRNN(cell, 4, units, low_rank=ranks, dtype=torch.float64, **options))
    full = RationalRNN(cell, 4, units, dtype=torch.float64, **options)
    named = {k: v for k, v in low.state_dict().items() if ".low_rank." not in k}
    for key in [k for k in named if k.endswith(".weight")]:
        named[key] = low.get_submodule(key.removesuffix(".weight")).matrix().detach()
    full.load_state_dict(named)
    return low.eval(), full.eval()


@pytest.mark.parametrize("name", CASES)
def test_low_rank_equals_the_product(name: str) -> None:
    low, full = pair(name)
    x = inputs(7, 3, 4).requires_grad_()
    lengths = [7, 0, 4]
    (out, state), (expected, last) = low(x, lengths=lengths), full(x, lengths=lengths)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(state, last)
    (got,), (wanted,) = (torch.autograd.grad(y.square().sum(), [x]) for y in (out, expected))
    torch.testing.assert_close(got, wanted)
    assert sum(p.numel() for p in low.layers[0].parameters()) != sum(
        p.numel() for p in full.layers[0].parameters()
    )


def test_the_definition() -> None:
    """The output is that of Python floats, unit by unit, with W = U V."""
    low, _ = pair("middle")
    layer, x = low.layers[0], inputs(5, 4)
    layer.skip = None
    torch.testing.assert_close(layer(x.unsqueeze(1))[0].squeeze(1), slow_layer(layer, x))


def test_weights_by_name() -> None:
    low, _ = pair("middle")
    layer = low.layers[0]
    f = layer.projection(0, "f")
    assert f.left is not None and f.left.shape == (6, 1) and f.right().shape == (1, 4)
    torch.testing.assert_close(f.weight(), f.left @ f.right())
    torch.testing.assert_close(layer.matrix()[f.rows.start : f.rows.stop], f.weight())
    assert layer.projection(0, "x").weight().data_ptr() == layer.weight[1].data_ptr()
    assert {"layers.0.weight", "layers.0.cells.0.low_rank.f"} <= low.state_dict().keys()
    with torch.no_grad():
        f.left.zero_()
    assert not layer.leaf_values(inputs(2, 1, 4))[0]["f"].sub(f.bias).any()


def test_streaming_copies_and_gradients() -> None:
    low, _ = pair("first")
    x = inputs(6, 2, 4)
    out, state = low(x[:3])
    steps = [low.step(x[t], state) for t in (3,)]
    torch.testing.assert_close(torch.cat([out, steps[0][0][None]]), low(x[:4])[0])
    torch.testing.assert_close(copy.deepcopy(low)(x)[0], low(x)[0])
    low(x)[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in low.parameters())


def test_first_values_give_unit_variance() -> None:
    torch.manual_seed(0)
    layer = RationalRNN("B", 300, 400, low_rank={"f": 64}).layers[0]
    deviation = layer.projection(0, "f").weight().detach().mul(300**0.5).std()
    assert abs(deviation - 1) < 0.1


def test_wfsa_of_a_unit() -> None:
    low, full = pair("last")
    vectors = dict(zip("abc", inputs(3, 4), strict=True))
    for unit in (0, 5):
        word = "abca"
        machines = [theory.to_wfsa(rnn, unit, vectors) for rnn in (low, full)]
        assert machines[0].score(word) == pytest.approx(machines[1].score(word))


@pytest.mark.parametrize(
    "ranks, message",
    [
        ({"g": 2}, "low_rank names projections"),
        ({"z": 2}, "has a window of 2"),
        ({"o": 0}, "rank of o must be a whole number above 0"),
        ([("o", 2)], "is a table"),
        ({"o": 5}, r"that of o is 6 × 4; got the rank 5\. Use at most 4, or leave o out"),
    ],
)
def test_errors(ranks: Any, message: str) -> None:
    with pytest.raises((CellError, ShapeError), match=message):
        RationalRNN(windowed(), 4, 6, low_rank=ranks)
