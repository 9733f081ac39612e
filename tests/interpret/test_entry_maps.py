"""Entry maps: path by path for every prefix, against tables of the trellis, and adding up to the layer's own scores."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from interpret_twins import WORDS, entries, listed
from layer_cases import inputs, make_layer, randomised
from runnable_cell_strategies import cells
from torch import Tensor

from rrnn import zoo
from rrnn.automata import Cell
from rrnn.errors import ShapeError
from rrnn.interpret import Reading, decompose, entry_map, read
from rrnn.interpret import entry_maps as module
from rrnn.nn import RationalRNN
from rrnn.semirings import Semiring
from rrnn.theory import scores as layer_scores
from rrnn.zoo import wide

WIDE: dict[str, tuple[Callable[[], Cell], dict[str, int]]] = {
    "GLA": (lambda: wide.gla(3), {"heads": 2}),
    "linear attention": (lambda: wide.linear_attention(2), {"heads": 2}),
    "RetNet": (lambda: wide.retnet(2), {"heads": 2}),
    "HGRN2": (lambda: wide.hgrn2(3), {"heads": 4}),
    "Mamba": (lambda: wide.mamba(3), {}),
    "Mamba-2": (lambda: wide.mamba2(2), {"heads": 4, "groups": 2}),
    "S4D": (lambda: wide.s4d(2), {}),
    "LRU": (wide.lru, {}),
    "Mamba-3": (lambda: wide.mamba3(2), {"heads": 2}),
    "RWKV-6": (lambda: wide.rwkv6(2), {"heads": 2}),
    "DeltaNet": (lambda: wide.delta_net(2), {"heads": 2}),
    "ISAN": (lambda: wide.isan(4), {}),
    "linear Elman": (lambda: wide.linear_elman(4), {}),
}
THIN = ["B", "C", "F", "SRU", "ngram4", "log-1", "B-max-plus", "windowed", "memoryless", "odd"]


def layer_of(name: str, dtype: torch.dtype = torch.float64, **options: Any) -> RationalRNN:
    """A layer with random weights: of a wide cell with four units in heads, or of a thin cell."""
    if name not in WIDE:
        return make_layer(name, dtype=dtype, **options)
    make, heads = WIDE[name]
    return randomised(RationalRNN(make(), 4, 4, dtype=dtype, **heads, **options), 5)


def ring_of(reading: Reading) -> Semiring:
    return reading.parts[0].ring


def by_hand(layer: RationalRNN, x: Tensor, unit: int) -> tuple[Tensor, Tensor]:
    """(masses (T, T, …), constants (T, …)), from all paths of all prefixes."""
    first = read(layer, x[:1])
    ring, n = ring_of(first), len(x)
    mass, constant = ring.zeros(n, n), ring.zeros(n)
    for t in range(n):
        for path in listed(read(layer, x[: t + 1], list(WORDS[: t + 1])), unit):
            weight, places = ring.tensor(path.weight, torch.float64), entries(path)
            if places:
                mass[t, min(places)] = ring.t_plus(mass[t, min(places)], weight)
            else:
                constant[t] = ring.t_plus(constant[t], weight)
    return mass, constant


@pytest.mark.parametrize("name", [*THIN, *WIDE])
def test_masses_are_sums_over_paths(name: str) -> None:
    layer, x = layer_of(name), inputs(4, 4, seed=3)
    found = entry_map(read(layer, x, list(WORDS[:4])))
    for unit in range(0, layer.hidden_size, 2):
        mass, constant = by_hand(layer, x, unit)
        torch.testing.assert_close(found.mass[:, :, 0, unit], mass, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.constant[:, 0, unit], constant, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", ["B", "F", "SRU", "log-1", "B-max-plus", *WIDE])
def test_rows_add_up_to_the_layer_s_scores(name: str, dtype: torch.dtype, error: float) -> None:
    layer, x = layer_of(name, dtype), inputs(30, 4, seed=1).to(dtype)
    reading = read(layer, x)
    found, ring = entry_map(reading), ring_of(reading)
    total = ring.t_plus(ring.t_sum(found.mass, 1), found.constant)[:, 0]
    expected = layer_scores(layer, x).detach().double()
    size = expected.abs().max().item()
    assert (total - expected).abs().max().item() < error * max(1.0, size)
    assert (found.score[:, 0] - expected).abs().max().item() < error * max(1.0, size)


def by_tables(reading: Reading) -> Tensor:
    """The masses of a reading's last row, (T, B, D), from the tables of its trellis."""
    pairs = decompose(reading, pairs=True).by_pair
    assert pairs is not None
    return ring_of(reading).t_sum(pairs, 1)


@given(st.data())
def test_any_cell(data: st.DataObject) -> None:
    cell = data.draw(cells(data.draw(st.sampled_from(["real", "log"])), states=4))
    layer = randomised(RationalRNN(cell, 2, 2, dtype=torch.float64), data.draw(st.integers(0, 9)))
    x = inputs(4, 2, seed=data.draw(st.integers(0, 9)))
    assume(len(read(layer, x).parts[0].moves.moves) <= 200)
    found = entry_map(read(layer, x))
    for t in range(4):
        twin = by_tables(read(layer, x[: t + 1]))
        torch.testing.assert_close(found.mass[t, : t + 1], twin, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["F", "windowed", "GLA", "RetNet", "B-max-plus"])
