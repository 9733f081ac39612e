"""Recurrences over an arithmetic: on floats they are what the layers compute, and intervals contain them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rrnn import theory, zoo
from rrnn.errors import AutomatonError, ShapeError
from rrnn.theory.intervals import Intervals, excludes_zero
from rrnn.theory.recurrences import recurrence_of

STRING = (0, 1, 1, 0, 0, 1, 0)
QUICK = ("F", "QRNN2", "SoPa4", "RG-LRU", "SCRN", "RCNN2-state", "SRU-v2", "LSTM", "GRU", "RNN")
NUMBERS = [name for name in zoo.MODELS if name not in zoo.CELLS or not zoo.get_cell(name).semiring.components]
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NUMBERS]


def layer_of(name: str) -> tuple[Any, dict[int, Any]]:
    """Return a random layer of three units in float64 and the vectors of two symbols."""
    g = torch.Generator().manual_seed(3)
    switched = name == "ISAN"
    layer = zoo.layer(name, 2 if switched else 3, 3, dtype=torch.float64)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    vectors = torch.randn(2, 3, generator=g, dtype=torch.float64)
    return layer, {i: i if switched else vectors[i] for i in range(2)}


def states_of(name: str, layer: Any, vectors: dict[int, Any], string: tuple[int, ...]) -> torch.Tensor:
    """Return the states of all units after a string, as torch computes them."""
    if name == "ISAN":
        return theory.scores(layer, torch.tensor(string))[-1]
    x = torch.stack([vectors[a] for a in string])
    if zoo.MODELS[name].rational:
        return theory.scores(layer, x)[-1]
    out, state = layer(x)
    match name:
        case "LSTM":
            return state[1][0]
        case "SRU-v2" | "RCNN2-state":
            return state[0][-1]
        case "SCRN":
            return state.hidden
    return out[-1]


@pytest.mark.parametrize("name", NAMES)
def test_recurrences_are_those_of_the_layers(name: str) -> None:
    layer, vectors = layer_of(name)
    with torch.no_grad():
        expected = states_of(name, layer, vectors, STRING)
    for unit in (0, 2):
        ours = recurrence_of(layer, unit, vectors)
        exact = Intervals(200)
        sure = recurrence_of(layer, unit, vectors, exact, exact.number)
        state, known = ours.start(), sure.start()
        for symbol in STRING:
            state, known = ours.step(state, symbol), sure.step(known, symbol)
        assert ours.value(state) == pytest.approx(expected[unit].item(), rel=1e-12, abs=1e-14)
        interval = sure.value(known)
        assert (
            not excludes_zero(interval - exact.number(ours.value(state)))
            or abs(float((interval - exact.number(ours.value(state))).mid)) < 1e-10
        )
        assert float(interval.delta) < 1e-50


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NUMBERS if zoo.MODELS[name].rational])
def test_the_empty_string_scores_as_in_the_automaton(name: str) -> None:
    layer, vectors = layer_of(name)
    ours = recurrence_of(layer, 1, vectors)
    machine = theory.to_wfsa(layer, 1, vectors)
    assert ours.value(ours.start()) == pytest.approx(float(machine.score(())), abs=1e-15)


def test_other_things_are_refused() -> None:
    with pytest.raises(AutomatonError, match="expected a layer of the zoo"):
        recurrence_of(torch.nn.Linear(2, 2), 0, {})
    with pytest.raises(ShapeError, match="unit must be a number from 0 to 2; got 7"):
        recurrence_of(zoo.layer("LSTM", 3, 3), 7, {})
