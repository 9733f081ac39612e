"""Forward and backward tables of one string.

    forward(closed=False)[i, q]   ⊕ over path prefixes that derive x_1…x_i and whose last arc, if any, consumes x_i
    forward(closed=True)[i, q]    the same, and any ε-arcs after x_i
    backward(closed=False)[i, q]  ⊕ over path suffixes from q that derive x_{i+1}…x_n and begin with the arc that
                                  consumes x_{i+1} (for i = n: that stop at once)
    backward(closed=True)[i, q]   the same, and any ε-arcs before x_{i+1} (for i = n: before the end)

Prefixes carry the initial weight, suffixes the final one. The tables are those of a trellis whose step i takes the arcs
that consume x_{i+1}, and whose silent edges are the ε-arcs; it steps by the machine's matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rrnn.errors import SemiringError
from rrnn.wfsa.scoring import checked_counts
from rrnn.wfsa.strings import encode
from rrnn.wfsa.transitions import Transitions, transitions
from rrnn.wfsa.trellis import Edges, Trellis

if TYPE_CHECKING:
    from rrnn.wfsa.machine import WFSA


def forward(machine: WFSA, string: Any, *, closed: bool = True) -> Tensor:
    """Return the forward table (n + 1, Q), see above."""
    ids = encode(machine, string)

    def table(m: WFSA) -> Tensor:
        steps = trellis(m, ids)
        return steps.plain(steps.forward(closed=closed), 1)

    return checked_counts(machine, table)


def backward(machine: WFSA, string: Any, *, closed: bool = True) -> Tensor:
    """Return the backward table (n + 1, Q), see above."""
    ids = encode(machine, string)

    def table(m: WFSA) -> Tensor:
        steps = trellis(m, ids)
        return steps.plain(steps.backward(closed=closed), 1)

    return checked_counts(machine, table)


class ArcsBySymbol:
    """The arcs of a machine as edges, symbol by symbol, sources in order; ε is symbol −1."""

    def __init__(self, machine: WFSA) -> None:
        self.machine = machine
        symbol, states = machine.arc_symbol, machine.num_states
        self.order = ((symbol + 1) * states + machine.arc_source).argsort(stable=True)
        self.begin = torch.searchsorted(symbol[self.order], torch.arange(-1, len(machine.alphabet) + 1))
        self._found: dict[int, tuple[Tensor, Edges, Tensor]] = {}

    def __call__(self, symbol: int) -> tuple[Tensor, Edges, Tensor]:
        """Return the arcs' numbers, the edges that they are, and their weights."""
        if symbol not in self._found:
            machine = self.machine
            arcs = self.order[self.begin[symbol + 1] : self.begin[symbol + 2]]
            edges = Edges(machine.num_states, machine.arc_source[arcs], machine.arc_target[arcs])
            self._found[symbol] = (arcs, edges, machine.arc_weight[arcs])
        return self._found[symbol]


@dataclass(frozen=True, eq=False, kw_only=True)
class StringTrellis(Trellis):
    """A machine unrolled over one string."""

    machine: WFSA
    ids: list[int]
    arcs: list[Tensor]
    """The number of each edge's arc, by step."""
    silent_arcs: Tensor

    @cached_property
    def _forwards(self) -> Transitions:
        return transitions(self.machine)

    @cached_property
    def _backwards(self) -> Transitions:
        return transitions(mirrored(self.machine))

    def ahead(self, t: int, row: Tensor) -> Tensor:
        return self._forwards.step(row.unsqueeze(0), [(self.ids[t], 1)]).squeeze(0)

    def back(self, t: int, row: Tensor) -> Tensor:
        if not self.ring.commutative:
            raise SemiringError(
                f"what follows a state is computed on the mirrored machine, which multiplies in the other order; ⊗ of "
                f"{self.ring.name} is not commutative. Score the strings, or list their paths."
            )
        return self._backwards.step(row.unsqueeze(0), [(self.ids[t], 1)]).squeeze(0)

    def close(self, row: Tensor) -> Tensor:
        return row if self._forwards.close is None else self._forwards.close(row.unsqueeze(0)).squeeze(0)

    def close_back(self, row: Tensor) -> Tensor:
        return row if self._backwards.close is None else self._backwards.close(row.unsqueeze(0)).squeeze(0)


def trellis(machine: WFSA, ids: list[int]) -> StringTrellis:
    """Return the machine unrolled over a string."""
    by_symbol = machine.cached("by symbol", lambda: ArcsBySymbol(machine))
    steps = [by_symbol(symbol) for symbol in ids]
    silent_arcs, silent, silent_weight = by_symbol(-1)
    return StringTrellis(
        machine.semiring,
        [edges for _, edges, _ in steps],
        [weight for _, _, weight in steps],
        machine.initial_weight,
        torch.arange(machine.num_states),
        machine.final_weight,
        silent=(silent, silent_weight) if len(silent) else None,
        machine=machine,
        ids=ids,
        arcs=[arcs for arcs, _, _ in steps],
        silent_arcs=silent_arcs,
    )


def mirrored(machine: WFSA) -> WFSA:
    """Arcs turned round, λ and ρ exchanged; the states and the arcs keep their places."""

    def build() -> WFSA:
        from rrnn.wfsa.machine import WFSA

        return WFSA.from_tensors(
            machine.semiring,
            machine.alphabet,
            machine.states,
            machine.arc_target,
            machine.arc_symbol,
            machine.arc_source,
            machine.arc_weight,
            machine.final_weight,
            machine.initial_weight,
            allow_empty=True,
        )

    return machine.cached("mirrored", build)
