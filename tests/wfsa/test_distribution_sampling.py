"""Samples are distributed as the scores say."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from random_machines import all_strings, random_machine

from rrnn.errors import AutomatonError, SemiringError
from rrnn.wfsa import EPSILON, WFSA

N = 20_000


def machine() -> WFSA:
    """Two initial states, ε-cycles, weights that are no probabilities."""
    return WFSA(
        alphabet="ab",
        states="pxyqr",
        arcs=[
            ("p", "a", "p", 0.3),
            ("p", "b", "q", 0.6),
            ("p", EPSILON, "q", 0.2),
            ("q", "a", "r", 0.2),
            ("q", EPSILON, "p", 0.3),
            ("r", "b", "p", 0.5),
            ("q", "a", "x", 50.0),
        ],
        initial={"p": 2.0, "r": 1.0},
        final={"q": 0.7, "r": 0.1, "y": 4.0},
    )


def chi_square(counts: Counter[object], chances: dict[object, float], n: int) -> float:
    """Over those expected five times or more, the rest lumped together; about 1 per degree of freedom."""
    common = {s: p for s, p in chances.items() if p * n >= 5}
    parts = [(counts[s] - p * n) ** 2 / (p * n) for s, p in common.items()]
    rest = 1 - sum(common.values())
    others = n - sum(counts[s] for s in common)
    if rest * n >= 5:
        parts.append((others - rest * n) ** 2 / (rest * n))
    return sum(parts) / max(1, len(parts) - 1)


@pytest.mark.parametrize("semiring", ["real", "log"])
def test_strings(semiring: str) -> None:
    there = machine().with_semiring(semiring)
    drawn = Counter(there.sample(N, torch.Generator().manual_seed(1)))
    strings: list[object] = list(all_strings("ab", 7))
    total = machine().total_weight()
    chances = dict(zip(strings, (machine().score(strings) / total).tolist(), strict=True))
    assert chi_square(Counter(drawn), chances, N) < 1.6
    assert bool((machine().score(list(drawn)) > 0).all())


def test_paths() -> None:
    here = machine()
    drawn = here.sample_paths(N, torch.Generator().manual_seed(2))
    total = here.total_weight().item()
    assert chi_square(Counter(drawn), {path: path.weight / total for path in set(drawn)}, N) < 1.6
    for path in drawn[:50]:
        assert set(path.arcs) <= set(here.arcs)
        assert [arc.source for arc in path.arcs] == list(path.states[:-1])
        product = math.prod(arc.weight for arc in path.arcs)
        ends = here.initial[path.start] * here.final[path.states[-1]]
        assert path.weight == pytest.approx(ends * product)


def test_counts_make_every_path_equally_likely() -> None:
    arcs = [(0, "a", 1, 1), (0, "b", 1, 2), (1, "a", 2, 1), (1, EPSILON, 2, 1)]
    there = WFSA("counting", alphabet="ab", arcs=arcs, initial={0: 1}, final={2: 1})
    drawn = Counter(there.sample(6000, torch.Generator().manual_seed(3)))
    wanted = {("a", "a"): 1 / 6, ("a",): 1 / 6, ("b", "a"): 1 / 3, ("b",): 1 / 3}
    assert set(drawn) == set(wanted) and chi_square(Counter(drawn), dict(wanted), 6000) < 3


def test_the_generator_decides() -> None:
    draws = [machine().sample(20, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)]
    assert draws[0] == draws[1] != draws[2]
    assert machine().sample(0) == []


def test_what_cannot_be_sampled() -> None:
    with pytest.raises(SemiringError, match="not negative"):
        random_machine(0, "real", density=1.0).sample(1)
    with pytest.raises(SemiringError, match="real, log or counting"):
        random_machine(0, "max-plus").sample(1)
    with pytest.raises(AutomatonError, match="cycle"):
        WFSA(alphabet="a", arcs=[(0, "a", 0, 1.0)], initial={0: 1}, final={0: 1}).sample(1)
    with pytest.raises(AutomatonError, match="path of non-zero weight"):
        WFSA(alphabet="a", states=[0, 1], initial={0: 1}, final={1: 1}, allow_empty=True).sample(1)
    with pytest.raises(AutomatonError, match="must not be negative"):
        machine().sample(-1)
