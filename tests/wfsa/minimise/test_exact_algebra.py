"""Counting machines: exact differences of any size, and fewer states with exactly the same counts."""

from __future__ import annotations

import pytest
from exact_machines import Rational
from random_machines import all_strings, random_machine, scores

from rrnn.errors import AutomatonError
from rrnn.wfsa import EPSILON, WFSA

STRINGS = all_strings("ab", 5)


def least(machine: WFSA) -> int:
    """The least number of states over ℚ, which no machine over ℕ can go below."""
    return max(Rational((1, machine.remove_epsilon())).rank(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["none", "acyclic"])
def test_random_machines(epsilon: str) -> None:
    shrunk = 0
    for seed in range(150):
        machine = random_machine(seed, "counting", states=4, density=0.25, epsilon=epsilon)
        small = machine.minimise()
        assert scores(small, STRINGS) == scores(machine, STRINGS)
        assert Rational((1, small), (-1, machine.remove_epsilon())).first_nonzero() is None
        assert least(machine) <= small.num_states <= machine.num_states and not small.has_epsilon
        assert set(small.states) <= set(machine.states)
        assert machine.equivalent(small) and small.minimise().same_as(small)
        shrunk += small.num_states < machine.num_states
    assert shrunk > 30


def test_sums_shrink_back() -> None:
    for seed in range(60):
        machine = random_machine(seed, "counting", states=3, density=0.5).minimise()
        for large in (machine.union(machine), machine.union(machine.scale(3))):
            assert large.minimise().num_states <= machine.num_states
            assert large.minimise().equivalent(large)
        assert machine.reverse().reverse().minimise().same_as(machine)


def test_natural_sums_of_other_states() -> None:
    """The future of 0 is twice that of 1 and that of 2 together; as a past, 3 gathers both."""
    arcs = [
        (0, "a", 3, 2),
        (0, "b", 3, 5),
        (1, "a", 3, 1),
        (2, "b", 3, 5),
        (9, "a", 1, 7),
        (9, "b", 0, 4),
        (9, "b", 2, 1),
    ]
    machine = WFSA("counting", alphabet="ab", arcs=arcs, initial={9: 1}, final={3: 1})
    small = machine.minimise()
    assert small.num_states == 4 == least(machine)
    assert small.equivalent(machine)


def test_the_least_number_over_the_rationals_may_be_out_of_reach() -> None:
    """The futures of 1 and 2 are 2x and 3x: neither is a natural multiple of the other, but pasts may help."""
    arcs = [(0, "a", 1, 1), (0, "b", 2, 1), (1, "a", 3, 2), (2, "a", 3, 3)]
    machine = WFSA("counting", alphabet="ab", arcs=arcs, initial={0: 1}, final={3: 1})
    small = machine.minimise()
    assert least(machine) <= small.num_states <= 4 and small.equivalent(machine)


def test_nothing_remains_of_empty_machines() -> None:
    machine = WFSA(
        "counting", alphabet="a", arcs=[(0, "a", 1, 1)], initial={0: 1}, final={}, allow_empty=True
    )
    small = machine.minimise()
    assert small.num_states == 1 and not small.arcs and not small.initial
    assert small.equivalent(machine)


def test_planted_differences() -> None:
    found = 0
    for seed in range(200):
        machine = random_machine(seed, "counting", states=4, density=0.3)
        arcs = [tuple(arc) for arc in machine.arcs]
        if not arcs:
            continue
        q, s, p, w = arcs[seed % len(arcs)]
        arcs[seed % len(arcs)] = (q, s, p, w + 1)
        changed = WFSA(
            "counting",
            alphabet="ab",
            states=machine.states,
            arcs=arcs,
            initial=machine.initial,
            final=machine.final,
            allow_empty=True,
        )
        difference = Rational((1, machine), (-1, changed))
        answer, first = machine.equivalent(changed), difference.first_nonzero()
        assert answer.counter_example == first
        if first is not None:
            found += 1
            assert answer.difference == difference.score(first)
    assert found > 100


def test_counts_beyond_int64_and_beyond_floats() -> None:
    """2⁷⁰ against 2⁷⁰ + 1: int64 wraps around, float64 rounds."""

    def chain(extra: int) -> WFSA:
        arcs = [(i, "a", i + 1, 2**35) for i in range(2)]
        return WFSA(
            "counting",
            alphabet="a",
            arcs=[*arcs, (0, "a", 3, extra), (3, "a", 2, 1)],
            initial={0: 1},
            final={2: 1},
        )

    answer = chain(1).equivalent(chain(2))
    assert answer.counter_example == ("a", "a") and answer.difference == -1
    assert chain(1).equivalent(chain(1))


def test_weights_that_do_not_fit_are_not_made() -> None:
    """Merging the twins 1 and 2 would add up 2⁶³, before or behind them, so both stay."""
    arcs = [(0, "a", 1, 2**62), (0, "a", 2, 2**62), (1, "a", 3, 2**62), (2, "a", 3, 2**62)]
    machine = WFSA("counting", alphabet="a", arcs=arcs, initial={0: 2}, final={3: 2})
    small = machine.minimise()
    assert small.num_states == 4 and least(machine) == 3
    assert small.equivalent(machine)


def test_epsilon() -> None:
    """ε-paths are counted exactly, or not at all: neither too many for int64, nor infinitely many."""
    star = random_machine(1, "counting", states=3).concatenate(random_machine(2, "counting", states=3))
    assert star.equivalent(star.remove_epsilon()) and star.minimise().equivalent(star)
    large = [(i, EPSILON, i + 1, 2**40) for i in range(2)]
    machine = WFSA("counting", alphabet="a", arcs=[(0, "a", 0, 1), *large], initial={0: 1}, final={2: 1})
    with pytest.raises(AutomatonError, match=r"below 2⁶³.*about 1\.21e\+24"):
        machine.minimise()
    with pytest.raises(AutomatonError, match="below 2⁶³"):
        machine.equivalent(machine)
    with pytest.raises(AutomatonError, match="cycle"):
        WFSA("counting", alphabet="a", arcs=[(0, EPSILON, 0, 1)], initial={0: 1}, final={0: 1}).minimise()
