"""The position automaton: its weights are those of the definition, its scores those of the layer."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
import torch
from cell_language_strategies import expressions
from hypothesis import assume, given
from hypothesis import strategies as st
from layer_cases import CASES, inputs, make_layer, randomised
from runnable_cell_strategies import cells
from torch import nn

from rrnn import interpret, zoo
from rrnn.automata import Cell, evaluate, linear, one, parameter, sigmoid
from rrnn.backends import use_backend
from rrnn.errors import AutomatonError, ShapeError
from rrnn.interpret import read, scores
from rrnn.interpret.moves import moves_of
from rrnn.interpret.reading import Weights
from rrnn.nn import RationalRNN
from rrnn.semirings import SEMIRINGS, get_semiring
from rrnn.theory import scores as layer_scores
from rrnn.theory import to_wfsa
from rrnn.theory.unit_automata import score_program

WORDS = list("abcde")


@given(expressions(), st.integers(0, 99))
def test_tensors_evaluate_as_floats_do(expr: Any, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    names = ["u", "f", "output", "one", "input", "r", "states", "sigmoid"]
    leaves = {name: torch.randn(3, generator=g, dtype=torch.float64) for name in names}
    found = Weights(leaves, get_semiring("real"), leaves["u"])(expr).expand(3)
    for i in range(3):
        expected = evaluate(expr, {name: value[i].item() for name, value in leaves.items()}, "real")
        assert found[i].item() == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", sorted(CASES))
def test_scores_are_the_layer_s(name: str) -> None:
    layer, x = make_layer(name), inputs(5, 4, seed=9)
    expected = layer_scores(layer, x).detach()
    for steps in (1, 2, 5):
        torch.testing.assert_close(scores(read(layer, x[:steps], WORDS[:steps]))[0], expected[steps - 1])


@given(st.data())
def test_any_cell(data: st.DataObject) -> None:
    """Any semiring, ε-arcs in any shape (cycles with a star, limits, none after the last), zeros that prune."""
    semiring = data.draw(st.sampled_from(sorted(SEMIRINGS)))
    drawn = data.draw(cells(semiring))
    layer = randomised(RationalRNN(drawn, 2, 2, dtype=torch.float64), data.draw(st.integers(0, 9)))
    x = inputs(4, 2, seed=data.draw(st.integers(0, 9)))
    if drawn.semiring.components:
        words = dict(zip(WORDS, x, strict=False))
        expected = torch.stack(
            [to_wfsa(layer, unit, words).score(tuple(WORDS[:4])) for unit in range(2)]
        ).detach()
    else:
        with use_backend("reference"):  # nothing to compile
            expected = layer_scores(layer, x)[-1].detach()
    assume(not expected.isnan().any())
    torch.testing.assert_close(scores(read(layer, x, WORDS[:4]))[0], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["F", "windowed", "mixed", "max-plus-1"])
def test_a_batch_is_its_sentences(name: str) -> None:
    layer, x, lengths = make_layer(name), inputs(5, 3, 4, seed=2), [5, 2, 4]
    x[3:, 1] = torch.nan  # what stands behind the end is not looked at
    found = scores(read(layer, x, lengths=lengths))
    for b, n in enumerate(lengths):
        torch.testing.assert_close(found[b], scores(read(layer, x[:n, b]))[0])
    first = read(layer, x, [list("abcde"), list("ab"), list("abcd")])
    assert first.lengths == lengths
    swapped = make_layer(name, batch_first=True)
    torch.testing.assert_close(scores(read(swapped, x.transpose(0, 1), lengths=lengths)), found)


@pytest.mark.parametrize("layer", [0, 1])
def test_both_directions_of_deep_layers(layer: int) -> None:
    rnn = make_layer("F", num_layers=2, bidirectional=True, zoneout=0.5, skip="highway", norm="layer")
    x, lengths = inputs(5, 2, 4), [5, 3]
    for b, n in enumerate(lengths):
        seen = inputs(5, 2, 4)[:n, b : b + 1]
        if layer:
            rnn.eval()
            outputs = [rnn.layers[0](seen)[0], rnn.reverse_layers[0](seen.flip(0))[0].flip(0)]
            rnn.train()
            seen = torch.cat(outputs, -1)
        for backward, side in ((False, rnn.layers[layer]), (True, rnn.reverse_layers[layer])):
            programs = [score_program(program) for program in side.programs]
            with torch.no_grad():
                expected = side.eval().recur(seen.flip(0) if backward else seen, programs=programs)[0][-1, 0]
                side.train()
            reading = read(rnn, x, lengths=lengths, layer=layer, backward=backward)
            torch.testing.assert_close(scores(reading)[b], expected)
            assert rnn.training
            assert reading.tokens[b][0] == ("@1" if layer else "1")


def test_some_units() -> None:
    layer, x = make_layer("mixed"), inputs(5, 4)
    whole = read(layer, x, WORDS)
    some = whole.of_units([1, 4, 7])
    assert some.units == (1, 4, 7) and len(some.parts) == 3
    assert repr(some) == "<Reading of 1 sentences by layer 0: 1 × B, 1 × SRU, 1 × B_max_plus>"
    torch.testing.assert_close(scores(some), scores(whole)[:, [1, 4, 7]])


@pytest.mark.parametrize("name", ["F", "windowed"])
@pytest.mark.parametrize("shape", [(0, 2, 4), (3, 0, 4), (0, 4)])
def test_nothing_to_read(name: str, shape: tuple[int, ...]) -> None:
    """Sentences without words, and batches without sentences: no function stumbles."""
    reading = read(make_layer(name, batch_first=False), torch.zeros(shape, dtype=torch.float64))
    batch = len(reading.tokens)
    assert scores(reading).shape == (batch, 3)
    assert len(interpret.k_best(reading, 2)) == 3 * batch
    assert interpret.decompose(reading, pairs=True).by_token.shape == (shape[0], batch, 3)
    assert interpret.leave_one_out(reading).without.shape == (shape[0], batch, 3)
    assert interpret.arc_masses(reading)[0].mass.shape[0] == shape[0] + 1
    found = interpret.phrases(reading)
    assert [each.unit for each in found] == [0, 1, 2] and not any(each.positive for each in found)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["F", "windowed", "B-max-plus"])
def test_weights_that_ran_away_are_none_in_json(name: str, value: float) -> None:
    layer = make_layer(name)
    with torch.no_grad():
        layer.layers[0].get_parameter("weight")[0] = value
    reading = read(layer, inputs(4, 4), WORDS[:4])
    found = [*interpret.k_best(reading, 2), *interpret.phrases(reading), interpret.leave_one_out(reading)]
    if name != "B-max-plus":
        head = lambda h: h[-1]  # noqa: E731
        found += [interpret.decompose(reading), interpret.logit_contributions(reading, head)]
    assert "null" in json.dumps([each.to_json() for each in found], allow_nan=False)


def test_moves_of_the_paper_s_f() -> None:
    moves = moves_of(zoo.get_cell("F"))
    assert moves.states == ("q0", "q1", "q2")  # q3 is entered by ε alone
    found = {(m.source, "ε" * len(m.bridge.arcs), m.target, m.enters) for m in moves.moves}
    assert found == {
        ("q0", "", "q0", False),
        ("q0", "", "q1", True),
        ("q1", "", "q1", False),
        ("q1", "", "q2", True),
        ("q0", "ε", "q2", True),
        ("q2", "", "q2", False),
    }
    assert moves.most_entries == 2


def test_an_arc_of_one_consumes_nothing() -> None:
    """SoPa's pattern may begin anew at each word; what opens it takes no notice of the word before."""
    moves = moves_of(zoo.get_cell("SoPa3")).moves
    kinds = {(m.source, m.target): m.consumes for m in moves if m.bridge.silent}
    assert not kinds["start", "q0"] and kinds["q0", "q1"] and not kinds["q1", "q1"] and kinds["q2", "end"]


