"""Machines whose weights have several components, and machines over a semiring that a user defines."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from random_machines import all_strings, close, random_machine, score, scores
from wfsa_strategies import machines, strings

from rrnn.errors import AutomatonError, SemiringError, ShapeError
from rrnn.semirings import SEMIRINGS, Semiring, register_semiring
from rrnn.wfsa import EPSILON, WFSA
from rrnn.wfsa.io import load, save

SEVERAL = [name for name, ring in SEMIRINGS.items() if ring.components]
STRINGS = all_strings("ab", 4)


def test_forms_of_a_complex_weight() -> None:
    """A Python complex number, a tuple, a real number and tensors; it comes back as a tuple."""
    leaf = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    whole = torch.tensor(0.25 + 1j, requires_grad=True)
    machine = WFSA(
        "complex",
        alphabet="abcde",
        arcs=[
            (0, "a", 0, 0.5 - 2j),
            (0, "b", 0, (0.5, -2.0)),
            (0, "c", 0, 3),
            (0, "d", 0, (leaf, 1.0)),
            (0, "e", 0, whole),
        ],
        initial={0: 1},
        final={0: 1j},
    )
    assert [arc.weight for arc in machine.arcs] == [
        (0.5, -2.0),
        (0.5, -2.0),
        (3.0, 0.0),
        (0.5, 1.0),
        (0.25, 1.0),
    ]
    assert machine.initial == {0: (1.0, 0.0)} and machine.final == {0: (0.0, 1.0)}
    assert machine.arc_weight.shape == (5, 2) and machine.num_arcs == 5
    assert repr(machine) == "<WFSA complex: 1 state, 5 arcs, 5 symbols, 1 initial, 1 final>"
    found = machine.score("abcde")
    wanted = (0.5 - 2j) ** 2 * 3 * (0.5 + 1j) * (0.25 + 1j) * 1j
    assert complex(*found.tolist()) == pytest.approx(wanted)
    found[0].backward()
    assert leaf.grad is not None and float(leaf.grad) == pytest.approx(
        ((0.5 - 2j) ** 2 * 3 * (0.25 + 1j) * 1j).real, rel=1e-6
    )
    assert whole.grad is not None and whole.grad.is_complex()
    again = WFSA.from_tensors(
        "complex",
        machine.alphabet,
        machine.states,
        machine.arc_source,
        machine.arc_symbol,
        machine.arc_target,
        torch.view_as_complex(machine.arc_weight.detach()),
        machine.initial_weight,
        machine.final_weight,
    )
    assert again.same_as(machine)


def test_wrong_forms_are_named() -> None:
    def machine(weight: Any, ring: str = "complex") -> WFSA:
        return WFSA(ring, alphabet="a", arcs=[(0, "a", 0, weight)], initial={0: 1}, final={0: 1})

    with pytest.raises(SemiringError, match=r"must be 2 numbers \('re', 'im'\)"):
        machine((1.0, 2.0, 3.0))
    with pytest.raises(SemiringError, match="got the text '1j'"):
        machine("1j")
    with pytest.raises(SemiringError, match="outside the complex semiring"):
        machine((1.0, math.inf))
    with pytest.raises(SemiringError, match="outside the signed-log semiring"):
        machine((0.5, 1.0), "signed-log")
    with pytest.raises(ShapeError, match=r"a tensor of 2 numbers; got shape \(3,\)"):
        machine(torch.zeros(3))
    with pytest.raises(SemiringError):
        machine(1j, "real")
    good = machine(1j)
    with pytest.raises(ShapeError, match=r"of shape \(1, 2\); got \(1,\)"):
        WFSA.from_tensors(
            "complex",
            "a",
            [0],
            *[torch.tensor([0])] * 3,
            torch.zeros(1),
            good.initial_weight,
            good.final_weight,
        )
    with pytest.raises(ShapeError, match="must return one element over complex"):
        good.map_weights(lambda w: w[:, 0])
    with pytest.raises(AutomatonError, match="needs an initial state"):
        WFSA("complex", alphabet="a", initial={0: 0j}, final={0: 1})


@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
@pytest.mark.parametrize("seed", range(3))
def test_a_complex_machine_is_torch_linear_algebra(seed: int, epsilon: str) -> None:
    """λ E T_a E T_b E ρ with complex matrices, E being the inverse of I − the ε-arcs."""
    machine = random_machine(seed, "complex", states=3, epsilon=epsilon)
    dense = torch.zeros(3, 3, 3, dtype=torch.complex128)
    weight = torch.view_as_complex(machine.arc_weight)
    dense[machine.arc_symbol, machine.arc_source, machine.arc_target] = weight  # ε is the last
    silent = torch.linalg.inv(torch.eye(3) - dense[-1])
    initial, final = (torch.view_as_complex(w) for w in machine.weights[1:])
    for string in STRINGS:
        row = initial @ silent
        for symbol in string:
            row = row @ dense["ab".index(symbol)] @ silent
        assert complex(*machine.score(string).tolist()) == pytest.approx(complex(row @ final), abs=1e-12)
    total = torch.linalg.inv(torch.eye(3) - 0.1 * dense.sum(0))
    small = machine.replace(weight=0.1 * machine.arc_weight)
    assert complex(*small.total_weight().tolist()) == pytest.approx(complex(initial @ total @ final))


@pytest.mark.parametrize("name", SEVERAL)
def test_a_cycle_that_converges_by_cancelling(name: str) -> None:
    """Eigenvalues of 0.71, though eliminating the first state leaves −5; and one of −1.7, though it leaves −0.5."""
    for weights, exists in (((0.9, 1.0, -0.5, 0.0), True), ((0.5, 0.1, 5.0, -1.5), False)):
        arcs = [(i, EPSILON, j, weights[2 * i + j]) for i in range(2) for j in range(2) if weights[2 * i + j]]
        machine = WFSA(alphabet="a", arcs=arcs, initial={0: 1.0}, final={1: 1.0}).with_semiring(name)
        if exists:
            matrix = torch.tensor(weights, dtype=torch.float64).view(2, 2)
            star = torch.linalg.inv(torch.eye(2, dtype=torch.float64) - matrix)
            assert machine.semiring.to_real(score(machine, ())) == pytest.approx(float(star[0, 1]), rel=1e-12)
        else:
            with pytest.raises(AutomatonError, match=r"spectral radius of these arcs is 1\.7"):
                machine.score("")


def test_a_signed_log_cycle_far_below_the_range_of_floats() -> None:
    arcs = [(0, EPSILON, 1, (1.0, -3000.0)), (1, EPSILON, 0, (-1.0, 2000.0)), (1, "a", 1, (1.0, -5.0))]
    machine = WFSA("signed-log", alphabet="a", arcs=arcs, initial={0: 1}, final={1: 1})
    assert score(machine, ()) == (1.0, pytest.approx(-3000.0))
    assert score(machine, ("a",)) == (1.0, pytest.approx(-3005.0))


CONVERSIONS = [("real", name) for name in SEVERAL] + [("complex", "expectation"), ("signed-log", "complex")]


@pytest.mark.parametrize(("one", "other"), CONVERSIONS)
def test_conversions_there_and_back(one: str, other: str) -> None:
    real = random_machine(5, "real", epsilon="acyclic")
    machine = real.with_semiring(one)
    there = machine.with_semiring(other)
    assert there.semiring.name == other
    for x, y in zip(scores(real, STRINGS), scores(there, STRINGS), strict=True):
        assert there.semiring.to_real(y) == pytest.approx(x, rel=1e-11, abs=1e-12)
    back = there.with_semiring(one)
    for a, b in zip(back.weights, machine.weights, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_conversions_of_logarithms_lose_nothing() -> None:
    machine = WFSA("log", alphabet="a", arcs=[(0, "a", 0, -2000.0)], initial={0: 900.0}, final={0: 0.0})
    signed = machine.with_semiring("signed-log")
    assert signed.arcs[0].weight == (1.0, -2000.0) and signed.initial == {0: (1.0, 900.0)}
    assert signed.with_semiring("log").same_as(machine)
    assert signed.with_semiring("min-plus").arcs[0].weight == 2000.0
    assert signed.with_semiring("boolean").arcs[0].weight == 1.0
    for wrong, ring in ((signed.scale(-1.0), "log"), (signed.with_semiring("complex", _rotated), "real")):
        with pytest.raises(
            SemiringError, match=rf"stands for none that {ring} has .* with_semiring\('{ring}', f\)"
        ):
            wrong.with_semiring(ring)
    counts = random_machine(1, "counting")
    assert counts.with_semiring("expectation").arcs[0].weight == (float(counts.arcs[0].weight), 0.0)
    valued = random_machine(1).with_semiring("expectation", lambda p: torch.stack((p, 2 * p), -1))
    assert valued.arcs[0].weight == (random_machine(1).arcs[0].weight, 2 * random_machine(1).arcs[0].weight)


def _rotated(weights: torch.Tensor) -> torch.Tensor:
    return torch.polar(weights[:, 0], torch.ones_like(weights[:, 1]))


# ---- signed-log ---------------------------------------------------------------------------------------------


def test_signed_log_scores_are_those_of_real() -> None:
    @given(machines("real", epsilon="cyclic"), strings(8))
    def check(machine: WFSA, string: str) -> None:
        signed = machine.with_semiring("signed-log")
        found = signed.semiring.to_real(score(signed, tuple(string)))
        absolute = float(machine.map_weights(torch.abs).score(string))
        assert abs(found - float(machine.score(string))) <= 1e-10 * absolute

    check()


def test_paths_that_cancel() -> None:
    arcs = [(0, "a", 1, 0.3), (0, "a", 2, -0.3), (1, "b", 3, 0.7), (2, "b", 3, 0.7), (2, "c", 3, 0.7 + 1e-12)]
    machine = WFSA(alphabet="abc", arcs=[*arcs, (1, "c", 3, 0.7)], initial={0: 1.0}, final={3: 1.0})
    signed = machine.with_semiring("signed-log")
    assert score(signed, ("a", "b")) == (0.0, -math.inf)
    assert signed.semiring.to_real(score(signed, ("a", "c"))) == pytest.approx(-3e-13, abs=1e-16)


@pytest.mark.slow
def test_a_product_of_a_hundred_thousand_factors() -> None:
    machine = WFSA(alphabet="a", arcs=[(0, "a", 0, -1e-3)], initial={0: 1.0}, final={0: 1.0}).with_semiring(
        "signed-log"
    )
    begin = time.monotonic()
    sign, log = score(machine, ("a",) * 100_000)
    assert sign == 1.0 and abs(log - 100_000 * math.log(1e-3)) < 1e-7
    assert time.monotonic() - begin < 60  # a few seconds on a free core
    assert score(machine, ("a",) * 1001)[0] == -1.0


# ---- a semiring of one's own --------------------------------------------------------------------------------


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Semiring:
    """Łukasiewicz' semiring: degrees of truth in [0, 1], with max and max(0, a + b − 1)."""
    monkeypatch.setattr("rrnn.semirings.registry.SEMIRINGS", known := dict(SEMIRINGS))
    assert known is not SEMIRINGS
    from rrnn.arithmetic import Range

    return register_semiring(
        Semiring(
            "lukasiewicz",
            zero=0.0,
            one=1.0,
            plus=lambda s, a, b: s.max(a, b),
            times=lambda s, a, b: s.max(0.0, s.sub(s.add(a, b), 1.0)),
            star=lambda s, a: s.max(1.0, a),
            star_exists=lambda s, a: s.ge(a, 0.0),
            star_domain="every a",
            values=Range(0.0, 1.0),
            set_description="[0, 1]",
            selective=True,
            one_absorbs=True,
        )
    )


