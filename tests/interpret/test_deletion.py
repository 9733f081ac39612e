"""Leave-one-out from tables equals recomputing every shortened sentence."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from layer_cases import CASES, inputs, make_layer, randomised
from runnable_cell_strategies import cells
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.interpret import leave_one_out, read, scores
from rrnn.nn import RationalRNN
from rrnn.theory import scores as layer_scores
from rrnn.zoo import layer as zoo_layer


def shortened(x: Tensor, i: int) -> Tensor:
    return torch.cat([x[:i], x[i + 1 :]])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*sorted(CASES), "QRNN4-ifo", "SoPa3"])
def test_it_is_recomputing(name: str) -> None:
    layer = make_layer(name) if name in CASES else randomised(zoo_layer(name, 4, 3, dtype=torch.float64))
    x = inputs(6, 4, seed=1)
    found = leave_one_out(read(layer, x))
    torch.testing.assert_close(found.score[0], layer_scores(layer, x)[-1].detach())
    for i in range(6):
        torch.testing.assert_close(found.without[i, 0], layer_scores(layer, shortened(x, i))[-1].detach())
    expected = torch.where(found.score == found.without, 0.0, found.score - found.without)
    torch.testing.assert_close(found.effect, expected)


@given(st.data())
def test_any_cell(data: st.DataObject) -> None:
    cell = data.draw(cells(data.draw(st.sampled_from(["real", "log", "max-plus", "min-plus", "max-times"]))))
    layer = randomised(RationalRNN(cell, 2, 2, dtype=torch.float64), data.draw(st.integers(0, 9)))
    x = inputs(4, 2, seed=data.draw(st.integers(0, 9)))
    found = leave_one_out(read(layer, x))
    assume(not found.score.isnan().any())
    for i in range(4):
        expected = scores(read(layer, shortened(x, i)))
        torch.testing.assert_close(found.without[i], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["F", "windowed", "mixed"])
def test_batches_directions_and_some_units(name: str, backward: bool) -> None:
    """Sentences shorter than a window, too."""
    rnn, x, lengths = make_layer(name, bidirectional=True), inputs(5, 4, 4), [5, 1, 2, 4]
    reading = read(rnn, x, lengths=lengths, backward=backward).of_units([0, 2])
    found = leave_one_out(reading)
    for b, n in enumerate(lengths):
        for i in range(n):
            alone = read(rnn, shortened(x[:n, b], i), backward=backward).of_units([0, 2])
            torch.testing.assert_close(found.without[i, b], scores(alone)[0])
        assert (found.effect[n:, b] == 0).all()


def test_cost_grows_with_the_length_not_its_square() -> None:
    """The tables are walked once: twice the tokens, about twice the moves taken."""
    layer = make_layer("F")
    taken = []
    for steps in (20, 40):
        with torch.profiler.profile() as profile:
            leave_one_out(read(layer, inputs(steps, 4)))
        taken.append(sum(event.count for event in profile.key_averages() if event.key == "aten::mul"))
    assert taken[1] < 2.2 * taken[0]


def test_a_token_without_which_nothing_is_found_either_has_no_effect() -> None:
    """A pattern of three words in two: −∞ with each token and without it."""
    layer = randomised(zoo_layer("SoPa3", 4, 3, self_loops=False, epsilon=False, dtype=torch.float64))
    found = leave_one_out(read(layer, inputs(2, 4)))
    assert found.score.isinf().all() and (found.effect == 0).all()


def test_json() -> None:
    layer = make_layer("B-max-plus")
    found = leave_one_out(read(layer, inputs(1, 4), ["a"]))  # nothing is left: −∞
    assert found.without.isinf().all()
    (sentence,) = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert sentence["units"][0]["without"] == [None] and sentence["tokens"] == ["a"]


def test_deeper_layers_read_no_tokens() -> None:
    reading = read(make_layer("F", num_layers=2), inputs(3, 4), layer=1)
    with pytest.raises(AutomatonError, match="layer 1 reads states that depend on a token at many positions"):
        leave_one_out(reading)
