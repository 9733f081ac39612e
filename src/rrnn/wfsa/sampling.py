"""Drawing paths and strings in proportion to their weights.

With β(q) the total weight of everything that can follow state q, a path starts in q with probability λ(q)β(q)/Z,
and from q stops with ρ(q)/β(q) or takes an arc with wβ(q')/β(q): exactly the paths' weights over their sum Z.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rrnn.errors import AutomatonError
from rrnn.wfsa.marginals import require_non_negative
from rrnn.wfsa.paths import Path, paths_of
from rrnn.wfsa.total import suffix_weights

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


class _Choices:
    """From each state: stop, or one of its arcs. Cumulative probabilities of state q lie in (q, q+1], one after
    the other, so that one binary search draws for any number of states at once."""

    def __init__(self, machine: WFSA) -> None:
        n = machine.num_states
        suffix = _logarithms(machine, suffix_weights(machine))
        stop = _logarithms(machine, machine.final_weight) - suffix
        arc = (
            _logarithms(machine, machine.arc_weight) + suffix[machine.arc_target] - suffix[machine.arc_source]
        )
        state = torch.cat((torch.arange(n), machine.arc_source))
        order = state.argsort(stable=True)
        entered = (suffix > -torch.inf)[state]  # of the other states nobody asks
        chance = torch.cat((stop, arc)).exp().where(entered, 0.0)[order]
        self.arc = torch.cat((torch.full((n,), -1), torch.arange(arc.numel())))[order]
        self.cumulative, self.last = _cumulative(chance, state[order], n)
        start = _logarithms(machine, machine.initial_weight) + suffix
        if not bool((start > -torch.inf).any()):
            raise AutomatonError(
                "only a machine with a path of non-zero weight can be sampled; this has none"
            )
        begin = (start - start.logsumexp(0)).exp()
        self.begin, self.begin_last = _cumulative(begin, torch.zeros(n, dtype=torch.int64), 1)
        self.target = machine.arc_target

    def starts(self, n: int, generator: torch.Generator | None) -> Tensor:
        u = torch.rand(n, generator=generator, dtype=torch.float64)
        return torch.searchsorted(self.begin, u, right=True).minimum(self.begin_last[0])

    def draw(self, states: Tensor, generator: torch.Generator | None) -> Tensor:
        """An arc each, or −1 to stop."""
        u = torch.rand(states.numel(), generator=generator, dtype=torch.float64)
        place = torch.searchsorted(self.cumulative, states + u, right=True)
        return self.arc[place.minimum(self.last[states])]  # q + u may round up to q + 1


def _cumulative(chance: Tensor, row: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """row + the sum of the chances of its row so far, made to end at row + 1; and the last possible of each row."""
    place = torch.arange(chance.numel())
    last = torch.zeros(rows, dtype=torch.int64).scatter_reduce(0, row, place.where(chance > 0, 0), "amax")
    sums = chance.cumsum(0)
    first = torch.searchsorted(row, torch.arange(rows))
    within = sums - (sums - chance)[first][row]
    within = within.clamp(0, 1).where(place < last[row], 1.0)
    return row + within, last


def _logarithms(machine: WFSA, weights: Tensor) -> Tensor:
    weights = weights.detach()
    return machine.semiring.on_tensors(machine.semiring.to_log, weights.to(torch.float64))


def draw_arcs(machine: WFSA, n: int, generator: torch.Generator | None) -> tuple[list[int], list[list[int]]]:
    """n paths as (first states, arcs), all drawn step by step together."""
    if n < 0:
        raise AutomatonError(f"the number of samples cannot be negative; got {n}")
    require_non_negative(machine, "sampling")
    choices = machine.cached("choices", lambda: _Choices(machine.detach()))
    state = choices.starts(n, generator)
    first, arcs = state.tolist(), [[] for _ in range(n)]
    who = torch.arange(n)
    while who.numel():
        arc = choices.draw(state, generator)
        going = arc >= 0
        who, arc = who[going], arc[going]
        for i, a in zip(who.tolist(), arc.tolist(), strict=True):
            arcs[i].append(a)
        state = choices.target[arc]
    return first, arcs


def sample(machine: WFSA, n: int, generator: torch.Generator | None = None) -> list[tuple[Any, ...]]:
    """n strings, drawn in proportion to their scores."""
    symbols = machine.arc_symbol.tolist()
    _, drawn = draw_arcs(machine, n, generator)
    return [tuple(machine.alphabet[symbols[a]] for a in arcs if symbols[a] >= 0) for arcs in drawn]


def sample_paths(machine: WFSA, n: int, generator: torch.Generator | None = None) -> list[Path]:
    """n paths, drawn in proportion to their weights."""
    first, drawn = draw_arcs(machine, n, generator)
    return list(paths_of(machine, zip(first, drawn, strict=True)))
