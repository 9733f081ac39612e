"""The sum over all strings, against the strings."""

from __future__ import annotations

import math

import pytest
import torch
from random_machines import all_strings, random_machine

from rrnn.errors import AutomatonError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA


def sub_stochastic(seed: int, epsilon: str = "cyclic") -> WFSA:
    """Non-negative weights, less than a third leaving each state: 3⁻ⁿ bounds what strings of length n add."""
    machine = random_machine(seed, "max-times", density=0.5, epsilon=epsilon).with_semiring("real")
    leaving = torch.zeros(machine.num_states, dtype=torch.float64).index_add(
        0, machine.arc_source, machine.arc_weight
    )
    weight = machine.arc_weight / (3 * leaving.clamp_min(1e-9))[machine.arc_source]
    return machine.replace(weight=weight)


@pytest.mark.parametrize("semiring", ["real", "log", "max-plus", "min-plus", "max-times", "boolean"])
@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
def test_total_is_the_sum_over_strings(semiring: str, epsilon: str) -> None:
    for seed in range(4):
        machine = sub_stochastic(seed, epsilon).with_semiring(semiring)
        strings: list[object] = list(all_strings("ab", 9))
        wanted = machine.semiring.t_sum(machine.score(strings), 0)
        torch.testing.assert_close(machine.total_weight(), wanted, rtol=1e-3, atol=1e-12)


def test_geometric_series() -> None:
    machine = WFSA(alphabet="ab", arcs=[(0, "a", 0, 0.5), (0, "b", 0, 0.25)], initial={0: 1}, final={0: 1})
    assert machine.total_weight().item() == pytest.approx(4.0, rel=1e-14)
    assert machine.with_semiring("log").total_weight().item() == pytest.approx(math.log(4.0))
    assert machine.with_semiring("max-plus").total_weight().item() == 0.0
    signed = WFSA(alphabet="a", arcs=[(0, "a", 0, -0.5)], initial={0: 1}, final={0: 1})
    assert signed.total_weight().item() == pytest.approx(1 / 1.5)


def test_counting_paths_of_a_machine_without_cycles() -> None:
    arcs = [(i, a, i + 1, 1) for i in range(10) for a in "ab"] + [(i, EPSILON, i + 1, 1) for i in range(10)]
    machine = WFSA("counting", alphabet="ab", arcs=arcs, initial={0: 1}, final={10: 1})
    assert machine.total_weight().item() == 3**10
    with pytest.raises(AutomatonError, match=r"cycle 0 → 0.*counting"):
        WFSA("counting", alphabet="a", arcs=[(0, "a", 0, 1)], initial={0: 1}, final={0: 1}).total_weight()


@pytest.mark.parametrize(
    ("semiring", "weight"),
    [("real", 1.0), ("real", -1.0), ("log", 0.0), ("max-plus", 0.1), ("max-times", 1.1)],
)
def test_divergence_is_an_error_that_names_a_cycle(semiring: str, weight: float) -> None:
    one = SEMIRINGS[semiring].one
    machine = WFSA(
        semiring,
        alphabet="a",
        arcs=[("p", "a", "q", one), ("q", "a", "p", weight)],
        initial={"p": one},
        final={"p": one},
    )
    with pytest.raises(AutomatonError, match=r"cycle (p → q → p|q → p → q)"):
        machine.total_weight()


def test_cycles_off_every_path_do_not_count() -> None:
    machine = WFSA(
        alphabet="a",
        arcs=[
            (0, "a", 1, 2.0),
            (0, "a", "dead", 1.0),
            ("dead", "a", "dead", 9.0),
            ("unborn", "a", 1, 1.0),
            ("unborn", "a", "unborn", 9.0),
            (1, "a", 1, 0.0),
        ],
        initial={0: 1.0},
        final={1: 3.0},
    )
    assert machine.total_weight().item() == 6.0
