"""A trellis: its tables against a machine's, its masses against gradients, its lanes against each lane alone."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from random_machines import random_machine
from torch import Tensor
from wfsa_strategies import machines_and_strings

from rrnn.arithmetic import TENSORS
from rrnn.semirings import SEMIRINGS, Semiring, get_semiring
from rrnn.wfsa import WFSA
from rrnn.wfsa.forward_backward import trellis
from rrnn.wfsa.strongest import ranks_of, strongest
from rrnn.wfsa.trellis import Edges, Grouping, Trellis

SEVERAL = sorted(name for name, ring in SEMIRINGS.items() if ring.reads_reals and not ring.integers)


def general(steps: Trellis) -> Trellis:
    """The same trellis, which steps edge by edge and closes by Kleene's algorithm."""
    return steps.over(steps.ring, lambda weight: weight)


@given(data=machines_and_strings(epsilon="cyclic", longest=4))
def test_a_machine_steps_as_any_trellis(data: tuple[WFSA, list[str]]) -> None:
    machine, (string, *_) = data
    fast = trellis(machine, machine.encode(string))
    slow = general(fast)
    for closed in (False, True):
        for a, b in (
            (fast.forward(closed=closed), slow.forward(closed=closed)),
            (fast.backward(closed=closed), slow.backward(closed=closed)),
        ):
            torch.testing.assert_close(fast.plain(a, 1), slow.plain(b, 1))
    torch.testing.assert_close(fast.plain(fast.total()), slow.plain(slow.total()))


def weights(ring: Semiring, *shape: int, seed: int) -> Tensor:
    """Small positive numbers, as weights."""
    g = torch.Generator().manual_seed(seed)
    return ring.bind(
        ring.from_real(torch.rand(*shape, generator=g, dtype=torch.float64) * 0.3 + 0.01, TENSORS)
    )


def some(ring: Semiring, lanes: tuple[int, ...] = (), *, silent: bool = True, steps: int = 4) -> Trellis:
    """A trellis of three states; two edges share their states, and two ends theirs."""
    edges = Edges(3, torch.tensor([0, 0, 1, 2, 1, 0]), torch.tensor([0, 1, 1, 2, 2, 1]))
    return Trellis(
        ring,
        [edges] * steps,
        [weights(ring, 6, *lanes, seed=t) for t in range(steps)],
        weights(ring, 3, *lanes, seed=10),
        torch.tensor([2, 1, 2]),
        weights(ring, 3, *lanes, seed=11),
        silent=(Edges(3, torch.tensor([0, 1, 2]), torch.tensor([1, 2, 1])), weights(ring, 3, *lanes, seed=12))
        if silent
        else None,
    )


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("places", [[1, 3, 1, 0, 3, 3], [0, 1, 2, 3, 3], [2], []])
def test_grouped_sums_run_from_left_to_right(name: str, places: list[int]) -> None:
    """To the bit as one ⊕ after the other; a place without terms has 0̄."""
    ring = get_semiring(name)
    terms, grouping = (
        weights(ring, len(places), 2, seed=1),
        Grouping(torch.tensor(places, dtype=torch.int64), 4),
    )
    found: list[Tensor | None] = [None] * 4
    for place, term in zip(places, terms, strict=True):
        before = found[place]
        found[place] = term if before is None else ring.t_plus(before, term)
    zero = ring.zeros(2, dtype=terms.dtype)
    expected = torch.stack([zero if total is None else total for total in found])
    assert grouping.sum(ring, terms[grouping.order]).equal(expected)


@pytest.mark.parametrize("lanes", [(), (2, 3)])
@pytest.mark.parametrize("silent", [False, True])
def test_masses_are_gradients(silent: bool, lanes: tuple[int, ...]) -> None:
    """Over the reals, weight · ∂total/∂weight; over logarithms, the share of the total is the gradient itself."""
    for name in ("real", "log"):
        steps = some(get_semiring(name), lanes, silent=silent)
        leaves = [w.requires_grad_() for w in steps.weights] + (
            [steps.silent[1].requires_grad_()] if steps.silent else []
        )
        total = steps.total().values
        gradients = torch.autograd.grad(total.sum(), leaves)
        before, after = steps.forward(), steps.backward()
        masses = [steps.plain(mass, 0) for mass in steps.masses(before, after)]
        if silent:
            found = [steps.plain(mass, 0) for mass in steps.silent_masses(before, after)]
            masses.append(steps.ring.t_sum(torch.stack(found), 0))
        for weight, mass, gradient in zip(leaves, masses, gradients, strict=True):
            share = weight * gradient if name == "real" else total + gradient.log()
            torch.testing.assert_close(mass, share)