def test_scores_and_algebra_over_an_own_semiring(own: Semiring) -> None:
    machine = random_machine(3, "max-times", epsilon="cyclic").with_semiring(own, lambda w: w.clamp(0.0, 1.0))
    other = random_machine(4, "max-times").with_semiring(own, lambda w: w.clamp(0.0, 1.0))
    some = STRINGS[:15]
    left, right = scores(machine, some), scores(other, some)
    assert any(left) and any(right)
    for string, found in zip(some, left, strict=True):
        assert own.close(found, machine.score_by_paths(string, max_epsilon=4))
    pairs = list(zip(left, right, strict=True))
    assert _close(own, scores(machine.union(other), some), [own.plus(x, y) for x, y in pairs])
    assert _close(own, scores(machine.intersect(other), some), [own.times(x, y) for x, y in pairs])
    assert _close(own, scores(machine.scale(0.8), some), [own.times(0.8, x) for x in left])
    assert _close(own, scores(machine.reverse(), [x[::-1] for x in some]), left)
    assert _close(own, scores(machine.trim().remove_epsilon(), some), left)
    by_string = dict(zip(some, pairs, strict=True))
    cut = [
        own.sum(own.times(by_string[x[:i]][0], by_string[x[i:]][1]) for i in range(len(x) + 1)) for x in some
    ]
    assert _close(own, scores(machine.concatenate(other), some), cut)
    assert own.numbers(machine.closure().score(())) == 1.0
    assert own.numbers(machine.total_weight()) >= max(left)


