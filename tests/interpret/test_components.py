"""Readings over complex numbers, whose weights have two components: all that adds paths up holds for them, too."""

from __future__ import annotations

import json

import pytest
import torch
from interpret_twins import WORDS, entries, listed
from layer_cases import inputs, randomised

from rrnn import interpret
from rrnn.automata import Cell, linear, one, parameter, polar, score, sigmoid, tanh
from rrnn.errors import AutomatonError, SemiringError
from rrnn.interpret import Reading, read, scores
from rrnn.nn import RationalRNN


def pole() -> Cell:
    """F's bigrams with poles that have a frequency, and a weight for a missing first word."""
    forget = polar(sigmoid(linear("f", bias=True)), parameter("theta"))
    cell = (
        Cell("pole", "complex").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).loop("q1", forget)
    )
    cell = cell.arc("q1", "q2", polar(tanh(linear("v")), linear("w"))).loop("q2", forget).final("q2")
    return cell.epsilon("q0", "q1", sigmoid(parameter("r"))).output(score.re)


def reading() -> Reading:
    layer = randomised(RationalRNN(pole(), 2, 2, dtype=torch.float64))
    return read(layer, inputs(4, 2, 2), [list(WORDS[:n]) for n in (4, 2)])


def total(paths: list[interpret.TokenPath]) -> complex:
    return sum((complex(*path.weight) for path in paths), 0j)


def as_complex(elements: torch.Tensor) -> complex:
    return complex(*elements.tolist())


def test_paths_add_up_to_the_score() -> None:
    whole = reading()
    assert scores(whole).shape == (2, 2, 2)
    for found in interpret.k_best(whole, 100):
        assert total(list(found.paths)) == pytest.approx(complex(*found.score))
        sizes = [abs(complex(*path.weight)) for path in found.paths]
        assert sizes == sorted(sizes, reverse=True) and found.covered == pytest.approx(1.0)
        json.dumps(found.to_json(), allow_nan=False)
    few, every = interpret.k_best(whole, 2)[0], interpret.k_best(whole, 100)[0]
    sizes = [abs(complex(*path.weight)) for path in every.paths]
    assert few.covered == pytest.approx(sum(sizes[:2]) / sum(sizes))


def test_masses() -> None:
    whole = reading()
    (found,) = interpret.arc_masses(whole)
    paths = listed(whole, 1)
    for number, arc in enumerate(found.arcs):
        for t in range(5):
            through = [
                path
                for path in paths
                for i, step in enumerate(path.steps)
                if (step.source, step.target, step.position is None) == (arc.source, arc.target, arc.epsilon)
                and sum(s.position is not None for s in path.steps[:i]) == t
            ]
            assert as_complex(found.mass[t, number, 0, 1]) == pytest.approx(total(through))
    with pytest.raises(SemiringError, match="paths can cancel"):
        _ = found.posterior


def test_terms_add_up_to_the_score() -> None:
    found = interpret.decompose(reading(), pairs=True)
    assert found.by_pair is not None
    for parts in (found.by_token.sum(0), found.by_pair.sum((0, 1))):
        torch.testing.assert_close(parts + found.constant, found.score)
    paths = listed(reading(), 0)
    first = [path for path in paths if entries(path)[:1] == [1] and entries(path)[-1:] == [2]]
    assert as_complex(found.by_pair[1, 2, 0, 0]) == pytest.approx(total(first))
    terms = found.terms(0)
    sizes = [abs(complex(*term.weight)) for term in terms]
    assert sizes == sorted(sizes, reverse=True)
    json.dumps(found.to_json(), allow_nan=False)


def test_without_a_token() -> None:
    whole = reading()
    found = interpret.leave_one_out(whole)
    layer, x = whole.layer, inputs(4, 2, 2)
    assert layer.window == 1
    rnn = randomised(RationalRNN(pole(), 2, 2, dtype=torch.float64))
    shorter = scores(read(rnn, x[[0, 2, 3], 0]))
    torch.testing.assert_close(found.without[1, 0], shorter[0])
    json.dumps(found.to_json(), allow_nan=False)


def test_what_needs_single_numbers_says_so() -> None:
    with pytest.raises(SemiringError, match="single numbers, positive or negative; over complex"):
        interpret.phrases(reading())
    with pytest.raises(AutomatonError, match="need scores that add up"):
        interpret.logit_contributions(reading(), lambda h: h[-1])
    mixed = RationalRNN(
        [(pole(), 2), (Cell("plain").initial("q0").loop("q0", linear("u")).final("q0"), 1)], 2
    )
    with pytest.raises(
        AutomatonError,
        match=r"over complex, real, whose weights have different numbers of components.*one cell's units at a time",
    ):
        scores(read(mixed, inputs(3, 2, dtype=torch.float32)))


def test_the_old_name_of_a_path() -> None:
    with pytest.warns(DeprecationWarning, match="is now rrnn.interpret.TokenPath"):
        assert interpret.Path is interpret.TokenPath
    with pytest.raises(AttributeError, match="has no attribute 'Paths'"):
        _ = interpret.Paths