@pytest.mark.parametrize("name", SEVERAL)
def test_lanes_do_not_mix(name: str) -> None:
    """Several lanes of different lengths are each lane alone, over its own steps."""
    ring, lanes, lengths = get_semiring(name), (2, 2), [[4, 2], [3, 0]]
    valid = torch.arange(4)[:, None, None] < torch.tensor(lengths)
    whole = replace(some(ring, lanes), valid=valid)
    totals = whole.plain(whole.total())
    masses = [whole.plain(mass, 0) for mass in whole.masses(whole.forward(), whole.backward())]
    traces = strongest(whole.over(get_semiring("max-plus"), lambda w: ranks_of(ring, w)), 20)
    assert traces.silent is not None
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        n, at = lengths[place[0]][place[1]], (slice(None), *place)
        (silent_edges, silent_weight) = whole.silent or (None, None)
        assert silent_edges is not None and silent_weight is not None
        alone = Trellis(
            ring,
            whole.edges[:n],
            [weight[at] for weight in whole.weights[:n]],
            whole.initial[at],
            whole.ends,
            whole.final[at],
            silent=(silent_edges, silent_weight[at]),
        )
        torch.testing.assert_close(totals[place], alone.plain(alone.total()))
        expected = [alone.plain(mass, 0) for mass in alone.masses(alone.forward(), alone.backward())]
        for t in range(4):
            torch.testing.assert_close(masses[t][at], expected[t] if t < n else ring.zeros(6))
        best = strongest(alone.over(get_semiring("max-plus"), lambda w: ranks_of(ring, w)), 20)
        torch.testing.assert_close(traces.rank[at], best.rank)
        assert traces.start[at].equal(best.start) and traces.end[at].equal(best.end)
        assert traces.edges[:n][(slice(None), *at)].equal(best.edges)
        assert bool((traces.edges[n:][(slice(None), *at)] == -1).all())


def test_strongest_paths_are_those_of_all_paths() -> None:
    """Against all paths of a trellis without silent edges, listed one by one; ranks tie, so the order counts."""
    ring = get_semiring("max-plus")
    steps = some(ring, silent=False, steps=3).over(ring, lambda w: (w * 2).round())
    source, target = steps.edges[0].source.tolist(), steps.edges[0].target.tolist()
    listed = []
    for end, state in enumerate(steps.ends.tolist()):
        suffixes = [(steps.final[end].item(), state, ())]
        for t in reversed(range(3)):
            suffixes = [
                (rank + steps.weights[t][e].item(), source[e], (e, *edges))
                for rank, q, edges in suffixes
                for e in range(6)
                if target[e] == q
            ]
        listed += [(rank + steps.initial[q].item(), q, end, edges) for rank, q, edges in suffixes]
    listed.sort(key=lambda path: -path[0])  # stable: of tied paths the first, from the end
    found = strongest(steps, len(listed) + 3)
    for k in (1, 5, len(listed)):
        few = strongest(steps, k)
        assert few.rank.tolist() == [path[0] for path in listed[:k]]
        assert few.start.tolist() == [path[1] for path in listed[:k]]
        assert few.end.tolist() == [path[2] for path in listed[:k]]
        assert [tuple(edges) for edges in few.edges.T.tolist()] == [path[3] for path in listed[:k]]
    assert found.rank.isneginf().tolist() == [False] * len(listed) + [True] * 3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_ranks_that_are_no_numbers(value: float) -> None:
    """What is no number is no path; an infinite weight is the strongest."""
    ring = get_semiring("max-plus")
    steps = some(ring)
    steps.weights[1][0] = value
    found = strongest(steps.over(ring, lambda w: ranks_of(ring, w)), 50)
    taken = (found.edges[1] == 0) & (found.rank > -math.inf)
    assert bool(taken[0]) == (value == math.inf)
    assert bool(taken.any()) == (value == math.inf)


def test_nothing_to_search() -> None:
    ring = get_semiring("max-plus")
    steps = some(ring, (2, 0))
    assert strongest(steps, 3).rank.shape == (0, 2, 0)
    nowhere = replace(some(ring), ends=torch.empty(0, dtype=torch.int64), final=torch.empty(0))
    assert strongest(nowhere, 3).edges.shape == (4, 0)
    assert random_machine(0, "real").k_best("", 2) is not None


@pytest.mark.parametrize("name", ["real", "complex", "log", "max-plus"])
@pytest.mark.parametrize("factor", [1.0, 1e-9, 1e9, 0.0])
def test_the_range_of_many_rows_is_checked_at_once(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit as row by row, also if rows leave the range of floats in the middle of a block, or become zero."""
    ring = get_semiring(name)
    usual = some(ring, (2,), silent=False, steps=90)
    scaled = ring.t_times(
        torch.stack(list(usual.weights)), ring.bind(ring.from_real(torch.tensor(factor), TENSORS))
    )
    steps = replace(usual, weights=torch.cat((torch.stack(list(usual.weights))[:40], scaled[40:])))
    many = (*steps.forward(), *steps.backward())
    monkeypatch.setattr("rrnn.wfsa.trellis._BLOCK", 1)
    for a, b in zip(many, (*steps.forward(), *steps.backward()), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    listed = replace(steps, weights=list(steps.weights))
    for a, b in zip(many, (*listed.forward(), *listed.backward()), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    if not ring.scales or factor in (1e-9, 1e9):
        assert bool(many[1].any()) == ring.scales