def test_a_batch_is_its_sentences(name: str, backward: bool) -> None:
    rnn, x, lengths = layer_of(name, bidirectional=True), inputs(5, 3, 4), [5, 1, 3]
    reading = read(rnn, x, lengths=lengths, backward=backward)
    found, zero = entry_map(reading), ring_of(reading).zeros()
    for b, n in enumerate(lengths):
        alone = entry_map(read(rnn, x[:n, b], backward=backward))
        torch.testing.assert_close(found.mass[:n, :n, b], alone.mass[:, :, 0])
        torch.testing.assert_close(found.score[:n, b], alone.score[:, 0])
        assert (found.mass[n:, :, b] == zero).all() and (found.mass[:, n:, b] == zero).all()
    if backward:  # rows are positions, and what was read before a position comes after it
        n, zeros = 5, ring_of(reading).is_zero(found.mass)
        assert all(zeros[t, s, 0].all() for t in range(n) for s in range(t))
        turned = entry_map(read(rnn, x[:, 0], backward=True)).mass
        again = read(reversed_layer(rnn), x[:, 0].flip(0))
        torch.testing.assert_close(turned.flip(0, 1), entry_map(again).mass)


def reversed_layer(rnn: RationalRNN) -> RationalRNN:
    """A layer of one direction that computes what the backward direction of another does."""
    (cells,), heads = [rnn.cells], {"heads": rnn.heads, "groups": rnn.groups}
    alone = RationalRNN(list(cells), rnn.input_size, dtype=torch.float64, **heads)  # type: ignore[arg-type]
    alone.layers[0].load_state_dict(rnn.reverse_layers[0].state_dict())
    return alone


def test_a_read_out_is_no_entry() -> None:
    """What GLA reads at the last token belongs to the tokens at which its paths came in."""
    layer, x = layer_of("GLA"), inputs(5, 4)
    reading = read(layer, x)
    torch.testing.assert_close(decompose(reading).by_token, entry_map(reading).mass[-1])
    assert not decompose(reading).constant.any()


def test_shares() -> None:
    x = inputs(5, 4)
    for name in ("F", "GLA", "RetNet", "memoryless"):
        found = entry_map(read(layer_of(name), x))
        sizes = found.share.abs().sum(1)
        assert (sizes <= 1 + 1e-12).all() and (name == "memoryless" or (sizes > 1 - 1e-12).all())
    mass = entry_map(read(layer_of("RetNet"), x)).mass[..., 0]
    share = entry_map(read(layer_of("RetNet"), x)).share
    torch.testing.assert_close(share, mass / mass.abs().sum(1, keepdim=True))  # the real part, which is read
    log = entry_map(read(layer_of("log-1"), x))
    whole = log.share.sum(1) + (log.constant - log.score).exp()
    torch.testing.assert_close(whole, torch.ones_like(whole))
    best = entry_map(read(layer_of("B-max-plus"), x)).share
    assert ((best >= 0) & (best <= 1)).all() and (best.amax(1) == 1).all()


def test_some_units_are_read_as_all_are() -> None:
    for name in ("F", "GLA", "mixed"):
        layer, x = layer_of(name), inputs(4, 4)
        some, whole = read(layer, x, units=[0, 3] if name != "F" else [0, 2]), read(layer, x)
        assert some.units == whole.of_units(some.units).units
        for part, other in zip(some.parts, whole.of_units(some.units).parts, strict=True):
            torch.testing.assert_close(part.weights, other.weights)
    with pytest.raises(ShapeError, match="the units of this layer have numbers from 0 to 2; got 7"):
        read(layer_of("F"), inputs(4, 4), units=[7])


def test_results_as_json_and_rows() -> None:
    words = list(WORDS[:3])
    found = entry_map(read(layer_of("F"), inputs(3, 4), words))
    (sentence,) = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert sentence["tokens"] == words and len(sentence["units"]) == 3
    unit = sentence["units"][1]
    assert sum(unit["mass"][2]) + unit["constant"][2] == pytest.approx(unit["score"][2])
    assert math.isclose(sum(map(abs, found.rows(1)[2])), 1) and found.rows(1)[0][1:] == [0, 0]
    for call, message in (
        (lambda: found.rows(3), "unit must be"),
        (lambda: found.rows(0, 1), "sentence must"),
    ):
        with pytest.raises(ShapeError, match=message):
            call()


def test_a_map_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NUMBERS", 100)
    with pytest.raises(ShapeError, match=r"75 in all|Read fewer units|the limit is 100"):
        entry_map(read(layer_of("F"), inputs(6, 4)))


@pytest.mark.slow
def test_many_states_take_few_operations() -> None:
    """64 states, 300 tokens: as fast as a loop over tokens allows, where one path at a time would take hours."""
    layer, x = zoo.layer("GLA", 64, 64, heads=4), inputs(300, 64).float()
    reading = read(layer, x, units=[0, 20])
    found = entry_map(reading)
    torch.testing.assert_close(found.mass[-1], by_tables(reading), rtol=1e-8, atol=1e-12)
