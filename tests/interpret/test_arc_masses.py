"""Arc masses are the WFSA's arc marginals, position by position."""

from __future__ import annotations

import pytest
import torch
from interpret_twins import WORDS, listed
from layer_cases import inputs, make_layer

from rrnn.automata import Cell, linear, one
from rrnn.errors import AutomatonError, SemiringError
from rrnn.interpret import arc_masses, read
from rrnn.nn import RationalRNN
from rrnn.theory import to_wfsa
from rrnn.wfsa import EPSILON


@pytest.mark.parametrize("name", ["B", "C", "F", "ngram4", "real-1", "log-1", "max-plus-1", "min-plus-1"])
def test_they_are_the_wfsa_s_marginals(name: str) -> None:
    layer, x = make_layer(name), inputs(4, 4, seed=3)
    (found,) = arc_masses(read(layer, x, list(WORDS[:4])))
    keys = [(arc.source, arc.epsilon, arc.target) for arc in found.arcs]
    assert len(set(keys)) == len(keys)
    for unit in range(3):
        machine = to_wfsa(layer, unit, dict(zip(WORDS, x, strict=False)))
        expected = torch.full_like(found.mass[:, :, 0, unit], machine.semiring.zero)
        marginals = machine.arc_marginals(WORDS[:4])
        for number, arc in enumerate(machine.arcs):
            column = keys.index((arc.source, arc.symbol is EPSILON, arc.target))
            expected[:, column] = machine.semiring.t_plus(expected[:, column], marginals[:, number])
        torch.testing.assert_close(found.mass[:, :, 0, unit], expected)
        assert found.score[0, unit].item() == pytest.approx(float(machine.score(WORDS[:4])))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["F", "windowed"])
def test_batches_and_directions(name: str, backward: bool) -> None:
    rnn, x, lengths = make_layer(name, bidirectional=True), inputs(4, 2, 4), [4, 2]
    (found,) = arc_masses(read(rnn, x, lengths=lengths, backward=backward))
    for b, n in enumerate(lengths):
        reading = read(rnn, x[:n, b], backward=backward)
        expected = torch.zeros(5, len(found.arcs), dtype=torch.float64)
        for path in listed(reading, 1):
            done = 0
            for step in path.steps:
                kind = (step.source, step.target, step.position is None)
                column = [(a.source, a.target, a.epsilon) for a in found.arcs].index(kind)
                expected[done if step.position is None else step.position, column] += path.weight
                done += step.position is not None
        torch.testing.assert_close(found.mass[:, :, b, 1], expected)


def test_probabilities_only_where_weights_cannot_cancel() -> None:
    (found,) = arc_masses(read(make_layer("log-1"), inputs(4, 4)))
    consuming = [i for i, arc in enumerate(found.arcs) if not arc.epsilon]
    torch.testing.assert_close(
        found.posterior[:4, consuming].sum(1), torch.ones(4, 1, 3, dtype=torch.float64)
    )
    for name in ("F", "max-plus-1"):
        (found,) = arc_masses(read(make_layer(name), inputs(4, 4)))
        with pytest.raises(SemiringError, match="are no probabilities"):
            _ = found.posterior


def test_a_cycle_of_epsilon_is_not_told_apart() -> None:
    cell = Cell("cycle").initial("q0").loop("q0", one).arc("q0", "q1", linear("u")).final("q1")
    layer = RationalRNN(cell.epsilon("q1", "q1", 0.5), 4, 1, dtype=torch.float64)
    with pytest.raises(AutomatonError, match=r"form a cycle.*limit_epsilon"):
        arc_masses(read(layer, inputs(2, 4)))