def test_files_of_an_own_semiring(own: Semiring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = random_machine(3, "max-times").with_semiring(own, lambda w: w.clamp(0.0, 1.0))
    save(machine, tmp_path / "m.json")
    assert load(tmp_path / "m.json").same_as(machine)
    with pytest.raises(SemiringError, match="outside the lukasiewicz"):
        machine.scale(2.0)
    with pytest.raises(SemiringError, match=r"do not stand for real numbers.*with_semiring\(name, f\)"):
        machine.with_semiring("real")
    assert machine.with_semiring("boolean").score("ab").item() in (0.0, 1.0)
    monkeypatch.undo()
    with pytest.raises(Exception, match="unknown semiring 'lukasiewicz'"):
        load(tmp_path / "m.json")


def test_a_semiring_without_a_star() -> None:
    ring = Semiring(
        "x", zero=0.0, one=1.0, plus=lambda s, a, b: s.max(a, b), times=lambda s, a, b: s.mul(a, b)
    )
    assert ring.star(0.0) == 1.0 and ring.t_star(torch.zeros(2)).tolist() == [1.0, 1.0]
    assert ring.t_star(torch.tensor([0.0, 0.5])).isnan().tolist() == [False, True]
    with pytest.raises(
        SemiringError, match=r"star exists only for a = 0̄, for it is defined without a star; got 0.5"
    ):
        ring.star(0.5)
    pair = Semiring(
        "y",
        components=("p", "q"),
        zero=(0.0, 0.0),
        one=(1.0, 1.0),
        plus=lambda s, a, b: a,
        times=lambda s, a, b: a,
    )
    assert pair.t_star(torch.tensor([[0.0, 0.0], [0.0, 1.0]])).isnan().tolist() == [[False] * 2, [True] * 2]
    assert pair.star((0.0, 0.0)) == (1.0, 1.0)


def test_algebra_without_a_star(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrnn.semirings.registry.SEMIRINGS", dict(SEMIRINGS))
    ring = register_semiring(
        Semiring("x", zero=0.0, one=1.0, plus=lambda s, a, b: s.max(a, b), times=lambda s, a, b: s.mul(a, b))
    )
    machine = WFSA(ring, alphabet="a", arcs=[(0, "a", 1, 0.5)], initial={0: 1.0}, final={1: 1.0})
    assert machine.closure().score(["", "a", "aa"]).tolist() == [1.0, 0.5, 0.25]
    with pytest.raises(
        AutomatonError, match=r"exists in x for a = 0̄, for it is defined without a star; got 0.5"
    ):
        WFSA(ring, alphabet="a", initial={0: 0.5}, final={0: 1.0}).closure()


def _close(ring: Semiring, ours: list[Any], theirs: list[Any]) -> bool:
    return all(ring.close(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("epsilon", ["none", "acyclic"])
def test_scores_against_paths(name: str, epsilon: str) -> None:
    machine = random_machine(9, name, epsilon=epsilon)
    for string, found in zip(STRINGS, scores(machine, STRINGS), strict=True):
        assert close(name, found, machine.score_by_paths(string), 1e-10)
