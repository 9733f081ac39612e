"""Scores are differentiable in every weight, in every semiring that has gradients."""

from __future__ import annotations

import pytest
import torch
from random_machines import all_strings, random_machine
from torch import Tensor
from wfsa_strategies import DIFFERENTIABLE

from rrnn.wfsa import EPSILON, WFSA, transitions

pytestmark = pytest.mark.slow

STRINGS: list[object] = ["", "a", "ab", "bbab", "aabba"]


def rebuilt(machine: WFSA, *weights: Tensor) -> WFSA:
    """The machine with other weights; over signed-log these are logarithms, for a sign cannot move a little."""
    if machine.semiring.name == "signed-log":
        signs = [signs_of(w) for w in machine.weights]
        weights = tuple(torch.stack((s, w), -1) for s, w in zip(signs, weights, strict=True))
    arc, initial, final = weights
    return machine.replace(weight=arc, initial=initial, final=final)


def signs_of(weights: Tensor) -> Tensor:
    return weights[:, 0].where(weights[:, 0] != 0, 1.0)


def scores(machine: WFSA, arc: Tensor, initial: Tensor, final: Tensor) -> Tensor:
    found = rebuilt(machine, arc, initial, final).score(STRINGS)
    return found[found.detach().isfinite()]  # −∞ is a constant, and has no difference quotient


def loose(machine: WFSA) -> list[Tensor]:
    """The weights as leaves without 0̄, so that every one can move."""
    ring = machine.semiring
    moved = [ring.where(ring.is_zero(w), torch.full_like(w, 0.1), w) for w in machine.weights]
    if ring.name == "signed-log":
        moved = [w[:, 1] for w in moved]
    return [w.clone().requires_grad_() for w in moved]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["matrices", "arcs"])
@pytest.mark.parametrize("epsilon", ["none", "acyclic", "cyclic"])
@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
def test_gradcheck(semiring: str, epsilon: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if layout == "arcs":
        monkeypatch.setattr(transitions, "_DENSE", -1)
        monkeypatch.setattr(transitions, "_CROWDED", 2.0)
        monkeypatch.setattr(transitions, "_LARGEST_MATRIX", 0)
    machine = random_machine(7, semiring, states=3, density=0.6, epsilon=epsilon)
    weights = loose(machine)
    assert torch.autograd.gradcheck(lambda *w: scores(machine, *w), weights)


@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
def test_zero_weights_give_no_nan(semiring: str) -> None:
    machine = random_machine(7, semiring, states=4, density=0.3, epsilon="acyclic")
    weights = [w.clone().requires_grad_() for w in machine.weights]
    with torch.no_grad():
        weights[0][::3] = machine.semiring.zeros(1)
    arc, initial, final = weights
    found = machine.replace(weight=arc, initial=initial, final=final).score(STRINGS)
    found = found[found.detach().isfinite()]
    for gradient in torch.autograd.grad(found.sum(), weights):
        assert gradient.isfinite().all()


def test_double_backward_over_the_reals() -> None:
    machine = random_machine(7, "real", states=3, epsilon="acyclic")
    weights = loose(machine)
    assert torch.autograd.gradgradcheck(lambda *w: scores(machine, *w), weights)


@pytest.mark.slow
@pytest.mark.parametrize("semiring", ["max-plus", "min-plus"])
def test_the_gradient_of_a_best_score_is_its_path(semiring: str) -> None:
    """Integer weights, so that there are ties: score and best_path must break them in the same way."""
    ties = 0
    for seed in range(15):
        machine = random_machine(seed, semiring, density=0.7).map_weights(torch.round)
        weight = machine.arc_weight.clone().requires_grad_()
        there = machine.replace(weight=weight)
        for string in all_strings("ab", 4):
            path = machine.best_path(string)
            if path is None or not string:
                continue
            uses = [sum(taken == arc for taken in path.arcs) for arc in machine.arcs]
            (gradient,) = torch.autograd.grad(there.score(string), weight, materialize_grads=True)
            assert gradient.tolist() == uses
            ties += len({p.weight for p in machine.k_best(string, 2)}) == 1
    assert ties > 50


def test_gradients_far_below_one() -> None:
    """2⁻⁵⁰⁰ on the way there and 2⁵⁰⁰ on the way back: the score is 1, and so is weight · gradient."""
    down = torch.tensor(2.0**-500, dtype=torch.float64, requires_grad=True)
    up = torch.tensor(2.0**500, dtype=torch.float64, requires_grad=True)
    machine = WFSA(
        alphabet="du",
        arcs=[(0, "d", 0, down), (0, "u", 0, up), (0, EPSILON, 1, 1.0)],
        initial={0: 1.0},
        final={1: 1.0},
    )
    machine.score("ddduduuu").backward()
    assert down.grad is not None and (down.grad * down).item() == 4.0
    assert up.grad is not None and (up.grad * up).item() == 4.0


@pytest.mark.parametrize("semiring", DIFFERENTIABLE)
def test_prefix_scores_and_total_weight(semiring: str) -> None:
    machine = random_machine(11, semiring, states=3, density=0.5, epsilon="acyclic")
    weights = loose(machine)

    def prefixes(*w: Tensor) -> Tensor:
        found = rebuilt(machine, *w).prefix_scores("abba")
        return found[found.detach().isfinite()]

    assert torch.autograd.gradcheck(prefixes, weights)
    small = {"real": 0.1, "max-times": 0.3, "complex": 0.1, "expectation": 0.1}.get(semiring)
    shift = {"log": -4.0, "signed-log": -4.0, "max-plus": -3.0, "min-plus": 3.0}.get(semiring, 0.0)
    with torch.no_grad():
        weights[0].copy_(weights[0] * (small or 1.0) + shift)
    assert torch.autograd.gradcheck(lambda *w: rebuilt(machine, *w).total_weight(), weights)
