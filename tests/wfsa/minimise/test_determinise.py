"""Boolean machines: the minimal deterministic machine, and a first string that only one of two accepts."""

from __future__ import annotations

import pytest
from random_machines import all_strings, random_machine, scores

from rrnn.errors import AutomatonError
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.minimise import determinise

STRINGS = all_strings("ab", 6)


def residuals(machine: WFSA) -> int:
    """The number of different non-empty futures of strings (Myhill and Nerode), for at most 2³ sets of states."""
    prefixes, rests = all_strings("ab", 5), all_strings("ab", 4)
    strings = all_strings("ab", 9)
    accepted = dict(zip(strings, scores(machine, strings), strict=True))
    futures = {tuple(accepted[prefix + rest] for rest in rests) for prefix in prefixes}
    return len({future for future in futures if any(future)})


def nth_from_the_end(n: int) -> WFSA:
    """The n-th symbol from the end is a: n + 1 states, or 2ⁿ without a choice."""
    arcs = [(0, "a", 0, 1), (0, "b", 0, 1), (0, "a", 1, 1)]
    arcs += [(i, s, i + 1, 1) for i in range(1, n) for s in "ab"]
    return WFSA("boolean", alphabet="ab", arcs=arcs, initial={0: 1}, final={n: 1})


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
def test_random_machines(epsilon: str) -> None:
    for seed in range(100):
        machine = random_machine(seed, "boolean", states=3, density=0.25, epsilon=epsilon)
        small = machine.minimise()
        assert scores(small, STRINGS) == scores(machine, STRINGS)
        assert small.num_states == max(residuals(machine), 1)
        assert len(small.initial) <= 1 and not small.has_epsilon
        steps = [(q, symbol) for q, symbol, _, _ in small.arcs]
        assert len(steps) == len(set(steps))
        assert small.trim().same_as(small) and small.minimise().same_as(small)
        assert machine.equivalent(small)


@pytest.mark.slow
def test_one_language_has_one_minimal_machine() -> None:
    for seed in range(60):
        machine = random_machine(seed, "boolean", states=4, density=0.3)
        small = machine.minimise()
        assert machine.union(small).minimise().same_as(small)
        assert machine.reverse().reverse().minimise().same_as(small)
        star = machine.closure()
        assert star.concatenate(star).minimise().same_as(star.minimise())


def test_minimising_merges_what_brzozowski_merges() -> None:
    """Determinising the reverse of a determinised reverse is minimal, too: larger machines, no bound on strings."""

    def determinised(machine: WFSA) -> WFSA:
        small = machine.minimise()  # deterministic; minimal or not plays no role here
        assert len({(q, s) for q, s, _, _ in small.arcs}) == small.num_arcs
        return small

    for seed in range(30):
        machine = random_machine(seed, "boolean", states=7, density=0.12)
        twice = determinised(determinised(machine.reverse()).reverse())
        assert twice.same_as(machine.minimise())


@pytest.mark.slow
def test_first_differences() -> None:
    equal = 0
    for seed in range(300):
        a, b = (random_machine(seed * 2 + i, "boolean", states=3, density=0.35) for i in (0, 1))
        pairs = zip(STRINGS, scores(a, STRINGS), scores(b, STRINGS), strict=True)
        first = next(((x, p - q) for x, p, q in pairs if p != q), None)
        answer = a.equivalent(b)
        equal += first is None
        assert (answer.counter_example, answer.difference) == (first or (None, 0.0))
        assert bool(answer) is (first is None)
    assert 0 < equal < 150


def test_a_long_first_difference() -> None:
    """aⁿ with n divisible by 5 or 7: 35 is the first that the two tell apart from either alone."""

    def every(n: int) -> WFSA:
        arcs = [(i, "a", (i + 1) % n, 1) for i in range(n)]
        return WFSA("boolean", alphabet="a", arcs=arcs, initial={1: 1}, final={i: 1 for i in range(1, n)})

    anything = WFSA("boolean", alphabet="a", arcs=[(0, "a", 0, 1)], initial={0: 1}, final={0: 1})
    answer = every(5).union(every(7)).equivalent(anything)
    assert answer.counter_example == ("a",) * 34 and answer.difference == -1.0


def test_different_alphabets_and_empty_languages() -> None:
    a = WFSA("boolean", alphabet="a", arcs=[(0, "a", 0, 1)], initial={0: 1}, final={0: 1})
    b = WFSA("boolean", alphabet="ba", arcs=[(0, s, 0, 1) for s in "ab"], initial={0: 1}, final={0: 1})
    assert a.equivalent(b).counter_example == ("b",)
    nothing = WFSA(
        "boolean", alphabet="ab", arcs=[(0, "a", 1, 1)], initial={0: 1}, final={}, allow_empty=True
    )
    small = nothing.minimise()
    assert small.num_states == 1 and not small.arcs and not small.initial and not small.final
    assert nothing.equivalent(small) and nothing.equivalent(a).counter_example == ()
    only_empty = WFSA("boolean", alphabet="a", arcs=[(0, EPSILON, 1, 1)], initial={0: 1}, final={1: 1})
    assert only_empty.minimise().num_states == 1 and only_empty.minimise().num_arcs == 0


def test_blowing_up_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nth_from_the_end(8).minimise().num_states == 2**8
    assert nth_from_the_end(8).equivalent(nth_from_the_end(8).minimise())
    monkeypatch.setattr(determinise, "MOST_SETS", 1000)
    with pytest.raises(AutomatonError, match="at most 1,000 sets of states; this machine of 13 states"):
        nth_from_the_end(12).minimise()
    with pytest.raises(AutomatonError, match="equivalence over boolean follows at most 1,000"):
        nth_from_the_end(12).equivalent(nth_from_the_end(12).union(nth_from_the_end(12)))


def test_a_large_chain_is_fast() -> None:
    """5,000 states that all differ: merging must not take a round for each, nor equivalence a string for each."""
    arcs = [(i, "a", i + 1, 1) for i in range(5_000)]
    machine = WFSA("boolean", alphabet="a", arcs=arcs, initial={0: 1}, final={5_000: 1})
    small = machine.minimise()
    assert small.num_states == 5_001
    assert small.equivalent(machine)