def test_too_many_ways_over_epsilon() -> None:
    dense = Cell("dense").initial("q0").loop("q0", one)
    for i in range(20):
        for j in range(i + 1, 20):
            dense = dense.epsilon(f"q{i}", f"q{j}", sigmoid(parameter("r")))
    dense = dense.arc("q19", "q20", linear("u")).final("q20")
    with pytest.raises(AutomatonError, match="more than 20,000 ways to take ε-arcs"):
        moves_of(dense)


X = inputs(5, 4)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: read(nn.LSTM(4, 4), X),
            AutomatonError,
            "got LSTM. It is not rational over real, log, max-plus",
        ),
        (lambda: read(nn.Linear(4, 4), X), AutomatonError, "got Linear. Pass the layer itself"),
        (lambda: read(make_layer("F"), X[:, :2]), ShapeError, "vectors of a sentence, (time, 4), or a batch"),
        (lambda: read(make_layer("F"), X, "abcde"), ShapeError, "got a string. Split it into words"),
        (lambda: read(make_layer("F"), X.unsqueeze(1), ["a"]), ShapeError, "got a string"),
        (
            lambda: read(make_layer("F"), X, WORDS[:3]),
            ShapeError,
            "expected 1 sentences of 5 words, one for each vector; got sentences of [3]",
        ),
        (
            lambda: read(make_layer("F"), X[:, None], [WORDS] * 2),
            ShapeError,
            "expected 1 sentences of up to 5 words",
        ),
        (lambda: read(make_layer("F"), X, WORDS, lengths=[4]), ShapeError, "lengths is [4], but"),
        (lambda: read(make_layer("F"), X, layer=1), ShapeError, "layer must be a number from 0 to 0; got 1"),
        (lambda: read(make_layer("F"), X, backward=True), ShapeError, "has no backward direction"),
        (lambda: read(make_layer("F"), X).of_units([3]), ShapeError, "numbers from 0 to 2; got 3"),
        (lambda: read(make_layer("F"), X).of_units([]), ShapeError, "numbers from 0 to 2; got none"),
        (lambda: read(make_layer("F"), X).of_units(1), ShapeError, "got 1. Write [1]."),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_named(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()
