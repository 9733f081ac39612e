"""Minimisation keeps every score and reaches the known least size; equivalence finds what was planted."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from exact_machines import Rational
from random_machines import all_strings, random_machine, score, scores

from rrnn.errors import AutomatonError, SemiringError
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.minimise.linear_algebra import balance, to_dense
from rrnn.zoo.paper_automata import automaton_b, automaton_c, automaton_d, automaton_f, ngram_chain

STRINGS = all_strings("ab", 6)


def sizes(machine: WFSA) -> list[float]:
    """Per string the sum of the absolute weights of its paths, which is what rounding is relative to."""
    return scores(machine.remove_epsilon().map_weights(torch.abs), STRINGS)


def check_same_scores(small: WFSA, machine: WFSA, tolerance: float = 1e-9) -> None:
    for x, y, size in zip(scores(small, STRINGS), scores(machine, STRINGS), sizes(small), strict=True):
        assert abs(x - y) <= tolerance * size


def dense_machine(seed: int, states: int, symbols: str = "ab") -> WFSA:
    """Generic weights everywhere, which makes a machine minimal (almost surely)."""
    g = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64) / states**0.5

    source, symbol, target = torch.cartesian_prod(
        torch.arange(states), torch.arange(len(symbols)), torch.arange(states)
    ).T.contiguous()
    weight = randn(source.numel())
    return WFSA.from_tensors(
        "real", symbols, range(states), source, symbol, target, weight, randn(states), randn(states)
    )


def blown_up(machine: WFSA, seed: int) -> WFSA:
    """The same scores with more states: each split in two, an unreachable one, and a useless one added."""
    rng = random.Random(seed)
    share = {(q, p): rng.uniform(0.2, 0.8) for q in machine.states for p in machine.states}
    arcs = []
    for q, symbol, p, w in machine.arcs:
        for copy in (0, 1):  # whichever copy of q is left, the copies of p together get w
            arcs += [
                ((q, copy), symbol, (p, 0), w * share[q, p]),
                ((q, copy), symbol, (p, 1), w * (1 - share[q, p])),
            ]
    some, other = machine.states[0], machine.states[-1]
    arcs += [
        ("unreachable", "a", (some, 0), 0.7),
        ((other, 1), "b", "useless", 0.9),
        ("useless", "a", "useless", 1.0),
    ]
    initial = {(q, 0): w * 0.3 for q, w in machine.initial.items()}
    initial |= {(q, 1): w * 0.7 for q, w in machine.initial.items()}
    final = {(q, copy): w for q, w in machine.final.items() for copy in (0, 1)}
    return WFSA(alphabet=machine.alphabet, arcs=arcs, initial=initial, final=final)


@pytest.mark.parametrize("states", [1, 2, 3, 5, 8])
def test_blown_up_machines_shrink_back(states: int) -> None:
    for seed in range(4):
        machine = dense_machine(seed, states)
        large = blown_up(machine, seed)
        check_same_scores(large, machine)
        small = large.minimise()
        assert small.num_states == states
        check_same_scores(small, machine)
        assert small.equivalent(machine) and large.equivalent(small)


def test_sums_of_one_machine_with_itself() -> None:
    """Linear dependence without duplicate states: 2a − a = a, and a − a = 0."""
    a = dense_machine(0, 4)
    twice = a.scale(2.0).union(a.scale(-1.0))
    assert twice.minimise().num_states == 4
    check_same_scores(twice.minimise(), a)
    nothing = a.union(a.scale(-1.0))
    assert nothing.minimise().num_states == 1 and not nothing.minimise().arcs
    assert scores(nothing.minimise(), STRINGS) == [0.0] * len(STRINGS)
    assert nothing.equivalent(nothing.minimise())


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
def test_random_machines(epsilon: str) -> None:
    """Sparse machines, with ε-arcs: scores stay, a second pass finds nothing, reversing changes no size."""
    for seed in range(25):
        machine = random_machine(seed, states=6, density=0.25, epsilon=epsilon)
        small = machine.minimise()
        assert small.num_states <= machine.num_states and not small.has_epsilon
        check_same_scores(small, machine)
        assert small.minimise().same_as(small)
        assert machine.reverse().minimise().num_states == small.num_states
        assert machine.equivalent(small)


def test_the_size_is_the_rank_of_the_hankel_matrix() -> None:
    """H[y, z] = ⟦yz⟧ has the rank of the least machine (Fliess); prefixes and suffixes up to length 3 suffice here."""
    half = all_strings("ab", 3)
    for seed in range(15):
        machine = random_machine(seed, states=4, density=0.3, epsilon="acyclic")
        rows = [scores(machine, [y + z for z in half]) for y in half]
        rank = int(torch.linalg.matrix_rank(torch.tensor(rows, dtype=torch.float64), rtol=1e-10))
        assert machine.minimise().num_states == max(rank, 1)


def test_operations_have_the_expected_sizes() -> None:
    a, b = dense_machine(1, 3), dense_machine(2, 2)
    assert a.union(b).minimise().num_states == 5
    assert a.intersect(b).minimise().num_states == 6
    assert a.concatenate(b).minimise().num_states == 5


def test_the_paper_automata() -> None:
    """Generic B, C, chains and D are minimal but for what cannot be told apart; F reduces to three states."""
    mu1, mu2 = {"a": 0.3, "b": -0.8}, {"a": 1.1, "b": 0.4}
    phi1, phi2 = {"a": 0.5, "b": 0.9}, {"a": 0.2, "b": 0.7}
    assert automaton_b("ab", mu1, phi1).minimise().num_states == 2
    assert automaton_c("ab", mu1, phi1, mu2, phi2).minimise().num_states == 3
    assert ngram_chain("ab", [mu1, mu2, mu1], [phi1, phi2, phi1]).minimise().num_states == 4
    # The d initial states of D loop on 1 and are always equal: one of them would do.
    torch.manual_seed(0)
    W = {s: torch.randn(3, 3, dtype=torch.float64) for s in "ab"}
    b = {s: torch.randn(3, dtype=torch.float64) for s in "ab"}
    for machine in automaton_d("ab", W, b):
        assert (machine.num_states, machine.minimise().num_states) == (6, 4)


def test_f_equals_its_hand_reduced_form() -> None:
    """q3 only ever holds γ·q0, so F is c² = φ₂c² + (c¹ + r)μ₂ on q0, q1, q2: the arc q0 → q2 weighs γμ₂."""
    mu1, mu2 = {"a": 0.3, "b": -0.8}, {"a": 1.1, "b": 0.4}
    phi1, phi2 = {"a": 0.5, "b": 0.9}, {"a": 0.2, "b": 0.7}
    gamma, rho1, rho2 = 0.4, 0.6, 0.9
    f = automaton_f("ab", mu1, phi1, mu2, phi2, gamma, rho1, rho2)
    arcs: list[tuple[str, str, str, float]] = []
    for s in "ab":
        arcs += [("q0", s, "q0", 1.0), ("q0", s, "q1", mu1[s]), ("q1", s, "q1", phi1[s])]
        arcs += [("q1", s, "q2", mu2[s]), ("q0", s, "q2", gamma * mu2[s]), ("q2", s, "q2", phi2[s])]
    by_hand = WFSA(alphabet="ab", arcs=arcs, initial={"q0": 1.0}, final={"q1": rho1, "q2": rho2})
    assert f.minimise().num_states == 3
    check_same_scores(f.minimise(), f, 1e-13)
    assert f.equivalent(by_hand) and f.minimise().equivalent(by_hand)
    assert by_hand.minimise().same_as(by_hand)  # minimal already: it comes back with its own states and arcs


def test_f_without_its_shortcut_is_unigrams_plus_bigrams() -> None:
    mu1, phi1, mu2, phi2 = {"a": 0.3, "b": -0.8}, 0.5, {"a": 1.1, "b": 0.4}, 0.7
    f = automaton_f("ab", mu1, phi1, mu2, phi2, 0.0, 0.6, 0.9)
    unigrams = automaton_b("ab", mu1, phi1).scale(0.6)
    bigrams = automaton_c("ab", mu1, phi1, mu2, phi2).scale(0.9)
    assert f.equivalent(unigrams.union(bigrams))
    assert unigrams.union(bigrams).minimise().num_states == 3


# ---- numerics ------------------------------------------------------------------------------------------------


def test_weights_of_any_scale() -> None:
    """States rescaled by up to 10^±60, and all scores by 10^-90: the same machine, the same size."""
    rng = random.Random(0)
    for seed in range(6):
        machine = dense_machine(seed, 4)
        factor = {q: 10.0 ** rng.uniform(-60, 60) for q in machine.states}
        odd = WFSA(
            alphabet="ab",
            arcs=[(q, s, p, w * factor[q] / factor[p]) for q, s, p, w in machine.arcs],
            initial={q: w / factor[q] * 1e-90 for q, w in machine.initial.items()},
            final={q: w * factor[q] for q, w in machine.final.items()},
        )
        small = blown_up(odd, seed).minimise()
        assert small.num_states == 4
        for x, y in zip(scores(small, STRINGS), scores(machine, STRINGS), strict=True):
            assert x == pytest.approx(y * 1e-90, rel=1e-8, abs=1e-101)
        assert odd.scale(1e90).equivalent(machine)
        assert not odd.equivalent(machine)


def test_balancing_is_exact() -> None:
    """Powers of two round nothing, so scores stay bit for bit in a product of the same order."""
    machine = to_dense(dense_machine(3, 5).map_weights(lambda w: w.sign() * w.abs() ** 20))
    even = machine.rescaled(balance(machine))
    assert (even.initial != machine.initial).any()
    for symbols in ([0], [1, 0], [0, 1, 1, 0]):
        left, right = machine.initial, even.initial
        for symbol in symbols:
            left = (left[:, None] * machine.steps[symbol]).max(0)
            right = (right[:, None] * even.steps[symbol]).max(0)
        assert (left * machine.final).max() == (right * even.final).max()


def test_a_small_but_real_difference_is_not_rounding() -> None:
    a = automaton_b("ab", {"a": 0.3, "b": -0.8}, {"a": 0.5, "b": 0.9})
    b = automaton_b("ab", {"a": 0.3, "b": -0.8 * (1 + 1e-7)}, {"a": 0.5, "b": 0.9})
    assert not a.equivalent(b)
    assert a.equivalent(b, tolerance=1e-6)


# ---- equivalence ---------------------------------------------------------------------------------------------


def first_difference(a: WFSA, b: WFSA, longest: int) -> tuple[str, ...] | None:
    for string in all_strings(dict.fromkeys((*a.alphabet, *b.alphabet)), longest):
        if abs(score(a, string) - score(b, string)) > 1e-9:
            return string
    return None


def test_planted_differences_are_found() -> None:
    """One weight changed: the shortest string that shows it, first in the order of the alphabet, or none."""
    found = 0
    for seed in range(40):
        machine = random_machine(seed, states=4, density=0.35, epsilon=("none", "acyclic")[seed % 2])
        rng = random.Random(seed)
        arcs = [list(arc) for arc in machine.arcs]
        rng.choice(arcs)[3] += 0.05
        changed = WFSA(
            alphabet="ab",
            states=machine.states,
            arcs=[tuple(arc) for arc in arcs],
            initial=machine.initial,
            final=machine.final,
            allow_empty=True,
        )
        answer, expected = machine.equivalent(changed), first_difference(machine, changed, 6)
        assert answer.counter_example == expected
        assert bool(answer) is (expected is None)
        if expected is not None:
            found += 1
            assert answer.difference == pytest.approx(score(machine, expected) - score(changed, expected))
    assert found > 20


def test_a_difference_far_from_the_start() -> None:
    """Two chains that differ only in the last of nine arcs need a string of length nine."""

    def chain(last: float) -> WFSA:
        arcs = [(i, s, i + 1, 1.0) for i in range(8) for s in "ab"]
        return WFSA(alphabet="ab", arcs=[*arcs, (8, "b", 9, last)], initial={0: 1.0}, final={9: 1.0})

    answer = chain(1.0).equivalent(chain(1.5))
    assert answer.counter_example == tuple("aaaaaaaab") and answer.difference == -0.5
    assert chain(1.0).equivalent(chain(1.0))


def test_different_alphabets() -> None:
    a = automaton_b("ab", 1.0, 0.5)
    b = automaton_b("abc", 1.0, 0.5)
    answer = a.equivalent(b)
    assert answer.counter_example == ("c",) and answer.difference == -1.0
    silent = WFSA(alphabet="abc", arcs=a.arcs, initial=a.initial, final=a.final)  # c labels no arc
    assert a.equivalent(silent)
    assert a.equivalent(a).counter_example is None and a.equivalent(a).difference == 0.0


def test_the_empty_string_counts() -> None:
    a = WFSA(alphabet="a", arcs=[(0, "a", 0, 0.5)], initial={0: 1.0}, final={0: 1.0})
    answer = a.equivalent(a.scale(2.0))
    assert answer.counter_example == () and answer.difference == -1.0


def test_noise_is_no_difference() -> None:
    """The union of a machine with itself shrinks back to it, with its own weights and nothing else."""
    arcs = [(0, "b", 0, 1.0), (0, "b", 1, 0.25), (1, "a", 1, 0.5)]
    x = WFSA(alphabet="ab", arcs=arcs, initial={0: 1.0}, final={1: 1.0})
    y = x.union(x)
    small = y.minimise()
    assert sorted(w for *_, w in small.arcs) == [0.25, 0.5, 1.0] and small.num_states == 2
    assert small.equivalent(y) and y.equivalent(small)
    stray = [*arcs, (0, "a", 1, 1e-17), (1, "b", 0, 4e-48), (1, "a", 0, -1e-16)]
    noisy = WFSA(alphabet="ab", arcs=stray, initial={0: 1.0, 1: 1e-17}, final={0: -1e-17, 1: 1.0})
    assert x.equivalent(noisy) and noisy.equivalent(x)
    assert not x.equivalent(
        WFSA(alphabet="ab", arcs=[*arcs, (0, "a", 1, 1e-7)], initial={0: 1.0}, final={1: 1.0})
    )


@pytest.mark.parametrize("unit", [1e-200, 1e-90, 1e90, 1e200])
def test_the_unit_of_weights_plays_no_role(unit: float) -> None:
    """Noise and differences are relative to a machine's own weights, even where scores underflow or overflow."""

    def chain(last: float, stray: float = 0.0) -> WFSA:
        arcs = [(i, s, i + 1, 1.0) for i in range(8) for s in "ab"]
        arcs += [(8, "b", 9, last), (0, "b", 9, stray)]
        machine = WFSA(alphabet="ab", arcs=arcs, initial={0: 1.0}, final={9: 1.0})
        return machine.map_weights(lambda w: w * unit)

    assert chain(1.0).equivalent(chain(1.0, 1e-17)) and chain(1.0).equivalent(chain(1.0 + 1e-15))
    assert chain(1.0).equivalent(chain(1.0 + 1e-6)).counter_example == tuple("aaaaaaaab")
    assert chain(1.0).equivalent(chain(1.0, 1e-6)).counter_example == ("b",)
    assert chain(1.0).minimise().num_states == 10
    assert chain(1.0).union(chain(2.0)).minimise().num_states == 10
    assert chain(1.0).union(chain(-1.0)).minimise().num_states == 1


