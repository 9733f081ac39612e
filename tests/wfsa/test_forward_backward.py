"""Forward and backward tables meet in the score at every position."""

from __future__ import annotations

import pytest
from hypothesis import given
from random_machines import close, random_machine
from wfsa_strategies import machines_and_strings

from rrnn.wfsa import EPSILON, WFSA


@pytest.mark.parametrize("epsilon", ["acyclic", "cyclic"])
def test_tables_meet(epsilon: str) -> None:
    @given(data=machines_and_strings(epsilon=epsilon))
    def check(data: tuple[WFSA, list[str]]) -> None:
        machine, (string, *_) = data
        ring = machine.semiring
        score = ring.numbers(machine.score(string))
        for closed in (True, False):
            before, after = (
                machine.forward(string, closed=closed),
                machine.backward(string, closed=not closed),
            )
            assert before.shape == after.shape
            assert before.shape[:2] == (len(string) + 1, machine.num_states)
            for value in ring.numbers(ring.t_sum(ring.t_times(before, after), 1)):
                assert close(ring.name, value, score)

    check()


def test_tables_by_hand() -> None:
    machine = WFSA(
        alphabet="ab",
        arcs=[("p", "a", "p", 2.0), ("p", EPSILON, "q", 0.5), ("q", "b", "q", 3.0)],
        initial={"p": 1.0},
        final={"q": 10.0},
    )
    assert machine.forward("ab", closed=False).tolist() == [[1, 0], [2, 0], [0, 3]]
    assert machine.forward("ab").tolist() == [[1, 0.5], [2, 1], [0, 3]]
    assert machine.backward("ab", closed=False).tolist() == [[30, 0], [0, 30], [0, 10]]
    assert machine.backward("ab").tolist() == [[30, 0], [15, 30], [5, 10]]
    assert machine.score("ab").item() == 30.0


def test_tables_of_the_empty_string() -> None:
    machine = random_machine(0, "log", epsilon="acyclic")
    assert machine.forward("", closed=False)[0].equal(machine.initial_weight)
    assert machine.backward("", closed=False)[0].equal(machine.final_weight)


def test_rows_are_the_prefixes_and_suffixes() -> None:
    machine = random_machine(4, "real", epsilon="cyclic")
    string = "abbab"
    for i in range(len(string) + 1):
        assert machine.forward(string)[i].tolist() == pytest.approx(machine.forward(string[:i])[-1].tolist())
        assert machine.backward(string)[i].tolist() == pytest.approx(machine.backward(string[i:])[0].tolist())
