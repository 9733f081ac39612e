"""Forward against the definition: every path of every string, in every semiring."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given
from random_machines import all_strings, close, random_machine
from wfsa_strategies import machines_and_strings

from rrnn.errors import AutomatonError, SemiringError
from rrnn.semirings import SEMIRINGS
from rrnn.wfsa import EPSILON, WFSA, transitions


def same(machine: WFSA, a: float, b: float, tolerance: float = 1e-9) -> bool:
    return close(machine.semiring.name, a, b, tolerance)


@pytest.mark.parametrize("epsilon", ["none", "acyclic"])
@given(data=machines_and_strings(epsilon="acyclic"))
def test_forward_is_the_sum_over_paths(epsilon: str, data: tuple[WFSA, list[str]]) -> None:
    machine, strings = data
    if epsilon == "none":
        silent = machine.arc_symbol < 0
        machine = WFSA(
            machine.semiring,
            alphabet=machine.alphabet,
            states=machine.states,
            arcs=[arc for arc, s in zip(machine.arcs, silent.tolist(), strict=True) if not s],
            initial=machine.initial,
            final=machine.final,
            allow_empty=True,
        )
    scores = machine.semiring.numbers(machine.score(strings))
    for string, score in zip(strings, scores, strict=True):
        assert same(machine, score, machine.score_by_paths(string))


@given(data=machines_and_strings(epsilon="cyclic", longest=2))
def test_cycles_of_epsilon_are_summed_by_star(data: tuple[WFSA, list[str]]) -> None:
    machine, strings = data
    for string, score in zip(strings, machine.semiring.numbers(machine.score(strings)), strict=True):
        assert same(machine, score, machine.score_by_paths(string, max_epsilon=9))


@given(data=machines_and_strings(epsilon="acyclic"))
def test_batches_prefixes_and_singles_agree(data: tuple[WFSA, list[str]]) -> None:
    machine, strings = data
    ring = machine.semiring
    batch = ring.numbers(machine.score(strings))
    prefixes = machine.prefix_scores(strings)
    for string, score, scores in zip(strings, batch, prefixes, strict=True):
        assert same(machine, score, ring.numbers(machine.score(string)), 1e-12)
        assert scores.shape == (len(string) + 1, *ring.shape)
        each = [ring.numbers(machine.score(string[:i])) for i in range(len(string) + 1)]
        for prefix, alone in zip(ring.numbers(scores), each, strict=True):
            assert same(machine, prefix, alone, 1e-12)


@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
def test_both_layouts(semiring: str, epsilon: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if semiring == "counting" and epsilon == "cyclic":
        pytest.skip("a cycle has no star in counting")
    machine = random_machine(1, semiring, states=5, epsilon=epsilon)
    strings: list[object] = list(all_strings("ab", 4))
    dense = machine.score(strings)
    monkeypatch.setattr(transitions, "_DENSE", -1)
    monkeypatch.setattr(transitions, "_CROWDED", 2.0)
    monkeypatch.setattr(transitions, "_PAIRS", 8)
    monkeypatch.setattr(transitions, "_LARGEST_MATRIX", 0)
    machine._cache.clear()
    assert not transitions.Transitions(machine).dense
    torch.testing.assert_close(machine.score(strings), dense, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("semiring", SEMIRINGS)
def test_many_strings_of_many_lengths(semiring: str) -> None:
    """Enough strings to take every branch of the stepping, in an order that sorting must undo."""
    machine = random_machine(3, semiring, states=12, alphabet="abcdefgh", density=0.2, epsilon="acyclic")
    rng = random.Random(0)
    strings: list[object] = [
        "".join(rng.choices("abcdefgh", k=rng.choice([0, 1, 2, 5, 9, 9]))) for _ in range(300)
    ]
    batch = machine.score(strings)
    each = torch.stack([machine.score(string) for string in strings])
    torch.testing.assert_close(batch, each, rtol=1e-12, atol=1e-12)


def test_shapes() -> None:
    machine = random_machine(0, "real")
    assert machine.score("ab").shape == ()
    assert machine.score(("a", "b")).item() == machine.score("ab").item()
    assert machine.score([]).shape == (0,)
    assert machine.score([""]).shape == (1,)
    assert machine.score(["", "ab", ["a", "b"], ("a", "b")]).shape == (4,)
    assert machine.prefix_scores([]) == []
    assert machine.prefix_scores("").shape == (1,)


def test_the_tutorial_machine_by_hand() -> None:
    machine = WFSA(
        "real",
        alphabet="ab",
        arcs=[("q0", "a", "q1", 0.5), ("q0", EPSILON, "q1", 0.25), ("q1", "b", "q1", 2.0)],
        initial={"q0": 3.0},
        final={"q1": 10.0},
    )
    assert machine.score(["", "a", "b", "ab", "ba", "bb"]).tolist() == [7.5, 15.0, 15.0, 30.0, 0.0, 30.0]


# ---- numbers near the ends of float64 ------------------------------------------------------------------------


@pytest.mark.parametrize("semiring", ["real", "max-times"])
def test_small_scores_are_exact(semiring: str) -> None:
    chain = WFSA(semiring, alphabet="a", arcs=[(0, "a", 0, 2.0**-20)], initial={0: 1.0}, final={0: 1.0})
    assert chain.score(["a" * 15, "a" * 50]).tolist() == [2.0**-300, 2.0**-1000]
    assert chain.score("a" * 53).item() == 2.0**-1060  # subnormal, and still there
    assert chain.prefix_scores("a" * 50).tolist() == [2.0 ** (-20 * i) for i in range(51)]


@pytest.mark.parametrize("semiring", ["real", "max-times"])
@pytest.mark.parametrize("small", [1e-200, 1e-300])
def test_what_is_small_on_the_way_may_become_large_again(semiring: str, small: float) -> None:
    machine = WFSA(
        semiring,
        alphabet="sl",
        arcs=[(0, "s", 0, small), (0, "l", 0, 1 / small)],
        initial={0: 1.0},
        final={0: 1.0},
    )
    for string in ("ssll", "llss", "ssslll", "sssslslslsllll"[:14]):
        wanted = small ** (string.count("s") - string.count("l"))
        assert machine.score(string).item() == pytest.approx(wanted, rel=1e-12)
    assert machine.score(["ssll", "s", "lsls", ""]).tolist() == pytest.approx(
        [1.0, small, 1.0, 1.0], rel=1e-12
    )


def test_log_weights_far_apart() -> None:
    """Where the greatest entries of a row and a column do not meet, scaled exponentials alone would say −∞."""
    machine = WFSA(
        "log",
        alphabet="a",
        arcs=[(0, "a", 0, 0.0), (0, "a", 1, -1e4), (1, "a", 2, -2e4), (0, "a", 2, -1e5)],
        initial={0: 0.0, 1: -5e4},
        final={2: 0.0},
    )
    assert machine.score("aa").item() == pytest.approx(-3e4, rel=1e-15)
    assert machine.score("a").item() == pytest.approx(-7e4, rel=1e-15)


def test_log_scores_of_long_strings() -> None:
    machine = random_machine(5, "log", states=6)
    half = machine.map_weights(lambda w: w - math.log(2.0))  # every arc, start and end half as likely
    string = "abba" * 250
    assert half.score(string).item() == pytest.approx(machine.score(string).item() - 1002 * math.log(2.0))


def test_counts_beyond_int64_are_an_error() -> None:
    machine = WFSA("counting", alphabet="a", arcs=[(0, "a", 0, 10)], initial={0: 1}, final={0: 1})
    assert machine.score("a" * 18).item() == 10**18
    with pytest.raises(SemiringError, match="int64"):
        machine.score(["a", "a" * 19])
    assert machine.score_by_paths("a" * 30) == 10**30


# ---- ε-cycles ------------------------------------------------------------------------------------------------


def loop(semiring: str, weight: float) -> WFSA:
    """q0 —a→ q1, with the ε-cycle q1 → q2 → q1."""
    one = SEMIRINGS[semiring].one
    arcs = [("q0", "a", "q1", one), ("q1", EPSILON, "q2", weight), ("q2", EPSILON, "q1", weight)]
    return WFSA(semiring, alphabet="a", arcs=arcs, initial={"q0": one}, final={"q1": one})


def test_star_of_a_cycle() -> None:
    assert loop("real", 0.5).score("a").item() == pytest.approx(1 / (1 - 0.25))
    assert loop("real", -0.5).score("a").item() == pytest.approx(1 / (1 - 0.25))
    assert loop("log", math.log(0.5)).score("a").item() == pytest.approx(-math.log(1 - 0.25))
    assert loop("max-plus", -1.0).score("a").item() == 0.0
    assert loop("max-plus", 0.0).score("a").item() == 0.0
    assert loop("boolean", 1.0).score("a").item() == 1.0
    assert loop("counting", 0).score("a").item() == 1


@pytest.mark.parametrize(
    ("semiring", "weight"),
    [
        ("real", 1.0),
        ("real", -1.5),
        ("log", 0.1),
        ("max-plus", 0.5),
        ("min-plus", -0.5),
        ("max-times", 1.5),
        ("counting", 1),
    ],
)
def test_a_cycle_without_star_is_named(semiring: str, weight: float) -> None:
    with pytest.raises(AutomatonError, match=r"cycle q1 →ε q2 →ε q1.*star|cycle q2 →ε q1 →ε q2.*star"):
        loop(semiring, weight).score("a")


def test_listing_paths_refuses_cycles() -> None:
    with pytest.raises(AutomatonError, match=r"cycle q1 →ε q2 →ε q1.*max_epsilon"):
        loop("real", 0.5).score_by_paths("a")
    assert loop("real", 0.5).score_by_paths("a", max_epsilon=4) == 1 + 0.25 + 0.0625


def test_long_chains_of_epsilon() -> None:
    """Deeper than Python's recursion, and more states than are worth a matrix."""
    n = 3000
    arcs = [(i, EPSILON, i + 1, 1.0) for i in range(n)] + [(n, "a", n, 0.5)]
    machine = WFSA("real", alphabet="a", states=range(n + 1), arcs=arcs, initial={0: 1.0}, final={n: 1.0})
    assert machine.score("aa").item() == 0.25
    assert machine.score_by_paths("aa") == 0.25