def test_the_longest_string_that_can_be_needed() -> None:
    """Rings of 7 and 9 states whose scores of aᵏ agree for k < 7 + 9 − 1, and for no larger bound."""

    def ring(n: int, last: float, final: np.ndarray) -> WFSA:
        arcs = [(i, "a", (i + 1) % n, last if i == n - 1 else 1.0) for i in range(n)]
        return WFSA(alphabet="a", arcs=arcs, initial={0: 1.0}, final=dict(enumerate(final.tolist())))

    equations = np.zeros((15, 16))
    for k in range(15):
        equations[k, k % 7], equations[k, 7 + k % 9] = 1.0, -(2.0 ** (k // 9))
    solution = np.linalg.svd(equations)[2][-1]
    a, b = ring(7, 1.0, solution[:7]), ring(9, 2.0, solution[7:])
    answer = a.equivalent(b)
    assert answer.counter_example == ("a",) * 15 and abs(answer.difference) > 0.1
    assert a.union(b).equivalent(b.union(a))


def test_errors() -> None:
    tropical = random_machine(0, "max-plus")
    with pytest.raises(SemiringError, match=r"negation.*max-plus is neither.*with_semiring"):
        tropical.minimise()
    with pytest.raises(SemiringError, match="as in real"):
        random_machine(0).equivalent(tropical)
    with pytest.raises(AutomatonError, match="one semiring; got real and counting"):
        random_machine(0).equivalent(random_machine(0, "counting"))
    loop = [("q", EPSILON, "q", 2.0), ("q", "a", "q", 1.0)]
    with pytest.raises(AutomatonError, match="cycle"):
        WFSA(alphabet="a", arcs=loop, initial={"q": 1.0}, final={"q": 1.0}).minimise()


def test_results_are_outside_any_graph() -> None:
    weight = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    b = automaton_b("ab", weight, 0.5)
    assert not b.minimise().requires_grad and b.equivalent(b)


# ---- against exact arithmetic --------------------------------------------------------------------------------


def test_sizes_equal_those_of_exact_arithmetic() -> None:
    """Weights −2 … 2, of which many are dependent by chance."""
    shrunk = 0
    for seed in range(60):
        rng = random.Random(seed)
        n = rng.randint(2, 7)
        arcs = [
            (q, s, p, float(rng.choice([-2, -1, 1, 1, 2])))
            for q in range(n)
            for s in "ab"
            for p in range(n)
            if rng.random() < rng.choice([0.2, 0.4])
        ]
        ends = [{q: float(rng.choice([-1, 1, 2])) for q in rng.sample(range(n), 2)} for _ in range(2)]
        machine = WFSA(
            alphabet="ab", states=range(n), arcs=arcs, initial=ends[0], final=ends[1], allow_empty=True
        )
        small = machine.minimise()
        assert small.num_states == max(Rational((1, machine)).rank(), 1), seed
        shrunk += small.num_states < machine.num_states
        assert small.equivalent(machine)
    assert shrunk > 20
