"""⊕ over all strings: the total weight of a machine, and of everything that can follow a state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rrnn.wfsa.closure import closure
from rrnn.wfsa.graph import reachable, successors
from rrnn.wfsa.products import segment_plus
from rrnn.wfsa.scoring import checked_counts, finish

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def total_weight(machine: WFSA) -> Tensor:
    """⊕ of the scores of all strings, 0-d. Where cycles make that an infinite sum it is taken by star (over the
    reals by solving a linear system, if the spectral radius is below 1), or refused with the name of a cycle."""
    return checked_counts(machine, lambda m: finish(m, suffix_weights(m, prefixes=True)))


def suffix_weights(machine: WFSA, *, prefixes: bool = False) -> Tensor:
    """(Q,): ⊕ over all path suffixes from q, final weight included (with `prefixes`: over all path prefixes that
    end in q, initial weight included). 0̄ for states that no path from an initial to a final state meets."""
    ring = machine.semiring
    source, target, weight = _arcs_between_useful_states(machine)
    # One arc for all symbols (and ε) from one state to another: here it does not matter what is consumed.
    code, place = (source * machine.num_states + target).unique(return_inverse=True)
    weight = segment_plus(ring, weight, place, code.numel())
    source, target = code // machine.num_states, code % machine.num_states
    start = machine.initial_weight if prefixes else machine.final_weight
    useful = torch.tensor(sorted(_useful(machine)), dtype=torch.int64)
    start = ring.zeros(machine.num_states).index_copy(0, useful, start[useful])
    ends = (source, target) if prefixes else (target, source)
    close = closure(ring, machine.states, *ends, weight, label="")
    return close(start.unsqueeze(0))[0] if close else start


def _arcs_between_useful_states(machine: WFSA) -> tuple[Tensor, Tensor, Tensor]:
    useful = torch.zeros(machine.num_states, dtype=torch.bool)
    useful[list(_useful(machine))] = True
    arcs = useful[machine.arc_source] & useful[machine.arc_target] & _counts(machine, machine.arc_weight)
    return machine.arc_source[arcs], machine.arc_target[arcs], machine.arc_weight[arcs]


def _counts(machine: WFSA, weights: Tensor) -> Tensor:
    """Which weights are not 0̄. One that asks for a gradient counts all the same, unless 0̄ is infinite and
    passes none on."""
    if weights.requires_grad and not machine.semiring.infinities:
        return torch.ones(weights.shape[0], dtype=torch.bool)
    return ~machine.semiring.is_zero(weights.detach())


def _useful(machine: WFSA) -> set[int]:
    """States on some path from an initial to a final state. A cycle elsewhere may diverge: nobody sees it."""

    def build() -> set[int]:
        arcs = _counts(machine, machine.arc_weight).nonzero().flatten()
        edges = list(zip(machine.arc_source[arcs].tolist(), machine.arc_target[arcs].tolist(), strict=True))
        start = _counts(machine, machine.initial_weight).nonzero().flatten().tolist()
        end = _counts(machine, machine.final_weight).nonzero().flatten().tolist()
        n = machine.num_states
        return reachable(successors(n, edges), start) & reachable(
            successors(n, ((p, q) for q, p in edges)), end
        )

    return machine.cached("useful", build)
