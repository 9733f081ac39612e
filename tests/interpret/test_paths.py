"""Paths: all of them are those of the unit's WFSA, and the strongest come first."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from interpret_twins import WORDS, as_enumerated, enumerated, listed
from layer_cases import CASES, inputs, make_layer, randomised
from runnable_cell_strategies import cells

from rrnn import zoo
from rrnn.automata import Cell, linear, one, parameter, sigmoid
from rrnn.backends import use_backend
from rrnn.errors import AutomatonError
from rrnn.interpret import best_paths, k_best, read, scores
from rrnn.nn import RationalRNN
from rrnn.semirings import SEMIRINGS, Semiring, get_semiring
from rrnn.theory import scores as layer_scores


def same(ring: Semiring, found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    """Paths that underflow on one side only are let go."""
    nothing = 0.0 if not ring.components else ring.zero
    for arcs in {*found, *expected}:
        assert found.get(arcs, nothing) == pytest.approx(expected.get(arcs, nothing), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", sorted(CASES))
def test_all_paths_are_those_of_the_wfsa(name: str) -> None:
    layer, x = make_layer(name), inputs(3, 4, seed=3)
    reading = read(layer, x, list(WORDS[:3]))
    for unit in range(layer.hidden_size):
        ring = next(part.ring for part in reading.parts if unit in part.units)
        same(ring, as_enumerated(reading, unit), enumerated(layer, unit, x))


@given(st.data())
def test_any_cell(data: st.DataObject) -> None:
    semiring = data.draw(st.sampled_from(sorted(SEMIRINGS)))
    kind = data.draw(st.sampled_from(["none", "acyclic", "limited"]))
    cell = data.draw(cells(semiring, states=4, epsilon=kind))
    layer = randomised(RationalRNN(cell, 2, 1, dtype=torch.float64), data.draw(st.integers(0, 9)))
    x = inputs(3, 2, seed=data.draw(st.integers(0, 9)))
    expected = enumerated(layer, 0, x)
    assume(len(expected) <= 300)
    reading = read(layer, x, list(WORDS[:3]))
    ring = get_semiring(semiring)
    same(ring, as_enumerated(reading, 0), expected)

    # the first of them are the k best, and say how much they cover
    paths = listed(reading, 0)
    (few,) = k_best(reading, 3)
    ranks = sorted((ring.rank(path.weight) for path in paths), reverse=True)
    assert [ring.rank(path.weight) for path in few.paths] == pytest.approx(ranks[:3])
    if (ring.cancels or semiring == "log") and paths:
        size = ring.magnitude if ring.cancels else math.exp
        some, sizes = ([size(path.weight) for path in listed_] for listed_ in (few.paths, paths))
        assert few.covered == pytest.approx(sum(some) / sum(sizes))


@given(st.data())
def test_the_best_path_is_the_score_where_plus_selects(data: st.DataObject) -> None:
    semiring = data.draw(st.sampled_from(["max-plus", "min-plus", "max-times"]))
    layer = randomised(
        RationalRNN(data.draw(cells(semiring)), 2, 2, dtype=torch.float64), data.draw(st.integers(0, 9))
    )
    x = inputs(5, 2, seed=data.draw(st.integers(0, 9)))
    with use_backend("reference"):  # nothing to compile
        expected = layer_scores(layer, x)[-1].tolist()
    for found in best_paths(read(layer, x, list(WORDS[:5]))):
        score, zero = expected[found.unit], get_semiring(semiring).zero
        assert found.covered is None and found.score == pytest.approx(score, rel=1e-7, abs=1e-9)
        if score == zero:
            assert not found.paths
        else:
            assert found.paths[0].weight == pytest.approx(score, rel=1e-7, abs=1e-9)


def bigram() -> tuple[RationalRNN, torch.Tensor]:
    """F with one unit that knows three words, each a direction of its input: "not" opens, "good" closes."""
    layer = RationalRNN(zoo.get_cell("F"), 3, 1, dtype=torch.float64)
    with torch.no_grad():
        for p in layer.parameters():
            p.zero_()
        layer.layers[0].projection(0, "u1").weight()[0, 0] = -4.0
        layer.layers[0].projection(0, "u2").weight()[0, 2] = 3.0
    return layer, torch.eye(3, dtype=torch.float64)


def test_what_a_path_says() -> None:
    layer, x = bigram()
    (found,) = k_best(read(layer, x, ["not", "very", "good"]), 9)
    pair, alone, opened = (
        sorted(found.paths, key=lambda path: path.weight)[0],
        *sorted(found.paths, key=lambda path: -path.weight)[:1],
        sorted(found.paths, key=lambda path: path.weight)[1],
    )
    # u¹ = −2, u² = 1.5, gates ½: −2·½·1.5·½ (ρ) and r·1.5·½, −2·½·½·½
    assert pair.weight == pytest.approx(-0.75) and pair.text == "not [very] good"
    assert [step.kind for step in pair.steps] == ["consumed", "skipped", "consumed"]
    assert pair.states == ("q0", "q1", "q1", "q2") and pair.consumed == ("not", "good")
    assert alone.weight == pytest.approx(0.375) and alone.text == "ε good"
    assert [step.kind for step in alone.steps] == ["skipped", "skipped", "bridged", "consumed"]
    assert opened.weight == pytest.approx(-0.25) and opened.text == "not"
    assert found.score == pytest.approx(-0.75 + 0.375 - 0.25) and found.covered == pytest.approx(1.0)
    json.dumps(found.to_json(), allow_nan=False)


def test_of_equal_paths_the_one_that_entered_first_comes_first() -> None:
    """Self-loops before arcs, as a recurrence has them: the gates are open, and all words weigh the same."""
    layer = zoo.layer("B-max-plus", 4, 1)
    with torch.no_grad():
        for number in layer.parameters():
            number.zero_()
        layer.layers[0].get_parameter("cells.0.bias.f").fill_(1e3)
    reading = read(layer, torch.zeros(3, 4), ["a", "b", "c"])
    assert [path.text for path in k_best(reading, 3)[0].paths] == ["a", "b", "c"]
    assert best_paths(reading)[0].paths[0].text == "a"


@pytest.mark.parametrize("name", ["F", "real-1", "max-plus-1"])
def test_a_batch_is_its_sentences_in_both_directions(name: str) -> None:
    rnn, x, lengths = make_layer(name, bidirectional=True), inputs(4, 3, 4), [4, 1, 3]
    words = [list(WORDS[:n]) for n in lengths]
    for backward in (False, True):
        found = k_best(read(rnn, x, words, backward=backward), 5)
        for b, n in enumerate(lengths):
            alone = k_best(read(rnn, x[:n, b], words[b], backward=backward), 5)
            mine = [each for each in found if each.sentence == b]
            assert [each.unit for each in mine] == [0, 1, 2]
            for a, c in zip(mine, alone, strict=True):
                assert [p.text for p in a.paths] == [p.text for p in c.paths]
                assert [p.weight for p in a.paths] == pytest.approx([p.weight for p in c.paths])
    last_first = k_best(read(rnn, x[:, 0], words[0], backward=True), 50)[0]
    for path in last_first.paths:
        places = [step.position for step in path.steps if step.position is not None]
        assert places == [3, 2, 1, 0]
        letters = [c for c in path.text if c.isalpha() and c != "ε"]
        assert letters == sorted(letters)  # text is in the sentence's order


def test_a_cycle_of_epsilon_is_one_bridge_over_the_reals() -> None:
    cell = Cell("cycle").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).final("q2")
    cell = (
        cell.epsilon("q1", "q2", sigmoid(parameter("r")))
        .epsilon("q2", "q1", sigmoid(parameter("s")))
        .loop("q2", 0.5)
    )
    layer, x = randomised(RationalRNN(cell, 2, 1, dtype=torch.float64)), inputs(3, 2)
    reading = read(layer, x, list("abc"))
    paths = listed(reading, 0)
    assert sum(path.weight for path in paths) == pytest.approx(scores(reading).item())
    assert any(step.token == "ε*" for path in paths for step in path.steps)


@pytest.mark.parametrize("k", [0, -1, 1.5, True])
def test_k_is_a_number_of_paths(k: Any) -> None:
    layer, x = bigram()
    with pytest.raises(AutomatonError, match="the number of paths k must be"):
        k_best(read(layer, x), k)
