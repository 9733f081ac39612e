"""One time step of Forward for many strings at once: α ← α ⊗ τ(x_t), then closed under ε."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rrnn.wfsa.closure import Closure, closure
from rrnn.wfsa.products import Matrices, segment_plus, symbol_of_each

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA

_DENSE = 1 << 22  # numbers in one matrix per symbol together; beyond it arcs are walked one by one, …
_CROWDED = 0.25  # … unless this part of the numbers are arcs
_PAIRS = 1 << 20  # (string, arc) pairs walked at a time

Groups = list[tuple[int, int]]
"""(symbol, how many rows), rows of one symbol standing together."""


class Transitions:
    """The arcs of a machine, laid out for stepping. Differentiable in the weights."""

    def __init__(self, machine: WFSA) -> None:
        self.machine, self.ring = machine, machine.semiring
        consuming = (machine.arc_symbol >= 0).nonzero().flatten()
        numbers = len(machine.alphabet) * machine.num_states**2 * self.ring.size
        self.dense = numbers <= _DENSE or consuming.numel() * self.ring.size >= _CROWDED * numbers
        if self.dense:
            shape = (len(machine.alphabet), machine.num_states, machine.num_states)
            place = (
                machine.arc_symbol[consuming],
                machine.arc_target[consuming],
                machine.arc_source[consuming],
            )
            empty = self.ring.zeros(*shape)
            self.matrices = Matrices(self.ring, empty.index_put(place, machine.arc_weight[consuming]))
        else:
            # By symbol, then by source, so that of tied arcs the first source comes first.
            code = machine.arc_symbol[consuming] * machine.num_states + machine.arc_source[consuming]
            self.order = consuming[code.argsort(stable=True)]
            counts = torch.bincount(machine.arc_symbol[consuming], minlength=len(machine.alphabet))
            self.counts, self.starts = counts, counts.cumsum(0) - counts
        self.close: Closure | None = epsilon_closure(machine)

    def initial(self, rows: int, *, closed: bool = True) -> Tensor:
        """(rows, Q): λ, closed under ε."""
        alpha = self.machine.initial_weight.unsqueeze(0)
        alpha = self.close(alpha) if closed and self.close else alpha
        return alpha.expand(rows, *alpha.shape[1:])

    def step(self, alpha: Tensor, groups: Groups) -> Tensor:
        """(n, Q) after one more symbol each, before ε."""
        return self.matrices.times(alpha, groups) if self.dense else self._walk(alpha, groups)

    def _walk(self, alpha: Tensor, groups: Groups) -> Tensor:
        machine, states = self.machine, self.machine.num_states
        symbols = symbol_of_each(groups)
        most = max(1, max(int(self.counts[s]) for s, _ in groups))
        parts = []
        for block, which in zip(
            alpha.split(max(1, _PAIRS // most)), symbols.split(max(1, _PAIRS // most)), strict=True
        ):
            counts = self.counts[which]
            row = torch.arange(which.numel()).repeat_interleave(counts)
            first = (self.starts[which] - (counts.cumsum(0) - counts)).repeat_interleave(counts)
            arc = self.order[first + torch.arange(row.numel())]
            values = self.ring.t_times(block[row, machine.arc_source[arc]], machine.arc_weight[arc])
            into = row * states + machine.arc_target[arc]
            landed = segment_plus(self.ring, values, into, which.numel() * states)
            parts.append(landed.unflatten(0, (which.numel(), states)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def epsilon_closure(machine: WFSA) -> Closure | None:
    arcs = (machine.arc_symbol < 0).nonzero().flatten()
    return closure(
        machine.semiring,
        machine.states,
        machine.arc_source[arcs],
        machine.arc_target[arcs],
        machine.arc_weight[arcs],
    )


def transitions(machine: WFSA) -> Transitions:
    """The machine's transitions, laid out once."""
    return machine.cached("transitions", lambda: Transitions(machine))
