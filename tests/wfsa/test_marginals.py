"""What goes through an arc, against the paths that take it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from random_machines import close, random_machine
from wfsa_strategies import machines_and_strings

from rrnn.errors import AutomatonError, SemiringError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.paths import paths


def by_paths(machine: WFSA, string: str, max_epsilon: int | None = None) -> list[list[float]]:
    ring = machine.semiring
    number = {arc[:3]: i for i, arc in enumerate(machine.arcs)}
    table = [[ring.zero] * machine.num_arcs for _ in range(len(string) + 1)]
    for path in paths(machine, string, max_epsilon):
        for arc, position in zip(path.arcs, path.positions, strict=True):
            a = number[arc[:3]]
            table[position][a] = ring.plus(table[position][a], path.weight)
    return table


@given(data=machines_and_strings(epsilon="acyclic", longest=4))
def test_mass_is_that_of_the_paths_through_the_arc(data: tuple[WFSA, list[str]]) -> None:
    machine, (string, *_) = data
    mass = machine.semiring.numbers(machine.arc_marginals(string))
    for row, wanted in zip(mass, by_paths(machine, string), strict=True):
        assert all(close(machine.semiring.name, a, b) for a, b in zip(row, wanted, strict=True))


@given(data=machines_and_strings(epsilon="cyclic", longest=2))
def test_round_a_cycle_every_use_counts(data: tuple[WFSA, list[str]]) -> None:
    machine, (string, *_) = data
    mass = machine.semiring.numbers(machine.arc_marginals(string))
    for row, wanted in zip(mass, by_paths(machine, string, max_epsilon=9), strict=True):
        assert all(close(machine.semiring.name, a, b) for a, b in zip(row, wanted, strict=True))


@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
def test_mass_is_weight_times_gradient(epsilon: str) -> None:
    machine = random_machine(3, "real", epsilon=epsilon)
    weight = machine.arc_weight.clone().requires_grad_()
    there = machine.replace(weight=weight)
    (gradient,) = torch.autograd.grad(there.score("abba"), weight)
    torch.testing.assert_close(machine.arc_marginals("abba").sum(0), machine.arc_weight * gradient)


def test_signed_mass_may_exceed_the_score() -> None:
    machine = WFSA(
        alphabet="a", arcs=[(0, "a", 1, 3.0), (0, "a", 2, -2.0)], initial={0: 1}, final={1: 1, 2: 1}
    )
    assert machine.score("a").item() == 1.0
    assert machine.arc_marginals("a").tolist() == [[3.0, -2.0], [0.0, 0.0]]
    with pytest.raises(SemiringError, match="not negative"):
        machine.arc_marginals("a", normalize=True)


@pytest.mark.parametrize("semiring", ["real", "log", "counting"])
def test_probabilities(semiring: str) -> None:
    machine = random_machine(1, "max-times", density=0.6, epsilon="acyclic")
    machine = machine.with_semiring("boolean" if semiring == "counting" else semiring).with_semiring(semiring)
    string = "abab"
    chances = machine.arc_marginals(string, normalize=True)
    consumes = machine.arc_symbol >= 0
    assert chances.dtype == torch.float64 and bool((chances >= 0).all())
    # At each position exactly one arc consumes the symbol.
    assert chances[:-1, consumes].sum(1).tolist() == pytest.approx([1.0] * 4)
    assert chances[-1, consumes].tolist() == [0.0] * int(consumes.sum())
    listed = list(paths(machine, string))
    real = machine.with_semiring("real")
    weights = [path.weight for path in paths(real, string)]
    number = {arc[:3]: i for i, arc in enumerate(machine.arcs)}
    wanted = torch.zeros_like(chances)
    for path, weight in zip(listed, weights, strict=True):
        for arc, position in zip(path.arcs, path.positions, strict=True):
            wanted[position, number[arc[:3]]] += weight / sum(weights)
    torch.testing.assert_close(chances, wanted)


def test_probabilities_of_a_string_whose_score_underflows() -> None:
    machine = random_machine(1, "max-times", density=0.6, epsilon="acyclic").with_semiring("real")
    tiny = machine.map_weights(lambda w: w * 2.0**-100)
    string = "abba" * 10
    assert tiny.score(string).item() == 0.0
    here, there = (m.arc_marginals(string, normalize=True).sum(1) for m in (tiny, tiny.with_semiring("log")))
    torch.testing.assert_close(here, there)
    assert here.isfinite().all()


@pytest.mark.parametrize("semiring", ["max-plus", "min-plus", "max-times", "boolean"])
def test_no_probabilities_where_nothing_is_added(semiring: str) -> None:
    with pytest.raises(SemiringError, match="real, log or counting"):
        random_machine(0, semiring).arc_marginals("a", normalize=True)


def test_no_probabilities_without_a_path() -> None:
    machine = WFSA("log", alphabet="ab", arcs=[(0, "a", 0, 0.0)], initial={0: 0.0}, final={0: 0.0})
    with pytest.raises(AutomatonError, match="need a string that some path derives; none derives 'b'"):
        machine.arc_marginals("b", normalize=True)


def test_of_a_best_path_semiring_the_best_through_the_arc() -> None:
    machine = WFSA(
        "max-plus",
        alphabet="a",
        arcs=[(0, "a", 0, -1.0), (0, "a", 1, -5.0), (0, EPSILON, 1, -2.0)],
        initial={0: 0.0},
        final={1: 0.0},
    )
    assert machine.arc_marginals("a").tolist() == [
        [-3.0, -5.0, -torch.inf],
        [-torch.inf, -torch.inf, -3.0],
    ]
    assert SEMIRINGS["max-plus"].zero == -torch.inf
